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

static void C117_two_values_of_a_group(void **state) {
    (void)state;
    struct world w;
    group_begin(&w, NULL);
    hf_acquire_options leased = world_wait_for(HF_FOREVER, 30000);
    long long before_ms = group_now_ms(w.server);
    assert_int_equal(hf_lock_acquire_with(w.lock, &leased, NULL), HF_OK);
    long long after_ms = group_now_ms(w.server);
    assert_counts(&w, 1);
    assert_int_equal(cmd_int(w.server, "HLEN " WORLD_NAME), 6);
    for (size_t i = 0; i < 2; i++)
        assert_in_range(group_number(w.server, both[i], w.owner, "expire_time"), before_ms + 30000,
                        after_ms + 30000);
    assert_in_range(pttl(w.server, WORLD_NAME), 20000, 30100); /* a little longer than a lease */
    assert_int_equal(world_keys(w.server), 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(world_keys(w.server), 0);
    world_end(&w);
}

static void C118_the_same_values_nest(void **state) {
    (void)state;
    struct world w;
    group_begin(&w, NULL);
    hf_lock *second = new_values(w.client, "mary jack mary jack");
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_acquire(second), HF_OK);
    assert_counts(&w, 2);
    assert_int_equal(world_stats(w.client).holds, 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_counts(&w, 1);
    assert_int_equal(hf_lock_try(w.rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(second), HF_OK);
    assert_true(world_free(&w));
    hf_lock_free(second);
    world_end(&w);
}

static void C119_break(void **state) {
    (void)state;
    struct world w;
    bool broken = false;
    group_begin(&w, NULL);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_break(w.rival_lock, &broken), HF_OK);
    assert_true(broken);
    assert_true(world_free(&w));
    assert_int_equal(hf_lock_break(w.rival_lock, &broken), HF_OK);
    assert_false(broken);
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    world_end(&w);
}

/* ---- Questions ---- */

static void C121_to_C137_questions(void **state) {
    (void)state;
    struct world w;
    bool yes = true;
    int64_t number = -1;
    group_begin(&w, NULL);
    hf_lock *more = new_values(w.client, "jack mary paul");
    assert_int_equal(hf_lock_is_locked(w.lock, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_ttl_ms(w.lock, &number), HF_OK);
    assert_int_equal(number, -2);

    assert_int_equal(hf_lock_try(w.lock), HF_OK);
    assert_int_equal(hf_lock_is_locked(w.rival_lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_is_mine(w.lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_is_mine(w.rival_lock, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_is_mine_as(w.lock, 77, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_hold_count(w.lock, &number), HF_OK);
    assert_int_equal(number, 1);
    assert_int_equal(hf_lock_ttl_ms(w.rival_lock, &number), HF_OK);
    assert_in_range(number, 50000, 60000);
    assert_int_equal(hf_lock_is_locked(more, &yes), HF_OK); /* some of it is */
    assert_true(yes);
    assert_int_equal(hf_lock_is_mine(more, &yes), HF_OK); /* but not all */
    assert_false(yes);

    assert_int_equal(world_acquire_async(w.lock, 999, 0, NULL), HF_EBUSY);
    assert_int_equal(hf_lock_try(w.rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(w.lock, 999), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(hf_lock_is_locked(w.lock, &yes), HF_OK);
    assert_false(yes);
    hf_lock_free(more);
    world_end(&w);
}

static void what_the_handle_says_of_itself(void **state) {
    (void)state;
    struct world w;
    size_t len = 0;
    int64_t token;
    hf_lock_info *info;
    group_begin(&w, NULL);
    assert_string_equal(hf_lock_name(w.lock, &len), WORLD_NAME);
    assert_int_equal(len, strlen(WORLD_NAME));
    assert_int_equal(hf_lock_token(w.lock, &token), HF_ENOTSUP);
    assert_int_equal(hf_lock_inspect(w.lock, &info), HF_ENOTSUP);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_in_range(hf_lock_remaining_ms(w.lock), 50000, 60000);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    world_end(&w);
}

/* ---- Values ---- */

static void any_bytes_are_a_value(void **state) {
    (void)state;
    struct world w;
    static const hf_bytes odd[] = {{NULL, 0}, {"\0\0", 2}, {"\xff\xfe", 2}, {"", 0}};
    hf_lock *lock;
    char owner[64];
    group_begin(&w, NULL);
    assert_int_equal(hf_lock_new_group(w.client, WORLD_NAME, strlen(WORLD_NAME), odd, 4, &lock),
                     HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(cmd_int(w.server, "HLEN " WORLD_NAME), 9); /* nothing is one value */
    group_holder(w.server, "", owner);
    assert_string_equal(owner, w.owner);
    assert_int_equal(hf_lock_try(w.rival_lock), HF_OK); /* other values */
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(world_free(&w));
    hf_lock_free(lock);
    world_end(&w);
}

static void what_is_no_group(void **state) {
    (void)state;
    struct world w;
    static hf_bytes many[HF_VALUES_MAX + 1];
    static const hf_bytes nowhere = {NULL, 1};
    hf_lock *lock = NULL;
    char *long_name = calloc(1, 65536);
    group_begin(&w, NULL);
    assert_int_equal(hf_lock_new_group(NULL, "g", 1, many, 1, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, NULL, 1, many, 1, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, "g", 0, many, 1, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, "g", 1, NULL, 1, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, "g", 1, many, 0, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, "g", 1, many, HF_VALUES_MAX + 1, &lock),
                     HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "1000"));
    assert_int_equal(hf_lock_new_group(w.client, "g", 1, &nowhere, 1, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, "g", 1, many, 1, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_new_group(w.client, long_name, 65536, many, 1, &lock), HF_EINVAL);
    assert_null(lock);
    free(long_name);
    world_end(&w);
}

static void as_many_values_as_there_may_be(void **state) {
    (void)state;
    struct world w;
    static char text[HF_VALUES_MAX][8];
    static hf_bytes many[HF_VALUES_MAX];
    hf_lock *lock;
    group_begin(&w, NULL);
    for (int i = 0; i < HF_VALUES_MAX; i++)
        many[i] = (hf_bytes){text[i], (size_t)snprintf(text[i], sizeof text[i], "v%d", i)};
    assert_int_equal(
        hf_lock_new_group(w.client, WORLD_NAME, strlen(WORLD_NAME), many, HF_VALUES_MAX, &lock),
        HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(cmd_int(w.server, "HLEN " WORLD_NAME), 3 * HF_VALUES_MAX);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_extend(lock, 90000), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(world_free(&w));
    hf_lock_free(lock);
    world_end(&w);
}

/* The group's name has a prefix, and braces of its own. */
static void names_of_groups(void **state) {
    (void)state;
    struct world w;
    hf_options options = world_options();
    hf_client *client;
    hf_lock *lock;
    static const hf_bytes value = {"jack", 4};
    group_begin(&w, NULL);
    options.name_prefix = "app:";
    assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_OK);
    assert_int_equal(hf_lock_new_group(client, "a{b}", 4, &value, 1, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(key_exists(w.server, "app:a{b}"));
    assert_int_equal(world_keys(w.server), 1);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    world_end(&w);
}

static void other_kinds_under_the_name(void **state) {
    (void)state;
    struct world w;
    hf_lock *plain;
    group_begin(&w, NULL);
    assert_int_equal(hf_lock_new(w.rival, WORLD_NAME, &plain), HF_OK);
    assert_int_equal(hf_lock_acquire(plain), HF_OK);
    assert_int_equal(hf_lock_try(w.lock), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(plain), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_try(plain), HF_EBUSY);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    cmd_ok(w.server, "SET " WORLD_NAME " text");
    assert_int_equal(hf_lock_try(w.lock), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_break(w.lock, NULL), HF_EWRONGTYPE);
    hf_lock_free(plain);
    world_end(&w);
}

/* ---- Sets that have something in common ---- */

static void of_others_they_exclude_each_other(void **state) {
    (void)state;
    struct world w;
    group_begin(&w, NULL);
    hf_lock *beside = new_values(w.rival, "paul"), *across = new_values(w.rival, "mary paul");
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_try(across), HF_EBUSY);
    assert_true(group_held_by(w.server, "paul", "")); /* all or nothing */
    assert_int_equal(hf_lock_try(beside), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(group_held_by(w.server, "paul", w.rival_owner));
    assert_int_equal(hf_lock_release(beside), HF_OK);
    assert_int_equal(hf_lock_try(across), HF_OK);
    assert_int_equal(hf_lock_release(across), HF_OK);
    hf_lock_free(beside);
    hf_lock_free(across);
    world_end(&w);
}

static void of_one_owner_the_second_is_refused_at_once(void **state) {
    (void)state;
    struct world w;
    group_begin(&w, NULL);
    hf_lock *across = new_values(w.client, "mary paul"), *beside = new_values(w.client, "paul");
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    uint64_t sent = world_stats(w.client).commands;
    assert_int_equal(hf_lock_acquire(across), HF_EDEADLK);
    assert_int_equal(hf_lock_try(across), HF_EDEADLK);
    assert_int_equal(world_stats(w.client).commands, sent);
    assert_int_equal(world_acquire_async(across, 7, 0, NULL), HF_EBUSY); /* another owner */
    assert_int_equal(hf_lock_acquire(beside), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK); /* the same set nests */
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(hf_lock_acquire(across), HF_EDEADLK);
    assert_int_equal(hf_lock_release(beside), HF_OK);
    assert_int_equal(hf_lock_acquire(across), HF_OK);
    assert_int_equal(hf_lock_release(across), HF_OK);
    assert_true(world_free(&w));
    hf_lock_free(across);
    hf_lock_free(beside);
    world_end(&w);
}

/* The first of them still waits: the second would be in its way. */
static void of_one_owner_while_the_first_waits(void **state) {
    (void)state;
    struct world w;
    hf_op *first;
    hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    options.owner = 7;
    group_begin(&w, NULL);
    hf_lock *across = new_values(w.client, "mary paul");
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
    hf_op_free(first);
    hf_lock_free(across);
    world_end(&w);
}

/* Many at once: one is granted, the others are refused, and nothing stays. */
static void of_one_owner_started_together(void **state) {
    (void)state;
    enum { MANY = 12 };
    struct world w;
    hf_lock *locks[MANY];
    hf_op *ops[MANY];
    hf_acquire_options options = world_wait_for(HANG_MS, 60000);
    options.owner = 7;
    group_begin(&w, NULL);
    for (int round = 0; round < 20; round++) {
        int granted = 0;
        for (int i = 0; i < MANY; i++) {
            char text[32];
            snprintf(text, sizeof text, "mary v%d", i);
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
    world_end(&w);
}

/* ---- Waiting ---- */

static void a_release_wakes_all_who_wait_for_the_group(void **state) {
    (void)state;
    struct world w;
    struct world_caller jack, mary;
    hf_options options = world_options();
    options.watchdog_ms = 600000;
    group_begin(&w, &options);
    hf_lock *for_jack = new_values(w.client, "jack"), *for_mary = new_values(w.client, "mary");
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    size_t seen = proxy_seen(w.proxy, GROUP_ACQUIRE);
    world_call_acquire(&jack, for_jack, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    world_call_acquire(&mary, for_mary, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w.proxy, GROUP_ACQUIRE, seen + 4, HANG_MS));
    sleep_ms(100);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(world_join(&jack), HF_OK);
    assert_int_equal(world_join(&mary), HF_OK);
    assert_true(now_ms() - start_ms < 5000); /* nobody polled */
    assert_int_equal(hf_lock_release_as(for_jack, jack.owner), HF_OK);
    assert_int_equal(hf_lock_release_as(for_mary, mary.owner), HF_OK);
    hf_lock_free(for_jack);
    hf_lock_free(for_mary);
    assert_true(world_wait_no_channels(w.server, HANG_MS));
    world_end(&w);
}

/* Somebody else keeps the group's key; what ended in it is free all the same, and left nothing. */
static void a_lease_that_ends_in_a_busy_group(void **state) {
    (void)state;
    struct world w;
    hf_acquire_options brief = world_wait_for(HF_FOREVER, 400);
    group_begin(&w, NULL);
    hf_lock *beside = new_values(w.client, "paul");
    assert_int_equal(hf_lock_acquire(beside), HF_OK);
    int64_t start_ms = now_ms();
    world_acquire_brief(w.lock, &brief);
    assert_int_equal(hf_lock_acquire_for(w.rival_lock, HANG_MS), HF_OK);
    assert_in_range(now_ms() - start_ms, 399,
                    9000); /* by the lease: the next poll would be after 10 s */
    assert_true(group_held_by(w.server, "jack", w.rival_owner));
    assert_int_equal(cmd_int(w.server, "HLEN " WORLD_NAME), 9);
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_true(group_held_by(w.server, "jack", w.rival_owner));
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(beside), HF_OK);
    assert_true(world_free(&w));
    hf_lock_free(beside);
    world_end(&w);
}

static void C127_wait_ends(void **state) {
    (void)state;
    struct world w;
    group_begin(&w, NULL);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_for(w.lock, 300), HF_ETIMEDOUT);
    assert_in_range(now_ms() - start_ms, 300, 5000);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_true(world_free(&w));
    world_end(&w);
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
        char text[16];
        snprintf(text, sizeof text, "v%d v%d", first, second);
        hf_lock *lock = new_values(worker->client, text);
        assert_int_equal(hf_lock_acquire_for(lock, HANG_MS), HF_OK);
        assert_int_equal(atomic_fetch_add(&worker->in_value[first], 1), 0);
        if (second != first)
            assert_int_equal(atomic_fetch_add(&worker->in_value[second], 1), 0);
        atomic_fetch_add(worker->entered, 1);
        atomic_fetch_sub(&worker->in_value[first], 1);
        if (second != first)
            atomic_fetch_sub(&worker->in_value[second], 1);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        hf_lock_free(lock);
    }
    return NULL;
}

static void C138_C139_overlapping_values_from_many_threads(void **state) {
    (void)state;
    struct world w;
    struct worker workers[WORKERS];
    atomic_int in_value[VALUES] = {0}, entered = 0;
    group_begin(&w, NULL);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.client = i % 2 != 0 ? w.client : w.rival,
                                     .number = i,
                                     .in_value = in_value,
                                     .entered = &entered};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    assert_int_equal(atomic_load(&entered), WORKERS * ROUNDS);
    assert_true(world_free(&w));
    assert_true(world_wait_no_channels(w.server, HANG_MS)); /* C124 */
    world_end(&w);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(C117_two_values_of_a_group),
        cmocka_unit_test(C118_the_same_values_nest),
        cmocka_unit_test(C119_break),
        cmocka_unit_test(C121_to_C137_questions),
        cmocka_unit_test(what_the_handle_says_of_itself),
        cmocka_unit_test(any_bytes_are_a_value),
        cmocka_unit_test(what_is_no_group),
        cmocka_unit_test(as_many_values_as_there_may_be),
        cmocka_unit_test(names_of_groups),
        cmocka_unit_test(other_kinds_under_the_name),
        cmocka_unit_test(of_others_they_exclude_each_other),
        cmocka_unit_test(of_one_owner_the_second_is_refused_at_once),
        cmocka_unit_test(of_one_owner_while_the_first_waits),
        cmocka_unit_test(of_one_owner_started_together),
        cmocka_unit_test(a_release_wakes_all_who_wait_for_the_group),
        cmocka_unit_test(a_lease_that_ends_in_a_busy_group),
        cmocka_unit_test(C127_wait_ends),
        cmocka_unit_test(C138_C139_overlapping_values_from_many_threads),
    };
    return cmocka_run_group_tests_name("group", tests, world_start_server, world_stop_server);
}
