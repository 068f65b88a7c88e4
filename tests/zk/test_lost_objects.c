/*
 * Requests and replies that are lost on the way, each with its connection, of what is no plain lock: numbers,
 * permits, and a writer that reads. What was asked for has happened once, or nobody can know.
 */
#include "support/case.h"
#include "zk/scene.h"

#include "support/trap.h"

#define BRIEF_MS 1500 /* a lease that is waited out */
#define SOON_MS 300   /* an exchange that is waited out */

static hf_sem *sem_of(hf_client *client, const char *name) {
    hf_sem *sem = NULL;
    assert_hf(HF_OK, hf_sem_new(client, name, &sem));
    return sem;
}

static hf_permits *permits_of(hf_client *client, const char *name) {
    hf_permits *permits = NULL;
    assert_hf(HF_OK, hf_permits_new(client, name, &permits));
    return permits;
}

static void assert_available(hf_sem *sem, int64_t expected) {
    int64_t permits = -99;
    assert_hf(HF_OK, hf_sem_available(sem, &permits));
    assert_int_equal(permits, expected);
}

static void fired_once(size_t before) {
    assert_true(proxy_wait_fired(scene.proxy, before + 1, HANG_MS));
    proxy_heal(scene.proxy);
}

/* Nothing at the server tells who has taken them. */
CASE_AROUND(reply_of_a_change_is_unknown, NULL, scene_heal) {
    own_client *client = scene_proxied(SURVIVES_MS);
    own_sem *sem = sem_of(client, "sem-ran");
    assert_hf(HF_OK, hf_sem_try_set(sem, 5, 0, NULL));
    size_t fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "multi");
    assert_hf(HF_EINDOUBT, hf_sem_acquire(sem, 1));
    fired_once(fired);
    assert_available(sem, 4);
}

/* It is as it was, behind a sync: so it was not done, and what was kept is refused when it comes. */
CASE_AROUND(request_of_a_change_is_sent_again, NULL, scene_heal) {
    own_client *client = scene_proxied(SURVIVES_MS);
    own_sem *sem = sem_of(client, "sem-kept");
    assert_hf(HF_OK, hf_sem_try_set(sem, 5, 0, NULL));
    size_t fired = proxy_fired(scene.proxy);
    proxy_hold_request(scene.proxy, "multi");
    assert_hf(HF_OK, hf_sem_acquire(sem, 1));
    assert_true(proxy_wait_fired(scene.proxy, fired + 1, HANG_MS));
    (void)proxy_release_held(scene.proxy);
    assert_available(sem, 4);
}

CASE_AROUND(reply_of_the_last_count_down, NULL, scene_heal) {
    hf_latch *latch = NULL;
    hf_client *client = scene_proxied(SURVIVES_MS);
    assert_hf(HF_OK, hf_latch_new(client, "latch-ran", &latch));
    assert_hf(HF_OK, hf_latch_try_set(latch, 1, NULL));
    size_t fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "multi");
    assert_hf(HF_EINDOUBT, hf_latch_count_down(latch));
    fired_once(fired);
    assert_int_equal(zk_exists(scene.eyes, "/latch-ran"), ZK_NO_NODE);
    hf_latch_free(latch);
    hf_close(client);
}

/* ---- A change that is late ------------------------------------------------------------------- */

static hf_latch *latch_of(hf_client *client, const char *name) {
    hf_latch *latch = NULL;
    assert_hf(HF_OK, hf_latch_new(client, name, &latch));
    return latch;
}

static void assert_count(hf_latch *latch, int64_t expected) {
    int64_t count = -1;
    assert_hf(HF_OK, hf_latch_count(latch, &count));
    assert_int_equal(count, expected);
}

/* A node that is made anew has the versions of the one before. */
CASE_AROUND(C394_a_count_down_of_an_older_latch, NULL, scene_heal) {
    hf_op *op = NULL;
    hf_client *client = scene_proxied(SURVIVES_MS), *other = scene_direct(SURVIVES_MS);
    hf_latch *late = latch_of(client, "latch-late"), *latch = latch_of(other, "latch-late");
    assert_hf(HF_OK, hf_latch_try_set(latch, 1, NULL));
    proxy_stall_request(scene.proxy, "multi");
    assert_hf(HF_OK, hf_latch_count_down_start(late, NULL, NULL, &op));
    assert_true(proxy_wait_held(scene.proxy, HANG_MS));
    assert_hf(HF_OK, hf_latch_count_down(latch));
    assert_hf(HF_OK, hf_latch_try_set(latch, 5, NULL));
    assert_true(proxy_release_held(scene.proxy) > 0);
    assert_hf(HF_OK, scene_join(op));
    assert_count(latch, 4); /* it was on its way all the time, so it counts for the new one: once */
    assert_hf(HF_OK, hf_latch_delete(latch, NULL));
    hf_latch_free(late);
    hf_latch_free(latch);
    hf_close(client);
    hf_close(other);
}

