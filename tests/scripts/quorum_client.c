/* A client of the quorum's model: the rules of src/joint, without its threads and its timeouts.
 *
 * Part of quorum_model.c, on its one thread. What counts, until when, and whether there was a break is
 * asked of the library (joint/quorum/quorum_validity.h), and so is what token it has. */
#include "quorum_world.h"

#include <inttypes.h>
#include <string.h>

static int64_t now_of(const struct quorum_model *m, const struct client *client) {
    return quorum_clock_ms(m, &client->clock);
}

static void sleep_ms(struct quorum_model *m, struct client *client, int64_t ms) {
    client->wake_at = m->now + ms * MS;
}

/* ---- Giving back ----------------------------------------------------------------------------- */

static void give_back(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    client->wanted = false;
    for (int s = 0; s < SERVERS; s++) {
        client->answers[s] = UNASKED;
        quorum_forget(m, who, s);
        if (client->votes.of[s].held)
            quorum_push(m, who, s, (struct command){.member_op = GIVE_BACK});
    }
    hfi_votes_begin(&client->votes);
}

static void think(struct quorum_model *m, int who) {
    give_back(m, who);
    m->clients[who].phase = THINKING;
    sleep_ms(m, &m->clients[who], quorum_between(m, 1, m->crashes ? LEASE_MS / 3 : LEASE_MS / 15));
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static void push(struct quorum_model *m, int who, int server, enum member_op member_op,
                 int64_t token) {
    int64_t lease_ms = m->clients[who].lease_ms;
    quorum_push(m, who, server,
                (struct command){.member_op = member_op, .lease_ms = lease_ms, .token = token});
}

static void ask_others(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    client->wanted = true;
    client->phase = ASKING;
    client->next_ttl_ms = LEASE_MS;
    for (int s = 0; s < SERVERS; s++) {
        if (client->votes.of[s].held || quorum_is_queued(&client->links[s], ASK))
            continue;
        client->answers[s] = UNASKED;
        push(m, who, s, ASK, 0);
    }
    sleep_ms(m, client, quorum_between(m, 60, 2 * SLICE_MS));
}

static void ask_all(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    client->lease_ms = roll(&m->play, 3) == 0 ? LEASE_MS / 2 : LEASE_MS;
    client->give_up_at = m->now + quorum_between(m, LEASE_MS, 3 * LEASE_MS) * MS;
    ask_others(m, who);
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

/* As if nothing had to be written back, or drawn again. */
static int64_t largest_token(const struct client *client, int64_t now_ms) {
    int64_t token = 0;
    for (size_t s = 0; s < SERVERS; s++)
        if (hfi_votes_counts(&client->votes, s, now_ms) && client->votes.of[s].token > token)
            token = client->votes.of[s].token;
    return token;
}

/* The token of the hold, if a majority stores it; 0: not yet, and those that do not are asked to. */
static int64_t agreed_token(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    int64_t now_ms = now_of(m, client), wishes[SERVERS];
    if (m->discipline == LARGEST_OF_VOTES)
        return largest_token(client, now_ms);
    int64_t token = hfi_votes_token(&client->votes, now_ms, wishes);
    for (int s = 0; s < SERVERS && token == 0; s++) {
        if (wishes[s] == 0 || quorum_is_queued(&client->links[s], RAISE))
            continue;
        m->tally.raised += wishes[s] > 0;
        m->tally.drawn_again += wishes[s] == HFI_TOKEN_DRAW;
        push(m, who, s, RAISE, wishes[s]);
    }
    return token;
}

/* ---- Winning --------------------------------------------------------------------------------- */

static size_t answered(const struct client *client) {
    size_t count = 0;
    for (int s = 0; s < SERVERS; s++)
        count += client->answers[s] == GRANTED || client->answers[s] == BUSY;
    return count;
}

static bool has_majority(struct quorum_model *m, struct client *client) {
    int64_t now_ms = now_of(m, client);
    if (m->discipline != OF_THOSE_THAT_ANSWER)
        return hfi_votes_deadline_ms(&client->votes, now_ms) > now_ms;
    client->needed = hfi_quorum_of(answered(client));
    return hfi_votes_count(&client->votes, now_ms) >= client->needed;
}

static bool win(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    int64_t token = 0;
    if (!has_majority(m, client))
        return false;
    if (m->fenced && (token = agreed_token(m, who)) == 0)
        return false;
    hfi_votes_won(&client->votes, now_of(m, client));
    client->phase = HOLDING;
    client->renews = !m->idle && roll(&m->play, 4) != 0;
    client->release_at =
        client->renews
            ? m->now +
                  quorum_between(m, 1, roll(&m->play, 2) == 0 ? LEASE_MS / 10 : 2 * LEASE_MS) * MS
            : NEVER;
    client->stolen_of = 0;
    memset(client->stolen, 0, sizeof client->stolen);
    memset(client->heard, 0, sizeof client->heard);
    sleep_ms(m, client, quorum_between(m, 1, client->lease_ms / 6));
    m->tally.held++;
    note(&m->play, "c%d.%d holds it, token %" PRId64, who, client->life, token);
    quorum_judge_win(m, who, token);
    return true;
}

/* A round of questions is over, and there is no majority of ours. */
static void decide(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    if (m->now >= client->give_up_at) {
        think(m, who);
        return;
    }
    if (hfi_votes_holders(&client->votes) >= hfi_quorum_of(SERVERS)) {
        m->tally.aged++;
        client->phase = AGEING; /* or its token is not agreed upon */
        sleep_ms(m, client, quorum_between(m, 5, client->lease_ms / 3));
        return;
    }
    int first = 0;
    while (first < SERVERS - 1 && client->answers[first] != GRANTED &&
           client->answers[first] != BUSY)
        first++;
    if (answered(client) >= hfi_quorum_of(SERVERS) && client->answers[first] == GRANTED &&
        roll(&m->play, 6) != 0) {
        client->phase = KEEPING;
        sleep_ms(m, client, quorum_between(m, 5, 40));
        return;
    }
    give_back(m, who);
    client->phase = WAITING;
    sleep_ms(m, client,
             roll(&m->play, 2) == 0 ? client->next_ttl_ms : quorum_between(m, 10, LEASE_MS / 5));
}

/* ---- Holding --------------------------------------------------------------------------------- */

/* Renews it where it is held, and fills up the others. */
static void renew(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    for (int s = 0; s < SERVERS; s++)
        if (client->links[s].queued == 0)
            push(m, who, s, client->votes.of[s].held ? EXTEND : ASK, 0);
    sleep_ms(m, client, client->lease_ms / 3);
}

/* Asks those that are not to be renewed yet. */
static void probe(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    for (int s = 0; s < SERVERS; s++)
        if (client->links[s].queued == 0 && client->votes.of[s].held && roll(&m->play, 2) == 0)
            push(m, who, s, PROBE, 0);
}

void quorum_client_look(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    if (m->discipline == MADE_UP)
        client->votes.broken = false;
    if (client->phase != HOLDING || quorum_believes(m, client))
        return;
    m->tally.lost++;
    note(&m->play, "c%d.%d has lost it", who, client->life);
    think(m, who);
}

/* ---- What is heard --------------------------------------------------------------------------- */

static void note_held(struct quorum_model *m, struct client *client, const struct copy *copy) {
    int64_t now_ms = now_of(m, client), guard_ms = client->votes.guard_ms;
    if (m->discipline == BEYOND_THE_GUARD)
        client->votes.guard_ms = 0;
    hfi_votes_held(&client->votes, (size_t)copy->server,
                   m->discipline == FROM_THE_REPLY ? now_ms : copy->sent_ms, now_ms,
                   copy->command.lease_ms, client->links[copy->server].up_since_ms);
    client->votes.guard_ms = guard_ms;
}

static void note_drawn(struct quorum_model *m, struct client *client, const struct copy *copy) {
    hfi_votes_drew(&client->votes, (size_t)copy->server, copy->value, copy->sent_ms);
    if (m->discipline == DRAWN_YOUNG)
        client->votes.of[copy->server].ripe = true;
}

static void asked(struct quorum_model *m, const struct copy *copy) {
    struct client *client = &m->clients[copy->client];
    int s = copy->server;
    if (copy->code == 1 && !client->wanted) {
        quorum_push(m, copy->client, s, (struct command){.member_op = GIVE_BACK});
    } else if (copy->code == 1) {
        m->tally.refilled += client->phase == HOLDING;
        client->answers[s] = GRANTED;
        note_held(m, client, copy);
        note_drawn(m, client, copy);
    } else {
        m->tally.busy++;
        client->answers[s] = BUSY;
        if (copy->value > 0 && copy->value < client->next_ttl_ms)
            client->next_ttl_ms = copy->value;
    }
}

static void extended(struct quorum_model *m, const struct copy *copy) {
    struct client *client = &m->clients[copy->client];
    if (!client->wanted || !client->votes.of[copy->server].held)
        return;
    if (copy->code != 1) {
        client->answers[copy->server] = UNASKED;
        hfi_votes_gone(&client->votes, (size_t)copy->server, now_of(m, client),
                       client->links[copy->server].up_since_ms);
        return;
    }
    note_held(m, client, copy);
    if (copy->command.member_op == RAISE && copy->command.token == HFI_TOKEN_DRAW)
        note_drawn(m, client, copy);
    else if (copy->command.member_op == RAISE)
        hfi_votes_stored(&client->votes, (size_t)copy->server, copy->value);
}

static void probed(struct quorum_model *m, const struct copy *copy) {
    struct client *client = &m->clients[copy->client];
    if (copy->code != 1) {
        extended(m, copy);
        return;
    }
    m->tally.probed++;
    hfi_votes_found(&client->votes, (size_t)copy->server, copy->sent_ms);
}

static bool everybody_answered(const struct client *client) {
    for (int s = 0; s < SERVERS; s++)
        if (quorum_is_queued(&client->links[s], ASK) || quorum_is_queued(&client->links[s], RAISE))
            return false;
    return true;
}

/* Something has changed. */
static void look(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    quorum_client_look(m, who);
    bool asks = client->phase == ASKING || client->phase == AGEING || client->phase == KEEPING;
    if (!asks || win(m, who))
        return;
    if (client->phase == ASKING && everybody_answered(client))
        decide(m, who);
}

void quorum_answered(struct quorum_model *m, const struct copy *copy) {
    if (copy->command.member_op == ASK)
        asked(m, copy);
    else if (copy->command.member_op == PROBE)
        probed(m, copy);
    else if (copy->command.member_op != GIVE_BACK)
        extended(m, copy);
    look(m, copy->client);
    quorum_judge_answer(m, copy);
}

void quorum_failed(struct quorum_model *m, int who, int server, const struct command *command) {
    if (command->member_op != ASK)
        return;
    m->clients[who].answers[server] = FAILED;
    look(m, who);
}

void quorum_client_wake(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    client->wake_at = NEVER;
    quorum_client_look(m, who);
    if (client->wake_at != NEVER)
        return; /* it has just been lost */
    if (client->phase == THINKING || client->phase == WAITING) {
        ask_all(m, who);
    } else if (client->phase == HOLDING && m->now >= client->release_at) {
        m->tally.released++;
        think(m, who);
    } else if (client->phase == HOLDING && client->renews && m->discipline == CAREFUL &&
               roll(&m->play, 3) == 0) {
        probe(m, who);
        sleep_ms(m, client, client->lease_ms / 12);
    } else if (client->phase == HOLDING && client->renews) {
        renew(m, who);
    } else if (client->phase == ASKING) {
        if (!win(m, who))
            decide(m, who);
    } else if (client->phase == KEEPING) {
        ask_others(m, who);
    } else if (client->phase == AGEING) {
        ask_others(m, who);
        for (int s = 0; s < SERVERS; s++)
            if (client->votes.of[s].held && client->links[s].queued == 0)
                push(m, who, s, EXTEND, 0);
    } else {
        sleep_ms(m, client, 100); /* it holds it, and does nothing about it */
    }
}

void quorum_client_begin(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    client->votes = (struct hfi_votes){
        .len = SERVERS,
        .guard_ms = m->short_guard ? GUARD_MS / 2 : GUARD_MS,
        .clock_drift_ppm = m->discipline == WITHOUT_ALLOWANCE ? 0 : DRIFT_PPM,
    };
    if (m->discipline == WITHOUT_GUARD)
        client->votes.guard_ms = 0;
    hfi_votes_begin(&client->votes);
    client->phase = THINKING;
    client->wanted = false;
    sleep_ms(m, client, quorum_between(m, 1, 100));
}
