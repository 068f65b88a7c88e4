/*
 * What keeper.c and chair.c share: the keeper's insides. Nobody else includes this.
 *
 * Lock order: the keeper, then an executor.
 */
#ifndef HFI_NET_KEEPER_IMPL_H
#define HFI_NET_KEEPER_IMPL_H

#include "net/impl.h"

#include <poll.h>
#include <stdint.h>

/* What a round of the loop works with: as many entries each as there is room for connections, but
 * for `fds`, which has two more. */
struct table {
    size_t room, conns_len, polled_len;
    struct hfi_conn **conns;  /* all; NULL: it is gone since the round began */
    struct hfi_conn **polled; /* those of them that the keeper drives now; the same */
    struct pollfd *fds;       /* for the kicks, for the timer, and for each of these */
};

/* Whoever has the chair, which is what "on the keeper's thread" means everywhere else: the keeper itself, or
 * a guest. */
struct sitter {
    struct hfi_exec *exec; /* a guest's own, which is polled for as well; NULL: the keeper itself */
    int kick_fd;
    const sigset_t *signals; /* blocked while it polls; NULL: as they are */
    /* Polled, unless there are too many connections. The kernel writes to it as long as the poll lasts, even
     * if the chair is another's by then, so it is on the stack of its thread. */
    struct pollfd *fds;
};
#define SITTER_FDS 66 /* room for 64 connections, the kicks, and the timer */

struct hfi_keeper {
    const struct hfi_mem *mem;
    struct hfi_exec exec;
    int kick_fd, timer_fd;

    /* Of whoever has the chair, and is not in its poll. */
    int64_t timer_at_ms;
    struct table *table;
    unsigned unpolled; /* rounds in a row that had something to run */
    struct hfi_link
        gathered; /* connections with commands that are not written yet, in their order */

    pthread_mutex_t mtx; /* guards below */
    struct hfi_conn **conns;
    size_t conns_len, conns_room;
    struct table *larger; /* to be used from the next round on; NULL: the old one does */
    bool started, stopping;
    void (*last)(void *arg);
    void *last_arg;
    pthread_t thread;

    /* The chair. */
    const void *sitter;       /* &exec: the keeper itself; a guest; NULL: it is empty */
    atomic_uintptr_t sitting; /* the thread that has it; 0: none does. Each knows about itself */
    unsigned turns;           /* how often guests have taken it */
    struct hfi_link guests;   /* that wait for it, or were named and have not come yet */
    int guest_fd;             /* what a guest is kicked by; -1: there is none yet */
    int64_t looks_at_ms;      /* the keeper looks after it, at the latest */
    unsigned idler_polls;     /* a guest that had something to do, and did nothing about it, */
    int64_t idler_since_ms;   /* since then; HFI_NEVER: there is none */
};

/* keeper.c: one round of the loop. False: the chair is another's now, or is not for guests any more. */
bool hfi_keeper_go_round(struct hfi_keeper *keeper, const struct sitter *sitter);
void hfi_keeper_write_all(struct hfi_keeper *keeper); /* what was gathered */

/* chair.c, for the keeper's own thread */
void hfi_chair_take_back(struct hfi_keeper *keeper); /* returns when it has it */
bool hfi_chair_yield(struct hfi_keeper *keeper);     /* true: a guest has it now */
/* Somebody is in line for it, and has nothing else to do. Locked. */
bool hfi_chair_is_wanted_locked(const struct hfi_keeper *keeper);
/* Is it still the chair of that one, who is not in its poll any more? Locked. */
bool hfi_chair_is_kept_locked(struct hfi_keeper *keeper, const struct sitter *sitter);

#endif
