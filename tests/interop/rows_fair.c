/*
 * The fair lock between C and Java: one queue for both, first come, first served, whichever waiters
 * give up or die. For the fair lock and for its non-reentrant form.
 *
 * Waiters queue one after the other: the next starts when the one before it is in the server's
 * queue. Hand-overs are bounded by HANDED_MS, less than our shortest poll and than the holder's
 * lease; after a kill, only by a hang limit. Leases and the times after which a waiter counts as
 * dead are short there: fairwait in Java, fair_wait_ms and twice watchdog_ms in C.
 */
#include "interop.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME "fair"
#define QUEUE "redisson_lock_queue:{" NAME "}"
#define RECORDS "holdfast_fair:{" NAME "}"
#define HANDED_MS BY_MESSAGE_MS
#define UNHEARD_MS ((int64_t)20 * 1000) /* 2 s and a machine that is slow; deadlines are minutes */
#define DEAD_MS ((int64_t)120 * 1000)   /* at most, after somebody was killed */
/* Watchdog and fair wait where somebody is killed. The living must not be taken for dead when the
 * machine pauses: they have two thirds of it to come back, or all of it. */
#define SHORT_MS 4500 /* ENDURING_MS, as it is written for Java */
#define SHORT_OPTIONS "watchdog=4500 fairwait=4500"

enum { MOST = 8 };

/* Somebody in the queue. */
struct waiter {
    char side;      /* 'J' or 'C' */
    char owner[96]; /* on the server */
    char handle[16];
    int thread, command; /* Java */
    hf_op *op;           /* C */
    hf_owner number;
    hf_lock *lock;
};

struct line {
    const struct interop_kind *kind;
    const char *java_client;
    hf_client *client;
    hf_lock *lock;
    struct waiter waiters[MOST];
    int count;
};

static struct line line_new(const struct interop_kind *kind, const char *java_client,
                            int64_t watchdog_ms) {
    struct line line = {.kind = kind, .java_client = java_client};
    hf_options options = HF_OPTIONS_INIT;
    if (watchdog_ms != 0) {
        options.watchdog_ms = watchdog_ms;
        options.fair_wait_ms = watchdog_ms;
    }
    assert_hf(HF_OK, hf_open(server_url(suite.server), &options, &line.client));
    assert_hf(HF_OK, new_lock(line.client, kind->kind, NAME, strlen(NAME), &line.lock));
    return line;
}

static void line_free(struct line *line) {
    hf_lock_free(line->lock);
    hf_close(line->client);
}

/* ---- Queueing -------------------------------------------------------------------------------- */

static bool is_queued(void *arg) {
    const struct waiter *waiter = arg;
    own_reply *place = cmd(suite.server, "LPOS " QUEUE " %s", waiter->owner);
    return place->type == REDIS_REPLY_INTEGER;
}

static bool is_not_queued(void *arg) {
    return !is_queued(arg);
}

/* Java: it listens, and has tried since. */
static bool sleeps(void *arg) {
    const struct waiter *waiter = arg;
    return java_sleeps(waiter->thread);
}

/* C: likewise. */
static bool takes_grants(void *arg) {
    const struct waiter *waiter = arg;
    own_text *record = cmd_str(suite.server, "HGET " RECORDS " %s", waiter->owner);
    return record != NULL && record[0] != '0';
}

static bool holds(void *arg) {
    const struct waiter *waiter = arg;
    return cmd_int(suite.server, "HEXISTS " NAME " %s", waiter->owner) == 1;
}

/* `command` is Java's: "lock", or "try" with options. */
static struct waiter *queue_java(struct line *line, const char *command, const char *options) {
    struct waiter *waiter = &line->waiters[line->count++];
    *waiter = (struct waiter){.side = 'J', .thread = java_thread()};
    snprintf(waiter->handle, sizeof waiter->handle, "fair%d", line->count);
    snprintf(waiter->owner, sizeof waiter->owner, "%s",
             java_owner(line->java_client, waiter->thread));
    java_open(line->java_client, line->kind->name, NAME, waiter->handle);
    waiter->command = java_send(suite.java, "%s %s thread=%d %s", command, waiter->handle,
                                waiter->thread, options);
    assert_true(wait_until(is_queued, waiter, JAVA_LIMIT_MS));
    return waiter;
}

