/* What becomes of a command: connections, copies, and the times by which nothing of them can act.
 *
 * Part of the quorum's model (quorum_model.c), on its one thread. A client does one thing after the
 * other at each server, as the core of a member does: when a connection is lost with a copy unanswered,
 * nothing is sent there before the copy's not-after has passed, and a question whose outcome is unknown
 * is settled by a release. A release is sent until it is answered. */
#include "quorum_world.h"

#include "support/wait.h"

#include <string.h>

#define CONNECT_AGAIN_US (80 * MS)
#define AGE_STEP_MS 100 /* servers tell in whole steps how long they have been up */
#define ROUNDING_MS 2

/* ---- What is to be done at a server ---------------------------------------------------------- */

bool quorum_is_queued(const struct link *link, enum member_op member_op) {
    for (size_t i = 0; i < link->queued; i++)
        if (link->queue[i].member_op == member_op)
            return true;
    return false;
}

void quorum_push(struct quorum_model *m, int client, int server, struct command command) {
    struct link *link = &m->clients[client].links[server];
    if (link->queued == QUEUE)
        support_die("too much is to be done at one server");
    link->queue[link->queued++] = command;
    if (link->due_at > m->now)
        link->due_at = m->now;
}

static struct command pop(struct link *link) {
    struct command first = link->queue[0];
    link->queued--;
    memmove(link->queue, link->queue + 1, link->queued * sizeof *link->queue);
    link->under_way = false;
    return first;
}

/* What was sent may have run, so only a release undoes it. */
void quorum_forget(struct quorum_model *m, int client, int server) {
    struct link *link = &m->clients[client].links[server];
    size_t kept = 0;
    for (size_t i = 0; i < link->queued; i++)
        if (link->queue[i].sent || link->queue[i].member_op == GIVE_BACK)
            link->queue[kept++] = link->queue[i];
    link->queued = kept;
}

/* The first thing there has failed, and nobody knows if it has run. */
static void fail_first(struct quorum_model *m, int client, int server) {
    struct link *link = &m->clients[client].links[server];
    if (link->queued == 0 || link->queue[0].member_op == GIVE_BACK)
        return;
    struct command first = pop(link);
    if (first.member_op == ASK && first.sent) {
        m->tally.settled++;
        memmove(link->queue + 1, link->queue, link->queued * sizeof *link->queue);
        link->queue[0] = (struct command){.member_op = GIVE_BACK};
        link->queued++;
    }
    quorum_failed(m, client, server, &first);
}

/* ---- Connections ----------------------------------------------------------------------------- */

static bool is_loose(const struct quorum_model *m, const struct copy *copy) {
    const struct client *client = &m->clients[copy->client];
    return copy->life != client->life || copy->epoch != client->links[copy->server].epoch;
}

/* Copies on a connection that is given up may arrive much later, or never. */
void quorum_break_link(struct quorum_model *m, int client, int server) {
    struct link *link = &m->clients[client].links[server];
    for (int i = 0; i < COPIES; i++) {
        struct copy *copy = &m->copies[i];
        if (copy->at == NEVER || copy->client != client || copy->server != server ||
            is_loose(m, copy))
            continue;
        if (copy->returns || roll(&m->play, 4) == 0)
            copy->at = NEVER;
        else
            copy->at = m->now +
                       quorum_between(m, 0, roll(&m->play, 2) == 0 ? SLICE_MS / 2 : LEASE_MS) * MS;
    }
    link->connected = link->under_way = false;
    link->epoch++;
    link->due_at = m->now;
}

/* The greeting tells the server's time, and since when it is up. */
static bool connect_link(struct quorum_model *m, int client, int server) {
    struct client *c = &m->clients[client];
    struct link *link = &c->links[server];
    const struct machine *machine = &m->machines[server];
    if (!machine->up || link->cut_until > m->now)
        return false;
    int64_t now_ms = quorum_clock_ms(m, &c->clock);
    int64_t up_us = m->now - machine->began_at;
    int64_t up_ms = (up_us + up_us / 1000 * machine->clock.ppm / 1000) / MS;
    link->connected = true;
    link->ahead_ms = quorum_clock_ms(m, &machine->clock) - now_ms;
    link->up_since_ms = now_ms - (up_ms / AGE_STEP_MS - 1) * AGE_STEP_MS;
    return true;
}

