/*
 * Visits to sets: values of a group, and locks that are taken together. Of both there are four, a to d,
 * and every visit wants some of them.
 *
 * Called by the threads of process.c; a visit's state is on its stack.
 */
#include "stay.h"

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
static void want_more(struct stay *stay, const char *name, unsigned mask) {
    struct player *player = stay->player;
    char text[2 * VALUES];
    struct stay more;
    unsigned others = some_values(player);
    if (others == mask)
        return;
    own_lock *lock = open_group(player, name, others, text);
    stay_begin(&more, player, lock, name, stay->owner);
    more.values = text;
    more.beside = stay->hold;
    if (stay_acquire(&more) == HF_OK) {
        stay_work(&more);
        stay_leave(&more);
    }
}

void visit_group(struct player *player, const char *name) {
    unsigned mask = some_values(player);
    char text[2 * VALUES];
    own_lock *lock = open_group(player, name, mask, text);
    struct stay stay;
    stay_begin(&stay, player, lock, name, stay_some_owner(player));
    stay.values = text;
    if (!stay_idles(&stay) && stay_acquire(&stay) == HF_OK) {
        stay_work(&stay);
        if (stay.holds > 0 && play_chance(player, 20)) {
            stay_acquire(&stay);
            stay_work(&stay);
        } else if (stay.holds > 0 && play_chance(player, 30)) {
            want_more(&stay, name, mask);
        }
        stay_leave(&stay);
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
    struct stay stay;
    stay_begin(&stay, player, lock, name, stay_some_owner(player));
    stay.values = text;
    stay.patient = true;
    stay.unbreakable = true;
    if (!stay_idles(&stay) && stay_acquire(&stay) == HF_OK) {
        stay_work(&stay);
        if (stay.holds > 0 && play_chance(player, 20)) {
            stay_acquire(&stay);
            stay_work(&stay);
        }
        stay_leave(&stay);
    }
}
