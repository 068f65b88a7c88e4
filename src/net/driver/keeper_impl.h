/*
 * What keeper.c and keeper_borrow.c share: the keeper's internals. No other file includes this.
 *
 * Lock order: the keeper, then an executor.
 */
#ifndef HFI_NET_DRIVER_KEEPER_IMPL_H
#define HFI_NET_DRIVER_KEEPER_IMPL_H

#include "net/conn/conn_impl.h"

#include <poll.h>
#include <stdint.h>

/* What a round of the loop works with. Each array has `room` entries; `fds` has two more. */
struct table {
    size_t room, conns_len, polled_len;
    struct hfi_conn **conns;  /* all; NULL: freed since the round began */
    struct hfi_conn **polled; /* those the keeper drives now; NULL: the same */
    struct pollfd *fds;       /* the wake-up eventfd, the timer, then `polled` */
};

/* The thread that runs the loop: the keeper itself or a borrower. Elsewhere it is called "the
 * keeper's thread". */
struct loop_owner {
    struct hfi_exec *exec; /* a borrower's own, polled for as well; NULL: the keeper itself */
    int wake_fd;
    const sigset_t *signals; /* blocked while it polls; NULL: unchanged */
    /* Polled, unless there are too many connections. It is on the owner's stack: the kernel
     * writes to it until the poll ends, even if another thread owns the loop by then. */
    struct pollfd *fds;
};
#define LOOP_OWNER_FDS 66 /* 64 connections, the eventfd, the timer */

struct hfi_keeper {
    const struct hfi_mem *mem;
    struct hfi_exec exec;
    int wake_fd, timer_fd;

    /* Owned by the loop owner while it is not in its poll. */
    int64_t timer_at_ms;
    struct table *table;
    unsigned unpolled; /* rounds in a row that had something to run */
    /* connections with unwritten commands, in their order */
    struct hfi_link gathered;

    pthread_mutex_t mtx; /* guards below */
    struct hfi_conn **conns;
    size_t conns_len, conns_room;
    struct table *larger; /* replaces `table` in the next round; NULL: none */
    bool started, stopping;
    void (*last)(void *arg);
    void *last_arg;
    pthread_t thread;

    /* Who owns the loop. */
    const void *loop_owner; /* &exec: the keeper itself; a borrower; NULL: none */
    /* the owner's thread; 0: none. Read without `mtx`: a thread only compares it with itself */
    atomic_uintptr_t owner_thread;
    unsigned turns;            /* how often borrowers have taken it */
    struct hfi_link borrowers; /* queued, or named and not here yet */
    int borrower_fd;           /* wakes a borrower; -1: none yet */
    int64_t checks_at_ms;      /* the keeper checks by then at the latest */
    unsigned stalled_polls;    /* number of the poll in which a borrower stalled */
    int64_t stalled_since_ms;  /* HFI_NEVER: no borrower is stalled */
};

/* keeper.c: one round of the loop. False: another thread owns the loop now, or there are too
 * many connections for a borrower. */
bool hfi_keeper_run_once(struct hfi_keeper *keeper, const struct loop_owner *loop_owner);
void hfi_keeper_write_all(struct hfi_keeper *keeper); /* what was gathered */

/* keeper_borrow.c, for the keeper's own thread */
void hfi_loop_take_back(struct hfi_keeper *keeper); /* returns when it has it */
bool hfi_loop_lend(struct hfi_keeper *keeper);      /* true: a borrower owns it now */
/* Is a borrower queued whose executor has no work? Locked. */
bool hfi_loop_is_wanted_locked(const struct hfi_keeper *keeper);
/* Does this owner, back from its poll, still own the loop? Locked. */
bool hfi_loop_is_owned_locked(struct hfi_keeper *keeper, const struct loop_owner *loop_owner);

#endif