CASE_AROUND(C394_a_change_of_an_older_semaphore, NULL, scene_heal) {
    hf_op *op = NULL;
    hf_client *client = scene_proxied(SURVIVES_MS), *other = scene_direct(SURVIVES_MS);
    hf_sem *late = sem_of(client, "sem-late"), *sem = sem_of(other, "sem-late");
    assert_hf(HF_OK, hf_sem_try_set(sem, 3, 0, NULL));
    proxy_stall_request(scene.proxy, "multi");
    assert_hf(HF_OK, hf_sem_acquire_start(late, 1, NULL, NULL, NULL, &op));
    assert_true(proxy_wait_held(scene.proxy, HANG_MS));
    assert_hf(HF_OK, hf_sem_delete(sem, NULL));
    assert_hf(HF_OK, hf_sem_try_set(sem, 100, 0, NULL));
    assert_true(proxy_release_held(scene.proxy) > 0);
    assert_hf(HF_OK, scene_join(op));
    assert_available(sem, 99);
    assert_hf(HF_OK, hf_sem_delete(sem, NULL));
    hf_sem_free(late);
    hf_sem_free(sem);
    hf_close(client);
    hf_close(other);
}

/* Counts up and down in a chroot that only this case uses. */
static void count_beneath(const char *chroot) {
    char url[256];
    snprintf(url, sizeof url, "%s%s", zk_url(scene.zk), chroot);
    hf_client *client = scene_client(url, SURVIVES_MS);
    hf_latch *latch = latch_of(client, "free/latch");
    assert_hf(HF_OK, hf_latch_try_set(latch, 2, NULL));
    assert_hf(HF_OK, hf_latch_count_down(latch));
    assert_count(latch, 1);
    assert_hf(HF_OK, hf_latch_count_down(latch));
    assert_count(latch, 0);
    hf_latch_free(latch);
    hf_close(client);
}

/* Without the right to make, to write or to check the generation node, as in older versions. */
CASE_AROUND(nobody_may_use_the_generation, NULL, scene_heal) {
    static const int rights[] = {0, ZK_MAY_READ, ZK_MAY_WRITE};
    assert_int_equal(zk_make(scene.eyes, "/strict", "", 0), 0);
    assert_int_equal(zk_make(scene.eyes, "/strict/free", "", 0), 0);
    assert_int_equal(zk_permit(scene.eyes, "/strict", ZK_MAY_READ), 0);
    count_beneath("/strict");
    assert_int_equal(zk_count(scene.eyes, "/strict"), 1);

    assert_int_equal(zk_permit(scene.eyes, "/strict", 15), 0);
    count_beneath("/strict");
    struct zk_children *nodes = zk_children(scene.eyes, "/strict");
    assert_int_equal(nodes->count, 2);
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        for (size_t j = 0; j < nodes->count; j++) {
            char path[512];
            snprintf(path, sizeof path, "/strict/%s", nodes->names[j]);
            if (strcmp(nodes->names[j], "free") != 0)
                assert_int_equal(zk_permit(scene.eyes, path, rights[i]), 0);
        }
        count_beneath("/strict");
    }
    zk_children_free(nodes);
}

/* The server deletes a container that has been empty for a while. */
static void assert_beneath(const char *path, int expected) {
    int count = zk_count(scene.eyes, path);
    assert_int_equal(count > 0 ? count : 0, expected);
}

static int take_two(hf_permits *permits, hf_permit_id ids[2]) {
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    options.count = 2;
    return hf_permits_acquire_with(permits, &options, ids);
}

/* They are found by their ids. */
CASE_AROUND(reply_of_taking_permits, NULL, scene_heal) {
    hf_permit_id ids[2];
    own_client *client = scene_proxied(SURVIVES_MS);
    own_permits *permits = permits_of(client, "pool-ran");
    assert_hf(HF_OK, hf_permits_set(permits, 5));
    assert_hf(HF_OK, take_two(permits, ids)); /* the parents are there then */
    assert_hf(HF_OK, hf_permits_release_many(permits, ids, 2));
    size_t fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "multi");
    assert_hf(HF_OK, take_two(permits, ids));
    fired_once(fired);
    assert_beneath("/pool-ran/leases", 2);
    assert_beneath("/pool-ran/locks", 0);
    assert_true(hf_permits_remaining_ms(permits, &ids[1]) > 0);

    fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "multi");
    assert_hf(HF_OK, hf_permits_release_many(permits, ids, 2));
    fired_once(fired);
    assert_beneath("/pool-ran/leases", 0);
}

