/* Multi-locks under contention: sets that overlap, opposite orders, and clients that take the same
 * locks one after the other and hold what they have. No two are ever inside, and every client gets
 * through. */
#include "joint/pack.h"
#include "support/crowd.h"

#define NAMES 6
#define THREADS 8
#define ROUNDS 15
#define ASKED_MAX 10 /* times for each acquire, on average: 3, and without pauses 15 */

static const char *const names[NAMES] = {"n0", "n1", "n2", "n3", "n4", "n5"};

struct contest {
    struct pack p;
    struct crowd crowd; /* each name is a place */
};

struct member {
    struct crowd *crowd;
    hf_lock *all, *one_by_one[NAMES];
    size_t len, which[NAMES];
    int rounds;
};

static void be_inside(const struct member *member) {
    for (size_t i = 0; i < member->len; i++)
        crowd_enter(member->crowd, member->which[i]);
    (void)wait_a_moment(); /* for others to come, too */
    for (size_t i = 0; i < member->len; i++)
        crowd_leave(member->crowd, member->which[i]);
}

static void *take_all(void *arg) {
    const struct member *member = arg;
    for (int round = 0; round < member->rounds; round++) {
        if (!crowd_expect(member->crowd, hf_lock_acquire_for(member->all, HANG_MS) == HF_OK))
            continue;
        be_inside(member);
        crowd_expect(member->crowd, hf_lock_release(member->all) == HF_OK);
    }
    return NULL;
}

/* As the client that knows nothing of such locks: in its order, holding what it has while it waits. */
static void *take_one_by_one(void *arg) {
    const struct member *member = arg;
    for (int round = 0; round < member->rounds; round++) {
        for (size_t i = 0; i < member->len; i++)
            crowd_expect(member->crowd,
                         hf_lock_acquire_for(member->one_by_one[i], HANG_MS) == HF_OK);
        be_inside(member);
        for (size_t i = 0; i < member->len; i++)
            crowd_expect(member->crowd, hf_lock_release(member->one_by_one[i]) == HF_OK);
    }
    return NULL;
}

/* Its locks, in this order; each name has a client and a server of its own. */
static void join(struct member *member, struct contest *contest, const size_t *which, size_t len,
                 int rounds) {
    hf_lock *locks[NAMES] = {0};
    *member = (struct member){.crowd = &contest->crowd, .len = len, .rounds = rounds};
    for (size_t i = 0; i < len; i++) {
        member->which[i] = which[i];
        assert_int_equal(
            hf_lock_new(contest->p.client[which[i] % PACK], names[which[i]], &locks[i]), HF_OK);
        member->one_by_one[i] = locks[i];
    }
    assert_int_equal(hf_lock_new_multi(locks, len, &member->all), HF_OK);
}

static void leave(struct member *member) {
    hf_lock_free(member->all);
    for (size_t i = 0; i < member->len; i++)
        hf_lock_free(member->one_by_one[i]);
}

static void begin(struct contest *contest) {
    memset(contest, 0, sizeof *contest);
    pack_begin(&contest->p, NULL);
}

/* All of them at once, to the end; `others` is what every second member does. */
static void run(struct contest *contest, struct member *members, size_t len,
                void *(*others)(void *)) {
    for (size_t t = 0; t < len; t++)
        crowd_add(&contest->crowd, t % 2 == 0 ? take_all : others, &members[t]);
    crowd_join(&contest->crowd);
    for (size_t t = 0; t < len; t++)
        leave(&members[t]);
}

static size_t commands_seen(struct contest *contest) {
    size_t count = 0;
    for (int i = 0; i < PACK; i++)
        count += proxy_seen(contest->p.proxy[i], FLEET_ACQUIRE);
    return count;
}

static void end(struct contest *contest) {
    crowd_assert_exclusive(&contest->crowd);
    for (int i = 0; i < PACK; i++)
        assert_int_equal(cmd_int(contest->p.server[i], "DBSIZE"), 0);
    pack_end(&contest->p);
}

#define CONTEST_CASE(name) CASE_IN(name, struct contest, contest, begin, end)

CONTEST_CASE(overlapping_sets) {
    struct member members[THREADS];
    for (size_t t = 0; t < THREADS; t++) {
        const size_t which[] = {t % NAMES, (t + 1 + t / NAMES) % NAMES, (t + 3) % NAMES};
        join(&members[t], contest, which, 3, ROUNDS);
    }
    run(contest, members, THREADS, take_all);
}

/* Half of them take the locks one after the other, and the other half all, listed the other way round. */
CONTEST_CASE(opposite_orders) {
    static const size_t forwards[] = {0, 1, 2}, backwards[] = {2, 1, 0};
    struct member members[4];
    for (size_t t = 0; t < 4; t++)
        join(&members[t], contest, t % 2 == 0 ? forwards : backwards, 3, 25);
    run(contest, members, 4, take_one_by_one);
}

/* A client that gives way must not come back in step with the others, or they meet again in other parts: how often
 * it asks does not depend on the timing. */
CONTEST_CASE(everybody_wants_all) {
    struct member members[THREADS];
    for (size_t t = 0; t < THREADS; t++) {
        size_t which[NAMES];
        for (size_t i = 0; i < NAMES; i++)
            which[i] = (t + i) % NAMES;
        join(&members[t], contest, which, NAMES, ROUNDS);
    }
    size_t before = commands_seen(contest);
    run(contest, members, THREADS, take_all);
    size_t sent = commands_seen(contest) - before;
    assert_true(sent <= ASKED_MAX * NAMES * ROUNDS * THREADS);
}

RUN_CASES(pack_start_servers, pack_stop_servers)
