/*
 * The read/write lock between C and Java where more than two are at it, or where somebody dies:
 * mixed readers, writers of each side behind them, a downgrade, and Java's watchdog, which lowers
 * what a longer C hold needs. (Two at a time, in all ways round: rows_state_others.c.)
 *
 * Holds outlive BY_MESSAGE_MS unless a row is about their end. Lower bounds are exact, as in
 * rows_time.c.
 */
#include "interop.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME "rw"
#define SHORT_MS 4500 /* ENDURING_MS, as it is written for Java */
#define SHORT_OPTIONS "watchdog=4500"

/* C's side: a client with both handles. */
struct sides {
    hf_client *client;
    hf_lock *read, *write;
};

static hf_lock *side_of(hf_client *client, any_kind kind) {
    hf_lock *lock;
    assert_hf(HF_OK, new_lock(client, kind, NAME, strlen(NAME), &lock));
    return lock;
}

static struct sides sides_new(int64_t watchdog_ms) {
    struct sides sides = {.client = c_client(watchdog_ms)};
    sides.read = side_of(sides.client, HF_READ);
    sides.write = side_of(sides.client, HF_WRITE);
    return sides;
}

static void sides_free(struct sides *sides) {
    hf_lock_free(sides->read);
    hf_lock_free(sides->write);
    hf_close(sides->client);
}

static void java_sides(const char *client, const char *read, const char *write) {
    java_open(client, "read", NAME, read);
    java_open(client, "write", NAME, write);
}

static void short_java_client(void) {
    java_lasting_client("jrw", SHORT_OPTIONS);
}

#define assert_java(answer, ...) assert_string_equal(java_call(suite.java, __VA_ARGS__), answer)

static void assert_woken(hf_op *op) {
    assert_hf(HF_OK, hf_op_wait(op, BY_MESSAGE_MS, NULL));
    hf_op_free(op);
}

static void assert_java_woken(int command) {
    assert_string_equal(java_answer_within(suite.java, command, BY_MESSAGE_MS), "ok");
}

/* ---- Crowds ---------------------------------------------------------------------------------- */

/* Somebody who waits, and gives back what he gets. */
struct contender {
    bool writes, served;
    const char *handle; /* Java's; NULL: C */
    char owner_name[96];
    int thread, command;
    hf_lock *lock;
    hf_owner owner;
    hf_op *op;
};

static struct contender java_contender(const char *client, const char *handle, bool writes) {
    struct contender contender = {.handle = handle, .writes = writes, .thread = java_thread()};
    snprintf(contender.owner_name, sizeof contender.owner_name, "%s",
             java_owner(client, contender.thread));
    contender.command = java_wait_start(client, handle, contender.thread);
    return contender;
}

static struct contender c_contender(struct sides *sides, hf_owner owner, bool writes) {
    struct contender contender = {.writes = writes, .owner = owner};
    contender.lock = writes ? sides->write : sides->read;
    contender.op = c_wait_start(sides->client, contender.lock, owner);
    return contender;
}

static bool is_in(const struct contender *contender) {
    return contender->op != NULL ? hf_op_wait(contender->op, 1, NULL) == HF_OK
                                 : java_answered(suite.java, contender->command);
}

static bool is_in_or_asleep(void *arg) {
    const struct contender *contender = arg;
    return is_in(contender) || java_sleeps(contender->thread);
}

/* One in Java, woken together with others, of whom one may have come first: it has tried since, and
 * hears the next message again. */
static void wait_until_settled(struct watched_wait *since, struct contender *contender) {
    wait_until_tried(since);
    assert_true(wait_until(is_in_or_asleep, contender, JAVA_LIMIT_MS));
}

static void serve(struct contender *contender) {
    if (contender->writes) /* Nobody beside a writer: the mode, and its field. */
        assert_int_equal(cmd_int(suite.server, "HLEN " NAME), 2);
    if (contender->op == NULL)
        assert_java("ok", "unlock %s thread=%d", contender->handle, contender->thread);
    else
        assert_hf(HF_OK, hf_lock_release_as(contender->lock, contender->owner));
    hf_op_free(contender->op);
    contender->served = true;
}

/* A client that is in goes out, until `wanted` more of them have been served. */
static void serve_some(struct contender *contenders, int count, int wanted) {
    for (int64_t end = now_ms() + BY_MESSAGE_MS; wanted > 0 && now_ms() < end;) {
        for (int i = 0; i < count && wanted > 0; i++) {
            if (!contenders[i].served && is_in(&contenders[i])) {
                serve(&contenders[i]);
                wanted--;
            }
        }
    }
    assert_int_equal(wanted, 0);
}

