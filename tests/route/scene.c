/* A client on a primary that sentinels watch; see scene.h. */
#include "route/scene.h"

static struct watched *watched;

int scene_start(void **state) {
    (void)state;
    watched = watched_start(NULL);
    return 0;
}

int scene_stop(void **state) {
    (void)state;
    watched_free(watched);
    return 0;
}

hf_options scene_options(void) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = 20000;
    options.connect_timeout_ms = 30000;
    options.watchdog_ms = LONG_MS;
    return options;
}

void scene_begin(struct scene *scene, const hf_options *given) {
    hf_options options = given != NULL ? *given : scene_options();
    watched_heal(watched);
    cmd_ok(watched_primary(watched), "FLUSHALL");
    *scene = (struct scene){.watched = watched};
    assert_int_equal(hf_open(watched_url(watched), &options, &scene->client), HF_OK);
    assert_int_equal(hf_open(watched_url(watched), &options, &scene->rival), HF_OK);
    assert_int_equal(hf_ping(scene->client), HF_OK);
    assert_int_equal(hf_ping(scene->rival), HF_OK);
}

void scene_end(struct scene *scene) {
    hf_close(scene->client);
    hf_close(scene->rival);
}

hf_lock *scene_lock(hf_client *client, any_kind kind, const char *name) {
    return made(new_lock, client, kind, name, strlen(name));
}

hf_stats scene_stats(hf_client *client) {
    hf_stats stats = HF_STATS_INIT;
    assert_int_equal(hf_client_stats(client, &stats), HF_OK);
    return stats;
}

struct switches {
    hf_client *client;
    uint64_t at_least;
};

static bool has_switched(void *arg) {
    const struct switches *switches = arg;
    return scene_stats(switches->client).failovers >= switches->at_least;
}

bool scene_wait_switches(hf_client *client, uint64_t at_least) {
    struct switches switches = {client, at_least};
    return wait_until(has_switched, &switches, HANG_MS);
}

/* A connection's WAIT is for what it has written itself, and so for all that came before that. */
static bool has_replicated(void *primary) {
    cmd_ok(primary, "SET replicated 1");
    return cmd_int(primary, "WAIT 2 1000") == WATCHED_SERVERS - 1;
}

void scene_replicate_from(struct server *primary) {
    assert_true(wait_until(has_replicated, primary, HANG_MS));
}

const any_kind scene_kinds[SCENE_KINDS] = {HF_PLAIN,
                                           HF_PLAIN | HF_NONREENTRANT,
                                           HF_PLAIN | HF_SPIN,
                                           HF_PLAIN | HF_FENCED,
                                           HF_FAIR,
                                           HF_READ,
                                           HF_WRITE,
                                           HF_STRING};

any_kind scene_rival_of(any_kind kind) {
    return kind == HF_READ ? HF_WRITE : kind;
}

void scene_acquire(hf_lock *lock, int64_t lease_ms, hf_result *result) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = lease_ms;
    assert_int_equal(hf_lock_acquire_with(lock, &options, result), HF_OK);
}

void scene_release_held(hf_lock *lock, hf_lock *rival) {
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_true(hf_lock_remaining_ms(lock) > 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_OK);
    hf_lock_free(lock);
    hf_lock_free(rival);
}

void scene_replicate(struct scene *scene) {
    scene_replicate_from(watched_primary(scene->watched));
}

struct server *scene_kill_primary(struct scene *scene) {
    struct server *old = watched_primary(scene->watched);
    server_kill(old);
    return watched_wait_switch(scene->watched, old);
}

void scene_on_event(hf_lock *lock, const hf_event *event, void *arg) {
    struct scene_events *events = arg;
    (void)lock;
    if (event->kind != HF_EVENT_LOST)
        return;
    snprintf(events->reason, sizeof events->reason, "%s", event->reason);
    atomic_store(&events->notified_ms, now_ms());
    atomic_fetch_add(&events->losses, 1);
}

struct losses {
    struct scene_events *events;
    int at_least;
};

static bool are_lost(void *arg) {
    const struct losses *losses = arg;
    return atomic_load(&losses->events->losses) >= losses->at_least;
}

hf_lock *scene_watched_lock(hf_client *client, any_kind kind, const char *name,
                            struct scene_events *events) {
    hf_lock *lock = scene_lock(client, kind, name);
    assert_int_equal(hf_lock_on_lost(lock, scene_on_event, events), HF_OK);
    return lock;
}

bool scene_wait_losses(struct scene_events *events, int at_least) {
    struct losses losses = {events, at_least};
    return wait_until(are_lost, &losses, HANG_MS);
}

static void *run_waiter(void *arg) {
    struct scene_waiter *waiter = arg;
    waiter->owner = hf_owner_self();
    waiter->result = hf_lock_acquire(waiter->lock);
    return NULL;
}

void scene_wait_for(struct scene_waiter *waiter, hf_lock *lock) {
    *waiter = (struct scene_waiter){.lock = lock};
    assert_int_equal(pthread_create(&waiter->thread, NULL, run_waiter, waiter), 0);
}

int scene_join(struct scene_waiter *waiter) {
    assert_int_equal(pthread_join(waiter->thread, NULL), 0);
    return waiter->result;
}
