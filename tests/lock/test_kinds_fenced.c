/*
 * The fenced lock's tokens: rows C080 and U75, lost replies, lost counters, kinds that are mixed
 * under one name, and many clients at once whose tokens must come in the order of their holds.
 */
#include "lock/kinds.h"

#include <inttypes.h>

#define FENCED_ACQUIRE hfi_script_fenced_acquire.sha1
#define AHEAD INT64_C(8000000000000000) /* of the time in microseconds */

static int acquire_result(hf_lock *lock, int64_t wait_ms, int64_t lease_ms, hf_result *ret) {
    hf_acquire_options options = world_wait_for(wait_ms, lease_ms);
    *ret = (hf_result)HF_RESULT_INIT;
    return hf_lock_acquire_with(lock, &options, ret);
}

/* Acquires and returns the token, which the handle must tell as well. */
static int64_t acquire_token(hf_lock *lock) {
    hf_result result;
    int64_t token = -1;
    assert_int_equal(acquire_result(lock, HF_FOREVER, HF_WATCHDOG, &result), HF_OK);
    assert_int_equal(hf_lock_token(lock, &token), HF_OK);
    assert_true(token == result.token);
    return token;
}

static int64_t counter(struct world *w) {
    return cmd_int(w->server, "GET %s", COUNTER);
}

/* ---- C080, U75 ---- */

/* Five acquisitions by different ways, from a counter that is ahead of the clock, and so counts one by
 * one. */
KIND_CASE(C080_tokens_increase_by_every_way, HF_FENCED) {
    hf_result result;
    cmd_ok(w->server, "SET %s %lld", COUNTER, (long long)AHEAD);
    for (int way = 1; way <= 5; way++) {
        int64_t wanted = AHEAD + way;
        int err = way == 1   ? acquire_result(w->lock, HF_FOREVER, HF_WATCHDOG, &result)
                  : way == 2 ? hf_lock_acquire(w->lock)
                  : way == 3 ? acquire_result(w->lock, HF_FOREVER, 20000, &result)
                  : way == 4 ? hf_lock_try(w->lock)
                             : world_acquire_async(w->lock, 0, 1000, &result);
        int64_t token = 0;
        assert_int_equal(err, HF_OK);
        assert_int_equal(hf_lock_token(w->lock, &token), HF_OK);
        assert_int_equal(token, wanted);
        if (way == 1 || way == 3 || way == 5)
            assert_int_equal(result.token, wanted);
        if (way == 3)
            assert_in_range(pttl(w->server, WORLD_NAME), 1, 20000);
        assert_int_equal(counter(w), wanted);
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
        assert_int_equal(counter(w), wanted);
    }
    assert_int_equal(pttl(w->server, COUNTER), -1);
}

KIND_CASE(U75_nested_acquires_draw_tokens, HF_FENCED) {
    int64_t last = 0, token;
    for (int depth = 0; depth < 3; depth++) {
        token = acquire_token(w->lock);
        assert_true(token > last);
        last = token;
    }
    /* A release un-nests; the latest token stays the hold's. */
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_token(w->lock, &token), HF_OK);
    assert_true(token == last);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_token(w->lock, &token), HF_ENOTOWNER);
}

