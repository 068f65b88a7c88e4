/*
 * The plain lock between C and Java: exclusion, hand-over by message, re-entry, force-unlock,
 * not-owner and names. Each row runs in both directions, in itself or as a pair.
 *
 * All holds here outlive BY_MESSAGE_MS, so that within it nothing can expire and only a message
 * wakes a waiter. Waits in C run as operations (hf_lock_acquire_start) so that the one thread of
 * the test can watch both sides; each has an owner number of its own.
 */
#include "interop.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Ends a wait that must have been woken by a message. */
static void c_wait_woken(hf_op *op) {
    assert_hf(HF_OK, hf_op_wait(op, BY_MESSAGE_MS, NULL));
    hf_op_free(op);
}

static void assert_java_woken(int command) {
    assert_string_equal(java_answer_within(suite.java, command, BY_MESSAGE_MS), "ok");
}

static void assert_holder(const char *name, const char *owner, long long count) {
    assert_int_equal(cmd_int(suite.server, "HLEN %s", name), 1);
    assert_int_equal(cmd_int(suite.server, "HGET %s %s", name, owner), count);
}

void plain_java_waits_for_c(void **state) {
    (void)state;
    const char *name = "java-waits";
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, name);
    int thread = java_thread();
    java_open("j1", "plain", name, "waits");

    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_holder(name, c_owner(client, 0), 1);
    assert_string_equal(java_call(suite.java, "try waits thread=%d", thread), "ok false");
    int waiting = java_wait_start("j1", "waits", thread);
    assert_false(java_answered(suite.java, waiting));

    assert_hf(HF_OK, hf_lock_release(lock));
    assert_java_woken(waiting);
    assert_holder(name, java_owner("j1", thread), 1);
    assert_string_equal(java_call(suite.java, "unlock waits thread=%d", thread), "ok");
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

void plain_c_waits_for_java(void **state) {
    (void)state;
    const char *name = "c-waits";
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, name);
    int thread = java_thread();
    java_open("j1", "plain", name, "holds");

    assert_string_equal(java_call(suite.java, "lock holds thread=%d", thread), "ok");
    assert_hf(HF_EBUSY, hf_lock_try(lock));
    hf_op *waiting = c_wait_start(client, lock, 77);
    assert_hf(HF_EPENDING, hf_op_wait(waiting, 0, NULL));

    assert_string_equal(java_call(suite.java, "unlock holds thread=%d", thread), "ok");
    c_wait_woken(waiting);
    assert_holder(name, c_owner(client, 77), 1);
    assert_hf(HF_OK, hf_lock_release_as(lock, 77));
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

/* Two Java clients and two C clients wait at once; the client that gets the lock gives it back, until
 * all had it. A wake-up that is lost on either side would leave the rest asleep until a TTL of
 * 30 s. */
void plain_mixed_waiters_take_turns(void **state) {
    (void)state;
    enum { SIDES = 2 };
    const char *name = "turns";
    hf_client *clients[SIDES];
    hf_lock *locks[SIDES];
    hf_op *ops[SIDES];
    int threads[SIDES];
    int commands[SIDES];
    hf_client *first = c_client(0);
    hf_lock *held = c_lock(first, name);
    assert_hf(HF_OK, hf_lock_acquire(held));
    for (int i = 0; i < SIDES; i++) {
        own_text *handle = text_of("turn%d", i);
        threads[i] = java_thread();
        java_open(i == 0 ? "j1" : "j2", "plain", name, handle);
        commands[i] = java_wait_start(i == 0 ? "j1" : "j2", handle, threads[i]);
        clients[i] = c_client(0);
        locks[i] = c_lock(clients[i], name);
        ops[i] = c_wait_start(clients[i], locks[i], 1);
    }
    assert_hf(HF_OK, hf_lock_release(held));

    int turns = 0;
    for (int64_t end = now_ms() + BY_MESSAGE_MS; turns < 2 * SIDES && now_ms() < end;) {
        for (int i = 0; i < SIDES; i++) {
            if (ops[i] != NULL && hf_op_wait(ops[i], 1, NULL) == HF_OK) {
                hf_op_free(ops[i]);
                ops[i] = NULL;
                assert_hf(HF_OK, hf_lock_release_as(locks[i], 1));
                turns++;
            }
            if (commands[i] != 0 && java_answered(suite.java, commands[i])) {
                assert_string_equal(java_answer(suite.java, commands[i]), "ok");
                commands[i] = 0;
                assert_string_equal(java_call(suite.java, "unlock turn%d thread=%d", i, threads[i]),
                                    "ok");
                turns++;
            }
        }
    }
    assert_int_equal(turns, 2 * SIDES);
    assert_server_empty();
    for (int i = 0; i < SIDES; i++) {
        hf_lock_free(locks[i]);
        hf_close(clients[i]);
    }
    hf_lock_free(held);
    hf_close(first);
}

