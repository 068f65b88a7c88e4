/*
 * The plain lock between C and Java where time is the point: leases that run out, the watchdog seen
 * from the other side, and holders that end without releasing.
 *
 * Lower bounds are exact: a lease starts when the server runs the command, so nobody may get the
 * lock before the moment in which the command was sent plus the lease, by the server's clock. Upper
 * bounds are hang limits only.
 */
#include "interop.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LEASE_MS 2000 /* of a hold that must be known to be held before it ends */
#define WATCHDOG_MS ENDURING_MS

static void assert_lock_ok(const char *handle, int thread, const char *options) {
    assert_string_equal(java_call(suite.java, "lock %s thread=%d %s", handle, thread, options),
                        "ok");
}

void plain_lease_of_c_ends_for_java(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, "c-lease");
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    int thread = java_thread();
    java_open("j1", "plain", "c-lease", "lease");

    int64_t sent = wall_ms();
    options.lease_ms = LEASE_MS;
    assert_hf(HF_OK, hf_lock_acquire_with(lock, &options, NULL));
    assert_lock_ok("lease", thread, "");
    assert_true(wall_ms() - sent >= LEASE_MS);
    assert_hf(HF_ELOST, hf_lock_release(lock));
    assert_string_equal(java_call(suite.java, "heldBy lease thread=%d", thread), "ok true");
    assert_string_equal(java_call(suite.java, "unlock lease thread=%d", thread), "ok");
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

void plain_lease_of_java_ends_for_c(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, "java-lease");
    int thread = java_thread();
    bool mine;
    java_open("j1", "plain", "java-lease", "lease");

    int64_t sent = wall_ms();
    own_text *lease = text_of("lease=%d", LEASE_MS);
    assert_lock_ok("lease", thread, lease);
    assert_hf(HF_OK, hf_lock_acquire_for(lock, JAVA_LIMIT_MS));
    assert_true(wall_ms() - sent >= LEASE_MS);
    const char *answer = java_call(suite.java, "unlock lease thread=%d", thread);
    assert_memory_equal(answer, "err IllegalMonitorStateException", 32);
    assert_hf(HF_OK, hf_lock_is_mine(lock, &mine));
    assert_true(mine);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

/* ---- The watchdog, seen from the other side -------------------------------------------------- */

struct renewals {
    bool (*read_ttl)(struct renewals *, long long *ret_ttl_ms);
    hf_lock *lock; /* the C reader's */
    long long last_ttl_ms;
    int raised;
    bool freed;
};

static bool ttl_by_java(struct renewals *seen, long long *ret_ttl_ms) {
    (void)seen;
    return sscanf(java_call(suite.java, "ttl watched"), "ok %lld", ret_ttl_ms) == 1;
}

static bool ttl_by_c(struct renewals *seen, long long *ret_ttl_ms) {
    int64_t ttl_ms;
    if (hf_lock_ttl_ms(seen->lock, &ttl_ms) != HF_OK)
        return false;
    *ret_ttl_ms = ttl_ms;
    return true;
}

/* Only a renewal makes a TTL rise. Three of them are more than one full lease. */
static bool raised_often(void *arg) {
    struct renewals *seen = arg;
    long long ttl_ms = -2;
    if (!seen->read_ttl(seen, &ttl_ms) || ttl_ms < 0) {
        seen->freed = true;
        return true;
    }
    if (ttl_ms > seen->last_ttl_ms)
        seen->raised++;
    seen->last_ttl_ms = ttl_ms;
    return seen->raised >= 4;
}

static void assert_renewed(struct renewals *seen) {
    seen->last_ttl_ms = WATCHDOG_MS;
    int64_t start = now_ms();
    assert_true(wait_until(raised_often, seen, JAVA_LIMIT_MS));
    assert_false(seen->freed);
    assert_true(now_ms() - start > WATCHDOG_MS);
    assert_true(seen->last_ttl_ms <= WATCHDOG_MS);
}

