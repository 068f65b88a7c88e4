/* A recorded lock: one owner at one lock, or at one side of it, or at some values of a group. What it does is
 * written down; see recorded_lock.c for the words. Used by visits, in their thread. */
#ifndef HF_TEST_HISTORY_RECORDED_LOCK_H
#define HF_TEST_HISTORY_RECORDED_LOCK_H

#include "kinds.h"

struct recorded_lock {
    struct player *player;
    hf_lock *lock;
    hf_owner owner;
    char owner_name[80];
    struct subject subject;
    const char *side;   /* "", "_read", "_write" */
    const char *values; /* of a group or of several locks: which; "" for one lock */
    const char *beside; /* the hold that the same owner has meanwhile; "-": none */
    bool patient;       /* some of its waits have no end */
    bool unbreakable;   /* there is no hf_lock_break() of it */
    char hold[48];      /* the operation that began it */
    int holds;
};

/* Text must outlive it. */
void recorded_begin(struct recorded_lock *recorded, struct player *player, hf_lock *lock,
                    const char *name, hf_owner owner);

int recorded_acquire(struct recorded_lock *recorded);
void recorded_work(struct recorded_lock *recorded); /* sometimes longer than the lease */
void recorded_leave(struct recorded_lock *recorded);
bool recorded_idles(
    struct recorded_lock *recorded); /* true: it did something without acquiring, and that is all */

hf_lock *recorded_open_lock(struct player *player, hf_kind kind, const char *name);
hf_owner recorded_some_owner(struct player *player);

#endif
