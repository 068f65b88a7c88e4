/* One of several slots, for held.c. A slot is a permit with a lease, so a dead process's slot
 * becomes free.
 *
 * Acquires in steps: create the object with its number of slots, unless it exists; if it existed,
 * compare the number, which its creator decided; take a permit. The object stays when all slots are
 * free, because it stores the agreed number.
 *
 * Everything runs on the thread that calls hf_dispatch(). */
#include "hold/held.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void on_hold_event(hf_permits *permits, const char *id, const hf_event *event, void *user) {
    (void)permits;
    struct held *held = user;
    if (held->is_held && strcmp(id, held->id.text) == 0)
        held->hold_event(held->user, event);
}

/* ---- Acquiring ------------------------------------------------------------------------------- */

static void fail(struct held *held, int code, const hf_error *error) {
    hf_result result = {.size = sizeof result, .code = code};
    if (error != NULL)
        result.error = *error;
    held->acquired(held->user, &result);
}

/* Finishes one step. Returns false if it failed, which ends the acquire. */
static bool step_done(struct held *held, hf_op *op, const hf_result *result) {
    hf_op_free(op);
    held->op = NULL;
    if (result->code != HF_OK)
        held->acquired(held->user, result);
    return result->code == HF_OK;
}

static void on_acquired(hf_op *op, const hf_result *result, void *user) {
    struct held *held = user;
    if (!step_done(held, op, result))
        return;
    held->is_held = true;
    snprintf(held->owner, sizeof held->owner, "%s", held->id.text);
    held->acquired(held->user, result);
}

static void take_slot(struct held *held) {
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    int64_t waited_ms = now_ms() - held->began_ms;
    options.wait_ms = held->wait_ms;
    if (held->wait_ms > 0)
        options.wait_ms = held->wait_ms > waited_ms ? held->wait_ms - waited_ms : 0;
    options.lease_ms = held->lease_ms;
    if (held->canceled) {
        fail(held, HF_ECANCELED, NULL);
        return;
    }
    int code =
        hf_permits_acquire_start(held->permits, &options, &held->id, on_acquired, held, &held->op);
    if (code != HF_OK)
        fail(held, code, hf_last_error());
}

static void on_counted(hf_op *op, const hf_result *result, void *user) {
    struct held *held = user;
    char buffer[SHOWN_NAME_SIZE];
    if (!step_done(held, op, result))
        return;
    if (result->value != held->slots)
        say_of(LEVEL_NOTICE, &(struct subject){.lock = held->name},
               "'%s' has %" PRId64 " slots, not %" PRId64 ": the first client decided",
               shown_name(held->name, buffer), result->value, held->slots);
    take_slot(held);
}

static void on_made(hf_op *op, const hf_result *result, void *user) {
    struct held *held = user;
    if (!step_done(held, op, result))
        return;
    if (result->value != 0 || held->canceled) {
        take_slot(held);
        return;
    }
    int code = hf_permits_total_start(held->permits, on_counted, held, &held->op);
    if (code != HF_OK)
        fail(held, code, hf_last_error());
}

static int acquire(struct held *held) {
    int code = hf_permits_new(held->client, held->name, &held->permits);
    if (code == HF_OK)
        code = hf_permits_on_lost(held->permits, on_hold_event, held);
    if (code == HF_OK)
        code = hf_permits_try_set_start(held->permits, held->slots, on_made, held, &held->op);
    return code;
}

/* ---- Keeping and releasing ------------------------------------------------------------------- */

static int release(struct held *held) {
    return hf_permits_release_start(held->permits, &held->id, 1, held_on_released, held, NULL);
}

static int64_t remaining_ms(const struct held *held) {
    return hf_permits_remaining_ms(held->permits, &held->id);
}

static void free_slot(struct held *held) {
    hf_permits_free(held->permits);
}

const struct held_ops held_slot_ops = {
    .noun = "slot",
    .busy = "all slots are taken",
    .timed_out = "the wait ended before a slot was free",
    .acquire = acquire,
    .release = release,
    .remaining_ms = remaining_ms,
    .free = free_slot,
};
