/*
 * A failover that loses writes: the replicas never had the lock, and one of them becomes the
 * primary. Then two clients may hold it, as documented. The first is notified soon, with the right
 * reason, and the tokens distinguish the two. With real servers and sentinels.
 */
#include "route/scene.h"

/* What the primary has is not at the replicas, for certain. */
static void lose_at_replicas(struct scene *s, const char *key) {
    struct server *primary = watched_primary(s->watched);
    scene_replicate(s);
    for (int i = 0; i < WATCHED_SERVERS; i++) {
        struct server *server = watched_server(s->watched, i);
        if (server == primary)
            continue;
        cmd_ok(server, "CONFIG SET replica-read-only no");
        cmd_ok(server, "DEL %s", key);
    }
}

/* The next renewal is a hundred seconds away, and the end of the lease three hundred. */
static void notified_of_a_lost_lock(int64_t lease_ms) {
    OWN(scene_end) struct scene s;
    struct scene_events events = {0}, none = {0};
    hf_result first = HF_RESULT_INIT, second = HF_RESULT_INIT;
    scene_begin(&s, NULL);
    own_lock *lock = scene_lock(s.client, HF_PLAIN | HF_FENCED, "lost");
    own_lock *kept = scene_lock(s.client, HF_PLAIN, "kept");
    own_lock *rival = scene_lock(s.rival, HF_PLAIN | HF_FENCED, "lost");
    assert_int_equal(hf_lock_on_lost(lock, scene_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_on_lost(kept, scene_on_event, &none), HF_OK);
    scene_acquire(lock, lease_ms, &first);
    scene_acquire(kept, lease_ms, NULL);
    lose_at_replicas(&s, "lost");
    scene_kill_primary(&s);
    assert_true(scene_wait_losses(&events, 1));
    assert_string_equal(events.reason, "the primary changed, and the new one does not have it");
    scene_acquire(rival, lease_ms, &second);
    assert_true(second.token > first.token);
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
    assert_int_equal(hf_lock_release(rival), HF_OK);
    assert_int_equal(hf_lock_release(kept), HF_OK);
    assert_int_equal(atomic_load(&none.losses), 0);
    assert_int_equal(atomic_load(&events.losses), 1);
    assert_int_equal(scene_stats(s.client).losses, 1);
}

CASE(notified_of_a_watchdog_hold) {
    notified_of_a_lost_lock(HF_WATCHDOG);
}

CASE(notified_of_a_leased_hold) {
    notified_of_a_lost_lock(LONG_MS);
}

/* When a sentinel was first heard of, or followed without having been heard. */
static void note_announcement(hf_log_level level, const char *message, void *user) {
    _Atomic int64_t *at_ms = user;
    int64_t none = 0;
    (void)level;
    if (strstr(message, "a sentinel says that") != NULL ||
        strstr(message, "the primary changed") != NULL)
        atomic_compare_exchange_strong(at_ms, &none, now_ms());
}

/* All of very many are asked about, and none is reported wrongly. What is promised is a second; it is
 * only demanded where nothing else is to be done. */
CASE(many_are_verified) {
    OWN(scene_end) struct scene s;
    bool soak = getenv("HF_SOAK") != NULL;
    size_t many = soak ? 10000 : 1000;
    struct scene_events events = {0};
    _Atomic int64_t announced_ms = 0;
    hf_options options = scene_options();
    options.log = note_announcement;
    options.log_user = &announced_ms;
    scene_begin(&s, &options);
    hf_lock **locks = calloc(many, sizeof(hf_lock *));
    for (size_t i = 0; i < many; i++) {
        own_text *name = text_of("many-%zu", i);
        locks[i] = scene_lock(s.client, HF_PLAIN, name);
        assert_int_equal(hf_lock_on_lost(locks[i], scene_on_event, &events), HF_OK);
        scene_acquire(locks[i], i % 2 == 0 ? HF_WATCHDOG : LONG_MS, NULL);
    }
    lose_at_replicas(&s, "many-0");
    lose_at_replicas(&s, "many-501");
    server_kill(watched_primary(s.watched));
    assert_true(scene_wait_losses(&events, 2));
    long long after_ms = now_ms() - atomic_load(&announced_ms);
    print_message("notified %lld ms after the announcement, of %zu\n", after_ms, many);
    assert_true(!soak || after_ms <= 1000);
    for (size_t i = 0; i < many; i++) {
        assert_int_equal(hf_lock_release(locks[i]), i == 0 || i == 501 ? HF_ELOST : HF_OK);
        hf_lock_free(locks[i]);
    }
    free(locks);
    assert_int_equal(scene_stats(s.client).losses, 2);
}

/* It comes back empty before anybody has noticed: no change of primary, and nothing is there. */
SCENE_CASE(notified_of_a_server_that_forgot) {
    struct scene_events events = {0};
    own_lock *lock = scene_watched_lock(s->client, HF_PLAIN, "forgotten", &events);
    scene_acquire(lock, LONG_MS, NULL);
    assert_int_equal(hf_lock_extend(lock, LONG_MS), HF_OK);
    lose_at_replicas(s, "forgotten"); /* should they notice after all */
    server_restart(watched_primary(s->watched));
    assert_true(scene_wait_losses(&events, 1));
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
}

RUN_CASES(scene_start, scene_stop)
