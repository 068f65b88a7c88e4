/*
 * A cluster of three primaries with a replica each, without automatic failover: every kind works on
 * every shard, a manual failover goes unnoticed, and a dead shard affects no other. With real
 * servers and long cluster timeouts.
 */
#include "route/ring.h"

/* ---- Nothing happens ---- */

/* Each kind at each primary. */
RING_CASE(every_kind_of_lock_everywhere) {
    for (size_t i = 0; i < SCENE_KINDS; i++)
        for (int round = 0; round < 6; round++) {
            own_text *name = text_of("kind-%zu-%d", i, round);
            own_lock *lock = scene_lock(r->client, scene_kinds[i], name);
            own_lock *rival = scene_lock(r->rival, scene_rival_of(scene_kinds[i]), name);
            assert_int_equal(hf_lock_acquire(lock), HF_OK);
            assert_int_equal(hf_lock_try(rival), HF_EBUSY);
            assert_int_equal(hf_lock_extend(lock, LONG_MS), HF_OK);
            assert_true(key_exists(shards_owner_of(r->shards, name), name));
            assert_int_equal(hf_lock_release(lock), HF_OK);
            assert_int_equal(hf_lock_try(rival), HF_OK);
            assert_int_equal(hf_lock_release(rival), HF_OK);
        }
    assert_int_equal(scene_stats(r->client).redirects, 0);
    assert_int_equal(scene_stats(r->client).failovers, 0);
}

