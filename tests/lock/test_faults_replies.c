/*
 * R02, R04: a reply that is lost after the command ran.
 *
 * The proxy loses exactly one reply: `drop` cuts the connection, `mute` leaves it open and silent.
 * What counts is the hash on the server: counts exact, nothing freed twice, nothing held that
 * nobody owns. Leases are 60 s, so nothing here ends by itself.
 */
#include "lock/faults_forms.h"

#define COUNTS_ITSELF "there the holder counts for itself, and asks nobody"

/* ---- The reply is lost, with the connection ---- */

static void acquire_reply_lost(const struct form *form, int held, int64_t wait_ms) {
    OWN(world_end) struct world w;
    world_begin(&w, NULL);
    hold(&w, form, held);
    proxy_drop_replies_after(w.proxy, world_acquires(&w));
    assert_int_equal(form->acquire(&w, wait_ms), HF_OK);
    assert_int_equal(proxy_fired(w.proxy), 1);
    assert_int_equal(world_stats(w.client).in_doubt, 1);
    release_exactly(&w, form, held + 1);
}

ROW_CASES(U14_acquire_reply_lost, form, forms) {
    acquire_reply_lost(form, 0, HANG_MS);
    acquire_reply_lost(form, 0, 0);
}

ROW_CASES(U14_nested_acquire_reply_lost, form, forms) {
    server_redis_only(world_server(), COUNTS_ITSELF);
    acquire_reply_lost(form, 1, HANG_MS);
    acquire_reply_lost(form, 2, 0);
}

static void release_reply_lost(const struct form *form, int held) {
    OWN(world_end) struct world w;
    world_begin(&w, NULL);
    hold(&w, form, held);
    own_monitor *monitor = monitor_start(w.server);
    long long notified = server_is_other(w.server) ? 0 : 1; /* there the server tells */
    proxy_drop_replies_after(w.proxy, world_releases(&w));
    assert_int_equal(form->release(&w), HF_OK);
    assert_int_equal(proxy_fired(w.proxy), 1);
    assert_int_equal(proxy_seen(w.proxy, world_releases(&w)) >= 2, 1);
    assert_int_equal(world_count(&w, w.owner), held - 1);
    if (held > 1)
        release_exactly(&w, form, held - 1);
    assert_true(world_free(&w));
    assert_int_equal(form->release(&w), HF_ENOTOWNER);
    assert_int_equal(monitor_count(monitor, "lua] \"publish\""), notified);
}

ROW_CASES(U15_release_reply_lost, form, forms) {
    release_reply_lost(form, 1);
}

ROW_CASES(U15_nested_release_reply_lost_counts_exactly, form, forms) {
    server_redis_only(world_server(), COUNTS_ITSELF);
    release_reply_lost(form, 2);
    release_reply_lost(form, 3);
}

/* Every copy of the release loses its reply, with the last one at the end of the exchange. */
ROW_CASES(U16_release_never_answered_is_unknown_and_settled, form, forms) {
    OWN(world_end) struct world w;
    int held = server_is_other(world_server()) ? 1 : 2;
    begin_briefly(&w);
    hold(&w, form, held);
    proxy_mute_replies_after(w.proxy, world_releases(&w));
    int64_t start_ms = now_ms();
    assert_int_equal(form->release(&w), HF_EINDOUBT);
    assert_true(now_ms() - start_ms >= BRIEF_MS);
    assert_int_equal(world_count(&w, w.owner), held - 1);
    /* The next one waits for the settlement, and is exact. */
    if (held > 1)
        assert_int_equal(form->release(&w), HF_OK);
    assert_true(world_free(&w));
    assert_int_equal(form->release(&w), HF_ENOTOWNER);
}

/* ---- No answer until the deadline: unknown, settled behind the caller's back ---- */

static void acquire_never_answered(const struct form *form, int held) {
    OWN(world_end) struct world w;
    begin_briefly(&w);
    hold(&w, form, held);
    proxy_mute_replies_after(w.proxy, world_acquires(&w));
    assert_int_equal(form->acquire(&w, 0), HF_EUNREACH);
    assert_int_equal(proxy_fired(w.proxy), 1); /* so it had run */
    assert_true(world_wait_count(&w, w.owner, held, HANG_MS));
    if (held == 0) {
        assert_true(world_free(&w));
        assert_int_equal(form->release(&w), HF_ENOTOWNER);
    } else {
        release_exactly(&w, form, held);
    }
    assert_int_equal(world_stats(w.client).holds, 0);
}

ROW_CASES(R04_acquire_never_answered_is_undone, form, forms) {
    acquire_never_answered(form, 0);
    if (!server_is_other(world_server()))
        acquire_never_answered(form, 1);
}

RUN_CASES(world_start_server, world_stop_server)
