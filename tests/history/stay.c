/*
 * What an owner does at a lock of any kind, each call and answer written down.
 *
 * Called by visits in the threads of process.c; a stay is on its visit's stack. Every acquire, however it
 * is made, is written down as the verb `acquire` (for the sides: `acquire_read`, `acquire_write`) with
 * its wait, and whether the owner held the lock before. How long a hold can be trusted is asked again and
 * again; where `watches` is set, each time is an operation of its own, `trust`, at which it must be held.
 */
#include "stay.h"

#include "support/wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *verb_of(const struct stay *stay, const char *verb) {
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "%s%s", verb, stay->side);
    return text;
}

void stay_begin(struct stay *stay, struct player *player, hf_lock *lock, const char *name,
                hf_owner owner) {
    *stay = (struct stay){
        .player = player, .lock = lock, .owner = owner, .side = "", .values = "", .beside = "-"};
    snprintf(stay->owner_name, sizeof stay->owner_name, "%s:%" PRIu64, hf_client_id(player->client),
             owner);
    stay->subject =
        (struct subject){.name = name, .kind = player->kind->name, .owner = stay->owner_name};
}

static void be_sure(struct stay *stay) {
    int64_t asked_ns = record_now_ns();
    record_sure(stay->player->record, stay->hold, asked_ns,
                hf_lock_remaining_ms_as(stay->lock, stay->owner));
}

static void trust(struct stay *stay) {
    struct operation operation = record_call(stay->player->record, &stay->subject,
                                             verb_of(stay, "trust"), "hold=%s", stay->hold);
    int64_t remaining_ms = hf_lock_remaining_ms_as(stay->lock, stay->owner);
    record_return(&operation, HF_OK, "value=%" PRId64, remaining_ms);
}

/* ---- Acquire --------------------------------------------------------------------------------- */

static int acquire_cancelled(struct stay *stay, const hf_acquire_options *options,
                             hf_result *ret_result) {
    hf_op *op;
    int err = hf_lock_acquire_start(stay->lock, options, NULL, NULL, &op);
    if (err != HF_OK)
        return err;
    play_pause(stay->player, 4);
    hf_op_cancel(op);
    err = hf_op_wait(op, HF_FOREVER, ret_result);
    hf_op_free(op);
    return err;
}

static void choose(struct stay *stay, hf_acquire_options *options) {
    struct player *player = stay->player;
    options->owner = stay->owner;
    options->lease_ms =
        play_chance(player, 50) ? HF_WATCHDOG : PLAY_LEASE_MS + play_pick(player, PLAY_LEASE_MS);
    switch (play_pick(player, 3)) {
    case 0:
        options->wait_ms = 0;
        break;
    case 1:
        options->wait_ms = 1 + play_pick(player, PLAY_WAIT_MS);
        break;
    default:
        options->wait_ms = stay->patient ? HF_FOREVER : 10 * PLAY_WAIT_MS;
        break;
    }
}

int stay_acquire(struct stay *stay) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_result result = HF_RESULT_INIT;
    bool nested = stay->holds > 0;
    choose(stay, &options);
    bool cancelled = options.wait_ms > 0 && !nested && play_chance(stay->player, 15);

    struct operation operation = record_call(
        stay->player->record, &stay->subject, verb_of(stay, "acquire"),
        "wait=%" PRId64 " lease=%" PRId64 " nested=%d hold=%s beside=%s values=%s", options.wait_ms,
        options.lease_ms, nested, nested ? stay->hold : "-", stay->beside, stay->values);
    int err = cancelled ? acquire_cancelled(stay, &options, &result)
                        : hf_lock_acquire_with(stay->lock, &options, &result);
    record_return(&operation, err, "count=%" PRId64 " token=%" PRId64, result.count, result.token);

    if (err == HF_ELOST)
        stay->holds = 0;
    if (err != HF_OK)
        return err;
    if (!nested)
        memcpy(stay->hold, operation.id, sizeof stay->hold);
    stay->holds++;
    be_sure(stay);
    return HF_OK;
}

/* ---- While it is held, and after ------------------------------------------------------------- */

