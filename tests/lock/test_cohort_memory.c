/*
 * Memory runs out at each step in turn while a cohort is made, acquired, nested, asked, passed on and released:
 * an error, never a crash, a hang, a lock that stays held or a block that is not given back.
 */
#include "lock/cohort.h"
#include "support/memory.h"

static bool is_allowed(int err) {
    return err == HF_OK || err == HF_ENOMEM || err == HF_EINDOUBT || err == HF_ELOST ||
           err == HF_EBUSY || err == HF_ETIMEDOUT || err == HF_EUNREACH || err == HF_ENOTOWNER;
}

static bool succeeded(int err) {
    if (!is_allowed(err))
        fail_msg("%s: %s", hf_error_name(err), hf_last_error()->text);
    return err == HF_OK;
}

static void pass_on(hf_lock *lock) {
    own_op *op = NULL;
    hf_acquire_options options = world_wait_as(11, 2000, HF_WATCHDOG);
    bool started = succeeded(hf_lock_acquire_start(lock, &options, NULL, NULL, &op));
    succeeded(hf_lock_release(lock));
    if (started && succeeded(hf_op_wait(op, HANG_MS, NULL)))
        succeeded(hf_lock_release_as(lock, 11));
}

static void use(hf_lock *lock) {
    bool mine;
    succeeded(hf_lock_acquire_for(lock, 2000));
    if (succeeded(hf_lock_acquire_for(lock, 2000)))
        succeeded(hf_lock_release(lock));
    succeeded(hf_lock_is_mine(lock, &mine));
    succeeded(hf_lock_extend(lock, 60000));
    pass_on(lock);
}

static void play(struct world *w, struct memory *memory) {
    own_client *client = NULL;
    own_lock *lock = NULL;
    hf_lock_options kind = HF_LOCK_OPTIONS_INIT;
    hf_options options = world_options();
    kind.flags = HF_COHORT;
    options.allocator = memory_allocator(memory);
    options.cmd_timeout_ms = 1000;
    options.connect_timeout_ms = 2000;
    if (succeeded(hf_open(server_url(w->server), &options, &client)) &&
        succeeded(hf_lock_new_with(client, WORLD_NAME, strlen(WORLD_NAME), &kind, &lock)))
        use(lock);
}

/* What could not be released for lack of memory is held until its lease ends: it is deleted, and what is
 * looked for is memory. */
WORLD_CASE(each_step_fails) {
    for (long step = 1; step < 5000; step++) {
        struct memory memory = {0};
        atomic_store(&memory.fail_at, step);
        play(w, &memory);
        assert_int_equal(atomic_load(&memory.live), 0);
        cmd_ok(w->server, "DEL %s", WORLD_NAME);
        if (atomic_load(&memory.calls) < step)
            break;
    }
}

RUN_CASES(world_start_server, world_stop_server)
