/*
 * The count-down latch, as its callers see it: what Redisson's own tests ask of it (the C rows),
 * generations, what its wire must be, and the rules of every call. Faults of the network are in
 * test_latch_faults.c.
 *
 * Waits that are to end are waits for ever, with the test's own limit. Where a message must have
 * ended a wait, it has to end before the poll, which comes after ten seconds.
 */
#include "sync/scene.h"

#include <stdio.h>

#define POLL_MS 10000

static void set(hf_latch *latch, int64_t count) {
    bool was_set = false;
    assert_int_equal(hf_latch_try_set(latch, count, &was_set), HF_OK);
    assert_true(was_set);
}

static void assert_count(hf_latch *latch, int64_t expected) {
    int64_t count = -99;
    assert_int_equal(hf_latch_count(latch, &count), HF_OK);
    assert_int_equal(count, expected);
}

/* ---- The rows ---- */

static void C188_await_is_over_in_time(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    scene_begin(&s, NULL);
    set(s.latch, 1);
    waiter_await(&waiter, s.latch, HANG_MS, NULL);
    assert_true(scene_wait_latch(&s, 2, 1));
    assert_false(atomic_load(&waiter.done));
    assert_int_equal(hf_latch_count_down(s.rival_latch), HF_OK);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < POLL_MS);
    assert_count(s.latch, 0);
    assert_true(scene_wait_no_channels(HANG_MS));
    scene_end(&s);
}

static void C189_await_times_out(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        scene_begin(&s, NULL);
        set(s.latch, 1);
        int64_t start_ms = now_ms();
        assert_int_equal(form->await(&s, PASSING_MS), HF_ETIMEDOUT);
        assert_true(now_ms() - start_ms >= PASSING_MS);
        assert_int_equal(form->await(&s, 0), HF_EBUSY);
        assert_count(s.latch, 1);
        hf_stats stats = scene_stats(s.client);
        assert_int_equal(stats.timed_out, 2);
        assert_int_equal(stats.acquired, 0);
        assert_int_equal(stats.unknowns, 0);
        scene_end(&s);
    }
}

static void count_callback(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    if (result->code == HF_OK)
        atomic_fetch_add((atomic_int *)user, 1);
}

static bool are_five(void *arg) {
    return atomic_load((atomic_int *)arg) == 5;
}

static void C190_C197_all_who_wait_are_told_once(void **state) {
    (void)state;
    struct scene s;
    atomic_int done = 0;
    scene_begin(&s, NULL);
    set(s.latch, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(hf_latch_await_start(s.latch, NULL, count_callback, &done, NULL), HF_OK);
    assert_true(scene_wait_latch(&s, 10, 5));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(atomic_load(&done), 0);
        assert_int_equal(hf_latch_count_down(s.rival_latch), HF_OK);
    }
    assert_true(wait_until(are_five, &done, POLL_MS - 1000));
    assert_count(s.latch, 0);
    scene_end(&s);
    assert_int_equal(atomic_load(&done), 5);
}

static void C191_count_down(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        scene_begin(&s, NULL);
        assert_int_equal(form->await(&s, HF_FOREVER), HF_OK); /* never set: open */
        assert_int_equal(form->count_down(&s), HF_OK);
        assert_int_equal(server_things(s.server), 0);
        set(s.latch, 2);
        assert_int_equal(form->count_down(&s), HF_OK);
        assert_count(s.latch, 1);
        assert_int_equal(form->count_down(&s), HF_OK);
        assert_count(s.latch, 0);
        assert_int_equal(form->await(&s, HF_FOREVER), HF_OK);
        assert_int_equal(form->count_down(&s), HF_OK);
        assert_count(s.latch, 0);
        assert_int_equal(form->await(&s, 0), HF_OK);
        server_drop(s.server, LATCH_PROOF);
        assert_int_equal(server_things(s.server), 0);
        scene_end(&s);
    }
}

