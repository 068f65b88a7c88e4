/*
 * The read/write lock and faults: lost replies, cut connections, a server that forgets, processes
 * that die, clients that delete or shorten our keys; on both sides and in both forms.
 *
 * Rows U14, U15, U16, U17, U22, C200 and C201 for this kind. The checks are on the server's state:
 * counts exact, no key left beside the lock, and no loss without a notification.
 */
#include "lock/readwrite.h"

#include <signal.h>

/* ---- Both sides, both forms ---- */

struct side {
    any_kind kind;
    const char *suffix; /* of the field */
    const struct hfi_script *acquire, *release, *renew;
    long long keys_per_level;
};

static const struct side sides[] = {
    {HF_READ, "", &hfi_script_read_acquire, &hfi_script_read_release, &hfi_script_read_renew, 1},
    {HF_WRITE, ":write", &hfi_script_write_acquire, &hfi_script_write_release, &hfi_script_renew,
     0},
};

struct variant {
    struct rw rw;
    const struct side *side;
    hf_lock *lock;
    char field[80];
    bool async;
};

static void begin(struct variant *v, const struct side *side, bool async,
                  const hf_options *options) {
    char owner[64];
    rw_begin(&v->rw, options);
    v->side = side;
    v->async = async;
    v->lock = side->kind == HF_READ ? v->rw.read : v->rw.write;
    world_owner_text(v->rw.w.client, A, owner);
    snprintf(v->field, sizeof v->field, "%s%s", owner, side->suffix);
}

static int acquire(struct variant *v, int64_t wait_ms) {
    return v->async ? world_acquire_async(v->lock, A, wait_ms, NULL)
                    : acquire_as(v->lock, A, wait_ms, HF_WATCHDOG);
}

static int release(struct variant *v) {
    return v->async ? world_release_async(v->lock, A, NULL) : hf_lock_release_as(v->lock, A);
}

static void hold(struct variant *v, int count) {
    for (int i = 0; i < count; i++)
        assert_int_equal(acquire(v, 0), HF_OK);
}

/* The count, and a key for every level of a reader. */
static void assert_count(struct variant *v, int count) {
    assert_int_equal(world_count(&v->rw.w, v->field), count);
    assert_int_equal(world_keys(v->rw.w.server),
                     count > 0 ? 1 + v->side->keys_per_level * count : 0);
}

static void release_all(struct variant *v, int count) {
    for (int left = count; left > 0; left--) {
        assert_count(v, left);
        assert_int_equal(release(v), HF_OK);
    }
    assert_count(v, 0);
    assert_int_equal(release(v), HF_ENOTOWNER);
    rw_assert_clean(&v->rw);
}

static void in_all_forms(void (*play)(const struct side *side, bool async, int held), int most) {
    for (size_t i = 0; i < 2; i++)
        for (int async = 0; async < 2; async++)
            for (int held = 0; held <= most; held++)
                play(&sides[i], async, held);
}

/* ---- Lost replies ---- */

static void lose_acquire_reply(const struct side *side, bool async, int held) {
    struct variant v;
    begin(&v, side, async, NULL);
    hold(&v, held);
    proxy_drop_replies_after(v.rw.w.proxy, side->acquire->sha1);
    assert_int_equal(acquire(&v, held % 2 ? 0 : HANG_MS), HF_OK);
    assert_int_equal(proxy_fired(v.rw.w.proxy), 1);
    release_all(&v, held + 1);
    rw_end(&v.rw);
}

CASE(U14_acquire_reply_lost) {
    in_all_forms(lose_acquire_reply, 2);
}

static void lose_release_reply(const struct side *side, bool async, int held) {
    struct variant v;
    begin(&v, side, async, NULL);
    hold(&v, held + 1);
    proxy_drop_replies_after(v.rw.w.proxy, side->release->sha1);
    assert_int_equal(release(&v), HF_OK);
    assert_int_equal(proxy_fired(v.rw.w.proxy), 1);
    assert_true(proxy_seen(v.rw.w.proxy, side->release->sha1) >= 2);
    release_all(&v, held);
    rw_end(&v.rw);
}

CASE(U15_release_reply_lost) {
    in_all_forms(lose_release_reply, 2);
}

/* Redisson's answer to a repeated release of nothing changes; here it is the same every time. */
CASE(U17_not_owner_stays_not_owner) {
    for (size_t i = 0; i < 2; i++) {
        struct variant v;
        begin(&v, &sides[i], false, NULL);
        hold(&v, 1);
        cmd_ok(v.rw.w.server, "FLUSHALL");
        assert_int_equal(release(&v), HF_ELOST);
        assert_int_equal(release(&v), HF_ENOTOWNER);
        assert_int_equal(release(&v), HF_ENOTOWNER);
        rw_assert_clean(&v.rw);
        rw_end(&v.rw);
    }
}

