/*
 * fork() and the library: in a child every call on what the parent has made says so, and never
 * waits for a mutex that another thread of the parent had. The thread that forked may use clients
 * of its own there, and may end.
 *
 * Mutexes of the library are held by the thread that forks, where one of them is the subject: for
 * the child it is all the same who held them. The rest is left to chance, with other threads at
 * work.
 */
#include "api/client.h"
#include "api/walk.h"
#include "support/case.h"
#include "support/crowd.h"
#include "support/new_lock.h"
#include "support/random.h"
#include "task/thread_record.h"

#include <stdatomic.h>

static struct server *server;

static int start_server(void **state) {
    (void)state;
    server = server_start(NULL);
    return server != NULL ? 0 : 1;
}

static int stop_server(void **state) {
    (void)state;
    server_free(server);
    return 0;
}

/* ---- Bodies of children ---- */

static void leave(void) {
    _exit(0);
}

/* Its only thread ends; what the parent has registered for its own end does not run. */
static int end_thread(void *unused) {
    (void)unused;
    if (atexit(leave) != 0)
        return 1;
    pthread_exit(NULL);
}

static int lock_by_itself(void *unused) {
    (void)unused;
    hf_client *client;
    hf_lock *lock;
    if (hf_open(server_url(server), NULL, &client) != HF_OK ||
        hf_lock_new(client, "child", &lock) != HF_OK)
        return 1;
    if (hf_lock_acquire(lock) != HF_OK || hf_lock_release(lock) != HF_OK)
        return 2;
    hf_lock_free(lock);
    return hf_close(client) == HF_OK ? 0 : 3;
}

/* ---- Holding at the fork ---- */

static void with_mutex(pthread_mutex_t *mtx, child_body *body) {
    pthread_mutex_lock(mtx);
    pid_t pid = run_child(body, NULL);
    pthread_mutex_unlock(mtx);
    assert_true(expect_exit(pid, 0, HANG_MS));
}

CASE(a_thread_that_holds_forks) {
    struct walk w;
    assert_true(walk_begin(&w, server));
    assert_true(walk_prepare(&w));
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    struct hfi_thread_record *self = hfi_thread_record();
    assert_true(self->watchers_len > 0);
    struct hfi_task *watcher = self->watchers[0];
    pthread_mutex_t *const mutexes[] = {&self->mtx, &watcher->mtx, &watcher->exec->mtx,
                                        &w.client->handles_mtx, &w.client->close_mtx};
    for (size_t i = 0; i < sizeof mutexes / sizeof mutexes[0]; i++) {
        with_mutex(mutexes[i], end_thread);
        with_mutex(mutexes[i], lock_by_itself);
    }
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    walk_tidy(&w);
    walk_end(&w);
}

/* ---- A switch of the parent's ---- */

static int use_switch(void *arg) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_client *client;
    hf_lock *lock;
    options.cancel = arg;
    hf_cancel_fire(arg);
    hf_cancel_reset(arg);
    if (hf_open(server_url(server), NULL, &client) != HF_OK ||
        hf_lock_new(client, "child", &lock) != HF_OK)
        return 1;
    if (hf_lock_acquire_with(lock, &options, NULL) != HF_EFORKED)
        return 2;
    hf_cancel_free(arg);
    return 0;
}

static void *fire_steadily(void *arg) {
    while (true) {
        hf_cancel_fire(arg);
        pthread_testcancel();
    }
    return NULL;
}