KIND_CASE(U75_busy_and_late_draw_none, HF_FENCED) {
    hf_result result;
    int64_t token = 77;
    int64_t held = acquire_token(w->rival_lock);
    assert_int_equal(acquire_result(w->lock, 0, HF_WATCHDOG, &result), HF_EBUSY);
    assert_int_equal(result.token, 0);
    assert_int_equal(acquire_result(w->lock, 100, 5000, &result), HF_ETIMEDOUT);
    assert_int_equal(result.token, 0);
    assert_int_equal(hf_lock_token(w->lock, &token), HF_ENOTOWNER);
    assert_int_equal(token, 77);
    assert_true(counter(w) == held);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

/* A lock without a TTL is another's, and nothing else. */
KIND_CASE(U75_lock_without_ttl_is_busy, HF_FENCED) {
    hf_result result;
    cmd_ok(w->server, "HSET %s someone:1 1", WORLD_NAME);
    assert_int_equal(acquire_result(w->lock, 0, HF_WATCHDOG, &result), HF_EBUSY);
    assert_int_equal(acquire_result(w->lock, 200, HF_WATCHDOG, &result), HF_ETIMEDOUT);
    assert_int_equal(world_count(w, w->owner), 0);
    assert_false(key_exists(w->server, COUNTER));
}

KIND_CASE(U75_bad_counters_take_no_lock, HF_FENCED) {
    static const struct {
        const char *make;
        int err;
    } bad[] = {
        {"SET " COUNTER " 9223372036854775807", HF_EUNAVAILABLE},
        {"SET " COUNTER " 9007199254740991", HF_EUNAVAILABLE},
        {"SET " COUNTER " many", HF_EWRONGTYPE},
        {"SET " COUNTER " -1", HF_EWRONGTYPE},
        {"RPUSH " COUNTER " 1", HF_EWRONGTYPE},
        {"HSET " COUNTER " a 1", HF_EWRONGTYPE},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cmd_ok(w->server, "FLUSHALL");
        cmd_ok(w->server, bad[i].make);
        assert_int_equal(hf_lock_try(w->lock), bad[i].err);
        assert_true(hf_last_error()->text[0] != '\0');
        assert_true(world_free(w));
        assert_int_equal(hf_lock_acquire_for(w->lock, 1000), bad[i].err);
        assert_int_equal(world_acquire_async(w->lock, 0, 1000, NULL), bad[i].err);
        assert_true(world_free(w));
        assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
        assert_int_equal(world_stats(w->client).holds, 0);
    }

    /* Found while nested: the hold is what it was. */
    cmd_ok(w->server, "FLUSHALL");
    int64_t token = acquire_token(w->lock), kept = 0;
    cmd_ok(w->server, "SET %s 9223372036854775807", COUNTER);
    assert_int_equal(hf_lock_acquire(w->lock), HF_EUNAVAILABLE);
    assert_int_equal(world_count(w, w->owner), 1);
    assert_int_equal(hf_lock_token(w->lock, &kept), HF_OK);
    assert_true(kept == token);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* Deleted between holds, under a hold, and with the whole database. */
KIND_CASE(U75_lost_counter_never_moves_back, HF_FENCED) {
    int64_t last = 0;
    cmd_ok(w->server, "SET %s 1000000", COUNTER); /* one that Redisson has started */
    for (int round = 0; round < 30; round++) {
        int64_t outer = acquire_token(w->lock);
        assert_true(outer > last);
        if (round % 3 == 0)
            cmd_ok(w->server, "DEL %s", COUNTER);
        int64_t inner = acquire_token(w->lock);
        assert_true(inner > outer);
        last = inner;
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
        if (round % 3 == 1)
            cmd_ok(w->server, "DEL %s", COUNTER);
        if (round % 3 == 2)
            cmd_ok(w->server, "FLUSHALL");
    }
}

/* ---- Lost replies ---- */

KIND_CASE(U14_lost_reply_gives_a_larger_token, HF_FENCED) {
    cmd_ok(w->server, "SET %s %lld", COUNTER, (long long)AHEAD);
    proxy_drop_replies_after(w->proxy, FENCED_ACQUIRE);
    int64_t token = acquire_token(w->lock);
    assert_int_equal(token, AHEAD + 2); /* the one before was answered to nobody */
    assert_int_equal(counter(w), token);
    proxy_drop_replies_after(w->proxy, FENCED_ACQUIRE);
    assert_int_equal(acquire_token(w->lock), AHEAD + 4);
    assert_int_equal(world_count(w, w->owner), 2);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
}

/* The release never arrived and the same owner acquires anew: its old field is still there, and the
 * old token was given out. */
CASE(U16_hold_left_by_a_release_gets_a_new_token) {
    OWN(world_end) struct world w;
    hf_options options = kind_impatient();
    kind_begin(&w, HF_FENCED, &options);
    int64_t first = acquire_token(w.lock);
    proxy_stall_request(w.proxy, WORLD_RELEASE);
    proxy_refuse(w.proxy, true); /* nor does its copy get there yet */
    assert_int_equal(hf_lock_release(w.lock), HF_EINDOUBT);
    assert_int_equal(world_count(&w, w.owner), 1);
    proxy_refuse(w.proxy, false);
    assert_true(acquire_token(w.lock) > first);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_free(&w));
}

/* What says "acquired" without a token is no answer: it is undone. */
KIND_CASE(answer_without_a_token_is_not_acquired, HF_FENCED) {
    static const char *const forged[] = {
        "*3\r\n:1\r\n:1\r\n:1794736941513\r\n",
        "*4\r\n:1\r\n:1\r\n:0\r\n:1794736941513\r\n",
        "*4\r\n:1\r\n:1\r\n:-1\r\n:1794736941513\r\n",
        "*4\r\n:1\r\n:1\r\n:9007199254740992\r\n:1794736941513\r\n",
        "*4\r\n:1\r\n:2\r\n:5\r\n:1794736941513\r\n",
        "*4\r\n:0\r\n:1\r\n:5\r\n:1794736941513\r\n",
    };
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        proxy_forge_reply(w->proxy, FENCED_ACQUIRE, forged[i], strlen(forged[i]));
        assert_int_equal(hf_lock_try(w->lock), HF_EPROTO);
        assert_true(world_wait_free(w, HANG_MS));
    }
}

