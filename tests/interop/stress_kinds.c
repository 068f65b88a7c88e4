/*
 * The ways in and out of the objects of the mixed stress tests, one table per kind: every form of
 * acquire that the library has, at random, with nested holds and downgrades where the kind has
 * them.
 *
 * Called by the threads of stress_worker.c, in forked children: nothing here may use cmocka. A door
 * belongs to one thread. Java's half is Places.java; what is random there is so here.
 */
#include "stress_worker.h"

#include <stdio.h>
#include <string.h>

static unsigned pick(struct stress_door *door, unsigned below) {
    return (unsigned)rand_r(door->random) % below;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

/* An asynchronous acquire by a fresh owner, half of them cancelled before they can be over. */
static int acquire_async(struct stress_door *door, hf_lock *lock, hf_owner *ret_owner) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_result result = HF_RESULT_INIT;
    hf_op *op;
    options.wait_ms = pick(door, STRESS_WAIT_MS);
    int err = hf_lock_acquire_start(lock, &options, NULL, NULL, &op);
    if (err != HF_OK)
        return err;
    if (pick(door, 2) == 0)
        hf_op_cancel(op);
    err = hf_op_wait(op, HF_FOREVER, &result);
    hf_op_free(op);
    if (err == HF_OK)
        *ret_owner = result.owner;
    return err;
}

/* One of the ways to acquire, at random. */
static int acquire(struct stress_door *door, hf_lock *lock, hf_owner *ret_owner) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    *ret_owner = hf_owner_self();
    switch (pick(door, 6)) {
    case 0:
        return hf_lock_try(lock);
    case 1:
        return hf_lock_acquire_for(lock, pick(door, STRESS_WAIT_MS));
    case 2:
        options.wait_ms = pick(door, STRESS_WAIT_MS);
        options.lease_ms = door->lease_ms;
        return hf_lock_acquire_with(lock, &options, NULL);
    case 3:
        options.lease_ms = door->lease_ms;
        return hf_lock_acquire_with(lock, &options, NULL);
    case 4:
        return acquire_async(door, lock, ret_owner);
    default:
        return hf_lock_acquire(lock);
    }
}

static int enter_lock(struct stress_door *door, struct stress_visit *ret_visit) {
    struct stress_visit visit = {.weight = door->way->capacity, .held = door->lock, .holds = 1};
    int err = acquire(door, door->lock, &visit.owner);
    if (err == HF_OK && door->way->nests && pick(door, 4) == 0) {
        hf_acquire_options again = HF_ACQUIRE_OPTIONS_INIT;
        again.owner = visit.owner;
        err = hf_lock_acquire_with(door->lock, &again, NULL);
        visit.holds++;
    }
    if (err == HF_OK && door->way->lock_kind == HF_FENCED)
        err = hf_lock_token_as(door->lock, visit.owner, &visit.token);
    if (err == HF_OK)
        *ret_visit = visit;
    return err;
}

static int leave_lock(struct stress_door *door, struct stress_visit *visit) {
    int err = HF_OK;
    (void)door;
    for (; err == HF_OK && visit->holds > 0; visit->holds--)
        err = hf_lock_release_as(visit->held, visit->owner);
    return err;
}

static int open_lock(struct stress_door *door, hf_client *client, const char *name) {
    return new_lock(client, door->way->lock_kind, name, strlen(name), &door->lock);
}

static int open_values(struct stress_door *door, hf_client *client, const char *name) {
    static const hf_bytes values[] = {{"jack", 4}, {"mary", 4}};
    return hf_lock_new_group(client, name, strlen(name), values, 2, &door->lock);
}

/* Three locks, one of them on the second server; Java's JointLocks have the same. */
static int open_all(struct stress_door *door, hf_client *client, const char *name) {
    enum { MEMBERS = 3 };
    hf_lock *members[MEMBERS] = {NULL};
    int err = HF_OK;
    for (int i = 0; i < MEMBERS && err == HF_OK; i++) {
        char member[64];
        int len = snprintf(member, sizeof member, "%s.%d", name, i);
        err = new_lock(i % 2 == 0 ? client : door->second, HF_PLAIN, member, (size_t)len,
                       &members[i]);
    }
    if (err == HF_OK)
        err = hf_lock_new_multi(members, MEMBERS, &door->lock);
    for (int i = 0; i < MEMBERS; i++)
        hf_lock_free(members[i]);
    return err;
}

static void close_lock(struct stress_door *door) {
    hf_lock_free(door->lock);
}

/* ---- Read/write locks ------------------------------------------------------------------------ */

static int open_sides(struct stress_door *door, hf_client *client, const char *name) {
    int err = open_lock(door, client, name);
    return err != HF_OK ? err : new_lock(client, HF_READ, name, strlen(name), &door->read);
}

static int enter_side(struct stress_door *door, struct stress_visit *ret_visit) {
    if (pick(door, 2) == 0)
        return enter_lock(door, ret_visit);
    struct stress_door reading = {
        .way = door->way, .lock = door->read, .lease_ms = door->lease_ms, .random = door->random};
    int err = enter_lock(&reading, ret_visit);
    if (err == HF_OK)
        ret_visit->weight = 1;
    return err;
}

