/* A lock, or several with -m, for held.c.
 *
 * Acquires in one step or two. If the grant's lease is much shorter than requested, it is extended
 * before `acquired` is called. A fair lock is granted that way, for a few seconds until its new
 * holder responds. Without the extension, a command would start near its deadline and be killed at
 * once.
 *
 * Everything runs on the thread that calls hf_dispatch(). */
#include "hold/held.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t lease_of(const struct held *held) {
    return held->lease_ms > 0 ? held->lease_ms : held->ttl_ms;
}

static void on_hold_event(hf_lock *lock, const hf_event *event, void *user) {
    (void)lock;
    struct held *held = user;
    if (held->is_held && event->owner == held->number)
        held->hold_event(held->user, event);
}

/* ---- Acquiring ------------------------------------------------------------------------------- */

static void succeed(struct held *held, const hf_result *result) {
    held->is_held = true;
    if (held->kind->lock != HF_STRING || held->names != NULL ||
        hf_lock_handle(held->lock, held->number, held->owner, sizeof held->owner) != HF_OK)
        snprintf(held->owner, sizeof held->owner, "%s:%" PRIu64, hf_client_id(held->client),
                 held->number);
    held->acquired(held->user, result);
}

static void on_given_up(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    (void)result; /* If the release failed, the lease will expire. */
    struct held *held = user;
    held->acquired(held->user, &held->failure);
}

/* Acquired, but not for long enough: release it first, then report the failure. */
static void give_up(struct held *held, int code, const hf_error *error) {
    held->failure = (hf_result){.size = sizeof held->failure, .code = code, .error = *error};
    if (hf_lock_release_start(held->lock, held->number, on_given_up, held, NULL) != HF_OK)
        held->acquired(held->user, &held->failure);
}

static void on_extended(hf_op *op, const hf_result *result, void *user) {
    struct held *held = user;
    hf_op_free(op);
    held->op = NULL;
    if (result->code == HF_OK)
        succeed(held, result);
    else if (result->code == HF_ELOST)
        held->acquired(held->user, result);
    else
        give_up(held, result->code, &result->error);
}

static void on_acquired(hf_op *op, const hf_result *result, void *user) {
    struct held *held = user;
    hf_op_free(op);
    held->op = NULL;
    held->token = result->token;
    held->votes = result->votes;
    held->servers = result->servers;
    held->acked = result->acked;
    if (result->code != HF_OK) {
        held->acquired(held->user, result);
        return;
    }
    if (held->canceled || hf_lock_remaining_ms_as(held->lock, held->number) >= lease_of(held) / 2) {
        succeed(held, result);
        return;
    }
    int code = hf_lock_extend_start(held->lock, held->number, lease_of(held), on_extended, held,
                                    &held->op);
    if (code != HF_OK)
        give_up(held, code, hf_last_error());
}

static int make_one(const struct held *held, const char *name, hf_lock **ret_lock) {
    hf_lock_options kind = HF_LOCK_OPTIONS_INIT;
    kind.kind = held->kind->lock;
    kind.flags = held->kind->flags;
    return hf_lock_new_with(held->client, name, strlen(name), &kind, ret_lock);
}

static int make(struct held *held) {
    if (held->names == NULL)
        return make_one(held, held->name, &held->lock);
    hf_lock *locks[HF_MULTI_MAX] = {0};
    size_t len = held->names->len;
    int code = HF_OK;
    for (size_t i = 0; i < len && code == HF_OK; i++)
        code = make_one(held, held->names->of[i], &locks[i]);
    if (code == HF_OK)
        code = hf_lock_new_multi(locks, len, &held->lock);
    for (size_t i = 0; i < len; i++)
        hf_lock_free(locks[i]);
    return code;
}

static int acquire(struct held *held) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    if (held->number == 0)
        held->number = hf_owner_new();
    options.owner = held->number;
    options.wait_ms = held->wait_ms;
    options.lease_ms = held->lease_ms;
    int code = make(held);
    if (code == HF_OK)
        code = hf_lock_on_lost(held->lock, on_hold_event, held);
    if (code == HF_OK)
        code = hf_lock_acquire_start(held->lock, &options, on_acquired, held, &held->op);
    return code;
}

/* ---- Keeping and releasing ------------------------------------------------------------------- */

static int release(struct held *held) {
    return hf_lock_release_start(held->lock, held->number, held_on_released, held, NULL);
}

/* Without a lease more than anybody waits, but a time can be computed from it. */
static int64_t remaining_ms(const struct held *held) {
    int64_t left_ms = hf_lock_remaining_ms_as(held->lock, held->number);
    return left_ms < HF_LEASE_MAX_MS ? left_ms : HF_LEASE_MAX_MS;
}

static void free_lock(struct held *held) {
    hf_lock_free(held->lock);
}

const struct held_ops held_lock_ops = {
    .noun = "lock",
    .busy = "another owner holds the lock",
    .timed_out = "the wait ended before the lock was free",
    .acquire = acquire,
    .release = release,
    .remaining_ms = remaining_ms,
    .free = free_lock,
};
