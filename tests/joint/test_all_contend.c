/* One lock out of many, wanted by many at once: sets that overlap, opposite orders, and others who take
 * the same locks one after the other and hold what they have. Nobody meets anybody inside, everybody gets
 * through. */
#include "joint/pack.h"

#include <stdio.h>
#include <string.h>

#define NAMES 6
#define THREADS 8
#define ROUNDS 15
#define ASKED_MAX 10 /* times for each acquire, on average: 3, and without pauses 15 */

static const char *const names[NAMES] = {"n0", "n1", "n2", "n3", "n4", "n5"};

struct crowd {
    struct pack p;
    atomic_int inside[NAMES];
    atomic_int clashes, failures;
};

struct member {
    struct crowd *crowd;
    hf_lock *all, *one_by_one[NAMES];
    size_t len, which[NAMES];
    int rounds;
};

static void be_inside(const struct member *member) {
    struct crowd *crowd = member->crowd;
    for (size_t i = 0; i < member->len; i++)
        if (atomic_fetch_add(&crowd->inside[member->which[i]], 1) != 0)
            atomic_fetch_add(&crowd->clashes, 1);
    sleep_ms(1);
    for (size_t i = 0; i < member->len; i++)
        atomic_fetch_sub(&crowd->inside[member->which[i]], 1);
}

static void *take_all(void *arg) {
    const struct member *member = arg;
    for (int round = 0; round < member->rounds; round++) {
        if (hf_lock_acquire_for(member->all, HANG_MS) != HF_OK) {
            atomic_fetch_add(&member->crowd->failures, 1);
            continue;
        }
        be_inside(member);
        if (hf_lock_release(member->all) != HF_OK)
            atomic_fetch_add(&member->crowd->failures, 1);
    }
    return NULL;
}

/* As whoever knows nothing of such locks: in its order, holding what it has while it waits. */
static void *take_one_by_one(void *arg) {
    const struct member *member = arg;
    for (int round = 0; round < member->rounds; round++) {
        for (size_t i = 0; i < member->len; i++)
            if (hf_lock_acquire_for(member->one_by_one[i], HANG_MS) != HF_OK)
                atomic_fetch_add(&member->crowd->failures, 1);
        be_inside(member);
        for (size_t i = 0; i < member->len; i++)
            if (hf_lock_release(member->one_by_one[i]) != HF_OK)
                atomic_fetch_add(&member->crowd->failures, 1);
    }
    return NULL;
}

/* Its locks, in this order; each name has a client and a server of its own. */
static void join(struct member *member, struct crowd *crowd, const size_t *which, size_t len) {
    hf_lock *locks[NAMES] = {0};
    member->crowd = crowd;
    member->len = len;
    for (size_t i = 0; i < len; i++) {
        member->which[i] = which[i];
        assert_int_equal(hf_lock_new(crowd->p.client[which[i] % PACK], names[which[i]], &locks[i]),
                         HF_OK);
        member->one_by_one[i] = locks[i];
    }
    assert_int_equal(hf_lock_new_all(locks, len, &member->all), HF_OK);
}

static void leave(struct member *member) {
    hf_lock_free(member->all);
    for (size_t i = 0; i < member->len; i++)
        hf_lock_free(member->one_by_one[i]);
}

/* All of them at once, to the end. */
static void run(struct member *members) {
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, take_all, &members[t]), 0);
    for (size_t t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        leave(&members[t]);
    }
}

static size_t commands_seen(struct crowd *crowd) {
    size_t count = 0;
    for (int i = 0; i < PACK; i++)
        count += proxy_seen(crowd->p.proxy[i], FLEET_ACQUIRE);
    return count;
}

static void expect_empty(struct crowd *crowd) {
    assert_int_equal(atomic_load(&crowd->clashes), 0);
    assert_int_equal(atomic_load(&crowd->failures), 0);
    for (int i = 0; i < PACK; i++)
        assert_int_equal(cmd_int(crowd->p.server[i], "DBSIZE"), 0);
    pack_end(&crowd->p);
}

static void overlapping_sets(void **state) {
    (void)state;
    static struct crowd crowd;
    struct member members[THREADS];
    memset(&crowd, 0, sizeof crowd);
    memset(members, 0, sizeof members);
    pack_begin(&crowd.p, NULL);
    for (size_t t = 0; t < THREADS; t++) {
        const size_t which[] = {t % NAMES, (t + 1 + t / NAMES) % NAMES, (t + 3) % NAMES};
        join(&members[t], &crowd, which, 3);
        members[t].rounds = ROUNDS;
    }
    run(members);
    expect_empty(&crowd);
}

/* Half of them take the locks one after the other, and the other half all, listed the other way round. */
static void opposite_orders(void **state) {
    (void)state;
    static struct crowd crowd;
    static const size_t forwards[] = {0, 1, 2}, backwards[] = {2, 1, 0};
    struct member members[4];
    pthread_t threads[4];
    memset(&crowd, 0, sizeof crowd);
    memset(members, 0, sizeof members);
    pack_begin(&crowd.p, NULL);
    for (size_t t = 0; t < 4; t++) {
        join(&members[t], &crowd, t % 2 == 0 ? forwards : backwards, 3);
        members[t].rounds = 25;
    }
    for (size_t t = 0; t < 4; t++)
        assert_int_equal(
            pthread_create(&threads[t], NULL, t % 2 == 0 ? take_all : take_one_by_one, &members[t]),
            0);
    for (size_t t = 0; t < 4; t++) {
        pthread_join(threads[t], NULL);
        leave(&members[t]);
    }
    expect_empty(&crowd);
}

/* Whoever gives way must not come back in step with the others, or they meet again in other parts: how often
 * it asks does not depend on the timing. */
static void everybody_wants_all(void **state) {
    (void)state;
    static struct crowd crowd;
    struct member members[THREADS];
    memset(&crowd, 0, sizeof crowd);
    memset(members, 0, sizeof members);
    pack_begin(&crowd.p, NULL);
    for (size_t t = 0; t < THREADS; t++) {
        size_t which[NAMES];
        for (size_t i = 0; i < NAMES; i++)
            which[i] = (t + i) % NAMES;
        join(&members[t], &crowd, which, NAMES);
        members[t].rounds = ROUNDS;
    }
    size_t before = commands_seen(&crowd);
    run(members);
    size_t sent = commands_seen(&crowd) - before;
    assert_true(sent <= ASKED_MAX * NAMES * ROUNDS * THREADS);
    expect_empty(&crowd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlapping_sets),
        cmocka_unit_test(opposite_orders),
        cmocka_unit_test(everybody_wants_all),
    };
    return cmocka_run_group_tests(tests, pack_start_servers, pack_stop_servers);
}
