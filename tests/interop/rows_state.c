/*
 * State equality: the same operations, done once by Java and once by C, leave the same on the
 * server.
 *
 * Each scenario is a list of steps by two actors, A and B, each with a client of its own. After
 * every step we take its result, all keys with types, fields and values, the messages it published,
 * and the TTL of the lock; owners are written as A and B. Java's run is the measure: C's must be
 * equal to it, except where a step names a difference on purpose. TTLs are compared with the table
 * for both, as (ttl - SLACK_MS, ttl].
 *
 * The one difference that needs no step: Java leaves a latch key for a moment after each unlock; a
 * dump of Java's state waits until it is gone, a dump of ours must never show one.
 */
#include "interop.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "state"
#define WATCHDOG_MS 30000
#define SLACK_MS                                                                                   \
    8000 /* how long a step may take on a busy machine; less than the leases differ by */
#define NO_KEY (-2)

enum operation {
    LOCK,
    TRY,
    TRY_WAIT,
    UNLOCK,
    FORCE,
    IS_LOCKED,
    IS_HELD,
    COUNT,
    SERVER_DELETES,
    EXPIRES
};

struct step {
    enum operation operation;
    char actor;           /* 'A', 'B'; 0 when the server acts */
    int lease_ms;         /* LOCK, TRY_WAIT: 0 is the watchdog's */
    const char *result;   /* what both must answer */
    int ttl_ms;           /* what the lock's TTL starts from after this step, or NO_KEY */
    const char *c_result; /* a difference on purpose, if set: what C answers instead */
    int c_ttl_ms;         /* if set: C's TTL instead */
    const char *c_state;  /* if set: C's state instead */
};

struct scenario {
    const char *title;
    struct step steps[10]; /* ends at the first one without a result */
};

/* Designated, so that a step without a difference need not say so. */
#define STEP(op, who, lease, answer, ttl, ...)                                                     \
    {                                                                                              \
        .operation = op, .actor = who, .lease_ms = lease, .result = answer, .ttl_ms = ttl,         \
        __VA_ARGS__                                                                                \
    }

#define HELD_BY_A NAME " hash A 1\n"

