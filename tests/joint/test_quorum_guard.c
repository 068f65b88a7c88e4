/*
 * Servers that forget, and what is left of a hold then: a vote counts for no longer than the
 * restart guard after its last proof; a server that took the place of another behind one address
 * has no vote before the guard is over; and those that granted a hold after its majority make up
 * for one that restarted.
 */
#include "joint/fleet.h"

#define GUARD_MS 4000

static hf_options guarded(void) {
    hf_options options = fleet_options();
    options.restart_guard_ms = options.watchdog_ms = GUARD_MS;
    return options;
}

static bool is_of_age(void *server) {
    own_text *info = cmd_str(server, "INFO server");
    const char *up = strstr(info, "uptime_in_seconds:");
    return up != NULL && atoi(up + strlen("uptime_in_seconds:")) >= GUARD_MS / 1000 + 2;
}

/* A client that connects from now on counts on all of them. */
static void begin(struct fleet *f, struct fleet_events *events) {
    hf_options options = guarded();
    fleet_begin(f, &options);
    for (int i = 0; i < FLEET; i++)
        assert_true(wait_until(is_of_age, f->server[i], HANG_MS));
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, events), HF_OK);
}

/* ---- Leases that are longer than the guard ---- */

CASE(a_long_lease_is_proved_again_and_again) {
    OWN(fleet_end) struct fleet f;
    enum { LEASE_MS = 3 * GUARD_MS };
    struct fleet_events events = {0};
    begin(&f, &events);
    hf_acquire_options leased = fleet_wait_for(HF_FOREVER, LEASE_MS);
    hf_result result = HF_RESULT_INIT;
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_with(f.lock, &leased, &result), HF_OK);
    int64_t held_ms = now_ms(), lost_ms;
    assert_true(result.remaining_ms > 0 && result.remaining_ms < GUARD_MS);
    while (hf_lock_remaining_ms(f.lock) > 0) {
        assert_true(hf_lock_remaining_ms(f.lock) < GUARD_MS);
        (void)wait_a_moment();
    }
    lost_ms = now_ms();
    assert_true(lost_ms - start_ms > LEASE_MS * 19 / 20);
    assert_true(lost_ms - held_ms <= LEASE_MS + 1000);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f.lock), HF_ELOST);
    assert_true(fleet_wait_free(&f, HANG_MS));

    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    assert_int_equal(hf_lock_extend(f.lock, LEASE_MS), HF_OK);
    assert_true(hf_lock_remaining_ms(f.lock) > 0 && hf_lock_remaining_ms(f.lock) < GUARD_MS);
    assert_int_equal(hf_lock_acquire_with(f.lock, &leased, &result), HF_OK);
    assert_true(result.remaining_ms > 0 && result.remaining_ms < GUARD_MS);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
}

/* Three of five have granted it, for a long time. One of them restarts without its data, out of the holder's reach, and
 * votes for another as soon as it may. */
CASE(nothing_remains_when_a_restarted_server_votes) {
    OWN(fleet_end) struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    hf_options options = guarded();
    own_client *rival = made(hf_open, f.direct_urls, &options);
    own_lock *rival_lock = made(hf_lock_new, rival, FLEET_NAME);
    fleet_occupy(&f, 3);
    fleet_occupy(&f, 4);
    hf_acquire_options leased = fleet_wait_for(HF_FOREVER, 60000);
    assert_int_equal(hf_lock_acquire_with(f.lock, &leased, NULL), HF_OK);
    for (int i = 0; i < FLEET; i++)
        proxy_blackhole(f.proxy[i], true, true);
    fleet_vacate(&f, 3);
    fleet_vacate(&f, 4);
    server_restart(f.server[2]);
    int err = HF_EBUSY;
    int64_t left_ms = 0;
    for (int64_t end_ms = now_ms() + HANG_MS; err != HF_OK && now_ms() < end_ms;) {
        err = hf_lock_try(rival_lock);
        left_ms = hf_lock_remaining_ms(f.lock);
    }
    assert_int_equal(err, HF_OK);
    assert_int_equal(left_ms, 0);
    for (int i = 0; i < FLEET; i++)
        proxy_heal(f.proxy[i]);
    assert_int_equal(hf_lock_release(rival_lock), HF_OK);
}

