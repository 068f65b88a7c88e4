/*
 * RLIMIT_NOFILE falls below the descriptors that are open: clients go on with what they have, and nothing spins.
 *
 * poll() and ppoll() of our own count how often they fail.
 */
#include "support/world.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

static atomic_int failures;

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
__attribute__((visibility("default"))) int ppoll(struct pollfd *fds, nfds_t len,
                                                 const struct timespec *timeout,
                                                 const sigset_t *signals) {
    struct timespec left;
    if (timeout != NULL)
        left = *timeout;
    int ready =
        (int)syscall(SYS_ppoll, fds, len, timeout != NULL ? &left : NULL, signals, _NSIG / 8);
    if (ready < 0)
        atomic_fetch_add(&failures, 1);
    return ready;
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
__attribute__((visibility("default"))) int poll(struct pollfd *fds, nfds_t len, int timeout_ms) {
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    return ppoll(fds, len, timeout_ms < 0 ? NULL : &timeout, NULL);
}

static void limit_to(rlim_t most) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A client that waits, and one that lets it. */
struct two {
    hf_client *client, *rival;
    hf_lock *lock, *held;
};

static bool waits(void *client) {
    return world_stats(client).waits > 0;
}

static void hand_over(struct two *two, bool async) {
    struct world_caller caller;
    hf_op *op = NULL;
    assert_int_equal(hf_lock_acquire(two->held), HF_OK);
    if (async)
        assert_int_equal(hf_lock_acquire_start(two->lock, NULL, NULL, NULL, &op), HF_OK);
    else
        world_call_acquire(&caller, two->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(wait_until(waits, two->client, HANG_MS));
    sleep_ms(200); /* what spins has the time to; what sleeps shows nothing */
    assert_int_equal(hf_lock_release(two->held), HF_OK);
    if (async) {
        hf_result result = HF_RESULT_INIT;
        assert_int_equal(joined(op, &result), HF_OK);
        assert_int_equal(hf_lock_release_as(two->lock, result.owner), HF_OK);
    } else {
        assert_int_equal(world_join(&caller), HF_OK);
        assert_int_equal(hf_lock_release_as(two->lock, caller.owner), HF_OK);
    }
}

CASE(waits_go_on_and_nothing_spins) {
    struct two two;
    struct rlimit before;
    hf_options options = world_options();
    const char *url = server_url(world_server());
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(hf_open(url, &options, &two.client), HF_OK);
    assert_int_equal(hf_open(url, &options, &two.rival), HF_OK);
    assert_int_equal(hf_lock_new(two.client, "handed", &two.lock), HF_OK);
    assert_int_equal(hf_lock_new(two.rival, "handed", &two.held), HF_OK);
    hand_over(&two, false); /* makes all connections */
    hand_over(&two, true);
    limit_to(0);
    atomic_store(&failures, 0);
    hand_over(&two, false);
    hand_over(&two, true);
    int failed = atomic_load(&failures);
    limit_to(before.rlim_cur);
    hf_lock_free(two.lock);
    hf_lock_free(two.held);
    assert_int_equal(hf_close(two.client), HF_OK);
    assert_int_equal(hf_close(two.rival), HF_OK);
    assert_true(failed > 0);    /* else this shows nothing */
    assert_true(failed < 2000); /* a spin makes as many in some milliseconds */
}

RUN_CASES(world_start_server, world_stop_server)
