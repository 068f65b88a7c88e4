/*
 * The count-down latch, as its callers see it: what Redisson's own tests ask of it (the C rows),
 * generations, what its wire must be, and the rules of every call. Faults of the network are in
 * test_latch_faults.c.
 *
 * Waits that are to end are waits for ever, with the test's own limit. Where a message must have
 * ended a wait, it has to end before the poll, which comes after ten seconds.
 */
#include "support/crowd.h"
#include "sync/objects.h"

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

OBJECTS_CASE(C188_await_is_over_in_time) {
    struct world_caller waiter;
    set(w->latch, 1);
    world_call_latch(&waiter, w->latch, HANG_MS, NULL);
    assert_true(object_wait_latch(w, 2, 1));
    assert_false(atomic_load(&waiter.done));
    assert_int_equal(hf_latch_count_down(w->rival_latch), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < POLL_MS);
    assert_count(w->latch, 0);
    assert_true(object_wait_no_channels(HANG_MS));
}

ROW_CASES_IN(C189_await_times_out, form, object_forms, struct world, w, objects_begin, world_end,
             NULL) {
    set(w->latch, 1);
    int64_t start_ms = now_ms();
    assert_int_equal(form->await(w, PASSING_MS), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= PASSING_MS);
    assert_int_equal(form->await(w, 0), HF_EBUSY);
    assert_count(w->latch, 1);
    hf_stats stats = world_stats(w->client);
    assert_int_equal(stats.timed_out, 2);
    assert_int_equal(stats.acquired, 0);
    assert_int_equal(stats.in_doubt, 0);
}

static void count_callback(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    if (result->code == HF_OK)
        atomic_fetch_add((atomic_int *)user, 1);
}

static bool are_five(void *arg) {
    return atomic_load((atomic_int *)arg) == 5;
}

CASE(C190_C197_all_waiters_are_notified_once) {
    struct world w;
    atomic_int done = 0;
    objects_begin(&w, NULL);
    set(w.latch, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(hf_latch_await_start(w.latch, NULL, count_callback, &done, NULL), HF_OK);
    assert_true(object_wait_latch(&w, 10, 5));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(atomic_load(&done), 0);
        assert_int_equal(hf_latch_count_down(w.rival_latch), HF_OK);
    }
    assert_true(wait_until(are_five, &done, POLL_MS - 1000));
    assert_count(w.latch, 0);
    world_end(&w);
    assert_int_equal(atomic_load(&done), 5);
}

ROW_CASES_IN(C191_count_down, form, object_forms, struct world, w, objects_begin, world_end, NULL) {
    assert_int_equal(form->await(w, HF_FOREVER), HF_OK); /* never set: open */
    assert_int_equal(form->count_down(w), HF_OK);
    assert_int_equal(server_things(w->server), 0);
    set(w->latch, 2);
    assert_int_equal(form->count_down(w), HF_OK);
    assert_count(w->latch, 1);
    assert_int_equal(form->count_down(w), HF_OK);
    assert_count(w->latch, 0);
    assert_int_equal(form->await(w, HF_FOREVER), HF_OK);
    assert_int_equal(form->count_down(w), HF_OK);
    assert_count(w->latch, 0);
    assert_int_equal(form->await(w, 0), HF_OK);
    server_drop(w->server, LATCH_PROOF);
    assert_int_equal(server_things(w->server), 0);
}

OBJECTS_CASE(C192_C193_delete) {
    bool deleted = false;
    set(w->latch, 1);
    assert_int_equal(hf_latch_delete(w->latch, &deleted), HF_OK);
    assert_true(deleted);
    assert_int_equal(hf_latch_delete(w->latch, &deleted), HF_OK);
    assert_false(deleted);
}

OBJECTS_CASE(C194_C195_set_and_count) {
    bool was_set = true;
    assert_count(w->latch, 0);
    set(w->latch, 1);
    assert_int_equal(hf_latch_try_set(w->latch, 2, &was_set), HF_OK);
    assert_false(was_set);
    assert_count(w->latch, 1);
}

CASE(the_largest_count_and_negative_ones) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "numbers are of 32 bits there");
    objects_begin(&w, NULL);
    /* What an older client has left of a count is an open latch. */
    cmd_ok(w.server, "SET " LATCH_NAME " -1");
    assert_count(w.latch, 0);
    assert_int_equal(hf_latch_await(w.latch), HF_OK);
    set(w.latch, ((int64_t)1 << 53) - 1);
    assert_count(w.latch, ((int64_t)1 << 53) - 1);
}

