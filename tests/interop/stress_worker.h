/* The C half of the mixed stress tests: one process that acquires, works and releases for a while.
 *
 * What is acquired are the game's objects, each of one kind. Who is inside one has a weight, and the
 * weights of all who are inside never exceed its capacity: an exclusive hold weighs as much as that. */
#ifndef HF_TEST_INTEROP_STRESS_WORKER_H
#define HF_TEST_INTEROP_STRESS_WORKER_H

#include "support/new_lock.h"

#include <holdfast/holdfast.h>

#define STRESS_OBJECTS 3
#define STRESS_WORKERS 2 /* threads of each client, in C and in Java */
#define STRESS_WAIT_MS 300
#define STRESS_WORK_MS 4
#define STRESS_READERS 1000 /* the capacity of a read/write lock: a writer's weight */
#define STRESS_PERMITS 3    /* the capacity of a semaphore */

struct stress_object {
    const char *kind; /* as Java's Places call it */
    const char *name;
};

struct stress {
    const char *url;
    const char *second_url; /* for locks on two servers; NULL: none */
    const char *socket;
    const struct stress_object *objects; /* STRESS_OBJECTS */
    const char *process;                 /* its name in the ledger */
    unsigned seed;
    int64_t
        end_ms; /* the latest, on now_ms()'s clock; it is over when there is a key stress:over */
    int64_t watchdog_ms;
    int64_t lease_ms;
    int64_t fair_wait_ms;
    char enter[41]; /* SHA-1 of stress_enter.lua, loaded on the server */
    char leave[41];
};

/* Body for run_child(); `arg` is a struct stress. Returns 0, or 1 after telling on stderr what
 * was wrong. */
int stress_worker(void *arg);

/* ---- Ways in and out, by kind (stress_kinds.c) ------------------------------------------------ */

struct stress_way;

/* A thread's own handle on a object. */
struct stress_door {
    const struct stress_way *way;
    hf_lock *lock; /* locks; of a read/write lock, the write side */
    hf_lock *read; /* read/write locks */
    hf_sem *sem;
    hf_permits *permits;
    hf_client *second; /* on the second server, or NULL */
    int64_t lease_ms;
    unsigned *random;
};

/* A stay inside. */
struct stress_visit {
    int64_t weight;
    int64_t token; /* of a fenced lock, else 0 */
    hf_lock *held;
    hf_owner owner;
    int holds;
    hf_permit_id ids[2];
};

struct stress_way {
    const char *kind;
    any_kind lock_kind;
    int64_t capacity;
    bool nests;
    int (*open)(struct stress_door *door, hf_client *client, const char *name);
    /* HF_EBUSY, HF_ETIMEDOUT and HF_ECANCELED are no failure */
    int (*enter)(struct stress_door *door, struct stress_visit *ret_visit);
    /* Goes on with less weight, if *ret_again is set; NULL: never. */
    int (*downgrade)(struct stress_door *door, struct stress_visit *visit, bool *ret_again);
    int (*leave)(struct stress_door *door, struct stress_visit *visit);
    void (*close)(struct stress_door *door);
};

const struct stress_way *stress_way_of(const char *kind);

#endif