static hf_options brief(void) {
    hf_options options = world_options();
    options.cmd_timeout_ms = WORLD_BRIEF_MS;
    return options;
}

static void never_answer_acquire(const struct side *side, bool async, int held) {
    struct variant v;
    hf_options options = brief();
    begin(&v, side, async, &options);
    hold(&v, held);
    proxy_mute_replies_after(v.rw.w.proxy, side->acquire->sha1);
    assert_int_equal(acquire(&v, 0), HF_EUNREACH);
    assert_int_equal(proxy_fired(v.rw.w.proxy), 1); /* so it had run */
    assert_true(world_wait_count(&v.rw.w, v.field, held, HANG_MS));
    release_all(&v, held);
    rw_end(&v.rw);
}

CASE(R04_acquire_never_answered_is_undone) {
    in_all_forms(never_answer_acquire, 1);
}

CASE(U16_release_never_answered_is_unknown_and_settled) {
    for (size_t i = 0; i < 2; i++) {
        struct variant v;
        hf_options options = brief();
        begin(&v, &sides[i], false, &options);
        hold(&v, 2);
        size_t seen = proxy_seen(v.rw.w.proxy, sides[i].release->sha1);
        proxy_mute_replies_after(v.rw.w.proxy, sides[i].release->sha1);
        assert_int_equal(release(&v), HF_EINDOUBT);
        assert_true(proxy_wait_seen(v.rw.w.proxy, sides[i].release->sha1, seen + 2, HANG_MS));
        release_all(&v, 1); /* it was settled, once */
        rw_end(&v.rw);
    }
}

/* A read that could not be undone yet is nothing that a writer waits for in vain. */
CASE(write_after_a_read_that_was_not_answered) {
    struct variant v;
    hf_options options = brief();
    begin(&v, &sides[0], false, &options);
    proxy_mute_replies_after(v.rw.w.proxy, sides[0].acquire->sha1);
    assert_int_equal(acquire(&v, 0), HF_EUNREACH);
    assert_int_equal(acquire_as(v.rw.write, A, HANG_MS, HF_WATCHDOG), HF_OK);
    assert_int_equal(hf_lock_release_as(v.rw.write, A), HF_OK);
    rw_assert_clean(&v.rw);
    rw_end(&v.rw);
}

/* ---- Cancelled, closed, killed ---- */

CASE(U22_cancelled_acquire_that_wins_anyway) {
    for (size_t i = 0; i < 2; i++) {
        struct variant v;
        hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
        hf_op *op;
        begin(&v, &sides[i], true, NULL);
        options.owner = A;
        proxy_stall_request(v.rw.w.proxy, sides[i].acquire->sha1);
        assert_int_equal(hf_lock_acquire_start(v.lock, &options, NULL, NULL, &op), HF_OK);
        assert_true(proxy_wait_held(v.rw.w.proxy, HANG_MS));
        hf_op_cancel(op);
        assert_int_equal(joined(op, NULL), HF_ECANCELED);
        assert_true(proxy_release_held(v.rw.w.proxy) >= 1);
        assert_true(world_wait_count(&v.rw.w, v.field, 0, HANG_MS));
        hold(&v, 1); /* the next of the same owner waits for the settlement */
        release_all(&v, 1);
        rw_end(&v.rw);
    }
}

CASE(closing_ends_waits_on_both_sides) {
    for (size_t i = 0; i < 2; i++) {
        struct rw rw;
        hf_op *op;
        hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
        rw_begin(&rw, NULL);
        assert_int_equal(try_as(rw.rival_write, B), HF_OK);
        hf_client *client = made(hf_open, server_url(rw.w.server), NULL);
        hf_lock *lock = rw_handle(client, sides[i].kind);
        assert_int_equal(hf_lock_acquire_start(lock, &options, NULL, NULL, &op), HF_OK);
        rw_wait_for_waiter(&rw);
        assert_int_equal(hf_close(client), HF_OK);
        assert_int_equal(joined(op, NULL), HF_ECLOSED);
        hf_lock_free(lock);
        assert_int_equal(cmd_int(rw.w.server, "HLEN " WORLD_NAME), 2);
        assert_int_equal(hf_lock_release_as(rw.rival_write, B), HF_OK);
        rw_assert_clean(&rw);
        rw_end(&rw);
    }
}

struct doomed {
    const char *url;
    any_kind kind;
    atomic_int go, ready;
};

static int hold_until_killed(void *arg) {
    struct doomed *doomed = arg;
    hf_options options = rw_watchdog(ENDURING_MS);
    hf_client *client;
    hf_lock *lock;
    if (!world_wait_atomic(&doomed->go, 1, HANG_MS))
        return 3;
    if (hf_open(doomed->url, &options, &client) != HF_OK ||
        new_lock(client, doomed->kind, WORLD_NAME, strlen(WORLD_NAME), &lock) != HF_OK ||
        hf_lock_acquire(lock) != HF_OK || hf_lock_acquire(lock) != HF_OK)
        return 1;
    atomic_store(&doomed->ready, 1);
    return child_waits_for_ever(NULL);
}