enum { EACH = 6 };

struct pairs {
    struct crowd crowd;
    hf_client *client;
    atomic_int counter;
};

static void *await(void *arg) {
    struct pairs *pairs = arg;
    own_latch *latch = object_latch(pairs->client);
    int64_t count = -1;
    crowd_expect(&pairs->crowd, hf_latch_await_for(latch, HANG_MS) == HF_OK);
    crowd_expect(&pairs->crowd, hf_latch_count(latch, &count) == HF_OK && count == 0);
    crowd_expect(&pairs->crowd, atomic_load(&pairs->counter) == EACH);
    return NULL;
}

static void *count_down(void *arg) {
    struct pairs *pairs = arg;
    own_latch *latch = object_latch(pairs->client);
    atomic_fetch_add(&pairs->counter, 1);
    crowd_expect(&pairs->crowd, hf_latch_count_down(latch) == HF_OK);
    return NULL;
}

OBJECTS_CASE(C196_as_many_waiters_as_counters) {
    struct pairs pairs = {.client = w->client};
    set(w->rival_latch, EACH);
    for (int i = 0; i < 2 * EACH; i++)
        crowd_add(&pairs.crowd, i % 2 == 0 ? await : count_down, &pairs);
    crowd_join(&pairs.crowd);
    assert_int_equal(atomic_load(&pairs.crowd.failures), 0);
}

/* ---- Deleted, generations ---- */

OBJECTS_CASE(U79_deleted_under_waiters) {
    struct world_caller waiter[3];
    set(w->latch, 3);
    for (int i = 0; i < 3; i++)
        world_call_latch(&waiter[i], w->latch, HF_FOREVER, NULL);
    assert_true(object_wait_latch(w, 6, 3));
    assert_int_equal(hf_latch_delete(w->rival_latch, NULL), HF_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(world_join(&waiter[i]), HF_OK);
        assert_true(waiter[i].took_ms < POLL_MS);
    }
}

/* As Redisson deletes: its message says "closed anew". */
CASE(U79_deleted_by_java_under_waiters) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "the message is Redisson's");
    struct world_caller waiter;
    objects_begin(&w, NULL);
    set(w.latch, 3);
    world_call_latch(&waiter, w.latch, HF_FOREVER, NULL);
    assert_true(object_wait_latch(&w, 2, 1));
    cmd_ok(w.server, "MULTI");
    cmd_ok(w.server, "DEL " LATCH_NAME);
    cmd_ok(w.server, "PUBLISH " LATCH_CHANNEL " 1");
    cmd_ok(w.server, "EXEC");
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < POLL_MS);
}

/* All waits end with the generation they waited for, though none can look before the next
 * has begun: the client that opens or closes the latch with this library leaves a proof. */
ROW_CASES(not_trapped_by_the_next_generation, form, object_forms) {
    server_redis_only(world_server(), "it is made of scripts");
    enum { WAITERS = 4 };
    static const enum object_hand hands[][2] = {
        {LATCH_OURS, LATCH_OURS}, {LATCH_OURS, LATCH_JAVAS}, {LATCH_JAVAS, LATCH_OURS}};
    for (size_t hand = 0; hand < sizeof hands / sizeof *hands; hand++) {
        struct world w;
        struct world_caller waiters[WAITERS];
        objects_begin(&w, NULL);
        set(w.latch, 1);
        for (int i = 0; i < WAITERS; i++)
            world_call_latch(&waiters[i], w.latch, HF_FOREVER, NULL);
        assert_true(object_wait_asleep(&w, LATCH_LOOK, (size_t)2 * WAITERS, HANG_MS));
        assert_int_equal(form->await(&w, PASSING_MS), HF_ETIMEDOUT);
        object_next_generation(hands[hand][0], hands[hand][1], 1);
        for (int i = 0; i < WAITERS; i++) {
            assert_int_equal(world_join(&waiters[i]), HF_OK);
            assert_true(waiters[i].took_ms < POLL_MS);
        }
        assert_count(w.latch, 1);
        assert_int_equal(form->await(&w, 0), HF_EBUSY); /* who comes now waits for the next one */
        assert_true(pttl(w.server, LATCH_PROOF) > 0);   /* nothing stays for ever */
        world_end(&w);
    }
}