/* Each shard has its own, and the map says how many are up. */
RING_CASE_WITH(replicas_of_each_shard_confirm, scene_options(), options.acks = HF_ACKS_ALL,
               options.ack_timeout_ms = 5000) {
    for (int i = 0; i < 12; i++) {
        char name[32];
        hf_result result = HF_RESULT_INIT;
        snprintf(name, sizeof name, "confirmed-%d", i);
        own_lock *lock = scene_lock(r->client, scene_kinds[i % (int)SCENE_KINDS], name);
        assert_int_equal(hf_lock_acquire_with(lock, NULL, &result), HF_OK);
        assert_int_equal(result.acked, 1);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
}

static void use_things(hf_client *client, int round) {
    char name[32];
    hf_sem *sem;
    hf_permits *permits;
    hf_permit_id id;
    own_latch *latch;
    bool set;
    snprintf(name, sizeof name, "sem-%d", round);
    assert_int_equal(hf_sem_new(client, name, &sem), HF_OK);
    assert_int_equal(hf_sem_try_set(sem, 2, 0, &set), HF_OK);
    assert_int_equal(hf_sem_acquire(sem, 2), HF_OK);
    assert_int_equal(hf_sem_release(sem, 2), HF_OK);
    hf_sem_free(sem);
    snprintf(name, sizeof name, "permits-%d", round);
    assert_int_equal(hf_permits_new(client, name, &permits), HF_OK);
    assert_int_equal(hf_permits_set(permits, 1), HF_OK);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    hf_permits_free(permits);
    snprintf(name, sizeof name, "latch-%d", round);
    assert_int_equal(hf_latch_new(client, name, &latch), HF_OK);
    assert_int_equal(hf_latch_try_set(latch, 1, &set), HF_OK);
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_int_equal(hf_latch_await(latch), HF_OK);
}

RING_CASE(every_other_thing_everywhere) {
    for (int round = 0; round < 6; round++)
        use_things(r->client, round);
}

/* Braces that are no pair with something between would put the parts of a lock into several slots. */
RING_CASE(U05_U06_names_that_split_are_refused) {
    static const char *const split[] = {"a{b", "a{}b", "}a"};
    own_lock *lock;
    hf_latch *latch;
    for (size_t i = 0; i < sizeof split / sizeof split[0]; i++)
        assert_int_equal(hf_lock_new(r->client, split[i], &lock), HF_EINVAL);
    assert_int_equal(hf_latch_new(r->client, "a{b}c", &latch), HF_EINVAL);
    lock = scene_lock(r->client, HF_PLAIN | HF_FENCED, "a{b}c");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* ---- By hand ---- */

struct busy {
    pthread_t thread;
    hf_client *client;
    char name[32];
    atomic_bool stop;
    atomic_int rounds;
    int wrong; /* HF_OK: nothing */
};

static void *be_busy(void *arg) {
    struct busy *busy = arg;
    hf_lock *lock;
    if (hf_lock_new(busy->client, busy->name, &lock) != HF_OK)
        return NULL;
    while (!atomic_load(&busy->stop) && busy->wrong == HF_OK) {
        busy->wrong = hf_lock_acquire(lock);
        if (busy->wrong == HF_OK)
            busy->wrong = hf_lock_release(lock);
        atomic_fetch_add(&busy->rounds, 1);
    }
    hf_lock_free(lock);
    return NULL;
}

struct progress {
    struct busy *busy;
    int rounds;
};

static bool has_gone_on(void *arg) {
    const struct progress *progress = arg;
    return atomic_load(&progress->busy->rounds) > progress->rounds;
}

static void wait_for_rounds(struct busy *busy, int more) {
    struct progress progress = {busy, atomic_load(&busy->rounds) + more};
    assert_true(wait_until(has_gone_on, &progress, HANG_MS));
}

/* Nothing is lost, nobody hears of it, and no connection is. */
RING_CASE(by_hand_while_all_are_busy) {
    enum { BUSY = 3 };
    struct busy busy[BUSY];
    struct server *old = shards_owner_of(r->shards, "kept");
    own_lock *kept = scene_lock(r->client, HF_PLAIN, "kept");
    assert_int_equal(hf_lock_acquire(kept), HF_OK);
    for (int i = 0; i < BUSY; i++) {
        char stem[16];
        busy[i] = (struct busy){.client = r->client};
        snprintf(stem, sizeof stem, "busy-%d", i);
        ring_name_at(r, old, stem, busy[i].name);
        assert_int_equal(pthread_create(&busy[i].thread, NULL, be_busy, &busy[i]), 0);
    }
    for (int i = 0; i < BUSY; i++)
        wait_for_rounds(&busy[i], 20);
    shards_fail_over(r->shards, old); /* once: servers vote for a shard every other timeout only */
    assert_true(scene_wait_switches(r->client, 1));
    for (int i = 0; i < BUSY; i++)
        wait_for_rounds(&busy[i], 20);
    for (int i = 0; i < BUSY; i++) {
        atomic_store(&busy[i].stop, true);
        assert_int_equal(pthread_join(busy[i].thread, NULL), 0);
        assert_int_equal(busy[i].wrong, HF_OK);
    }
    assert_int_equal(hf_lock_release(kept), HF_OK);
    assert_int_equal(scene_stats(r->client).losses, 0);
    assert_int_equal(scene_stats(r->client).reconnects, 0);
    assert_true(scene_stats(r->client).redirects > 0);
}

/* ---- Gone for good ---- */

struct renewed {
    hf_client *client;
    uint64_t at_least;
};

static bool is_renewed(void *arg) {
    const struct renewed *renewed = arg;
    return scene_stats(renewed->client).renewals >= renewed->at_least;
}

/* Its holds are lost at their deadline; those of the others are renewed as if nothing had happened. */
RING_CASE_WITH(a_shard_that_is_gone_for_good, scene_options(), options.watchdog_ms = ENDURING_MS) {
    enum { EACH = 20 };
    struct scene_events doomed = {0}, safe = {0};
    hf_lock *locks[SHARDS * EACH];
    struct server *old = shards_owner(r->shards, 0), *replica = shards_replica(r->shards, old);
    struct server *others[] = {shards_owner(r->shards, 16384 / 2),
                               shards_owner(r->shards, 16384 - 1)};
    for (size_t i = 0; i < SHARDS * EACH; i++) {
        char stem[16], name[32];
        snprintf(stem, sizeof stem, "shard-%zu", i);
        bool lost = i % SHARDS == 0;
        ring_name_at(r, lost ? old : others[i % 2], stem, name);
        locks[i] = scene_watched_lock(r->client, HF_PLAIN, name, lost ? &doomed : &safe);
        scene_acquire(locks[i], HF_WATCHDOG, NULL);
    }
    server_kill(replica);
    server_kill(old);
    assert_true(scene_wait_losses(&doomed, EACH));
    struct renewed renewed = {r->client, scene_stats(r->client).renewals + 2 * (SHARDS - 1) * EACH};
    assert_true(wait_until(is_renewed, &renewed, HANG_MS));
    assert_int_equal(atomic_load(&safe.losses), 0);
    assert_int_equal(atomic_load(&doomed.losses), EACH);
    for (size_t i = 0; i < SHARDS * EACH; i++) {
        assert_int_equal(hf_lock_release(locks[i]), i % SHARDS == 0 ? HF_ELOST : HF_OK);
        hf_lock_free(locks[i]);
    }
}

RUN_CASES(ring_start_steady, ring_stop)
