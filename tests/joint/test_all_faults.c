/* One lock out of many when something is wrong with one of them: a server that is down, slow, silent or
 * refuses; a member that is lost, broken, released behind its back or runs out; replies that are lost.
 * U76. */
#include "joint/pack.h"

#include <poll.h>

/* Holds that are renewed often, so that a loss is noticed soon, and a lease ends soon. */
static hf_options restless(void) {
    hf_options options = pack_options();
    options.watchdog_ms = ENDURING_MS;
    return options;
}

/* Where one does not answer, and how long it is waited for is how long the test takes; the others
 * have answered by then. */
#define SILENT_MS 3000

/* ---- Servers ---- */

CASE(U76_one_is_down) {
    for (int i = 0; i < PACK; i++) {
        struct pack p;
        struct fleet_caller caller;
        hf_options options = pack_options();
        options.cmd_timeout_ms = SILENT_MS;
        pack_begin(&p, &options);
        proxy_cut_all(p.proxy[i]);
        proxy_refuse(p.proxy[i], true);
        assert_int_equal(hf_lock_try(p.all), HF_EUNREACH);
        assert_int_equal(hf_last_error()->text[1], pack_names[i][0]);
        assert_string_not_equal(hf_last_error()->node, "");
        assert_true(pack_wait_free(&p, HANG_MS));
        fleet_call_acquire(&caller, p.all, fleet_wait_for(HANG_MS, 60000));
        assert_true(pack_wait_free(&p, HANG_MS));
        proxy_heal(p.proxy[i]);
        assert_int_equal(fleet_join(&caller), HF_OK);
        assert_int_equal(pack_locked(&p), PACK);
        pack_end_anyhow(&p);
    }
}

PACK_CASE(U76_one_is_slow) {
    proxy_delay(p->proxy[1], "", 200);
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    assert_int_equal(pack_held(p), PACK);
    assert_int_equal(hf_lock_release(p->all), HF_OK);
    assert_int_equal(pack_locked(p), 0);
}

/* A wait that is shorter than an answer takes: it is busy or not, and no fault of the servers. */
PACK_CASE(short_wait_has_one_exchange) {
    for (int i = 0; i < PACK; i++)
        proxy_delay(p->proxy[i], "", 200);
    assert_int_equal(hf_lock_acquire_for(p->all, 20), HF_OK);
    assert_int_equal(hf_lock_release(p->all), HF_OK);
    pack_occupy(p, 1);
    assert_int_equal(hf_lock_acquire_for(p->all, 20), HF_ETIMEDOUT);
    pack_vacate(p, 1);
    assert_true(pack_wait_free(p, HANG_MS));
}

/* An answer that no waiting helps against: everything is given back, whatever else was granted. */
PACK_CASE(U76_one_refuses) {
    static const struct {
        const char *answer;
        int err;
    } answers[] = {{"-NOPERM this user has no permissions\r\n", HF_EPERM},
                   {"-OOM command not allowed\r\n", HF_EOOM}};
    for (size_t a = 0; a < sizeof answers / sizeof answers[0]; a++) {
        for (int i = 0; i < PACK; i++) {
            proxy_answer_instead(p->proxy[i], FLEET_ACQUIRE, answers[a].answer,
                                 strlen(answers[a].answer));
            assert_int_equal(hf_lock_acquire_for(p->all, HANG_MS), answers[a].err);
            assert_int_equal(hf_last_error()->text[1], pack_names[i][0]);
            assert_int_equal(pack_locked(p), 0);
        }
    }
}

