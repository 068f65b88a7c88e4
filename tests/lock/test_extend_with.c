/*
 * Extensions that set a lease, perhaps a shorter one, or add to it: each kind that can; what holds
 * after a lost answer; and a copy that arrives late, which must not shorten what is trusted.
 */
#include "support/world.h"

struct kind_row {
    const char *name;
    any_kind kind;
};
static const struct kind_row kinds[] = {
    {"plain", HF_PLAIN},
    {"nonreentrant", HF_NONREENTRANT},
    {"fair", HF_FAIR},
    {"spin", HF_SPIN},
    {"fenced", HF_FENCED},
    {"string", HF_STRING},
    {"string_spin", (any_kind)HF_STRING | HF_SPIN},
};

static int extend(hf_lock *lock, hf_extend_mode mode, int64_t lease_ms, hf_result *ret) {
    hf_extend_options options = HF_EXTEND_OPTIONS_INIT;
    options.mode = mode;
    options.lease_ms = lease_ms;
    return hf_lock_extend_with(lock, &options, ret);
}

/* The client never trusts it for longer than the server keeps it. */
static void assert_trusted(struct world *w, hf_lock *lock, const char *key) {
    int64_t left_ms = hf_lock_remaining_ms(lock);
    long long ttl_ms = pttl(w->server, key);
    assert_true(ttl_ms > 0 || left_ms == 0);
    assert_true(left_ms <= ttl_ms);
}