static void extend(struct stay *stay) {
    int64_t lease_ms = PLAY_LEASE_MS + play_pick(stay->player, PLAY_LEASE_MS);
    struct operation operation =
        record_call(stay->player->record, &stay->subject, verb_of(stay, "extend"),
                    "hold=%s values=%s", stay->holds > 0 ? stay->hold : "-", stay->values);
    int err = hf_lock_extend_as(stay->lock, stay->owner, lease_ms);
    record_return(&operation, err, " ");
    if (err == HF_OK)
        be_sure(stay);
    else if (err == HF_ELOST || err == HF_ENOTOWNER)
        stay->holds = 0;
}

static void release(struct stay *stay) {
    int left = stay->holds > 0 ? stay->holds - 1 : 0;
    if (stay->holds > 0)
        be_sure(stay);
    struct operation operation = record_call(
        stay->player->record, &stay->subject, verb_of(stay, "release"), "left=%d hold=%s values=%s",
        left, stay->holds > 0 ? stay->hold : "-", stay->values);
    int err = hf_lock_release_as(stay->lock, stay->owner);
    record_return(&operation, err, " ");
    stay->holds = err == HF_ELOST || err == HF_ENOTOWNER ? 0 : left;
}

static void ask(struct stay *stay) {
    bool locked = false;
    int64_t count = 0;
    if (play_chance(stay->player, 50)) {
        struct operation operation =
            record_call(stay->player->record, &stay->subject, verb_of(stay, "is_locked"),
                        "values=%s", stay->values);
        int err = hf_lock_is_locked(stay->lock, &locked);
        record_return(&operation, err, "value=%d", locked);
        return;
    }
    struct operation operation = record_call(stay->player->record, &stay->subject,
                                             verb_of(stay, "count"), "values=%s", stay->values);
    int err = hf_lock_hold_count_as(stay->lock, stay->owner, &count);
    record_return(&operation, err, "value=%" PRId64, count);
}

static void break_it(struct stay *stay) {
    bool broken = false;
    struct operation operation = record_call(stay->player->record, &stay->subject,
                                             verb_of(stay, "break"), "values=%s", stay->values);
    int err = hf_lock_break(stay->lock, &broken);
    record_return(&operation, err, "value=%d", broken);
}

/* It looks at its deadline all the time, where that is written down. */
static void stay_for(struct stay *stay, int64_t duration_ms) {
    int64_t end_ms = now_ms() + duration_ms;
    if (!stay->player->kind->watches) {
        linger(duration_ms);
        return;
    }
    for (int64_t nap_ms = 1; now_ms() < end_ms && stay->holds > 0; nap_ms += 2) {
        trust(stay);
        linger(nap_ms);
    }
    trust(stay);
}

void stay_work(struct stay *stay) {
    if (play_chance(stay->player, stay->player->kind->watches ? 4 : 2))
        stay_for(stay, PLAY_LEASE_MS * 2 + 50);
    else if (play_chance(stay->player, 60))
        stay_for(stay, 1 + play_pick(stay->player, 4));
    if (play_chance(stay->player, 20))
        ask(stay);
    if (play_chance(stay->player, 10) && stay->holds > 0)
        extend(stay);
}

void stay_leave(struct stay *stay) {
    while (stay->holds > 0)
        release(stay);
}

/* What one does without having acquired anything. */
bool stay_idles(struct stay *stay) {
    unsigned draw = play_pick(stay->player, 100);
    if (draw < 15)
        ask(stay);
    else if (draw < 17)
        release(stay);
    else if (draw < 20 && stay->player->breaks && !stay->unbreakable)
        break_it(stay);
    else
        return false;
    return true;
}

hf_lock *stay_open_lock(struct player *player, hf_kind kind, const char *name) {
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    hf_lock *lock;
    options.kind = kind;
    options.flags = player->kind->flags;
    options.cohort_ms = PLAY_COHORT_MS;
    if (hf_lock_new_with(player->client, name, strlen(name), &options, &lock) != HF_OK)
        support_die("no handle for %s", name);
    return lock;
}

hf_owner stay_some_owner(struct player *player) {
    return play_chance(player, 20) ? hf_owner_new() : hf_owner_self();
}