/* Readers of both sides are in together; a writer of each side waits for all of them; then readers
 * of both sides come behind a writer. A waiter is notified. */
void rw_mixed_readers_and_writers(void **state) {
    (void)state;
    struct sides c = sides_new(0);
    struct sides other = sides_new(0);
    int reader = java_thread();
    int writer = java_thread();
    java_sides("j1", "r1", "w1");
    java_sides("j2", "r2", "w2");

    assert_java("ok", "lock r1 thread=%d", reader);
    assert_hf(HF_OK, hf_lock_acquire(c.read));
    assert_int_equal(cmd_int(suite.server, "HLEN " NAME), 3); /* mode, and one field each */
    struct contender writers[] = {java_contender("j2", "w2", true), c_contender(&other, 5, true)};
    assert_hf(HF_OK, hf_lock_release(c.read));
    assert_false(is_in(&writers[0]) || is_in(&writers[1]));
    struct watched_wait *woken = java_watch("j2", writers[0].owner_name);
    assert_java("ok", "unlock r1 thread=%d", reader);
    wait_until_settled(woken, &writers[0]);
    serve_some(writers, 2, 2);

    assert_java("ok", "lock w2 thread=%d", writer);
    struct contender readers[] = {java_contender("j1", "r1", false), c_contender(&c, 6, false)};
    assert_false(is_in(&readers[0]) || is_in(&readers[1]));
    assert_java("ok", "unlock w2 thread=%d", writer);
    serve_some(readers, 2, 2);
    assert_server_empty();
    sides_free(&c);
    sides_free(&other);
}

/* A C writer that reads on lets readers of both sides in at once: it tells them. */
void rw_downgrade_wakes_readers_of_both_sides(void **state) {
    (void)state;
    struct sides c = sides_new(0);
    struct sides other = sides_new(0);
    int reader = java_thread();
    int writer = java_thread();
    java_sides("j1", "r1", "w1");
    java_sides("j2", "r2", "w2");

    assert_hf(HF_OK, hf_lock_acquire(c.write));
    assert_hf(HF_OK, hf_lock_acquire(c.read));
    int java_reads = java_wait_start("j1", "r1", reader);
    hf_op *c_reads = c_wait_start(other.client, other.read, 5);
    int java_writes = java_wait_start("j2", "w2", writer);
    assert_hf(HF_OK, hf_lock_release(c.write));
    assert_java_woken(java_reads);
    assert_woken(c_reads);
    assert_false(java_answered(suite.java, java_writes));
    assert_hf(HF_EDEADLK, hf_lock_try(c.write));

    assert_hf(HF_OK, hf_lock_release(c.read));
    assert_java("ok", "unlock r1 thread=%d", reader);
    assert_false(java_answered(suite.java, java_writes));
    assert_hf(HF_OK, hf_lock_release_as(other.read, 5));
    assert_java_woken(java_writes);
    assert_java("ok", "unlock w2 thread=%d", writer);
    assert_server_empty();
    sides_free(&c);
    sides_free(&other);
}

/* ---- Time ------------------------------------------------------------------------------------ */

static bool lease_is_back(void *arg) {
    (void)arg;
    return pttl(suite.server, NAME) > 2 * SHORT_MS;
}

static bool java_lowered(void *arg) {
    (void)arg;
    long long ttl_ms = pttl(suite.server, NAME);
    return ttl_ms > 0 && ttl_ms <= SHORT_MS;
}

/* Java's read watchdog sets the lock's TTL to its own lease, also when another reader needs a
 * longer one: ours puts it back, so that a Java reader's end does not end our hold. */
void rw_java_watchdog_does_not_end_a_c_hold(void **state) {
    (void)state;
    struct sides c = sides_new(SHORT_MS);
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    int reader = java_thread();
    int writer = java_thread();
    java_client("jlow", SHORT_OPTIONS);
    java_sides("jlow", "rlow", "wlow");
    java_sides("j2", "r2", "w2");

    options.lease_ms = 60 * 1000;
    assert_hf(HF_OK, hf_lock_acquire_with(c.read, &options, NULL));
    assert_java("ok", "lock rlow thread=%d", reader);
    assert_true(wait_until(java_lowered, NULL, JAVA_LIMIT_MS));
    assert_true(wait_until(lease_is_back, NULL, JAVA_LIMIT_MS));
    assert_java("ok", "shutdown jlow");
    assert_java("ok false", "try w2 thread=%d wait=%d lease=5000", writer, SHORT_MS * 3 / 2);
    bool mine;
    assert_hf(HF_OK, hf_lock_is_mine(c.read, &mine));
    assert_true(mine);
    assert_true(lease_is_back(NULL));
    assert_hf(HF_OK, hf_lock_release(c.read));
    assert_java("ok true", "try w2 thread=%d wait=%d lease=5000", writer, 10 * SHORT_MS);
    assert_java("ok", "unlock w2 thread=%d", writer);
    assert_server_empty();
    sides_free(&c);
}

