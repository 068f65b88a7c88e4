/*
 * Semaphores, permits with leases and latches between C and Java where more than two are at it, where
 * somebody dies, and where the sides differ on purpose. (Two at a time, in all ways round:
 * rows_state_others.c.)
 */
#include "interop.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME "other"
#define SHORT_MS ENDURING_MS
#define MANY 100

#define assert_java(answer, ...) assert_string_equal(java_call(suite.java, __VA_ARGS__), answer)

/* ---- Waiting on both sides ------------------------------------------------------------------------ */

enum { CLIENTS = 2 };

/* Two clients of each side, who wait for the same; one wait each. */
struct waiters {
    hf_client *clients[CLIENTS];
    hf_op *ops[CLIENTS];
    int commands[CLIENTS];
};

static void java_waiters(struct waiters *waiters, const char *kind, const char *command) {
    for (int i = 0; i < CLIENTS; i++) {
        own_text *handle = text_of("waiter%d", i);
        java_open(i == 0 ? "j1" : "j2", kind, NAME, handle);
        struct watched_wait *wait = java_watch(i == 0 ? "j1" : "j2", NAME);
        waiters->commands[i] =
            java_send(suite.java, "%s %s thread=%d", command, handle, java_thread());
        wait_until_asleep(wait);
    }
}

static void assert_waiters_sleep(struct waiters *waiters) {
    for (int i = 0; i < CLIENTS; i++) {
        assert_hf(HF_EPENDING, hf_op_wait(waiters->ops[i], 0, NULL));
        assert_false(java_answered(suite.java, waiters->commands[i]));
    }
}

static void assert_waiters_woken(struct waiters *waiters) {
    for (int i = 0; i < CLIENTS; i++) {
        assert_hf(HF_OK, hf_op_wait(waiters->ops[i], BY_MESSAGE_MS, NULL));
        hf_op_free(waiters->ops[i]);
        const char *answer = java_answer_within(suite.java, waiters->commands[i], BY_MESSAGE_MS);
        assert_memory_equal(answer, "ok", 2);
    }
}

static void waiters_close(struct waiters *waiters) {
    for (int i = 0; i < CLIENTS; i++)
        hf_close(waiters->clients[i]);
}

/* ---- Semaphore ----------------------------------------------------------------------------------- */

static hf_sem *sem_of(hf_client *client) {
    hf_sem *sem;
    assert_hf(HF_OK, hf_sem_new_bytes(client, NAME, strlen(NAME), &sem));
    return sem;
}

/* Four permits at once wake four waiters, two on each side, no matter who puts them there. */
static void wake_semaphore_waiters(bool by_java) {
    struct waiters waiters;
    hf_sem *sems[CLIENTS];
    bool set;
    int64_t left;
    for (int i = 0; i < CLIENTS; i++) {
        waiters.clients[i] = c_client(0);
        sems[i] = sem_of(waiters.clients[i]);
    }
    assert_hf(HF_OK, hf_sem_try_set(sems[0], 0, 0, &set));
    assert_true(set);
    for (int i = 0; i < CLIENTS; i++) {
        struct watched_wait *wait = c_watch(waiters.clients[i], NAME);
        assert_hf(HF_OK, hf_sem_acquire_start(sems[i], 1, NULL, NULL, NULL, &waiters.ops[i]));
        wait_until_asleep(wait);
    }
    java_waiters(&waiters, "semaphore", "acquire");
    assert_waiters_sleep(&waiters);
    if (by_java)
        assert_java("ok", "release waiter0 permits=%d thread=%d", 2 * CLIENTS, java_thread());
    else
        assert_hf(HF_OK, hf_sem_release(sems[0], 2 * CLIENTS));
    assert_waiters_woken(&waiters);
    assert_hf(HF_OK, hf_sem_available(sems[0], &left));
    assert_int_equal(left, 0);
    for (int i = 0; i < CLIENTS; i++)
        hf_sem_free(sems[i]);
    waiters_close(&waiters);
    cmd_ok(suite.server, "DEL " NAME);
}