CASE_AROUND(request_of_taking_permits, NULL, scene_heal) {
    hf_permit_id ids[2];
    own_client *client = scene_proxied(SURVIVES_MS);
    own_permits *permits = permits_of(client, "pool-kept");
    assert_hf(HF_OK, hf_permits_set(permits, 5));
    size_t fired = proxy_fired(scene.proxy);
    proxy_hold_request(scene.proxy, "multi");
    assert_hf(HF_OK, take_two(permits, ids));
    assert_true(proxy_wait_fired(scene.proxy, fired + 1, HANG_MS));
    (void)proxy_release_held(scene.proxy);
    assert_beneath("/pool-kept/leases", 2);
    assert_beneath("/pool-kept/locks", 0);
    assert_hf(HF_OK, hf_permits_release_many(permits, ids, 2));
}

static int take_one(hf_permits *permits, int64_t lease_ms, hf_permit_id *id) {
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    options.lease_ms = lease_ms;
    return hf_permits_acquire_with(permits, &options, id);
}

/* The parents are there then. */
static void warm_permits(hf_permits *permits) {
    hf_permit_id id;
    assert_hf(HF_OK, hf_permits_set(permits, 5));
    assert_hf(HF_OK, take_one(permits, HF_WATCHDOG, &id));
    assert_hf(HF_OK, hf_permits_release(permits, &id));
}

static hf_client *client_with_short_timeouts(void) {
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    options.watchdog_ms = SURVIVES_MS;
    options.cmd_timeout_ms = SOON_MS;
    assert_hf(HF_OK, hf_open(proxy_tcp_url(scene.proxy), &options, &client));
    return client;
}

/* The session outlives it, so nobody else would end the lease. */
CASE_AROUND(a_silence_that_outlasts_the_lease, NULL, scene_heal) {
    hf_permit_id id;
    hf_client *patient = scene_direct(SURVIVES_MS);
    hf_permits *permits = permits_of(patient, "pool-silent");
    warm_permits(permits);
    hf_client *client = client_with_short_timeouts();
    hf_permits *ours = permits_of(client, "pool-silent");
    while (take_one(ours, BRIEF_MS, &id) != HF_OK) /* its timeout is short for a busy machine */
        ;
    proxy_blackhole(scene.proxy, true, true);
    assert_int_not_equal(hf_permits_release(ours, &id), HF_OK);
    sleep_ms(BRIEF_MS); /* the lease is over then: the silence hides every event */
    proxy_heal(scene.proxy);
    scene_await_empty("/pool-silent/leases");
    hf_permits_free(permits);
    hf_permits_free(ours);
    hf_close(client);
    hf_close(patient);
}

/* Nothing can be undone of what the server has not done, but we wait in the queue. */
CASE_AROUND(a_refusal_of_taking_permits, NULL, scene_heal) {
    static const char throttled[20] = {[3] = 16, [16] = -1, [17] = -1, [18] = -1, [19] = -127};
    hf_permit_id id;
    own_client *client = scene_proxied(SURVIVES_MS);
    own_permits *permits = permits_of(client, "pool-refused");
    warm_permits(permits);
    proxy_answer_instead(scene.proxy, "multi", throttled, sizeof throttled);
    assert_hf(HF_EUNAVAILABLE, take_one(permits, HF_WATCHDOG, &id));
    scene_await_empty("/pool-refused/locks");
    assert_hf(HF_OK, take_one(permits, HF_WATCHDOG, &id));
    assert_hf(HF_OK, hf_permits_release(permits, &id));
}

/* A lease that lasts is there although the session is not, and there is one of it. */
CASE_AROUND(a_session_that_ends_with_the_reply, NULL, scene_heal) {
    hf_permit_id id;
    own_client *client = scene_proxied(ENDURING_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "pool-session");
    own_permits *permits = permits_of(client, "pool-ended");
    warm_permits(permits);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    options.lease_ms = HF_NO_LEASE;
    hf_op *op = NULL;
    size_t fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "/pool-ended/leases/");
    proxy_refuse(scene.proxy, true);
    assert_hf(HF_OK, hf_permits_acquire_start(permits, &options, &id, NULL, NULL, &op));
    assert_true(proxy_wait_fired(scene.proxy, fired + 1, HANG_MS));
    assert_beneath("/pool-ended/leases", 1);
    scene_await_empty("/pool-session"); /* with the session */
    proxy_heal(scene.proxy);
    assert_hf(HF_OK, joined(op, NULL));
    assert_beneath("/pool-ended/leases", 1);
    assert_beneath("/pool-ended/locks", 0);
    assert_hf(HF_OK, hf_permits_release(permits, &id));
    assert_beneath("/pool-ended/leases", 0);
    assert_hf(HF_ELOST, hf_lock_release(lock));
}