static const struct scenario scenarios[] = {
    {"one hold",
     {
         STEP(IS_LOCKED, 'A', 0, "false", NO_KEY),
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS),
         STEP(IS_LOCKED, 'B', 0, "true", WATCHDOG_MS),
         STEP(IS_HELD, 'A', 0, "true", WATCHDOG_MS),
         STEP(IS_HELD, 'B', 0, "false", WATCHDOG_MS),
         STEP(TRY, 'B', 0, "busy", WATCHDOG_MS),
         STEP(TRY_WAIT, 'B', 0, "busy", WATCHDOG_MS),
         STEP(UNLOCK, 'A', 0, "ok", NO_KEY),
         STEP(TRY, 'B', 0, "held", WATCHDOG_MS),
         STEP(UNLOCK, 'B', 0, "ok", NO_KEY),
     }},
    {"re-entry",
     {
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS),
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS),
         STEP(TRY, 'A', 0, "held", WATCHDOG_MS),
         STEP(COUNT, 'A', 0, "3", WATCHDOG_MS),
         STEP(COUNT, 'B', 0, "0", WATCHDOG_MS),
         STEP(UNLOCK, 'A', 0, "ok", WATCHDOG_MS),
         STEP(UNLOCK, 'A', 0, "ok", WATCHDOG_MS),
         STEP(UNLOCK, 'A', 0, "ok", NO_KEY),
         STEP(UNLOCK, 'A', 0, "not owner", NO_KEY),
     }},
    {"fixed leases, each longer",
     {
         STEP(LOCK, 'A', 20000, "held", 20000),
         STEP(TRY_WAIT, 'A', 40000, "held", 40000),
         STEP(UNLOCK, 'A', 0, "ok", 40000),
         STEP(TRY_WAIT, 'B', 20000, "busy", 40000),
         STEP(UNLOCK, 'A', 0, "ok", NO_KEY),
     }},
    {"a shorter nested lease; ours never shortens a hold",
     {
         STEP(LOCK, 'A', 40000, "held", 40000),
         STEP(LOCK, 'A', 20000, "held", 20000, .c_ttl_ms = 40000),
         STEP(UNLOCK, 'A', 0, "ok", 20000, .c_ttl_ms = 40000),
         STEP(UNLOCK, 'A', 0, "ok", NO_KEY),
     }},
    {"a lease nested in a watchdog hold; ours never shortens a hold",
     {
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS),
         STEP(LOCK, 'A', 15000, "held", 15000, .c_ttl_ms = WATCHDOG_MS),
         STEP(LOCK, 'A', 60000, "held", 60000),
         STEP(COUNT, 'A', 0, "3", 60000),
     }},
    {"a watchdog hold nested in a lease; Java's handle keeps to the lease it was given",
     {
         STEP(LOCK, 'A', 15000, "held", 15000),
         STEP(LOCK, 'A', 0, "held", 15000, .c_ttl_ms = WATCHDOG_MS),
         STEP(UNLOCK, 'A', 0, "ok", 15000, .c_ttl_ms = WATCHDOG_MS),
         STEP(UNLOCK, 'A', 0, "ok", NO_KEY),
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS),
         STEP(UNLOCK, 'A', 0, "ok", NO_KEY),
     }},
    {"forced by another",
     {
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS),
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS),
         STEP(FORCE, 'B', 0, "true", NO_KEY),
         STEP(FORCE, 'B', 0, "false", NO_KEY),
         STEP(LOCK, 'B', 0, "held", WATCHDOG_MS),
         STEP(UNLOCK, 'A', 0, "not owner", WATCHDOG_MS),
         STEP(UNLOCK, 'B', 0, "ok", NO_KEY),
     }},
    {"not the owner",
     {
         STEP(UNLOCK, 'B', 0, "not owner", NO_KEY),
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS),
         STEP(UNLOCK, 'B', 0, "not owner", WATCHDOG_MS),
         STEP(COUNT, 'A', 0, "1", WATCHDOG_MS),
         STEP(UNLOCK, 'A', 0, "ok", NO_KEY),
     }},
    {"deleted under its holder",
     {
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS),
         STEP(SERVER_DELETES, 0, 0, "ok", NO_KEY),
         STEP(UNLOCK, 'A', 0, "not owner", NO_KEY),
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS),
         STEP(UNLOCK, 'A', 0, "ok", NO_KEY),
     }},
    {"re-entry onto a lock that is gone; ours is a loss, not a new hold",
     {
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS),
         STEP(SERVER_DELETES, 0, 0, "ok", NO_KEY),
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS, .c_result = "lost", .c_ttl_ms = NO_KEY,
              .c_state = ""),
         STEP(LOCK, 'A', 0, "held", WATCHDOG_MS, .c_state = HELD_BY_A),
     }},
    {"expired, then another's",
     {
         STEP(LOCK, 'A', 1500, "held", 1500),
         STEP(EXPIRES, 0, 0, "ok", NO_KEY),
         STEP(LOCK, 'B', 0, "held", WATCHDOG_MS),
         STEP(UNLOCK, 'A', 0, "not owner", WATCHDOG_MS),
         STEP(UNLOCK, 'B', 0, "ok", NO_KEY),
     }},
};

/* What one step left behind. */
struct outcome {
    char result[64];
    char *state;
    char *messages;
    long long ttl_ms;
};

/* ---- The server acts ------------------------------------------------------------------------- */

static bool lock_is_gone(void *arg) {
    (void)arg;
    return !key_exists(suite.server, NAME);
}

static void server_step(const struct step *step) {
    if (step->operation == SERVER_DELETES)
        cmd_ok(suite.server, "DEL " NAME);
    else
        assert_true(wait_until(lock_is_gone, NULL, JAVA_LIMIT_MS));
}

/* ---- Java acts ------------------------------------------------------------------------------- */

static int java_threads['B' + 1];

static void java_begin(struct alias aliases[2]) {
    for (int actor = 'A'; actor <= 'B'; actor++) {
        const char *client = actor == 'A' ? "j1" : "j2";
        char handle[] = {(char)actor, '\0'};
        java_threads[actor] = java_thread();
        java_open(client, "plain", NAME, handle);
        sscanf(java_call(suite.java, "ids %s", client), "ok %63s", aliases[actor - 'A'].uuid);
    }
}

