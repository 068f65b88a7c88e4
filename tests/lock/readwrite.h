/* A world with both sides of a read/write lock, for test_readwrite*.c alone.
 *
 * Owners are numbers, so one thread can be several; A is the caller's thread by another name where
 * that matters. `read` and `write` go through the proxy, `rival_...` are another client's. */
#ifndef HF_TEST_LOCK_READWRITE_H
#define HF_TEST_LOCK_READWRITE_H

#include "support/world.h"

#include <inttypes.h>

#define RW_CHANNEL "redisson_rwlock:{" WORLD_NAME "}"

enum { A = 1, B = 2, C = 3 };

struct rw {
    struct world w;
    hf_lock *read, *write, *rival_read, *rival_write;
};

static inline hf_lock *rw_handle(hf_client *client, any_kind kind) {
    hf_lock *lock;
    assert_int_equal(new_lock(client, kind, WORLD_NAME, strlen(WORLD_NAME), &lock), HF_OK);
    return lock;
}

/* The server and both lanes of the client know all scripts afterwards. */
static inline void rw_warm(hf_lock *lock) {
    hf_acquire_options leased = world_wait_for(HANG_MS, 60000); /* no watchdog of the test's */
    hf_op *op = NULL;
    leased.owner = A;
    world_warm_up(lock);
    assert_int_equal(hf_lock_acquire_start(lock, &leased, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_OK);
    hf_op_free(op);
    assert_int_equal(world_release_async(lock, A, NULL), HF_OK);
}

static inline void rw_begin_on(struct rw *rw, struct server *server, const hf_options *options) {
    world_begin_on(&rw->w, server, options);
    rw->read = rw_handle(rw->w.client, HF_READ);
    rw->write = rw_handle(rw->w.client, HF_WRITE);
    rw->rival_read = rw_handle(rw->w.rival, HF_READ);
    rw->rival_write = rw_handle(rw->w.rival, HF_WRITE);
    rw_warm(rw->read);
    rw_warm(rw->write);
    rw_warm(rw->rival_read);
    rw_warm(rw->rival_write);
    server_empty(server);
}

static inline void rw_begin(struct rw *rw, const hf_options *options) {
    rw_begin_on(rw, world_server(), options);
}

static inline hf_options rw_watchdog(int64_t watchdog_ms) {
    hf_options options = world_options();
    options.watchdog_ms = watchdog_ms;
    return options;
}

static inline void rw_end(struct rw *rw) {
    hf_lock_free(rw->read);
    hf_lock_free(rw->write);
    hf_lock_free(rw->rival_read);
    hf_lock_free(rw->rival_write);
    world_end(&rw->w);
}
#define RW_CASE(name) CASE_IN(name, struct rw, rw, rw_begin, rw_end, NULL)
#define RW_CASE_WITH(name, ...) CASE_WITH(name, struct rw, rw, rw_begin, rw_end, __VA_ARGS__)

/* ---- Calls ---------------------------------------------------------------------------------- */

static inline int acquire_as(hf_lock *lock, hf_owner owner, int64_t wait_ms, int64_t lease_ms) {
    hf_acquire_options options = world_wait_for(wait_ms, lease_ms);
    options.owner = owner;
    return hf_lock_acquire_with(lock, &options, NULL);
}

static inline int try_as(hf_lock *lock, hf_owner owner) {
    return acquire_as(lock, owner, 0, HF_WATCHDOG);
}

static inline void wait_as(struct world_caller *caller, hf_lock *lock, hf_owner owner,
                           int64_t wait_ms) {
    hf_acquire_options options = world_wait_for(wait_ms, HF_WATCHDOG);
    options.owner = owner;
    world_call_acquire(caller, lock, options);
}

static inline bool rw_locked(hf_lock *lock) {
    bool locked = false;
    assert_int_equal(hf_lock_is_locked(lock, &locked), HF_OK);
    return locked;
}

static inline bool rw_held(hf_lock *lock, hf_owner owner) {
    bool held = false;
    assert_int_equal(hf_lock_is_mine_as(lock, owner, &held), HF_OK);
    return held;
}

static inline int64_t rw_hold_count(hf_lock *lock, hf_owner owner) {
    int64_t count = -1;
    assert_int_equal(hf_lock_hold_count_as(lock, owner, &count), HF_OK);
    return count;
}

static inline bool rw_break(hf_lock *lock) {
    bool broken = false;
    assert_int_equal(hf_lock_break(lock, &broken), HF_OK);
    return broken;
}

/* ---- What the server knows ------------------------------------------------------------------ */

static inline void rw_hold_key(const hf_client *client, hf_owner owner, int level, char key[160]) {
    char text[64];
    world_owner_text(client, owner, text);
    snprintf(key, 160, "{" WORLD_NAME "}:%s:rwlock_timeout:%d", text, level);
}

static inline long long rw_hold_ttl(struct rw *rw, const hf_client *client, hf_owner owner,
                                    int level) {
    char key[160];
    rw_hold_key(client, owner, level, key);
    return pttl(rw->w.server, key);
}

/* ZooKeeper's server has no mode: the nodes tell. */
static inline bool rw_mode_is(struct rw *rw, const char *wanted) {
    if (server_is_other(rw->w.server))
        return true;
    char *mode = cmd_str(rw->w.server, "HGET " WORLD_NAME " mode");
    bool same = mode == NULL ? wanted == NULL : wanted != NULL && strcmp(mode, wanted) == 0;
    free(mode);
    return same;
}

/* How many hold it: fields beside the mode, or nodes. */
static inline long long rw_holders(struct rw *rw) {
    return server_is_other(rw->w.server) ? server_queued(rw->w.server, WORLD_NAME)
                                         : cmd_int(rw->w.server, "HLEN " WORLD_NAME) - 1;
}

/* Of the lock's lease, which only Redis has. */
static inline bool rw_lasts(struct rw *rw, long long more_than_ms) {
    return server_is_other(rw->w.server) || pttl(rw->w.server, WORLD_NAME) > more_than_ms;
}

static inline bool rw_somebody_waits(void *arg) {
    struct rw *rw = arg;
    if (server_is_other(rw->w.server))
        return server_watches(rw->w.server) > 0;
    redisReply *reply = cmd(rw->w.server, "PUBSUB NUMSUB " RW_CHANNEL);
    bool waits = reply->element[1]->integer > 0;
    freeReplyObject(reply);
    return waits;
}

static inline void rw_wait_for_waiter(struct rw *rw) {
    assert_true(wait_until(rw_somebody_waits, rw, HANG_MS));
}

static inline bool rw_no_keys(void *arg) {
    struct rw *rw = arg;
    return world_keys(rw->w.server) == 0;
}

/* Nothing is left: no lock, no key of a reader, no hold that the client believes in. The server may
 * still count keys that have expired, for a moment. */
static inline void rw_assert_clean(struct rw *rw) {
    assert_true(wait_until(rw_no_keys, rw, 10000));
    assert_int_equal(world_stats(rw->w.client).holds, 0);
    assert_int_equal(world_stats(rw->w.rival).holds, 0);
}

#endif
