/* Votes and time. Servers report their uptime in whole seconds, so connections see different
 * values; and a vote may expire while other servers are still asked. */
#include "joint/fleet.h"

/* The next connection through this proxy hears that the server, the same as before, has been up for one
 * second. */
static void seem_young(struct fleet *f, int i) {
    own_text *info = cmd_str(f->server[i], "INFO server");
    char *up = strstr(info, "uptime_in_seconds:");
    assert_non_null(up);
    char reply[8192];
    int len = snprintf(reply, sizeof reply, "%.*suptime_in_seconds:1%s", (int)(up - info), info,
                       strchr(up, '\r'));
    assert_in_range(len, 1, (int)sizeof reply - 1);
    char bytes[8300];
    int total = snprintf(bytes, sizeof bytes, "$%d\r\n%s\r\n", len, reply);
    proxy_forge_reply(f->proxy[i], "\r\nINFO\r\n", bytes, (size_t)total);
}

FLEET_CASE_WITH(no_server_grows_younger, fleet_options(), options.restart_guard_ms = 2000) {
    struct fleet_events events = {0};
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    for (int i = 0; i < FLEET; i++)
        seem_young(f, i);
    for (int i = 0; i < FLEET; i++)
        assert_true(proxy_cut_all(f->proxy[i]) > 0);
    for (int i = 0; i < FLEET; i++)
        assert_true(proxy_wait_fired(f->proxy[i], 1, HANG_MS));
    assert_int_equal(hf_lock_extend(f->lock, 60000), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
}

#define SLOW_MS 60
#define LEASE_MS 250

/* The longer servers take, the longer the client that has the first of them keeps it. */
static void make_slow(struct fleet *f) {
    for (int i = 0; i < FLEET; i++)
        proxy_delay(f->proxy[i], FLEET_ACQUIRE, SLOW_MS);
    for (int round = 0; round < 10; round++) {
        assert_int_equal(hf_lock_acquire_for(f->lock, HANG_MS), HF_OK);
        assert_int_equal(hf_lock_release(f->lock), HF_OK);
    }
    assert_true(fleet_wait_free(f, HANG_MS));
}

/* One server grants it, and that lease runs out before three others are free: those are enough.
 * False: on a busy machine the leases of those have run out, too, before the last of their answers
 * came. */
static bool release_beside_a_vote_that_ran_out(int first) {
    struct fleet f;
    struct fleet_caller caller;
    fleet_begin(&f, NULL);
    make_slow(&f);
    for (int i = 1; i < FLEET; i++)
        fleet_occupy(&f, (first + i) % FLEET);
    hf_acquire_options options = fleet_wait_for(HANG_MS, LEASE_MS);
    options.owner = hf_owner_new();
    fleet_call_acquire(&caller, f.lock, options);
    server_wait_clock(f.server[first], LEASE_MS + 30); /* its first votes are older than a lease */
    for (int i = 1; i <= MAJORITY; i++)
        fleet_vacate(&f, (first + i) % FLEET);
    int err = fleet_join(&caller);
    if (err != HF_OK) {
        assert_int_equal(err, HF_ETIMEDOUT);
        assert_true(caller.took_ms < HANG_MS);
        fleet_end(&f);
        return false;
    }

    int64_t asked_ms = now_ms(), remaining_ms = hf_lock_remaining_ms_as(f.lock, options.owner);
    err = hf_lock_release_as(f.lock, options.owner);
    if (now_ms() < asked_ms + remaining_ms) /* else it may have been lost, on a slow machine */
        assert_int_equal(err, HF_OK);
    fleet_end(&f);
    return true;
}

/* Which server is the first is known to the library only: each is, in one of these. */
CASE(a_vote_that_ran_out_is_no_loss) {
    for (int first = 0; first < FLEET; first++) {
        int rounds = 1;
        while (!release_beside_a_vote_that_ran_out(first))
            assert_true(rounds++ < 10);
    }
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
