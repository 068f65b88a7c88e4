/* The schedules of the quorum's model, as quorum_model.h tells: who does what next, and what goes wrong.
 *
 * Used by test_quorum_model.c, from its one thread. Everything that happens has its time; the earliest
 * is next. The clients' rules are in quorum_client.c, what becomes of their commands in
 * quorum_network.c, the servers and what must be true in quorum_world.c. */
#include "quorum_world.h"

#include "script.h"
#include "support/wait.h"

#include <string.h>

#define PLAYED_MS 40000
#define TIME_OR_NEXT(last) "math.max(" last " + 1, now_us)"
#define EPOCH_OF_CLOCKS_MS INT64_C(1700000000000)

/* ARGV 1 how many ms pass, 2 how many are rounded to: those since the last time are real ones. */
static const char pass_lua[] =
    "local left = redis.call('pttl', KEYS[1])\n"
    "if left < 0 then return 0 end\n"
    "left = math.ceil(left / ARGV[2]) * ARGV[2] - ARGV[1]\n"
    "if left <= 0 then return redis.call('del', KEYS[1]) end\n"
    "return redis.call('pexpire', KEYS[1], string.format('%.0f', left))\n";

/* ---- What goes wrong ------------------------------------------------------------------------- */

enum memory { ALL_OF_IT, SOME_OF_IT, NONE_OF_IT };

/* Of some of it: the counter as it was some time ago, as from a disk to which not everything was
 * written. */
static void crash(struct quorum_model *m, int server, enum memory memory, int64_t down_ms) {
    static const char *const keeps[] = {"keeps all", "forgets what came last", "forgets all"};
    struct machine *machine = &m->machines[server];
    if (!machine->up)
        return;
    m->tally.crashed++;
    note(&m->play, "s%d crashes and %s", server, keeps[memory]);
    machine->up = false;
    machine->run++;
    machine->up_at = m->now + down_ms * MS;
    if (memory != ALL_OF_IT)
        quorum_forget_all_but(m, server, memory == SOME_OF_IT ? machine->saved : 0);
    for (int i = 0; i < CLIENTS; i++)
        quorum_break_link(m, i, server);
}

static void crash_one(struct quorum_model *m, int server) {
    static const enum memory memories[] = {ALL_OF_IT, SOME_OF_IT, NONE_OF_IT, NONE_OF_IT};
    crash(m, server, memories[roll(&m->play, 4)], quorum_between(m, 10, LEASE_MS / 5));
}

/* The worst that can come to clients that had the last hold: as many of them as it takes for another
 * majority forget, and the others are not to be reached until those are of age. */
static void strike(struct quorum_model *m) {
    size_t majority = hfi_quorum_of(SERVERS), others = 0;
    for (int s = 0; s < SERVERS; s++)
        others += !m->had_it[s];
    for (int i = 0, from = (int)roll(&m->play, SERVERS); i < SERVERS; i++) {
        int s = (from + i) % SERVERS;
        if (m->had_it[s] && others < majority) {
            crash(m, s, roll(&m->play, 2) == 0 ? SOME_OF_IT : NONE_OF_IT, 10);
            others++;
        } else if (m->had_it[s]) {
            crash(m, s, ALL_OF_IT, quorum_between(m, GUARD_MS, 3 * GUARD_MS / 2));
        }
    }
}

static void start(struct quorum_model *m, int server) {
    struct machine *machine = &m->machines[server];
    machine->up = true;
    machine->began_at = m->now;
    note(&m->play, "s%d is up again", server);
}

static void cut(struct quorum_model *m, int client, int server, int64_t ms) {
    m->tally.cut++;
    note(&m->play, "c%d is cut off from s%d", client, server);
    m->clients[client].links[server].cut_until = m->now + ms * MS;
}

static void cut_many(struct quorum_model *m, int client) {
    int64_t ms = quorum_between(m, LEASE_MS / 6, 4 * LEASE_MS / 3);
    for (int s = 0; s < SERVERS; s++)
        if (roll(&m->play, 4) != 0)
            cut(m, client, s, ms);
}

static void pause_client(struct quorum_model *m, int client) {
    m->tally.paused++;
    note(&m->play, "c%d is paused", client);
    m->clients[client].paused_until = m->now + quorum_between(m, 20, LEASE_MS) * MS;
}

/* Whatever it had ends with its lease; what comes after it is another. */
static void die(struct quorum_model *m, int client) {
    struct client *c = &m->clients[client];
    m->tally.died++;
    note(&m->play, "c%d.%d dies", client, c->life);
    for (int s = 0; s < SERVERS; s++) {
        quorum_break_link(m, client, s);
        c->links[s] = (struct link){.epoch = c->links[s].epoch, .due_at = NEVER};
    }
    c->life++;
    quorum_client_begin(m, client);
}

