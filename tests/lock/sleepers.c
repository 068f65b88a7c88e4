/*
 * Operations that wait and are parked; see sleepers.h.
 *
 * Used by the tests of parked waiters, on their own thread; callbacks come on the client's.
 */
#include "lock/sleepers.h"

void sleepers_name(const struct sleepers *s, size_t i, char name[64]) {
    snprintf(name, 64, "slept-for-%p-%zu", (const void *)s, i);
}

static void woke(hf_op *op, const hf_result *result, void *user) {
    struct sleeper *sleeper = user;
    (void)op;
    sleeper->result = *result;
    atomic_fetch_add(&sleeper->calls, 1);
}

static void *dispatch(void *sleepers) {
    struct sleepers *s = sleepers;
    while (!atomic_load(&s->over))
        hf_dispatch(s->client, 10);
    return NULL;
}

static void fall_asleep(struct sleepers *s, size_t i, int64_t wait_ms) {
    struct sleeper *sleeper = &s->all[i];
    hf_acquire_options options = world_wait_for(wait_ms, HF_WATCHDOG);
    char name[64];
    sleepers_name(s, i, name);
    assert_int_equal(hf_lock_new(s->client, name, &sleeper->lock), HF_OK);
    assert_int_equal(hf_lock_new(s->w->rival, name, &sleeper->rival), HF_OK);
    assert_int_equal(hf_lock_acquire(sleeper->rival), HF_OK);
    sleeper->start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_start(sleeper->lock, &options, woke, sleeper, &sleeper->op),
                     HF_OK);
}

static bool have_attempted_twice(void *sleepers) {
    const struct sleepers *s = sleepers;
    return proxy_seen_in_time(s->proxy, WORLD_ACQUIRE) >= 2 * s->len;
}

void sleepers_begin(struct sleepers *s, struct world *w, size_t len, int64_t wait_ms,
                    const hf_options *given) {
    hf_options options = given != NULL ? *given : world_options();
    memset(s, 0, sizeof *s);
    s->w = w;
    s->len = len;
    s->all = calloc(len, sizeof *s->all);
    assert_non_null(s->all);
    s->proxy = proxy_start(server_socket(w->server));
    options.allocator = memory_allocator(&s->memory);
    assert_int_equal(hf_open(proxy_url(s->proxy), &options, &s->client), HF_OK);
    s->manual = (options.flags & HF_MANUAL_DISPATCH) != 0;
    if (s->manual)
        assert_int_equal(pthread_create(&s->dispatcher, NULL, dispatch, s), 0);
    for (size_t i = 0; i < len; i++)
        fall_asleep(s, i, wait_ms);
    do { /* one that came too late was none */
        assert_true(wait_until(have_attempted_twice, s, HANG_MS));
        sleepers_settle(s);
    } while (!have_attempted_twice(s));
}

/* A question goes the way that their attempts went, so its answer comes after theirs. */
void sleepers_settle(struct sleepers *s) {
    own_op *op;
    assert_int_equal(hf_ping_start(s->client, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_OK);
}

int sleepers_join(struct sleepers *s, size_t i) {
    struct sleeper *sleeper = &s->all[i];
    assert_true(world_wait_atomic(&sleeper->calls, 1, HANG_MS));
    assert_int_equal(atomic_load(&sleeper->calls), 1);
    if (sleeper->result.code == HF_OK)
        assert_int_equal(hf_lock_release_as(sleeper->lock, sleeper->result.owner), HF_OK);
    return sleeper->result.code;
}

void sleepers_end(struct sleepers *s) {
    atomic_store(&s->over, true);
    if (s->manual)
        assert_int_equal(pthread_join(s->dispatcher, NULL), 0);
    for (size_t i = 0; i < s->len; i++) {
        hf_lock_free(s->all[i].lock);
        hf_lock_free(s->all[i].rival);
    }
    assert_int_equal(hf_close(s->client), HF_OK);
    for (size_t i = 0; i < s->len; i++) {
        assert_int_equal(atomic_load(&s->all[i].calls), 1);
        hf_op_free(s->all[i].op);
    }
    assert_int_equal(atomic_load(&s->memory.live), 0);
    proxy_free(s->proxy);
    free(s->all);
}

int sleepers_forked(void *sleepers) {
    struct sleepers *s = sleepers;
    hf_op *op = NULL;
    if (hf_op_wait(s->all[0].op, HANG_MS, NULL) != HF_EFORKED)
        return 1;
    if (hf_lock_acquire_start(s->all[0].lock, NULL, NULL, NULL, &op) != HF_EFORKED)
        return 2;
    hf_op_cancel(s->all[0].op);
    hf_op_free(s->all[1].op);
    hf_lock_free(s->all[2].lock);
    return hf_close(s->client) == HF_OK ? 0 : 3;
}
