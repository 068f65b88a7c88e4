/*
 * Processes that are stopped or killed while they wait in the queue for a fair lock, or have just been
 * given it (U58, C328): who is behind them comes in within seconds, in the same order, and nothing
 * of them remains.
 *
 * The processes are forked children with clients of their own, forked before this process has one.
 * The horizon and the confirm follow from their watchdog option.
 */
#include "lock/fair.h"

#include <signal.h>
#include <sys/wait.h>

#define FIRST 100
#define LONG_MS 60000

struct child {
    const char *url;
    int threads; /* that wait, with the owners FIRST and up */
    bool holds;  /* and one more thread that holds it */
    int64_t watchdog_ms, lease_ms;
    atomic_int ready, acquired;
    atomic_bool release;
};

struct child_thread {
    pthread_t thread;
    struct child *child;
    hf_lock *lock;
    hf_owner owner;
    int result;
};

static hf_acquire_options as(hf_owner owner, int64_t wait_ms, int64_t lease_ms) {
    hf_acquire_options options = world_wait_as(owner, wait_ms, lease_ms);
    return options;
}

static void *wait_and_release(void *arg) {
    struct child_thread *self = arg;
    hf_acquire_options options = as(self->owner, HF_FOREVER, self->child->lease_ms);
    self->result = hf_lock_acquire_with(self->lock, &options, NULL);
    if (self->result != HF_OK)
        return NULL;
    atomic_fetch_add(&self->child->acquired, 1);
    self->result = hf_lock_release_as(self->lock, self->owner);
    return NULL;
}

static int run_waiters(void *arg) {
    struct child *child = arg;
    struct child_thread threads[64];
    const int count = child->threads;
    hf_options options = fair_options(child->watchdog_ms);
    hf_client *client;
    hf_lock *lock;
    if (hf_open(child->url, &options, &client) != HF_OK ||
        new_lock(client, HF_FAIR, WORLD_NAME, strlen(WORLD_NAME), &lock) != HF_OK)
        return 10;
    if (child->holds && hf_lock_acquire(lock) != HF_OK)
        return 11;
    for (int i = 0; i < count; i++) {
        threads[i] =
            (struct child_thread){.child = child, .lock = lock, .owner = (hf_owner)(FIRST + i)};
        if (pthread_create(&threads[i].thread, NULL, wait_and_release, &threads[i]) != 0)
            return 12;
    }
    atomic_store(&child->ready, 1);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i].thread, NULL);
        if (threads[i].result != HF_OK)
            return 100 - threads[i].result;
    }
    hf_lock_free(lock);
    return hf_close(client) == HF_OK ? 0 : 14;
}

static bool all_listen(void *arg) {
    own_reply *records = cmd(arg, "HVALS " FAIR_RECORDS);
    bool all = records->elements > 0;
    for (size_t i = 0; i < records->elements; i++)
        all = all && records->element[i]->str[0] != '0';
    return all;
}

/* Its threads are in the queue, and listen. */
static pid_t start(struct child *child, struct server *server) {
    child->url = server_url(server);
    pid_t pid = run_child(run_waiters, child);
    assert_true(world_wait_atomic(&child->ready, 1, HANG_MS));
    assert_true(wait_queue(server, child->threads));
    assert_true(wait_until(all_listen, server, HANG_MS));
    return pid;
}

/* Somebody else's hold, for the processes to wait for: of a Java client, so to say. */
static void hold_foreign(struct server *server) {
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "HSET " WORLD_NAME " java:1 1");
    cmd_ok(server, "PEXPIRE " WORLD_NAME " 600000");
}

/* A client of this process, after the fork. */
static hf_lock *open_lock(struct server *server, int64_t watchdog_ms, hf_client **ret_client) {
    hf_options options = fair_options(watchdog_ms);
    assert_int_equal(hf_open(server_url(server), &options, ret_client), HF_OK);
    return new_handle(*ret_client, HF_FAIR);
}

static void close_lock(hf_client *client, hf_lock *lock) {
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
}