/* One command for the actor, e.g. "lock" with the option "lease=1000". */
static const char *java_do(const struct step *step, const char *verb, const char *option) {
    return java_call(suite.java, "%s %c thread=%d %s", verb, step->actor,
                     java_threads[(int)step->actor], option);
}

static void java_step(const struct step *step, char result[64]) {
    static const char *const verbs[] = {
        [LOCK] = "lock",      [TRY] = "try",     [TRY_WAIT] = "try",
        [UNLOCK] = "unlock",  [FORCE] = "force", [IS_LOCKED] = "isLocked",
        [IS_HELD] = "heldBy", [COUNT] = "count",
    };
    char options[64] = "";
    if (step->operation == TRY_WAIT)
        strcat(options, "wait=50 ");
    if (step->lease_ms != 0)
        snprintf(options + strlen(options), 32, "lease=%d", step->lease_ms);
    const char *answer = java_do(step, verbs[step->operation], options);

    bool acquires = step->operation <= TRY_WAIT;
    if (strncmp(answer, "err IllegalMonitorStateException", 32) == 0)
        strcpy(result, "not owner");
    else if (acquires && (strcmp(answer, "ok") == 0 || strcmp(answer, "ok true") == 0))
        strcpy(result, "held");
    else if (acquires && strcmp(answer, "ok false") == 0)
        strcpy(result, "busy");
    else if (strncmp(answer, "ok ", 3) == 0)
        snprintf(result, 64, "%s", answer + 3);
    else
        snprintf(result, 64, "%s", answer);
}

static bool no_latch_key(void *arg) {
    (void)arg;
    redisReply *keys = cmd(suite.server, "KEYS redisson_unlock_latch*");
    bool none = keys->elements == 0;
    freeReplyObject(keys);
    return none;
}

/* ---- C acts ---------------------------------------------------------------------------------- */

static hf_client *c_clients['B' + 1];
static hf_lock *c_locks['B' + 1];

static void c_begin(struct alias aliases[2]) {
    for (int actor = 'A'; actor <= 'B'; actor++) {
        c_clients[actor] = c_client(0);
        c_locks[actor] = c_lock(c_clients[actor], NAME);
        snprintf(aliases[actor - 'A'].uuid, sizeof aliases->uuid, "%s",
                 hf_client_id(c_clients[actor]));
    }
}

static void c_end(void) {
    for (int actor = 'A'; actor <= 'B'; actor++) {
        hf_lock_free(c_locks[actor]);
        hf_close(c_clients[actor]);
    }
}

static int c_acquire(hf_lock *lock, const struct step *step) {
    hf_acquire_options options = HF_ACQUIRE_INIT;
    options.lease_ms = step->lease_ms;
    options.wait_ms = step->operation == LOCK ? HF_FOREVER : step->operation == TRY ? 0 : 50;
    return hf_lock_acquire_with(lock, &options, NULL);
}

/* Runs a step whose answer is a number or a truth; writes it as Java would print it. */
static int c_ask(hf_lock *lock, const struct step *step, char result[64]) {
    bool yes = false;
    int64_t count = 0;
    int err = step->operation == FORCE       ? hf_lock_break(lock, &yes)
              : step->operation == IS_LOCKED ? hf_lock_is_locked(lock, &yes)
              : step->operation == IS_HELD   ? hf_lock_is_mine(lock, &yes)
                                             : hf_lock_hold_count(lock, 0, &count);
    if (step->operation == COUNT)
        snprintf(result, 64, "%lld", (long long)count);
    else
        strcpy(result, yes ? "true" : "false");
    return err;
}

static void c_step(const struct step *step, char result[64]) {
    hf_lock *lock = c_locks[(int)step->actor];
    int err;
    if (step->operation <= TRY_WAIT) {
        err = c_acquire(lock, step);
        strcpy(result, err == HF_OK                             ? "held"
                       : err == HF_EBUSY || err == HF_ETIMEDOUT ? "busy"
                                                                : "");
        if (err == HF_ELOST)
            strcpy(result, "lost");
    } else if (step->operation == UNLOCK) {
        err = hf_lock_release(lock);
        /* Java has one word for both. */
        strcpy(result, err == HF_OK                             ? "ok"
                       : err == HF_ENOTOWNER || err == HF_ELOST ? "not owner"
                                                                : "");
    } else {
        err = c_ask(lock, step, result);
        if (err != HF_OK)
            result[0] = '\0';
    }
    if (result[0] == '\0')
        snprintf(result, 64, "%s", hf_error_name(err));
}

