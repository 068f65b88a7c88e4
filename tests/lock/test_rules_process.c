/*
 * Processes and threads that stop, die, fork or end while they hold a lock (U53 to U56, U60;
 * R06, R08).
 *
 * A holder that is to be stopped or killed is a forked child with a client of its own; what it
 * finds comes back as its exit status. The tests' own process never opens a client before such a
 * child is forked, except where the fork itself is the subject. Leases are short, by the watchdog
 * option.
 */
#include "support/world.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#define SHORT_MS 2400 /* for holds that are to be lost */

static hf_options with_watchdog(int64_t watchdog_ms) {
    hf_options options = world_options();
    options.watchdog_ms = watchdog_ms;
    return options;
}

/* ---- A holder that is stopped or killed ---- */

enum first_call { FIRST_RELEASE, FIRST_ACQUIRE, FIRST_EXTEND };

struct holder {
    const char *url;
    int64_t watchdog_ms;
    enum first_call first_call;
    atomic_bool holds, go_on;
};

static bool is_set(void *flag) {
    return atomic_load((atomic_bool *)flag);
}

static int call(hf_lock *lock, enum first_call what) {
    if (what == FIRST_ACQUIRE)
        return hf_lock_acquire_for(lock, 1000);
    return what == FIRST_RELEASE ? hf_lock_release(lock) : hf_lock_extend(lock, 5000);
}

/* Holds, waits to be asked to go on (stopped meanwhile), and must find that the hold is lost. */
static int hold_until_asked(void *arg) {
    struct holder *holder = arg;
    hf_options options = with_watchdog(holder->watchdog_ms);
    hf_client *client;
    hf_lock *lock;
    if (hf_open(holder->url, &options, &client) != HF_OK ||
        hf_lock_new(client, WORLD_NAME, &lock) != HF_OK || hf_lock_acquire(lock) != HF_OK)
        return 10;
    atomic_store(&holder->holds, true);
    if (!wait_until(is_set, &holder->go_on, HANG_MS))
        return 11;
    if (hf_lock_remaining_ms(lock) != 0)
        return 12;
    int err = call(lock, holder->first_call);
    if (err != HF_ELOST)
        return 100 - err;
    if (hf_lock_release(lock) != HF_ENOTOWNER)
        return 13;
    hf_stats stats = HF_STATS_INIT;
    if (hf_client_stats(client, &stats) != HF_OK || stats.losses != 1 || stats.holds != 0)
        return 14;
    hf_lock_free(lock);
    return hf_close(client) == HF_OK ? 0 : 15;
}

static void stopped_past_the_lease(enum first_call first_call) {
    struct world w;
    struct holder *holder = shared_new(sizeof *holder);
    holder->url = server_url(world_server());
    holder->watchdog_ms = SHORT_MS;
    holder->first_call = first_call;
    cmd_ok(world_server(), "FLUSHALL");
    pid_t pid = run_child(hold_until_asked, holder);
    assert_true(wait_until(is_set, &holder->holds, HANG_MS));
    stop_process(pid);
    memset(&w, 0, sizeof w);
    w.server = world_server();
    assert_true(world_wait_free(&w, HANG_MS)); /* nobody renews it */
    cmd_ok(w.server, "HSET %s successor 1", WORLD_NAME);
    atomic_store(&holder->go_on, true);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_true(expect_exit(pid, 0, HANG_MS));
    assert_int_equal(world_count(&w, "successor"), 1);
    assert_int_equal(pttl(w.server, WORLD_NAME), -1); /* not even its lease was touched */
    shared_free(holder, sizeof *holder);
}

CASE(U60_stopped_past_the_lease) {
    server_redis_only(world_server(), "a successor in the hash (zk.sessions)");
    stopped_past_the_lease(FIRST_RELEASE);
    stopped_past_the_lease(FIRST_ACQUIRE);
    stopped_past_the_lease(FIRST_EXTEND);
}

/* ---- One that is stopped while it settles ---- */

#define EXCHANGE_MS 1000

struct quitter {
    const char *url;
    atomic_bool warm, start, cancel, cancelled, end;
};

