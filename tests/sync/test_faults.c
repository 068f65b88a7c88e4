/*
 * A lock, a semaphore, permits and a latch when the network or the server fails: one case for each
 * fault and each of them, through both forms of their calls.
 *
 * A taker takes and gives `step` at a time; a latch only gives: it is counted down. The lock and
 * permits know who holds, so what was not answered is sent again, or settled later. A semaphore and
 * a latch do not, so a give is never done twice: what was not answered is unknown. Either way the
 * number on the server is exact.
 */
#include "sync/pool.h"

#define ALL 10  /* permits there are, of both sorts */
#define COUNT 3 /* of the latch */
#define LONG_MS 60000
#define BRIEF_MS PASSING_MS /* an exchange, where one is to run out */
#define TOO_LATE_MS 600     /* a copy of what is not sent twice may act for half a second */

static hf_permit_id ids[COUNT], rivals_ids[ALL];

struct kind {
    const char *name;
    bool async;
    int step;
    int64_t lease_ms;                               /* of permits */
    const struct hfi_script *takes, *gives, *waits; /* takes: NULL for a latch */
    bool sent_twice;                                /* a give, when its reply is lost */
    void (*set)(struct world *w);
    int (*take)(const struct kind *k, struct world *w, int64_t wait_ms);
    int (*start)(const struct kind *k, struct world *w, hf_op **ret); /* a take that waits */
    int (*give)(const struct kind *k, struct world *w);
    int (*ask)(struct world *w);        /* a semaphore, a latch */
    long long (*held)(struct world *w); /* at the server, but not by the rival of a lock */
    void (*wait)(struct world_caller *caller, struct world *w, int64_t wait_ms, hf_cancel *cancel);
    void (*occupy)(struct world *w); /* so that others have to wait */
    void (*vacate)(struct world *w);
};

/* ---- The lock ---- */

static void set_nothing(struct world *w) {
    (void)w;
}

static int lock_take(const struct kind *k, struct world *w, int64_t wait_ms) {
    return k->async ? world_acquire_async(w->lock, 0, wait_ms, NULL)
                    : hf_lock_acquire_for(w->lock, wait_ms);
}

static int lock_start(const struct kind *k, struct world *w, hf_op **ret) {
    hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    (void)k;
    options.owner = hf_owner_self();
    return hf_lock_acquire_start(w->lock, &options, NULL, NULL, ret);
}

static int lock_give(const struct kind *k, struct world *w) {
    return k->async ? world_release_async(w->lock, hf_owner_self(), NULL)
                    : hf_lock_release(w->lock);
}

static long long lock_held(struct world *w) {
    return world_count(w, w->owner);
}

static void lock_wait(struct world_caller *caller, struct world *w, int64_t wait_ms,
                      hf_cancel *cancel) {
    hf_acquire_options options = world_wait_for(wait_ms, HF_WATCHDOG);
    options.cancel = cancel;
    world_call_acquire(caller, w->lock, options);
}

static void lock_occupy(struct world *w) {
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
}