void plain_reentry_by_c_seen_by_java(void **state) {
    (void)state;
    const char *name = "c-nests";
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, name);
    int thread = java_thread();
    java_open("j1", "plain", name, "nests");

    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_holder(name, c_owner(client, 0), 2);
    assert_string_equal(java_call(suite.java, "isLocked nests"), "ok true");
    assert_string_equal(java_call(suite.java, "count nests thread=%d", thread), "ok 0");
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_holder(name, c_owner(client, 0), 1);
    assert_string_equal(java_call(suite.java, "try nests thread=%d", thread), "ok false");
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_string_equal(java_call(suite.java, "try nests thread=%d", thread), "ok true");
    assert_string_equal(java_call(suite.java, "unlock nests thread=%d", thread), "ok");
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

void plain_reentry_by_java_seen_by_c(void **state) {
    (void)state;
    const char *name = "java-nests";
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, name);
    int thread = java_thread();
    bool locked;
    bool mine;
    int64_t count;
    java_open("j1", "plain", name, "nests");

    assert_string_equal(java_call(suite.java, "lock nests thread=%d", thread), "ok");
    assert_string_equal(java_call(suite.java, "lock nests thread=%d", thread), "ok");
    assert_holder(name, java_owner("j1", thread), 2);
    assert_hf(HF_OK, hf_lock_is_locked(lock, &locked));
    assert_true(locked);
    assert_hf(HF_OK, hf_lock_is_mine(lock, &mine));
    assert_false(mine);
    assert_hf(HF_OK, hf_lock_hold_count(lock, &count));
    assert_int_equal(count, 0);
    assert_string_equal(java_call(suite.java, "unlock nests thread=%d", thread), "ok");
    assert_hf(HF_EBUSY, hf_lock_try(lock));
    assert_string_equal(java_call(suite.java, "unlock nests thread=%d", thread), "ok");
    assert_hf(HF_OK, hf_lock_try(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

void plain_timed_waits_give_up(void **state) {
    (void)state;
    const int64_t wait_ms = 200;
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, "timed");
    int thread = java_thread();
    java_open("j1", "plain", "timed", "timed");

    assert_hf(HF_OK, hf_lock_acquire(lock));
    int64_t start = wall_ms();
    assert_string_equal(java_call(suite.java, "try timed thread=%d wait=%lld lease=5000", thread,
                                  (long long)wait_ms),
                        "ok false");
    assert_true(wall_ms() - start >= wait_ms);
    assert_hf(HF_OK, hf_lock_release(lock));

    assert_string_equal(java_call(suite.java, "try timed thread=%d wait=1000", thread), "ok true");
    start = now_ms();
    assert_hf(HF_ETIMEDOUT, hf_lock_acquire_for(lock, wait_ms));
    assert_true(now_ms() - start >= wait_ms);
    assert_holder("timed", java_owner("j1", thread), 1);
    assert_string_equal(java_call(suite.java, "unlock timed thread=%d", thread), "ok");

    /* Neither side may still hold or take anything now. */
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

static bool readable(int fd, int64_t limit_ms) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, (int)limit_ms) == 1;
}

void plain_break_by_java_notifies_c(void **state) {
    (void)state;
    /* Renewed every 3 s, so the loss is found soon; never below 6 s, so only a message wakes the
     * waiter. */
    hf_client *client = c_client(9000);
    hf_client *other = c_client(0);
    hf_lock *lock = c_lock(client, "forced");
    hf_lock *waits = c_lock(other, "forced");
    java_open("j1", "plain", "forced", "forced");

    assert_hf(HF_OK, hf_lock_acquire(lock));
    int lost = hf_lock_lost_fd(lock);
    assert_true(lost >= 0);
    hf_op *waiting = c_wait_start(other, waits, 5);
    assert_string_equal(java_call(suite.java, "force forced"), "ok true");
    c_wait_woken(waiting);
    assert_true(readable(lost, JAVA_LIMIT_MS));
    assert_hf(HF_ELOST, hf_lock_release(lock));

    /* What the loser did has not touched its successor. */
    assert_holder("forced", c_owner(other, 5), 1);
    assert_hf(HF_OK, hf_lock_release_as(waits, 5));
    assert_string_equal(java_call(suite.java, "force forced"), "ok false");
    assert_server_empty();
    hf_lock_free(lock);
    hf_lock_free(waits);
    hf_close(client);
    hf_close(other);
}

void plain_force_by_c_fails_java(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, "broken");
    int holder = java_thread();
    int waiter = java_thread();
    bool broken;
    java_open("j1", "plain", "broken", "holds");
    java_open("j2", "plain", "broken", "waits");

    assert_string_equal(java_call(suite.java, "lock holds thread=%d", holder), "ok");
    int waiting = java_wait_start("j2", "waits", waiter);
    assert_hf(HF_OK, hf_lock_break(lock, &broken));
    assert_true(broken);
    assert_java_woken(waiting);
    const char *answer = java_call(suite.java, "unlock holds thread=%d", holder);
    assert_memory_equal(answer, "err IllegalMonitorStateException", 32);
    assert_holder("broken", java_owner("j2", waiter), 1);

    assert_string_equal(java_call(suite.java, "unlock waits thread=%d", waiter), "ok");
    assert_hf(HF_OK, hf_lock_break(lock, &broken));
    assert_false(broken);
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

