/*
 * One lock out of many between C and Java: hf_lock_new_multi() and RedissonMultiLock, of three plain locks
 * on one server or on two. C113, C115 and C116 of Redisson's own tests are here, in both directions.
 *
 * Java takes the members one after the other and waits while it holds some; C never does. What Java does
 * wrong besides is at the end, with what C does in its place.
 */
#include "five.h"
#include "state.h"
#include "support/crowd.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MEMBERS = 3, HOMES = 2 };

static const char *const names[MEMBERS] = {"stock", "orders", "bills"};

#define NAMES "stock|orders|bills"
#define OPPOSITE "bills|orders|stock"

/* Both sides on the three; Java's handle is called "M". The members are on the servers in turn. */
struct multi {
    int homes;
    hf_client *clients[HOMES]; /* one for each server */
    hf_lock *members[MEMBERS];
    hf_lock *lock;
    char java[64]; /* Java's clients */
    int thread;
};

static struct server *home_of(const struct multi *multi, int member) {
    return five.servers[member % multi->homes];
}

static struct multi begin(int homes) {
    five_begin();
    struct multi multi = {.homes = homes, .thread = java_thread()};
    for (int i = 0; i < homes; i++)
        assert_hf(HF_OK, hf_open(server_url(five.servers[i]), NULL, &multi.clients[i]));
    for (int i = 0; i < MEMBERS; i++)
        multi.members[i] = c_lock(multi.clients[i % homes], names[i]);
    assert_hf(HF_OK, hf_lock_new_multi(multi.members, MEMBERS, &multi.lock));
    snprintf(multi.java, sizeof multi.java, homes > 1 ? "%s,%s" : "%s", five.names[0],
             five.names[1]);
    java_open(multi.java, "multi", NAMES, "M");
    return multi;
}

static void end(struct multi *multi) {
    five_assert_empty();
    hf_lock_free(multi->lock);
    for (int i = 0; i < MEMBERS; i++)
        hf_lock_free(multi->members[i]);
    for (int i = 0; i < multi->homes; i++)
        hf_close(multi->clients[i]);
}

static hf_op *c_waits(const struct multi *multi, hf_owner owner) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    struct watched_wait *wait =
        c_watch_at(five.servers, multi->clients, (size_t)multi->homes, owner);
    options.owner = owner;
    assert_hf(HF_OK, hf_lock_acquire_start(multi->lock, &options, NULL, NULL, &op));
    wait_until_asleep(wait);
    return op;
}

/* How many of the members are taken. */
static int locked(const struct multi *multi) {
    int count = 0;
    for (int i = 0; i < MEMBERS; i++)
        count += key_exists(home_of(multi, i), names[i]);
    return count;
}

static bool one_is_locked(void *arg) {
    return locked(arg) == 1;
}

/* ---- Exclusion and hand-over ----------------------------------------------------------------- */

void multi_java_waits_for_c(void **state) {
    (void)state;
    struct multi multi = begin(HOMES);
    assert_hf(HF_OK, hf_lock_acquire(multi.lock));
    assert_int_equal(locked(&multi), MEMBERS);
    assert_java("ok false", "try M thread=%d", multi.thread);
    assert_java("ok false", "try M thread=%d wait=100", multi.thread);
    assert_java("ok false", "try M thread=%d wait=100 lease=60000", multi.thread);
    five_assert_java_holds("M", multi.thread, false);
    int waiting = five_java_waits("M", multi.thread);
    assert_hf(HF_OK, hf_lock_release(multi.lock));
    five_assert_java_woken(waiting);
    five_assert_java_holds("M", multi.thread, true);
    assert_hf(HF_EBUSY, hf_lock_try(multi.lock));
    assert_java("ok", "unlock M thread=%d", multi.thread);
    end(&multi);
}

void multi_c_waits_for_java(void **state) {
    (void)state;
    struct multi multi = begin(HOMES);
    assert_java("ok", "lock M thread=%d", multi.thread);
    assert_int_equal(locked(&multi), MEMBERS);
    assert_hf(HF_EBUSY, hf_lock_try(multi.lock));
    assert_hf(HF_ETIMEDOUT, hf_lock_acquire_for(multi.lock, 100));
    hf_op *op = c_waits(&multi, 77);
    assert_java("ok", "unlock M thread=%d", multi.thread);
    five_assert_c_woken(op);
    assert_java("ok false", "try M thread=%d", multi.thread);
    assert_hf(HF_OK, hf_lock_release_as(multi.lock, 77));
    end(&multi);
}