static struct waiter *queue_c(struct line *line, int64_t wait_ms) {
    struct waiter *waiter = &line->waiters[line->count++];
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    *waiter = (struct waiter){.side = 'C', .number = (hf_owner)line->count, .lock = line->lock};
    snprintf(waiter->owner, sizeof waiter->owner, "%s", c_owner(line->client, waiter->number));
    options.owner = waiter->number;
    options.wait_ms = wait_ms;
    assert_hf(HF_OK, hf_lock_acquire_start(line->lock, &options, NULL, NULL, &waiter->op));
    assert_true(wait_until(is_queued, waiter, JAVA_LIMIT_MS));
    return waiter;
}

static struct waiter *queue(struct line *line, char side) {
    return side == 'J' ? queue_java(line, "lock", "") : queue_c(line, HF_FOREVER);
}

static bool has_it(struct waiter *waiter, int64_t limit_ms) {
    if (waiter->side == 'C')
        return hf_op_wait(waiter->op, limit_ms, NULL) == HF_OK;
    return strcmp(java_answer_within(suite.java, waiter->command, limit_ms), "ok") == 0;
}

static void give_back(struct waiter *waiter) {
    if (waiter->side == 'C') {
        assert_hf(HF_OK, hf_lock_release_as(waiter->lock, waiter->number));
        hf_op_free(waiter->op);
    } else {
        assert_string_equal(
            java_call(suite.java, "unlock %s thread=%d", waiter->handle, waiter->thread), "ok");
    }
}

/* The first gets it, nobody else does, and gives it back; and so on. */
static void assert_served(struct waiter *const *order, int count, int64_t limit_ms) {
    for (int i = 0; i < count; i++) {
        if (!has_it(order[i], limit_ms))
            fail_msg("place %d, %s, was not served", i + 1, order[i]->owner);
        assert_true(holds(order[i]));
        assert_int_equal(cmd_int(suite.server, "HLEN " NAME), 1);
        for (int j = i + 1; j < count; j++)
            assert_false(has_it(order[j], 0));
        give_back(order[i]);
    }
    assert_server_empty();
}

/* ---- Order ----------------------------------------------------------------------------------- */

static void serve_sides(const struct interop_kind *kind, char holder, const char *sides) {
    struct line line = line_new(kind, "j1", 0);
    struct waiter *order[MOST];
    int thread = java_thread();
    java_open("j2", kind->name, NAME, "holder");
    if (holder == 'C')
        assert_hf(HF_OK, hf_lock_acquire_for(line.lock, JAVA_LIMIT_MS));
    else
        assert_string_equal(java_call(suite.java, "lock holder thread=%d", thread), "ok");
    for (int i = 0; sides[i] != '\0'; i++)
        order[i] = queue(&line, sides[i]);
    /* Who tries once does not overtake them, nor does it stay in the queue. */
    hf_acquire_options once = HF_ACQUIRE_OPTIONS_INIT;
    once.owner = MOST + 1;
    once.wait_ms = 0;
    assert_hf(HF_EBUSY, hf_lock_acquire_with(line.lock, &once, NULL));
    assert_int_equal(cmd_int(suite.server, "LLEN " QUEUE), line.count);
    if (holder == 'C')
        assert_hf(HF_OK, hf_lock_release(line.lock));
    else
        assert_string_equal(java_call(suite.java, "unlock holder thread=%d", thread), "ok");
    assert_served(order, line.count, HANDED_MS);
    line_free(&line);
}

void fair_mixed_queue_is_first_come(void **state) {
    serve_sides(*state, 'C', "JCJCJC");
    serve_sides(*state, 'J', "CJCJCC");
    serve_sides(*state, 'J', "JJCCJJ");
}

/* Who gives up, by time or by being cancelled, is gone from the queue; the others keep their
 * order. */
void fair_give_ups_keep_the_order(void **state) {
    struct line line = line_new(*state, "j1", 0);
    assert_hf(HF_OK, hf_lock_acquire_for(line.lock, JAVA_LIMIT_MS));
    struct waiter *timed_java_first = queue_java(&line, "try", "wait=4000 lease=60000");
    struct waiter *java = queue(&line, 'J');
    struct waiter *timed_c = queue_c(&line, 3000);
    struct waiter *c = queue(&line, 'C');
    struct waiter *timed_java = queue_java(&line, "try", "wait=3000 lease=60000");
    struct waiter *cancelled = queue(&line, 'C');
    struct waiter *last = queue(&line, 'J');
    hf_op_cancel(cancelled->op);
    assert_hf(HF_ECANCELED, hf_op_wait(cancelled->op, JAVA_LIMIT_MS, NULL));
    assert_hf(HF_ETIMEDOUT, hf_op_wait(timed_c->op, JAVA_LIMIT_MS, NULL));
    assert_string_equal(java_answer(suite.java, timed_java->command), "ok false");
    assert_string_equal(java_answer(suite.java, timed_java_first->command), "ok false");
    assert_true(wait_until(is_not_queued, cancelled, BY_MESSAGE_MS));
    assert_true(wait_until(is_not_queued, timed_c, BY_MESSAGE_MS));
    assert_int_equal(cmd_int(suite.server, "LLEN " QUEUE), 3);
    hf_op_free(cancelled->op);
    hf_op_free(timed_c->op);

    assert_hf(HF_OK, hf_lock_release(line.lock));
    struct waiter *order[] = {java, c, last};
    assert_served(order, 3, HANDED_MS);
    line_free(&line);
}