/* Java opens it and closes it again at once, and leaves no proof: it waits for the next time, as
 * Java's own waiters do; unless the new count is larger than the one it saw. */
CASE(java_opens_and_closes_at_once) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "it is made of keys and messages");
    struct world_caller waiter;
    objects_begin(&w, NULL);
    set(w.latch, 2);
    world_call_latch(&waiter, w.latch, HF_FOREVER, NULL);
    assert_true(object_wait_latch(&w, 2, 1));
    object_next_generation(LATCH_JAVAS, LATCH_JAVAS, 2);
    assert_true(object_wait_asleep(&w, LATCH_LOOK, 3, HANG_MS));
    assert_true(HOLDS_FOR(!atomic_load(&waiter.done), 100));
    object_next_generation(LATCH_JAVAS, LATCH_JAVAS, 3);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < POLL_MS);
}

/* All databases share channels, and any client can publish: a message is only a reason to poll. */
CASE(a_message_opens_nothing) {
    server_redis_only(world_server(), "messages and databases");
    static const char *const words[] = {"0", "1", "abc", "newCount", ""};
    enum { WORDS = sizeof words / sizeof *words };
    FOR_EACH_FORM(form) {
        struct world w;
        struct world_caller waiter;
        hf_client *elsewhere = NULL;
        char url[256];
        objects_begin(&w, NULL);
        set(w.latch, 1);
        world_call_latch(&waiter, w.latch, HF_FOREVER, NULL);
        assert_true(object_wait_latch(&w, 2, 1));
        for (int i = 0; i < WORDS; i++) {
            cmd_ok(w.server, "PUBLISH " LATCH_CHANNEL " %s", words[i]);
            assert_true(object_wait_asleep(&w, LATCH_LOOK, 3 + (size_t)i, HANG_MS));
        }
        snprintf(url, sizeof url, "%s?db=1", server_url(w.server));
        assert_int_equal(hf_open(url, NULL, &elsewhere), HF_OK);
        hf_latch *namesake = object_latch(elsewhere);
        set(namesake, 1);
        assert_int_equal(hf_latch_count_down(namesake), HF_OK);
        /* two messages, which may be one reason to look */
        assert_true(object_wait_asleep(&w, LATCH_LOOK, 2 + WORDS + 1, HANG_MS));
        assert_int_equal(form->await(&w, PASSING_MS), HF_ETIMEDOUT);
        assert_false(atomic_load(&waiter.done));
        assert_int_equal(form->count_down(&w), HF_OK);
        assert_int_equal(world_join(&waiter), HF_OK);
        assert_true(waiter.took_ms < POLL_MS);
        hf_latch_free(namesake);
        assert_int_equal(hf_close(elsewhere), HF_OK);
        world_end(&w);
    }
}

/* What version 0.1 asked to be granted for latches is enough, for the proof as well. */
CASE(the_access_list_of_0_1_is_enough) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "an access list of Redis");
    struct world_caller waiter;
    hf_client *client = NULL;
    hf_latch *latch = NULL;
    hf_options options = world_options();
    objects_begin(&w, NULL);
    cmd_ok(w.server, "ACL SETUSER locks on >secret resetchannels ~app:* "
                     "&redisson_lock__channel:{app:* +eval +evalsha +time +exists +hexists +hmget "
                     "+hset +pttl +pexpire +del +publish +subscribe +unsubscribe +ping +hget "
                     "+hgetall +type +select +client|setname +client|list +info "
                     "~{app:* &redisson_countdownlatch__channel__{app:* +get +set +decr");
    options.user = "locks";
    options.password = "secret";
    assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_OK);
    assert_int_equal(hf_latch_new_bytes(client, "app:ready", 9, &latch), HF_OK);
    set(latch, 1);
    world_call_latch(&waiter, latch, HF_FOREVER, NULL);
    assert_true(WAIT_FOR(
        cmd_int(w.server, "EVAL %s 0", "return #redis.call('pubsub', 'channels')") != 0, HANG_MS));
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_true(key_exists(w.server, "{app:ready}:holdfast_latch"));
    set(latch, 1);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < POLL_MS);
    assert_int_equal(hf_latch_delete(latch, NULL), HF_OK);
    hf_latch_free(latch);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(w.server, "ACL DELUSER locks");
}

/* A message of the generation before arrives late, when the next is closed and somebody waits for
 * that: it must not end that wait. The wait that began before ends by the same message. */