/* ---- Sending --------------------------------------------------------------------------------- */

static struct copy *new_copy(struct quorum_model *m) {
    for (int i = 0; i < COPIES; i++)
        if (m->copies[i].at == NEVER)
            return &m->copies[i];
    support_die("too many copies");
}

static int64_t travel_us(struct quorum_model *m) {
    unsigned draw = roll(&m->play, 20);
    if (draw < (m->slow ? 8 : 16))
        return quorum_between(m, MS, 3 * MS);
    return draw < (m->slow ? 12 : 19) ? quorum_between(m, 5 * MS, 40 * MS)
                                      : quorum_between(m, 40 * MS, 400 * MS);
}

static void send_first(struct quorum_model *m, int client, int server) {
    struct client *c = &m->clients[client];
    struct link *link = &c->links[server];
    int64_t now_ms = quorum_clock_ms(m, &c->clock), stop_ms = now_ms + SLICE_MS;
    link->queue[0].sent = link->under_way = true;
    link->quiet_until_ms = stop_ms + ROUNDING_MS; /* if it is not answered */
    link->due_at = m->now + (SLICE_MS + quorum_between(m, 0, SLICE_MS)) * MS;
    struct copy *copy = new_copy(m);
    *copy = (struct copy){.at = m->now + travel_us(m),
                          .client = client,
                          .server = server,
                          .life = c->life,
                          .epoch = link->epoch,
                          .run = m->machines[server].run,
                          .command = link->queue[0],
                          .sent_ms = now_ms,
                          .not_after_ms = stop_ms + link->ahead_ms};
    if (link->cut_until > copy->at) /* the network delivers it later, or not at all */
        copy->at = roll(&m->play, 2) == 0 ? NEVER : link->cut_until + travel_us(m);
}

void quorum_pump(struct quorum_model *m, int client, int server) {
    struct client *c = &m->clients[client];
    struct link *link = &c->links[server];
    link->due_at = NEVER;
    if (link->under_way) { /* the answer is overdue */
        quorum_break_link(m, client, server);
        if (roll(&m->play, 2) == 0)
            fail_first(m, client, server);
        return;
    }
    if (link->queued == 0)
        return;
    link->due_at = m->now + CONNECT_AGAIN_US;
    if (!link->connected && !connect_link(m, client, server)) {
        fail_first(m, client, server);
        return;
    }
    int64_t quiet_ms = link->quiet_until_ms + 1 - quorum_clock_ms(m, &c->clock);
    if (m->discipline == HASTY || quiet_ms <= 0)
        send_first(m, client, server);
    else
        link->due_at = m->now + quiet_ms * MS;
}

/* ---- Arriving -------------------------------------------------------------------------------- */

static void reply_arrives(struct quorum_model *m, struct copy *copy) {
    struct client *c = &m->clients[copy->client];
    struct link *link = &c->links[copy->server];
    link->ahead_ms = copy->server_ms - quorum_clock_ms(m, &c->clock);
    link->quiet_until_ms = 0;
    link->due_at = m->now;
    link->under_way = false;
    if (copy->code == -3)
        return; /* it is sent again, with more time */
    pop(link);
    quorum_answered(m, copy);
}

void quorum_arrive(struct quorum_model *m, struct copy *copy) {
    struct copy arrived = *copy;
    copy->at = NEVER;
    if (!arrived.returns &&
        (arrived.run != m->machines[arrived.server].run || !m->machines[arrived.server].up))
        return; /* no connection outlives its server */
    if (arrived.returns) {
        if (!is_loose(m, &arrived))
            reply_arrives(m, &arrived);
        return;
    }
    quorum_run(m, &arrived);
    if (is_loose(m, &arrived) || roll(&m->play, 25) == 0)
        return; /* nobody hears of it */
    arrived.returns = true;
    arrived.at = m->now + travel_us(m);
    const struct link *link = &m->clients[arrived.client].links[arrived.server];
    if (link->cut_until > arrived.at)
        arrived.at = link->cut_until + travel_us(m);
    *copy = arrived;
}
