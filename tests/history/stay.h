/* A stay: one owner at one lock, or at one side of it, or at some values of a group. What it does is
 * written down; see stay.c for the words. Used by visits, in their thread. */
#ifndef HF_TEST_HISTORY_STAY_H
#define HF_TEST_HISTORY_STAY_H

#include "kinds.h"

struct stay {
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

/* Text must outlive the stay. */
void stay_begin(struct stay *stay, struct player *player, hf_lock *lock, const char *name,
                hf_owner owner);

int stay_acquire(struct stay *stay);
void stay_work(struct stay *stay); /* sometimes longer than the lease */
void stay_leave(struct stay *stay);
bool stay_idles(struct stay *stay); /* true: it did something without acquiring, and that is all */

hf_lock *stay_open_lock(struct player *player, hf_kind kind, const char *name);
hf_owner stay_some_owner(struct player *player);

#endif
