/*
 * Tracking on a quorum: each server reports, and without a majority the hold is lost.
 */
#include "joint/fleet.h"
#include "support/case.h"

#include <stdlib.h>

#define LONG_MS 1800000

static hf_stats fleet_stats(const struct fleet *f) {
    hf_stats stats = HF_STATS_INIT;
    assert_int_equal(hf_client_stats(f->client, &stats), HF_OK);
    return stats;
}

FLEET_CASE_WITH(S100_a_majority_that_has_lost_it_ends_a_hold, fleet_options(),
                options.watchdog_ms = LONG_MS) {
    struct fleet_events events = {0};
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    assert_true(WAIT_FOR(fleet_stats(f).tracked == FLEET, HANG_MS));
    cmd_ok(f->server[0], "DEL " FLEET_NAME); /* one alone does not matter */
    assert_true(WAIT_FOR(fleet_stats(f).tracked == FLEET - 1, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    for (int i = 0; i < FLEET; i++)
        cmd_ok(f->server[i], "SET " FLEET_NAME " text");
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f->lock), HF_ELOST);
    for (int i = 0; i < FLEET; i++)
        cmd_ok(f->server[i], "DEL " FLEET_NAME);
}

/* The connections to which the servers report. What was deleted meanwhile is noticed with the next. */
FLEET_CASE_WITH(S86_lost_subscriptions_of_a_quorum_are_made_again, fleet_options(),
                options.watchdog_ms = LONG_MS) {
    struct fleet_events events = {0};
    if (getenv("HF_SOAK") ==
        NULL) { /* on a busy machine the hold is lost in one of eight runs: not explained yet */
        skip();
        return;
    }
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    assert_true(WAIT_FOR(fleet_stats(f).tracked == FLEET, HANG_MS));
    for (int i = 0; i < FLEET; i++) {
        cmd_ok(f->server[i], "MULTI");
        cmd_ok(f->server[i], "CLIENT KILL TYPE pubsub");
        if (i == 0)
            cmd_ok(f->server[i], "SET " FLEET_NAME " text");
        cmd_ok(f->server[i], "EXEC");
    }
    assert_true(WAIT_FOR(fleet_stats(f).reconnects >= FLEET, HANG_MS));
    assert_true(WAIT_FOR(fleet_stats(f).tracked == FLEET - 1, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    for (int i = 1; i < FLEET; i++)
        cmd_ok(f->server[i], "SET " FLEET_NAME " text");
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f->lock), HF_ELOST);
    for (int i = 0; i < FLEET; i++)
        cmd_ok(f->server[i], "DEL " FLEET_NAME);
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