void semaphore_wakes_all_of_both_sides(void **state) {
    (void)state;
    wake_semaphore_waiters(false);
    wake_semaphore_waiters(true);
}

/* Who gives up has taken nothing, also when the permit comes in that moment; cancelled ones too. */
void semaphore_give_ups_take_nothing(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_sem *sem = sem_of(client);
    bool set;
    int thread = java_thread();
    java_open("j1", "semaphore", NAME, "sem");
    assert_hf(HF_OK, hf_sem_try_set(sem, 0, 0, &set));
    for (int round = 0; round < 10; round++) {
        hf_op *op;
        assert_hf(HF_OK, hf_sem_acquire_start(sem, 2, NULL, NULL, NULL, &op));
        int timed = java_send(suite.java, "try sem permits=2 wait=50 thread=%d", thread);
        hf_op_cancel(op);
        assert_java("ok", "release sem permits=2 thread=0");
        int taken = hf_op_wait(op, JAVA_LIMIT_MS, NULL) == HF_OK ? 2 : 0;
        taken += strcmp(java_answer(suite.java, timed), "ok true") == 0 ? 2 : 0;
        hf_op_free(op);
        /* Whatever was taken is known; what was not is there, at the latest in a moment. */
        if (taken > 0)
            assert_hf(HF_OK, hf_sem_release(sem, taken));
        assert_hf(HF_OK, hf_sem_acquire_for(sem, 2, BY_MESSAGE_MS));
        assert_java("ok 0", "available sem");
    }
    hf_sem_free(sem);
    hf_close(client);
    cmd_ok(suite.server, "DEL " NAME);
}

/* ---- Permits ------------------------------------------------------------------------------------- */

static hf_permits *permits_of(hf_client *client) {
    hf_permits *permits;
    assert_hf(HF_OK, hf_permits_new_bytes(client, NAME, strlen(NAME), &permits));
    return permits;
}

static int64_t available(hf_permits *permits) {
    int64_t number;
    assert_hf(HF_OK, hf_permits_available(permits, &number));
    return number;
}

/* A hundred ids at once, from either side, given back at once by the other. */
void permits_many_ids_cross(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_permits *permits = permits_of(client);
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    hf_permit_id ids[MANY];
    char text[MANY * 33 + 1] = "";
    bool set;
    java_open("j1", "permits", NAME, "permits");
    assert_hf(HF_OK, hf_permits_try_set(permits, MANY, &set));

    options.count = MANY;
    options.lease_ms = 60 * 1000;
    assert_hf(HF_OK, hf_permits_acquire_with(permits, &options, ids));
    assert_java("ok 0", "available permits");
    assert_java("ok 100", "acquired permits");
    for (int i = 0; i < MANY; i++)
        snprintf(text + strlen(text), 34, " %.32s", ids[i].text);
    assert_java("ok 100", "tryRelease permits%s", text);
    assert_int_equal(available(permits), MANY);

    const char *answer = java_call(suite.java, "acquire permits permits=%d lease=60000", MANY);
    assert_memory_equal(answer, "ok ", 3);
    for (int i = 0; i < MANY; i++) {
        memcpy(ids[i].text, answer + 3 + i * 33, 32);
        ids[i].text[32] = '\0';
    }
    assert_int_equal(available(permits), 0);
    assert_hf(HF_OK, hf_permits_release_many(permits, ids, MANY));
    assert_java("ok 100", "available permits");
    assert_hf(HF_ENOTOWNER, hf_permits_release_many(permits, ids, MANY));
    hf_permits_free(permits);
    hf_close(client);
    cmd_ok(suite.server, "DEL " NAME " {" NAME "}:timeout");
}

static bool java_has_two(void *arg) {
    (void)arg;
    return strcmp(java_call(suite.java, "available permits"), "ok 2") == 0;
}

