/*
 * Redisson's players: one Java thread for each kind, controlled by the driver.
 *
 * Used by play.c, in its one thread. The JVM has the Java actor (tests/java). An
 * operation is written down from before its command is sent until after its answer was found, so
 * what the driver does meanwhile makes it seem longer than it was, never shorter.
 *
 * A player does one thing after the other: take, for a moment nothing, give back; or it asks.
 */
#include "kinds.h"
#include "play.h"

#include "support/wait.h"

#include <stdio.h>
#include <string.h>

#define JAVA_WATCHDOG_MS 3000
#define WARM_UP_ROUNDS 30
#define JVM_LIMIT_MS (3 * REMOTE_LIMIT_MS) /* while it starts, others play */
#define VISITS_PER_NAME 12

/* How a kind's things are taken, given back and asked about; %s is the handle. */
struct dialect {
    const char *kind;
    const char *take; /* with wait= and, if `leases`, lease= */
    bool leases;
    const char *give; /* NULL: what was taken is not given back */
    const char *ask;
    const char *ask_verb; /* its name in histories */
    const char *set;      /* NULL: needs none */
};

static const struct dialect of_one_server[] = {
    {"plain", "try", true, "unlock", "isLocked", "is_locked", NULL},
    {"nonreentrant", "try", true, "unlock", "isLocked", "is_locked", NULL},
    {"spin", "try", true, "unlock", "isLocked", "is_locked", NULL},
    {"fenced", "tryToken", true, "unlock", "isLocked", "is_locked", NULL},
    {"fair", "try", true, "unlock", "isLocked", "is_locked", NULL},
    {"group", "try", true, "unlock", NULL, NULL, NULL},
    {"multi", "try", true, "unlock", NULL, NULL, NULL},
    {"readwrite", "try", true, "unlock", NULL, NULL, NULL},
    {"semaphore", "try", false, "release", "available", "available", "setPermits"},
    {"permits", "try", true, "release", "available", "available", "trySetPermits"},
    {"latch", "await", false, NULL, "count", "count", "setCount"},
};
/* A RedLock knows nothing of a deadline, and its unlock may fail at servers that never granted it. */
static const struct dialect of_a_quorum[] = {
    {"quorum", "try", true, "unlock", NULL, NULL, NULL},
};
static const struct dialect of_a_route[] = {
    {"moving", "try", true, "unlock", "isLocked", "is_locked", NULL},
};
/* On the wire they are these, and a process is one owner. */
static const struct dialect of_cohorts[] = {
    {"cohort", "try", true, "unlock", "isLocked", "is_locked", NULL},
    {"cohort_fair", "try", true, "unlock", "isLocked", "is_locked", NULL},
};
#define DIALECTS_MAX (sizeof of_one_server / sizeof *of_one_server)

typedef void then_fn(struct java_players *players, size_t i, const char *answer);

struct java_player {
    char owner[80];
    char name[48];   /* where it plays */
    char handle[80]; /* at that name */
    int visits;
    const char *side; /* of a read/write lock */
    char values[10];  /* of a group: "a,c" */
    char place
        [256]; /* what Java opens: the name, with the values or as often as there are members */
    struct operation operation;
    int64_t called_ns, lease_ms, wait_ms;
    int answer_id; /* what it waits for; -1: nothing */
    then_fn *then; /* what is done with the answer */
    char hold[48]; /* what it has; "" for nothing */
    int64_t next_ms;
};

struct java_players {
    struct run *run;
    struct remote *jvm;
    struct record record;
    char process[24]; /* what it is called in histories */
    bool killed;
    char clients[160]; /* one for each server, with commas between */
    const struct dialect *dialects;
    size_t len;
    struct java_player all[DIALECTS_MAX];
};

static bool is(const struct java_players *players, size_t i, const char *kind) {
    return strcmp(players->dialects[i].kind, kind) == 0;
}

static bool has_values(const struct java_players *players, size_t i) {
    return is(players, i, "group") || is(players, i, "multi");
}

static struct subject subject_of(const struct java_players *players, size_t i) {
    return (struct subject){.name = players->all[i].name,
                            .kind = players->dialects[i].kind,
                            .owner = players->all[i].owner};
}

/* Sends one command to a player's thread. */
static void send_it(struct java_players *players, size_t i, const char *verb, const char *rest,
                    then_fn *then) {
    struct java_player *player = &players->all[i];
    player->then = then;
    player->called_ns = record_now_ns();
    player->answer_id = remote_send(players->jvm, "%s %s%s thread=%zu %s", verb, player->handle,
                                    player->side, i + 1, rest);
}

/* "ok VALUE": the value; an exception: NULL. */
static const char *value_of(const char *answer) {
    if (strncmp(answer, "ok", 2) != 0)
        return NULL;
    return answer[2] == ' ' ? answer + 3 : "";
}

