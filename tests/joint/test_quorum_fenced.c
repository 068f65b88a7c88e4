/* Fenced locks of a quorum: tokens grow from hold to hold, with servers down, restarted empty, behind, or
 * ahead; and servers that have just been started. */
#include "joint/fleet.h"
#include "support/crowd.h"

#define COUNTER "redisson_lock_token:{" FLEET_NAME "}"
#define FENCED_ACQUIRE hfi_script_fenced_acquire.sha1
#define FENCED_EXTEND hfi_script_fenced_extend.sha1
#define AHEAD INT64_C(8000000000000000) /* of the time in microseconds */

static hf_lock *fenced_lock(hf_client *client) {
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.flags = HF_FENCED;
    return made(hf_lock_new_with, client, FLEET_NAME, strlen(FLEET_NAME), &options);
}

static int64_t acquire_token(hf_lock *lock) {
    hf_acquire_options options = fleet_wait_for(HANG_MS, HF_WATCHDOG);
    hf_result result = HF_RESULT_INIT;
    int64_t token = 0;
    assert_int_equal(hf_lock_acquire_with(lock, &options, &result), HF_OK);
    assert_int_equal(hf_lock_token(lock, &token), HF_OK);
    assert_true(token > 0 && token == result.token);
    return token;
}

/* How many servers that are up store it, or more. */
static int stored(struct fleet *f, int64_t token) {
    int count = 0;
    for (int i = 0; i < FLEET; i++)
        if (server_pid(f->server[i]) != 0 && key_exists(f->server[i], COUNTER))
            count += cmd_int(f->server[i], "GET " COUNTER) >= token;
    return count;
}

/* The token of one more hold, which is larger than the last. */
static int64_t next_token(struct fleet *f, hf_lock *lock, int64_t last) {
    int64_t token = acquire_token(lock);
    assert_true(token > last);
    assert_true(stored(f, token) >= MAJORITY);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    return token;
}

FLEET_CASE(tokens_grow_from_hold_to_hold) {
    int64_t last = 0;
    hf_lock *ours = fenced_lock(f->client), *theirs = fenced_lock(f->rival);
    for (int round = 0; round < 20; round++) {
        last = next_token(f, ours, last);
        last = next_token(f, theirs, last);
    }
    hf_lock_free(ours);
    hf_lock_free(theirs);
}

/* Every two of the servers, and so every majority, in turn. */
FLEET_CASE(with_two_servers_down) {
    int64_t last = 0;
    own_lock *lock = fenced_lock(f->client);
    for (int i = 0; i < FLEET; i++) {
        server_kill(f->server[i]);
        server_kill(f->server[(i + 2) % FLEET]);
        last = next_token(f, lock, last);
        server_restart(f->server[i]); /* empty: the counter is lost */
        server_restart(f->server[(i + 2) % FLEET]);
        last = next_token(f, lock, last);
    }
}

static void set_counter(struct fleet *f, int server, int64_t value) {
    cmd_ok(f->server[server], "SET " COUNTER " %lld", (long long)value);
}

/* One that is far ahead makes no difference, unless it is needed: then the others are raised to it, and
 * a client that arrives without it goes beyond it. */
FLEET_CASE(one_server_is_ahead) {
    hf_lock *lock = fenced_lock(f->client);
    set_counter(f, 4, AHEAD);
    server_kill(f->server[0]);
    server_kill(f->server[1]);
    int64_t token = next_token(f, lock, AHEAD);
    assert_int_equal(stored(f, AHEAD), MAJORITY);
    server_restart(f->server[0]);
    server_restart(f->server[1]);
    server_kill(f->server[4]);
    next_token(f, lock, token);
    hf_lock_free(lock);
    server_restart(f->server[4]);
}

/* Counters that were put back, as by a failover or a restored file. */
FLEET_CASE(counters_fall_behind) {
    int64_t last = 0;
    own_lock *lock = fenced_lock(f->client);
    for (int i = 0; i < FLEET; i++) {
        last = next_token(f, lock, last);
        for (int behind = 0; behind <= i; behind++)
            set_counter(f, behind, 5);
        last = next_token(f, lock, last);
    }
}

