/*
 * Visits to locks, and to both sides of read/write locks.
 *
 * Called by the threads of process.c; a visit's state is on its stack.
 */
#include "recorded_lock.h"
#include "support/new_lock.h"

void visit_lock(struct player *player, const char *name) {
    own_lock *lock = recorded_open_lock(player, player->kind->lock, name);
    struct recorded_lock recorded;
    recorded_begin(&recorded, player, lock, name, recorded_some_owner(player));
    if (!recorded_idles(&recorded) && recorded_acquire(&recorded) == HF_OK) {
        recorded_work(&recorded);
        if (recorded.holds > 0 && play_chance(player, 25)) {
            recorded_acquire(&recorded); /* nests, or is refused by kinds that do not */
            recorded_work(&recorded);
        }
        recorded_leave(&recorded);
    }
}

/* ---- Read/write ------------------------------------------------------------------------------ */

/* A writer that reads, and stops writing first. */
static void downgrade(struct recorded_lock *writing, struct recorded_lock *reading) {
    if (recorded_acquire(reading) == HF_OK) {
        recorded_work(reading);
        recorded_leave(writing);
        recorded_work(reading);
    }
    recorded_leave(reading);
}

void visit_readwrite(struct player *player, const char *name) {
    own_lock *read = recorded_open_lock(player, HF_READ, name);
    own_lock *write = recorded_open_lock(player, HF_WRITE, name);
    hf_owner owner = recorded_some_owner(player);
    struct recorded_lock reading, writing;
    recorded_begin(&reading, player, read, name, owner);
    recorded_begin(&writing, player, write, name, owner);
    reading.side = "_read";
    writing.side = "_write";

    struct recorded_lock *first = play_chance(player, 60) ? &reading : &writing;
    if (!recorded_idles(first) && recorded_acquire(first) == HF_OK) {
        recorded_work(first);
        if (first->holds > 0 && play_chance(player, 25)) {
            recorded_acquire(first);
            recorded_work(first);
        }
        if (first == &writing && first->holds > 0 && play_chance(player, 30))
            downgrade(&writing, &reading);
        else if (first == &reading && first->holds > 0 && play_chance(player, 5))
            recorded_acquire(&writing); /* refused: it would wait for itself */
        recorded_leave(&writing);
        recorded_leave(&reading);
    }
}