/* Gives up an acquire that is on its way, when it is asked to. */
static int give_up_when_asked(void *arg) {
    struct quitter *quitter = arg;
    hf_options options = world_options();
    hf_client *client;
    hf_lock *lock;
    hf_op *op;
    options.cmd_timeout_ms = EXCHANGE_MS;
    if (hf_open(quitter->url, &options, &client) != HF_OK ||
        hf_lock_new(client, WORLD_NAME, &lock) != HF_OK ||
        world_acquire_async(lock, 5, 0, NULL) != HF_OK ||
        world_release_async(lock, 5, NULL) != HF_OK)
        return 20;
    atomic_store(&quitter->warm, true);
    if (!wait_until(is_set, &quitter->start, HANG_MS) ||
        hf_lock_acquire_start(lock, NULL, NULL, NULL, &op) != HF_OK ||
        !wait_until(is_set, &quitter->cancel, HANG_MS))
        return 21;
    hf_op_cancel(op);
    if (hf_op_wait(op, HANG_MS, NULL) != HF_ECANCELED)
        return 22;
    hf_op_free(op);
    atomic_store(&quitter->cancelled, true);
    if (!wait_until(is_set, &quitter->end, HANG_MS))
        return 23;
    hf_lock_free(lock);
    return hf_close(client) == HF_OK ? 0 : 24;
}

/* When it goes on, its connection is lost and the time is over in which the command could still
 * act: both at once. What it gave up is undone all the same. */
CASE(stopped_while_it_settles) {
    server_redis_only(world_server(), "there is nothing to wait for there");
    struct quitter *quitter = shared_new(sizeof *quitter);
    struct proxy *proxy = proxy_start(server_socket(world_server()));
    cmd_ok(world_server(), "FLUSHALL");
    quitter->url = proxy_url(proxy);
    pid_t pid = run_child(give_up_when_asked, quitter);
    assert_true(wait_until(is_set, &quitter->warm, HANG_MS));
    proxy_stall_request(proxy, WORLD_ACQUIRE);
    atomic_store(&quitter->start, true);
    assert_true(proxy_wait_held(proxy, HANG_MS));
    atomic_store(&quitter->cancel, true);
    assert_true(wait_until(is_set, &quitter->cancelled, HANG_MS));
    stop_process(pid);
    size_t releases = proxy_seen(proxy, WORLD_RELEASE);
    proxy_cut_all(proxy);
    server_wait_clock(world_server(), EXCHANGE_MS); /* no command may act for longer */
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_true(proxy_wait_seen(proxy, WORLD_RELEASE, releases + 1, HANG_MS));
    atomic_store(&quitter->end, true);
    assert_true(expect_exit(pid, 0, HANG_MS));
    assert_int_equal(world_keys(world_server()), 0);
    proxy_free(proxy);
    shared_free(quitter, sizeof *quitter);
}