/* ---- Giving back ----------------------------------------------------------------------------- */

static void given(struct java_players *players, size_t i, const char *answer) {
    struct java_player *player = &players->all[i];
    bool wrong_owner = strncmp(answer, "err IllegalMonitorState", 23) == 0;
    int code = value_of(answer) != NULL ? HF_OK : wrong_owner ? HF_ELOST : HF_EINDOUBT;
    if (is(players, i, "quorum") && code != HF_OK)
        code = HF_EINDOUBT;
    if (is(players, i, "permits") && code == HF_EINDOUBT)
        code = HF_ENOTOWNER; /* "Permit with id ... has already been released or doesn't exist" */
    record_return(&player->operation, code, " ");
    player->hold[0] = '\0';
}

static void give(struct java_players *players, size_t i) {
    struct java_player *player = &players->all[i];
    struct subject subject = subject_of(players, i);
    bool permits = is(players, i, "permits");
    own_text *verb = text_of("release%s", player->side);
    player->operation =
        record_call(&players->record, &subject, verb, "left=0 permits=1 hold=%s ids=%s values=%s",
                    player->hold, player->hold, player->values);
    send_it(players, i, players->dialects[i].give, permits ? player->hold : "", given);
}

/* ---- Taking ---------------------------------------------------------------------------------- */

static bool is_taken(const char *value) {
    return value[0] != '\0' && strcmp(value, "false") != 0 && strcmp(value, "null") != 0;
}

static void taken(struct java_players *players, size_t i, const char *answer) {
    struct java_player *player = &players->all[i];
    const char *value = value_of(answer);
    bool got = value != NULL && is_taken(value);
    bool permits = is(players, i, "permits");
    bool fenced = is(players, i, "fenced");
    int code = value == NULL          ? HF_EINDOUBT
               : got                  ? HF_OK
               : player->wait_ms == 0 ? HF_EBUSY
                                      : HF_ETIMEDOUT;
    record_return(&player->operation, code, "count=%d token=%s ids=%s",
                  players->dialects[i].leases && got && !permits, fenced && got ? value : "0",
                  permits && got ? value : "-");
    if (!got || players->dialects[i].give == NULL)
        return;
    snprintf(player->hold, sizeof player->hold, "%s", permits ? value : player->operation.id);
    /* A spin lock of Redisson keeps the lease of its last attempt, and asks for no more with its
     * watchdog. */
    int64_t sure_ms = is(players, i, "spin") ? 2 * PLAY_LEASE_MS : player->lease_ms;
    if (players->dialects[i].leases)
        record_sure(&players->record, player->hold, player->called_ns, sure_ms);
    player->next_ms = now_ms() + run_pick(players->run, 4);
}

static void take(struct java_players *players, size_t i) {
    struct run *run = players->run;
    struct java_player *player = &players->all[i];
    struct subject subject = subject_of(players, i);
    /* With a lease, locks of several are taken for another time first, and that is corrected blindly. */
    bool joint = is(players, i, "quorum") || is(players, i, "multi");
    bool watchdog = joint || (run_pick(run, 2) == 0 && !is(players, i, "permits"));
    char verb[32], rest[80], lease[40] = "";
    /* Redisson's fair lock waits in the queue even for a wait of 0. */
    bool fair = is(players, i, "fair");
    player->wait_ms = run_pick(run, 3) == 0 && !fair ? 0 : 1 + run_pick(run, PLAY_WAIT_MS);
    if (is(players, i, "quorum"))
        player->wait_ms *= PLAY_SERVERS; /* each of them gets its share of it */
    player->lease_ms = watchdog ? JAVA_WATCHDOG_MS : 2 * PLAY_LEASE_MS;
    if (!watchdog && players->dialects[i].leases)
        snprintf(lease, sizeof lease, " lease=%d", 2 * PLAY_LEASE_MS);
    snprintf(rest, sizeof rest, "wait=%lld%s", (long long)player->wait_ms, lease);

    snprintf(verb, sizeof verb, "%s%s", players->dialects[i].give == NULL ? "await" : "acquire",
             player->side);
    player->operation =
        record_call(&players->record, &subject, verb,
                    "wait=%lld lease=%lld nested=0 hold=- permits=1 values=%s",
                    (long long)player->wait_ms, (long long)player->lease_ms, player->values);
    send_it(players, i, players->dialects[i].take, rest, taken);
}

/* ---- Asking and setting ---------------------------------------------------------------------- */

