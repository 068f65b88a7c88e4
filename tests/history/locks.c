/*
 * Visits to locks of every kind, and to both sides of read/write locks.
 *
 * Called by the threads of process.c; a visit's state is on its stack. Every acquire, however it is
 * made, is written down as the verb `acquire` (for the sides: `acquire_read`, `acquire_write`) with
 * its wait, and whether the owner held the lock before.
 */
#include "kinds.h"

#include "support/wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* One owner at one lock, or at one side of it. */
struct stay {
    struct player *player;
    hf_lock *lock;
    hf_owner owner;
    char owner_name[80];
    struct subject subject;
    const char *side; /* "", "_read", "_write" */
    char hold[48];    /* the operation that began it */
    int holds;
};

static const char *verb_of(const struct stay *stay, const char *verb) {
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "%s%s", verb, stay->side);
    return text;
}

static void stay_begin(struct stay *stay, struct player *player, hf_lock *lock, const char *name,
                       hf_owner owner, const char *side) {
    *stay = (struct stay){.player = player, .lock = lock, .owner = owner, .side = side};
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
        options->wait_ms = 10 * PLAY_WAIT_MS;
        break;
    }
}

static int acquire(struct stay *stay) {
    hf_acquire_options options = HF_ACQUIRE_INIT;
    hf_result result = HF_RESULT_INIT;
    bool nested = stay->holds > 0;
    choose(stay, &options);
    bool cancelled = options.wait_ms > 0 && !nested && play_chance(stay->player, 15);

    struct operation operation =
        record_call(stay->player->record, &stay->subject, verb_of(stay, "acquire"),
                    "wait=%" PRId64 " lease=%" PRId64 " nested=%d hold=%s", options.wait_ms,
                    options.lease_ms, nested, nested ? stay->hold : "-");
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
        record_call(stay->player->record, &stay->subject, verb_of(stay, "extend"), "hold=%s",
                    stay->holds > 0 ? stay->hold : "-");
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
    struct operation operation =
        record_call(stay->player->record, &stay->subject, verb_of(stay, "release"),
                    "left=%d hold=%s", left, stay->holds > 0 ? stay->hold : "-");
    int err = hf_lock_release_as(stay->lock, stay->owner);
    record_return(&operation, err, " ");
    stay->holds = err == HF_ELOST || err == HF_ENOTOWNER ? 0 : left;
}

static void ask(struct stay *stay) {
    bool locked = false;
    int64_t count = 0;
    if (play_chance(stay->player, 50)) {
        struct operation operation =
            record_call(stay->player->record, &stay->subject, verb_of(stay, "is_locked"), " ");
        int err = hf_lock_is_locked(stay->lock, &locked);
        record_return(&operation, err, "value=%d", locked);
        return;
    }
    struct operation operation =
        record_call(stay->player->record, &stay->subject, verb_of(stay, "count"), " ");
    int err = hf_lock_hold_count_as(stay->lock, stay->owner, &count);
    record_return(&operation, err, "value=%" PRId64, count);
}

static void break_it(struct stay *stay) {
    bool broken = false;
    struct operation operation =
        record_call(stay->player->record, &stay->subject, verb_of(stay, "break"), " ");
    int err = hf_lock_break(stay->lock, &broken);
    record_return(&operation, err, "value=%d", broken);
}

/* Work that is sometimes longer than the lease. */
static void work(struct stay *stay) {
    if (play_chance(stay->player, 2))
        sleep_ms(PLAY_LEASE_MS * 2 + 50);
    else
        play_pause(stay->player, 4);
    if (play_chance(stay->player, 20))
        ask(stay);
    if (play_chance(stay->player, 10) && stay->holds > 0)
        extend(stay);
}

static void leave(struct stay *stay) {
    while (stay->holds > 0)
        release(stay);
}

/* What one does without having acquired anything. */
static bool idles(struct stay *stay) {
    unsigned dice = play_pick(stay->player, 100);
    if (dice < 15)
        ask(stay);
    else if (dice < 17)
        release(stay);
    else if (dice < 20 && stay->player->breaks)
        break_it(stay);
    else
        return false;
    return true;
}

static hf_lock *open_lock(struct player *player, hf_kind kind, const char *name) {
    hf_lock_options options = HF_LOCK_INIT;
    hf_lock *lock;
    options.kind = kind;
    options.flags = player->kind->flags;
    if (hf_lock_new_with(player->client, name, strlen(name), &options, &lock) != HF_OK)
        support_die("no handle for %s", name);
    return lock;
}

static hf_owner some_owner(struct player *player) {
    return play_chance(player, 20) ? hf_owner_new() : hf_owner_self();
}

void visit_lock(struct player *player, const char *name) {
    hf_lock *lock = open_lock(player, player->kind->lock, name);
    struct stay stay;
    stay_begin(&stay, player, lock, name, some_owner(player), "");
    if (!idles(&stay) && acquire(&stay) == HF_OK) {
        work(&stay);
        if (stay.holds > 0 && play_chance(player, 25)) {
            acquire(&stay); /* nests, or is refused by kinds that do not */
            work(&stay);
        }
        leave(&stay);
    }
    hf_lock_free(lock);
}

/* ---- Read/write ------------------------------------------------------------------------------ */

/* A writer that reads, and stops writing first. */
static void downgrade(struct stay *writing, struct stay *reading) {
    if (acquire(reading) == HF_OK) {
        work(reading);
        leave(writing);
        work(reading);
    }
    leave(reading);
}

void visit_readwrite(struct player *player, const char *name) {
    hf_lock *read = open_lock(player, HF_READ, name);
    hf_lock *write = open_lock(player, HF_WRITE, name);
    hf_owner owner = some_owner(player);
    struct stay reading, writing;
    stay_begin(&reading, player, read, name, owner, "_read");
    stay_begin(&writing, player, write, name, owner, "_write");

    struct stay *first = play_chance(player, 60) ? &reading : &writing;
    if (!idles(first) && acquire(first) == HF_OK) {
        work(first);
        if (first->holds > 0 && play_chance(player, 25)) {
            acquire(first);
            work(first);
        }
        if (first == &writing && first->holds > 0 && play_chance(player, 30))
            downgrade(&writing, &reading);
        else if (first == &reading && first->holds > 0 && play_chance(player, 5))
            acquire(&writing); /* refused: it would wait for itself */
        leave(&writing);
        leave(&reading);
    }
    hf_lock_free(read);
    hf_lock_free(write);
}