/* The one who waits gets in when the lease of the dead one ends, and not before. */
CASE(killed_holders_run_out) {
    for (size_t i = 0; i < 2; i++) {
        struct rw rw;
        struct world_caller writer;
        struct doomed *doomed = shared_new(sizeof *doomed);
        doomed->url = server_url(world_server());
        doomed->kind = sides[i].kind;
        pid_t pid = run_child(hold_until_killed, doomed); /* before there are threads */
        rw_begin(&rw, NULL);
        atomic_store(&doomed->go, 1);
        assert_true(world_wait_atomic(&doomed->ready, 1, HANG_MS));
        wait_as(&writer, rw.write, A, HF_FOREVER);
        assert_true(HOLDS_FOR(!atomic_load(&writer.done), ENDURING_MS + 1000)); /* it is renewed */
        kill_child(pid);
        assert_int_equal(world_join(&writer), HF_OK);
        assert_int_equal(hf_lock_release_as(rw.write, A), HF_OK);
        rw_assert_clean(&rw);
        shared_free(doomed, sizeof *doomed);
        rw_end(&rw);
    }
}

/* ---- The server forgets ---- */

struct renewed {
    hf_client *client;
    uint64_t renewals;
};

static bool was_renewed(void *arg) {
    const struct renewed *renewed = arg;
    return world_stats(renewed->client).renewals >= renewed->renewals;
}

CASE(C200_C201_after_a_restart) {
    for (size_t i = 0; i < 2; i++) {
        struct variant v;
        struct world_events events = {0};
        hf_options options = rw_watchdog(ENDURING_MS);
        own_server *server = server_start(NULL);
        rw_begin_on(&v.rw, server, &options);
        v.lock = sides[i].kind == HF_READ ? v.rw.read : v.rw.write;
        v.async = false;
        assert_int_equal(hf_lock_on_lost(v.lock, world_on_event, &events), HF_OK);
        hold(&v, 1);
        server_restart(server); /* with nothing in it */
        assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
        assert_int_equal(release(&v), HF_ELOST);
        for (int round = 0; round < 2; round++) {
            struct renewed renewed = {v.rw.w.client, world_stats(v.rw.w.client).renewals + 2};
            assert_int_equal(acquire(&v, HANG_MS), HF_OK);
            assert_true(wait_until(was_renewed, &renewed, HANG_MS));
            assert_int_equal(release(&v), HF_OK);
        }
        assert_int_equal(atomic_load(&events.losses), 1);
        rw_end(&v.rw);
    }
}

/* Renewals survive a lost connection and forgotten scripts. */
CASE(renewals_survive) {
    for (size_t i = 0; i < 2; i++) {
        struct variant v;
        hf_options options = rw_watchdog(ENDURING_MS);
        begin(&v, &sides[i], false, &options);
        hold(&v, 2);
        struct renewed renewed = {v.rw.w.client, world_stats(v.rw.w.client).renewals + 3};
        for (int64_t start_ms = now_ms(); !WAIT_FOR(was_renewed(&renewed), 100);) {
            assert_true(now_ms() - start_ms < HANG_MS);
            cmd_ok(v.rw.w.server, "SCRIPT FLUSH");
            if ((now_ms() - start_ms) % 1000 < 200)
                proxy_cut_connections(v.rw.w.proxy, sides[i].renew->sha1);
            assert_count(&v, 2);
        }
        assert_int_equal(world_stats(v.rw.w.client).losses, 0);
        release_all(&v, 2);
        rw_end(&v.rw);
    }
}

/* The release of a reader stands behind another command of its own, and its time runs out there:
 * for its caller it has stopped reading, so it may wait to write. */
RW_CASE_WITH(write_after_a_release_that_had_to_wait, world_options(),
             options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    hf_op *op = NULL;
    hf_acquire_options acquire = world_wait_as(A, HF_FOREVER, HF_WATCHDOG);
    assert_int_equal(try_as(rw->read, A), HF_OK);
    proxy_blackhole(rw->w.proxy, true, true);
    assert_int_equal(acquire_as(rw->read, A, 0, HF_WATCHDOG), HF_EUNREACH); /* and is undone */
    assert_int_equal(try_as(rw->write, A), HF_EDEADLK);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_EINDOUBT);
    assert_int_equal(hf_lock_acquire_start(rw->write, &acquire, NULL, NULL, &op), HF_OK);
    proxy_heal(rw->w.proxy);
    assert_int_equal(joined(op, NULL), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    rw_assert_clean(rw);
}

RUN_CASES(world_start_server, world_stop_server)