/* Read holds of either side are renewed past their lease while the other side's reader is there
 * too. */
void rw_watchdogs_of_both_readers(void **state) {
    (void)state;
    struct sides c = sides_new(SHORT_MS);
    int reader = java_thread();
    int writer = java_thread();
    short_java_client();
    java_sides("jrw", "r1", "w1");
    java_sides("j2", "r2", "w2");
    assert_java("ok", "lock r1 thread=%d", reader);
    assert_hf(HF_OK, hf_lock_acquire(c.read));
    assert_java("ok false", "try w2 thread=%d wait=%d lease=5000", writer, SHORT_MS * 3 / 2);
    assert_java("ok", "unlock r1 thread=%d", reader);
    assert_java("ok false", "try w2 thread=%d wait=%d lease=5000", writer, SHORT_MS * 3 / 2);
    assert_java("ok", "lock r1 thread=%d", reader);
    assert_hf(HF_OK, hf_lock_release(c.read));
    assert_hf(HF_ETIMEDOUT, hf_lock_acquire_for(c.write, SHORT_MS * 3 / 2));
    assert_java("ok", "unlock r1 thread=%d", reader);
    assert_hf(HF_OK, hf_lock_try(c.write));
    assert_hf(HF_OK, hf_lock_release(c.write));
    assert_server_empty();
    sides_free(&c);
}

/* The lease of a read hold of ours, and a Java reader whose watchdog renews once before it ends, and
 * for longer than a writer may wait here. */
#define ENDS_MS 3000
#define KEEPER_OPTIONS "watchdog=7500" /* renews every 2.5 s */

static bool has_run_out(void *arg) {
    const struct sides *sides = arg;
    return hf_lock_remaining_ms(sides->read) == 0;
}

static bool only_java_reads(void *arg) {
    (void)arg;
    return cmd_int(suite.server, "HLEN " NAME) == 2; /* the mode, and its field */
}

/* A writer waits for the Java reader alone: `until` is what that waits for before it releases. */
static void enter_behind_a_keeper(char writes, wait_condition *until) {
    struct sides c = sides_new(0);
    struct sides other = sides_new(0);
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    int reader = java_thread();
    java_sides("j2", "r2", "w2");

    assert_java("ok", "lock rkeeper thread=%d", reader);
    options.lease_ms = ENDS_MS;
    assert_hf(HF_OK, hf_lock_acquire_with(c.read, &options, NULL));
    struct contender writer =
        writes == 'J' ? java_contender("j2", "w2", true) : c_contender(&other, 5, true);
    assert_true(wait_until(has_run_out, &c, JAVA_LIMIT_MS));
    assert_true(wait_until(until, &c, BY_MESSAGE_MS));
    assert_false(is_in(&writer));
    assert_java("ok", "unlock rkeeper thread=%d", reader);
    int64_t released = now_ms();
    serve_some(&writer, 1, 1);
    print_message("a writer in %s came in after %lld ms\n", writes == 'J' ? "Java" : "C",
                  (long long)(now_ms() - released));
    assert_hf(HF_ELOST, hf_lock_release(c.read));
    assert_server_empty();
    sides_free(&c);
    sides_free(&other);
}

/* A hold of ours that has run out keeps nobody out: whether the Java reader whose watchdog has kept
 * its level releases before we have ended it at the server, or after. */
void rw_java_reader_keeps_no_dead_level_of_c(void **state) {
    (void)state;
    java_client("jkeeper", KEEPER_OPTIONS);
    java_sides("jkeeper", "rkeeper", "wkeeper");
    enter_behind_a_keeper('C', has_run_out);
    enter_behind_a_keeper('J', has_run_out);
    enter_behind_a_keeper('C', only_java_reads);
    enter_behind_a_keeper('J', only_java_reads);
    assert_java("ok", "shutdown jkeeper");
}

/* ---- Kills ----------------------------------------------------------------------------------- */

struct victim {
    any_kind kind;
    int notified;
};

static int hold_until_killed(void *arg) {
    const struct victim *victim = arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    hf_lock *lock;
    options.watchdog_ms = SHORT_MS;
    if (hf_open(server_url(suite.server), &options, &client) != HF_OK ||
        new_lock(client, victim->kind, NAME, strlen(NAME), &lock) != HF_OK ||
        hf_lock_acquire(lock) != HF_OK || write(victim->notified, "h", 1) != 1)
        return 1;
    for (;;)
        pause();
}