/* Its server is loading: that ends, and is waited out. */
PACK_CASE(one_is_loading) {
    static const char loading[] = "-LOADING the dataset\r\n";
    proxy_answer_instead(p->proxy[1], FLEET_ACQUIRE, loading, strlen(loading));
    assert_int_equal(hf_lock_acquire_for(p->all, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(p->all), HF_OK);
}

PACK_CASE(one_is_something_else) {
    cmd_ok(p->server[1], "SET b something");
    assert_int_equal(hf_lock_acquire(p->all), HF_EWRONGTYPE);
    assert_int_equal(pack_locked(p), 1);
    cmd_ok(p->server[1], "DEL b");
}

/* It takes commands and answers nothing: what it may have granted is given back when it is heard again. */
CASE(one_is_silent) {
    for (int i = 0; i < PACK; i++) {
        struct pack p;
        hf_options options = pack_options();
        options.cmd_timeout_ms = SILENT_MS;
        options.watchdog_ms = 10 * HANG_MS; /* what is left behind does not go by itself */
        pack_begin(&p, &options);
        proxy_blackhole(p.proxy[i], false, true);
        assert_int_equal(hf_lock_try(p.all), HF_EUNREACH);
        for (int j = 0; j < PACK; j++)
            if (j != i)
                assert_int_equal(hf_lock_acquire_for(p.rival_lock[j], HANG_MS), HF_OK);
        for (int j = 0; j < PACK; j++)
            if (j != i)
                assert_int_equal(hf_lock_release(p.rival_lock[j]), HF_OK);
        assert_int_equal(hf_lock_acquire_for(p.all, 300), HF_EUNREACH);
        proxy_heal(p.proxy[i]);
        pack_end(&p);
    }
}

/* ---- Replies ---- */

CASE(replies_are_lost) {
    for (int i = 0; i < PACK; i++) {
        struct pack p;
        pack_begin(&p, NULL);
        proxy_drop_replies_after(p.proxy[i], FLEET_ACQUIRE);
        assert_int_equal(hf_lock_acquire_for(p.all, HANG_MS), HF_OK);
        assert_int_equal(proxy_fired(p.proxy[i]), 1);
        assert_int_equal(pack_held(&p), PACK);
        proxy_drop_replies_after(p.proxy[i], FLEET_RELEASE);
        assert_int_equal(hf_lock_release(p.all), HF_OK);
        assert_int_equal(proxy_fired(p.proxy[i]), 2);
        assert_int_equal(pack_locked(&p), 0);
        pack_end(&p);
    }
}

PACK_CASE_WITH(replies_to_renewals_are_lost, restless(), options.watchdog_ms = 2 * ENDURING_MS) {
    /* one renewal less is done in it */
    struct fleet_events events = {0};
    assert_int_equal(hf_lock_on_lost(p->all, fleet_on_event, &events), HF_OK);
    for (int i = 0; i < PACK; i++)
        proxy_drop_replies_after(p->proxy[i], FLEET_RENEW);
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    for (int i = 0; i < PACK; i++)
        assert_true(proxy_wait_fired(p->proxy[i], 1, HANG_MS));
    for (int i = 0; i < PACK; i++) /* and the next one came through */
        assert_true(proxy_wait_seen(p->proxy[i], FLEET_RENEW,
                                    proxy_seen(p->proxy[i], FLEET_RENEW) + 2, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_true(hf_lock_remaining_ms(p->all) > 0);
    assert_int_equal(hf_lock_release(p->all), HF_OK);
}

/* The reply to a release is lost: that is reported, and settled later. */
PACK_CASE_WITH(a_release_is_not_answered, pack_options(), options.cmd_timeout_ms = SILENT_MS) {
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    proxy_blackhole(p->proxy[1], true, true);
    assert_int_equal(hf_lock_release(p->all), HF_EINDOUBT);
    assert_int_equal(hf_last_error()->text[1], 'b');
    assert_int_equal(pack_locked(p), 1);
    assert_int_equal(hf_lock_release(p->all), HF_ENOTOWNER);
    proxy_heal(p->proxy[1]);
}

/* ---- Losses ---- */

/* It is lost, once, by all ways, and what was left of it is released. */
static void expect_loss(struct pack *p, struct fleet_events *events) {
    struct pollfd fd = {.fd = hf_lock_lost_fd(p->all), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, HANG_MS), 1);
    assert_true(fleet_wait_atomic(&events->losses, 1, HANG_MS));
    assert_int_equal(hf_lock_remaining_ms(p->all), 0);
    assert_true(pack_wait_free(p, HANG_MS));
    assert_int_equal(hf_lock_release(p->all), HF_ELOST);
    assert_int_equal(hf_lock_release(p->all), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    assert_int_equal(hf_lock_release(p->all), HF_OK);
    assert_int_equal(atomic_load(&events->losses), 1);
}

static void delete (struct pack *p, int i) {
    cmd_ok(p->server[i], "DEL %s", pack_names[i]);
}

static void break_it(struct pack *p, int i) {
    bool broken;
    assert_int_equal(hf_lock_break(p->rival_lock[i], &broken), HF_OK);
    assert_true(broken);
}

static void release_it(struct pack *p, int i) {
    assert_int_equal(hf_lock_release(p->lock[i]), HF_OK);
}

static void break_ours(struct pack *p, int i) {
    assert_int_equal(hf_lock_break(p->lock[i], NULL), HF_OK);
}

CASE(a_member_ends) {
    static void (*const ends[])(struct pack *, int) = {delete, break_it, release_it, break_ours};
    for (size_t end = 0; end < sizeof ends / sizeof ends[0]; end++) {
        struct pack p;
        struct fleet_events events = {0};
        hf_options options = restless();
        int i = (int)end % PACK;
        pack_begin(&p, &options);
        assert_int_equal(hf_lock_on_lost(p.all, fleet_on_event, &events), HF_OK);
        assert_true(hf_lock_lost_fd(p.all) >= 0);
        assert_int_equal(hf_lock_acquire(p.all), HF_OK);
        ends[end](&p, i);
        expect_loss(&p, &events);
        pack_end(&p);
    }
}

/* The next call knows, however soon it comes. */
PACK_CASE(released_right_after_a_member) {
    for (int round = 0; round < 50; round++) {
        assert_int_equal(hf_lock_acquire(p->all), HF_OK);
        assert_int_equal(hf_lock_release(p->lock[round % PACK]), HF_OK);
        assert_int_equal(hf_lock_remaining_ms(p->all), 0);
        assert_int_equal(hf_lock_release(p->all), HF_ELOST);
        assert_true(pack_wait_free(p, HANG_MS));
        assert_int_equal(hf_lock_release(p->all), HF_ENOTOWNER);
    }
}

/* However often it is nested, all of it is given back. */
/* No caller learns that it has all, if one of them is gone when the last is acquired. */
PACK_CASE(one_is_lost_before_all_are_held) {
    const hf_owner owner = 7;
    own_op *op;
    hf_result result = HF_RESULT_INIT;
    hf_acquire_options acquire = HF_ACQUIRE_OPTIONS_INIT;
    acquire.owner = owner;
    proxy_stall_request(p->proxy[2], FLEET_ACQUIRE);
    assert_int_equal(hf_lock_acquire_start(p->all, &acquire, NULL, NULL, &op), HF_OK);
    assert_true(WAIT_FOR(hf_lock_remaining_ms_as(p->lock[0], owner) != 0, HANG_MS));
    assert_true(proxy_wait_held(p->proxy[2], HANG_MS));
    break_ours(p, 0);
    proxy_release_held(p->proxy[2]);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_ETIMEDOUT);
    assert_non_null(strstr(result.error.text, "was lost before"));
}

PACK_CASE_WITH(a_nested_one_is_lost, restless()) {
    struct fleet_events events = {0};
    assert_int_equal(hf_lock_on_lost(p->all, fleet_on_event, &events), HF_OK);
    for (int times = 0; times < 3; times++)
        assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    delete (p, 2);
    expect_loss(p, &events);
}

CASE(a_lease_runs_out) {
    OWN(pack_end) struct pack p;
    struct fleet_events events = {0};
    hf_acquire_options leased = fleet_wait_for(HANG_MS, 1000);
    pack_begin(&p, NULL);
    assert_int_equal(hf_lock_on_lost(p.all, fleet_on_event, &events), HF_OK);
    assert_true(hf_lock_lost_fd(p.all) >= 0);
    int err = hf_lock_acquire_with(p.all, &leased, NULL);
    if (err == HF_OK) /* else it was over before it began */
        expect_loss(&p, &events);
    else
        assert_int_equal(err, HF_ETIMEDOUT);
}

/* One of several leases is shorter: it is the deadline of all. */
CASE(the_shortest_counts) {
    OWN(pack_end) struct pack p;
    hf_acquire_options leased = fleet_wait_for(HANG_MS, 20000);
    pack_begin(&p, NULL);
    assert_int_equal(hf_lock_acquire(p.lock[0]), HF_OK);
    assert_int_equal(hf_lock_acquire_with(p.all, &leased, NULL), HF_OK);
    assert_true(hf_lock_remaining_ms(p.lock[0]) > 20000);
    assert_true(hf_lock_remaining_ms(p.all) <= 20000);
    assert_int_equal(hf_lock_extend(p.lock[1], 60000), HF_OK);
    assert_true(hf_lock_remaining_ms(p.all) <= 20000);
    assert_int_equal(hf_lock_extend(p.lock[2], 60000), HF_OK);
    assert_true(hf_lock_remaining_ms(p.all) > 20000);
    assert_int_equal(hf_lock_release(p.all), HF_OK);
    assert_int_equal(hf_lock_release(p.lock[0]), HF_OK);
}

/* A server that is cut off: its member runs out, and with it the whole; the others are free then. */
PACK_CASE_WITH(one_is_cut_off, restless(), options.watchdog_ms = 2 * ENDURING_MS,
               options.cmd_timeout_ms = SILENT_MS) {
    /* who sleeps through half of it does not warn */
    struct fleet_events events = {0};
    assert_int_equal(hf_lock_on_lost(p->all, fleet_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    proxy_blackhole(p->proxy[1], true, true);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(atomic_load(&events.warnings) >= 1);
    assert_int_equal(hf_lock_acquire_for(p->rival_lock[0], HANG_MS), HF_OK);
    assert_int_equal(hf_lock_acquire_for(p->rival_lock[2], HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(p->rival_lock[0]), HF_OK);
    assert_int_equal(hf_lock_release(p->rival_lock[2]), HF_OK);
    proxy_heal(p->proxy[1]);
    assert_int_equal(hf_lock_release(p->all), HF_ELOST);
}

/* What the owner has of a member beside the whole is not given back with it. */
PACK_CASE_WITH(other_holds_stay, restless()) {
    struct fleet_events events = {0};
    assert_int_equal(hf_lock_on_lost(p->all, fleet_on_event, &events), HF_OK);
    for (int round = 1; round <= 20; round++) {
        assert_int_equal(hf_lock_acquire(p->all), HF_OK);
        assert_int_equal(hf_lock_release(p->lock[1]), HF_OK); /* which ends the whole */
        assert_int_equal(hf_lock_acquire(p->lock[0]), HF_OK); /* before or after it is given back */
        assert_true(fleet_wait_atomic(&events.losses, round, HANG_MS));
        assert_true(pack_wait_locked(p, 1, HANG_MS));
        assert_int_equal(hf_lock_release(p->all), HF_ELOST);
        assert_int_equal(hf_lock_release(p->lock[0]), HF_OK);
        assert_int_equal(hf_lock_release(p->lock[0]), HF_ENOTOWNER);
    }
}

/* ---- A quorum as a member ---- */

CASE(with_a_quorum) {
    OWN(pack_end_anyhow) struct pack p;
    struct fleet_events events = {0};
    hf_options options = restless();
    hf_lock *voted, *lone;
    char urls[1024];
    pack_begin(&p, &options);
    snprintf(urls, sizeof urls, "%s %s %s", proxy_url(p.proxy[0]), proxy_url(p.proxy[1]),
             proxy_url(p.proxy[2]));
    options.restart_guard_ms = 0;
    hf_client *quorum = made(hf_open, urls, &options);
    assert_int_equal(hf_lock_new(quorum, "voted", &voted), HF_OK);
    assert_int_equal(hf_lock_new(p.client[0], "lone", &lone), HF_OK);
    hf_lock *all = made(hf_lock_new_multi, (hf_lock *[]){voted, lone}, 2);
    assert_int_equal(hf_lock_on_lost(all, fleet_on_event, &events), HF_OK);
    proxy_refuse(p.proxy[1], true);
    proxy_cut_all(p.proxy[1]); /* a majority is enough of the quorum */
    assert_int_equal(hf_lock_acquire(all), HF_OK);
    assert_true(key_exists(p.server[0], "voted"));
    assert_true(key_exists(p.server[0], "lone"));
    assert_int_equal(hf_lock_release(all), HF_OK);
    proxy_heal(p.proxy[1]);
    assert_int_equal(hf_lock_acquire(all), HF_OK);
    for (int i = 0; i < PACK; i++)
        cmd_ok(p.server[i], "DEL voted");
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(all), HF_ELOST);
    assert_int_equal(hf_lock_acquire_for(all, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(all), HF_OK);
    hf_lock_free(all);
    hf_lock_free(voted);
    hf_lock_free(lone);
    assert_int_equal(hf_close(quorum), HF_OK);
}

RUN_CASES(pack_start_servers, pack_stop_servers)
