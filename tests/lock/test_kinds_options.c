/*
 * Kinds as a base and flags: which combinations there are, what is refused, and the sleeps of a
 * spin lock as its handle wants them.
 *
 * Attempts are counted at the proxy. A sleep is never shorter than it was asked for, so there can
 * only be so many within a given time; a machine that is slow makes them fewer.
 */
#include "lock/kinds.h"

static int make(hf_client *client, const hf_lock_options *options) {
    own_lock *lock = NULL;
    int err = hf_lock_new_with(client, WORLD_NAME, strlen(WORLD_NAME), options, &lock);
    assert_true((err == HF_OK) == (lock != NULL));
    return err;
}

static bool is_offered(const struct world *w, hf_kind kind, unsigned flags) {
    if (kind == HF_STRING && server_is_other(w->server))
        return false;
    if (flags & HF_COHORT) {
        unsigned others = flags & ~HF_COHORT;
        return (kind == HF_PLAIN || kind == HF_FAIR || kind == HF_STRING) &&
               (others == 0 || others == HF_NONREENTRANT);
    }
    if (kind == HF_PLAIN)
        return flags == 0 || flags == HF_NONREENTRANT || flags == HF_SPIN || flags == HF_FENCED;
    if (kind == HF_STRING)
        return flags == 0 || flags == HF_NONREENTRANT || flags == HF_SPIN;
    return flags == 0 || (kind == HF_FAIR && flags == HF_NONREENTRANT);
}

WORLD_CASE(every_combination_is_offered_or_refused) {
    static const hf_kind kinds[] = {HF_PLAIN, HF_FAIR, HF_READ, HF_WRITE, HF_STRING};
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        options.kind = kinds[i];
        for (unsigned flags = 0; flags <= 0x1000; flags += 0x80) {
            options.flags = flags;
            bool offered = is_offered(w, kinds[i], flags);
            assert_int_equal(make(w->client, &options), offered ? HF_OK : HF_ENOTSUP);
        }
    }
    assert_int_equal(make(w->client, NULL), HF_OK);
}

WORLD_CASE(a_name_may_be_a_string) {
    hf_lock *lock = NULL;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    size_t len = 0;
    options.flags = HF_SPIN;
    assert_int_equal(hf_lock_new_named(w->client, "named", &options, &lock), HF_OK);
    assert_string_equal(hf_lock_name(lock, &len), "named");
    assert_int_equal(len, strlen("named"));
    hf_lock_free(lock);
    options.flags = HF_SPIN | HF_FENCED;
    assert_int_equal(hf_lock_new_named(w->client, "named", &options, &lock), HF_ENOTSUP);
    assert_int_equal(hf_lock_new_named(w->client, NULL, NULL, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_named(w->client, "", NULL, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new_named(w->client, "named", NULL, NULL), HF_EINVAL);
}

/* As 0.1 had it, or mistaken for one another. */
WORLD_CASE(a_flag_is_no_kind) {
    static const unsigned flags[] = {HF_NONREENTRANT, HF_SPIN, HF_FENCED, HF_COHORT, 5, 6, 7, 8};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        hf_lock_options options = HF_LOCK_OPTIONS_INIT;
        options.kind = (hf_kind)flags[i];
        assert_int_equal(make(w->client, &options), HF_ENOTSUP);
    }
}

WORLD_CASE(sleeps_that_are_none_are_refused) {
    static const struct {
        int64_t first_ms, factor, max_ms;
        int err;
    } rows[] = {
        {1, 2, 128, HF_OK},
        {1, 1, 1, HF_OK},
        {86400000, 1000, 86400000, HF_OK},
        {0, 2, 128, HF_EINVAL},
        {-1, 2, 128, HF_EINVAL},
        {129, 2, 128, HF_EINVAL},
        {1, 2, 86400001, HF_EINVAL},
        {1, 0, 128, HF_EINVAL},
        {1, 1001, 128, HF_EINVAL},
        {1, INT64_MIN, 128, HF_EINVAL},
        {INT64_MAX, 2, INT64_MAX, HF_EINVAL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hf_lock_options options = HF_LOCK_OPTIONS_INIT;
        options.flags = HF_SPIN;
        options.spin_first_ms = rows[i].first_ms;
        options.spin_factor = rows[i].factor;
        options.spin_max_ms = rows[i].max_ms;
        assert_int_equal(make(w->client, &options), rows[i].err);
        if (rows[i].err != HF_OK)
            assert_non_null(strstr(hf_last_error()->text, "spin_"));
    }
}

/* How often a waiter with these sleeps tries within 900 ms. */
static size_t attempts_with(int64_t first_ms, int64_t factor, int64_t max_ms, bool async) {
    struct world w;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    kind_begin(&w, HF_SPIN, NULL);
    options.flags = HF_SPIN;
    options.spin_first_ms = first_ms;
    options.spin_factor = factor;
    options.spin_max_ms = max_ms;
    hf_lock *lock = made(hf_lock_new_with, w.client, WORLD_NAME, strlen(WORLD_NAME), &options);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    size_t before = proxy_seen_in_time(w.proxy, WORLD_ACQUIRE);
    assert_int_equal(async ? world_acquire_async(lock, 0, 900, NULL)
                           : hf_lock_acquire_for(lock, 900),
                     HF_ETIMEDOUT);
    size_t attempts = proxy_seen_in_time(w.proxy, WORLD_ACQUIRE) - before;
    hf_lock_free(lock);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    world_end(&w);
    return attempts;
}

CASE(a_handle_says_how_its_waiters_sleep) {
    server_redis_only(world_server(), "a watch wakes a waiter there, and does not sleep");
    for (int async = 0; async <= 1; async++) {
        assert_int_equal(attempts_with(60000, 2, 60000, async), 1); /* not while it waits */
        assert_in_range(attempts_with(300, 1, 300, async), 2, 4);   /* at 0, 300, 600 ... */
        assert_in_range(attempts_with(10, 1000, 500, async), 2, 3); /* 0, 10, 510 */
        /* 1 to 128 ms makes 13 at most; a busy machine may do no more, and then it is tried again */
        size_t attempts = 0;
        for (int64_t end_ms = now_ms() + HANG_MS; attempts <= 20 && now_ms() < end_ms;)
            attempts = attempts_with(1, 1, 5, async);
        assert_true(attempts > 20);
    }
}

RUN_CASES(world_start_server, world_stop_server)
