/*
 * The rows with many at once: C022, C024, C025, C027, C028 and the herd of U82.
 *
 * What a lock guards here is an ordinary number, so two inside at a time lose an increment (and a
 * thread sanitizer would say so). The sizes are small unless HF_SOAK is set; the rows' own sizes
 * are beside them. Nothing is said about speed, only that everybody gets there and that nothing is
 * left.
 */
#include "support/crowd.h"
#include "support/world.h"

static int scaled(int small, int full) {
    return getenv("HF_SOAK") != NULL ? full : small;
}

/* ---- Threads that all do the same ---- */

struct crew;

struct worker {
    struct crew *crew;
    int number;
    hf_client *client;
    hf_lock *lock;
    int error;
};

struct crew {
    struct worker *workers;
    int size, rounds, hold_ms;
    int64_t guarded; /* by the lock */
    hf_lock **locks; /* a list of names that everybody walks */
    int64_t *counts; /* one for each of them, guarded by it */
    struct server *server;
};

static void crew_begin(struct crew *crew, int size) {
    memset(crew, 0, sizeof *crew);
    crew->size = size;
    crew->workers = calloc((size_t)size, sizeof *crew->workers);
    assert_non_null(crew->workers);
    for (int i = 0; i < size; i++)
        crew->workers[i] = (struct worker){.crew = crew, .number = i};
}

static void crew_work(struct crew *crew, void *(*body)(void *)) {
    struct crowd crowd = {0};
    for (int i = 0; i < crew->size; i++)
        crowd_add(&crowd, body, &crew->workers[i]);
    crowd_join(&crowd);
    for (int i = 0; i < crew->size; i++)
        assert_int_equal(crew->workers[i].error, HF_OK);
    free(crew->workers);
}

/* ---- One name ---- */

static void *try_and_release(void *arg) {
    struct worker *me = arg;
    for (int i = 0; i < me->crew->rounds && me->error == HF_OK; i++) {
        int err = hf_lock_try(me->lock);
        if (err == HF_EBUSY)
            continue;
        if (err == HF_OK &&
            (world_stats(me->client).holds < 1 || hf_lock_remaining_ms(me->lock) <= 0))
            err = HF_EINVAL; /* held, and not in the register of holds */
        me->crew->guarded += err == HF_OK;
        me->error = err != HF_OK ? err : hf_lock_release(me->lock);
    }
    return NULL;
}

static bool renewed(void *client) {
    return world_stats(client).renewals >= 2;
}