static void C192_C193_delete(void **state) {
    (void)state;
    struct scene s;
    bool deleted = false;
    scene_begin(&s, NULL);
    set(s.latch, 1);
    assert_int_equal(hf_latch_delete(s.latch, &deleted), HF_OK);
    assert_true(deleted);
    assert_int_equal(hf_latch_delete(s.latch, &deleted), HF_OK);
    assert_false(deleted);
    scene_end(&s);
}

static void C194_C195_set_and_count(void **state) {
    (void)state;
    struct scene s;
    bool was_set = true;
    scene_begin(&s, NULL);
    assert_count(s.latch, 0);
    set(s.latch, 1);
    assert_int_equal(hf_latch_try_set(s.latch, 2, &was_set), HF_OK);
    assert_false(was_set);
    assert_count(s.latch, 1);
    scene_end(&s);
}

static void the_largest_count_and_what_is_below_zero(void **state) {
    (void)state;
    struct scene s;
    server_redis_only(scene_server(), "numbers are of 32 bits there");
    scene_begin(&s, NULL);
    /* What an older client has left of a count is an open latch. */
    cmd_ok(s.server, "SET " LATCH_NAME " -1");
    assert_count(s.latch, 0);
    assert_int_equal(hf_latch_await(s.latch), HF_OK);
    set(s.latch, ((int64_t)1 << 53) - 1);
    assert_count(s.latch, ((int64_t)1 << 53) - 1);
    scene_end(&s);
}

struct pair {
    hf_client *client;
    atomic_int *counter;
    int awaiting, wrong;
};

static void *count_or_await(void *arg) {
    struct pair *pair = arg;
    hf_latch *latch = scene_latch(pair->client);
    if (pair->awaiting) {
        int64_t count = -1;
        pair->wrong += hf_latch_await_for(latch, HANG_MS) != HF_OK;
        pair->wrong += hf_latch_count(latch, &count) != HF_OK || count != 0;
        pair->wrong += atomic_load(pair->counter) != pair->awaiting;
    } else {
        atomic_fetch_add(pair->counter, 1);
        pair->wrong += hf_latch_count_down(latch) != HF_OK;
    }
    hf_latch_free(latch);
    return NULL;
}

static void C196_as_many_waiters_as_counters(void **state) {
    (void)state;
    enum { EACH = 6, ALL = 2 * EACH };
    struct scene s;
    struct pair pair[ALL];
    pthread_t thread[ALL];
    atomic_int counter = 0;
    scene_begin(&s, NULL);
    set(s.rival_latch, EACH);
    for (int i = 0; i < ALL; i++) {
        pair[i] = (struct pair){s.client, &counter, i % 2 == 0 ? EACH : 0, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, count_or_await, &pair[i]), 0);
    }
    for (int i = 0; i < ALL; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(pair[i].wrong, 0);
    }
    scene_end(&s);
}

/* ---- Deleted, generations ---- */

static void U79_deleted_under_waiters(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter[3];
    scene_begin(&s, NULL);
    set(s.latch, 3);
    for (int i = 0; i < 3; i++)
        waiter_await(&waiter[i], s.latch, HF_FOREVER, NULL);
    assert_true(scene_wait_latch(&s, 6, 3));
    assert_int_equal(hf_latch_delete(s.rival_latch, NULL), HF_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(waiter_join(&waiter[i]), HF_OK);
        assert_true(waiter[i].took_ms < POLL_MS);
    }
    scene_end(&s);
}

/* As Redisson deletes: its message says "closed anew". */
static void U79_deleted_by_java_under_waiters(void **state) {
    (void)state;
    server_redis_only(scene_server(), "the message is Redisson's");
    struct scene s;
    struct waiter waiter;
    scene_begin(&s, NULL);
    set(s.latch, 3);
    waiter_await(&waiter, s.latch, HF_FOREVER, NULL);
    assert_true(scene_wait_latch(&s, 2, 1));
    cmd_ok(s.server, "MULTI");
    cmd_ok(s.server, "DEL " LATCH_NAME);
    cmd_ok(s.server, "PUBLISH " LATCH_CHANNEL " 1");
    cmd_ok(s.server, "EXEC");
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < POLL_MS);
    scene_end(&s);
}

