/* A holder of a quorum lock that is another process, and is killed or stopped. */
#include "joint/fleet.h"

#include <signal.h>

struct shared {
    atomic_int held, outcome;
    char urls[2048];
    int64_t watchdog_ms;
};

/* A process of its own that holds the lock until `held` is 2, and tells how its release went. */
static int hold(void *arg) {
    struct shared *shared = arg;
    hf_options options = fleet_options();
    hf_client *client;
    hf_lock *lock;
    options.watchdog_ms = shared->watchdog_ms;
    if (hf_open(shared->urls, &options, &client) != HF_OK ||
        hf_lock_new(client, FLEET_NAME, &lock) != HF_OK || hf_lock_acquire(lock) != HF_OK)
        return 1;
    atomic_store(&shared->held, 1);
    while (atomic_load(&shared->held) == 1)
        (void)wait_a_moment();
    atomic_store(&shared->outcome, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_close(client);
    return 0;
}

static pid_t start_holder(struct fleet *f, struct shared *shared, int64_t watchdog_ms) {
    snprintf(shared->urls, sizeof shared->urls, "%s", f->direct_urls);
    shared->watchdog_ms = watchdog_ms;
    pid_t pid = run_child(hold, shared);
    assert_true(fleet_wait_atomic(&shared->held, 1, HANG_MS));
    return pid;
}

CASE(holder_killed) {
    OWN(fleet_end) struct fleet f;
    struct shared *shared = shared_new(sizeof *shared);
    fleet_begin(&f, NULL);
    pid_t pid = start_holder(&f, shared, 6000);
    assert_int_equal(hf_lock_try(f.lock), HF_EBUSY);
    kill_child(pid);
    assert_int_equal(hf_lock_acquire_for(f.lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    shared_free(shared, sizeof *shared);
}

CASE(holder_stopped) {
    OWN(fleet_end) struct fleet f;
    struct shared *shared = shared_new(sizeof *shared);
    fleet_begin(&f, NULL);
    pid_t pid = start_holder(&f, shared, ENDURING_MS);
    stop_process(pid);
    assert_int_equal(hf_lock_acquire_for(f.lock, HANG_MS), HF_OK);
    kill(pid, SIGCONT);
    atomic_store(&shared->held, 2);
    assert_true(expect_exit(pid, 0, HANG_MS));
    assert_int_equal(atomic_load(&shared->outcome), HF_ELOST);
    assert_true(fleet_held(&f, f.owner) >= MAJORITY); /* its leftovers are not ours */
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    shared_free(shared, sizeof *shared);
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
