/*
 * The keeper: one background thread per client for everything that no caller waits for: timers,
 * connecting, the control connection, and those whose callers or listeners have all left. Its
 * executor is `hfi_keeper_exec`.
 */
#ifndef HFI_NET_KEEPER_H
#define HFI_NET_KEEPER_H

#include "base/mem.h"
#include "base/task.h"

#include <signal.h>
#include <stdbool.h>

struct hfi_conn;
struct hfi_keeper;

int hfi_keeper_new(const struct hfi_mem *mem, struct hfi_keeper **ret, hf_error *error);
/* Starts the thread at the first call; later ones do nothing. HF_OK or HF_ESYS. */
int hfi_keeper_start(struct hfi_keeper *keeper, hf_error *error);
/* Ends the thread after it has run `last` on it (may be NULL). Returns when it has ended. */
void hfi_keeper_stop(struct hfi_keeper *keeper, void (*last)(void *arg), void *arg);
void hfi_keeper_free(struct hfi_keeper *keeper);      /* NULL is fine; after stop */
void hfi_keeper_close_fds(struct hfi_keeper *keeper); /* in a forked child */

struct hfi_exec *hfi_keeper_exec(struct hfi_keeper *keeper);
/* Is this the keeper's thread, or one that stands in for it? */
bool hfi_keeper_is_self(struct hfi_keeper *keeper);
/* For that one: this connection has something to write, when there is nothing else to do. */
void hfi_keeper_gathers(struct hfi_keeper *keeper, struct hfi_conn *conn);

/* ---- Standing in for it: chair.c ---- */

/* A synchronous call that waits for what is done by the keeper, as its thread's. All zero but for the
 * executor. */
struct hfi_guest {
    struct hfi_exec *exec; /* its own */
    struct hfi_link link;  /* it waits for the chair */
    int kick_fd;           /* while it polls */
    bool shielded;         /* from signals: it has the chair, */
    sigset_t signals;      /* and these were blocked before, as they are while it polls */
};

/* Takes the chair, if it can be had at once: what this thread then posts to the keeper wakes nobody. */
void hfi_keeper_sit(struct hfi_keeper *keeper, struct hfi_guest *guest);
/* Waits until the guest's executor has work, and does what the keeper has to do meanwhile. */
void hfi_keeper_attend(struct hfi_keeper *keeper, struct hfi_guest *guest);
/* It waits for nothing any more. To be called in any case, at the end. */
void hfi_keeper_stand_up(struct hfi_keeper *keeper, struct hfi_guest *guest);

/* For connections, of which there may be any number: to be polled when the keeper has the seat. False:
 * out of memory. */
bool hfi_keeper_add(struct hfi_keeper *keeper, struct hfi_conn *conn);
void hfi_keeper_remove(struct hfi_keeper *keeper, struct hfi_conn *conn);

#endif
