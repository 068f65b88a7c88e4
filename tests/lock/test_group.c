/*
 * Some values of a group as one lock: rows C117 to C140, and what is different from Redisson on
 * purpose. What the scripts do is in tests/scripts; here it is seen through the library.
 */
#include "lock/group.h"

static const char *const both[] = {"jack", "mary"};

static void assert_counts(struct world *w, long long count) {
    for (size_t i = 0; i < 2; i++) {
        assert_true(group_held_by(w->server, both[i], w->owner));
        assert_int_equal(group_number(w->server, both[i], w->owner, "lock_count"), count);
    }
}

/* ---- The wire ---- */

GROUP_CASE(C117_two_values_of_a_group) {
    hf_acquire_options leased = world_wait_for(HF_FOREVER, 30000);
    long long before_ms = group_now_ms(w->server);
    assert_int_equal(hf_lock_acquire_with(w->lock, &leased, NULL), HF_OK);
    long long after_ms = group_now_ms(w->server);
    assert_counts(w, 1);
    assert_int_equal(cmd_int(w->server, "HLEN " WORLD_NAME), 6);
    for (size_t i = 0; i < 2; i++)
        assert_in_range(group_number(w->server, both[i], w->owner, "expire_time"),
                        before_ms + 30000, after_ms + 30000);
    assert_in_range(pttl(w->server, WORLD_NAME), 20000, 30100); /* a little longer than a lease */
    assert_int_equal(world_keys(w->server), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

GROUP_CASE(C118_C137_the_same_values_nest) {
    own_lock *second = new_values(w->client, "mary jack mary jack");
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(second), HF_OK);
    assert_counts(w, 2);
    assert_int_equal(world_stats(w->client).holds, 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_counts(w, 1);
    assert_int_equal(hf_lock_try(w->rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(second), HF_OK);
    assert_true(world_free(w));
}

GROUP_CASE(C119_break) {
    bool broken = false;
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_break(w->rival_lock, &broken), HF_OK);
    assert_true(broken);
    assert_true(world_free(w));
    assert_int_equal(hf_lock_break(w->rival_lock, &broken), HF_OK);
    assert_false(broken);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
}

/* ---- Questions ---- */

GROUP_CASE(C121_C123_C132_C133_C134_C135_C136_queries) {
    bool yes = true;
    int64_t number = -1;
    own_lock *more = new_values(w->client, "jack mary paul");
    assert_int_equal(hf_lock_is_locked(w->lock, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_ttl_ms(w->lock, &number), HF_OK);
    assert_int_equal(number, -2);

    assert_int_equal(hf_lock_try(w->lock), HF_OK);
    assert_int_equal(hf_lock_is_locked(w->rival_lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_is_mine(w->lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_is_mine(w->rival_lock, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_is_mine_as(w->lock, 77, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_hold_count(w->lock, &number), HF_OK);
    assert_int_equal(number, 1);
    assert_int_equal(hf_lock_ttl_ms(w->rival_lock, &number), HF_OK);
    assert_in_range(number, 50000, 60000);
    assert_int_equal(hf_lock_is_locked(more, &yes), HF_OK); /* some of it is */
    assert_true(yes);
    assert_int_equal(hf_lock_is_mine(more, &yes), HF_OK); /* but not all */
    assert_false(yes);

    assert_int_equal(world_acquire_async(w->lock, 999, 0, NULL), HF_EBUSY);
    assert_int_equal(hf_lock_try(w->rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(w->lock, 999), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_is_locked(w->lock, &yes), HF_OK);
    assert_false(yes);
}

GROUP_CASE(the_handle_describes_itself) {
    size_t len = 0;
    int64_t token;
    hf_lock_info *info;
    assert_string_equal(hf_lock_name(w->lock, &len), WORLD_NAME);
    assert_int_equal(len, strlen(WORLD_NAME));
    assert_int_equal(hf_lock_token(w->lock, &token), HF_ENOTSUP);
    assert_int_equal(hf_lock_inspect(w->lock, &info), HF_ENOTSUP);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_in_range(hf_lock_remaining_ms(w->lock), 50000, 60000);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* ---- Values ---- */

GROUP_CASE(any_bytes_are_a_value) {
    static const hf_bytes odd[] = {{NULL, 0}, {"\0\0", 2}, {"\xff\xfe", 2}, {"", 0}};
    char owner[64];
    own_lock *lock = made(hf_lock_new_group, w->client, WORLD_NAME, strlen(WORLD_NAME), odd, 4);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(cmd_int(w->server, "HLEN " WORLD_NAME), 9); /* nothing is one value */
    group_holder(w->server, "", owner);
    assert_string_equal(owner, w->owner);
    assert_int_equal(hf_lock_try(w->rival_lock), HF_OK); /* other values */
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(world_free(w));
}

CASE(other_keys_are_no_group) {
    OWN(world_end) struct world w;
    static hf_bytes many[HF_GROUP_VALUES_MAX + 1];
    static const hf_bytes nowhere = {NULL, 1};
    hf_lock *lock = NULL;
    own_text *long_name = calloc(1, 65536);
    group_begin(&w, NULL);
    assert_int_equal(hf_lock_new_group(NULL, "g", 1, many, 1, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, NULL, 1, many, 1, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, "g", 0, many, 1, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, "g", 1, NULL, 1, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, "g", 1, many, 0, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, "g", 1, many, HF_GROUP_VALUES_MAX + 1, &lock),
                     HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "1000"));
    assert_int_equal(hf_lock_new_group(w.client, "g", 1, &nowhere, 1, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, "g", 1, many, 1, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, long_name, 65536, many, 1, &lock), HF_EINVAL);
    assert_null(lock);
}

GROUP_CASE(as_many_values_as_there_may_be) {
    static char text[HF_GROUP_VALUES_MAX][8];
    static hf_bytes many[HF_GROUP_VALUES_MAX];
    for (int i = 0; i < HF_GROUP_VALUES_MAX; i++)
        many[i] = (hf_bytes){text[i], (size_t)snprintf(text[i], sizeof text[i], "v%d", i)};
    own_lock *lock = made(hf_lock_new_group, w->client, WORLD_NAME, strlen(WORLD_NAME), many,
                          HF_GROUP_VALUES_MAX);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(cmd_int(w->server, "HLEN " WORLD_NAME), 3 * HF_GROUP_VALUES_MAX);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_extend(lock, 90000), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(world_free(w));
}

/* The group's name has a prefix, and braces of its own. */
GROUP_CASE(names_of_groups) {
    hf_options options = world_options();
    static const hf_bytes value = {"jack", 4};
    options.name_prefix = "app:";
    own_client *client = made(hf_open, server_url(w->server), &options);
    own_lock *lock = made(hf_lock_new_group, client, "a{b}", 4, &value, 1);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(key_exists(w->server, "app:a{b}"));
    assert_int_equal(world_keys(w->server), 1);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

GROUP_CASE(other_kinds_under_the_name) {
    own_lock *plain = made(hf_lock_new, w->rival, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(plain), HF_OK);
    assert_int_equal(hf_lock_try(w->lock), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(plain), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_try(plain), HF_EBUSY);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    cmd_ok(w->server, "SET " WORLD_NAME " text");
    assert_int_equal(hf_lock_try(w->lock), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_break(w->lock, NULL), HF_EWRONGTYPE);
}

/* ---- Sets that have something in common ---- */

GROUP_CASE(of_others_they_exclude_each_other) {
    hf_lock *beside = new_values(w->rival, "paul"), *across = new_values(w->rival, "mary paul");
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_try(across), HF_EBUSY);
    assert_true(group_held_by(w->server, "paul", "")); /* all or nothing */
    assert_int_equal(hf_lock_try(beside), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(group_held_by(w->server, "paul", w->rival_owner));
    assert_int_equal(hf_lock_release(beside), HF_OK);
    assert_int_equal(hf_lock_try(across), HF_OK);
    assert_int_equal(hf_lock_release(across), HF_OK);
    hf_lock_free(beside);
    hf_lock_free(across);
}

GROUP_CASE(of_one_owner_the_second_is_refused_at_once) {
    hf_lock *across = new_values(w->client, "mary paul"), *beside = new_values(w->client, "paul");
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    uint64_t sent = world_stats(w->client).commands;
    assert_int_equal(hf_lock_acquire(across), HF_EDEADLK);
    assert_int_equal(hf_lock_try(across), HF_EDEADLK);
    assert_int_equal(world_stats(w->client).commands, sent);
    assert_int_equal(world_acquire_async(across, 7, 0, NULL), HF_EBUSY); /* another owner */
    assert_int_equal(hf_lock_acquire(beside), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK); /* the same set nests */
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(across), HF_EDEADLK);
    assert_int_equal(hf_lock_release(beside), HF_OK);
    assert_int_equal(hf_lock_acquire(across), HF_OK);
    assert_int_equal(hf_lock_release(across), HF_OK);
    assert_true(world_free(w));
    hf_lock_free(across);
    hf_lock_free(beside);
}

/* The first of them still waits: the second would be in its way. */
CASE(of_one_owner_while_the_first_waits) {
    OWN(world_end) struct world w;
    own_op *first;
    hf_acquire_options options = world_wait_as(7, HF_FOREVER, HF_WATCHDOG);
    group_begin(&w, NULL);
    own_lock *across = new_values(w.client, "mary paul");
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    size_t seen = proxy_seen(w.proxy, GROUP_ACQUIRE);
    assert_int_equal(hf_lock_acquire_start(w.lock, &options, NULL, NULL, &first), HF_OK);
    assert_true(proxy_wait_seen(w.proxy, GROUP_ACQUIRE, seen + 1, HANG_MS));
    assert_int_equal(world_acquire_async(across, 7, HF_FOREVER, NULL), HF_EDEADLK);
    hf_op_cancel(first);
    assert_int_equal(hf_op_wait(first, HANG_MS, NULL), HF_ECANCELED);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(world_acquire_async(across, 7, HANG_MS, NULL), HF_OK);
    assert_int_equal(world_release_async(across, 7, NULL), HF_OK);
}

/* Many at once: one is granted, the others are refused, and nothing stays. */
CASE(of_one_owner_started_together) {
    OWN(world_end) struct world w;
    enum { MANY = 12 };
    hf_lock *locks[MANY];
    hf_op *ops[MANY];
    hf_acquire_options options = world_wait_as(7, HANG_MS, 60000);
    group_begin(&w, NULL);
    for (int round = 0; round < 20; round++) {
        int granted = 0;
        for (int i = 0; i < MANY; i++) {
            own_text *text = text_of("mary v%d", i);
            locks[i] = new_values(w.client, text);
            assert_int_equal(hf_lock_acquire_start(locks[i], &options, NULL, NULL, &ops[i]), HF_OK);
        }
        for (int i = 0; i < MANY; i++) {
            int err = hf_op_wait(ops[i], HANG_MS, NULL);
            assert_true(err == HF_OK || err == HF_EDEADLK);
            granted += err == HF_OK;
            if (err == HF_OK)
                assert_int_equal(cmd_int(w.server, "HLEN " WORLD_NAME), 6);
        }
        assert_int_equal(granted, 1);
        for (int i = 0; i < MANY; i++) {
            hf_lock_release_as(locks[i], 7);
            hf_op_free(ops[i]);
            hf_lock_free(locks[i]);
        }
        assert_true(world_free(&w));
    }
}

/* ---- Waiting ---- */

GROUP_CASE_WITH(a_release_wakes_all_waiters_of_the_group, world_options(),
                options.watchdog_ms = 600000) {
    struct world_caller jack, mary;
    hf_lock *for_jack = new_values(w->client, "jack"), *for_mary = new_values(w->client, "mary");
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    size_t seen = proxy_seen(w->proxy, GROUP_ACQUIRE);
    world_call_acquire(&jack, for_jack, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    world_call_acquire(&mary, for_mary, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w->proxy, GROUP_ACQUIRE, seen + 4, HANG_MS));
    assert_true(HOLDS_FOR(!atomic_load(&jack.done) && !atomic_load(&mary.done), 100));
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&jack), HF_OK);
    assert_int_equal(world_join(&mary), HF_OK);
    assert_true(now_ms() - start_ms < 5000); /* nobody polled */
    assert_int_equal(hf_lock_release_as(for_jack, jack.owner), HF_OK);
    assert_int_equal(hf_lock_release_as(for_mary, mary.owner), HF_OK);
    hf_lock_free(for_jack);
    hf_lock_free(for_mary);
    assert_true(world_wait_no_channels(w->server, HANG_MS));
}

/* Somebody else keeps the group's key; what ended in it is free all the same, and left nothing. */
GROUP_CASE(a_lease_that_ends_in_a_busy_group) {
    hf_acquire_options brief = world_wait_for(HF_FOREVER, 400);
    own_lock *beside = new_values(w->client, "paul");
    assert_int_equal(hf_lock_acquire(beside), HF_OK);
    int64_t start_ms = now_ms();
    world_acquire_brief(w->lock, &brief);
    assert_int_equal(hf_lock_acquire_for(w->rival_lock, HANG_MS), HF_OK);
    assert_in_range(now_ms() - start_ms, 399,
                    9000); /* by the lease: the next poll would be after 10 s */
    assert_true(group_held_by(w->server, "jack", w->rival_owner));
    assert_int_equal(cmd_int(w->server, "HLEN " WORLD_NAME), 9);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_true(group_held_by(w->server, "jack", w->rival_owner));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(beside), HF_OK);
    assert_true(world_free(w));
}

GROUP_CASE(a_timed_wait_ends) {
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_for(w->lock, 300), HF_ETIMEDOUT);
    assert_in_range(now_ms() - start_ms, 300, 5000);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    /* Its last attempt may have been on its way, and is undone then. */
    assert_true(world_wait_free(w, HANG_MS));
}

static bool two_channels(void *server) {
    return world_channels(server) >= 2;
}

GROUP_CASE(C125_two_groups_on_one_subscription_connection) {
    const hf_bytes jack = {.bytes = "jack", .len = 4};
    const char *const groups[] = {WORLD_NAME, "other"};
    struct world_caller callers[2];
    hf_lock *ours[2], *theirs[2];
    for (int i = 0; i < 2; i++) {
        size_t len = strlen(groups[i]);
        assert_int_equal(hf_lock_new_group(w->client, groups[i], len, &jack, 1, &ours[i]), HF_OK);
        assert_int_equal(hf_lock_new_group(w->rival, groups[i], len, &jack, 1, &theirs[i]), HF_OK);
        assert_int_equal(hf_lock_acquire(theirs[i]), HF_OK);
        world_call_acquire(&callers[i], ours[i], world_wait_for(HANG_MS, HF_WATCHDOG));
    }
    assert_true(wait_until(two_channels, w->server, HANG_MS));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_lock_release(theirs[i]), HF_OK);
        assert_int_equal(world_join(&callers[i]), HF_OK);
        assert_int_equal(hf_lock_release_as(ours[i], callers[i].owner), HF_OK);
        hf_lock_free(ours[i]);
        hf_lock_free(theirs[i]);
    }
    assert_int_equal(world_keys(w->server), 0);
    assert_true(world_wait_no_channels(w->server, HANG_MS));
}

GROUP_CASE(C126_a_cancelled_try_leaves_nothing) {
    struct world_caller caller;
    own_cancel *cancel;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    proxy_stall_request(w->proxy, GROUP_ACQUIRE);
    hf_acquire_options once = world_wait_for(0, HF_WATCHDOG);
    once.cancel = cancel;
    world_call_acquire(&caller, w->lock, once);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    hf_cancel_fire(cancel);
    assert_int_equal(world_join(&caller), HF_ECANCELED);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(world_stats(w->client).holds, 0); /* so nothing is renewed */
    assert_int_equal(hf_lock_try(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

CASE(C127_a_stopped_server_is_an_error_not_a_refusal) {
    OWN(world_end) struct world w;
    const int64_t waits_ms[] = {0, 300, HF_FOREVER};
    own_server *server = server_start(NULL);
    hf_options options = world_options();
    options.connect_timeout_ms = 2500;
    world_begin_on(&w, server, &options);
    own_lock *values = new_values(w.client, "jack mary");
    server_stop(server);
    for (size_t i = 0; i < sizeof waits_ms / sizeof *waits_ms; i++)
        assert_int_equal(hf_lock_acquire_for(values, waits_ms[i]), HF_EUNREACH);
}

/* ---- Many ---- */

struct worker {
    pthread_t thread;
    hf_client *client;
    int number;
    atomic_int *in_value; /* how many are at each value */
    atomic_int *entered;
};

enum { VALUES = 4, WORKERS = 8, ROUNDS = 60 };

/* Takes one or two neighbouring values, and looks whether it is alone with each. */
static void *work(void *arg) {
    struct worker *worker = arg;
    for (int i = 0; i < ROUNDS; i++) {
        int first = (worker->number + i) % VALUES, second = (first + i % 2) % VALUES;
        own_text *text = text_of("v%d v%d", first, second);
        own_lock *lock = new_values(worker->client, text);
        assert_int_equal(hf_lock_acquire_for(lock, HANG_MS), HF_OK);
        assert_int_equal(atomic_fetch_add(&worker->in_value[first], 1), 0);
        if (second != first)
            assert_int_equal(atomic_fetch_add(&worker->in_value[second], 1), 0);
        atomic_fetch_add(worker->entered, 1);
        atomic_fetch_sub(&worker->in_value[first], 1);
        if (second != first)
            atomic_fetch_sub(&worker->in_value[second], 1);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    return NULL;
}

GROUP_CASE(C124_C138_C139_C140_overlapping_values_from_many_threads) {
    struct worker workers[WORKERS];
    atomic_int in_value[VALUES] = {0}, entered = 0;
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.client = i % 2 != 0 ? w->client : w->rival,
                                     .number = i,
                                     .in_value = in_value,
                                     .entered = &entered};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    assert_int_equal(atomic_load(&entered), WORKERS * ROUNDS);
    assert_true(world_free(w));
    assert_true(world_wait_no_channels(w->server, HANG_MS));
}

RUN_CASES(world_start_server, world_stop_server)
