/*
 * Visits to locks: of one name, to both sides of read/write locks, and to sets of values of a group.
 *
 * Called by the threads of process.c; a visit's state is on its stack.
 */
#include "stay.h"

#include "support/wait.h"

#include <stdio.h>
#include <string.h>

void visit_lock(struct player *player, const char *name) {
    hf_lock *lock = stay_open_lock(player, player->kind->lock, name);
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
    hf_lock_free(lock);
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
    hf_lock *read = stay_open_lock(player, HF_READ, name);
    hf_lock *write = stay_open_lock(player, HF_WRITE, name);
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
    hf_lock_free(read);
    hf_lock_free(write);
}

/* ---- Values of a group ----------------------------------------------------------------------- */

#define VALUES 4

/* Some of the values a, b, c, d, as a lock, and as it is written down. */
struct set {
    unsigned mask;
    char text[2 * VALUES];
    hf_lock *lock;
};

static unsigned some_values(struct player *player) {
    return 1 + play_pick(player, (1 << VALUES) - 1);
}

static void set_begin(struct set *set, struct player *player, const char *name, unsigned mask) {
    static const char letters[VALUES] = {'a', 'b', 'c', 'd'};
    hf_bytes values[VALUES];
    size_t len = 0;
    set->mask = mask;
    for (size_t i = 0; i < VALUES; i++) {
        if ((mask >> i & 1) == 0)
            continue;
        set->text[2 * len] = letters[i];
        set->text[2 * len + 1] = ',';
        values[len++] = (hf_bytes){&letters[i], 1};
    }
    set->text[2 * len - 1] = '\0';
    if (hf_lock_new_group(player->client, name, strlen(name), values, len, &set->lock) != HF_OK)
        support_die("no handle for %s", name);
}

/* The same owner wants others too: refused at once if some of them are the same. */
static void want_more(struct stay *stay, const struct set *set, const char *name) {
    struct player *player = stay->player;
    struct set others;
    struct stay more;
    unsigned mask = some_values(player);
    if (mask == set->mask)
        return;
    set_begin(&others, player, name, mask);
    stay_begin(&more, player, others.lock, name, stay->owner);
    more.values = others.text;
    more.beside = stay->hold;
    if (stay_acquire(&more) == HF_OK) {
        stay_work(&more);
        stay_leave(&more);
    }
    hf_lock_free(others.lock);
}

void visit_group(struct player *player, const char *name) {
    struct set set;
    struct stay stay;
    set_begin(&set, player, name, some_values(player));
    stay_begin(&stay, player, set.lock, name, stay_some_owner(player));
    stay.values = set.text;
    if (!stay_idles(&stay) && stay_acquire(&stay) == HF_OK) {
        stay_work(&stay);
        if (stay.holds > 0 && play_chance(player, 20)) {
            stay_acquire(&stay);
            stay_work(&stay);
        } else if (stay.holds > 0 && play_chance(player, 30)) {
            want_more(&stay, &set, name);
        }
        stay_leave(&stay);
    }
    hf_lock_free(set.lock);
}