/* ---- A plain lock of the other side on a member ---------------------------------------------- */

static void behind_java_on(int member, struct multi *multi) {
    java_open(five.names[member % multi->homes], "plain", names[member], "one");
    assert_java("ok", "lock one thread=%d", multi->thread);
    assert_hf(HF_EBUSY, hf_lock_try(multi->lock));
    hf_op *op = c_waits(multi, 77);
    assert_true(wait_until(one_is_locked, multi, JAVA_LIMIT_MS)); /* C holds nothing meanwhile */
    assert_java("ok", "unlock one thread=%d", multi->thread);
    five_assert_c_woken(op);
    assert_java("ok false", "try one thread=%d", multi->thread);
    assert_hf(HF_OK, hf_lock_release_as(multi->lock, 77));
}

static void behind_c_on(int member, struct multi *multi) {
    assert_hf(HF_OK, hf_lock_acquire(multi->members[member]));
    assert_java("ok false", "try M thread=%d", multi->thread);
    assert_int_equal(locked(multi), 1);
    int waiting = five_java_waits("M", multi->thread);
    assert_hf(HF_OK, hf_lock_release(multi->members[member]));
    five_assert_java_woken(waiting);
    assert_hf(HF_EBUSY, hf_lock_try(multi->members[member]));
    assert_java("ok", "unlock M thread=%d", multi->thread);
}

void multi_plain_lock_on_each_member(void **state) {
    (void)state;
    struct multi multi = begin(HOMES);
    for (int i = 0; i < MEMBERS; i++) {
        behind_java_on(i, &multi);
        behind_c_on(i, &multi);
    }
    end(&multi);
}

/* ---- Opposite orders ------------------------------------------------------------------------- */

#define ROUNDS 200
#define HOLD_MS 1
#define THINK_MS 4
#define LONGEST_MS 10000 /* what the design promises */

struct turns {
    struct crowd *crowd;
    hf_lock *lock;
    int64_t longest_ms;
    int err;
};

static void *take_turns(void *arg) {
    struct turns *turns = arg;
    while (!atomic_load(&turns->crowd->over) && turns->err == HF_OK) {
        int64_t start_ms = now_ms();
        turns->err = hf_lock_acquire_for(turns->lock, JAVA_LIMIT_MS);
        if (turns->err != HF_OK)
            break;
        int64_t took_ms = now_ms() - start_ms;
        turns->longest_ms = took_ms > turns->longest_ms ? took_ms : turns->longest_ms;
        linger(HOLD_MS);
        turns->err = hf_lock_release(turns->lock);
        linger(THINK_MS);
    }
    return NULL;
}

/* Two C threads, and Java in the order that is not theirs: it waits for one while it holds others. */
void multi_opposite_orders(void **state) {
    (void)state;
    enum { THREADS = 2 };
    struct multi multi = begin(HOMES);
    struct turns turns[THREADS];
    struct crowd crowd = {0};
    int64_t java_longest_ms = 0;
    java_open(multi.java, "multi", OPPOSITE, "R");
    for (int i = 0; i < THREADS; i++) {
        turns[i] = (struct turns){.crowd = &crowd, .lock = multi.lock};
        crowd_add(&crowd, take_turns, &turns[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start_ms = now_ms();
        const char *handle = round % 2 == 0 ? "M" : "R";
        assert_java("ok", "lock %s thread=%d", handle, multi.thread);
        int64_t took_ms = now_ms() - start_ms;
        java_longest_ms = took_ms > java_longest_ms ? took_ms : java_longest_ms;
        assert_java("ok", "unlock %s thread=%d", handle, multi.thread);
    }
    crowd_end(&crowd);
    for (int i = 0; i < THREADS; i++) {
        assert_hf(HF_OK, turns[i].err);
        assert_true(turns[i].longest_ms <= LONGEST_MS);
    }
    print_message("opposite orders: Java's longest %lld ms, C's %lld and %lld ms\n",
                  (long long)java_longest_ms, (long long)turns[0].longest_ms,
                  (long long)turns[1].longest_ms);
    assert_true(java_longest_ms <= LONGEST_MS);
    end(&multi);
}

/* ---- State equality -------------------------------------------------------------------------- */

/* All keys of all servers, with the owners as O. */
static void take_down(const struct multi *multi, bool by_java, char *text, size_t room) {
    struct alias aliases[HOMES];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < multi->homes; i++) {
        snprintf(aliases[i].word, sizeof aliases[i].word, "O");
        if (by_java)
            sscanf(java_call(suite.java, "ids %s", five.names[i]), "ok %63s", aliases[i].text);
        else
            snprintf(aliases[i].text, sizeof aliases[i].text, "%s",
                     hf_client_id(multi->clients[i]));
    }
    for (int i = 0; i < multi->homes; i++) {
        own_text *dump = state_dump(five.servers[i], aliases, (size_t)multi->homes);
        used += (size_t)snprintf(text + used, room - used, "%s", dump);
    }
}

/* Of the members that are there, which the text says: their ends differ by how long the sides took. */
static void assert_ends(const struct multi *multi, int64_t lease_ms, int64_t since_ms) {
    for (int i = 0; i < MEMBERS; i++) {
        long long ttl_ms = pttl(home_of(multi, i), names[i]);
        if (ttl_ms != -2)
            assert_left(ttl_ms, lease_ms, since_ms);
    }
}

static void do_step(struct multi *multi, bool by_java, const char *step) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    const char *lease = strstr(step, "lease=");
    bool locks = strncmp(step, "lock", 4) == 0;
    if (by_java) {
        assert_java("ok", "%s M thread=%d %s", locks ? "lock" : "unlock", multi->thread,
                    lease != NULL ? lease : "");
        return;
    }
    options.lease_ms = lease != NULL ? atoll(lease + strlen("lease=")) : HF_WATCHDOG;
    if (locks)
        assert_hf(HF_OK, hf_lock_acquire_with(multi->lock, &options, NULL));
    else
        assert_hf(HF_OK, hf_lock_release(multi->lock));
}

