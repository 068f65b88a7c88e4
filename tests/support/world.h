/* A real server behind a proxy, a client on it, a lock, a semaphore, a latch and permits: what the
 * tests of faults start from.
 *
 *     WORLD_CASE(an_acquire_counts_once) {
 *         proxy_drop_replies_after(w->proxy, WORLD_ACQUIRE);
 *         assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
 *     }
 *
 * Include as "support/world.h". One server serves all tests of a program (world_server); each test
 * finds it empty, with its scripts loaded, and has its own proxy and client. A second client
 * (`rival`) goes to the server directly, so that the proxy's faults never touch it. */
#ifndef HF_TEST_WORLD_H
#define HF_TEST_WORLD_H

#include <holdfast/holdfast.h>

#include "redis/wire/script.h"
#include "support/case.h"
#include "support/either.h"
#include "support/new_lock.h"
#include "support/proxy.h"
#include "support/server.h"
#include "support/wait.h"

#include <stdatomic.h>

/* Matchers: the scripts as the library calls them, once the server knows them. */
#define WORLD_ACQUIRE hfi_script_plain_acquire.sha1
#define WORLD_RELEASE hfi_script_plain_release.sha1
#define WORLD_RENEW hfi_script_renew.sha1
#define WORLD_SUBSCRIBE "\r\nSUBSCRIBE\r\n"

#define WORLD_NAME "guarded"
#define SEM_NAME "slots"
#define LATCH_NAME "gate"
#define POOL_NAME "pool" /* of the permits */
#define WORLD_CHANNEL "redisson_lock__channel:{" WORLD_NAME "}"

struct world {
    struct server *server;
    struct proxy *proxy;
    hf_client *client; /* through the proxy */
    hf_lock *lock;
    hf_sem *sem;
    hf_latch *latch;
    hf_permits *permits;
    char owner[64]; /* this thread's field in the hash */
    hf_client *rival;
    hf_lock *rival_lock;
    hf_sem *rival_sem;
    hf_latch *rival_latch;
    hf_permits *rival_permits;
    char rival_owner[64];
};

/* 5 s for an exchange, enough for a busy machine, and a lease of 60 s. */
hf_options world_options(void);
/* For an exchange, where a test waits until one has failed: what is answered is answered within it. */
#define WORLD_BRIEF_MS 2000

/* For cmocka's group functions. */
int world_start_server(void **state);
int world_stop_server(void **state);
struct server *world_server(void);

/* Both clients have acquired, extended and released the lock. */
void world_begin(struct world *world, const hf_options *options);
#define WORLD_CASE(name) CASE_IN(name, struct world, w, world_begin, world_end, NULL)
#define WORLD_CASE_WITH(name, ...)                                                                 \
    CASE_WITH(name, struct world, w, world_begin, world_end, __VA_ARGS__)
/* On a server of the test's own, which it frees after world_end. */
void world_begin_on(struct world *world, struct server *server, const hf_options *given);
/* Nothing has been sent yet. */
void world_open(struct world *world, struct server *server, const hf_options *given);
void world_end(struct world *world);

/* Handles on the objects of these names. */
hf_sem *object_sem(hf_client *client);
hf_latch *object_latch(hf_client *client);
hf_permits *pool_permits(hf_client *client);

/* ---- What the server knows ------------------------------------------------------------------ */

/* The count in the lock's hash for a field; 0 when there is none. */
long long world_count(struct world *world, const char *owner);
bool world_free(struct world *world); /* no key of the lock's name */
/* The same after an attempt was refused: on ZooKeeper its node is deleted in the background, after
 * the call has returned. */
bool world_free_after_refusal(struct world *world);
/* No key at all but what tests made: nothing is ever left beside the lock. */
long long world_keys(struct server *server);
bool world_wait_free(struct world *world, int64_t limit_ms);
bool world_wait_count(struct world *world, const char *owner, long long count, int64_t limit_ms);
/* All names that the server has subscribers for, but for where clients hear of breaks; on ZooKeeper all watches. */
long long world_channels(struct server *server);
/* Nobody waits any more. */
bool world_wait_no_channels(struct server *server, int64_t limit_ms);