static void answered(struct java_players *players, size_t i, const char *answer) {
    const char *value = value_of(answer);
    int code = value != NULL ? HF_OK : HF_EINDOUBT;
    if (value != NULL && strcmp(value, "true") == 0)
        value = "1";
    else if (value == NULL || strcmp(value, "false") == 0)
        value = "0";
    record_return(&players->all[i].operation, code, "value=%s", value);
}

static void ask(struct java_players *players, size_t i) {
    struct subject subject = subject_of(players, i);
    players->all[i].operation =
        record_call(&players->record, &subject, players->dialects[i].ask_verb, " ");
    send_it(players, i, players->dialects[i].ask, "", answered);
}

static void set(struct java_players *players, size_t i) {
    struct subject subject = subject_of(players, i);
    bool latch = players->dialects[i].give == NULL;
    int number = latch ? 1 + (int)run_pick(players->run, 3) : PLAY_PERMITS;
    own_text *rest = text_of("%s=%d", latch ? "count" : "permits", number);
    players->all[i].operation =
        record_call(&players->record, &subject, "try_set", "permits=%d", number);
    send_it(players, i, players->dialects[i].set, rest, answered);
}

static void count_down(struct java_players *players, size_t i) {
    struct subject subject = subject_of(players, i);
    players->all[i].operation = record_call(&players->record, &subject, "count_down", " ");
    send_it(players, i, "countDown", "", answered);
}

/* ---- Playing --------------------------------------------------------------------------------- */

static void open_handle(struct java_players *players, size_t i, const char *suffix,
                        const char *kind) {
    struct java_player *player = &players->all[i];
    const char *answer = remote_call(players->jvm, "open %s %s %s %s%s", players->clients, kind,
                                     player->place, player->handle, suffix);
    if (strcmp(answer, "ok") != 0)
        support_die("Java: open: %s", answer);
}

static const char *java_kind(const char *kind) {
    if (strcmp(kind, "quorum") == 0)
        return "redlock";
    if (strcmp(kind, "cohort_fair") == 0)
        return "fair";
    return strcmp(kind, "moving") == 0 || strcmp(kind, "cohort") == 0 ? "plain" : kind;
}

static void move_on(struct java_players *players, size_t i, const char *name) {
    struct java_player *player = &players->all[i];
    snprintf(player->name, sizeof player->name, "%s", name);
    snprintf(player->handle, sizeof player->handle, "%s.%s", players->process, name);
    snprintf(player->place, sizeof player->place, "%s", name);
    player->visits = 0;
    if (has_values(players, i))
        return; /* it has another handle for each set of them */
    if (is(players, i, "readwrite")) {
        open_handle(players, i, "_read", "read");
        open_handle(players, i, "_write", "write");
    } else {
        open_handle(players, i, "", java_kind(players->dialects[i].kind));
    }
}

/* What Java opens: "group|a|c", or "multi.c|multi.a", in any order: of locks that are taken together it
 * is the caller's. */
static void choose_values(struct java_players *players, size_t i) {
    struct java_player *player = &players->all[i];
    bool group = is(players, i, "group");
    unsigned mask = 1 + run_pick(players->run, 15), first = run_pick(players->run, 4);
    char name[48], *values = player->values;
    memcpy(name, player->name, sizeof name);
    size_t len = (size_t)snprintf(player->place, sizeof player->place, "%s", group ? name : "");
    for (unsigned k = 0; k < 4; k++) {
        char value = (char)('a' + (first + k) % 4);
        if ((mask >> (value - 'a') & 1) == 0)
            continue;
        len += (size_t)snprintf(player->place + len, sizeof player->place - len, "%s%s%s%c",
                                len > 0 ? "|" : "", group ? "" : name, group ? "" : ".", value);
        *values++ = value;
        *values++ = ',';
    }
    values[-1] = '\0';
    open_handle(players, i, "", players->dialects[i].kind);
}

static void begin_visit(struct java_players *players, size_t i) {
    struct java_player *player = &players->all[i];
    const struct dialect *dialect = &players->dialects[i];
    unsigned draw = run_pick(players->run, 100);
    char name[48];
    play_name(dialect->kind, players->run->begin_ms, name);
    if (strcmp(name, player->name) != 0)
        move_on(players, i, name);
    if (player->visits++ >= VISITS_PER_NAME)
        return;
    if (has_values(players, i))
        choose_values(players, i);
    player->side = !is(players, i, "readwrite") ? "" : draw % 2 == 0 ? "_read" : "_write";
    if (draw < 15 && dialect->set != NULL)
        set(players, i);
    else if (draw < 30 && dialect->ask != NULL)
        ask(players, i);
    else if (draw < 60 && dialect->give == NULL)
        count_down(players, i);
    else
        take(players, i);
}