/* The lock becomes free, and before it hears of that, a Java client has waited long enough. Redisson's
 * give-up tells nobody, so the next in the queue sleeps on; the client that looks, or unlocks what nobody holds,
 * wakes it. */
void fair_turn_that_java_lets_pass(void **state) {
    struct line line = line_new(*state, "j1", 0);
    cmd_ok(suite.server, "HSET " NAME " somebody 1");
    cmd_ok(suite.server, "PEXPIRE " NAME " %lld", (long long)JAVA_LIMIT_MS);
    struct waiter *java = queue_java(&line, "try", "wait=4000 lease=60000");
    assert_true(wait_until(sleeps, java, JAVA_LIMIT_MS));
    struct waiter *c = queue(&line, 'C');
    assert_true(wait_until(takes_grants, c, JAVA_LIMIT_MS));
    cmd_ok(suite.server, "DEL " NAME);
    assert_string_equal(java_answer(suite.java, java->command), "ok false");
    assert_false(has_it(c, 0));
    assert_string_equal(java_call(suite.java, "unlock %s thread=%d", java->handle, java->thread),
                        "ok");
    assert_served(&c, 1, HANDED_MS);
    line_free(&line);
}

/* Force by either side serves the head of the queue. */
void fair_forced_serves_the_first(void **state) {
    struct line line = line_new(*state, "j1", 0);
    int thread = java_thread();
    bool broken;
    java_open("j2", line.kind->name, NAME, "holder");
    assert_string_equal(java_call(suite.java, "lock holder thread=%d", thread), "ok");
    struct waiter *order[] = {queue(&line, 'C'), queue(&line, 'J')};
    assert_hf(HF_OK, hf_lock_break(line.lock, &broken));
    assert_true(broken);
    assert_true(has_it(order[0], HANDED_MS));
    const char *answer = java_call(suite.java, "unlock holder thread=%d", thread);
    assert_memory_equal(answer, "err IllegalMonitorStateException", 32);
    assert_true(holds(order[0]));
    assert_string_equal(java_call(suite.java, "force holder"), "ok true");
    assert_true(has_it(order[1], HANDED_MS));
    assert_hf(HF_ELOST, hf_lock_release_as(order[0]->lock, order[0]->number));
    hf_op_free(order[0]->op);
    give_back(order[1]);
    assert_server_empty();
    line_free(&line);
}

/* ---- Kills ----------------------------------------------------------------------------------- */

struct victim {
    const struct interop_kind *kind;
    int notified; /* a pipe to tell its owner, with a NUL, before it waits */
};

/* A process that acquires, or waits, until it is killed. */
static int acquire_until_killed(void *arg) {
    const struct victim *victim = arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    hf_lock *lock;
    options.watchdog_ms = SHORT_MS;
    options.fair_wait_ms = SHORT_MS;
    if (hf_open(server_url(suite.server), &options, &client) != HF_OK ||
        new_lock(client, victim->kind->kind, NAME, strlen(NAME), &lock) != HF_OK)
        return 1;
    const char *owner = c_owner(client, 0);
    if (write(victim->notified, owner, strlen(owner) + 1) < 0 || hf_lock_acquire(lock) != HF_OK)
        return 1;
    for (;;)
        pause();
}

static pid_t start_victim(const struct interop_kind *kind, struct waiter *ret_waiter) {
    int notified[2];
    assert_int_equal(pipe(notified), 0);
    struct victim victim = {kind, notified[1]};
    pid_t pid = run_child(acquire_until_killed, &victim);
    close(notified[1]); /* so that its end is seen */
    *ret_waiter = (struct waiter){.side = 'C'};
    size_t len = 0;
    do {
        assert_int_equal(read(notified[0], ret_waiter->owner + len, 1), 1);
    } while (ret_waiter->owner[len++] != '\0');
    close(notified[0]);
    return pid;
}