WORLD_CASE_WITH(C022_the_register_is_never_empty_while_held, world_options(),
                options.watchdog_ms = ENDURING_MS) {
    struct crew crew;
    crew_begin(&crew, 16);
    crew.rounds = scaled(150, 10000);
    for (int i = 0; i < crew.size; i++) {
        crew.workers[i].client = w->client;
        crew.workers[i].lock = w->lock;
    }
    crew_work(&crew, try_and_release);
    hf_stats stats = world_stats(w->client);
    assert_int_equal(stats.acquired, crew.guarded + 1);
    assert_int_equal(stats.released, crew.guarded + 1);
    assert_int_equal(stats.acquired + stats.timed_out, 16 * crew.rounds + 1);
    assert_int_equal(stats.holds, 0);
    assert_true(world_free_after_refusal(w));
    /* And the watchdog is sound after all that. */
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(wait_until(renewed, w->client, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

static void *lock_hold_release(void *arg) {
    struct worker *me = arg;
    hf_options options = world_options();
    options.cmd_timeout_ms = 10000;
    int err = hf_open(server_url(me->crew->server), &options, &me->client);
    if (err == HF_OK)
        err = hf_lock_new(me->client, WORLD_NAME, &me->lock);
    for (int i = 0; i < me->crew->rounds && err == HF_OK; i++) {
        err = hf_lock_acquire(me->lock);
        if (err != HF_OK)
            break;
        int64_t seen = me->crew->guarded;
        if (me->crew->hold_ms > 0)
            linger(me->crew->hold_ms);
        me->crew->guarded = seen + 1;
        err = hf_lock_release(me->lock);
    }
    hf_lock_free(me->lock);
    hf_close(me->client);
    me->error = err;
    return NULL;
}

static void clients_take_turns(int clients, int rounds, int hold_ms) {
    struct crew crew;
    server_empty(world_server());
    crew_begin(&crew, clients);
    crew.rounds = rounds;
    crew.hold_ms = hold_ms;
    crew.server = world_server();
    crew_work(&crew, lock_hold_release);
    assert_int_equal(crew.guarded, clients * rounds);
    assert_int_equal(world_keys(world_server()), 0);
}

CASE(C024_many_clients_loop) {
    clients_take_turns(16, scaled(8, 100), scaled(1, 10));
}

CASE(C025_a_hundred_clients_once) {
    clients_take_turns(scaled(40, 100), 1, 0);
}

/* ---- A list of names ---- */

static void *walk_the_names(void *arg) {
    struct worker *me = arg;
    struct crew *crew = me->crew;
    unsigned seed = (unsigned)me->number;
    for (int i = 0; i < crew->rounds; i++) {
        /* Row C028 waits 0 to 9 ms and skips what it does not get. */
        bool brief = crew->hold_ms < 0;
        int err = brief ? hf_lock_acquire_for(crew->locks[i], rand_r(&seed) % 10)
                        : hf_lock_acquire(crew->locks[i]);
        if (brief && (err == HF_EBUSY || err == HF_ETIMEDOUT))
            continue;
        if (err == HF_OK) {
            crew->counts[i]++;
            err = hf_lock_release(crew->locks[i]);
        }
        if (err != HF_OK) {
            me->error = err;
            break;
        }
    }
    return NULL;
}

static int64_t walk(int threads, int names, bool brief) {
    struct world w;
    struct crew crew;
    int64_t total = 0;
    world_begin(&w, NULL);
    crew_begin(&crew, threads);
    crew.rounds = names;
    crew.hold_ms = brief ? -1 : 0;
    crew.locks = calloc((size_t)names, sizeof *crew.locks);
    crew.counts = calloc((size_t)names, sizeof *crew.counts);
    assert_true(crew.locks != NULL && crew.counts != NULL);
    for (int i = 0; i < names; i++) {
        own_text *name = text_of("walk-%d", i);
        assert_int_equal(hf_lock_new(w.client, name, &crew.locks[i]), HF_OK);
    }
    crew_work(&crew, walk_the_names);
    for (int i = 0; i < names; i++) {
        assert_true(brief || crew.counts[i] == threads);
        total += crew.counts[i];
        hf_lock_free(crew.locks[i]);
    }
    hf_stats stats = world_stats(w.client);
    assert_int_equal(stats.acquired, total + 1);
    assert_int_equal(stats.released, total + 1);
    if (!brief)
        assert_int_equal(world_keys(w.server), 0);
    assert_int_equal(stats.losses, 0);
    free(crew.locks);
    free(crew.counts);
    world_end(&w);
    return total;
}

/* On ZooKeeper a tenth: its server writes each attempt and each release into its log. */
static int walk_names(void) {
    const char *engine = getenv("HF_TEST_ENGINE");
    return scaled(100, engine != NULL && strcmp(engine, "zk") == 0 ? 5000 : 50000);
}

static const int crews[] = {2, 5, 10, 20};

CASE(C027_threads_walk_the_same_names) {
    for (size_t i = 0; i < sizeof crews / sizeof crews[0]; i++)
        assert_int_equal(walk(crews[i], walk_names(), false), crews[i] * walk_names());
}

CASE(C028_threads_walk_with_brief_waits) {
    for (size_t i = 0; i < sizeof crews / sizeof crews[0]; i++)
        assert_true(walk(crews[i], walk_names(), true) > 0);
}

/* ---- The herd ---- */

enum { HERD_PROCESSES = 10 };

struct herd {
    struct barrier *barrier;
    struct server *server;
    int waiters; /* in each process */
    atomic_int ready, entered, leave;
};

static void herd_entered(hf_op *op, const hf_result *result, void *user) {
    struct herd *herd = user;
    (void)op;
    if (result->code == HF_OK)
        atomic_fetch_add(&herd->entered, 1);
}

static bool asked_to_leave(void *arg) {
    return atomic_load(&((struct herd *)arg)->leave) != 0;
}

static int be_a_herd(void *arg) {
    struct herd *herd = arg;
    hf_client *client;
    hf_lock *lock;
    hf_op *ping;
    hf_options options = world_options();
    options.cmd_timeout_ms = 10000;
    if (!barrier_wait(herd->barrier, HANG_MS) ||
        hf_open(server_url(herd->server), &options, &client) != HF_OK ||
        hf_lock_new(client, WORLD_NAME, &lock) != HF_OK)
        return 1;
    for (int i = 0; i < herd->waiters; i++)
        if (hf_lock_acquire_start(lock, NULL, herd_entered, herd, NULL) != HF_OK)
            return 2;
    if (hf_ping_start(client, NULL, NULL, &ping) != HF_OK ||
        hf_op_wait(ping, HANG_MS, NULL) != HF_OK)
        return 3;
    hf_op_free(ping);
    atomic_fetch_add(&herd->ready, 1);
    if (!wait_until(asked_to_leave, herd, HANG_MS))
        return 4;
    hf_lock_free(lock);
    return hf_close(client) == HF_OK ? 0 : 5;
}

static bool herd_listens(void *server) {
    own_reply *reply = cmd(server, "PUBSUB NUMSUB %s", WORLD_CHANNEL);
    bool all =
        reply != NULL && reply->elements == 2 && reply->element[1]->integer == HERD_PROCESSES;
    return all;
}

/* Each process sends one to listen, so a release makes one message and about one attempt for each
 * process, not for each waiter. */
CASE(U82_one_release_does_not_wake_the_herd) {
    server_redis_only(world_server(), "there is a line (zk.herd)");
    struct herd *herd = shared_new(sizeof *herd);
    pid_t pids[HERD_PROCESSES];
    herd->barrier = barrier_new(HERD_PROCESSES + 1);
    herd->server = world_server();
    herd->waiters = scaled(10, 100);
    for (int i = 0; i < HERD_PROCESSES; i++)
        pids[i] = run_child(be_a_herd, herd);
    struct world w;
    world_begin(&w, NULL);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    struct monitor *monitor = monitor_start(w.server);
    assert_true(barrier_wait(herd->barrier, HANG_MS));
    assert_true(world_wait_atomic(&herd->ready, HERD_PROCESSES, HANG_MS));
    assert_true(wait_until(herd_listens, w.server, HANG_MS));
    /* the second attempt of each is behind its subscription */
    assert_true(monitor_wait(monitor, WORLD_ACQUIRE, 2 * HERD_PROCESSES, HANG_MS));
    monitor_clear(monitor);
    /* nobody polls meanwhile: a command per process in 10 s would be allowed */
    assert_true(HOLDS_FOR(monitor_count(monitor, WORLD_ACQUIRE) <= HERD_PROCESSES, 300));
    monitor_clear(monitor);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_wait_atomic(&herd->entered, 1, HANG_MS));
    assert_true(monitor_wait(monitor, WORLD_ACQUIRE, HERD_PROCESSES, HANG_MS));
    /* no other attempt comes */
    assert_true(HOLDS_FOR(monitor_count(monitor, "lua] \"publish\"") == 1, 500));
    size_t attempts = monitor_count(monitor, WORLD_ACQUIRE);
    assert_in_range(attempts, HERD_PROCESSES, 2 * HERD_PROCESSES);
    assert_int_equal(atomic_load(&herd->entered), 1);
    print_message("%d waiters: %zu attempts, %zu lines in MONITOR after one release\n",
                  HERD_PROCESSES * herd->waiters, attempts, monitor_count(monitor, ""));
    monitor_stop(monitor);

    atomic_store(&herd->leave, 1);
    for (int i = 0; i < HERD_PROCESSES; i++)
        assert_true(expect_exit(pids[i], 0, HANG_MS));
    assert_true(world_wait_no_channels(w.server, HANG_MS));
    world_end(&w);
    barrier_free(herd->barrier);
    shared_free(herd, sizeof *herd);
}

RUN_CASES(world_start_server, world_stop_server)
