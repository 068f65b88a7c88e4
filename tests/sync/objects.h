/* The objects that nobody owns: a semaphore, a latch and permits, in a world whose lock is not used.
 *
 *     OBJECTS_CASE(an_acquire_takes_once) {
 *         proxy_drop_replies_after(w->proxy, SEM_ACQUIRE);
 *         assert_int_equal(hf_sem_acquire(w->sem, 1), HF_OK);
 *     }
 *
 * Include as "sync/objects.h". The server knows the scripts, and the client is connected, before a
 * case begins, so a rule of the proxy meets the command it is meant for. */
#ifndef HF_TEST_SYNC_OBJECTS_H
#define HF_TEST_SYNC_OBJECTS_H

#include "support/world.h"

#define PASSING_MS 1500 /* for what is to be over soon, and not before the server has answered */

/* Matchers: the scripts as the library calls them. */
#define SEM_ACQUIRE hfi_script_semaphore_acquire.sha1
#define SEM_UNDO hfi_script_semaphore_undo.sha1 /* of an acquire that was given up */
#define SEM_CHANGE hfi_script_semaphore_change.sha1
#define LATCH_COUNT_DOWN hfi_script_latch_count_down.sha1
#define LATCH_LOOK hfi_script_latch_read.sha1 /* a waiter of a latch */
#define OBJECT_GET "\r\nGET\r\n"

#define SEM_IDEMPOTENCY_KEYS "{" SEM_NAME "}:holdfast_took:" /* and whose */
#define LATCH_PROOF "{" LATCH_NAME "}:holdfast_latch"
#define LATCH_CHANNEL "redisson_countdownlatch__channel__{" LATCH_NAME "}"

void objects_begin(struct world *world, const hf_options *options);
#define OBJECTS_CASE(name) CASE_IN(name, struct world, w, objects_begin, world_end, NULL)
/* A client, to the server directly, whose user may neither listen nor publish. */
hf_client *object_open_mute(void);
void object_close_mute(hf_client *client);

/* ---- What the server knows ------------------------------------------------------------------ */

/* The number of a semaphore or a latch, by its name; fails for one that is not there. */
long long object_number(const char *name);
bool object_wait_number(const char *key, long long number, int64_t limit_ms);
bool object_wait_no_channels(int64_t limit_ms); /* nobody waits any more */

/* ---- Calls ---------------------------------------------------------------------------------- */

/* The same call, on the calling thread or through its asynchronous form. */
struct form {
    const char *name;
    int (*acquire)(struct world *world, int64_t permits, int64_t wait_ms);
    int (*release)(struct world *world, int64_t permits);
    int (*count_down)(struct world *world);
    int (*await)(struct world *world, int64_t wait_ms);
};
extern const struct form object_forms[2];
/* NOLINTBEGIN(bugprone-macro-parentheses): it names a variable */
#define FOR_EACH_FORM(form)                                                                        \
    for (const struct form *form = object_forms; form < object_forms + 2; form++)
/* NOLINTEND(bugprone-macro-parentheses) */

void object_set_permits(hf_sem *sem, int64_t permits); /* there must be none yet */
void object_assert_available(hf_sem *sem, int64_t expected);

/* Waits until so many attempts have been seen behind the proxy. The second attempt of a waiter
 * comes when it is heard, so from then on no message can be missed. */
bool object_wait_asleep(struct world *world, const char *matcher, size_t attempts,
                        int64_t limit_ms);
/* The same on either engine: so many attempts by the script; on ZooKeeper so many looks that leave
 * a watch, of which one is enough. */
bool object_wait_sem(struct world *world, size_t attempts, size_t watches);
bool object_wait_latch(struct world *world, size_t attempts, size_t watches);

/* ---- Generations of a latch ----------------------------------------------------------------- */

/* Opens the latch and closes it anew in one step, so that nobody can look between: with the scripts
 * of this library, as each of these clients would, or as Java does. */
enum object_hand { LATCH_OURS, LATCH_JAVAS };
void object_next_generation(enum object_hand opener, enum object_hand closer, int count);

#endif