ROW_CASES(R16_a_lease_is_set_even_shorter, row, kinds) {
    OWN(world_end) struct world w;
    hf_result result = HF_RESULT_INIT;
    world_begin(&w, NULL);
    own_lock *lock = made(new_lock, w.client, row->kind, "extended", 8);
    assert_int_equal(extend(lock, HF_EXTEND_SET, 20000, NULL), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire(lock), HF_OK); /* 60 s */
    assert_int_equal(extend(lock, HF_EXTEND_SET, 20000, &result), HF_OK);
    assert_true(result.remaining_ms > 0 && result.remaining_ms <= 20000);
    assert_true(pttl(w.server, "extended") <= 20000);
    assert_trusted(&w, lock, "extended");
    assert_int_equal(extend(lock, HF_EXTEND_SET, 90000, &result), HF_OK);
    assert_true(result.remaining_ms > 20000);
    assert_true(pttl(w.server, "extended") > 60000);
    assert_int_equal(extend(lock, HF_EXTEND_RAISE, 30000, NULL), HF_OK); /* it lasts longer */
    assert_true(pttl(w.server, "extended") > 60000);
    assert_trusted(&w, lock, "extended");
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

ROW_CASES(R16_a_lease_is_added_to, row, kinds) {
    OWN(world_end) struct world w;
    hf_result result = HF_RESULT_INIT;
    hf_acquire_options fixed = world_wait_for(0, 40000);
    world_begin(&w, NULL);
    own_lock *lock = made(new_lock, w.client, row->kind, "extended", 8);
    assert_int_equal(hf_lock_acquire_with(lock, &fixed, NULL), HF_OK);
    long long before_ms = pttl(w.server, "extended");
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(extend(lock, HF_EXTEND_ADD, 100000, &result), HF_OK);
        assert_true(result.remaining_ms > trusted_ms(i * 100000));
        assert_trusted(&w, lock, "extended");
    }
    long long after_ms = pttl(w.server, "extended");
    assert_true(after_ms > 300000 && after_ms <= before_ms + 300000);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* The watchdog ends with a set, and goes on after an addition. */
WORLD_CASE_WITH(R16_a_set_lease_is_not_renewed, world_options(), options.watchdog_ms = 600) {
    struct world_events events;
    memset(&events, 0, sizeof events);
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(extend(w->lock, HF_EXTEND_SET, 1000, NULL), HF_OK);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
}

WORLD_CASE_WITH(R16_an_addition_keeps_the_watchdog, world_options(),
                options.watchdog_ms = ENDURING_MS) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(extend(w->lock, HF_EXTEND_ADD, 1, NULL), HF_OK);
    assert_true(server_wait_outlived(w->server, WORLD_NAME, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

WORLD_CASE(R16_by_an_owner_and_as_an_operation) {
    hf_extend_options options = HF_EXTEND_OPTIONS_INIT;
    hf_acquire_options acquire = HF_ACQUIRE_OPTIONS_INIT;
    hf_result result = HF_RESULT_INIT;
    hf_op *op;
    options.mode = HF_EXTEND_SET;
    options.lease_ms = 20000;
    acquire.owner = options.owner = 7;
    assert_int_equal(hf_lock_acquire_with(w->lock, &acquire, NULL), HF_OK);
    assert_int_equal(hf_lock_extend_with(w->lock, &options, NULL), HF_OK);
    options.lease_ms = 30000;
    int err = hf_lock_extend_with_start(w->lock, &options, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &result), HF_OK);
    assert_true(result.remaining_ms > 20000 && result.remaining_ms <= 30000);
    options.owner = 0;
    assert_int_equal(hf_lock_extend_with_start(w->lock, &options, NULL, NULL, &op), HF_EINVAL);
    assert_int_equal(hf_lock_release_as(w->lock, 7), HF_OK);
}

WORLD_CASE(R16_what_is_refused) {
    hf_extend_options options = HF_EXTEND_OPTIONS_INIT;
    static const any_kind without[] = {HF_READ, HF_WRITE, HF_COHORT};
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_extend_with(w->lock, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_extend_with(w->lock, &options, NULL), HF_EINVAL); /* no lease */
    options.lease_ms = 1000;
    options.mode = (hf_extend_mode)3;
    assert_int_equal(hf_lock_extend_with(w->lock, &options, NULL), HF_EINVAL);
    assert_int_equal(extend(w->lock, HF_EXTEND_ADD, HF_LEASE_MAX_MS + 1, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        own_lock *lock = made(new_lock, w->client, without[i], "without", 7);
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_int_equal(extend(lock, HF_EXTEND_SET, 1000, NULL), HF_ENOTSUP);
        assert_int_equal(extend(lock, HF_EXTEND_ADD, 1000, NULL), HF_ENOTSUP);
        assert_int_equal(extend(lock, HF_EXTEND_RAISE, 90000, NULL), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
}

WORLD_CASE(R16_a_hold_that_is_gone_is_lost) {
    for (int mode = HF_EXTEND_SET; mode <= HF_EXTEND_ADD; mode++) {
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        server_drop(w->server, WORLD_NAME);
        assert_int_equal(extend(w->lock, (hf_extend_mode)mode, 90000, NULL), HF_ELOST);
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        server_drop(w->server, WORLD_NAME);
        cmd_ok(w->server, "SET %s text", WORLD_NAME);
        assert_int_equal(extend(w->lock, (hf_extend_mode)mode, 90000, NULL), HF_ELOST);
        server_drop(w->server, WORLD_NAME);
    }
}

/* ---- Lost answers, late copies ---- */

/* The server knows the script. */
static void warm_up(hf_lock *lock) {
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(extend(lock, HF_EXTEND_SET, 90000, NULL), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* The copy is still on its way: nothing that it would take back is granted meanwhile. */
WORLD_CASE_WITH(R17_a_late_set_shortens_nothing_that_is_trusted, world_options(),
                options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    hf_acquire_options fixed = world_wait_for(0, 90000);
    warm_up(w->lock);
    assert_int_equal(hf_lock_acquire_with(w->lock, &fixed, NULL), HF_OK);
    int64_t until_ms = now_ms() + 20000;
    proxy_hold_request(w->proxy, hfi_script_lease.sha1);
    assert_int_equal(extend(w->lock, HF_EXTEND_SET, 20000, NULL), HF_EINDOUBT);
    assert_int_equal(proxy_held(w->proxy), 1);
    assert_true(hf_lock_remaining_ms(w->lock) <= until_ms - now_ms());
    int err = hf_lock_extend(w->lock, 90000);
    bool was_quiet = err == HF_EINDOUBT; /* else the machine paused for two seconds */
    assert_true(was_quiet || err == HF_OK);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_trusted(w, w->lock, WORLD_NAME);
    assert_true(WAIT_FOR(hf_lock_extend(w->lock, 90000) == HF_OK, HANG_MS));
    assert_trusted(w, w->lock, WORLD_NAME);
    assert_true(hf_lock_remaining_ms(w->lock) > 20000);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* Released meanwhile, and acquired again by the same owner, whose field is the same. */
WORLD_CASE_WITH(R17_a_late_set_does_not_shorten_the_next_hold, world_options(),
                options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    warm_up(w->lock);
    for (int watched = 0; watched <= 1; watched++) {
        hf_acquire_options fixed = world_wait_for(HANG_MS, watched ? HF_WATCHDOG : 90000);
        assert_int_equal(hf_lock_acquire_with(w->lock, &fixed, NULL), HF_OK);
        proxy_hold_request(w->proxy, hfi_script_lease.sha1);
        assert_int_equal(extend(w->lock, HF_EXTEND_SET, 20000, NULL), HF_EINDOUBT);
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
        assert_int_equal(hf_lock_acquire_with(w->lock, &fixed, NULL), HF_OK);
        assert_true(proxy_release_held(w->proxy) >= 1);
        assert_trusted(w, w->lock, WORLD_NAME);
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
    }
}

/* It ran, and only the answer was lost: the watchdog ends, and the hold with it. */
WORLD_CASE_WITH(R17_a_set_whose_answer_is_lost_ends_the_watchdog, world_options(),
                options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    struct world_events events;
    memset(&events, 0, sizeof events);
    warm_up(w->lock);
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    proxy_drop_replies_after(w->proxy, hfi_script_lease.sha1);
    assert_int_equal(extend(w->lock, HF_EXTEND_SET, 3000, NULL), HF_EINDOUBT);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(world_wait_free(w, HANG_MS));
}

/* While a copy of the extension may still act, a nested acquire has to wait; if it gives up, the
 * lock is held as before. */
WORLD_CASE(R17_a_nested_wait_behind_a_lost_answer_keeps_the_lock) {
    hf_acquire_options fixed = world_wait_for(0, 90000);
    int err;
    warm_up(w->lock);
    assert_int_equal(hf_lock_acquire_with(w->lock, &fixed, NULL), HF_OK);
    proxy_drop_replies_after(w->proxy, hfi_script_lease.sha1);
    assert_int_equal(extend(w->lock, HF_EXTEND_SET, 60000, NULL), HF_EINDOUBT);
    err = hf_lock_acquire_for(w->lock, 300);
    assert_true(err == HF_ETIMEDOUT ||
                err == HF_OK); /* OK: the machine paused until all was over */
    int count = err == HF_OK ? 2 : 1;
    while ((err = hf_lock_extend(w->lock, 90000)) == HF_EINDOUBT)
        wait_a_moment();
    assert_int_equal(err, HF_OK);
    assert_true(HOLDS_FOR(world_count(w, w->owner) == count, 1000));
    while (count-- > 0)
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* A shorter lease counts from when it is sent: the server may have set it. */
WORLD_CASE(R17_a_set_on_its_way_is_not_trusted_for_longer) {
    hf_acquire_options fixed = world_wait_for(0, 90000);
    hf_extend_options options = HF_EXTEND_OPTIONS_INIT;
    hf_op *op;
    options.mode = HF_EXTEND_SET;
    options.lease_ms = 20000;
    options.owner = hf_owner_self();
    warm_up(w->lock);
    assert_int_equal(hf_lock_acquire_with(w->lock, &fixed, NULL), HF_OK);
    proxy_stall_request(w->proxy, hfi_script_lease.sha1);
    assert_int_equal(hf_lock_extend_with_start(w->lock, &options, NULL, NULL, &op), HF_OK);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_true(hf_lock_remaining_ms(w->lock) <= 20000);
    assert_true(proxy_release_held(w->proxy) >= 1);
    int err = hf_op_wait(op, HANG_MS, NULL);
    assert_true(err == HF_OK || err == HF_EINDOUBT); /* it may have come too late */
    hf_op_free(op);
    assert_true(hf_lock_remaining_ms(w->lock) <= 20000);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* Added once, or not at all, however it went. */
WORLD_CASE_WITH(R17_an_addition_counts_once, world_options(),
                options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    hf_acquire_options fixed = world_wait_for(0, 90000);
    warm_up(w->lock);
    assert_int_equal(hf_lock_acquire_with(w->lock, &fixed, NULL), HF_OK);
    proxy_drop_replies_after(w->proxy, hfi_script_lease.sha1);
    assert_int_equal(extend(w->lock, HF_EXTEND_ADD, 1000000, NULL), HF_EINDOUBT);
    assert_true(pttl(w->server, WORLD_NAME) <= 1090000);
    assert_trusted(w, w->lock, WORLD_NAME);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

RUN_CASES(world_start_server, world_stop_server)