/* All are let go by the end of the generation they waited for, though none can look before the next
 * has begun: whoever opens or closes the latch with this library leaves a proof. */
static void not_trapped_by_the_next_generation(void **state) {
    (void)state;
    server_redis_only(scene_server(), "it is made of scripts");
    enum { WAITERS = 4 };
    static const enum scene_hand hands[][2] = {
        {SCENE_OURS, SCENE_OURS}, {SCENE_OURS, SCENE_JAVAS}, {SCENE_JAVAS, SCENE_OURS}};
    FOR_EACH_FORM(form)
    for (size_t hand = 0; hand < sizeof hands / sizeof *hands; hand++) {
        struct scene s;
        struct waiter waiters[WAITERS];
        scene_begin(&s, NULL);
        set(s.latch, 1);
        for (int i = 0; i < WAITERS; i++)
            waiter_await(&waiters[i], s.latch, HF_FOREVER, NULL);
        assert_true(scene_wait_asleep(&s, SCENE_LOOK, (size_t)2 * WAITERS, HANG_MS));
        assert_int_equal(form->await(&s, PASSING_MS), HF_ETIMEDOUT);
        scene_next_generation(hands[hand][0], hands[hand][1], 1);
        for (int i = 0; i < WAITERS; i++) {
            assert_int_equal(waiter_join(&waiters[i]), HF_OK);
            assert_true(waiters[i].took_ms < POLL_MS);
        }
        assert_count(s.latch, 1);
        assert_int_equal(form->await(&s, 0), HF_EBUSY); /* who comes now waits for the next one */
        assert_true(pttl(s.server, LATCH_PROOF) > 0);   /* nothing stays for ever */
        scene_end(&s);
    }
}

/* Java opens it and closes it again at once, and leaves no proof: it waits for the next time, as
 * Java's own waiters do; unless the new count is larger than the one it saw. */
static void java_opens_and_closes_at_once(void **state) {
    (void)state;
    server_redis_only(scene_server(), "it is made of keys and messages");
    struct scene s;
    struct waiter waiter;
    scene_begin(&s, NULL);
    set(s.latch, 2);
    waiter_await(&waiter, s.latch, HF_FOREVER, NULL);
    assert_true(scene_wait_latch(&s, 2, 1));
    scene_next_generation(SCENE_JAVAS, SCENE_JAVAS, 2);
    assert_true(scene_wait_asleep(&s, SCENE_LOOK, 3, HANG_MS));
    sleep_ms(100); /* for a wrong end to show */
    assert_false(atomic_load(&waiter.done));
    scene_next_generation(SCENE_JAVAS, SCENE_JAVAS, 3);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < POLL_MS);
    scene_end(&s);
}