void world_owner_text(const hf_client *client, hf_owner owner, char text[64]);
hf_stats world_stats(hf_client *client);
/* Until a client that holds something listens, which it does after a second, and has asked whether
 * it still holds that: it has nothing more to say by itself then. On ZooKeeper there is no such
 * thing. */
bool world_wait_verified(struct world *world, int64_t limit_ms);

/* The request that takes the lock, gives it back, keeps it, or sees to it that a waiter is
 * notified, on either engine: matchers.
 */
const char *world_acquires(const struct world *world);
const char *world_releases(const struct world *world);
const char *world_renews(const struct world *world);
const char *world_listens(const struct world *world);
/* Who waits learned that it has to. `seen`: of world_acquires() before it began. */
bool world_wait_asleep(const struct world *world, size_t seen, int64_t limit_ms);

/* ---- Calls ---------------------------------------------------------------------------------- */

/* Waits for an operation that was started, and frees it. */
int world_wait_op(int err, hf_op *op, hf_result *ret);

hf_acquire_options world_wait_for(int64_t wait_ms, int64_t lease_ms);
hf_acquire_options world_wait_as(hf_owner owner, int64_t wait_ms, int64_t lease_ms);

/* Acquires, extends and releases, until each of them was answered in time: scripts are known and
 * connections made then. */
void world_warm_up(hf_lock *lock);

/* Acquires what is meant to run out. If the machine paused for longer than the lease, the call says
 * that the answer came too late and nothing is held: then it is acquired once more. */
void world_acquire_brief(hf_lock *lock, const hf_acquire_options *options);

/* Acquires through the asynchronous form and waits; the owner 0 is this thread's. */
int world_acquire_async(hf_lock *lock, hf_owner owner, int64_t wait_ms, hf_result *ret);
int world_release_async(hf_lock *lock, hf_owner owner, hf_result *ret);

/* The body of a thread: fires that hf_cancel as soon as it runs. */
void *world_fire(void *cancel);
/* An acquire that waits for ever, and is cancelled as soon as it may have begun. */
int world_acquire_and_cancel(hf_lock *lock, hf_owner owner);

/* A call that may wait, on a thread of its own. */
struct world_caller {
    pthread_t thread;
    int (*call)(struct world_caller *caller);
    void *handle;
    hf_acquire_options options;
    hf_wait_options wait;
    int64_t permits;
    hf_permits_options permits_options;
    hf_permit_id ids[8];
    hf_owner owner; /* of that thread, or as given in the options */
    int result;
    int64_t took_ms;
    atomic_bool done;
};
void world_call_acquire(struct world_caller *caller, hf_lock *lock, hf_acquire_options options);
void world_call_sem(struct world_caller *caller, hf_sem *sem, int64_t permits, int64_t wait_ms,
                    hf_cancel *cancel);
void world_call_latch(struct world_caller *caller, hf_latch *latch, int64_t wait_ms,
                      hf_cancel *cancel);
void world_call_permits(struct world_caller *caller, hf_permits *permits,
                        hf_permits_options options);
int world_join(struct world_caller *caller);

/* ---- Faults -------------------------------------------------------------------------------- */

/* Counts what a lock's callback gets. It is the `arg` of world_on_event. */
struct world_events {
    atomic_int warnings, losses, orphans;
    atomic_int lost_when_warned;    /* losses that came before the last warning */
    _Atomic int64_t warned_with_ms; /* what was left at the last warning */
};
void world_on_event(hf_lock *lock, const hf_event *event, void *arg);
bool world_wait_atomic(atomic_int *value, int at_least, int64_t limit_ms);

#endif
