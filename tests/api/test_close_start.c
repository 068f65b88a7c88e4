/*
 * hf_close_start(): what hf_close() does, without waiting. With operations of several kinds under
 * way, at random moments; on threads of the library, and by hand, in hf_dispatch(), by a loop that
 * blocks there and by one that polls the descriptor.
 */
#include "support/memory.h"
#include "support/random.h"
#include "support/world.h"

#include <poll.h>

#define OPS 12

struct round {
    hf_client *client;
    struct memory memory;
    hf_lock *locks[3];
    hf_sem *sem;
    hf_listener *listener;
    hf_op *ops[OPS];
    int started;
    atomic_int ended, closed, gone;
    pthread_t thread; /* on which its end was reported */
    int ended_before; /* how many operations had */
};

static void on_end(hf_op *op, const hf_result *result, void *user) {
    struct round *round = user;
    (void)op;
    atomic_fetch_add(&round->ended, 1);
    atomic_fetch_add(&round->closed, result->code == HF_ECLOSED);
}

static void on_gone(void *user) {
    struct round *round = user;
    round->thread = pthread_self();
    round->ended_before = atomic_load(&round->ended);
    atomic_fetch_add(&round->gone, 1);
}

static void ignore(hf_listener *listener, const hf_notification *notification, void *user) {
    (void)listener, (void)notification, (void)user;
}

static void begin(struct round *round, const char *url, unsigned flags) {
    hf_options options = world_options();
    memset(round, 0, sizeof *round);
    options.allocator = memory_allocator(&round->memory);
    options.flags = flags;
    assert_int_equal(hf_open(url, &options, &round->client), HF_OK);
    assert_int_equal(new_lock(round->client, HF_PLAIN, "plain", 5, &round->locks[0]), HF_OK);
    assert_int_equal(new_lock(round->client, HF_FAIR, "fair", 4, &round->locks[1]), HF_OK);
    assert_int_equal(new_lock(round->client, HF_COHORT, "cohort", 6, &round->locks[2]), HF_OK);
    assert_int_equal(hf_sem_new(round->client, "sem", &round->sem), HF_OK);
    assert_int_equal(hf_listen(round->client, "plain", ignore, NULL, &round->listener), HF_OK);
}

static void start_ops(struct round *round) {
    for (; round->started < OPS; round->started++) {
        hf_op **op = &round->ops[round->started];
        if (round->started % 4 == 3)
            assert_int_equal(hf_sem_acquire_start(round->sem, 1, NULL, on_end, round, op), HF_OK);
        else
            assert_int_equal(
                hf_lock_acquire_start(round->locks[round->started % 4], NULL, on_end, round, op),
                HF_OK);
    }
}

/* Handles outlive the client. */
static void end(struct round *round) {
    assert_int_equal(atomic_load(&round->gone), 1);
    assert_int_equal(round->ended_before, round->started);
    assert_int_equal(atomic_load(&round->ended), round->started);
    for (int i = 0; i < round->started; i++)
        hf_op_free(round->ops[i]);
    for (int i = 0; i < 3; i++)
        hf_lock_free(round->locks[i]);
    hf_sem_free(round->sem);
    hf_listener_free(round->listener);
    assert_true(WAIT_FOR(atomic_load(&round->memory.live) == 0, HANG_MS));
}

static int rounds(void) {
    return getenv("HF_SOAK") != NULL ? 2000 : 100;
}

CASE(T11_operations_end_before_their_client_is_gone) {
    struct server *server = world_server();
    uint64_t seed = random_seed();
    for (int i = 0; i < rounds(); i++) {
        struct round round;
        begin(&round, server_url(server), 0);
        start_ops(&round);
        usleep(
            (useconds_t)(random_next(&seed) % 2000)); /* the close comes at any moment of theirs */
        assert_int_equal(hf_close_start(round.client, on_gone, &round), HF_OK);
        assert_true(WAIT_FOR(atomic_load(&round.gone) == 1, HANG_MS));
        end(&round);
        server_empty(server);
    }
}

/* ---- By hand ---- */

static void dispatch_until_gone(struct round *round, bool by_poll) {
    int64_t end_ms = now_ms() + HANG_MS;
    int ran = 0;
    while (round->gone == 0) {
        struct pollfd fd = {.fd = -1, .events = POLLIN};
        assert_true(now_ms() < end_ms);
        if (by_poll) {
            fd.fd = hf_dispatch_fd(round->client);
            assert_int_equal(poll(&fd, 1, HANG_MS), 1);
        }
        ran = hf_dispatch(round->client, by_poll ? 0 : HF_FOREVER);
        assert_true(ran >= 0);
    }
    assert_int_equal(ran, 1);
    assert_true(pthread_equal(round->thread, pthread_self()));
}

CASE(T11_by_hand_all_happens_in_hf_dispatch) {
    struct server *server = world_server();
    uint64_t seed = random_seed();
    for (int i = 0; i < rounds(); i++) {
        struct round round;
        begin(&round, server_url(server), HF_MANUAL_DISPATCH);
        start_ops(&round);
        for (uint64_t k = random_next(&seed) % 4; k > 0; k--)
            assert_true(hf_dispatch(round.client, 1) >= 0);
        int ended = atomic_load(&round.ended);
        assert_int_equal(hf_close_start(round.client, on_gone, &round), HF_OK);
        assert_int_equal(atomic_load(&round.ended), ended);
        dispatch_until_gone(&round, i % 2 == 0);
        end(&round);
        server_empty(server);
    }
}