/* Leases are read and changed by the other side. */
void permits_leases_cross(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_permits *permits = permits_of(client);
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    hf_permit_id id;
    long long notified;
    int64_t left;
    java_open("j1", "permits", NAME, "permits");
    assert_hf(HF_OK, hf_permits_set(permits, 2));

    options.lease_ms = 60 * 1000;
    assert_hf(HF_OK, hf_permits_acquire_with(permits, &options, &id));
    const char *lease = java_call(suite.java, "lease permits %s", id.text);
    if (java_lacks(lease))
        skip();
    assert_int_equal(sscanf(lease, "ok %lld", &notified), 1);
    assert_in_range(notified, 1, 60 * 1000);
    assert_java("ok true", "updateLease permits %s lease=600000", id.text);
    assert_hf(HF_OK, hf_permits_ttl_ms(permits, &id, &left));
    assert_in_range(left, 60 * 1000 + 1, 600 * 1000);
    assert_hf(HF_OK, hf_permits_release(permits, &id));

    assert_int_equal(sscanf(java_call(suite.java, "acquire permits"), "ok %32s", id.text), 1);
    assert_hf(HF_OK, hf_permits_ttl_ms(permits, &id, &left));
    assert_int_equal(left, -1);
    assert_java("ok -1", "lease permits %s", id.text);
    int64_t sent = wall_ms();
    assert_hf(HF_OK, hf_permits_extend(permits, &id, 300));
    /* One lease for both: it ends for Java when it ends for us. */
    assert_true(wait_until(java_has_two, NULL, JAVA_LIMIT_MS));
    assert_true(wall_ms() - sent >= 300);
    assert_hf(HF_ENOTOWNER, hf_permits_ttl_ms(permits, &id, &left));
    assert_java("ok false", "tryRelease permits %s", id.text);
    hf_permits_free(permits);
    hf_close(client);
    cmd_ok(suite.server, "DEL " NAME " {" NAME "}:timeout");
}

/* A watchdog permit of ours stays taken past its lease, and comes back when the process is killed; one of a
 * killed JVM when its lease ends. The other side waits for it. */
static int permit_until_killed(void *arg) {
    int held = *(int *)arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    hf_permits *permits;
    hf_permit_id id;
    options.watchdog_ms = SHORT_MS;
    if (hf_open(server_url(suite.server), &options, &client) != HF_OK ||
        hf_permits_new_bytes(client, NAME, strlen(NAME), &permits) != HF_OK ||
        hf_permits_acquire(permits, &id) != HF_OK || write(held, "h", 1) != 1)
        return 1;
    for (;;)
        pause();
}

void permits_of_the_killed_come_back(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_permits *permits = permits_of(client);
    hf_permit_id id;
    int held[2];
    char byte;
    java_open("j1", "permits", NAME, "permits");
    assert_hf(HF_OK, hf_permits_set(permits, 1));

    assert_int_equal(pipe(held), 0);
    pid_t pid = run_child(permit_until_killed, &held[1]);
    close(held[1]); /* so that its end is seen */
    assert_int_equal(read(held[0], &byte, 1), 1);
    /* longer than its lease: it is only there if it was renewed */
    assert_true(
        HOLDS_FOR(strcmp(java_call(suite.java, "available permits"), "ok 0") == 0, SHORT_MS + 100));
    assert_java("ok", "try permits wait=50 lease=60000");
    int waiting =
        java_send(suite.java, "acquire permits lease=%d thread=%d", SHORT_MS, java_thread());
    kill_child(pid);
    const char *answer = java_answer(suite.java, waiting);
    assert_memory_equal(answer, "ok ", 3);

    /* Java does not renew: as if it had died. */
    assert_hf(HF_OK, hf_permits_acquire_for(permits, JAVA_LIMIT_MS, &id));
    assert_java("ok false", "tryRelease permits %s", answer + 3);
    assert_hf(HF_OK, hf_permits_release(permits, &id));
    close(held[0]);
    hf_permits_free(permits);
    hf_close(client);
    cmd_ok(suite.server, "DEL " NAME " {" NAME "}:timeout");
}