/* The first three of the queue are killed: nobody hears what they are granted, so the fourth gets it
 * with the release itself. */
CASE(U58_killed_waiters_are_skipped) {
    struct server *server = world_server();
    struct child *child = shared_new(sizeof *child);
    struct world_caller waiter;
    hf_client *client;
    bool broken;
    hold_foreign(server);
    *child = (struct child){.threads = 3, .watchdog_ms = LONG_MS};
    pid_t pid = start(child, server);
    hf_lock *lock = open_lock(server, LONG_MS, &client);
    queue_up(&waiter, server, client, lock, 7, as(7, HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(queue_len(server), 4);
    kill_child(pid);
    /* the server has noticed: ours are command, control, pub/sub */
    assert_true(WAIT_FOR(server_clients(server) <= 3, HANG_MS));
    assert_int_equal(hf_lock_break(lock, &broken), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(queue_len(server), 0);
    assert_int_equal(hf_lock_release_as(lock, 7), HF_OK);
    assert_true(wait_no_keys(server));
    close_lock(client, lock);
    shared_free(child, sizeof *child);
}

/* C328: a process that holds and many that wait are killed together; a new client comes in when the
 * lease is over, not when all the dead have been waited for. */
CASE(C328_killed_crowd_costs_one_lease) {
    enum { WATCHDOG_MS = 3000, DEAD = 40 };
    struct server *server = world_server();
    struct child *child = shared_new(sizeof *child);
    hf_client *client;
    cmd_ok(server, "FLUSHALL");
    *child = (struct child){.threads = DEAD, .watchdog_ms = WATCHDOG_MS, .holds = true};
    pid_t pid = start(child, server);
    kill_child(pid);
    int64_t start_ms = now_ms();
    hf_lock *lock = open_lock(server, WATCHDOG_MS, &client);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(now_ms() - start_ms < 10 * WATCHDOG_MS); /* not DEAD times anything */
    assert_int_equal(queue_len(server), 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(wait_no_keys(server));
    close_lock(client, lock);
    shared_free(child, sizeof *child);
}

/* The head of the queue is stopped: it still has its subscription, so it is granted the lock and does
 * not take it. Its confirm is over soon, and the next comes in. When it goes on, the message is
 * old: it must not enter by it, but is the head of the queue again. */
CASE(stopped_grantee_delays_by_its_confirm) {
    enum { WATCHDOG_MS = 1800 };
    struct server *server = world_server();
    struct child *child = shared_new(sizeof *child);
    struct world_caller second, third;
    hf_client *client;
    bool broken;
    hold_foreign(server);
    *child = (struct child){.threads = 1, .watchdog_ms = WATCHDOG_MS, .lease_ms = LONG_MS};
    pid_t pid = start(child, server);
    hf_lock *lock = open_lock(server, WATCHDOG_MS, &client);
    queue_up(&second, server, client, lock, 7, as(7, HF_FOREVER, LONG_MS));
    queue_up(&third, server, client, lock, 8, as(8, HF_FOREVER, LONG_MS));
    stop_process(pid);
    assert_int_equal(hf_lock_break(lock, &broken), HF_OK);
    assert_int_equal(queue_len(server), 2); /* it was granted */
    assert_int_equal(world_join(&second), HF_OK);
    assert_true(second.took_ms < 10 * WATCHDOG_MS);
    kill(pid, SIGCONT);
    assert_true(wait_queue(server, 2)); /* it is in the queue again, and did not enter */
    assert_int_equal(atomic_load(&child->acquired), 0);
    char *head = cmd_str(server, "LINDEX " FAIR_QUEUE " 0");
    assert_non_null(strstr(head, ":100"));
    free(head);
    assert_int_equal(hf_lock_release_as(lock, 7), HF_OK);
    assert_true(expect_exit(pid, 0, HANG_MS));
    assert_int_equal(atomic_load(&child->acquired), 1);
    assert_int_equal(world_join(&third), HF_OK);
    assert_int_equal(hf_lock_release_as(lock, 8), HF_OK);
    assert_true(wait_no_keys(server));
    close_lock(client, lock);
    shared_free(child, sizeof *child);
}

static bool is_free(void *server) {
    return !key_exists(server, WORLD_NAME);
}

/* Stopped for a moment only, but for longer than its confirm: it has no other news when it goes on
 * than the message, and that is too old. */
CASE(a_message_can_be_too_late) {
    enum { WATCHDOG_MS = 15000, LEASE_MS = 1500 }; /* polls after ten seconds */
    struct server *server = world_server();
    struct child *child = shared_new(sizeof *child);
    hf_client *client;
    bool broken;
    hold_foreign(server);
    *child = (struct child){.threads = 1, .watchdog_ms = WATCHDOG_MS, .lease_ms = LEASE_MS};
    pid_t pid = start(child, server);
    hf_lock *lock = open_lock(server, WATCHDOG_MS, &client);
    stop_process(pid);
    assert_int_equal(hf_lock_break(lock, &broken), HF_OK);
    assert_int_equal(queue_len(server), 0); /* it was granted */
    assert_true(wait_until(is_free, server, HANG_MS));
    assert_int_equal(hf_lock_try(lock), HF_OK);
    kill(pid, SIGCONT);
    assert_true(wait_queue(server, 1));
    assert_int_equal(atomic_load(&child->acquired), 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(expect_exit(pid, 0, HANG_MS));
    assert_int_equal(atomic_load(&child->acquired), 1);
    assert_true(wait_no_keys(server));
    close_lock(client, lock);
    shared_free(child, sizeof *child);
}

/* A dead waiter whose connection the server still believes in is swept when it has said nothing for
 * the horizon; nobody is granted anything by mistake meanwhile. */
CASE(silent_waiters_are_swept) {
    enum { WATCHDOG_MS = 2400 };
    struct server *server = world_server();
    struct child *child = shared_new(sizeof *child);
    struct world_caller waiter;
    hf_client *client;
    bool broken;
    hold_foreign(server);
    *child = (struct child){.threads = 2, .watchdog_ms = WATCHDOG_MS};
    pid_t pid = start(child, server);
    hf_lock *lock = open_lock(server, WATCHDOG_MS, &client);
    queue_up(&waiter, server, client, lock, 7, as(7, HF_FOREVER, HF_WATCHDOG));
    stop_process(pid);
    assert_true(wait_queue(server, 1)); /* by the poll of the one behind them */
    assert_int_equal(hf_lock_break(lock, &broken), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(lock, 7), HF_OK);
    kill_child(pid);
    cmd_ok(server, "FLUSHALL");
    close_lock(client, lock);
    shared_free(child, sizeof *child);
}

/* Killed at random while many take turns: the others go on, each as often as it wants. */
CASE(turns_go_on_while_processes_die) {
    enum { ROUNDS = 8, WATCHDOG_MS = 3000, THREADS = 4 };
    struct server *server = world_server();
    cmd_ok(server, "FLUSHALL");
    struct child *children[ROUNDS];
    pid_t pids[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        children[i] = shared_new(sizeof *children[i]);
        *children[i] = (struct child){
            .url = server_url(server), .threads = THREADS, .watchdog_ms = WATCHDOG_MS};
        pids[i] = run_child(run_waiters, children[i]);
        if (i % 2 == 1) {
            assert_true(world_wait_atomic(&children[i]->ready, 1, HANG_MS));
            kill_child(pids[i]); /* wherever its threads are */
        }
    }
    for (int i = 0; i < ROUNDS; i += 2) {
        assert_true(expect_exit(pids[i], 0, HANG_MS));
        assert_int_equal(atomic_load(&children[i]->acquired), THREADS);
    }
    hf_client *client;
    hf_lock *lock = open_lock(server, WATCHDOG_MS, &client);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(wait_queue(server, 0));
    assert_true(wait_no_keys(server));
    close_lock(client, lock);
    for (int i = 0; i < ROUNDS; i++)
        shared_free(children[i], sizeof *children[i]);
}

RUN_CASES(world_start_server, world_stop_server)