/* ---- Comparing ------------------------------------------------------------------------------- */

struct side {
    const char *name;
    void (*step)(const struct step *, char result[64]);
    struct alias aliases[2];
    struct messages *messages;
};

static struct outcome run_step(struct side *side, const struct step *step) {
    struct outcome outcome = {.result = "ok"};
    if (step->actor == 0)
        server_step(step);
    else
        side->step(step, outcome.result);
    if (side->step == java_step)
        assert_true(wait_until(no_latch_key, NULL, JAVA_LIMIT_MS));
    outcome.ttl_ms = pttl(suite.server, NAME);
    outcome.state = state_dump(suite.server, side->aliases, 2);
    outcome.messages = messages_take(side->messages);
    return outcome;
}

static bool equal(const char *what, const char *expected, const char *actual) {
    if (strcmp(expected, actual) == 0)
        return true;
    print_error("%s: expected [%s], got [%s]\n", what, expected, actual);
    return false;
}

static bool ttl_within(const char *side, long long ttl_ms, int started_ms) {
    if (started_ms == NO_KEY ? ttl_ms == NO_KEY
                             : ttl_ms <= started_ms && ttl_ms > 0 && ttl_ms > started_ms - SLACK_MS)
        return true;
    print_error("%s: the TTL is %lld, expected %d\n", side, ttl_ms, started_ms);
    return false;
}

static bool check_step(const struct step *step, struct outcome *java, struct outcome *c) {
    const char *c_result = step->c_result != NULL ? step->c_result : step->result;
    const char *c_state = step->c_state != NULL ? step->c_state : java->state;
    bool same = equal("result of Java", step->result, java->result);
    same = equal("result of C", c_result, c->result) && same;
    same = equal("state after C", c_state, c->state) && same;
    same = equal("messages of C", java->messages, c->messages) && same;
    same = ttl_within("Java", java->ttl_ms, step->ttl_ms) && same;
    same = ttl_within("C", c->ttl_ms, step->c_ttl_ms != 0 ? step->c_ttl_ms : step->ttl_ms) && same;
    return same;
}

static size_t run_scenario(struct side *side, const struct scenario *scenario,
                           struct outcome *outcomes) {
    size_t count = 0;
    const size_t most = sizeof scenario->steps / sizeof *scenario->steps;
    cmd_ok(suite.server, "FLUSHALL");
    free(messages_take(side->messages));
    for (; count < most && scenario->steps[count].result != NULL; count++)
        outcomes[count] = run_step(side, &scenario->steps[count]);
    return count;
}

static int check_scenario(const struct scenario *scenario, struct messages *messages) {
    struct side java = {"Java", java_step, {{.name = "A"}, {.name = "B"}}, messages};
    struct side c = {"C", c_step, {{.name = "A"}, {.name = "B"}}, messages};
    struct outcome by_java[10];
    struct outcome by_c[10];
    int different = 0;

    java_begin(java.aliases);
    size_t count = run_scenario(&java, scenario, by_java);
    c_begin(c.aliases);
    run_scenario(&c, scenario, by_c);
    for (size_t i = 0; i < count; i++) {
        if (!check_step(&scenario->steps[i], &by_java[i], &by_c[i])) {
            print_error("    in \"%s\", step %zu\n", scenario->title, i + 1);
            different++;
        }
        free(by_java[i].state);
        free(by_java[i].messages);
        free(by_c[i].state);
        free(by_c[i].messages);
    }
    c_end();
    return different;
}

void plain_leaves_the_same_state(void **state) {
    (void)state;
    struct messages *messages = messages_start(suite.server);
    int different = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        different += check_scenario(&scenarios[i], messages);
    messages_free(messages);
    assert_int_equal(different, 0);
}