void plain_not_owner_on_either_side(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, "owned");
    int thread = java_thread();
    java_open("j1", "plain", "owned", "owned");

    assert_hf(HF_OK, hf_lock_acquire(lock));
    const char *answer = java_call(suite.java, "unlock owned thread=%d", thread);
    assert_memory_equal(answer, "err IllegalMonitorStateException", 32);
    assert_holder("owned", c_owner(client, 0), 1);
    assert_string_equal(java_call(suite.java, "heldBy owned thread=%d", thread), "ok false");
    assert_hf(HF_OK, hf_lock_release(lock));

    assert_string_equal(java_call(suite.java, "lock owned thread=%d", thread), "ok");
    assert_hf(HF_ENOTOWNER, hf_lock_release(lock));
    assert_hf(HF_ENOTOWNER, hf_lock_extend(lock, 60000));
    assert_holder("owned", java_owner("j1", thread), 1);
    assert_string_equal(java_call(suite.java, "unlock owned thread=%d", thread), "ok");
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

void plain_inspect_names_java_holder(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, "shown");
    int thread = java_thread();
    hf_lock_info *info;
    java_open("j1", "plain", "shown", "shown");

    assert_string_equal(java_call(suite.java, "lock shown thread=%d lease=60000", thread), "ok");
    assert_string_equal(java_call(suite.java, "lock shown thread=%d lease=60000", thread), "ok");
    assert_hf(HF_OK, hf_lock_inspect(lock, &info));
    assert_int_equal(info->kind, HF_FOUND_PLAIN);
    assert_int_equal(info->holders_len, 1);
    assert_string_equal(info->holders[0]->owner, java_owner("j1", thread));
    assert_int_equal(info->holders[0]->count, 2);
    assert_in_range(info->ttl_ms, 1, 60000);
    hf_lock_info_free(info);
    assert_string_equal(java_call(suite.java, "force shown"), "ok true");
    hf_lock_free(lock);
    hf_close(client);
}

/* Both exclude each other under one name, and the wake-up crosses in both directions. */
static void check_name(hf_client *client, const char *name) {
    own_lock *lock = c_lock(client, name);
    int thread = java_thread();
    java_open("j1", "plain", name, "named");

    assert_hf(HF_OK, hf_lock_acquire(lock));
    int waiting = java_wait_start("j1", "named", thread);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_java_woken(waiting);

    hf_op *op = c_wait_start(client, lock, 9);
    assert_string_equal(java_call(suite.java, "unlock named thread=%d", thread), "ok");
    c_wait_woken(op);
    assert_hf(HF_OK, hf_lock_release_as(lock, 9));
    assert_server_empty();
}

void plain_every_sort_of_name(void **state) {
    (void)state;
    static const char *const names[] = {
        "a",
        "with space",
        "new\nline",
        "{tag}",
        "{tag}rest",
        "a{b}c",
        "a{}b",
        "open{",
        "close}",
        "}{",
        "{a}{b}",
        "quote\"'%s",
        "gr\xc3\xbc\xc3\x9f",
        "\xe9\x8e\x96",
        "redisson_lock__channel:{a}",
    };
    hf_client *client = c_client(0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_name(client, names[i]);
    char long_name[1001];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    check_name(client, long_name);
    hf_close(client);
}

void plain_name_prefix_meets_full_name(void **state) {
    (void)state;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    options.name_prefix = "app:";
    assert_hf(HF_OK, hf_open(server_url(suite.server), &options, &client));
    hf_lock *lock = c_lock(client, "orders");
    int thread = java_thread();
    java_open("j1", "plain", "app:orders", "full");

    assert_hf(HF_OK, hf_lock_acquire(lock));
    int waiting = java_wait_start("j1", "full", thread);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_java_woken(waiting);
    assert_string_equal(java_call(suite.java, "unlock full thread=%d", thread), "ok");
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}

/* U68 with a real Java reader: its hash is not a plain lock's, and we say so instead of "busy". */
void plain_refuses_java_read_write_lock(void **state) {
    (void)state;
    hf_client *client = c_client(0);
    hf_lock *lock = c_lock(client, "kinds");
    int thread = java_thread();
    bool broken;
    java_open("j1", "read", "kinds", "reads");

    assert_string_equal(java_call(suite.java, "lock reads thread=%d", thread), "ok");
    assert_hf(HF_EWRONGTYPE, hf_lock_try(lock));
    assert_hf(HF_EWRONGTYPE, hf_lock_break(lock, &broken));
    assert_string_equal(java_call(suite.java, "unlock reads thread=%d", thread), "ok");
    assert_server_empty();
    hf_lock_free(lock);
    hf_close(client);
}
