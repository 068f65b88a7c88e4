/*
 * Visits to sets: values of a group, and locks that are taken together. Of both there are four, a to d,
 * and every visit wants some of them.
 *
 * Called by the threads of process.c; a visit's state is on its stack.
 */
#include "recorded_lock.h"

#include "support/new_lock.h"

#include <stdio.h>
#include <string.h>

#define VALUES 4

static unsigned some_values(struct player *player) {
    return 1 + play_pick(player, (1 << VALUES) - 1);
}

/* The letters of a mask, and "a,c" as it is written down. */
static size_t letters_of(unsigned mask, char letters[VALUES], char text[2 * VALUES]) {
    size_t len = 0;
    for (size_t i = 0; i < VALUES; i++) {
        if ((mask >> i & 1) == 0)
            continue;
        letters[len] = (char)('a' + i);
        text[2 * len] = letters[len];
        text[2 * len + 1] = ',';
        len++;
    }
    text[2 * len - 1] = '\0';
    return len;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static hf_lock *open_group(struct player *player, const char *name, unsigned mask,
                           char text[2 * VALUES]) {
    char letters[VALUES];
    size_t len = letters_of(mask, letters, text);
    hf_bytes values[VALUES];
    hf_lock *lock;
    for (size_t i = 0; i < len; i++)
        values[i] = (hf_bytes){&letters[i], 1};
    if (hf_lock_new_group(player->client, name, strlen(name), values, len, &lock) != HF_OK)
        support_die("no handle for %s", name);
    return lock;
}

/* The same owner wants others too: refused at once if some of them are the same. */
static void want_more(struct recorded_lock *recorded, const char *name, unsigned mask) {
    struct player *player = recorded->player;
    char text[2 * VALUES];
    struct recorded_lock more;
    unsigned others = some_values(player);
    if (others == mask)
        return;
    own_lock *lock = open_group(player, name, others, text);
    recorded_begin(&more, player, lock, name, recorded->owner);
    more.values = text;
    more.beside = recorded->hold;
    if (recorded_acquire(&more) == HF_OK) {
        recorded_work(&more);
        recorded_leave(&more);
    }
}

void visit_group(struct player *player, const char *name) {
    unsigned mask = some_values(player);
    char text[2 * VALUES];
    own_lock *lock = open_group(player, name, mask, text);
    struct recorded_lock recorded;
    recorded_begin(&recorded, player, lock, name, recorded_some_owner(player));
    recorded.values = text;
    if (!recorded_idles(&recorded) && recorded_acquire(&recorded) == HF_OK) {
        recorded_work(&recorded);
        if (recorded.holds > 0 && play_chance(player, 20)) {
            recorded_acquire(&recorded);
            recorded_work(&recorded);
        } else if (recorded.holds > 0 && play_chance(player, 30)) {
            want_more(&recorded, name, mask);
        }
        recorded_leave(&recorded);
    }
}

/* ---- Locks that are taken together ----------------------------------------------------------- */

static void shuffle(struct player *player, char *letters, size_t len) {
    for (size_t i = len; i > 1; i--) {
        size_t j = play_pick(player, (unsigned)i);
        char letter = letters[i - 1];
        letters[i - 1] = letters[j];
        letters[j] = letter;
    }
}

/* One member alone is an ordinary lock. */
static hf_lock *open_multi(struct player *player, const char *name, unsigned mask,
                           char text[2 * VALUES]) {
    char letters[VALUES], member[64];
    size_t len = letters_of(mask, letters, text);
    hf_lock *members[VALUES], *lock;
    shuffle(player, letters, len);
    for (size_t i = 0; i < len; i++) {
        snprintf(member, sizeof member, "%s.%c", name, letters[i]);
        if (hf_lock_new(player->client, member, &members[i]) != HF_OK)
            support_die("no handle for %s", member);
    }
    if (len == 1)
        return members[0];
    if (hf_lock_new_multi(members, len, &lock) != HF_OK)
        support_die("no handle for several of %s", name);
    for (size_t i = 0; i < len; i++)
        hf_lock_free(members[i]);
    return lock;
}

/* Some of these waits have no end but that of the others' holds: a deadlock would be a process that
 * does not end. */
void visit_multi(struct player *player, const char *name) {
    char text[2 * VALUES];
    own_lock *lock = open_multi(player, name, some_values(player), text);
    struct recorded_lock recorded;
    recorded_begin(&recorded, player, lock, name, recorded_some_owner(player));
    recorded.values = text;
    recorded.patient = true;
    recorded.unbreakable = true;
    if (!recorded_idles(&recorded) && recorded_acquire(&recorded) == HF_OK) {
        recorded_work(&recorded);
        if (recorded.holds > 0 && play_chance(player, 20)) {
            recorded_acquire(&recorded);
            recorded_work(&recorded);
        }
        recorded_leave(&recorded);
    }
}