/* Channels are shared by all databases, and anybody can publish: a message is a reason to look. */
static void a_message_opens_nothing(void **state) {
    (void)state;
    server_redis_only(scene_server(), "messages and databases");
    static const char *const words[] = {"0", "1", "abc", "newCount", ""};
    enum { WORDS = sizeof words / sizeof *words };
    FOR_EACH_FORM(form) {
        struct scene s;
        struct waiter waiter;
        hf_client *elsewhere = NULL;
        char url[256];
        scene_begin(&s, NULL);
        set(s.latch, 1);
        waiter_await(&waiter, s.latch, HF_FOREVER, NULL);
        assert_true(scene_wait_latch(&s, 2, 1));
        for (int i = 0; i < WORDS; i++) {
            cmd_ok(s.server, "PUBLISH " LATCH_CHANNEL " %s", words[i]);
            assert_true(scene_wait_asleep(&s, SCENE_LOOK, 3 + (size_t)i, HANG_MS));
        }
        snprintf(url, sizeof url, "%s?db=1", server_url(s.server));
        assert_int_equal(hf_open(url, NULL, &elsewhere), HF_OK);
        hf_latch *namesake = scene_latch(elsewhere);
        set(namesake, 1);
        assert_int_equal(hf_latch_count_down(namesake), HF_OK);
        /* two messages, which may be one reason to look */
        assert_true(scene_wait_asleep(&s, SCENE_LOOK, 2 + WORDS + 1, HANG_MS));
        assert_int_equal(form->await(&s, PASSING_MS), HF_ETIMEDOUT);
        assert_false(atomic_load(&waiter.done));
        assert_int_equal(form->count_down(&s), HF_OK);
        assert_int_equal(waiter_join(&waiter), HF_OK);
        assert_true(waiter.took_ms < POLL_MS);
        hf_latch_free(namesake);
        assert_int_equal(hf_close(elsewhere), HF_OK);
        scene_end(&s);
    }
}

/* What version 0.1 asked to be granted for latches is enough, for the proof as well. */
static void the_access_list_of_0_1_is_enough(void **state) {
    (void)state;
    server_redis_only(scene_server(), "an access list of Redis");
    struct scene s;
    struct waiter waiter;
    hf_client *client = NULL;
    hf_latch *latch = NULL;
    hf_options options = scene_options();
    scene_begin(&s, NULL);
    cmd_ok(s.server, "ACL SETUSER locks on >secret resetchannels ~app:* "
                     "&redisson_lock__channel:{app:* +eval +evalsha +time +exists +hexists +hmget "
                     "+hset +pttl +pexpire +del +publish +subscribe +unsubscribe +ping +hget "
                     "+hgetall +type +select +client|setname +client|list +info "
                     "~{app:* &redisson_countdownlatch__channel__{app:* +get +set +decr");
    options.user = "locks";
    options.password = "secret";
    assert_int_equal(hf_open(server_url(s.server), &options, &client), HF_OK);
    assert_int_equal(hf_latch_new_bytes(client, "app:ready", 9, &latch), HF_OK);
    set(latch, 1);
    waiter_await(&waiter, latch, HF_FOREVER, NULL);
    while (cmd_int(s.server, "EVAL %s 0", "return #redis.call('pubsub', 'channels')") == 0)
        sleep_ms(1);
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_true(key_exists(s.server, "{app:ready}:holdfast_latch"));
    set(latch, 1);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < POLL_MS);
    assert_int_equal(hf_latch_delete(latch, NULL), HF_OK);
    hf_latch_free(latch);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(s.server, "ACL DELUSER locks");
    scene_end(&s);
}

/* A message of the generation before arrives late, when the next is closed and somebody waits for
 * that: it must not let it go. The one that waited since before is let go by the same message. */
static void an_old_message_opens_nothing(void **state) {
    (void)state;
    server_redis_only(scene_server(), "messages that are late");
    struct scene s;
    struct waiter old, new;
    scene_begin(&s, NULL);
    set(s.latch, 1);
    waiter_await(&old, s.latch, HF_FOREVER, NULL);
    assert_true(scene_wait_latch(&s, 2, 1));
    assert_int_equal(proxy_freeze_connections(s.proxy, SCENE_SUBSCRIBE), 1);
    scene_next_generation(SCENE_OURS, SCENE_OURS, 1);
    waiter_await(&new, s.latch, HF_FOREVER, NULL);
    assert_true(scene_wait_asleep(&s, SCENE_LOOK, 4, HANG_MS));
    assert_false(atomic_load(&old.done));
    proxy_heal(s.proxy);
    assert_int_equal(waiter_join(&old), HF_OK);
    assert_true(old.took_ms < POLL_MS);
    /* It was told, too, has looked, and waits on. */
    assert_true(scene_wait_asleep(&s, SCENE_LOOK, 6, HANG_MS));
    sleep_ms(100); /* for a wrong end to show */
    assert_false(atomic_load(&new.done));
    assert_int_equal(hf_latch_count_down(s.rival_latch), HF_OK);
    assert_int_equal(waiter_join(&new), HF_OK);
    assert_true(new.took_ms < POLL_MS);
    scene_end(&s);
}