/* ---- Mixed kinds, names ---- */

KIND_CASE(tokens_of_mixed_handles, HF_FENCED) {
    hf_result result;
    int64_t token, kept;
    own_lock *plain = new_handle(w->client, HF_PLAIN);
    assert_int_equal(hf_lock_token(plain, &token), HF_ENOTSUP);
    assert_int_equal(hf_lock_token(w->lock, &token), HF_ENOTOWNER);

    /* Plain inside fenced: it draws none, and the hold keeps its own. */
    token = acquire_token(w->lock);
    assert_int_equal(acquire_result(plain, 0, HF_WATCHDOG, &result), HF_OK);
    assert_int_equal(result.token, 0);
    assert_int_equal(result.count, 2);
    assert_int_equal(hf_lock_token(w->lock, &kept), HF_OK);
    assert_true(kept == token);
    assert_int_equal(hf_lock_release(plain), HF_OK);
    assert_int_equal(hf_lock_release(plain), HF_OK);

    /* Fenced inside plain: without a token before, and none of an earlier hold. */
    assert_int_equal(hf_lock_acquire(plain), HF_OK);
    assert_int_equal(hf_lock_token(w->lock, &kept), HF_ENOTOWNER);
    assert_true(acquire_token(w->lock) > token);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* The next possession of the same owner is on its way before the last one has ended, so both use
 * one record. */
KIND_CASE(token_ends_with_its_hold, HF_FENCED) {
    own_op *release, *acquire;
    hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    int64_t token;
    own_lock *plain = new_handle(w->client, HF_PLAIN);
    options.owner = 7;
    assert_int_equal(world_acquire_async(w->lock, 7, 0, NULL), HF_OK);
    assert_int_equal(hf_lock_token_as(w->lock, 7, &token), HF_OK);
    proxy_stall_request(w->proxy, WORLD_RELEASE);
    assert_int_equal(hf_lock_release_start(w->lock, 7, NULL, NULL, &release), HF_OK);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_int_equal(hf_lock_acquire_start(plain, &options, NULL, NULL, &acquire), HF_OK);
    assert_int_equal(hf_op_wait(acquire, 50, NULL), HF_EPENDING);
    assert_int_equal(proxy_release_held(w->proxy), 1);
    assert_int_equal(hf_op_wait(release, HANG_MS, NULL), HF_OK);
    assert_int_equal(hf_op_wait(acquire, HANG_MS, NULL), HF_OK);
    assert_int_equal(hf_lock_token_as(w->lock, 7, &token), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release_as(plain, 7), HF_OK);
}

CASE(counter_is_named_as_redisson_names_it) {
    static const struct {
        const char *prefix, *name, *counter;
    } names[] = {
        {NULL, "a", "redisson_lock_token:{a}"},
        {NULL, "a{b}c", "redisson_lock_token:a{b}c"},
        {NULL, "open{", "redisson_lock_token:open{"},
        {NULL, "close}", "redisson_lock_token:{close}}"},
        {"app:", "a", "redisson_lock_token:{app:a}"},
        {"{app}:", "a", "redisson_lock_token:{app}:a"},
    };
    struct server *server = world_server();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hf_options options = HF_OPTIONS_INIT;
        options.name_prefix = names[i].prefix;
        cmd_ok(server, "FLUSHALL");
        own_client *client = made(hf_open, server_url(server), &options);
        own_lock *lock = made(new_lock, client, HF_FENCED, names[i].name, strlen(names[i].name));
        int64_t token = acquire_token(lock);
        assert_true(cmd_int(server, "GET %s", names[i].counter) == token);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_int_equal(world_keys(server), 1);
    }
}

/* ---- Rights ---- */

