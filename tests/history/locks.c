/*
 * Visits to locks, and to both sides of read/write locks.
 *
 * Called by the threads of process.c; a visit's state is on its stack.
 */
#include "stay.h"
#include "support/new_lock.h"

void visit_lock(struct player *player, const char *name) {
    own_lock *lock = stay_open_lock(player, player->kind->lock, name);
    struct stay stay;
    stay_begin(&stay, player, lock, name, stay_some_owner(player));
    if (!stay_idles(&stay) && stay_acquire(&stay) == HF_OK) {
        stay_work(&stay);
        if (stay.holds > 0 && play_chance(player, 25)) {
            stay_acquire(&stay); /* nests, or is refused by kinds that do not */
            stay_work(&stay);
        }
        stay_leave(&stay);
    }
}

/* ---- Read/write ------------------------------------------------------------------------------ */

/* A writer that reads, and stops writing first. */
static void downgrade(struct stay *writing, struct stay *reading) {
    if (stay_acquire(reading) == HF_OK) {
        stay_work(reading);
        stay_leave(writing);
        stay_work(reading);
    }
    stay_leave(reading);
}

void visit_readwrite(struct player *player, const char *name) {
    own_lock *read = stay_open_lock(player, HF_READ, name);
    own_lock *write = stay_open_lock(player, HF_WRITE, name);
    hf_owner owner = stay_some_owner(player);
    struct stay reading, writing;
    stay_begin(&reading, player, read, name, owner);
    stay_begin(&writing, player, write, name, owner);
    reading.side = "_read";
    writing.side = "_write";

    struct stay *first = play_chance(player, 60) ? &reading : &writing;
    if (!stay_idles(first) && stay_acquire(first) == HF_OK) {
        stay_work(first);
        if (first->holds > 0 && play_chance(player, 25)) {
            stay_acquire(first);
            stay_work(first);
        }
        if (first == &writing && first->holds > 0 && play_chance(player, 30))
            downgrade(&writing, &reading);
        else if (first == &reading && first->holds > 0 && play_chance(player, 5))
            stay_acquire(&writing); /* refused: it would wait for itself */
        stay_leave(&writing);
        stay_leave(&reading);
    }
}