void plain_watchdog_of_c_seen_by_java(void **state) {
    (void)state;
    hf_client *client = c_client(WATCHDOG_MS);
    hf_lock *lock = c_lock(client, "c-watchdog");
    struct renewals seen = {.read_ttl = ttl_by_java};
    int thread = java_thread();
    java_open("j1", "plain", "c-watchdog", "watched");

    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_renewed(&seen);
    assert_string_equal(java_call(suite.java, "try watched thread=%d", thread), "ok false");
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_string_equal(java_call(suite.java, "ttl watched"), "ok -2");
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

void plain_watchdog_of_java_seen_by_c(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, "java-watchdog");
    struct renewals seen = {.read_ttl = ttl_by_c, .lock = lock};
    int thread = java_thread();
    char options[32];
    int64_t ttl_ms;
    snprintf(options, sizeof options, "watchdog=%d", WATCHDOG_MS);
    java_client("short", options);
    java_open("short", "plain", "java-watchdog", "watched");

    assert_lock_ok("watched", thread, "");
    assert_renewed(&seen);
    assert_hf(HF_EBUSY, hf_lock_try(lock));
    assert_string_equal(java_call(suite.java, "unlock watched thread=%d", thread), "ok");
    assert_hf(HF_OK, hf_lock_ttl_ms(lock, &ttl_ms));
    assert_int_equal(ttl_ms, -2);
    assert_string_equal(java_call(suite.java, "shutdown short"), "ok");
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

/* ---- Holders that end without releasing ------------------------------------------------------ */

/* A process that takes the lock in the watchdog's care, says so and holds it until it is killed. */
static int hold_until_killed(void *arg) {
    int held = *(int *)arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    hf_lock *lock;
    options.watchdog_ms = WATCHDOG_MS;
    if (hf_open(server_url(suite.server), &options, &client) != HF_OK ||
        hf_lock_new(client, "c-killed", &lock) != HF_OK || hf_lock_acquire(lock) != HF_OK ||
        write(held, "h", 1) != 1)
        return 1;
    for (;;)
        pause();
}

/* When the lock will be free if nobody renews it after this moment; not a moment later. */
static int64_t free_at(const char *name) {
    int64_t asked = wall_ms();
    long long ttl_ms = pttl(suite.server, name);
    assert_in_range(ttl_ms, 1, WATCHDOG_MS);
    return asked + ttl_ms;
}

void plain_killed_c_holder(void **state) {
    (void)state;
    int thread = java_thread();
    int held[2];
    char byte;
    java_open("j1", "plain", "c-killed", "killed");

    assert_int_equal(pipe(held), 0);
    pid_t pid = run_child(hold_until_killed, &held[1]);
    assert_int_equal(read(held[0], &byte, 1), 1);
    assert_string_equal(java_call(suite.java, "try killed thread=%d", thread), "ok false");
    int waiting = java_wait_start("j1", "killed", thread);
    int64_t not_before = free_at("c-killed");
    kill_child(pid);

    assert_string_equal(java_answer(suite.java, waiting), "ok");
    assert_true(wall_ms() >= not_before);
    assert_string_equal(java_call(suite.java, "unlock killed thread=%d", thread), "ok");
    assert_server_empty();
    close(held[0]);
    close(held[1]);
}

void plain_killed_java_holder(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, "java-killed");
    struct remote *victim = java_start(JAVA_REDISSON);
    const char *url = server_tcp_url(suite.server);

    assert_memory_equal(java_call(victim, "client v %s watchdog=%d", url, WATCHDOG_MS), "ok ", 3);
    assert_string_equal(java_call(victim, "open v plain java-killed L"), "ok");
    assert_string_equal(java_call(victim, "lock L"), "ok");
    assert_hf(HF_EBUSY, hf_lock_try(lock));
    int64_t not_before = free_at("java-killed");
    java_kill(victim);

    assert_hf(HF_OK, hf_lock_acquire_for(lock, JAVA_LIMIT_MS));
    assert_true(wall_ms() >= not_before);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_server_empty();
    java_free(victim);
    hf_lock_free(lock);
    hf_close(client);
}

/* Closing a client is not releasing: its work may still go on. Both libraries leave it to the
 * lease. */
void plain_closed_c_client(void **state) {
    (void)state;
    hf_client *client = c_client(WATCHDOG_MS);
    hf_lock *lock = c_lock(client, "c-closed");
    int thread = java_thread();
    java_open("j1", "plain", "c-closed", "closed");

    assert_hf(HF_OK, hf_lock_acquire(lock));
    int64_t not_before = free_at("c-closed");
    assert_hf(HF_OK, hf_close(client));
    hf_lock_free(lock);
    assert_lock_ok("closed", thread, "");
    assert_true(wall_ms() >= not_before);
    assert_string_equal(java_call(suite.java, "unlock closed thread=%d", thread), "ok");
    assert_server_empty();
}

void plain_shut_down_java_client(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, "java-closed");
    int thread = java_thread();
    own_text *options = text_of("watchdog=%d", WATCHDOG_MS);
    java_client("brief", options);
    java_open("brief", "plain", "java-closed", "closed");

    assert_lock_ok("closed", thread, "");
    int64_t not_before = free_at("java-closed");
    assert_string_equal(java_call(suite.java, "shutdown brief"), "ok");
    assert_hf(HF_OK, hf_lock_acquire_for(lock, JAVA_LIMIT_MS));
    assert_true(wall_ms() >= not_before);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}
