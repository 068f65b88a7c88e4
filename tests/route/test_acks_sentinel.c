/*
 * Acknowledgement where sentinels watch over the servers: they say how many replicas are up, and a lock that a
 * replica has confirmed is there after a failover. With real servers and sentinels.
 */
#include "route/scene.h"

static hf_options options_with(int acks) {
    hf_options options = scene_options();
    options.acks = acks;
    options.ack_timeout_ms = 5000;
    return options;
}

struct asked {
    hf_lock *lock;
    int64_t acked;
};

static bool have_confirmed(void *arg) {
    const struct asked *asked = arg;
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_acquire_with(asked->lock, NULL, &result), HF_OK);
    assert_int_equal(hf_lock_release(asked->lock), HF_OK);
    return result.acked == asked->acked;
}

static struct server *a_replica(struct scene *s) {
    struct server *primary = watched_primary(s->watched);
    for (int i = 0; i < WATCHED_SERVERS; i++)
        if (watched_server(s->watched, i) != primary)
            return watched_server(s->watched, i);
    return NULL;
}

/* As many as the sentinels say are up: two, and without one of them one. */
SCENE_CASE_WITH(sentinels_decide, options_with(HF_ACKS_ALL)) {
    own_lock *lock = scene_lock(s->client, HF_PLAIN, "all");
    struct asked asked = {.lock = lock, .acked = 2};
    scene_replicate(s);
    assert_true(wait_until(have_confirmed, &asked, HANG_MS));
    server_kill(a_replica(s));
    asked.acked = 1;
    assert_true(wait_until(have_confirmed, &asked, HANG_MS));
}

/* Both replicas have it, so whichever becomes the primary has it, too. */
SCENE_CASE_WITH(U88_a_confirmed_hold_survives_a_failover, options_with(2)) {
    struct scene_events events = {0};
    own_lock *lock = scene_lock(s->client, HF_PLAIN, "confirmed");
    own_lock *rival = scene_lock(s->rival, HF_PLAIN, "confirmed");
    hf_acquire_options one = HF_ACQUIRE_OPTIONS_INIT;
    assert_int_equal(hf_lock_on_lost(lock, scene_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_kill_primary(s);
    assert_true(scene_wait_switches(s->client, 1));
    one.wait_ms = 0;
    one.acks = HF_ACKS_OFF;
    assert_int_equal(hf_lock_acquire_with(rival, &one, NULL), HF_EBUSY);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 0);
}

RUN_CASES(scene_start, scene_stop)