static void delete_some(struct quorum_model *m) {
    for (int s = 0; s < SERVERS; s++)
        if (roll(&m->play, 2) == 0)
            quorum_delete(m, s);
}

/* The keys there age by as much at its next command. */
static void step_clock(struct quorum_model *m, int server) {
    note(&m->play, "s%d's clock is stepped", server);
    m->machines[server].clock.offset_ms += LEASE_MS;
}

static void go_wrong(struct quorum_model *m) {
    unsigned draw = roll(&m->play, 100);
    int client = (int)roll(&m->play, CLIENTS), server = (int)roll(&m->play, SERVERS);
    m->fault_at = m->now + quorum_between(m, 1, m->fault_ms) * MS;
    if (m->fenced)
        quorum_save(m, (int)roll(&m->play, SERVERS));
    if (m->deletes && draw < 50)
        delete_some(m);
    else if (m->discipline == STEPPED && draw < 20)
        step_clock(m, 0);
    else if (m->crashes && draw < 45)
        strike(m);
    else if (draw < (m->crashes ? 60 : 10))
        crash_one(m, server);
    else if (draw < 40)
        cut(m, client, server, quorum_between(m, 20, LEASE_MS / 2));
    else if (draw < 50)
        cut_many(m, client);
    else if (draw < 80)
        quorum_break_link(m, client, server);
    else if (draw < 95)
        pause_client(m, client);
    else
        die(m, client);
}

/* ---- What comes next ------------------------------------------------------------------------- */

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A paused client does nothing; what was due in the meantime is done when it goes on. */
static int64_t when(const struct client *client, int64_t at) {
    return at != NEVER && at < client->paused_until ? client->paused_until : at;
}

static int64_t when_copy(const struct quorum_model *m, const struct copy *copy) {
    return copy->returns ? when(&m->clients[copy->client], copy->at) : copy->at;
}

static int64_t next_at(const struct quorum_model *m) {
    int64_t at = m->fault_at;
    for (int i = 0; i < COPIES; i++)
        at = earlier(at, when_copy(m, &m->copies[i]));
    for (int s = 0; s < SERVERS; s++)
        if (!m->machines[s].up)
            at = earlier(at, m->machines[s].up_at);
    for (int i = 0; i < CLIENTS; i++) {
        const struct client *client = &m->clients[i];
        at = earlier(at, when(client, client->wake_at));
        for (int s = 0; s < SERVERS; s++)
            at = earlier(at, when(client, client->links[s].due_at));
    }
    return at;
}

static void client_step(struct quorum_model *m, int who) {
    struct client *client = &m->clients[who];
    for (int s = 0; s < SERVERS; s++)
        if (when(client, client->links[s].due_at) <= m->now)
            quorum_pump(m, who, s);
    quorum_client_look(m, who);
    if (when(client, client->wake_at) <= m->now)
        quorum_client_wake(m, who);
}

static void step(struct quorum_model *m) {
    m->now = next_at(m);
    m->play.now = (int)(m->now / MS);
    for (int s = 0; s < SERVERS; s++)
        if (!m->machines[s].up && m->machines[s].up_at <= m->now)
            start(m, s);
    for (int i = 0; i < COPIES && going_well(&m->play); i++)
        if (when_copy(m, &m->copies[i]) <= m->now) {
            quorum_arrive(m, &m->copies[i]);
            quorum_judge(m);
        }
    for (int i = 0; i < CLIENTS && going_well(&m->play); i++)
        if (m->clients[i].paused_until <= m->now) {
            client_step(m, i);
            quorum_judge(m);
        }
    if (m->fault_at <= m->now)
        go_wrong(m);
}

/* ---- Schedules ------------------------------------------------------------------------------- */

/* No two clocks are more than one in a hundred apart. */
static struct clock some_clock(struct quorum_model *m, int64_t apart_ms) {
    int most = m->discipline == CLOCKS_OFF ? 20000 : 4950;
    int ppm = roll(&m->play, 2) == 0 ? most : (int)roll(&m->play, (unsigned)most);
    return (struct clock){.offset_ms = EPOCH_OF_CLOCKS_MS + quorum_between(m, 0, apart_ms),
                          .ppm = roll(&m->play, 2) == 0 ? ppm : -ppm};
}