static void step(struct java_players *players, size_t i, bool begins) {
    struct java_player *player = &players->all[i];
    if (player->answer_id >= 0) {
        if (!remote_answered(players->jvm, player->answer_id))
            return;
        const char *answer = remote_answer(players->jvm, player->answer_id);
        player->answer_id = -1;
        player->next_ms = now_ms() + run_pick(players->run, 6);
        player->then(players, i, answer);
    } else if (now_ms() < player->next_ms) {
        return; /* one look at the clock: a hold that is not due yet is no visit's turn */
    } else if (player->hold[0] != '\0') {
        give(players, i);
    } else if (begins) {
        begin_visit(players, i);
    }
}

void java_players_step(struct java_players *players) {
    for (size_t i = 0; i < players->len && !players->killed; i++)
        step(players, i, true);
}

static bool is_idle(void *arg) {
    struct java_players *players = arg;
    bool idle = true;
    for (size_t i = 0; i < players->len; i++) {
        step(players, i, false);
        idle = idle && players->all[i].answer_id < 0 && players->all[i].hold[0] == '\0';
    }
    return idle;
}

static size_t clients_len(const struct run *run) {
    return run->plan->kinds->moving ? 1 : run->servers_len;
}

static const char *client_url(const struct run *run, size_t i) {
    return run->plan->kinds->moving ? run->urls : server_tcp_url(run->servers[i]);
}

/* A client for each server: that is what a RedLock is made of. */
static void connect_clients(struct java_players *players) {
    const struct run *run = players->run;
    for (size_t i = 0; i < clients_len(run); i++) {
        size_t len = strlen(players->clients);
        snprintf(players->clients + len, sizeof players->clients - len, "%s%s.%zu",
                 i > 0 ? "," : "", players->process, i);
        int id =
            remote_send(players->jvm, "client %s.%zu %s codec=string watchdog=%d fairwait=5000",
                        players->process, i, client_url(run, i), JAVA_WATCHDOG_MS);
        const char *answer = remote_answer_within(players->jvm, id, JVM_LIMIT_MS);
        if (strncmp(answer, "ok ", 3) != 0)
            support_die("Redisson does not connect: %s", answer);
    }
}

static void learn_owner(struct java_players *players, size_t i) {
    struct java_player *player = &players->all[i];
    char uuid[48];
    long long number;
    const char *answer = remote_call(players->jvm, "ids %s.0 thread=%zu", players->process, i + 1);
    if (sscanf(answer, "ok %47s %lld", uuid, &number) != 2)
        support_die("Java: ids: %s", answer);
    snprintf(player->owner, sizeof player->owner, "%s:%lld", uuid, number);
    player->answer_id = -1;
}

/* A JVM's first attempts take so long that everybody else is served before. */
static void warm_up(struct java_players *players, size_t i) {
    struct java_player *player = &players->all[i];
    move_on(players, i, "warm");
    for (int round = 0; round < WARM_UP_ROUNDS; round++)
        if (value_of(remote_call(players->jvm, "try %s thread=%zu wait=0", player->handle, i + 1)))
            remote_call(players->jvm, "unlock %s thread=%zu", player->handle, i + 1);
}

static void choose_dialects(struct java_players *players, const struct kinds *kinds) {
    players->dialects = kinds->quorum    ? of_a_quorum
                        : kinds->moving  ? of_a_route
                        : kinds->cohorts ? of_cohorts
                                         : of_one_server;
    players->len = kinds->quorum || kinds->moving ? 1
                   : kinds->cohorts               ? sizeof of_cohorts / sizeof *of_cohorts
                                                  : DIALECTS_MAX;
}

struct java_players *java_players_new(struct run *run, struct remote *jvm) {
    static int processes;
    bool quorum = run->plan->kinds->quorum;
    struct java_players *players = zeroed(1, sizeof *players);
    players->run = run;
    players->jvm = jvm;
    choose_dialects(players, run->plan->kinds);
    snprintf(players->process, sizeof players->process, "j%d", ++processes);
    record_open(&players->record, run->dir, players->process);
    connect_clients(players);
    for (size_t i = 0; i < players->len; i++)
        learn_owner(players, i);
    if (quorum)
        warm_up(players, 0);
    return players;
}

void java_players_kill(struct java_players *players) {
    if (players->killed)
        return;
    remote_kill(players->jvm);
    record_line(&players->record, "kill %s %lld", players->process, (long long)record_now_ns());
    players->killed = true;
}

void java_players_end(struct java_players *players) {
    if (!players->killed) {
        if (!wait_until(is_idle, players, JVM_LIMIT_MS))
            support_die("a Java player does not end");
        for (size_t i = 0; i < clients_len(players->run); i++)
            remote_call(players->jvm, "shutdown %s.%zu", players->process, i);
    }
    record_close(&players->record);
    free(players);
}