/* ---- A failover behind one address ---- */

CASE(a_server_in_the_place_of_another_has_no_vote) {
    struct fleet f;
    struct fleet_events events = {0};
    struct server *others[MAJORITY];
    for (int i = 0; i < MAJORITY; i++)
        others[i] = server_start(NULL);
    begin(&f, &events);
    for (int i = 0; i < MAJORITY; i++)
        assert_true(wait_until(is_of_age, others[i], HANG_MS));
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK); /* all are known */
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    int64_t start_ms = now_ms();
    for (int i = 0; i < MAJORITY; i++) {
        proxy_lead_to(f.proxy[i], server_socket(others[i]));
        assert_true(proxy_cut_all(f.proxy[i]) > 0);
    }
    assert_int_equal(hf_lock_try(f.lock), HF_ENOQUORUM);
    assert_non_null(strstr(hf_last_error()->text, "started "));
    assert_int_equal(hf_lock_acquire_for(f.lock, HANG_MS), HF_OK);
    assert_true(now_ms() - start_ms >= GUARD_MS);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    fleet_end(&f);
    for (int i = 0; i < MAJORITY; i++)
        server_free(others[i]);
}

/* ---- Grants that come after the majority ---- */

CASE(late_grants_make_up_for_a_restart) {
    OWN(fleet_end) struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    for (int gone = 0; gone < 2; gone++) {
        for (int i = MAJORITY; i < FLEET; i++)
            proxy_delay(f.proxy[i], FLEET_ACQUIRE, 100);
        assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
        assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
        for (int i = MAJORITY; i < FLEET; i++)
            assert_true(proxy_wait_answered(f.proxy[i], HANG_MS));
        server_restart(f.server[gone]);
        assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
        assert_true(hf_lock_remaining_ms(f.lock) > 0);
        assert_int_equal(atomic_load(&events.losses), 0);
        assert_int_equal(hf_lock_release(f.lock), HF_OK);
        assert_true(fleet_wait_free(&f, HANG_MS));
        for (int i = MAJORITY; i < FLEET; i++)
            proxy_heal(f.proxy[i]);
    }
}

/* Two of five, before the first renewal: the other three have it without a break, and the two have
 * no vote for another. */
CASE(two_restarts_at_once_are_made_up_for) {
    OWN(fleet_end) struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    for (int i = MAJORITY; i < FLEET; i++)
        proxy_delay(f.proxy[i], FLEET_ACQUIRE, 100);
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    for (int i = MAJORITY; i < FLEET; i++)
        assert_true(proxy_wait_answered(f.proxy[i], HANG_MS));
    server_kill(f.server[0]);
    server_kill(f.server[1]);
    server_restart(f.server[0]);
    server_restart(f.server[1]);
    assert_int_equal(hf_lock_try(f.rival_lock), HF_EBUSY);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS)); /* both are refilled */
    assert_true(hf_lock_remaining_ms(f.lock) > 0);
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_true(fleet_wait_free(&f, HANG_MS));
}

static bool is_refilled(void *arg) {
    struct fleet *f = arg;
    return cmd_int(f->server[1], "HEXISTS " FLEET_NAME " %s", f->owner) == 1;
}

/* At one server the key becomes something else, and another restarts without its data: three are a majority. When two
 * of them lose it, they are none. All five have proved the hold before: a server that loses the key right after the
 * grant may have done so before the last ones granted it, and then it is lost. */
CASE(a_restart_beside_an_overwritten_key) {
    OWN(fleet_end) struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    assert_true(fleet_wait_renewed(&f, 2, HANG_MS));
    cmd_ok(f.server[0], "SET " FLEET_NAME " text");
    server_restart(f.server[1]);
    assert_true(wait_until(is_refilled, &f, HANG_MS));
    assert_true(hf_lock_remaining_ms(f.lock) > 0);
    assert_int_equal(atomic_load(&events.losses), 0);
    cmd_ok(f.server[2], "DEL " FLEET_NAME);
    cmd_ok(f.server[3], "DEL " FLEET_NAME);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f.lock), HF_ELOST);
    cmd_ok(f.server[0], "DEL " FLEET_NAME);
    assert_true(fleet_wait_free(&f, HANG_MS));
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
