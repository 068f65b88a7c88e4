/*
 * The plain lock's kin between C and Java: non-reentrant, spin and fenced; and the fair ones, as far as
 * they are alike. Each row is played for each kind, in both directions.
 *
 * Holds outlive BY_MESSAGE_MS unless a row is about their end. A spin waiter does not listen, on
 * either side, so it is known to wait when it has tried twice; Redisson's spin lock also tells
 * nobody when it is released, so nothing here waits for that with a listener.
 */
#include "interop.h"

#include <stdio.h>
#include <string.h>

#define WATCHDOG_MS ENDURING_MS
#define NAME "kin"
#define COUNTER "redisson_lock_token:{" NAME "}"
#define MONITOR_STATE "err IllegalMonitorStateException"

const struct interop_kind interop_kinds[INTEROP_KINDS] = {
    {"nonreentrant", HF_NONREENTRANT, .listens = true, .java_publishes = true},
    {"spin", HF_SPIN, .reentrant = true},
    {"fenced", HF_FENCED, .reentrant = true, .listens = true, .java_publishes = true,
     .token = true},
    {"fair", HF_FAIR, .reentrant = true, .listens = true},
    {"nonreentrantfair", HF_FAIR | HF_NONREENTRANT, .listens = true},
};

/* One side each, on the same name and of one kind. */
struct pair {
    const struct interop_kind *kind;
    hf_client *client;
    hf_lock *lock;
    int thread; /* Java's; its handle is called "kin" */
};

static hf_lock *handle_of(hf_client *client, any_kind kind) {
    hf_lock *lock;
    assert_hf(HF_OK, new_lock(client, kind, NAME, strlen(NAME), &lock));
    return lock;
}

static struct pair begin(void **state, int64_t watchdog_ms, const char *java_client) {
    struct pair pair = {.kind = *state, .client = c_client(watchdog_ms), .thread = java_thread()};
    pair.lock = handle_of(pair.client, pair.kind->kind);
    java_open(java_client, pair.kind->name, NAME, "kin");
    return pair;
}

static bool nothing_left(void *arg) {
    const struct interop_kind *kind = arg;
    long long counters = kind->token ? cmd_int(suite.server, "EXISTS " COUNTER) : 0;
    return cmd_int(suite.server, "DBSIZE") == counters;
}

static void end(struct pair *pair) {
    /* Redisson deletes its latch key after the answer, without waiting for it. */
    if (!wait_until(nothing_left, (void *)(uintptr_t)pair->kind, BY_MESSAGE_MS)) {
        print_keys();
        fail();
    }
    hf_lock_free(pair->lock);
    hf_close(pair->client);
}

#define assert_java(answer, ...) assert_string_equal(java_call(suite.java, __VA_ARGS__), answer)

static void assert_java_fails(const char *error, const char *verb, int thread) {
    const char *answer = java_call(suite.java, "%s thread=%d", verb, thread);
    if (strncmp(answer, error, strlen(error)) != 0)
        fail_msg("%s: %s instead of %s", verb, answer, error);
}

static void assert_count(const char *owner, long long count) {
    assert_int_equal(cmd_int(suite.server, "HLEN " NAME), 1);
    assert_int_equal(cmd_int(suite.server, "HGET " NAME " %s", owner), count);
}

/* ---- Waits ---- */

static int java_waits(const struct pair *pair) {
    if (pair->kind->listens)
        return java_wait_start("j1", "kin", pair->thread);
    struct watched_wait *wait = java_watch("j1", java_owner("j1", pair->thread));
    int command = java_send(suite.java, "lock kin thread=%d", pair->thread);
    wait_until_trying(wait);
    return command;
}

static hf_op *c_waits(const struct pair *pair, hf_owner owner) {
    if (pair->kind->listens)
        return c_wait_start(pair->client, pair->lock, owner);
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    struct watched_wait *wait = c_watch(pair->client, c_owner(pair->client, owner));
    options.owner = owner;
    assert_hf(HF_OK, hf_lock_acquire_start(pair->lock, &options, NULL, NULL, &op));
    wait_until_trying(wait);
    return op;
}

/* ---- Exclusion and hand-over ---- */

