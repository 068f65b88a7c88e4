/* A grant whose lease was over before its answer came: nothing is held, and the server has
 * answered. So a client that arrives again at once, and cannot wait until the grant is undone,
 * learns that the wait ran out, and not that no server was there. */
#include "support/world.h"

#define ROUNDS 20
#define LEASE_MS 30

static bool ran(void *arg) {
    struct world *w = arg;
    return cmd_int(w->server, "HLEN " WORLD_NAME) == 0;
}

WORLD_CASE(a_short_wait_after_a_late_grant) {
    struct world_caller late;
    for (int round = 0; round < ROUNDS; round++) {
        hf_acquire_options options = world_wait_as(hf_owner_new(), 0, LEASE_MS);
        size_t seen = proxy_seen(w->proxy, WORLD_ACQUIRE);
        proxy_blackhole(w->proxy, false, true);
        world_call_acquire(&late, w->lock, options);
        assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, seen + 1, HANG_MS));
        server_wait_clock(w->server, LEASE_MS); /* it is over when the answer comes */
        assert_true(wait_until(ran, w, HANG_MS));
        proxy_blackhole(w->proxy, false, false);
        assert_int_equal(world_join(&late), HF_ETIMEDOUT);

        options.wait_ms = 10;
        options.lease_ms = HF_WATCHDOG;
        int err = hf_lock_acquire_with(w->lock, &options, NULL);
        assert_true(err == HF_OK || err == HF_ETIMEDOUT);
        if (err == HF_OK)
            assert_int_equal(hf_lock_release_as(w->lock, options.owner), HF_OK);
        assert_true(world_wait_free(w, HANG_MS));
    }
}

RUN_CASES(world_start_server, world_stop_server)
