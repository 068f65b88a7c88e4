/* What the tests with ZooKeeper's servers share: one server, a proxy before it, eyes to look at its tree, and clients.
 *
 * Include as "zk/scene.h". A program has one server or one ensemble for all its tests, and each test names of its
 * own. Sessions that must survive last SURVIVES_MS, those that are to be lost SHORT_MS. */
#ifndef HF_TEST_ZK_SCENE_H
#define HF_TEST_ZK_SCENE_H

#include <holdfast/holdfast.h>

#include "support/assert_hf.h"
#include "support/case.h"
#include "support/new_lock.h"
#include "support/proxy.h"
#include "support/wait.h"
#include "support/zk.h"
#include "support/zk_client.h"

#include <stdatomic.h>

#define SURVIVES_MS 30000 /* longer than a server takes to come back on a busy machine */
#define SHORT_MS 2000

struct scene {
    struct zk *zk;
    struct proxy *proxy; /* before it; healed for each test */
    struct zk_client *eyes;
};
extern struct scene scene;

/* Lets servers grant that much. They delete nothing by themselves while a test looks at it. */
extern const struct zk_options scene_options;

/* For cmocka's group functions, and for each test. */
int scene_start(void **state);
int scene_stop(void **state);
int scene_heal(void **state);

/* Clients straight to the server, or through the proxy; the watchdog is the session's timeout. */
hf_client *scene_client(const char *url, int64_t watchdog_ms);
hf_client *scene_direct(int64_t watchdog_ms);
hf_client *scene_proxied(int64_t watchdog_ms);
hf_lock *scene_lock(hf_client *client, any_kind kind, const char *name);

/* Makes the node that the locks of this name are under, so that no acquire has to: acquires and releases once. */
void scene_warm(const char *name);

/* Two clients that meet at the server. */
struct scene_pair {
    hf_client *ours, *theirs;
};
void scene_pair_begin(struct scene_pair *pair);
void scene_pair_end(struct scene_pair *pair);
#define PAIR_CASE(name) CASE_IN(name, struct scene_pair, pair, scene_pair_begin, scene_pair_end)

/* An acquire that waits for ever, by an owner of its own; and that it ended with the lock held. */
hf_op *scene_acquire_start(hf_lock *lock);
hf_owner scene_acquired(hf_op *op);

/* The same for a given owner. scene_join() waits for an operation's end, frees it and returns its result. */
hf_op *scene_acquire_as(hf_lock *lock, hf_owner owner);
int scene_join(hf_op *op);
bool scene_is_done(hf_op *op);

/* Waits until two wait in the queue under the path, or the second has become the first. */
bool scene_wait_behind(const char *path, hf_op *op);

/* Waits until so many nodes stand under "/name". */
#define assert_nodes(name, count)                                                                  \
    assert_true(zk_wait_children(scene.eyes, "/" name, count, HANG_MS))

/* Waits until the server has so many ephemeral nodes whose path contains `text`; so many paths that are watched. */
void scene_await_nodes(const char *text, int count);
void scene_await_watches(const char *text, int count);

/* Waits until there is nothing beneath the path; the node itself may be gone, too. */
void scene_await_empty(const char *path);

/* Runs `holdfast COMMAND NAME` on the server and returns its exit status. */
int scene_tool(const char *command, const char *name);

hf_stats scene_stats(hf_client *client);

/* Counts what a lock's callback gets. */
struct scene_events {
    atomic_int losses, warnings;
};
void scene_on_event(hf_lock *lock, const hf_event *event, void *arg);
bool scene_wait_losses(struct scene_events *events, int at_least);

/* For a process that holds a lock and whose hold ends some time: whether it was lost, and until
 * when it was good at most, by now_ms(). The first is for hf_lock_on_lost(). */
struct scene_trust {
    atomic_int lost;
    _Atomic int64_t until_ms;
};
void scene_note_loss(hf_lock *lock, const hf_event *event, void *trust);
void scene_note_trust(struct scene_trust *trust, hf_lock *lock);

/* A hold that is short enough to be waited out is also short enough to be lost before a test begins, on a busy
 * machine. Such a round is played again, so often at most. */
#define SCENE_ROUNDS 10

#endif
