/* Memory runs out at each step in turn while one lock is made out of many, acquired, nested, asked,
 * extended and released: an error, never a crash, a hang, a part that stays held or a block that is not
 * given back. */
#include "joint/pack.h"
#include "support/memory.h"

static bool is_allowed(int err) {
    return err == HF_OK || err == HF_ENOMEM || err == HF_EINDOUBT || err == HF_ELOST ||
           err == HF_EBUSY || err == HF_ETIMEDOUT || err == HF_EUNREACH;
}

static void expect_allowed(int err) {
    if (!is_allowed(err))
        fail_msg("%s: %s", hf_error_name(err), hf_last_error()->text);
}

/* False: memory has run out. */
static bool succeeded(int err) {
    expect_allowed(err);
    return err == HF_OK;
}

static void use(hf_lock *all) {
    int held = 0;
    bool locked;
    for (int i = 0; i < 2; i++)
        held += succeeded(hf_lock_acquire_for(all, 2000));
    expect_allowed(hf_lock_is_locked(all, &locked));
    int err = hf_lock_extend(all, 60000);
    if (err != HF_ENOTOWNER)
        expect_allowed(err);
    for (int i = 0; i < held + 1; i++) {
        err = hf_lock_release(all);
        if (err != HF_ENOTOWNER)
            expect_allowed(err);
    }
}

static void play(struct pack *p, struct memory *memory) {
    hf_client *clients[PACK] = {0};
    hf_lock *locks[PACK] = {0}, *all = NULL;
    hf_options options = pack_options();
    options.allocator = memory_allocator(memory);
    options.cmd_timeout_ms = 1000;
    options.connect_timeout_ms = 2000;
    bool ok = true;
    for (int i = 0; i < PACK && ok; i++)
        ok = succeeded(hf_open(server_url(p->server[i]), &options, &clients[i])) &&
             succeeded(hf_lock_new(clients[i], pack_names[i], &locks[i]));
    if (ok && succeeded(hf_lock_new_multi(locks, PACK, &all)))
        use(all);
    hf_lock_free(all);
    for (int i = 0; i < PACK; i++) {
        hf_lock_free(locks[i]);
        assert_int_equal(hf_close(clients[i]), HF_OK);
    }
}

PACK_CASE(each_step_fails) {
    for (long step = 1; step < 5000; step += step < 100 ? 1 : 1 + step / 20) {
        struct memory memory = {0};
        atomic_store(&memory.fail_at, step);
        play(p, &memory);
        assert_int_equal(atomic_load(&memory.live), 0);
        if (!pack_wait_free(p, HANG_MS + 10000))
            fail_msg("step %ld: something is left", step);
        if (atomic_load(&memory.calls) < step)
            break;
    }
}

PACK_CASE(all_from_a_step_on_fail) {
    for (long step = 1; step < 5000; step += 1 + step / 4) {
        struct memory memory = {0};
        atomic_store(&memory.fail_from, step);
        play(p, &memory);
        assert_int_equal(atomic_load(&memory.live), 0);
        for (int i = 0; i < PACK; i++)
            cmd_ok(p->server[i], "DEL %s", pack_names[i]);
        if (atomic_load(&memory.calls) < step)
            break;
    }
}

RUN_CASES(pack_start_servers, pack_stop_servers)