FLEET_CASE(replies_to_wishes_are_lost) {
    int64_t last = AHEAD;
    hf_lock *lock = fenced_lock(f->client);
    server_kill(f->server[0]);
    server_kill(f->server[1]);
    for (int i = 2; i < FLEET; i++) {
        set_counter(f, i, last + 10 * i); /* they differ: some are raised */
        proxy_drop_replies_after(f->proxy[i], FENCED_EXTEND);
        last = next_token(f, lock, last);
        proxy_heal(f->proxy[i]);
        proxy_drop_replies_after(f->proxy[i], FENCED_ACQUIRE);
        last = next_token(f, lock, last);
        proxy_heal(f->proxy[i]);
    }
    hf_lock_free(lock);
    server_restart(f->server[0]);
    server_restart(f->server[1]);
}

/* A nested acquire is local, and so has the token of the hold. */
CASE(nested) {
    OWN(fleet_end) struct fleet f;
    hf_acquire_options at_once = fleet_wait_for(0, HF_WATCHDOG);
    hf_result result = HF_RESULT_INIT;
    fleet_begin(&f, NULL);
    own_lock *lock = fenced_lock(f.client);
    int64_t token = acquire_token(lock);
    assert_true(acquire_token(lock) == token);
    assert_int_equal(hf_lock_acquire_with(f.lock, &at_once, &result), HF_OK); /* a plain handle */
    assert_int_equal(result.token, 0);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_token(lock, &token), HF_ENOTOWNER);
    assert_int_equal(hf_lock_token(f.lock, &token), HF_ENOTSUP);

    /* Held without a token, it has none to give. */
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_ENOTSUP);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
}

FLEET_CASE(one_attempt) {
    int64_t token = 0, last = 0;
    hf_lock *lock = fenced_lock(f->client), *theirs = fenced_lock(f->rival);
    for (int round = 0; round < 10; round++) {
        assert_int_equal(hf_lock_try(lock), HF_OK);
        assert_int_equal(hf_lock_token(lock, &token), HF_OK);
        assert_true(token > last);
        last = token;
        assert_int_equal(hf_lock_try(theirs), HF_EBUSY);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_true(fleet_wait_free(f, HANG_MS));
    }
    hf_lock_free(lock);
    hf_lock_free(theirs);
}

/* A token that a server drew during its restart guard is not trusted: with three servers left, one
 * of them just started, it draws again when the guard is over. */
FLEET_CASE_WITH(young_servers_draw_again, fleet_options(), options.restart_guard_ms = 6000) {
    own_lock *lock = fenced_lock(f->client);
    int64_t last = next_token(f, lock, 0); /* all of them are of age by then */
    server_kill(f->server[0]);
    server_kill(f->server[1]);
    server_restart(f->server[2]);
    long long draws = server_calls(f->server[2], "incrby");
    next_token(f, lock, last);
    assert_true(server_calls(f->server[2], "incrby") >= draws + 2);
    server_restart(f->server[0]);
    server_restart(f->server[1]);
}

/* Threads of two clients, each of which writes its token where all can see it. */
static atomic_llong highest;

static void *contend(void *arg) {
    for (int round = 0; round < 15; round++) {
        int64_t token = acquire_token(arg);
        if (atomic_exchange(&highest, token) >= token)
            return "a token that is not larger";
        if (hf_lock_release(arg) != HF_OK)
            return "a release that failed";
    }
    return NULL;
}

FLEET_CASE(tokens_come_in_the_order_of_holds) {
    struct crowd crowd = {0};
    hf_lock *ours = fenced_lock(f->client), *theirs = fenced_lock(f->rival);
    atomic_store(&highest, 0);
    for (int i = 0; i < 4; i++)
        crowd_add(&crowd, contend, i % 2 == 0 ? ours : theirs);
    crowd_join(&crowd);
    hf_lock_free(ours);
    hf_lock_free(theirs);
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