/* The rights that docs/redisson.md names are enough; those of a plain lock are not, and then no
 * lock is taken. */
CASE(U45_rights_to_the_counter) {
    static const char *const extra[] = {"~redisson_lock_token:{app:* +get +incrby", "+get +incrby",
                                        "~redisson_lock_token:{app:* +incrby",
                                        "~redisson_lock_token:{app:* +get"};
    struct server *server = world_server();
    cmd_ok(server, "FLUSHALL");
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++) {
        char setuser[1024];
        hf_options options = HF_OPTIONS_INIT;
        own_client *client;
        snprintf(
            setuser, sizeof setuser,
            "ACL SETUSER locks reset on >secret resetchannels ~app:* "
            "&redisson_lock__channel:{app:* +eval +evalsha +time +exists +hexists +hmget +hset "
            "+pttl +pexpire +del +publish +subscribe +unsubscribe +ping +hget +hgetall +type "
            "+select +client|setname +client|list +info %s",
            extra[i]);
        cmd_ok(server, setuser);
        options.user = "locks";
        options.password = "secret";
        assert_int_equal(hf_open(server_url(server), &options, &client), HF_OK);
        own_lock *lock = made(new_lock, client, HF_FENCED, "app:a", 5);
        assert_int_equal(hf_lock_try(lock), i == 0 ? HF_OK : HF_EPERM);
        assert_int_equal(hf_lock_release(lock), i == 0 ? HF_OK : HF_ENOTOWNER);
        assert_false(key_exists(server, "app:a"));
    }
    cmd_ok(server, "ACL DELUSER locks");
}

/* ---- Many at once ---- */

struct drawer {
    pthread_t thread;
    hf_lock *lock;
    hf_fence *fence;
    int64_t *last; /* guarded by the lock alone, as the fence is not */
    int rounds;
    int err;
    bool disorder;
};

static void *draw(void *arg) {
    struct drawer *drawer = arg;
    for (int i = 0; i < drawer->rounds && drawer->err == HF_OK; i++) {
        hf_result result = HF_RESULT_INIT;
        drawer->err = hf_lock_acquire_with(drawer->lock, NULL, &result);
        if (drawer->err != HF_OK)
            break;
        int64_t last = __atomic_load_n(drawer->last, __ATOMIC_RELAXED);
        drawer->disorder = drawer->disorder || result.token <= last ||
                           hf_fence_check(drawer->fence, result.token) != HF_OK;
        __atomic_store_n(drawer->last, result.token, __ATOMIC_RELAXED);
        drawer->err = hf_lock_release(drawer->lock);
    }
    return NULL;
}

/* The counter is deleted again and again meanwhile. */
CASE(tokens_follow_the_order_of_holds) {
    OWN(world_end) struct world w;
    enum { CLIENTS = 4, THREADS = 8 };
    hf_client *clients[CLIENTS];
    hf_lock *locks[CLIENTS];
    struct drawer drawers[THREADS];
    hf_fence fence = HF_FENCE_INIT;
    int64_t last = 0;
    int rounds = getenv("HF_SOAK") != NULL ? 5000 : 40;
    hf_options options = world_options();
    options.cmd_timeout_ms = HANG_MS; /* the machine may be slow; nothing here is about that */
    options.connect_timeout_ms = HANG_MS;
    options.watchdog_ms = 10 * HANG_MS;
    kind_begin(&w, HF_FENCED, &options);
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(hf_open(server_url(w.server), &options, &clients[i]), HF_OK);
        locks[i] = new_handle(clients[i], HF_FENCED);
    }
    for (int i = 0; i < THREADS; i++) {
        drawers[i] = (struct drawer){
            .lock = locks[i % CLIENTS], .fence = &fence, .last = &last, .rounds = rounds};
        assert_int_equal(pthread_create(&drawers[i].thread, NULL, draw, &drawers[i]), 0);
    }
    for (int i = 0; i < rounds; i++) {
        cmd_ok(w.server, "DEL %s", COUNTER);
        (void)wait_a_moment();
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(drawers[i].thread, NULL), 0);
        assert_int_equal(drawers[i].err, HF_OK);
        assert_false(drawers[i].disorder);
    }
    for (int i = 0; i < CLIENTS; i++) {
        hf_lock_free(locks[i]);
        assert_int_equal(hf_close(clients[i]), HF_OK);
    }
}

RUN_CASES(world_start_server, world_stop_server)
