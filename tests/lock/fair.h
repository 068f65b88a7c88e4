/* A world whose locks are fair, and what its server knows of the waiters.
 *
 * Included by test_fair*.c alone. */
#ifndef HF_TEST_LOCK_FAIR_H
#define HF_TEST_LOCK_FAIR_H

#include "lock/kinds.h"

#define FAIR_QUEUE "redisson_lock_queue:{" WORLD_NAME "}"
#define FAIR_DEADLINES "redisson_lock_timeout:{" WORLD_NAME "}"
#define FAIR_RECORDS "holdfast_fair:{" WORLD_NAME "}"

#define FAIR_ACQUIRE hfi_script_fair_acquire.sha1
#define FAIR_RELEASE hfi_script_fair_release.sha1
#define FAIR_GIVE_UP hfi_script_fair_give_up.sha1

/* With a watchdog of `watchdog_ms`, from which the times of the queue follow. */
static inline hf_options fair_options(int64_t watchdog_ms) {
    hf_options options = world_options();
    options.watchdog_ms = watchdog_ms;
    return options;
}

static inline long long queue_len(struct server *server) {
    return cmd_int(server, "LLEN " FAIR_QUEUE);
}

struct wanted_len {
    struct server *server;
    long long len;
};

static inline bool has_len(void *arg) {
    const struct wanted_len *wanted = arg;
    return queue_len(wanted->server) == wanted->len;
}

static inline bool wait_queue(struct server *server, long long len) {
    struct wanted_len wanted = {server, len};
    return wait_until(has_len, &wanted, HANG_MS);
}

/* As kind_begin; every script of the fair lock is known to the server. */
static inline void fair_begin_on(struct world *w, struct server *server,
                                 const hf_options *options) {
    hf_acquire_options brief = world_wait_for(1, HF_WATCHDOG);
    hf_acquire_options leased = world_wait_for(HF_FOREVER, 60000);
    kind_begin_on(w, server, HF_FAIR, options);
    assert_int_equal(hf_lock_acquire_with(w->rival_lock, &leased, NULL), HF_OK);
    brief.owner = 77;
    assert_int_equal(hf_lock_acquire_with(w->lock, &brief, NULL), HF_ETIMEDOUT);
    assert_true(wait_queue(server, 0)); /* it has given up its place */
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    cmd_ok(server, "FLUSHALL");
}

static inline void fair_begin(struct world *w, const hf_options *options) {
    fair_begin_on(w, world_server(), options);
}
#define FAIR_CASE(name) CASE_IN(name, struct world, w, fair_begin, world_end, NULL)
#define FAIR_CASE_WITH(name, ...)                                                                  \
    CASE_WITH(name, struct world, w, fair_begin, world_end, __VA_ARGS__)

/* The waiter's record says that it takes grants: it is subscribed. */
static inline bool takes_grants(struct server *server, const char *owner) {
    char *record = cmd_str(server, "HGET " FAIR_RECORDS " %s", owner);
    bool takes = record != NULL && record[0] != '0';
    free(record);
    return takes;
}

struct wanted_record {
    struct server *server;
    const char *owner;
};

static inline bool has_record(void *arg) {
    const struct wanted_record *wanted = arg;
    return takes_grants(wanted->server, wanted->owner);
}

static inline bool wait_listening(struct server *server, const char *owner) {
    struct wanted_record wanted = {server, owner};
    return wait_until(has_record, &wanted, HANG_MS);
}

/* Nothing at all is left on the server, and soon. */
static inline bool no_keys(void *arg) {
    return world_keys(arg) == 0;
}

static inline bool wait_no_keys(struct server *server) {
    return wait_until(no_keys, server, HANG_MS);
}

/* Who came in, in which order. */
struct arrivals {
    atomic_int next;
    atomic_int order[1024];
};

/* Somebody who waits for the lock, notes that it came in, and holds it for a while. */
struct comer {
    pthread_t thread;
    hf_lock *lock;
    hf_acquire_options options; /* with an owner */
    struct arrivals *arrivals;
    int index;
    int64_t hold_ms;
    bool keeps; /* does not release: the lease ends it */
    int result;
};

static inline void *run_comer(void *arg) {
    struct comer *comer = arg;
    comer->result = hf_lock_acquire_with(comer->lock, &comer->options, NULL);
    if (comer->result != HF_OK)
        return NULL;
    atomic_store(&comer->arrivals->order[atomic_fetch_add(&comer->arrivals->next, 1)],
                 comer->index);
    if (comer->hold_ms > 0)
        linger(comer->hold_ms);
    if (!comer->keeps)
        comer->result = hf_lock_release_as(comer->lock, comer->options.owner);
    return NULL;
}

static inline void comer_start(struct comer *comer) {
    assert_int_equal(pthread_create(&comer->thread, NULL, run_comer, comer), 0);
}

static inline int comer_join(struct comer *comer) {
    assert_int_equal(pthread_join(comer->thread, NULL), 0);
    return comer->result;
}

/* A waiter with an owner of its own, in the queue when this returns, and listening. */
static inline void queue_up(struct world_caller *caller, struct server *server, hf_client *client,
                            hf_lock *lock, hf_owner number, hf_acquire_options options) {
    char owner[64];
    options.owner = number;
    world_call_acquire(caller, lock, options);
    world_owner_text(client, number, owner);
    assert_true(wait_listening(server, owner));
}

#endif