/* The other thread has its mutex at nearly every time. */
CASE(a_switch_stays_with_the_parent) {
    own_cancel *cancel;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    pthread_t thread = started(fire_steadily, cancel);
    for (int i = 0; i < 20; i++)
        assert_true(expect_exit(run_child(use_switch, cancel), 0, HANG_MS));
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

/* ---- Inside a callback ---- */

struct inside {
    struct walk *walk;
    atomic_int status; /* -1: it has not run */
};

static int lock_with_both(void *arg) {
    const struct walk *w = arg;
    return hf_lock_acquire(w->lock) == HF_EFORKED ? lock_by_itself(NULL) : 4;
}

static void fork_inside(hf_op *op, const hf_result *result, void *user) {
    struct inside *inside = user;
    (void)op;
    (void)result;
    atomic_store(&inside->status, wait_exit(run_child(lock_with_both, inside->walk), HANG_MS));
}

CASE(a_callback_forks) {
    struct walk w;
    assert_true(walk_begin(&w, server));
    assert_true(walk_prepare(&w));
    struct inside inside = {.walk = &w, .status = -1};
    assert_int_equal(hf_ping_start(w.manual, fork_inside, &inside, NULL), HF_OK);
    while (atomic_load(&inside.status) == -1)
        assert_true(hf_dispatch(w.manual, HANG_MS) >= 0);
    assert_int_equal(atomic_load(&inside.status), 0);
    walk_tidy(&w);
    walk_end(&w);
}

/* ---- Every function, while others work ---- */

struct passage {
    struct walk walk;
    unsigned seed;
};

/* All steps, in an order of its own: 0, or which of them was wrong. */
static int walk_all(void *arg) {
    struct passage *passage = arg;
    struct walk *w = &passage->walk;
    size_t order[512] = {0};
    if (walk_len > sizeof order / sizeof order[0])
        return 255;
    for (size_t i = 0; i < walk_len; i++) {
        size_t other = (size_t)rand_r(&passage->seed) % (i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    for (size_t i = 0; i < walk_len; i++) {
        const struct walk_step *step = &walk_steps[order[i]];
        struct walk copy = *w; /* handles that one frees stay for the next: their memory is left */
        step->call(&copy);
        w->info = copy.info; /* but not these */
        w->facts = copy.facts;
        w->fleet = copy.fleet;
        w->deadlocks = copy.deadlocks;
        w->text = copy.text;
        if ((step->child == CHILD_FORKED && copy.result != HF_EFORKED) ||
            (step->child == CHILD_ZERO && copy.result != 0)) {
            fprintf(stderr, "%s answers %lld\n", step->name, copy.result);
            return 1;
        }
        if (copy.made_client != NULL)
            hf_close(copy.made_client);
    }
    return lock_by_itself(NULL);
}

struct worker {
    struct walk walk;
    struct crowd *crowd;
    unsigned seed;
};

static void *work(void *arg) {
    struct worker *worker = arg;
    /* One step for each preparation: what one deletes, another would wait for, and for ever. */
    while (!atomic_load(&worker->crowd->over) && walk_prepare(&worker->walk)) {
        const struct walk_step *step = &walk_steps[(size_t)rand_r(&worker->seed) % walk_len];
        if (step->child == CHILD_FORKED)
            step->call(&worker->walk);
        walk_tidy(&worker->walk);
    }
    walk_tidy(&worker->walk);
    return NULL;
}

CASE(every_call_in_a_child_says_so) {
    enum { WORKERS = 3 };
    int rounds = getenv("HF_SOAK") != NULL ? 1000 : 60;
    struct passage passage = {.seed = (unsigned)random_seed()};
    struct worker workers[WORKERS];
    struct crowd crowd = {0};
    walk_assert_complete();
    assert_true(walk_begin(&passage.walk, server));
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.walk = {.server = server,
                                              .client = passage.walk.client,
                                              .manual = passage.walk.manual},
                                     .crowd = &crowd,
                                     .seed = passage.seed + (unsigned)i};
        crowd_add(&crowd, work, &workers[i]);
    }
    for (int i = 0; i < rounds; i++, passage.seed++) {
        assert_true(walk_prepare(&passage.walk));
        assert_true(expect_exit(run_child(walk_all, &passage), 0, HANG_MS));
        assert_int_equal(hf_lock_acquire(passage.walk.lock), HF_OK);
        assert_true(expect_exit(run_child(end_thread, NULL), 0, HANG_MS));
        assert_int_equal(hf_lock_release(passage.walk.lock), HF_OK);
        walk_tidy(&passage.walk);
    }
    crowd_end(&crowd);
    for (int i = 0; i < WORKERS; i++) {
        workers[i].walk.client = workers[i].walk.manual = NULL; /* they are the passage's */
        walk_end(&workers[i].walk);
    }
    walk_end(&passage.walk);
}

RUN_CASES(start_server, stop_server)