struct comparison {
    const struct multi *multi;
    const char *wanted;
    char found[2048];
};

static bool java_left_the_same(void *arg) {
    struct comparison *comparison = arg;
    take_down(comparison->multi, true, comparison->found, sizeof comparison->found);
    return strcmp(comparison->found, comparison->wanted) == 0;
}

/* Redisson deletes its latch key after the answer, without waiting for it. */
static void assert_java_left(const struct multi *multi, const char *wanted) {
    struct comparison comparison = {multi, wanted, ""};
    if (!wait_until(java_left_the_same, &comparison, BY_MESSAGE_MS))
        assert_string_equal(comparison.found, wanted);
}

/* A star: the TTL is another on purpose, since Java's partial unlock makes it the watchdog's, and ours
 * never shortens it. */
void multi_leaves_the_same_state(void **state) {
    (void)state;
    enum { STEPS = 5 };
    static const char *const scenarios[][STEPS] = {
        {"lock", "unlock"},
        {"lock", "lock", "unlock", "unlock"},
        {"lock lease=20000", "unlock"},
        {"lock lease=20000", "lock lease=40000", "unlock*", "unlock"},
    };
    for (int homes = 1; homes <= HOMES; homes++) {
        struct multi multi = begin(homes);
        for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
            char after[STEPS][2048];
            for (int by_java = 0; by_java < 2; by_java++) {
                int64_t lease_ms = 0, since_ms = wall_ms();
                for (size_t step = 0; step < STEPS && scenarios[i][step] != NULL; step++) {
                    int64_t given_ms = lease_of_step(scenarios[i][step]);
                    lease_ms = given_ms != 0 ? given_ms : lease_ms;
                    do_step(&multi, by_java, scenarios[i][step]);
                    if (by_java)
                        assert_java_left(&multi, after[step]);
                    else
                        take_down(&multi, false, after[step], sizeof after[step]);
                    if (strchr(scenarios[i][step], '*') == NULL)
                        assert_ends(&multi, lease_ms, since_ms);
                }
                five_assert_empty();
            }
        }
        end(&multi);
    }
}

/* ---- Holders that are killed ----------------------------------------------------------------- */

static int hold_until_killed(void *arg) {
    int held = *(int *)arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *clients[HOMES];
    hf_lock *members[MEMBERS], *lock;
    options.watchdog_ms = ENDURING_MS;
    for (int i = 0; i < HOMES; i++)
        if (hf_open(server_url(five.servers[i]), &options, &clients[i]) != HF_OK)
            return 1;
    for (int i = 0; i < MEMBERS; i++)
        if (hf_lock_new(clients[i % HOMES], names[i], &members[i]) != HF_OK)
            return 1;
    if (hf_lock_new_multi(members, MEMBERS, &lock) != HF_OK || hf_lock_acquire(lock) != HF_OK ||
        write(held, "h", 1) != 1)
        return 1;
    for (;;)
        pause();
}

