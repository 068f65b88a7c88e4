/*
 * R07, first half: the watchdog lives no longer than the hold.
 *
 * A renewal that was on its way when the lock was released must not lengthen the hold that comes
 * next, fixed leases are not renewed, and max_hold_ms ends what would go on. Renewals are watched
 * and stopped at the proxy, leases by PTTL.
 */
#include "support/world.h"

static hf_options with_watchdog(int64_t watchdog_ms) {
    hf_options options = world_options();
    options.watchdog_ms = watchdog_ms;
    return options;
}

static void begin(struct world *w, int64_t watchdog_ms) {
    hf_options options = with_watchdog(watchdog_ms);
    world_begin(w, &options);
}
#define WATCHDOG_CASE(name, watchdog_ms)                                                           \
    CASE_IN(name, struct world, w, begin, world_end, watchdog_ms)

static bool wait_renewals(struct world *w, uint64_t more) {
    uint64_t wanted = world_stats(w->client).renewals + more;
    return WAIT_FOR(world_stats(w->client).renewals >= wanted, HANG_MS);
}

/* Stops the next renewal on its way, with the lock held by this thread. */
static void catch_renewal(struct world *w) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(wait_renewals(w, 1)); /* its connection is there, and its script is known */
    proxy_stall_request(w->proxy, WORLD_RENEW);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
}

WATCHDOG_CASE(R07_caught_renewal_spares_another_owner, 3000) {
    catch_renewal(w);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    hf_acquire_options fixed = world_wait_for(0, 700);
    world_acquire_brief(w->rival_lock, &fixed);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_true(pttl(w->server, WORLD_NAME) <= 700);
    assert_true(world_wait_free(w, HANG_MS));
}

WATCHDOG_CASE(R07_caught_renewal_spares_our_next_hold, 3000) {
    catch_renewal(w);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    struct world_caller again;
    hf_acquire_options fixed =
        world_wait_as(hf_owner_self(), HANG_MS, 2000); /* the same field of the same hash */
    world_call_acquire(&again, w->lock, fixed);
    /* so that it would be there before the renewal, if nothing kept it back */
    assert_true(HOLDS_FOR(!atomic_load(&again.done), 100));
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_int_equal(world_join(&again), HF_OK);
    assert_int_equal(world_count(w, w->owner), 1);
    assert_true(pttl(w->server, WORLD_NAME) <= 2000);
}

WATCHDOG_CASE(R07_caught_renewal_does_not_revive, 3000) {
    catch_renewal(w);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_true(world_free(w));
    size_t renewals = proxy_seen(w->proxy, WORLD_RENEW);
    assert_true(
        HOLDS_FOR(proxy_seen(w->proxy, WORLD_RENEW) == renewals, 2200)); /* two more periods */
    assert_int_equal(world_stats(w->client).losses, 0);
}

WATCHDOG_CASE(R07_fixed_lease_is_not_renewed, 600) {
    size_t renewals = proxy_seen(w->proxy, WORLD_RENEW);
    hf_acquire_options fixed = world_wait_for(0, 700); /* nobody asks about it, either */
    world_acquire_brief(w->lock, &fixed);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(proxy_seen(w->proxy, WORLD_RENEW), renewals);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
}

WORLD_CASE_WITH(R07_max_hold_ends_renewal, with_watchdog(ENDURING_MS), options.max_hold_ms = 2000) {
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(now_ms() - start_ms >= 2000);
    assert_true(atomic_load(&events.warnings) >= 1); /* more if a renewal was late */
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
}

/* The same by the url, which wins. */
CASE(R07_max_hold_by_the_url) {
    char url[512];
    struct world_events events = {0};
    hf_options options = with_watchdog(ENDURING_MS);
    options.max_hold_ms = 600000;
    snprintf(url, sizeof url, "%s?max_hold_ms=1000", server_url(world_server()));
    own_client *client = made(hf_open, url, &options);
    own_lock *lock = made(hf_lock_new, client, "by the url");
    assert_int_equal(hf_lock_on_lost(lock, world_on_event, &events), HF_OK);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    /* that no whole millisecond remains would be too early: it may still be released in the last */
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_remaining_ms(lock), 0);
    assert_true(now_ms() - start_ms >= 1000);
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
}

RUN_CASES(world_start_server, world_stop_server)
