/* What the tests of routes share: a client on a primary that sentinels watch, and what it reports.
 *
 *     struct scene s;
 *     scene_begin(&s, NULL);
 *     ...
 *     scene_end(&s);
 *
 * Include as "route/scene.h". One set of servers and sentinels serves all tests of a program
 * (scene_start); each test finds it whole and empty. No test here has a lease that a slow failover could
 * end: what is asked of a failover is what it leads to, and that nothing else brings that about. */
#ifndef HF_TEST_ROUTE_SCENE_H
#define HF_TEST_ROUTE_SCENE_H

#include <holdfast/holdfast.h>

#include "support/case.h"
#include "support/new_lock.h"
#include "support/server.h"
#include "support/wait.h"
#include "support/watched.h"

#include <stdatomic.h>

#define LONG_MS 300000 /* a lease whose next renewal is later than any test ends */

struct scene {
    struct watched *watched;
    hf_client *client, *rival;
};

/* For cmocka's group functions. */
int scene_start(void **state);
int scene_stop(void **state);

/* 20 s for an exchange, since a failover is inside of it; a lease of LONG_MS. */
hf_options scene_options(void);
void scene_begin(struct scene *scene, const hf_options *given); /* NULL: scene_options() */
void scene_end(struct scene *scene);
#define SCENE_CASE(name) CASE_IN(name, struct scene, s, scene_begin, scene_end, NULL)
#define SCENE_CASE_WITH(name, ...)                                                                 \
    CASE_WITH(name, struct scene, s, scene_begin, scene_end, __VA_ARGS__)

hf_lock *scene_lock(hf_client *client, any_kind kind, const char *name);
/* Each kind that a server has; and the kind that it excludes. */
#define SCENE_KINDS 8
extern const any_kind scene_kinds[SCENE_KINDS];
any_kind scene_rival_of(any_kind kind);
/* With that lease, and it must go well; `result` may be NULL. */
void scene_acquire(hf_lock *lock, int64_t lease_ms, hf_result *result);
/* The rivals have it not before it is released, and at once then. Both handles are freed. */
void scene_release_held(hf_lock *lock, hf_lock *rival);

hf_stats scene_stats(hf_client *client);
bool scene_wait_switches(hf_client *client, uint64_t at_least);

/* Everything that was written at the primary is at the replicas, too. */
void scene_replicate(struct scene *scene);
void scene_replicate_from(struct server *primary);

/* Kills the primary; returns the new one when the sentinels agree on it. */
struct server *scene_kill_primary(struct scene *scene);

/* Counts what a lock's callback gets; the `arg` of scene_on_event. */
struct scene_events {
    atomic_int losses;
    char reason[128];            /* of the last loss; read it when that was counted */
    _Atomic int64_t notified_ms; /* when that was, by now_ms() */
};
void scene_on_event(hf_lock *lock, const hf_event *event, void *arg);
hf_lock *scene_watched_lock(hf_client *client, any_kind kind, const char *name,
                            struct scene_events *events);
bool scene_wait_losses(struct scene_events *events, int at_least);

/* An acquire that waits for ever, on a thread of its own. */
struct scene_waiter {
    pthread_t thread;
    hf_lock *lock;
    int result;
    hf_owner owner;
};
void scene_wait_for(struct scene_waiter *waiter, hf_lock *lock);
int scene_join(struct scene_waiter *waiter);

#endif
