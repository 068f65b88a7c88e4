/* A real server behind a proxy, a client on it, and a semaphore and a latch: what the tests of
 * things that are no locks start from.
 *
 *     struct scene s;
 *     scene_begin(&s, NULL);
 *     proxy_drop_replies_after(s.proxy, SCENE_ACQUIRE);
 *     assert_int_equal(hf_sem_acquire(s.sem, 1), HF_OK);
 *     scene_end(&s);
 *
 * Include as "sync/scene.h". One server serves all tests of a program; each test finds it empty,
 * with the scripts loaded, and has its own proxy and clients. The `rival` goes to the server
 * directly, so that the proxy's faults never touch it. */
#ifndef HF_TEST_SYNC_SCENE_H
#define HF_TEST_SYNC_SCENE_H

#include <holdfast/holdfast.h>

#include "redis/script.h"
#include "support/either.h"
#include "support/proxy.h"
#include "support/server.h"
#include "support/wait.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define HANG_MS 30000   /* nothing in these tests takes a tenth of it, but for what polls */
#define PASSING_MS 1500 /* for what is to be over soon, and not before the server has answered */

/* Matchers: the scripts as the library calls them. */
#define SCENE_ACQUIRE hfi_script_semaphore_acquire.sha1
#define SCENE_UNDO hfi_script_semaphore_undo.sha1 /* of an acquire that was given up */
#define SCENE_CHANGE hfi_script_semaphore_change.sha1
#define SCENE_COUNT_DOWN hfi_script_latch_count_down.sha1
#define SCENE_LOOK hfi_script_latch_look.sha1 /* a waiter of a latch */
#define SCENE_GET "\r\nGET\r\n"
#define SCENE_SUBSCRIBE "\r\nSUBSCRIBE\r\n"

#define SEM_NAME "slots"
#define SEM_TICKETS "{" SEM_NAME "}:holdfast_took:" /* and whose */
#define LATCH_NAME "gate"
#define LATCH_PROOF "{" LATCH_NAME "}:holdfast_latch"
#define LATCH_CHANNEL "redisson_countdownlatch__channel__{" LATCH_NAME "}"

struct scene {
    struct server *server;
    struct proxy *proxy;
    hf_client *client; /* through the proxy */
    hf_sem *sem;
    hf_latch *latch;
    hf_client *rival;
    hf_sem *rival_sem;
    hf_latch *rival_latch;
};

/* For cmocka's group functions. */
int scene_start_server(void **state);
int scene_stop_server(void **state);
struct server *scene_server(void);

/* 5 s for an exchange: enough for a busy machine. */
hf_options scene_options(void);
void scene_begin(struct scene *scene, const hf_options *options);
void scene_end(struct scene *scene);
/* A client, to the server directly, whose user may neither listen nor publish. */
hf_client *scene_open_mute(void);
void scene_close_mute(hf_client *client);
hf_sem *scene_sem(hf_client *client);
hf_latch *scene_latch(hf_client *client);

/* ---- What the server knows ------------------------------------------------------------------ */

/* The number of a semaphore or a latch, by its name; fails for one that is not there. */
long long scene_number(const char *name);
bool scene_wait_number(const char *key, long long number, int64_t limit_ms);
bool scene_wait_no_channels(int64_t limit_ms); /* nobody waits any more */
hf_stats scene_stats(hf_client *client);

/* ---- Calls ---------------------------------------------------------------------------------- */

/* The same call, on the calling thread or through its asynchronous form. */
struct form {
    const char *name;
    int (*acquire)(struct scene *scene, int64_t permits, int64_t wait_ms);
    int (*release)(struct scene *scene, int64_t permits);
    int (*count_down)(struct scene *scene);
    int (*await)(struct scene *scene, int64_t wait_ms);
};
extern const struct form scene_forms[2];
/* NOLINTBEGIN(bugprone-macro-parentheses): it names a variable */
#define FOR_EACH_FORM(form)                                                                        \
    for (const struct form *form = scene_forms; form < scene_forms + 2; form++)
/* NOLINTEND(bugprone-macro-parentheses) */

void scene_set_permits(hf_sem *sem, int64_t permits); /* there must be none yet */
void scene_assert_available(hf_sem *sem, int64_t expected);

/* Waits for an operation that was started, and frees it. */
int scene_wait_op(int err, hf_op *op, hf_result *ret);

/* A wait on a thread of its own: for permits of a semaphore, or for a latch. */
struct waiter {
    pthread_t thread;
    hf_sem *sem;
    hf_latch *latch;
    int64_t permits;
    hf_wait_options options;
    int result;
    int64_t took_ms;
    atomic_bool done;
};
void waiter_acquire(struct waiter *waiter, hf_sem *sem, int64_t permits, int64_t wait_ms,
                    hf_cancel *cancel);
void waiter_await(struct waiter *waiter, hf_latch *latch, int64_t wait_ms, hf_cancel *cancel);
int waiter_join(struct waiter *waiter);

/* Waits until so many attempts have been seen behind the proxy. The second attempt of a waiter
 * comes when it is heard, so from then on no message can be missed. */
bool scene_wait_asleep(struct scene *scene, const char *matcher, size_t attempts, int64_t limit_ms);
/* The same on either engine: so many attempts by the script; on ZooKeeper so many looks that leave a watch, of which one is enough. */
bool scene_wait_sem(struct scene *scene, size_t attempts, size_t watches);
bool scene_wait_latch(struct scene *scene, size_t attempts, size_t watches);

/* ---- Generations of a latch ----------------------------------------------------------------- */

/* Opens the latch and closes it anew in one step, so that nobody can look between: with the scripts
 * of this library, as each of these clients would, or as Java does. */
enum scene_hand { SCENE_OURS, SCENE_JAVAS };
void scene_next_generation(enum scene_hand opener, enum scene_hand closer, int count);

#endif
