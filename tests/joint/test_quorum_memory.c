/* Memory runs out at each step in turn while a quorum is opened, acquired, nested, asked, released and
 * closed: an error or a server less, never a crash, a hang, a silent hold or a block that is not given
 * back. */
#include "joint/fleet.h"
#include "support/memory.h"

static bool is_allowed(int err) {
    return err == HF_OK || err == HF_ENOMEM || err == HF_ENOQUORUM || err == HF_EINDOUBT ||
           err == HF_ELOST || err == HF_EBUSY || err == HF_ETIMEDOUT;
}

static void expect_allowed(int err) {
    if (!is_allowed(err))
        fail_msg("%s: %s", hf_error_name(err), hf_last_error()->text);
}

static void play(const char *urls, struct memory *memory) {
    hf_client *client;
    hf_lock *lock;
    bool locked;
    hf_options options = fleet_options();
    options.allocator = memory_allocator(memory);
    options.cmd_timeout_ms = 1000;
    options.connect_timeout_ms = 2000;
    int err = hf_open(urls, &options, &client);
    expect_allowed(err);
    if (err != HF_OK)
        return;
    err = hf_lock_new(client, FLEET_NAME, &lock);
    expect_allowed(err);
    if (err == HF_OK) {
        int held = 0;
        for (int i = 0; i < 2; i++) {
            err = hf_lock_acquire_for(lock, 2000);
            expect_allowed(err);
            held += err == HF_OK;
        }
        expect_allowed(hf_lock_is_locked(lock, &locked));
        for (int i = 0; i < held + 1; i++) {
            err = hf_lock_release(lock);
            if (err != HF_ENOTOWNER)
                expect_allowed(err);
        }
        hf_lock_free(lock);
    }
    assert_int_equal(hf_close(client), HF_OK);
}

FLEET_CASE(each_step_fails) {
    for (long step = 1; step < 5000; step += step < 60 ? 1 : 1 + step / 12) {
        struct memory memory = {0};
        atomic_store(&memory.fail_at, step);
        play(f->direct_urls, &memory);
        assert_int_equal(atomic_load(&memory.live), 0);
        /* closing does not release, but nothing was held */
        if (!fleet_wait_free(f, HANG_MS + 10000))
            fail_msg("step %ld: something is left", step);
        if (atomic_load(&memory.calls) < step)
            break;
    }
}

FLEET_CASE(all_from_a_step_on_fail) {
    for (long step = 1; step < 5000; step += 1 + step / 4) {
        struct memory memory = {0};
        atomic_store(&memory.fail_from, step);
        play(f->direct_urls, &memory);
        assert_int_equal(atomic_load(&memory.live), 0);
        for (int i = 0; i < FLEET; i++)
            cmd_ok(f->server[i], "DEL %s", FLEET_NAME);
        if (atomic_load(&memory.calls) < step)
            break;
    }
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