/* From another thread, while this one blocks in hf_dispatch(). */
static void *close_it(void *arg) {
    struct round *round = arg;
    assert_int_equal(hf_close_start(round->client, on_gone, round), HF_OK);
    return NULL;
}

CASE(T11_by_hand_from_another_thread) {
    struct server *server = world_server();
    for (int i = 0; i < rounds(); i++) {
        struct round round;
        begin(&round, server_url(server), HF_MANUAL_DISPATCH);
        start_ops(&round);
        pthread_t thread = started(close_it, &round);
        dispatch_until_gone(&round, false);
        pthread_join(thread, NULL);
        end(&round);
        server_empty(server);
    }
}

CASE_IN(T11_twice_is_refused, struct round, round, begin, end, server_url(world_server()),
        HF_MANUAL_DISPATCH) {
    assert_int_equal(hf_close_start(round->client, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_close_start(NULL, on_gone, round), HF_EINVAL);
    assert_int_equal(hf_close_start(round->client, on_gone, round), HF_OK);
    assert_int_equal(hf_close_start(round->client, on_gone, round), HF_ECLOSED);
    dispatch_until_gone(round, true);
}

/* ---- Inside a callback ---- */

static void close_inside(hf_op *op, const hf_result *result, void *user) {
    struct round *round = user;
    assert_int_equal(hf_close(round->client), HF_EDEADLK);
    assert_int_equal(hf_close_start(round->client, on_gone, round), HF_OK);
    on_end(op, result, user);
}

CASE(T11_inside_a_callback) {
    for (unsigned manual = 0; manual <= 1; manual++) {
        struct round round;
        begin(&round, server_url(world_server()), manual != 0 ? HF_MANUAL_DISPATCH : 0);
        assert_int_equal(hf_ping_start(round.client, close_inside, &round, &round.ops[0]), HF_OK);
        round.started = 1;
        if (manual != 0)
            dispatch_until_gone(&round, false);
        assert_true(WAIT_FOR(atomic_load(&round.gone) == 1, HANG_MS));
        end(&round);
    }
}

/* ---- It does not wait ---- */

/* A cancelled acquire may have been granted: the client is gone when that is undone, and not
 * before. Were this thread kept waiting, nobody would let the answer through. */
CASE(T11_what_is_to_be_undone_keeps_no_thread_waiting) {
    for (unsigned manual = 0; manual <= 1; manual++) {
        struct world w;
        struct round round;
        world_begin(&w, NULL);
        begin(&round, proxy_url(w.proxy), manual != 0 ? HF_MANUAL_DISPATCH : 0);
        hf_lock *lock = made(hf_lock_new, round.client, WORLD_NAME);
        proxy_stall_request(w.proxy, WORLD_ACQUIRE);
        assert_int_equal(hf_lock_acquire_start(lock, NULL, on_end, &round, &round.ops[0]), HF_OK);
        round.started = 1;
        while (!proxy_wait_held(w.proxy, 1))
            if (manual != 0)
                hf_dispatch(round.client, 1);
        hf_op_cancel(round.ops[0]);
        assert_int_equal(hf_close_start(round.client, on_gone, &round), HF_OK);
        while (atomic_load(&round.ended) ==
               0) /* it may not be granted first: then it would be a hold, which stays */
            if (manual != 0)
                hf_dispatch(round.client, 1);
        proxy_release_held(w.proxy);
        if (manual != 0)
            dispatch_until_gone(&round, true);
        assert_true(WAIT_FOR(atomic_load(&round.gone) == 1, HANG_MS));
        assert_true(world_free(&w));
        hf_lock_free(lock);
        end(&round);
        world_end(&w);
    }
}

static void *wait_for_lock(void *arg) {
    return (void *)(intptr_t)hf_lock_acquire(arg);
}

WORLD_CASE(T11_synchronous_waits_end) {
    struct round round;
    pthread_t thread;
    void *code;
    for (unsigned manual = 0; manual <= 1; manual++) {
        begin(&round, server_url(w->server), manual != 0 ? HF_MANUAL_DISPATCH : 0);
        hf_lock *lock = made(hf_lock_new, round.client, WORLD_NAME);
        assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
        assert_int_equal(pthread_create(&thread, NULL, wait_for_lock, lock), 0);
        assert_true(WAIT_FOR(world_stats(round.client).waits == 1, HANG_MS));
        assert_int_equal(hf_close_start(round.client, on_gone, &round), HF_OK);
        pthread_join(thread, &code);
        assert_int_equal((int)(intptr_t)code, HF_ECLOSED);
        if (manual != 0)
            dispatch_until_gone(&round, false);
        assert_true(WAIT_FOR(atomic_load(&round.gone) == 1, HANG_MS));
        assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
        hf_lock_free(lock);
        end(&round);
    }
}

RUN_CASES(world_start_server, world_stop_server)