/* ---- Latch --------------------------------------------------------------------------------------- */

static hf_latch *latch_of(hf_client *client) {
    hf_latch *latch;
    assert_hf(HF_OK, hf_latch_new_bytes(client, NAME, strlen(NAME), &latch));
    return latch;
}

/* How a latch that all wait for comes to be open. */
enum ending { COUNTED_BY_C, COUNTED_BY_JAVA, DELETED_BY_C };

static void open_latch(hf_latch *latch, enum ending ending) {
    bool deleted;
    if (ending == COUNTED_BY_C) {
        assert_hf(HF_OK, hf_latch_count_down(latch));
    } else if (ending == COUNTED_BY_JAVA) {
        assert_java("ok", "countDown waiter0 thread=%d", java_thread());
    } else {
        assert_hf(HF_OK, hf_latch_delete(latch, &deleted));
        assert_true(deleted);
    }
}

static void wake_latch_waiters(enum ending ending) {
    struct waiters waiters;
    hf_latch *latches[CLIENTS];
    bool set;
    for (int i = 0; i < CLIENTS; i++) {
        waiters.clients[i] = c_client(0);
        latches[i] = latch_of(waiters.clients[i]);
    }
    assert_hf(HF_OK, hf_latch_try_set(latches[0], 1, &set));
    assert_true(set);
    for (int i = 0; i < CLIENTS; i++) {
        struct watched_wait *wait = c_watch(waiters.clients[i], NAME);
        assert_hf(HF_OK, hf_latch_await_start(latches[i], NULL, NULL, NULL, &waiters.ops[i]));
        wait_until_asleep(wait);
    }
    java_waiters(&waiters, "latch", "await");
    assert_waiters_sleep(&waiters);
    open_latch(latches[0], ending);
    assert_waiters_woken(&waiters);
    assert_server_empty();
    for (int i = 0; i < CLIENTS; i++)
        hf_latch_free(latches[i]);
    waiters_close(&waiters);
}

void latch_wakes_all_of_both_sides(void **state) {
    (void)state;
    wake_latch_waiters(COUNTED_BY_C);
    wake_latch_waiters(COUNTED_BY_JAVA);
    wake_latch_waiters(DELETED_BY_C);
}

/* Java's delete closes the gates of Redisson's waiters; ours return. And a latch that Java opens and
 * this library closes at once lets go the client that waited for it, though nobody can have seen it open. */
void latch_ends_for_c_whatever_java_does(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_latch *latch = latch_of(client);
    bool set;
    hf_op *op;
    java_open("j1", "latch", NAME, "latch");

    assert_hf(HF_OK, hf_latch_try_set(latch, 5, &set));
    struct watched_wait *wait = c_watch(client, NAME);
    assert_hf(HF_OK, hf_latch_await_start(latch, NULL, NULL, NULL, &op));
    wait_until_asleep(wait);
    assert_java("ok true", "delete latch");
    assert_hf(HF_OK, hf_op_wait(op, BY_MESSAGE_MS, NULL));
    hf_op_free(op);

    assert_java("ok true", "setCount latch count=1");
    wait = c_watch(client, NAME);
    assert_hf(HF_OK, hf_latch_await_start(latch, NULL, NULL, NULL, &op));
    wait_until_asleep(wait);
    assert_java("ok", "countDown latch");
    assert_hf(HF_OK, hf_latch_try_set(latch, 1, &set));
    assert_true(set);
    assert_hf(HF_OK, hf_op_wait(op, BY_MESSAGE_MS, NULL));
    hf_op_free(op);
    assert_java("ok", "countDown latch");
    assert_server_empty();
    hf_latch_free(latch);
    hf_close(client);
}