CASE(U56_killed_holder_frees_by_its_lease) {
    server_redis_only(world_server(), "its session frees it there (zk.sessions)");
    struct world w;
    struct world_caller waiter;
    struct holder *holder = shared_new(sizeof *holder);
    holder->url = server_url(world_server());
    holder->watchdog_ms = ENDURING_MS;
    cmd_ok(world_server(), "FLUSHALL");
    pid_t pid = run_child(hold_until_asked, holder);
    assert_true(wait_until(is_set, &holder->holds, HANG_MS));
    hf_options options = with_watchdog(ENDURING_MS);
    w.server = world_server();
    hf_client *client = made(hf_open, server_url(w.server), &options);
    hf_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    world_call_acquire(&waiter, lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    /* alive, it keeps the lock for longer than a lease */
    assert_true(HOLDS_FOR(!atomic_load(&waiter.done), ENDURING_MS + 1000));
    struct monitor *monitor = monitor_start(w.server);
    kill_child(pid);
    int64_t killed_ms = now_ms(), left_ms = pttl(w.server, WORLD_NAME);
    assert_true(left_ms > 0);
    assert_int_equal(world_join(&waiter), HF_OK);
    int64_t entered_ms = now_ms() - killed_ms;
    assert_true(entered_ms >= left_ms);
    assert_true(entered_ms < HANG_MS);
    assert_int_equal(monitor_count(monitor, "] \"publish\""), 0);
    monitor_stop(monitor);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    shared_free(holder, sizeof *holder);
}

/* ---- Threads ---- */

struct thread_hold {
    hf_lock *lock;
    hf_acquire_options options;
    int result;
    hf_owner owner;
    pthread_t self;
};

static void *acquire_and_end(void *arg) {
    struct thread_hold *hold = arg;
    hold->self = pthread_self();
    hold->owner = hf_owner_self();
    hold->result = hf_lock_acquire_with(hold->lock, &hold->options, NULL);
    return NULL;
}

static void run_thread(void *(*body)(void *), struct thread_hold *hold) {
    pthread_t thread = started(body, hold);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static bool holds_nothing(void *arg) {
    return world_stats(arg).holds == 0;
}

CASE(U54_thread_that_ends_is_not_renewed) {
    OWN(world_end) struct world w;
    struct world_events events = {0};
    hf_options options = with_watchdog(SHORT_MS);
    world_begin(&w, &options);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    int64_t start_ms = now_ms();
    struct thread_hold hold = {.lock = w.lock, .options = world_wait_for(0, HF_WATCHDOG)};
    run_thread(acquire_and_end, &hold);
    assert_int_equal(hold.result, HF_OK);
    assert_true(world_wait_atomic(&events.orphans, 1, HANG_MS));
    assert_true(world_wait_free(&w, HANG_MS));
    /* A session's time counts from a packet before the acquire. */
    assert_true(server_is_other(w.server) || now_ms() - start_ms >= SHORT_MS);
    struct thread_hold next = {.lock = w.lock, .options = world_wait_for(0, 60000)};
    acquire_and_end(&next); /* here: it is nobody's */
    assert_int_equal(next.result, HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(atomic_load(&events.orphans), 1);
    /* the keeper's deadline is the server's, or before */
    assert_true(wait_until(holds_nothing, w.client, HANG_MS));
}

/* What a thread holds for an owner it named is not the thread's. */
CASE(U54_named_owner_outlives_the_thread) {
    OWN(world_end) struct world w;
    struct world_events events = {0};
    hf_options options = with_watchdog(ENDURING_MS);
    world_begin(&w, &options);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    struct thread_hold hold = {.lock = w.lock, .options = world_wait_for(0, HF_WATCHDOG)};
    hold.options.owner = 77;
    run_thread(acquire_and_end, &hold);
    assert_int_equal(hold.result, HF_OK);
    assert_true(
        HOLDS_FOR(hf_lock_remaining_ms_as(w.lock, 77) > 0, ENDURING_MS + 1000)); /* a lease */
    int64_t count;
    assert_int_equal(hf_lock_hold_count_as(w.lock, 77, &count), HF_OK);
    assert_int_equal(count, 1);
    assert_int_equal(hf_lock_release_as(w.lock, 77), HF_OK);
    assert_int_equal(atomic_load(&events.orphans) + atomic_load(&events.losses), 0);
}

static void *intrude(void *arg) {
    struct thread_hold *hold = arg;
    bool mine = true;
    hold->self = pthread_self();
    hold->owner = hf_owner_self();
    hold->result = 0;
    if (hf_lock_is_mine(hold->lock, &mine) != HF_OK || mine)
        hold->result = 1;
    else if (hf_lock_release(hold->lock) != HF_ENOTOWNER)
        hold->result = 2;
    else if (hf_lock_try(hold->lock) != HF_EBUSY)
        hold->result = 3;
    else if (hf_lock_remaining_ms(hold->lock) != 0)
        hold->result = 4;
    return NULL;
}

WORLD_CASE(U55_thread_ids_are_reused_owners_are_not) {
    bool came_back = false;
    struct thread_hold first = {.lock = w->lock, .options = world_wait_for(0, 60000)};
    run_thread(acquire_and_end, &first);
    assert_int_equal(first.result, HF_OK);
    hf_owner before = first.owner;
    for (int i = 0; i < 200; i++) {
        struct thread_hold next = {.lock = w->lock};
        run_thread(intrude, &next);
        assert_int_equal(next.result, 0);
        assert_true(next.owner > before);
        before = next.owner;
        came_back = came_back || pthread_equal(next.self, first.self);
    }
    assert_true(came_back); /* else this has shown nothing */
}

/* ---- fork ---- */

struct forked {
    struct world *world;
    hf_op *op;
    int lost_fd;
};

static int use_parents_client(void *arg) {
    struct forked *forked = arg;
    struct world *w = forked->world;
    bool flag;
    int64_t number;
    hf_op *op;
    hf_lock *lock;
    const int calls[] = {hf_lock_release(w->lock),
                         hf_lock_acquire(w->lock),
                         hf_lock_try(w->lock),
                         hf_lock_extend(w->lock, 1000),
                         hf_lock_break(w->lock, &flag),
                         hf_lock_is_locked(w->lock, &flag),
                         hf_lock_ttl_ms(w->lock, &number),
                         hf_ping(w->client),
                         hf_lock_new(w->client, "x", &lock),
                         hf_lock_on_lost(w->lock, NULL, NULL),
                         hf_lock_lost_fd(w->lock),
                         hf_dispatch_fd(w->client),
                         hf_lock_acquire_start(w->lock, NULL, NULL, NULL, &op),
                         hf_op_wait(forked->op, HF_FOREVER, NULL)};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (calls[i] != HF_EFORKED)
            return 20 + (int)i;
    if (hf_lock_remaining_ms(w->lock) != 0)
        return 50;
    hf_op_cancel(forked->op);
    hf_op_free(forked->op);
    hf_lock_free(w->lock);
    if (hf_close(w->client) != HF_OK)
        return 51;
    hf_client *own; /* a client of its own works */
    hf_options options = with_watchdog(ENDURING_MS);
    if (hf_open(server_url(w->server), &options, &own) != HF_OK ||
        hf_lock_new(own, WORLD_NAME, &lock) != HF_OK)
        return 52;
    if (hf_lock_try(lock) != HF_EBUSY)
        return 53;
    hf_lock_free(lock);
    return hf_close(own) == HF_OK ? 0 : 54;
}

static int leave_at_once(void *arg) {
    (void)arg;
    return 0;
}

CASE(U53_fork_while_holding_and_waiting) {
    struct world w;
    struct world_events events = {0};
    struct world_caller waiter;
    struct forked forked = {.world = &w};
    hf_options options = with_watchdog(ENDURING_MS);
    world_begin(&w, &options);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    size_t listened = proxy_seen(w.proxy, world_listens(&w));
    world_call_acquire(&waiter, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w.proxy, world_listens(&w), listened + 1, HANG_MS));
    assert_int_equal(hf_lock_acquire_start(w.lock, NULL, NULL, NULL, &forked.op), HF_OK);
    assert_true(WAIT_FOR(world_stats(w.client).renewals != 0,
                         HANG_MS)); /* then all connections are there */
    size_t open = proxy_open(w.proxy), accepted = proxy_connections(w.proxy);

    assert_true(expect_exit(run_child(use_parents_client, &forked), 0, HANG_MS));
    assert_true(expect_exit(run_child(leave_at_once, NULL), 0, HANG_MS));

    assert_true(
        HOLDS_FOR(hf_lock_remaining_ms(w.lock) > 0, ENDURING_MS + 1000)); /* by renewals only */
    assert_int_equal(world_count(&w, w.owner), 1);
    assert_int_equal(world_stats(w.client).reconnects, 0);
    if (!server_is_other(w.server)) { /* ZooKeeper's is made anew from time to time */
        assert_int_equal(proxy_open(w.proxy), open);
        assert_int_equal(proxy_connections(w.proxy), accepted);
    }
    assert_int_equal(proxy_seen(w.proxy, "\r\nQUIT\r\n"), 0);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, waiter.owner), HF_OK);
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_op_wait(forked.op, HANG_MS, &result), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, result.owner), HF_OK);
    hf_op_free(forked.op);
    assert_int_equal(atomic_load(&events.losses), 0);
    world_end(&w);
}

RUN_CASES(world_start_server, world_stop_server)