CASE(an_old_message_opens_nothing) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "messages that are late");
    struct world_caller old, new;
    objects_begin(&w, NULL);
    set(w.latch, 1);
    world_call_latch(&old, w.latch, HF_FOREVER, NULL);
    assert_true(object_wait_latch(&w, 2, 1));
    assert_int_equal(proxy_freeze_connections(w.proxy, WORLD_SUBSCRIBE), 1);
    object_next_generation(LATCH_OURS, LATCH_OURS, 1);
    world_call_latch(&new, w.latch, HF_FOREVER, NULL);
    assert_true(object_wait_asleep(&w, LATCH_LOOK, 4, HANG_MS));
    assert_false(atomic_load(&old.done));
    proxy_heal(w.proxy);
    assert_int_equal(world_join(&old), HF_OK);
    assert_true(old.took_ms < POLL_MS);
    /* It was notified, too, has looked, and waits on. */
    assert_true(object_wait_asleep(&w, LATCH_LOOK, 6, HANG_MS));
    assert_true(HOLDS_FOR(!atomic_load(&new.done), 100));
    assert_int_equal(hf_latch_count_down(w.rival_latch), HF_OK);
    assert_int_equal(world_join(&new), HF_OK);
    assert_true(new.took_ms < POLL_MS);
}

/* ---- The rules of every call ---- */