/* A writer reads, and then stops writing. */
static int downgrade_side(struct stress_door *door, struct stress_visit *visit, bool *ret_again) {
    hf_acquire_options read = HF_ACQUIRE_OPTIONS_INIT;
    if (visit->held != door->lock || pick(door, 4) != 0)
        return HF_OK;
    read.owner = visit->owner;
    int err = hf_lock_acquire_with(door->read, &read, NULL);
    if (err == HF_OK)
        err = leave_lock(door, visit);
    if (err != HF_OK)
        return err;
    *visit =
        (struct stress_visit){.weight = 1, .held = door->read, .owner = read.owner, .holds = 1};
    *ret_again = true;
    return HF_OK;
}

static void close_sides(struct stress_door *door) {
    hf_lock_free(door->lock);
    hf_lock_free(door->read);
}

/* ---- Semaphores ------------------------------------------------------------------------------ */

static int open_sem(struct stress_door *door, hf_client *client, const char *name) {
    return hf_sem_new_bytes(client, name, strlen(name), &door->sem);
}

static int enter_sem(struct stress_door *door, struct stress_visit *ret_visit) {
    struct stress_visit visit = {.weight = 1 + pick(door, 2)};
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    hf_op *op;
    int err;
    switch (pick(door, 4)) {
    case 0:
        err = hf_sem_try(door->sem, visit.weight);
        break;
    case 1:
        err = hf_sem_acquire_for(door->sem, visit.weight, pick(door, STRESS_WAIT_MS));
        break;
    case 2:
        options.wait_ms = pick(door, STRESS_WAIT_MS);
        err = hf_sem_acquire_start(door->sem, visit.weight, &options, NULL, NULL, &op);
        if (err != HF_OK)
            return err;
        if (pick(door, 2) == 0)
            hf_op_cancel(op);
        err = hf_op_wait(op, HF_FOREVER, NULL);
        hf_op_free(op);
        break;
    default:
        err = hf_sem_acquire(door->sem, visit.weight);
        break;
    }
    if (err == HF_OK)
        *ret_visit = visit;
    return err;
}

static int leave_sem(struct stress_door *door, struct stress_visit *visit) {
    return hf_sem_release(door->sem, visit->weight);
}

static void close_sem(struct stress_door *door) {
    hf_sem_free(door->sem);
}

/* ---- Permits --------------------------------------------------------------------------------- */

static int open_permits(struct stress_door *door, hf_client *client, const char *name) {
    return hf_permits_new_bytes(client, name, strlen(name), &door->permits);
}

static int enter_permits(struct stress_door *door, struct stress_visit *ret_visit) {
    struct stress_visit visit = {.weight = 1 + pick(door, 2)};
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    hf_op *op;
    options.count = visit.weight;
    options.lease_ms = pick(door, 2) == 0 ? door->lease_ms : HF_WATCHDOG;
    unsigned way = pick(door, 4);
    options.wait_ms = way == 0 ? 0 : way == 1 ? HF_FOREVER : (int64_t)pick(door, STRESS_WAIT_MS);
    int err;
    if (way < 3) {
        err = hf_permits_acquire_with(door->permits, &options, visit.ids);
    } else {
        err = hf_permits_acquire_start(door->permits, &options, visit.ids, NULL, NULL, &op);
        if (err != HF_OK)
            return err;
        if (pick(door, 2) == 0)
            hf_op_cancel(op);
        err = hf_op_wait(op, HF_FOREVER, NULL);
        hf_op_free(op);
    }
    if (err == HF_OK)
        *ret_visit = visit;
    return err;
}

static int leave_permits(struct stress_door *door, struct stress_visit *visit) {
    if (pick(door, 2) == 0)
        return hf_permits_release_many(door->permits, visit->ids, (size_t)visit->weight);
    int err = hf_permits_release(door->permits, &visit->ids[0]);
    return err == HF_OK && visit->weight == 2 ? hf_permits_release(door->permits, &visit->ids[1])
                                              : err;
}

static void close_permits(struct stress_door *door) {
    hf_permits_free(door->permits);
}

/* ---- The table ------------------------------------------------------------------------------- */

#define LOCK_WAY .open = open_lock, .enter = enter_lock, .leave = leave_lock, .close = close_lock

static const struct stress_way ways[] = {
    {"plain", HF_PLAIN, 1, true, LOCK_WAY},
    {"spin", HF_SPIN, 1, true, LOCK_WAY},
    {"nonreentrant", HF_NONREENTRANT, 1, false, LOCK_WAY},
    {"fenced", HF_FENCED, 1, true, LOCK_WAY},
    {"fair", HF_FAIR, 1, true, LOCK_WAY},
    {"nonreentrantfair", HF_FAIR | HF_NONREENTRANT, 1, false, LOCK_WAY},
    {"redlock", HF_PLAIN, 1, true, LOCK_WAY}, /* the client is a quorum's */
    {"multi", HF_PLAIN, 1, true, .open = open_all, .enter = enter_lock, .leave = leave_lock,
     .close = close_lock},
    {"group", HF_PLAIN, 1, true, .open = open_values, .enter = enter_lock, .leave = leave_lock,
     .close = close_lock},
    {"readwrite", HF_WRITE, STRESS_READERS, true, .open = open_sides, .enter = enter_side,
     .downgrade = downgrade_side, .leave = leave_lock, .close = close_sides},
    {"semaphore", HF_PLAIN, STRESS_PERMITS, false, .open = open_sem, .enter = enter_sem,
     .leave = leave_sem, .close = close_sem},
    {"permits", HF_PLAIN, STRESS_PERMITS, false, .open = open_permits, .enter = enter_permits,
     .leave = leave_permits, .close = close_permits},
};

const struct stress_way *stress_way_of(const char *kind) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(ways[i].kind, kind) == 0)
            return &ways[i];
    }
    return NULL;
}