static void short_java_client(void) {
    java_lasting_client("jfair", SHORT_OPTIONS);
}

/* A client that arrives behind the dead finds out by itself: Java by the deadlines, C by the records. */
static void kill_c(const struct interop_kind *kind, char behind) {
    struct waiter dead_holder, dead_waiter;
    struct line line = line_new(kind, "jfair", SHORT_MS);
    pid_t holder = start_victim(kind, &dead_holder);
    assert_true(wait_until(holds, &dead_holder, JAVA_LIMIT_MS));
    struct waiter *first = queue(&line, behind == 'C' ? 'J' : 'C');
    pid_t waiter = start_victim(kind, &dead_waiter);
    assert_true(wait_until(is_queued, &dead_waiter, JAVA_LIMIT_MS));
    struct waiter *order[] = {first, queue(&line, behind), queue(&line, behind)};
    kill_child(waiter);
    kill_child(holder);
    assert_served(order, 3, DEAD_MS);
    line_free(&line);
}

void fair_killed_c_holder_and_waiter(void **state) {
    short_java_client();
    kill_c(*state, 'C');
    kill_c(*state, 'J');
}

static void kill_java(const struct interop_kind *kind, char behind) {
    struct remote *victim = java_start(JAVA_REDISSON);
    const char *url = server_tcp_url(suite.server);
    struct waiter dead_waiter = {.side = 'J'};
    struct line line = line_new(kind, "jfair", SHORT_MS);
    assert_memory_equal(java_call(victim, "client v %s " SHORT_OPTIONS, url), "ok ", 3);
    assert_string_equal(java_call(victim, "open v %s " NAME " L", kind->name), "ok");
    assert_string_equal(java_call(victim, "lock L thread=1"), "ok");
    char uuid[64];
    char number[32];
    assert_int_equal(sscanf(java_call(victim, "ids v thread=2"), "ok %63s %31s", uuid, number), 2);
    snprintf(dead_waiter.owner, sizeof dead_waiter.owner, "%s:%s", uuid, number);

    struct waiter *first = queue(&line, behind == 'C' ? 'J' : 'C');
    java_send(victim, "lock L thread=2");
    assert_true(wait_until(is_queued, &dead_waiter, JAVA_LIMIT_MS));
    struct waiter *order[] = {first, queue(&line, behind), queue(&line, behind)};
    java_kill(victim);
    assert_served(order, 3, DEAD_MS);
    java_free(victim);
    line_free(&line);
}

void fair_killed_java_holder_and_waiter(void **state) {
    short_java_client();
    kill_java(*state, 'C');
    kill_java(*state, 'J');
}

/* A process with several who wait, behind a holder of ours: it counts for minutes, but nobody hears
 * when it is its turn. Who is behind it, on either side, comes in when it has had its while. */
static void kill_queued_java(const struct interop_kind *kind, char behind) {
    enum { DEAD = 3 };
    struct remote *victim = java_start(JAVA_REDISSON);
    struct line line = line_new(kind, "j1", 0);
    assert_memory_equal(java_call(victim, "client v %s", server_tcp_url(suite.server)), "ok ", 3);
    assert_string_equal(java_call(victim, "open v %s " NAME " L", kind->name), "ok");
    assert_hf(HF_OK, hf_lock_acquire_for(line.lock, JAVA_LIMIT_MS));
    for (int i = 0; i < DEAD; i++) {
        struct waiter dead = {.side = 'J'};
        char uuid[64], number[32];
        assert_int_equal(
            sscanf(java_call(victim, "ids v thread=%d", i + 1), "ok %63s %31s", uuid, number), 2);
        snprintf(dead.owner, sizeof dead.owner, "%s:%s", uuid, number);
        java_send(victim, "lock L thread=%d", i + 1);
        assert_true(wait_until(is_queued, &dead, JAVA_LIMIT_MS));
    }
    struct waiter *order[] = {queue(&line, behind), queue(&line, behind == 'C' ? 'J' : 'C')};
    java_kill(victim);
    assert_hf(HF_OK, hf_lock_release(line.lock));
    assert_served(order, 2, UNHEARD_MS);
    java_free(victim);
    line_free(&line);
}

void fair_killed_java_is_passed_over_when_silent(void **state) {
    kill_queued_java(*state, 'C');
    kill_queued_java(*state, 'J');
}
