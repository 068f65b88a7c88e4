/*
 * What an owner does at a lock of any kind, each call and answer written down.
 *
 * Called by visits in the threads of process.c; a recorded lock is on its visit's stack. Every
 * acquire, however it is made, is written down as the verb `acquire` (for the sides:
 * `acquire_read`, `acquire_write`) with its wait, and whether the owner held the lock before. How
 * long a hold can be trusted is asked again and again; where `watches` is set, each time is an
 * operation of its own, `trust`, at which it must be held.
 */
#include "recorded_lock.h"

#include "support/wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *verb_of(const struct recorded_lock *recorded, const char *verb) {
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "%s%s", verb, recorded->side);
    return text;
}

void recorded_begin(struct recorded_lock *recorded, struct player *player, hf_lock *lock,
                    const char *name, hf_owner owner) {
    *recorded = (struct recorded_lock){
        .player = player, .lock = lock, .owner = owner, .side = "", .values = "", .beside = "-"};
    snprintf(recorded->owner_name, sizeof recorded->owner_name, "%s:%" PRIu64,
             hf_client_id(player->client), owner);
    recorded->subject =
        (struct subject){.name = name, .kind = player->kind->name, .owner = recorded->owner_name};
}

static void be_sure(struct recorded_lock *recorded) {
    int64_t asked_ns = record_now_ns();
    record_sure(recorded->player->record, recorded->hold, asked_ns,
                hf_lock_remaining_ms_as(recorded->lock, recorded->owner));
}

static void trust(struct recorded_lock *recorded) {
    struct operation operation = record_call(recorded->player->record, &recorded->subject,
                                             verb_of(recorded, "trust"), "hold=%s", recorded->hold);
    int64_t remaining_ms = hf_lock_remaining_ms_as(recorded->lock, recorded->owner);
    record_return(&operation, HF_OK, "value=%" PRId64, remaining_ms);
}

/* ---- Acquire --------------------------------------------------------------------------------- */

static int acquire_cancelled(struct recorded_lock *recorded, const hf_acquire_options *options,
                             hf_result *ret_result) {
    hf_op *op;
    int err = hf_lock_acquire_start(recorded->lock, options, NULL, NULL, &op);
    if (err != HF_OK)
        return err;
    play_pause(recorded->player, 4);
    hf_op_cancel(op);
    err = hf_op_wait(op, HF_FOREVER, ret_result);
    hf_op_free(op);
    return err;
}

static void choose(struct recorded_lock *recorded, hf_acquire_options *options) {
    struct player *player = recorded->player;
    options->owner = recorded->owner;
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
        options->wait_ms = recorded->patient ? HF_FOREVER : 10 * PLAY_WAIT_MS;
        break;
    }
}

int recorded_acquire(struct recorded_lock *recorded) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_result result = HF_RESULT_INIT;
    bool nested = recorded->holds > 0;
    choose(recorded, &options);
    bool cancelled = options.wait_ms > 0 && !nested && play_chance(recorded->player, 15);

    struct operation operation =
        record_call(recorded->player->record, &recorded->subject, verb_of(recorded, "acquire"),
                    "wait=%" PRId64 " lease=%" PRId64 " nested=%d hold=%s beside=%s values=%s",
                    options.wait_ms, options.lease_ms, nested, nested ? recorded->hold : "-",
                    recorded->beside, recorded->values);
    int err = cancelled ? acquire_cancelled(recorded, &options, &result)
                        : hf_lock_acquire_with(recorded->lock, &options, &result);
    record_return(&operation, err, "count=%" PRId64 " token=%" PRId64, result.count, result.token);

    if (err == HF_ELOST)
        recorded->holds = 0;
    if (err != HF_OK)
        return err;
    if (!nested)
        memcpy(recorded->hold, operation.id, sizeof recorded->hold);
    recorded->holds++;
    be_sure(recorded);
    return HF_OK;
}

/* ---- While it is held, and after ------------------------------------------------------------- */

