/* Permits with leases, in a world.
 *
 *     POOL_CASE(an_acquire_takes_once, 3) { // three permits
 *         hf_permit_id id;
 *         proxy_drop_replies_after(w->proxy, POOL_ACQUIRE);
 *         assert_int_equal(hf_permits_acquire(w->permits, &id), HF_OK);
 *     }
 *
 * Include as "sync/pool.h". */
#ifndef HF_TEST_SYNC_POOL_H
#define HF_TEST_SYNC_POOL_H

#include "sync/objects.h"

#define POOL_TAKEN "{" POOL_NAME "}:timeout"

#define POOL_ACQUIRE hfi_script_permits_acquire.sha1
#define POOL_RELEASE hfi_script_permits_release.sha1
#define POOL_RENEW hfi_script_permits_renew.sha1
#define POOL_EXTEND hfi_script_permits_extend.sha1

/* A short lease of the watchdog's. What is to be renewed is looked at for longer than that. */
#define WATCHDOG_MS ENDURING_MS
hf_options pool_short_watchdog(void);

/* `number` permits; none: the object is not there. */
void pool_begin(struct world *world, const hf_options *options, int64_t number);
#define POOL_CASE(name, number) CASE_IN(name, struct world, w, pool_begin, world_end, NULL, number)

/* ---- What there is -------------------------------------------------------------------------- */

void pool_assert_available(hf_permits *permits, int64_t expected);
void pool_assert_counts(hf_permits *permits, int64_t total, int64_t available, int64_t taken);

/* On the server, without asking a script: how many are free; how many are taken, ended or not. */
long long pool_free_there(void);
long long pool_taken_there(void);
bool pool_wait_there(long long free, long long taken, int64_t limit_ms);
/* Leases have ended by then, and so many permits are taken; on ZooKeeper it is the holder who takes
 * the others back, a moment later. */
void pool_wait_ended(int64_t at_ms, long long taken);
/* So many attempts were seen; on ZooKeeper so many looks at the leases that leave a watch. */
size_t pool_attempts(struct world *world);
bool pool_wait_asleep(struct world *world, size_t attempts, size_t watches);
/* When the permit's lease ends by the server's clock; -1: it is not there. */
long long pool_ends_at(const hf_permit_id *id);

/* ---- Calls ---------------------------------------------------------------------------------- */

hf_permits_options pool_options(int64_t count, int64_t wait_ms, int64_t lease_ms);
/* Acquires at once, and fails the test if that cannot be. */
void pool_take(hf_permits *permits, int64_t count, int64_t lease_ms, hf_permit_id *ret_ids);

/* The same call, on the calling thread or through its asynchronous form. */
struct pool_form {
    const char *name;
    int (*acquire)(hf_permits *permits, const hf_permits_options *options, hf_permit_id *ret_ids);
    int (*release)(hf_permits *permits, const hf_permit_id *ids, size_t len);
    int (*extend)(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms);
};
extern const struct pool_form pool_forms[2];
/* NOLINTBEGIN(bugprone-macro-parentheses): it names a variable */
#define FOR_EACH_POOL_FORM(form)                                                                   \
    for (const struct pool_form *form = pool_forms; form < pool_forms + 2; form++)
/* NOLINTEND(bugprone-macro-parentheses) */

/* Counts what a handle's callback gets, and keeps the last id. It is the `arg` of
 * pool_on_event. */
struct pool_events {
    atomic_int warnings, losses;
    char lost_id[33];
};
void pool_on_event(hf_permits *permits, const char *id, const hf_event *event, void *arg);

#endif
