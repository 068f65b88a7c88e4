/* Servers whose clock is stepped, by a library that is preloaded into them (tests/support/clock). Leases run
 * by the time of day, and `not-after` is compared with it; the client's own times are of another clock. */
#include "joint/fleet.h"
#include "support/step.h"

#define HOUR_MS 3600000

static bool can_step;

static int start(void **state) {
    can_step = step_preload(HF_TEST_STEPPED_CLOCK);
    fleet_start_servers(state);
    return 0;
}

static void begin(struct fleet *f, struct fleet_events *events) {
    if (!can_step) {
        print_message("the clock of this server cannot be stepped: skipped\n");
        skip();
    }
    hf_options options = fleet_options();
    options.watchdog_ms = 9000;
    fleet_begin(f, &options);
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, events), HF_OK);
}

static void finish(struct fleet *f) {
    for (int i = 0; i < FLEET; i++)
        step_clock(f->server[i], 0);
    fleet_end(f);
}

static void pair(struct fleet *f) {
    assert_int_equal(hf_lock_acquire_for(f->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
}

/* `not-after` of the next command is an hour too late, or an hour too early. */
CASE(stepped_while_free) {
    OWN(finish) struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    const int64_t steps_ms[] = {-HOUR_MS, 0, HOUR_MS, -HOUR_MS};
    for (size_t k = 0; k < sizeof steps_ms / sizeof steps_ms[0]; k++) {
        for (int i = 0; i < FLEET; i++)
            step_clock(f.server[i], steps_ms[k]);
        pair(&f);
        pair(&f);
    }
}

/* It is over there at once, and nothing is lost: the others have it, and that one gets it again. */
CASE(one_ahead_while_held) {
    OWN(finish) struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    assert_true(fleet_wait_renewed(&f, 2, HANG_MS)); /* the last to join count in full by now */
    step_clock(f.server[0], HOUR_MS);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(hf_lock_try(f.rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_true(fleet_wait_free(&f, HANG_MS));
}

/* Its lease there is an hour longer, which is nobody's loss while the holder lives. */
CASE(all_back_while_held) {
    OWN(finish) struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    for (int i = 0; i < FLEET; i++)
        step_clock(f.server[i], -HOUR_MS);
    assert_int_equal(hf_lock_extend(f.lock, 9000), HF_OK);
    assert_int_equal(hf_lock_try(f.rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_true(fleet_wait_free(&f, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    pair(&f);
}

/* Beyond what can be promised (docs/guarantees.md), but the holder is notified, and soon. */
CASE(a_majority_ahead_is_lost) {
    OWN(finish) struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    for (int i = 0; i < MAJORITY; i++)
        step_clock(f.server[i], HOUR_MS);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f.lock), HF_ELOST);
    assert_int_equal(hf_lock_acquire_for(f.rival_lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(f.rival_lock), HF_OK);
}

/* By its clock it will be started in an hour: that says nothing about when it was. */
CASE(one_that_is_back_comes_of_age) {
    OWN(finish) struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    for (int i = 0; i < FLEET; i++)
        step_clock(f.server[i], -HOUR_MS);
    hf_options options = fleet_options();
    options.restart_guard_ms = 3000;
    own_client *client = made(hf_open, f.urls, &options);
    own_lock *lock = made(hf_lock_new, client, FLEET_NAME);
    assert_int_equal(hf_lock_acquire_for(lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* Ahead, behind, and by little: each lease is measured where it is given. One of them restarts
 * without its data. The holder keeps its majority and gets that one again, and no other client is
 * let in by it. */
CASE(clocks_differ_and_one_restarts) {
    OWN(finish) struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    static const int64_t steps_ms[FLEET] = {-HOUR_MS, HOUR_MS, 0, -60000, 60000};
    for (int i = 0; i < FLEET; i++)
        step_clock(f.server[i], steps_ms[i]);
    pair(&f);
    for (int gone = 0; gone < FLEET; gone++) {
        assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
        assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
        assert_true(fleet_wait_renewed(&f, 2, HANG_MS)); /* the last to join count in full by now */
        server_restart(f.server[gone]);
        step_clock(f.server[gone], steps_ms[gone]);
        assert_int_not_equal(hf_lock_try(f.rival_lock), HF_OK);
        assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
        assert_int_equal(hf_lock_try(f.rival_lock), HF_EBUSY);
        assert_int_equal(atomic_load(&events.losses), 0);
        assert_int_equal(hf_lock_release(f.lock), HF_OK);
        assert_true(fleet_wait_free(&f, HANG_MS));
    }
}

RUN_CASES(start, fleet_stop_servers)
