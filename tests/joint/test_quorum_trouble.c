/* More that goes wrong with a quorum: a thread that ends while it holds one, renewals whose replies are lost,
 * a lock that is free everywhere but where we wait. */
#include "joint/fleet.h"

/* ---- A thread that ends ---- */

struct notified {
    atomic_int orphans, losses;
};

static void on_event(hf_lock *lock, const hf_event *event, void *arg) {
    struct notified *notified = arg;
    (void)lock;
    if (event->kind == HF_EVENT_ORPHANED)
        atomic_fetch_add(&notified->orphans, 1);
    else if (event->kind == HF_EVENT_LOST)
        atomic_fetch_add(&notified->losses, 1);
}

static void *acquire_and_end(void *lock) {
    return hf_lock_acquire(lock) == HF_OK ? lock : NULL;
}

/* It is not renewed any more, and is over everywhere when its lease is. */
FLEET_CASE_WITH(the_hold_of_an_ended_thread_ends, fleet_options(), options.watchdog_ms = 4500) {
    struct notified notified = {0};
    void *held;
    assert_int_equal(hf_lock_on_lost(f->lock, on_event, &notified), HF_OK);
    pthread_t thread = started(acquire_and_end, f->lock);
    pthread_join(thread, &held);
    assert_non_null(held);
    assert_true(fleet_wait_atomic(&notified.orphans, 1, HANG_MS));
    assert_int_equal(hf_lock_acquire_for(f->rival_lock, HANG_MS), HF_OK);
    assert_true(fleet_wait_atomic(&notified.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f->rival_lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
}

/* ---- Renewals ---- */

static size_t fired(struct fleet *f) {
    size_t count = 0;
    for (int i = 0; i < FLEET; i++)
        count += proxy_fired(f->proxy[i]);
    return count;
}

static bool all_fired(void *arg) {
    return fired(arg) >= FLEET;
}

static void begin_held(struct fleet *f, struct fleet_events *events) {
    hf_options options = fleet_options();
    options.watchdog_ms = 9000;
    fleet_begin(f, &options);
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, events), HF_OK);
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    assert_true(fleet_wait_held(f, f->owner, FLEET, HANG_MS));
}

static void end_held(struct fleet *f, struct fleet_events *events) {
    assert_true(fleet_wait_renewed(f, 1, HANG_MS));
    assert_int_equal(atomic_load(&events->losses), 0);
    assert_true(fleet_wait_held(f, f->owner, FLEET, HANG_MS));
    assert_int_equal(hf_lock_try(f->rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
    fleet_end(f);
}

CASE(a_renewal_loses_one_reply) {
    struct fleet f;
    struct fleet_events events = {0};
    begin_held(&f, &events);
    for (int i = 0; i < FLEET; i++) {
        proxy_drop_replies_after(f.proxy[i], FLEET_RENEW);
        assert_true(proxy_wait_fired(f.proxy[i], 1, HANG_MS));
    }
    end_held(&f, &events);
}

CASE(a_renewal_loses_all_replies) {
    struct fleet f;
    struct fleet_events events = {0};
    begin_held(&f, &events);
    for (int i = 0; i < FLEET; i++)
        proxy_drop_replies_after(f.proxy[i], FLEET_RENEW);
    assert_true(wait_until(all_fired, &f, HANG_MS));
    end_held(&f, &events);
}

FLEET_CASE(extend_loses_all_replies) {
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    assert_true(fleet_wait_held(f, f->owner, FLEET, HANG_MS));
    for (int i = 0; i < FLEET; i++)
        proxy_drop_replies_after(f->proxy[i], FLEET_RENEW);
    assert_int_equal(hf_lock_extend(f->lock, 60000), HF_OK);
    for (int i = 0; i < FLEET; i++)
        proxy_heal(f->proxy[i]);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
}

/* ---- Where nobody waits ---- */

static long long listeners(struct server *server) {
    return cmd_int(server, "EVAL %s 0",
                   "return redis.call('pubsub', 'numsub', 'redisson_lock__channel:{" FLEET_NAME
                   "}')[2]");
}

static int waiting_place(struct fleet *f) {
    for (int i = 0; i < FLEET; i++)
        if (listeners(f->server[i]) > 0)
            return i;
    return -1;
}

/* Where it was found: a waiter goes elsewhere now and then, and is at none of them for a moment. */
struct place {
    struct fleet *fleet;
    int server;
};

static bool waits_somewhere(void *arg) {
    struct place *place = arg;
    place->server = waiting_place(place->fleet);
    return place->server >= 0;
}

/* Somebody died and left one server behind, where we wait; nobody tells that the others are free. */
FLEET_CASE(found_free_elsewhere) {
    struct fleet_caller caller;
    for (int i = 0; i < FLEET; i++) {
        fleet_occupy(f, i);
        cmd_ok(f->server[i], "PERSIST %s", FLEET_NAME);
    }
    fleet_call_acquire(&caller, f->lock, fleet_wait_for(HF_FOREVER, 60000));
    struct place place = {.fleet = f};
    assert_true(wait_until(waits_somewhere, &place, HANG_MS));
    for (int i = 0; i < FLEET; i++)
        if (i != place.server)
            cmd_ok(f->server[i], "DEL %s", FLEET_NAME);
    assert_int_equal(fleet_join(&caller), HF_OK);
    assert_int_equal(cmd_int(f->server[place.server], "HEXISTS %s another:1", FLEET_NAME), 1);
    cmd_ok(f->server[place.server], "DEL %s", FLEET_NAME);
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
