/*
 * The keeper: one background thread per client, for all work that no caller waits for.
 *
 * It runs timers, connects, and drives the control connection and connections whose callers or
 * listeners have all left. Its executor is hfi_keeper_exec().
 */
#ifndef HFI_NET_DRIVER_KEEPER_H
#define HFI_NET_DRIVER_KEEPER_H

#include "base/mem.h"
#include "task/task.h"

#include <signal.h>
#include <stdbool.h>

struct hfi_conn;
struct hfi_keeper;

int hfi_keeper_new(const struct hfi_mem *mem, struct hfi_keeper **ret, hf_error *error);
/* Starts the thread at the first call; later ones do nothing. HF_OK or HF_ESYS. */
int hfi_keeper_start(struct hfi_keeper *keeper, hf_error *error);
/* Ends the thread after it has run `last` (may be NULL). Returns when the thread has ended. */
void hfi_keeper_stop(struct hfi_keeper *keeper, void (*last)(void *arg), void *arg);
void hfi_keeper_free(struct hfi_keeper *keeper);      /* NULL is fine; after stop */
void hfi_keeper_close_fds(struct hfi_keeper *keeper); /* in a forked child */

struct hfi_exec *hfi_keeper_exec(struct hfi_keeper *keeper);
/* Is this the keeper's thread, or a borrower that owns its loop? */
bool hfi_keeper_is_self(struct hfi_keeper *keeper);
/* On that thread: this connection has output to write once there is nothing else to run. */
void hfi_keeper_gathers(struct hfi_keeper *keeper, struct hfi_conn *conn);

/* ---- Borrowing its loop: keeper_borrow.c ---- */

/* A synchronous caller that waits for work of the keeper. Owned by the caller's thread. All zero
 * but for `exec`. */
struct hfi_borrower {
    struct hfi_exec *exec; /* its own */
    struct hfi_link link;  /* queued for the loop */
    int wake_fd;           /* while it polls */
    bool shielded;         /* signals are blocked: it owns the loop */
    sigset_t signals;      /* its mask before that, restored while it polls */
};

/* Takes the loop if it can be had at once; then posts from this thread to the keeper wake
 * nobody. */
void hfi_keeper_borrow(struct hfi_keeper *keeper, struct hfi_borrower *borrower);
/* Waits until the borrower's executor has work, and runs the keeper's loop meanwhile. */
void hfi_keeper_run_borrowed(struct hfi_keeper *keeper, struct hfi_borrower *borrower);
/* The caller no longer waits. Must be called at the end in any case. */
void hfi_keeper_return(struct hfi_keeper *keeper, struct hfi_borrower *borrower);

/* Registers a connection, of which there may be any number: polled while the keeper drives it.
 * False: out of memory. */
bool hfi_keeper_add(struct hfi_keeper *keeper, struct hfi_conn *conn);
void hfi_keeper_remove(struct hfi_keeper *keeper, struct hfi_conn *conn);

#endif