static void extend(struct recorded_lock *recorded) {
    int64_t lease_ms = PLAY_LEASE_MS + play_pick(recorded->player, PLAY_LEASE_MS);
    struct operation operation = record_call(
        recorded->player->record, &recorded->subject, verb_of(recorded, "extend"),
        "hold=%s values=%s", recorded->holds > 0 ? recorded->hold : "-", recorded->values);
    int err = hf_lock_extend_as(recorded->lock, recorded->owner, lease_ms);
    record_return(&operation, err, " ");
    if (err == HF_OK)
        be_sure(recorded);
    else if (err == HF_ELOST || err == HF_ENOTOWNER)
        recorded->holds = 0;
}

static void release(struct recorded_lock *recorded) {
    int left = recorded->holds > 0 ? recorded->holds - 1 : 0;
    if (recorded->holds > 0)
        be_sure(recorded);
    struct operation operation =
        record_call(recorded->player->record, &recorded->subject, verb_of(recorded, "release"),
                    "left=%d hold=%s values=%s", left, recorded->holds > 0 ? recorded->hold : "-",
                    recorded->values);
    int err = hf_lock_release_as(recorded->lock, recorded->owner);
    record_return(&operation, err, " ");
    recorded->holds = err == HF_ELOST || err == HF_ENOTOWNER ? 0 : left;
}

static void ask(struct recorded_lock *recorded) {
    bool locked = false;
    int64_t count = 0;
    if (play_chance(recorded->player, 50)) {
        struct operation operation =
            record_call(recorded->player->record, &recorded->subject,
                        verb_of(recorded, "is_locked"), "values=%s", recorded->values);
        int err = hf_lock_is_locked(recorded->lock, &locked);
        record_return(&operation, err, "value=%d", locked);
        return;
    }
    struct operation operation =
        record_call(recorded->player->record, &recorded->subject, verb_of(recorded, "count"),
                    "values=%s", recorded->values);
    int err = hf_lock_hold_count_as(recorded->lock, recorded->owner, &count);
    record_return(&operation, err, "value=%" PRId64, count);
}

static void break_it(struct recorded_lock *recorded) {
    bool broken = false;
    struct operation operation =
        record_call(recorded->player->record, &recorded->subject, verb_of(recorded, "break"),
                    "values=%s", recorded->values);
    int err = hf_lock_break(recorded->lock, &broken);
    record_return(&operation, err, "value=%d", broken);
}

/* It looks at its deadline all the time, where that is written down. */
static void stay_for(struct recorded_lock *recorded, int64_t duration_ms) {
    int64_t end_ms = now_ms() + duration_ms;
    if (!recorded->player->kind->watches) {
        linger(duration_ms);
        return;
    }
    for (int64_t pause_ms = 1; now_ms() < end_ms && recorded->holds > 0; pause_ms += 2) {
        trust(recorded);
        linger(pause_ms);
    }
    trust(recorded);
}

void recorded_work(struct recorded_lock *recorded) {
    if (play_chance(recorded->player, recorded->player->kind->watches ? 4 : 2))
        stay_for(recorded, PLAY_LEASE_MS * 2 + 50);
    else if (play_chance(recorded->player, 60))
        stay_for(recorded, 1 + play_pick(recorded->player, 4));
    if (play_chance(recorded->player, 20))
        ask(recorded);
    if (play_chance(recorded->player, 10) && recorded->holds > 0)
        extend(recorded);
}

void recorded_leave(struct recorded_lock *recorded) {
    while (recorded->holds > 0)
        release(recorded);
}

/* What one does without having acquired anything. */
bool recorded_idles(struct recorded_lock *recorded) {
    unsigned draw = play_pick(recorded->player, 100);
    if (draw < 15)
        ask(recorded);
    else if (draw < 17)
        release(recorded);
    else if (draw < 20 && recorded->player->breaks && !recorded->unbreakable)
        break_it(recorded);
    else
        return false;
    return true;
}

hf_lock *recorded_open_lock(struct player *player, hf_kind kind, const char *name) {
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    hf_lock *lock;
    options.kind = kind;
    options.flags = player->kind->flags;
    options.cohort_ms = PLAY_COHORT_MS;
    if (hf_lock_new_with(player->client, name, strlen(name), &options, &lock) != HF_OK)
        support_die("no handle for %s", name);
    return lock;
}

hf_owner recorded_some_owner(struct player *player) {
    return play_chance(player, 20) ? hf_owner_new() : hf_owner_self();
}
