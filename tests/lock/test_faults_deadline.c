/*
 * R01: no call overruns its wait plus one exchange, whatever the network or the server does.
 *
 * Every test has a server of its own, since it does not survive. Lower bounds are exact; the upper
 * ones (SLACK_MS on top of what is allowed) are hang limits for a loaded machine and not a speed.
 */
#include "lock/own_server.h"

/* ---- Deadlines ---- */

/* Is this an error that says the server is to blame, and not another holder? */
static void assert_no_server(int err) {
    if (err != HF_EUNREACH)
        fail_msg("%s", hf_error_name(err));
}

/* Every verb, while the network is as it is: nothing overruns. */
static void no_verb_overruns(struct world *w, bool refused) {
    bool flag;
    int64_t number, start_ms = now_ms();
    int err = hf_lock_try(w->lock);
    assert_int_not_equal(err, HF_EBUSY);
    assert_no_server(err);
    assert_true(now_ms() - start_ms < CMD_MS + SLACK_MS);
    if (!refused)
        assert_true(now_ms() - start_ms >= CMD_MS);

    start_ms = now_ms();
    err = hf_lock_acquire_for(w->lock, 300);
    assert_no_server(err);
    assert_true(now_ms() - start_ms >= (refused ? 0 : 300));
    assert_true(now_ms() - start_ms < 300 + CMD_MS + SLACK_MS);

    start_ms = now_ms();
    assert_int_equal(hf_lock_is_locked(w->lock, &flag), HF_EUNREACH);
    assert_int_equal(hf_lock_ttl_ms(w->lock, &number), HF_EUNREACH);
    assert_int_equal(hf_ping(w->client), HF_EUNREACH);
    assert_true(now_ms() - start_ms < 3 * CMD_MS + SLACK_MS);
}

SERVER_CASE(R01_black_hole_to_server, 60000) {
    proxy_blackhole(w->proxy, true, false);
    no_verb_overruns(w, false);
    proxy_heal(w->proxy);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(hf_lock_acquire_for(w->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

SERVER_CASE(R01_black_hole_to_client, 60000) {
    proxy_blackhole(w->proxy, false, true);
    no_verb_overruns(w, false);
    proxy_heal(w->proxy);
    assert_true(world_wait_free(w, HANG_MS)); /* what ran unheard of is undone */
    assert_int_equal(hf_lock_acquire_for(w->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

SERVER_CASE(R01_frozen_server, 60000) {
    server_freeze(w->server);
    no_verb_overruns(w, false);
    server_unfreeze(w->server);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(hf_lock_acquire_for(w->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

static bool answers(void *client) {
    return hf_ping(client) == HF_OK;
}

/* One that has just come may need more time than an exchange has here. */
static void restart(struct world *w) {
    server_restart(w->server);
    assert_true(wait_until(answers, w->client, HANG_MS));
    assert_true(wait_until(answers, w->rival, HANG_MS));
}

CASE_IN(C004_server_stopped_is_an_error, struct world, w, begin, end,
        &(struct server_options){.aof = true}, 60000) {
    server_stop(w->server);
    assert_int_equal(hf_lock_try(w->lock), HF_EUNREACH);
    assert_int_equal(hf_lock_acquire_for(w->lock, 400), HF_EUNREACH);
    assert_int_equal(hf_last_error()->code, HF_EUNREACH);
    assert_true(hf_last_error()->text[0] != '\0' && hf_last_error()->node[0] != '\0');
    no_verb_overruns(w, true);
    restart(w);
    assert_int_equal(hf_lock_acquire_for(w->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

SERVER_CASE(R01_waiting_for_ever_ends_without_a_server, 60000) {
    struct world_caller first, waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG)); /* asleep */
    assert_true(proxy_wait_seen(w->proxy, world_listens(w), 1, HANG_MS));
    int64_t start_ms = now_ms();
    proxy_blackhole(w->proxy, true, true);
    own_lock *other = made(hf_lock_new, w->client, "another");
    world_call_acquire(&first, other, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(world_join(&first), HF_EUNREACH);
    assert_true(now_ms() - start_ms >= CONNECT_MS - CMD_MS); /* counted from the last answer */
    assert_int_equal(world_join(&waiter), HF_EUNREACH);
    assert_true(now_ms() - start_ms < CONNECT_MS + 12000 + SLACK_MS);
    proxy_heal(w->proxy);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_true(world_wait_free(w, HANG_MS));
}

/* Somebody who waits for ever survives a server that comes back in time. */
CASE(R01_waiting_for_ever_survives_a_restart) {
    OWN(end) struct world w;
    struct world_caller waiter;
    hf_options options = options_of(60000);
    options.connect_timeout_ms = HANG_MS;
    world_begin_on(&w, server_start(&(struct server_options){.aof = true}), &options);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    world_call_acquire(&waiter, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w.proxy, world_listens(&w), 1, HANG_MS));
    restart(&w);
    assert_false(atomic_load(&waiter.done));
    assert_int_equal(world_count(&w, w.rival_owner), 1);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK); /* well before the 60 s lease would end */
    assert_true(waiter.took_ms < 20000);
    assert_int_equal(hf_lock_release_as(w.lock, waiter.owner), HF_OK);
}

/* Closing waits for no timer and no network, however shortly after whatever. */
SERVER_CASE(R01_close_does_not_wait, 60000) {
    for (int i = 0; i < 300; i++) {
        hf_options options = options_of(60000);
        options.ping_interval_ms = 24 * 3600 * 1000;
        hf_client *client = made(hf_open, proxy_url(w->proxy), &options);
        hf_lock *lock = made(hf_lock_new, client, "short");
        if (i % 3 > 0)
            assert_int_equal(hf_lock_is_locked(lock, &(bool){false}), HF_OK);
        if (i % 3 > 1)
            assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, NULL, NULL), HF_OK);
        int64_t start_ms = now_ms();
        hf_lock_free(lock);
        assert_int_equal(hf_close(client), HF_OK);
        assert_true(now_ms() - start_ms < SLACK_MS);
        server_drop(w->server, "short");
    }
}

SERVER_CASE(U03_waits_at_the_edges, 60000) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    size_t subscribes = proxy_seen(w->proxy, world_listens(w));
    assert_int_equal(hf_lock_try(w->lock), HF_EBUSY);
    assert_int_equal(proxy_seen(w->proxy, world_listens(w)), subscribes);
    assert_int_equal(hf_lock_acquire_for(w->lock, -2), HF_EINVAL);
    assert_int_equal(hf_lock_acquire_for(w->lock, INT64_MIN), HF_EINVAL);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_for(w->lock, 1), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= 1);
    start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_for(w->lock, 250), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= 250);

    const int64_t far[] = {INT64_MAX, INT64_MAX - 1, INT64_MAX / 2};
    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
        size_t seen = proxy_seen(w->proxy, world_acquires(w));
        world_call_acquire(&waiter, w->lock, world_wait_for(far[i], HF_WATCHDOG));
        assert_true(proxy_wait_seen(w->proxy, world_acquires(w), seen + 1, HANG_MS));
        assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
        assert_int_equal(world_join(&waiter), HF_OK);
        assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
        assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    }
}

RUN_CASES(NULL, NULL)