OBJECTS_CASE(zero_and_negative_counts_are_refused) {
    hf_latch *latch = NULL;
    hf_op *op = NULL;
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    assert_int_equal(hf_latch_try_set(w->latch, 0, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_try_set(w->latch, -1, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_try_set(w->latch, (int64_t)1 << 53, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_try_set_start(w->latch, 0, NULL, NULL, &op), HF_EINVAL);
    assert_int_equal(hf_last_error()->code, HF_EINVAL);
    assert_int_equal(hf_latch_new_bytes(NULL, "x", 1, &latch), HF_EINVAL);
    assert_int_equal(hf_latch_new_bytes(w->client, "", 0, &latch), HF_EINVAL);
    assert_int_equal(hf_latch_new_bytes(w->client, "x", 1, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_try_set(NULL, 1, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_count_down(NULL), HF_EINVAL);
    assert_int_equal(hf_latch_count(NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_delete(NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_latch_await(NULL), HF_EINVAL);
    assert_int_equal(hf_latch_await_for(w->latch, -2), HF_EINVAL);
    options.size = 1;
    assert_int_equal(hf_latch_await_with(w->latch, &options), HF_EINVAL);
    hf_latch_free(NULL);
    assert_int_equal(server_things(w->server), 0);
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

CASE(U67_U68_other_keys_are_refused) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "other types of keys");
    own_lock *lock = NULL;
    objects_begin(&w, NULL);
    cmd_ok(w.server, "RPUSH " LATCH_NAME " 1");
    every_call_refuses(w.latch, HF_EWRONGTYPE);
    cmd_ok(w.server, "SET " LATCH_NAME " many");
    every_call_refuses(w.latch, HF_EWRONGTYPE);
    cmd_ok(w.server, "DEL " LATCH_NAME);
    assert_int_equal(hf_lock_new(w.client, LATCH_NAME, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    every_call_refuses(w.latch, HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* Permits with leases are seen while any are taken, and as long as something of them is left. */
CASE(U67_U68_permits_that_are_taken) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "keys of permits beside the key of a latch");
    own_permits *permits = NULL;
    hf_permit_id id;
    bool done;
    objects_begin(&w, NULL);
    assert_int_equal(hf_permits_new_bytes(w.client, LATCH_NAME, strlen(LATCH_NAME), &permits),
                     HF_OK);
    assert_int_equal(hf_permits_set(permits, 2), HF_OK);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    every_change_refuses(w.latch, HF_EWRONGTYPE);
    assert_non_null(strstr(hf_last_error()->text, "are taken under this name"));
    assert_int_equal(object_number(LATCH_NAME), 1);
    cmd_ok(w.server, "DEL " LATCH_NAME);
    every_change_refuses(w.latch, HF_EWRONGTYPE);
    assert_non_null(strstr(hf_last_error()->text, "delete them first"));
    assert_int_equal(hf_permits_delete(permits, &done), HF_OK);
    assert_true(done);
    assert_int_equal(hf_latch_try_set(w.latch, 1, &done), HF_OK);
    assert_true(done);
}

static int child_of_fork(void *arg) {
    struct world *w = arg;
    int64_t count;
    if (hf_latch_await(w->latch) != HF_EFORKED || hf_latch_count_down(w->latch) != HF_EFORKED ||
        hf_latch_count(w->latch, &count) != HF_EFORKED)
        return 1;
    hf_latch_free(w->latch);
    hf_close(w->client);
    return 0;
}

OBJECTS_CASE(a_forked_child_is_refused) {
    set(w->latch, 1);
    assert_true(expect_exit(run_child(child_of_fork, w), 0, HANG_MS));
    assert_int_equal(hf_latch_count_down(w->latch), HF_OK);
    assert_int_equal(hf_latch_await(w->latch), HF_OK);
}

CASE(U23_scripts_flushed_between_calls) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "scripts");
    objects_begin(&w, NULL);
    cmd_ok(w.server, "SCRIPT FLUSH");
    set(w.latch, 3);
    FOR_EACH_FORM(form) {
        cmd_ok(w.server, "SCRIPT FLUSH");
        assert_int_equal(form->count_down(&w), HF_OK);
    }
    assert_count(w.latch, 1);
    cmd_ok(w.server, "SCRIPT FLUSH");
    bool deleted = false;
    assert_int_equal(hf_latch_delete(w.latch, &deleted), HF_OK);
    assert_true(deleted);
}

OBJECTS_CASE(cancelled) {
    struct world_caller waiter;
    own_cancel *cancel = NULL;
    hf_op *op = NULL;
    set(w->latch, 1);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    world_call_latch(&waiter, w->latch, HF_FOREVER, cancel);
    assert_true(object_wait_latch(w, 2, 1));
    hf_cancel_fire(cancel);
    assert_int_equal(world_join(&waiter), HF_ECANCELED);
    assert_int_equal(hf_latch_await_start(w->latch, NULL, NULL, NULL, &op), HF_OK);
    hf_op_cancel(op);
    assert_int_equal(world_wait_op(HF_OK, op, NULL), HF_ECANCELED);
    assert_int_equal(world_stats(w->client).cancelled, 2);
    assert_int_equal(world_stats(w->client).in_doubt, 0);
    assert_true(object_wait_no_channels(HANG_MS));
    assert_count(w->latch, 1);
}

OBJECTS_CASE(closed_while_it_waits) {
    struct world_caller waiter;
    set(w->latch, 1);
    world_call_latch(&waiter, w->latch, HF_FOREVER, NULL);
    assert_true(object_wait_latch(w, 2, 1));
    assert_int_equal(hf_close(w->client), HF_OK);
    assert_int_equal(world_join(&waiter), HF_ECLOSED);
    w->client = NULL;
}

/* The names are Redisson's: the channel always has braces of its own. */
CASE(names_on_the_wire) {
    server_redis_only(world_server(), "names of keys and channels");
    static const struct {
        const char *prefix, *name, *key, *channel;
    } names[] = {
        {NULL, "a", "a", "redisson_countdownlatch__channel__{a}"},
        {NULL, "a{b}c", "a{b}c", "redisson_countdownlatch__channel__{a{b}c}"},
        {"app:", "a", "app:a", "redisson_countdownlatch__channel__{app:a}"},
    };
    struct server *server = world_server();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hf_options options = world_options();
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

OBJECTS_CASE(every_operation_can_be_started) {
    hf_op *op = NULL;
    hf_result r = HF_RESULT_INIT;
    int err = hf_latch_try_set_start(w->latch, 2, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &r), HF_OK);
    assert_int_equal(r.value, 1);
    err = hf_latch_try_set_start(w->latch, 2, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &r), HF_OK);
    assert_int_equal(r.value, 0);
    err = hf_latch_count_down_start(w->latch, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &r), HF_OK);
    err = hf_latch_count_start(w->latch, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &r), HF_OK);
    assert_int_equal(r.value, 1);
    hf_op *await = NULL;
    assert_int_equal(hf_latch_await_start(w->latch, NULL, NULL, NULL, &await), HF_OK);
    err = hf_latch_delete_start(w->latch, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &r), HF_OK);
    assert_int_equal(r.value, 1);
    assert_int_equal(world_wait_op(HF_OK, await, &r), HF_OK);
}

RUN_CASES(world_start_server, world_stop_server)