/* ---- The rules of every call ---- */

static void zero_and_negative_counts_are_refused(void **state) {
    (void)state;
    struct scene s;
    hf_latch *latch = NULL;
    hf_op *op = NULL;
    hf_wait_options options = HF_WAIT_INIT;
    scene_begin(&s, NULL);
    assert_int_equal(hf_latch_try_set(s.latch, 0, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_try_set(s.latch, -1, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_try_set(s.latch, (int64_t)1 << 53, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_try_set_start(s.latch, 0, NULL, NULL, &op), HF_EINVAL);
    assert_int_equal(hf_last_error()->code, HF_EINVAL);
    assert_int_equal(hf_latch_new_bytes(NULL, "x", 1, &latch), HF_EINVAL);
    assert_int_equal(hf_latch_new_bytes(s.client, "", 0, &latch), HF_EINVAL);
    assert_int_equal(hf_latch_new_bytes(s.client, "x", 1, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_try_set(NULL, 1, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_count_down(NULL), HF_EINVAL);
    assert_int_equal(hf_latch_count(NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_delete(NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_await(NULL), HF_EINVAL);
    assert_int_equal(hf_latch_await_for(s.latch, -2), HF_EINVAL);
    options.size = 1;
    assert_int_equal(hf_latch_await_with(s.latch, &options), HF_EINVAL);
    hf_latch_free(NULL);
    assert_int_equal(server_things(s.server), 0);
    scene_end(&s);
}

static void every_change_refuses(hf_latch *latch, int expected) {
    assert_int_equal(hf_latch_try_set(latch, 1, NULL), expected);
    assert_int_equal(hf_latch_count_down(latch), expected);
    assert_int_equal(hf_latch_delete(latch, NULL), expected);
}

static void every_call_refuses(hf_latch *latch, int expected) {
    int64_t count;
    every_change_refuses(latch, expected);
    assert_int_equal(hf_latch_await(latch), expected);
    assert_int_equal(hf_latch_await_for(latch, 0), expected);
    assert_int_equal(hf_latch_count(latch, &count), expected);
}

static void U67_U68_what_is_something_else(void **state) {
    (void)state;
    server_redis_only(scene_server(), "other types of keys");
    struct scene s;
    hf_lock *lock = NULL;
    scene_begin(&s, NULL);
    cmd_ok(s.server, "RPUSH " LATCH_NAME " 1");
    every_call_refuses(s.latch, HF_EWRONGTYPE);
    cmd_ok(s.server, "SET " LATCH_NAME " many");
    every_call_refuses(s.latch, HF_EWRONGTYPE);
    cmd_ok(s.server, "DEL " LATCH_NAME);
    assert_int_equal(hf_lock_new(s.client, LATCH_NAME, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    every_call_refuses(s.latch, HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    scene_end(&s);
}

/* Permits with leases are seen while any are taken, and as long as something of them is left. */
static void U67_U68_permits_that_are_taken(void **state) {
    (void)state;
    server_redis_only(scene_server(), "keys of permits beside the key of a latch");
    struct scene s;
    hf_permits *permits = NULL;
    hf_permit_id id;
    bool done;
    scene_begin(&s, NULL);
    assert_int_equal(hf_permits_new_bytes(s.client, LATCH_NAME, strlen(LATCH_NAME), &permits),
                     HF_OK);
    assert_int_equal(hf_permits_set(permits, 2), HF_OK);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    every_change_refuses(s.latch, HF_EWRONGTYPE);
    assert_non_null(strstr(hf_last_error()->text, "are taken under this name"));
    assert_int_equal(scene_number(LATCH_NAME), 1);
    cmd_ok(s.server, "DEL " LATCH_NAME);
    every_change_refuses(s.latch, HF_EWRONGTYPE);
    assert_non_null(strstr(hf_last_error()->text, "delete them first"));
    assert_int_equal(hf_permits_delete(permits, &done), HF_OK);
    assert_true(done);
    assert_int_equal(hf_latch_try_set(s.latch, 1, &done), HF_OK);
    assert_true(done);
    hf_permits_free(permits);
    scene_end(&s);
}

static int child_of_fork(void *arg) {
    struct scene *s = arg;
    int64_t count;
    if (hf_latch_await(s->latch) != HF_EFORKED || hf_latch_count_down(s->latch) != HF_EFORKED ||
        hf_latch_count(s->latch, &count) != HF_EFORKED)
        return 1;
    hf_latch_free(s->latch);
    hf_close(s->client);
    return 0;
}

static void a_forked_child_is_refused(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    set(s.latch, 1);
    assert_true(expect_exit(run_child(child_of_fork, &s), 0, HANG_MS));
    assert_int_equal(hf_latch_count_down(s.latch), HF_OK);
    assert_int_equal(hf_latch_await(s.latch), HF_OK);
    scene_end(&s);
}

static void U23_scripts_flushed_between_calls(void **state) {
    (void)state;
    server_redis_only(scene_server(), "scripts");
    struct scene s;
    scene_begin(&s, NULL);
    cmd_ok(s.server, "SCRIPT FLUSH");
    set(s.latch, 3);
    FOR_EACH_FORM(form) {
        cmd_ok(s.server, "SCRIPT FLUSH");
        assert_int_equal(form->count_down(&s), HF_OK);
    }
    assert_count(s.latch, 1);
    cmd_ok(s.server, "SCRIPT FLUSH");
    bool deleted = false;
    assert_int_equal(hf_latch_delete(s.latch, &deleted), HF_OK);
    assert_true(deleted);
    scene_end(&s);
}

static void cancelled(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    hf_cancel *cancel = NULL;
    hf_op *op = NULL;
    scene_begin(&s, NULL);
    set(s.latch, 1);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    waiter_await(&waiter, s.latch, HF_FOREVER, cancel);
    assert_true(scene_wait_latch(&s, 2, 1));
    hf_cancel_fire(cancel);
    assert_int_equal(waiter_join(&waiter), HF_ECANCELED);
    assert_int_equal(hf_latch_await_start(s.latch, NULL, NULL, NULL, &op), HF_OK);
    hf_op_cancel(op);
    assert_int_equal(scene_wait_op(HF_OK, op, NULL), HF_ECANCELED);
    assert_int_equal(scene_stats(s.client).cancelled, 2);
    assert_int_equal(scene_stats(s.client).unknowns, 0);
    assert_true(scene_wait_no_channels(HANG_MS));
    assert_count(s.latch, 1);
    hf_cancel_free(cancel);
    scene_end(&s);
}

static void closed_while_it_waits(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    scene_begin(&s, NULL);
    set(s.latch, 1);
    waiter_await(&waiter, s.latch, HF_FOREVER, NULL);
    assert_true(scene_wait_latch(&s, 2, 1));
    assert_int_equal(hf_close(s.client), HF_OK);
    assert_int_equal(waiter_join(&waiter), HF_ECLOSED);
    s.client = NULL;
    scene_end(&s);
}

/* The names are Redisson's: the channel always has braces of its own. */
static void names_on_the_wire(void **state) {
    (void)state;
    server_redis_only(scene_server(), "names of keys and channels");
    static const struct {
        const char *prefix, *name, *key, *channel;
    } names[] = {
        {NULL, "a", "a", "redisson_countdownlatch__channel__{a}"},
        {NULL, "a{b}c", "a{b}c", "redisson_countdownlatch__channel__{a{b}c}"},
        {"app:", "a", "app:a", "redisson_countdownlatch__channel__{app:a}"},
    };
    struct server *server = scene_server();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hf_options options = scene_options();
        hf_client *client = NULL;
        hf_latch *latch = NULL;
        char closed[128], opened[128];
        options.name_prefix = names[i].prefix;
        cmd_ok(server, "FLUSHALL");
        struct monitor *monitor = monitor_start(server);
        assert_int_equal(hf_open(server_url(server), &options, &client), HF_OK);
        assert_int_equal(hf_latch_new_bytes(client, names[i].name, strlen(names[i].name), &latch),
                         HF_OK);
        set(latch, 1);
        assert_int_equal(cmd_int(server, "GET %s", names[i].key), 1);
        assert_int_equal(hf_latch_count_down(latch), HF_OK);
        snprintf(closed, sizeof closed, "lua] \"publish\" \"%s\" \"1\"", names[i].channel);
        snprintf(opened, sizeof opened, "lua] \"publish\" \"%s\" \"0\"", names[i].channel);
        assert_int_equal(monitor_count(monitor, closed), 1);
        assert_int_equal(monitor_count(monitor, opened), 1);
        monitor_stop(monitor);
        hf_latch_free(latch);
        assert_int_equal(hf_close(client), HF_OK);
    }
}

static void every_operation_can_be_started(void **state) {
    (void)state;
    struct scene s;
    hf_op *op = NULL;
    hf_result r = HF_RESULT_INIT;
    scene_begin(&s, NULL);
    int err = hf_latch_try_set_start(s.latch, 2, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &r), HF_OK);
    assert_int_equal(r.value, 1);
    err = hf_latch_try_set_start(s.latch, 2, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &r), HF_OK);
    assert_int_equal(r.value, 0);
    err = hf_latch_count_down_start(s.latch, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &r), HF_OK);
    err = hf_latch_count_start(s.latch, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &r), HF_OK);
    assert_int_equal(r.value, 1);
    hf_op *await = NULL;
    assert_int_equal(hf_latch_await_start(s.latch, NULL, NULL, NULL, &await), HF_OK);
    err = hf_latch_delete_start(s.latch, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &r), HF_OK);
    assert_int_equal(r.value, 1);
    assert_int_equal(scene_wait_op(HF_OK, await, &r), HF_OK);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C188_await_is_over_in_time),
        cmocka_unit_test(C189_await_times_out),
        cmocka_unit_test(C190_C197_all_who_wait_are_told_once),
        cmocka_unit_test(C191_count_down),
        cmocka_unit_test(C192_C193_delete),
        cmocka_unit_test(C194_C195_set_and_count),
        cmocka_unit_test(the_largest_count_and_what_is_below_zero),
        cmocka_unit_test(C196_as_many_waiters_as_counters),
        cmocka_unit_test(U79_deleted_under_waiters),
        cmocka_unit_test(U79_deleted_by_java_under_waiters),
        cmocka_unit_test(not_trapped_by_the_next_generation),
        cmocka_unit_test(java_opens_and_closes_at_once),
        cmocka_unit_test(a_message_opens_nothing),
        cmocka_unit_test(the_access_list_of_0_1_is_enough),
        cmocka_unit_test(an_old_message_opens_nothing),
        cmocka_unit_test(zero_and_negative_counts_are_refused),
        cmocka_unit_test(U67_U68_what_is_something_else),
        cmocka_unit_test(U67_U68_permits_that_are_taken),
        cmocka_unit_test(a_forked_child_is_refused),
        cmocka_unit_test(U23_scripts_flushed_between_calls),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(closed_while_it_waits),
        cmocka_unit_test(names_on_the_wire),
        cmocka_unit_test(every_operation_can_be_started),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
