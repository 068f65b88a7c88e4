/* A quorum client that is closed in the middle of something: the call ends with HF_ECLOSED or with what it
 * had reached, hf_close() returns, and nothing of an acquire that was not granted is left behind. */
#include "joint/fleet.h"

/* A client of its own, through the proxies, that is closed. */
struct victim {
    hf_client *client;
    hf_lock *lock;
};

static hf_options short_exchanges(void) {
    hf_options options = fleet_options();
    options.cmd_timeout_ms = 2000;
    return options;
}

/* Where all are silent when it is closed: it must not have given them up before, and have asked again. */
static hf_options long_exchanges(void) {
    hf_options options = fleet_options();
    options.cmd_timeout_ms = 10000;
    return options;
}

static void open_victim(struct fleet *f, struct victim *victim, const hf_options *options) {
    assert_int_equal(hf_open(f->urls, options, &victim->client), HF_OK);
    assert_int_equal(hf_lock_new(victim->client, FLEET_NAME, &victim->lock), HF_OK);
}

static void close_victim(struct victim *victim) {
    assert_int_equal(hf_close(victim->client), HF_OK);
}

static void end_call(struct victim *victim, struct fleet_caller *caller) {
    close_victim(victim);
    assert_int_equal(fleet_join(caller), HF_ECLOSED);
    hf_lock_free(victim->lock);
}

static bool is_locked_everywhere(void *arg) {
    return fleet_locked(arg) == FLEET;
}

static bool all_are_held_back(void *arg) {
    struct fleet *f = arg;
    size_t count = 0;
    for (int i = 0; i < FLEET; i++)
        count += proxy_held(f->proxy[i]) > 0;
    return count == FLEET;
}

static void stall_all(struct fleet *f, const char *script) {
    for (int i = 0; i < FLEET; i++)
        proxy_stall_request(f->proxy[i], script);
}

static void let_all_go(struct fleet *f) {
    for (int i = 0; i < FLEET; i++) {
        proxy_release_held(f->proxy[i]);
        proxy_heal(f->proxy[i]);
    }
}

/* ---- Acquires ---- */

CASE(while_it_asks) {
    OWN(fleet_end) struct fleet f;
    struct victim victim;
    struct fleet_caller caller;
    hf_options options = long_exchanges();
    fleet_begin(&f, &options);
    open_victim(&f, &victim, &options);
    stall_all(&f, FLEET_ACQUIRE);
    fleet_call_acquire(&caller, victim.lock, fleet_wait_for(HF_FOREVER, 60000));
    assert_true(wait_until(all_are_held_back, &f, HANG_MS));
    end_call(&victim, &caller);
    let_all_go(&f);
    /* nobody waits for a lease of a minute: what came late did nothing, or was taken back */
    assert_int_equal(hf_lock_acquire_for(f.rival_lock, 30000), HF_OK);
    assert_int_equal(hf_lock_release(f.rival_lock), HF_OK);
}

/* Another owner holds three servers. In two of five cases one of the others is the first in the
 * order of the name: then the grants are kept for a moment, given back, and all servers are asked
 * again. */
CASE(while_it_keeps_and_gives_back) {
    OWN(fleet_end) struct fleet f;
    hf_options options = short_exchanges();
    fleet_begin(&f, &options);
    for (int k = 0; k < 2 * FLEET; k++) {
        struct victim victim;
        struct fleet_caller caller;
        for (int i = 0; i < MAJORITY; i++)
            fleet_occupy(&f, (k + i) % FLEET);
        open_victim(&f, &victim, &options);
        assert_int_equal(hf_lock_try(victim.lock), HF_EBUSY);
        fleet_call_acquire(&caller, victim.lock, fleet_wait_for(HF_FOREVER, 60000));
        linger(3 * k); /* somewhere in it: each time a little later */
        end_call(&victim, &caller);
        for (int i = 0; i < MAJORITY; i++)
            fleet_vacate(&f, (k + i) % FLEET);
        assert_true(fleet_wait_free(&f, 30000));
    }
}