static pid_t start_victim(any_kind kind) {
    int notified[2];
    char byte;
    assert_int_equal(pipe(notified), 0);
    struct victim victim = {kind, notified[1]};
    pid_t pid = run_child(hold_until_killed, &victim);
    close(notified[1]); /* so that its end is seen */
    assert_int_equal(read(notified[0], &byte, 1), 1);
    close(notified[0]);
    return pid;
}

/* When the last of the holds that nobody renews any more ends; not a moment later. */
static int64_t last_hold_ends(void) {
    int64_t asked = wall_ms();
    long long longest = 0;
    redisReply *keys = cmd(suite.server, "KEYS {" NAME "}:*:rwlock_timeout:*");
    for (size_t i = 0; i < keys->elements; i++) {
        long long ttl_ms = pttl(suite.server, keys->element[i]->str);
        longest = ttl_ms > longest ? ttl_ms : longest;
    }
    freeReplyObject(keys);
    assert_in_range(longest, 1, SHORT_MS);
    return asked + longest;
}

/* A reader of each side is killed while one of each side lives on. The living keep writers out, and
 * the dead do not for longer than their leases; not even while the living stay. */
void rw_killed_readers(void **state) {
    (void)state;
    struct sides c = sides_new(SHORT_MS);
    struct remote *jvm = java_start(JAVA_REDISSON);
    int reader = java_thread();
    int writer = java_thread();
    short_java_client();
    java_sides("jrw", "r1", "w1");
    java_sides("j2", "r2", "w2");
    assert_memory_equal(java_call(jvm, "client v %s " SHORT_OPTIONS, server_tcp_url(suite.server)),
                        "ok ", 3);
    assert_string_equal(java_call(jvm, "open v read " NAME " R"), "ok");

    pid_t pid = start_victim(HF_READ);
    assert_string_equal(java_call(jvm, "lock R"), "ok");
    assert_java("ok", "lock r1 thread=%d", reader);
    assert_hf(HF_OK, hf_lock_acquire(c.read));
    assert_hf(HF_OK, hf_lock_acquire(c.read));
    assert_int_equal(cmd_int(suite.server, "HLEN " NAME), 5); /* mode and four readers */
    kill_child(pid);
    java_kill(jvm);

    assert_java("ok false", "try w2 thread=%d wait=%d lease=5000", writer, SHORT_MS * 3 / 2);
    assert_java("ok", "unlock r1 thread=%d", reader);
    assert_hf(HF_OK, hf_lock_release(c.read));
    assert_int_equal(cmd_int(suite.server, "HLEN " NAME), 2); /* We have buried them. */
    assert_hf(HF_OK, hf_lock_release(c.read));
    assert_java("ok true", "try w2 thread=%d", writer);
    assert_java("ok", "unlock w2 thread=%d", writer);
    assert_server_empty();
    java_free(jvm);
    sides_free(&c);
}

/* Readers of both sides die alone; a writer of the other side gets in when the last lease has
 * ended. */
void rw_killed_holders_alone(void **state) {
    (void)state;
    struct sides c = sides_new(SHORT_MS);
    struct remote *jvm = java_start(JAVA_REDISSON);
    int thread = java_thread();
    java_sides("j2", "r2", "w2");
    assert_memory_equal(java_call(jvm, "client v %s " SHORT_OPTIONS, server_tcp_url(suite.server)),
                        "ok ", 3);
    assert_string_equal(java_call(jvm, "open v read " NAME " R"), "ok");

    pid_t pid = start_victim(HF_READ);
    assert_string_equal(java_call(jvm, "lock R"), "ok");
    kill_child(pid);
    java_kill(jvm);
    int64_t not_before = last_hold_ends();
    assert_hf(HF_OK, hf_lock_acquire_for(c.write, JAVA_LIMIT_MS));
    assert_true(wall_ms() >= not_before);
    assert_hf(HF_OK, hf_lock_release(c.write));

    pid = start_victim(HF_WRITE);
    int waiting = java_wait_start("j2", "r2", thread);
    not_before = wall_ms();
    not_before += pttl(suite.server, NAME);
    kill_child(pid);
    assert_string_equal(java_answer(suite.java, waiting), "ok");
    assert_true(wall_ms() >= not_before);
    assert_java("ok", "unlock r2 thread=%d", thread);
    assert_server_empty();
    java_free(jvm);
    sides_free(&c);
}