static void lock_vacate(struct world *w) {
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

#define LOCK(name_, async_)                                                                        \
    {                                                                                              \
        .name = (name_), .async = (async_), .step = 1, .takes = &hfi_script_plain_acquire,         \
        .gives = &hfi_script_plain_release, .waits = &hfi_script_plain_acquire,                    \
        .sent_twice = true, .set = set_nothing, .take = lock_take, .start = lock_start,            \
        .give = lock_give, .held = lock_held, .wait = lock_wait, .occupy = lock_occupy,            \
        .vacate = lock_vacate                                                                      \
    }

/* ---- The semaphore ---- */

static void sem_set(struct world *w) {
    object_set_permits(w->rival_sem, ALL);
}

static int sem_take(const struct kind *k, struct world *w, int64_t wait_ms) {
    return object_forms[k->async].acquire(w, k->step, wait_ms);
}

static int sem_start(const struct kind *k, struct world *w, hf_op **ret) {
    return hf_sem_acquire_start(w->sem, k->step, NULL, NULL, NULL, ret);
}

static int sem_give(const struct kind *k, struct world *w) {
    return object_forms[k->async].release(w, k->step);
}

static int sem_ask(struct world *w) {
    return hf_sem_available(w->sem, &(int64_t){0});
}

static long long sem_held(struct world *w) {
    (void)w;
    return ALL - object_number(SEM_NAME);
}

static void sem_wait(struct world_caller *caller, struct world *w, int64_t wait_ms,
                     hf_cancel *cancel) {
    world_call_sem(caller, w->sem, 2, wait_ms, cancel);
}

static void sem_occupy(struct world *w) {
    assert_int_equal(hf_sem_try(w->rival_sem, ALL), HF_OK);
}

static void sem_vacate(struct world *w) {
    assert_int_equal(hf_sem_release(w->rival_sem, ALL), HF_OK);
}

#define SEMAPHORE(name_, async_)                                                                   \
    {                                                                                              \
        .name = (name_), .async = (async_), .step = 3, .takes = &hfi_script_semaphore_acquire,     \
        .gives = &hfi_script_semaphore_change, .waits = &hfi_script_semaphore_acquire,             \
        .set = sem_set, .take = sem_take, .start = sem_start, .give = sem_give, .ask = sem_ask,    \
        .held = sem_held, .wait = sem_wait, .occupy = sem_occupy, .vacate = sem_vacate             \
    }

/* ---- Permits ---- */

static void permits_set(struct world *w) {
    assert_int_equal(hf_permits_try_set(w->rival_permits, ALL, NULL), HF_OK);
}

static int permits_take(const struct kind *k, struct world *w, int64_t wait_ms) {
    hf_permits_options options = pool_options(k->step, wait_ms, k->lease_ms);
    return pool_forms[k->async].acquire(w->permits, &options, ids);
}

static int permits_start(const struct kind *k, struct world *w, hf_op **ret) {
    hf_permits_options options = pool_options(k->step, HF_FOREVER, k->lease_ms);
    return hf_permits_acquire_start(w->permits, &options, ids, NULL, NULL, ret);
}

static int permits_give(const struct kind *k, struct world *w) {
    return pool_forms[k->async].release(w->permits, ids, (size_t)k->step);
}

/* One lost or paid for twice would be neither free nor taken, or both. */
static long long permits_held(struct world *w) {
    (void)w;
    return pool_free_there() + pool_taken_there() == ALL ? pool_taken_there() : -1;
}

static void permits_wait(struct world_caller *caller, struct world *w, int64_t wait_ms,
                         hf_cancel *cancel) {
    hf_permits_options options = pool_options(2, wait_ms, LONG_MS);
    options.cancel = cancel;
    world_call_permits(caller, w->permits, options);
}

static void permits_occupy(struct world *w) {
    pool_take(w->rival_permits, ALL, LONG_MS, rivals_ids);
}

static void permits_vacate(struct world *w) {
    assert_int_equal(hf_permits_release_many(w->rival_permits, rivals_ids, ALL), HF_OK);
}

#define PERMITS(name_, async_, step_, lease_ms_)                                                   \
    {                                                                                              \
        .name = (name_), .async = (async_), .step = (step_), .lease_ms = (lease_ms_),              \
        .takes = &hfi_script_permits_acquire, .gives = &hfi_script_permits_release,                \
        .waits = &hfi_script_permits_acquire, .sent_twice = true, .set = permits_set,              \
        .take = permits_take, .start = permits_start, .give = permits_give, .held = permits_held,  \
        .wait = permits_wait, .occupy = permits_occupy, .vacate = permits_vacate                   \
    }

/* ---- The latch ---- */

static void latch_set(struct world *w) {
    assert_int_equal(hf_latch_try_set(w->rival_latch, COUNT, NULL), HF_OK);
}

static int latch_give(const struct kind *k, struct world *w) {
    return object_forms[k->async].count_down(w);
}

static int latch_ask(struct world *w) {
    return hf_latch_count(w->latch, &(int64_t){0});
}

static long long latch_held(struct world *w) {
    (void)w;
    return object_number(LATCH_NAME);
}

static void latch_wait(struct world_caller *caller, struct world *w, int64_t wait_ms,
                       hf_cancel *cancel) {
    world_call_latch(caller, w->latch, wait_ms, cancel);
}

static void latch_open(struct world *w) {
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(hf_latch_count_down(w->rival_latch), HF_OK);
}

#define LATCH(name_, async_)                                                                       \
    {                                                                                              \
        .name = (name_), .async = (async_), .step = 1, .gives = &hfi_script_latch_count_down,      \
        .waits = &hfi_script_latch_read, .set = latch_set, .give = latch_give, .ask = latch_ask,   \
        .held = latch_held, .wait = latch_wait, .occupy = set_nothing, .vacate = latch_open        \
    }

/* ---- The tables ---- */

#define SEMAPHORES SEMAPHORE("semaphore", false), SEMAPHORE("semaphore_async", true)
#define LATCHES LATCH("latch", false), LATCH("latch_async", true)
#define TAKERS                                                                                     \
    LOCK("lock", false), LOCK("lock_async", true), SEMAPHORES,                                     \
        PERMITS("permit", false, 1, LONG_MS), PERMITS("permit_async", true, 1, LONG_MS),           \
        PERMITS("permits", false, 3, LONG_MS), PERMITS("permits_async", true, 3, LONG_MS),         \
        PERMITS("permits_watchdog", false, 3, HF_WATCHDOG),                                        \
        PERMITS("permits_watchdog_async", true, 3, HF_WATCHDOG),                                   \
        PERMITS("permits_no_lease", false, 3, HF_NO_LEASE),                                        \
        PERMITS("permits_no_lease_async", true, 3, HF_NO_LEASE)

static const struct kind takers[] = {TAKERS};
static const struct kind givers[] = {TAKERS, LATCHES};
static const struct kind counters[] = {SEMAPHORES, LATCHES};
static const struct kind waiters[] = {LOCK("lock", false), SEMAPHORE("semaphore", false),
                                      PERMITS("permits", false, 3, LONG_MS), LATCH("latch", false)};

static void begin(struct world *w, const struct kind *k) {
    objects_begin(w, NULL);
    k->set(w);
}

static void begin_briefly(struct world *w, const struct kind *k) {
    hf_options options = world_options();
    options.cmd_timeout_ms = BRIEF_MS;
    objects_begin(w, &options);
    k->set(w);
}

#define TAKER_CASES(name, begin_)                                                                  \
    ROW_CASES_IN(name, k, takers, struct world, w, begin_, world_end, k)
#define GIVER_CASES(name, begin_)                                                                  \
    ROW_CASES_IN(name, k, givers, struct world, w, begin_, world_end, k)
#define COUNTER_CASES(name) ROW_CASES_IN(name, k, counters, struct world, w, begin, world_end, k)
#define WAITER_CASES(name) ROW_CASES_IN(name, k, waiters, struct world, w, begin, world_end, k)

/* What is held then. */
static long long hold(const struct kind *k, struct world *w) {
    if (k->take != NULL)
        assert_int_equal(k->take(k, w, 0), HF_OK);
    return k->held(w);
}

struct wanted {
    const struct kind *k;
    struct world *w;
    long long held;
};

static bool is_held(void *arg) {
    const struct wanted *wanted = arg;
    return wanted->k->held(wanted->w) == wanted->held;
}

static void wait_held(const struct kind *k, struct world *w, long long held) {
    struct wanted wanted = {k, w, held};
    assert_true(wait_until(is_held, &wanted, HANG_MS));
}

/* A connection that was silent before may swallow this reply, too. The release is then sent again,
 * and cannot tell its own first copy from the earlier release: both results are right. */
static void assert_not_given_again(const struct kind *k, struct world *w) {
    size_t sent = proxy_seen(w->proxy, k->gives->sha1);
    int err = k->give(k, w);
    bool resent = proxy_seen(w->proxy, k->gives->sha1) > sent + 1;
    assert_true(err == HF_ENOTOWNER || (resent && err == HF_OK));
}

/* Nothing is held any more, so nothing can be given; and all of it can be taken. */
static void assert_given(const struct kind *k, struct world *w) {
    assert_int_equal(k->held(w), 0);
    assert_int_equal(world_stats(w->client).holds, 0);
    if (k->sent_twice)
        assert_not_given_again(k, w);
    assert_int_equal(k->take(k, w, 0), HF_OK);
    assert_int_equal(k->held(w), k->step);
}

/* A waiter sleeps. */
static void begin_waiting(const struct kind *k, struct world *w, struct world_caller *waiter,
                          hf_cancel *cancel) {
    k->occupy(w);
    k->wait(waiter, w, HF_FOREVER, cancel);
    assert_true(proxy_wait_seen(w->proxy, k->waits->sha1, 2, HANG_MS));
}

static int wait_and_join(const struct kind *k, struct world *w, int64_t wait_ms,
                         hf_cancel *cancel) {
    struct world_caller waiter;
    k->wait(&waiter, w, wait_ms, cancel);
    return world_join(&waiter);
}

/* ---- A reply is lost, with the connection ---- */

static void take_reply_lost(const struct kind *k, struct world *w, int64_t wait_ms) {
    proxy_drop_replies_after(w->proxy, k->takes->sha1);
    assert_int_equal(k->take(k, w, wait_ms), HF_OK);
    assert_int_equal(proxy_fired(w->proxy), 1); /* so it ran twice */
    assert_true(proxy_seen_in_time(w->proxy, k->takes->sha1) >= 2);
    assert_int_equal(k->held(w), k->step);
    assert_int_equal(world_stats(w->client).in_doubt, 1);
    assert_int_equal(world_stats(w->client).acquired, 1);
    assert_int_equal(k->give(k, w), HF_OK);
    assert_given(k, w);
}

TAKER_CASES(U14_U19_acquire_reply_lost, begin) {
    take_reply_lost(k, w, 0);
}

TAKER_CASES(U14_U19_waiting_acquire_reply_lost, begin) {
    take_reply_lost(k, w, HANG_MS);
}

GIVER_CASES(U15_U19_U20_release_reply_lost, begin) {
    long long held = hold(k, w);
    proxy_drop_replies_after(w->proxy, k->gives->sha1);
    assert_int_equal(k->give(k, w), k->sent_twice ? HF_OK : HF_EINDOUBT);
    assert_int_equal(proxy_fired(w->proxy), 1);
    assert_int_equal(k->held(w), held - k->step);
    assert_int_equal(world_stats(w->client).released, k->sent_twice ? 1 : 0);
    if (k->sent_twice) {
        assert_true(proxy_seen(w->proxy, k->gives->sha1) >= 2);
        assert_given(k, w);
    } else {
        assert_int_equal(proxy_seen_in_time(w->proxy, k->gives->sha1), 1);
        assert_int_equal(world_stats(w->client).in_doubt, 1);
    }
}

/* ---- No answer until the deadline ---- */

TAKER_CASES(R04_U19_acquire_never_answered_is_undone, begin_briefly) {
    snprintf(ids[0].text, sizeof ids[0].text, "untouched");
    proxy_mute_replies_after(w->proxy, k->takes->sha1);
    int64_t start_ms = now_ms();
    assert_int_equal(k->take(k, w, 0), HF_EUNREACH);
    assert_true(now_ms() - start_ms >= BRIEF_MS);
    assert_int_equal(proxy_fired(w->proxy), 1); /* so it had run */
    if (!k->sent_twice)
        assert_int_equal(proxy_seen_in_time(w->proxy, k->takes->sha1), 1);
    wait_held(k, w, 0);
    assert_string_equal(ids[0].text, "untouched");
    assert_int_equal(world_stats(w->client).holds, 0);
}

GIVER_CASES(U16_U19_U20_release_never_answered_is_unknown, begin_briefly) {
    long long held = hold(k, w);
    proxy_mute_replies_after(w->proxy, k->gives->sha1);
    int64_t start_ms = now_ms();
    assert_int_equal(k->give(k, w), HF_EINDOUBT);
    assert_true(now_ms() - start_ms >= BRIEF_MS);
    assert_int_equal(k->held(w), held - k->step);
    assert_int_equal(world_stats(w->client).holds, 0);
    if (k->sent_twice)
        assert_given(k, w);
    else
        assert_int_equal(proxy_seen_in_time(w->proxy, k->gives->sha1), 1);
}

/* Nothing was sent, so nothing is unknown. */
ROW_CASES_IN(no_server_at_all, k, counters, struct world, w, begin_briefly, world_end, k) {
    long long held = k->held(w);
    proxy_refuse(w->proxy, true);
    proxy_cut_all(w->proxy);
    if (k->take != NULL)
        assert_int_equal(k->take(k, w, 0), HF_EUNREACH);
    assert_int_equal(k->give(k, w), HF_EUNREACH);
    assert_int_equal(k->ask(w), HF_EUNREACH);
    assert_int_equal(k->held(w), held);
    assert_int_equal(world_stats(w->client).in_doubt, 0);
}

/* ---- Copies that come late ---- */

/* It was sent again meanwhile, and perhaps given back. */
static void late_copy_of_a_take(const struct kind *k, struct world *w, bool given_back) {
    proxy_hold_request(w->proxy, k->takes->sha1);
    assert_int_equal(k->take(k, w, HANG_MS), HF_OK);
    assert_int_equal(proxy_held(w->proxy), 1);
    if (given_back)
        assert_int_equal(k->give(k, w), HF_OK);
    if (!k->sent_twice)
        server_wait_clock(w->server, TOO_LATE_MS);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_int_equal(k->held(w), given_back ? 0 : k->step);
}

TAKER_CASES(R02_U17_a_late_copy_takes_nothing_more, begin) {
    late_copy_of_a_take(k, w, false);
}

TAKER_CASES(R02_U17_a_late_copy_takes_nothing_again, begin) {
    late_copy_of_a_take(k, w, true);
}

/* It arrives when it is held again, or after the caller got HF_EINDOUBT. */
GIVER_CASES(R02_a_late_copy_gives_nothing, begin) {
    long long held = hold(k, w);
    proxy_hold_request(w->proxy, k->gives->sha1);
    assert_int_equal(k->give(k, w), k->sent_twice ? HF_OK : HF_EINDOUBT);
    assert_int_equal(proxy_held(w->proxy), 1);
    if (k->sent_twice)
        assert_int_equal(k->take(k, w, 0), HF_OK);
    else
        server_wait_clock(w->server, TOO_LATE_MS);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_int_equal(k->held(w), held);
}

/* A copy that the server says came too late did nothing, and is sent again with more time. */
COUNTER_CASES(a_late_command_is_sent_again) {
    if (k->take != NULL) {
        proxy_delay(w->proxy, k->takes->sha1, 700);
        assert_int_equal(k->take(k, w, 0), HF_OK);
        assert_true(proxy_seen(w->proxy, k->takes->sha1) >= 2);
        assert_int_equal(k->held(w), k->step);
    }
    long long held = k->held(w);
    proxy_delay(w->proxy, k->gives->sha1, 700);
    assert_int_equal(k->give(k, w), HF_OK);
    assert_true(proxy_seen(w->proxy, k->gives->sha1) >= 2);
    assert_int_equal(k->held(w), held - k->step);
    assert_int_equal(world_stats(w->client).in_doubt, 0);
}

/* ---- Given up ---- */

/* The acquire has run and its answer is on the way: what it took comes back. */
TAKER_CASES(U22_a_cancelled_acquire_that_ran_is_undone, begin) {
    hf_op *op = NULL;
    proxy_blackhole(w->proxy, false, true);
    assert_int_equal(k->start(k, w, &op), HF_OK);
    wait_held(k, w, k->step);
    hf_op_cancel(op);
    assert_int_equal(world_wait_op(HF_OK, op, NULL), HF_ECANCELED);
    proxy_heal(w->proxy);
    wait_held(k, w, 0);
    assert_int_equal(world_stats(w->client).cancelled, 1);
    assert_int_equal(world_stats(w->client).acquired, 0);
    assert_int_equal(world_stats(w->client).holds, 0);
}

WAITER_CASES(R09_a_wait_that_is_given_up_leaves_nothing) {
    struct world_caller waiter;
    own_cancel *cancel = NULL;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    begin_waiting(k, w, &waiter, cancel);
    long long held = k->held(w);
    hf_cancel_fire(cancel);
    assert_int_equal(world_join(&waiter), HF_ECANCELED);
    assert_true(object_wait_no_channels(HANG_MS));
    assert_int_equal(wait_and_join(k, w, HF_FOREVER, cancel), HF_ECANCELED); /* it stays fired */
    int64_t start_ms = now_ms();
    assert_int_equal(wait_and_join(k, w, PASSING_MS, NULL), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= PASSING_MS);
    assert_true(object_wait_no_channels(HANG_MS));
    assert_int_equal(world_stats(w->client).cancelled, 2);
    assert_int_equal(world_stats(w->client).timed_out, 1);
    assert_int_equal(k->held(w), held);
    k->vacate(w);
    assert_int_equal(wait_and_join(k, w, 0, NULL), HF_OK);
}

WAITER_CASES(close_ends_a_wait) {
    struct world_caller waiter;
    begin_waiting(k, w, &waiter, NULL);
    long long held = k->held(w);
    assert_int_equal(hf_close(w->client), HF_OK);
    assert_int_equal(world_join(&waiter), HF_ECLOSED);
    assert_int_equal(wait_and_join(k, w, 0, NULL), HF_ECLOSED);
    w->client = NULL;
    assert_true(object_wait_no_channels(HANG_MS));
    assert_int_equal(k->held(w), held);
}

/* ---- The connection, the server ---- */

/* The waiter missed the message, and checks again when it is subscribed. */
WAITER_CASES(a_lost_message_hangs_no_waiter) {
    struct world_caller waiter;
    begin_waiting(k, w, &waiter, NULL);
    proxy_refuse(w->proxy, true);
    assert_true(proxy_cut_all(w->proxy) >= 2);
    k->vacate(w);
    assert_false(atomic_load(&waiter.done));
    proxy_refuse(w->proxy, false);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
}

/* It forgets everything, scripts included. */
WAITER_CASES(a_wait_survives_a_restart_of_the_server) {
    struct world_caller waiter;
    begin_waiting(k, w, &waiter, NULL);
    server_restart(w->server);
    if (k->take != NULL)
        k->set(w);
    assert_int_equal(world_join(&waiter), HF_OK);
}

/* What is held can be given back; nothing else is done. */
GIVER_CASES(U39_a_full_server_refuses, begin) {
    long long held = hold(k, w);
    cmd_ok(w->server, "CONFIG SET maxmemory 1");
    if (k->sent_twice)
        assert_int_equal(k->give(k, w), HF_OK);
    else
        assert_int_equal(k->give(k, w), HF_EOOM);
    if (k->take != NULL)
        assert_int_equal(k->take(k, w, 0), HF_EOOM);
    else
        assert_int_equal(hf_latch_await_for(w->latch, 0), HF_EBUSY); /* waiting needs no memory */
    cmd_ok(w->server, "CONFIG SET maxmemory 0");
    assert_int_equal(k->held(w), k->sent_twice ? 0 : held);
    assert_int_equal(world_stats(w->client).in_doubt, 0);
}

RUN_CASES(world_start_server, world_stop_server)