static void set_up(struct quorum_model *m) {
    int64_t apart_ms =
        m->discipline == CLOCKS_APART ? 20 * GUARD_MS : GUARD_MS * 4 / 5; /* and they drift */
    for (int s = 0; s < SERVERS; s++) {
        struct machine *machine = &m->machines[s];
        quorum_forget_all_but(m, s, 0);
        machine->saved = 0;
        machine->clock = some_clock(m, apart_ms);
        machine->up = true;
        machine->run = 0;
        machine->began_at = -2 * GUARD_MS * MS;
        machine->passed_ms = quorum_clock_ms(m, &machine->clock);
    }
    memset(m->clients, 0, sizeof m->clients);
    memset(m->had_it, 0, sizeof m->had_it);
    for (int i = 0; i < COPIES; i++)
        m->copies[i].at = NEVER;
    for (int i = 0; i < CLIENTS; i++) {
        m->clients[i].clock = some_clock(m, 1000000000);
        for (int s = 0; s < SERVERS; s++)
            m->clients[i].links[s].due_at = NEVER;
        quorum_client_begin(m, i);
    }
}

/* What is left out is looked for where it matters. */
static void choose_weather(struct quorum_model *m) {
    static const unsigned fault_ms[] = {300, 1000, 3000};
    enum quorum_discipline d = m->discipline;
    m->fenced = d >= LARGEST_OF_VOTES || roll(&m->play, 2) == 0;
    m->deletes = d == MADE_UP || (d == CAREFUL && roll(&m->play, 4) == 0);
    m->crashes = d == BY_ONE || d == DRAWN_YOUNG || d == CLOCKS_APART || d == BEYOND_THE_GUARD ||
                 (d == CAREFUL && roll(&m->play, 3) == 0);
    m->slow = d == FROM_THE_REPLY || roll(&m->play, 4) == 0;
    m->idle = d == FROM_THE_REPLY || d == WITHOUT_ALLOWANCE || roll(&m->play, 4) == 0;
    m->short_guard = d == BEYOND_THE_GUARD || (d == CAREFUL && roll(&m->play, 4) == 0);
    m->fault_ms = fault_ms[m->crashes ? 2 : roll(&m->play, 3)];
}

static void run(void *model, int discipline) {
    struct quorum_model *m = model;
    m->discipline = (enum quorum_discipline)discipline;
    m->now = m->highest = 0;
    choose_weather(m);
    m->fault_at = m->fault_ms * MS;
    set_up(m);
    while (going_well(&m->play) && m->now < PLAYED_MS * MS)
        step(m);
}

struct play *quorum_model_play(struct quorum_model *m) {
    return &m->play;
}

const struct quorum_tally *quorum_model_tally(const struct quorum_model *m) {
    return &m->tally;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static char *load_changed(struct server *server, const char *name, const char *from,
                          const char *to) {
    char *text = script_text(name), *changed = script_changed(text, from, to);
    char *sha = play_load_text(server, changed);
    free(changed);
    free(text);
    return sha;
}

static void open_machine(struct machine *machine, struct server *server) {
    static const char *const names[SCRIPTS] = {"plain_acquire", "fenced_acquire", "renew",
                                               "fenced_extend", "plain_release"};
    machine->connection = connect_as(server, NULL, NULL);
    for (int i = 0; i < SCRIPTS; i++)
        machine->sha[i] = play_load(server, names[i]);
    machine->pass_sha = script_load(server, pass_lua);
    machine->by_one_sha = load_changed(server, "fenced_acquire", TIME_OR_NEXT("tonumber(last)"),
                                       "last == '0' and now_us or tonumber(last) + 1");
    machine->extend_by_one_sha =
        load_changed(server, "fenced_extend", TIME_OR_NEXT("stored"), "stored + 1");
}

static void close_machine(struct machine *machine) {
    for (int i = 0; i < SCRIPTS; i++)
        free(machine->sha[i]);
    free(machine->pass_sha);
    free(machine->by_one_sha);
    free(machine->extend_by_one_sha);
    redisFree(machine->connection);
}

struct quorum_model *quorum_model_open(struct server *const servers[QUORUM_SERVERS]) {
    struct quorum_model *m = zeroed(1, sizeof *m);
    play_open(&m->play, servers[0], m, run);
    for (int s = 0; s < SERVERS; s++)
        open_machine(&m->machines[s], servers[s]);
    return m;
}

void quorum_model_close(struct quorum_model *m) {
    if (m == NULL)
        return;
    for (int s = 0; s < SERVERS; s++)
        close_machine(&m->machines[s]);
    play_close(&m->play);
    free(m);
}