void kin_java_waits_for_c(void **state) {
    struct pair pair = begin(state, 0, "j1");
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    assert_count(c_owner(pair.client, 0), 1);
    assert_java("ok false", "try kin thread=%d", pair.thread);
    int waiting = java_waits(&pair);
    assert_false(java_answered(suite.java, waiting));
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_string_equal(java_answer_within(suite.java, waiting, BY_MESSAGE_MS), "ok");
    assert_count(java_owner("j1", pair.thread), 1);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_java("ok", "unlock kin thread=%d", pair.thread);
    end(&pair);
}

void kin_c_waits_for_java(void **state) {
    struct pair pair = begin(state, 0, "j1");
    assert_java("ok", "lock kin thread=%d", pair.thread);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    hf_op *waiting = c_waits(&pair, 77);
    assert_hf(HF_EPENDING, hf_op_wait(waiting, 0, NULL));
    assert_java("ok", "unlock kin thread=%d", pair.thread);
    assert_hf(HF_OK, hf_op_wait(waiting, BY_MESSAGE_MS, NULL));
    hf_op_free(waiting);
    assert_count(c_owner(pair.client, 77), 1);
    assert_java("ok true", "isLocked kin");
    assert_java("ok false", "try kin thread=%d wait=50", pair.thread);
    assert_hf(HF_ETIMEDOUT, hf_lock_acquire_for(pair.lock, 50));
    assert_hf(HF_OK, hf_lock_release_as(pair.lock, 77));
    end(&pair);
}

/* A plain waiter on the other side is woken by the kind's release. Ours tells always; Redisson's
 * spin lock does not, and is left out. */
void kin_wakes_plain_waiters_of_the_other_side(void **state) {
    struct pair pair = begin(state, 0, "j1");
    int waiter = java_thread();
    java_open("j2", "plain", NAME, "plain");
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    int waiting = java_wait_start("j2", "plain", waiter);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_string_equal(java_answer_within(suite.java, waiting, BY_MESSAGE_MS), "ok");
    assert_java("ok", "unlock plain thread=%d", waiter);

    if (pair.kind->java_publishes) {
        own_lock *plain = handle_of(pair.client, HF_PLAIN);
        assert_java("ok", "lock kin thread=%d", pair.thread);
        hf_op *op = c_wait_start(pair.client, plain, 5);
        assert_java("ok", "unlock kin thread=%d", pair.thread);
        assert_hf(HF_OK, hf_op_wait(op, BY_MESSAGE_MS, NULL));
        hf_op_free(op);
        assert_hf(HF_OK, hf_lock_release_as(plain, 5));
    }
    end(&pair);
}

/* ---- Nesting ---- */

void kin_nests_or_not_on_either_side(void **state) {
    struct pair pair = begin(state, 0, "j1");
    bool nests = pair.kind->reentrant;
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    assert_hf(nests ? HF_OK : HF_EDEADLK, hf_lock_acquire(pair.lock));
    assert_hf(nests ? HF_OK : HF_EDEADLK, hf_lock_try(pair.lock));
    assert_count(c_owner(pair.client, 0), nests ? 3 : 1);
    assert_java("ok 0", "count kin thread=%d", pair.thread);
    for (int held = nests ? 3 : 1; held > 0; held--) {
        assert_java("ok false", "try kin thread=%d", pair.thread);
        assert_hf(HF_OK, hf_lock_release(pair.lock));
    }

    assert_java("ok", "lock kin thread=%d", pair.thread);
    if (nests) {
        assert_java("ok", "lock kin thread=%d", pair.thread);
    } else {
        assert_java_fails(MONITOR_STATE, "lock kin", pair.thread);
        assert_java_fails(MONITOR_STATE, "try kin", pair.thread);
    }
    assert_count(java_owner("j1", pair.thread), nests ? 2 : 1);
    for (int held = nests ? 2 : 1; held > 0; held--) {
        assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
        assert_java("ok", "unlock kin thread=%d", pair.thread);
    }
    assert_hf(HF_OK, hf_lock_try(pair.lock));
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    end(&pair);
}

/* ---- Force, not owner ---- */