/* By the wall clock, if nobody renews them any more. */
static int64_t all_free_at(const struct multi *multi) {
    int64_t latest = 0;
    for (int i = 0; i < MEMBERS; i++) {
        int64_t at = wall_ms(), ends = at + pttl(home_of(multi, i), names[i]);
        latest = ends > latest ? ends : latest;
    }
    return latest;
}

void multi_killed_c_holder(void **state) {
    (void)state;
    struct multi multi = begin(HOMES);
    int held[2];
    char byte;
    assert_int_equal(pipe(held), 0);
    pid_t pid = run_child(hold_until_killed, &held[1]);
    assert_int_equal(read(held[0], &byte, 1), 1);
    int waiting = five_java_waits("M", multi.thread);
    kill_child(pid);
    int64_t free_at = all_free_at(&multi);
    assert_string_equal(java_answer(suite.java, waiting), "ok true");
    assert_true(wall_ms() >= free_at);
    assert_java("ok", "unlock M thread=%d", multi.thread);
    close(held[0]);
    close(held[1]);
    end(&multi);
}

void multi_killed_java_holder(void **state) {
    (void)state;
    struct multi multi = begin(HOMES);
    struct remote *victim = java_start(JAVA_REDISSON);
    char *word = java_word(NAMES);
    for (int i = 0; i < HOMES; i++)
        assert_memory_equal(java_call(victim, "client %s %s watchdog=%d", five.names[i],
                                      server_tcp_url(five.servers[i]), ENDURING_MS),
                            "ok ", 3);
    assert_string_equal(java_call(victim, "open %s multi %s M", multi.java, word), "ok");
    assert_string_equal(java_call(victim, "lock M"), "ok");
    free(word);
    hf_op *op = c_waits(&multi, 77);
    java_kill(victim);
    int64_t free_at = all_free_at(&multi);
    assert_hf(HF_OK, hf_op_wait(op, JAVA_LIMIT_MS, NULL));
    assert_true(wall_ms() >= free_at);
    hf_op_free(op);
    assert_hf(HF_OK, hf_lock_release_as(multi.lock, 77));
    java_free(victim);
    end(&multi);
}

/* ---- What Java does wrong -------------------------------------------------------------------- */

/* Its unlock stops at the first member that is not there any more, and the others stay held, and
 * renewed. Ours goes to all. */
void multi_java_unlock_stops_at_a_lost_member(void **state) {
    (void)state;
    struct multi multi = begin(HOMES);
    bool broken = false;
    assert_java("ok", "lock M thread=%d", multi.thread);
    assert_hf(HF_OK, hf_lock_break(multi.members[0], &broken));
    assert_true(broken);
    assert_memory_equal(java_call(suite.java, "unlock M thread=%d", multi.thread),
                        "err IllegalMonitorStateException", 32);
    assert_int_equal(locked(&multi), MEMBERS - 1);
    for (int i = 1; i < MEMBERS; i++) {
        java_open(five.names[i % HOMES], "plain", names[i], "one");
        assert_java("ok", "unlock one thread=%d", multi.thread);
    }

    assert_hf(HF_OK, hf_lock_acquire(multi.lock));
    java_open(five.names[0], "plain", names[0], "one");
    assert_java("ok true", "force one thread=%d", multi.thread);
    assert_hf(HF_ELOST, hf_lock_release(multi.lock));
    assert_int_equal(locked(&multi), 0);
    end(&multi);
}

/* One made of others fails when it is given a lease, after it has acquired everything, and keeps it for
 * twice the wait. Ours counts as its members. */
void multi_of_multis_with_a_lease(void **state) {
    (void)state;
    struct multi multi = begin(HOMES);
    hf_acquire_options leased = HF_ACQUIRE_OPTIONS_INIT;
    hf_lock *outer;
    java_open(multi.java, "multimulti", NAMES, "N");
    assert_memory_equal(
        java_call(suite.java, "try N thread=%d wait=1000 lease=60000", multi.thread),
        "err ClassCastException", 22);
    assert_hf(HF_OK, hf_lock_acquire_for(multi.lock, JAVA_LIMIT_MS));
    assert_hf(HF_OK, hf_lock_release(multi.lock));

    assert_hf(HF_OK, hf_lock_new_multi(&multi.lock, 1, &outer));
    leased.lease_ms = 60000;
    assert_hf(HF_OK, hf_lock_acquire_with(outer, &leased, NULL));
    assert_java("ok false", "try M thread=%d", multi.thread);
    assert_hf(HF_OK, hf_lock_release(outer));
    hf_lock_free(outer);
    end(&multi);
}