/* ---- A thread that is late ------------------------------------------------------------------- */

struct taker {
    hf_permits *permits;
    hf_permit_id id;
    atomic_int tid;
    int err;
};

static void *take_in_a_thread(void *arg) {
    struct taker *taker = arg;
    atomic_store(&taker->tid, (int)gettid());
    taker->err = take_one(taker->permits, HF_WATCHDOG, &taker->id);
    return NULL;
}

/* Not once only: it may sleep for a moment with a mutex of ours. */
static bool is_asleep(void *arg) {
    struct taker *taker = arg;
    char path[64], name[64], status = 'S';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&taker->tid));
    for (int i = 0; i < 50 && status == 'S' && wait_a_moment(); i++) {
        FILE *stat = fopen(path, "re");
        assert_non_null(stat);
        assert_int_equal(fscanf(stat, "%*d %63s %c", name, &status), 2);
        fclose(stat);
    }
    return status == 'S';
}

static bool is_answered(void *client) {
    return hf_ping(client) == HF_OK;
}

static int64_t session_of_the_first(const char *path) {
    struct zk_children *children = zk_children(scene.eyes, path);
    char node[512] = "";
    if (children != NULL && children->count > 0)
        snprintf(node, sizeof node, "%s/%s", path, children->names[0]);
    zk_children_free(children);
    return node[0] != '\0' ? zk_owner(scene.eyes, node) : -1;
}

/* Whose owner cannot hear that, but may come back to the server just now. */
static bool ends_from_outside(void *session) {
    zk_close_session(zk_port(scene.zk), *(int64_t *)session);
    return zk_count(scene.eyes, "/pool-late/leases") <= 0;
}

/* The answer is there, but the client that asked looks at it only when the session is another one. */
CASE_AROUND(a_grant_that_is_read_late, NULL, scene_heal) {
#if defined(__SANITIZE_THREAD__)
    skip(); /* it handles a signal when the thread wakes, and has a mutex */
#endif
    hf_client *client =
        scene_proxied(SURVIVES_MS); /* it bears a silence while its request is held */
    struct taker taker = {.permits = permits_of(client, "pool-late")};
    warm_permits(taker.permits);
    trap_set();
    proxy_stall_request(scene.proxy, "multi");
    pthread_t thread = started(take_in_a_thread, &taker);
    assert_true(proxy_wait_held(scene.proxy, HANG_MS));
    assert_true(wait_until(is_asleep, &taker, HANG_MS));
    trap_catch(thread);
    assert_true(proxy_release_held(scene.proxy) > 0);
    assert_true(proxy_wait_answered(scene.proxy, HANG_MS));
    bool before = wait_until(is_answered, client, HANG_MS); /* so the answer before it has come */
    int64_t session = session_of_the_first("/pool-late/leases");
    proxy_blackhole(scene.proxy, true, true);
    bool ended = session != 0 && session != -1 && wait_until(ends_from_outside, &session, HANG_MS);
    proxy_heal(scene.proxy);
    bool after = wait_until(is_answered, client, HANG_MS); /* in the session that there is now */
    trap_release();
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(before && ended && after);
    assert_int_equal(taker.err, HF_OK);
    assert_beneath("/pool-late/leases", 1);
    assert_hf(HF_OK, hf_permits_release(taker.permits, &taker.id));
    hf_permits_free(taker.permits);
    hf_close(client);
}

/* ---- A writer that reads --------------------------------------------------------------------- */

CASE_AROUND(reply_of_a_writer_that_reads, NULL, scene_heal) {
    own_client *client = scene_proxied(SURVIVES_MS);
    own_lock *write = scene_lock(client, HF_WRITE, "rw-ran");
    own_lock *read = scene_lock(client, HF_READ, "rw-ran");
    assert_hf(HF_OK, hf_lock_acquire(write));
    size_t fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "create2 /rw-ran/");
    assert_hf(HF_OK, hf_lock_acquire(read));
    fired_once(fired);
    struct zk_children *nodes = zk_children(scene.eyes, "/rw-ran");
    assert_int_equal(nodes->count, 2);
    const char *numbers[2] = {strrchr(nodes->names[0], '_'), strrchr(nodes->names[1], '_')};
    assert_string_equal(numbers[0], numbers[1]);
    zk_children_free(nodes);
    assert_hf(HF_OK, hf_lock_release(write));
    assert_hf(HF_OK, hf_lock_release(read));
    assert_beneath("/rw-ran", 0);
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