void kin_forced_and_not_owner_on_either_side(void **state) {
    struct pair pair = begin(state, 0, "j1");
    bool broken;
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    assert_java_fails(MONITOR_STATE, "unlock kin", pair.thread);
    assert_count(c_owner(pair.client, 0), 1);
    assert_java("ok true", "force kin");
    assert_java("ok false", "force kin");
    assert_hf(HF_ELOST, hf_lock_release(pair.lock));

    assert_java("ok", "lock kin thread=%d", pair.thread);
    assert_hf(HF_ENOTOWNER, hf_lock_release(pair.lock));
    assert_hf(HF_OK, hf_lock_break(pair.lock, &broken));
    assert_true(broken);
    assert_java_fails(MONITOR_STATE, "unlock kin", pair.thread);
    assert_hf(HF_OK, hf_lock_break(pair.lock, &broken));
    assert_false(broken);
    end(&pair);
}

/* ---- Time ---- */

void kin_leases_end_for_the_other_side(void **state) {
    const int64_t lease_ms = 2000;
    struct pair pair = begin(state, 0, "j1");
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = lease_ms;
    int64_t sent = wall_ms();
    assert_hf(HF_OK, hf_lock_acquire_with(pair.lock, &options, NULL));
    assert_java("ok", "lock kin thread=%d lease=%lld", pair.thread, (long long)lease_ms);
    assert_true(wall_ms() - sent >= lease_ms);
    assert_hf(HF_ELOST, hf_lock_release(pair.lock));

    assert_hf(HF_OK, hf_lock_acquire_for(pair.lock, JAVA_LIMIT_MS));
    assert_true(wall_ms() - sent >= 2 * lease_ms);
    assert_java_fails(MONITOR_STATE, "unlock kin", pair.thread);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    end(&pair);
}

/* Either side's watchdog carries its hold past the lease. */
void kin_watchdogs_seen_by_the_other_side(void **state) {
    java_lasting_client("jkin", "watchdog=4500");
    struct pair pair = begin(state, WATCHDOG_MS, "jkin");
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    assert_true(server_wait_outlived(suite.server, "kin", JAVA_LIMIT_MS));
    assert_java("ok true", "isLocked kin");
    assert_count(c_owner(pair.client, 0), 1);
    assert_hf(HF_OK, hf_lock_release(pair.lock));

    assert_java("ok", "lock kin thread=%d", pair.thread);
    assert_true(server_wait_outlived(suite.server, "kin", JAVA_LIMIT_MS));
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_count(java_owner("jkin", pair.thread), 1);
    assert_java("ok", "unlock kin thread=%d", pair.thread);
    end(&pair);
}

/* ---- Tokens ---- */

static int64_t c_token(hf_lock *lock) {
    hf_result result = HF_RESULT_INIT;
    assert_hf(HF_OK, hf_lock_acquire_with(lock, NULL, &result));
    return result.token;
}

static int64_t java_token(int thread) {
    long long token = -1;
    const char *answer = java_call(suite.java, "lockToken kin thread=%d", thread);
    if (sscanf(answer, "ok %lld", &token) != 1)
        fail_msg("lockToken: %s", answer);
    return token;
}

/* One counter for both sides: started by Java, nested, lost, started by C. */
void fenced_tokens_are_one_row_of_numbers(void **state) {
    const struct interop_kind *fenced = &interop_kinds[2];
    (void)state;
    void *kind = (void *)(uintptr_t)fenced;
    struct pair pair = begin(&kind, 0, "j1");
    int64_t last = 0;
    for (int round = 0; round < 4; round++) {
        int64_t by_java = java_token(pair.thread);
        assert_true(by_java > last);
        assert_true(java_token(pair.thread) == by_java + 1); /* nested */
        assert_java("ok", "unlock kin thread=%d", pair.thread);
        assert_java("ok", "unlock kin thread=%d", pair.thread);
        last = c_token(pair.lock);
        assert_true(last > by_java + 1); /* from the time, unless that is behind */
        int64_t nested = c_token(pair.lock);
        assert_true(nested > last);
        last = nested;
        own_text *notified = text_of("ok %lld", (long long)last);
        assert_java(notified, "token kin");
        assert_hf(HF_OK, hf_lock_release(pair.lock));
        assert_hf(HF_OK, hf_lock_release(pair.lock));
        if (round == 1) {
            /* Lost: ours goes on from the time, and Java from there. */
            cmd_ok(suite.server, "DEL " COUNTER);
            int64_t anew = c_token(pair.lock);
            assert_true(anew > last);
            assert_hf(HF_OK, hf_lock_release(pair.lock));
            last = anew;
        }
    }
    assert_int_equal(cmd_int(suite.server, "PTTL " COUNTER), -1);
    end(&pair);
}