CASE(while_too_few_are_there) {
    OWN(fleet_end) struct fleet f;
    struct victim victim;
    struct fleet_caller caller;
    hf_options options = short_exchanges();
    fleet_begin(&f, &options);
    for (int i = 0; i < MAJORITY; i++)
        server_kill(f.server[i]);
    open_victim(&f, &victim, &options);
    assert_int_equal(hf_lock_try(victim.lock), HF_ENOQUORUM);
    fleet_call_acquire(&caller, victim.lock, fleet_wait_for(HF_FOREVER, 60000));
    assert_true(HOLDS_FOR(!atomic_load(&caller.done), 150)); /* it asks, and pauses */
    end_call(&victim, &caller);
    assert_true(fleet_wait_free(&f, 30000));
}

CASE(while_servers_come_of_age) {
    OWN(fleet_end) struct fleet f;
    struct victim victim;
    struct fleet_caller caller;
    hf_options options = short_exchanges();
    fleet_begin(&f, &options);
    for (int i = 0; i < FLEET; i++)
        server_restart(f.server[i]);
    options.restart_guard_ms = 3600000;
    open_victim(&f, &victim, &options);
    fleet_call_acquire(&caller, victim.lock, fleet_wait_for(HF_FOREVER, 60000));
    assert_true(wait_until(is_locked_everywhere, &f, HANG_MS));
    end_call(&victim, &caller);
    assert_true(fleet_wait_free(&f, 30000));
}

/* ---- Holds ---- */

static void begin_held(struct fleet *f, struct victim *victim, const hf_options *options) {
    fleet_begin(f, options);
    open_victim(f, victim, options);
    assert_int_equal(hf_lock_acquire(victim->lock), HF_OK);
    assert_true(wait_until(is_locked_everywhere, f, HANG_MS));
}

/* Holds are not released: the work that they protect may still be going on. A member whose answer is still on its
 * way when the client is closed does not belong to the hold yet, and is given back. */
CASE(while_it_holds) {
    OWN(fleet_end) struct fleet f;
    struct victim victim;
    hf_options options = short_exchanges();
    begin_held(&f, &victim, &options);
    close_victim(&victim);
    hf_lock_free(victim.lock);
    assert_true(fleet_locked(&f) > FLEET / 2);
    assert_int_equal(hf_lock_try(f.rival_lock), HF_EBUSY);
}

CASE(while_it_renews) {
    OWN(fleet_end) struct fleet f;
    struct victim victim;
    hf_options options = short_exchanges();
    options.watchdog_ms = 6000;
    begin_held(&f, &victim, &options);
    stall_all(&f, FLEET_RENEW);
    assert_true(wait_until(all_are_held_back, &f, HANG_MS));
    close_victim(&victim);
    hf_lock_free(victim.lock);
    let_all_go(&f);
    assert_int_equal(hf_lock_acquire_for(f.rival_lock, HANG_MS), HF_OK); /* its lease is over */
    assert_int_equal(hf_lock_release(f.rival_lock), HF_OK);
}

static void released(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    atomic_store((atomic_int *)user, result->code == HF_OK ? 1 : result->code);
}

CASE(while_it_releases) {
    OWN(fleet_end) struct fleet f;
    struct victim victim;
    hf_options options = long_exchanges();
    atomic_int outcome = 0;
    begin_held(&f, &victim, &options);
    stall_all(&f, FLEET_RELEASE);
    assert_int_equal(hf_lock_release_start(victim.lock, hf_owner_self(), released, &outcome, NULL),
                     HF_OK);
    assert_true(wait_until(all_are_held_back, &f, HANG_MS));
    close_victim(&victim);
    hf_lock_free(victim.lock);
    int code = atomic_load(&outcome); /* callbacks run before hf_close() returns */
    assert_true(code == HF_ECLOSED || code == HF_EINDOUBT);
    let_all_go(&f);
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
