/*
 * A client, as the files of src/api see it.
 *
 * client.c            opening, entering and leaving a call
 * close.c             closing: hf_close(), hf_close_start()
 * stats.c             statistics
 * metrics.c           the statistics as OpenMetrics text
 * survey.c            the whole fleet
 * options.c           the options it was opened with
 * urls.c              the servers it was opened with
 * run_op.c            running an operation: synchronously, or started for a callback
 * handle.c            handles: making, freeing and using one, whatever it is on
 * lock.c, sem.c, permits.c, latch.c   the verbs of each
 * group.c             making a lock on some values of a group
 * all.c               making a joint lock
 * cohort.c            making a lock that threads of one process pass on among themselves
 * loss_notify.c       loss notifications for handles
 * listen.c            name listeners: server events of a name
 * versioned_struct.c  the public structs that can grow
 * dispatch.c          where callbacks run
 * fence.c             the check of fencing tokens, which needs no client
 */
#ifndef HFI_API_CLIENT_H
#define HFI_API_CLIENT_H

#include "core/core.h"
#include "core/op/op.h"
#include "joint/cohort/cohort.h"

#include <poll.h>

struct hfi_handle;
struct hfi_keeper;
struct hfi_quorum;

/* Where callbacks run: a thread of ours, or the thread inside hf_dispatch(). */
struct hfi_dispatcher {
    bool manual;
    pthread_mutex_t mtx; /* guards the queue and the thread's lifetime */
    pthread_cond_t cond;
    struct hfi_link notices;
    bool started, stopping;
    pthread_t thread;

    /* Manual: asynchronous operations run on this executor, inside hf_dispatch(). */
    struct hfi_exec exec;
    atomic_bool busy;    /* a thread is in hf_dispatch() */
    atomic_bool running; /* it runs what was due */
    bool detached;       /* and does not use the engine any more. Guarded by close_mtx */
    bool polling;        /* wake-ups of the executor go to wake_fd, for the application's poll */
    bool woken;          /* wake_fd was written in handing over */
    int epoll_fd, wake_fd, timer_fd;
    int64_t timer_ms;   /* when timer_fd becomes readable */
    struct pollfd *fds; /* room for what it polls itself */
    size_t fds_cap;
    struct pollfd few_fds[4];
};

/* Of hf_close_start(); close.c says what each means. */
enum hfi_close_phase { HFI_CLOSE_OPEN, HFI_CLOSE_SETTLING, HFI_CLOSE_DETACHED, HFI_CLOSE_ENDED };

struct hfi_closing {
    atomic_int phase; /* enum hfi_close_phase; changed with close_mtx locked */
    hf_close_fn callback;
    void *user;
    pthread_t thread;
};

struct hf_client {
    atomic_int refs; /* the opener, handles, operations */
    /* a page that the kernel wipes in a forked child; NULL: compare the pid */
    const atomic_int *not_forked;
    struct hfi_mem mem;
    struct hfi_spares spares; /* of `mem` */
    struct hfi_log log;
    struct hfi_keeper *keeper;
    struct hfi_core core;
    /* the core's; handles use it for longer than the core lives */
    struct hfi_name_stats_table stats_table;
    struct hfi_quorum *quorum; /* the core's engine, if there are several servers; else NULL */
    struct hfi_dispatcher dispatcher;
    struct hfi_cohorts cohorts;

    atomic_int callers; /* synchronous calls in progress */
    pthread_mutex_t close_mtx;
    pthread_cond_t close_cond;
    struct hfi_closing closing;

    pthread_mutex_t handles_mtx; /* guards loss listeners and name listeners */
    pthread_cond_t handles_cond;
    struct hfi_link loss_listeners; /* handles that want loss notifications */
    struct hfi_handle *notifying;   /* its callback is running */
    uint64_t notify_round;
    struct hfi_link listeners; /* name listeners, which receive engine events */
};

void hfi_client_ref(hf_client *client);
void hfi_client_unref(hf_client *client);

/* ---- close.c ---- */

/* Ends everything; also of a client that was only half opened. */
void hfi_client_end(hf_client *client);
/* ENDED, in hf_dispatch(): frees the client and calls back. */
void hfi_close_finish(hf_client *client);

/* ---- fork.c ---- */

/* A page that the kernel wipes in a forked child. NULL: it cannot; then the pid is compared. */
const atomic_int *hfi_fork_mark_new(void);
void hfi_fork_mark_free(const atomic_int *page); /* NULL is fine */
bool hfi_is_forked(const hf_client *client);

/* Brackets every public call on a client: refuses in a forked child and after close; counts the
 * caller, disables thread cancellation. If, and only if, it returns HF_OK, hfi_leave() must
 * follow. */
struct hfi_entry {
    int cancel_state;
};
int hfi_enter(hf_client *client, struct hfi_entry *entry);
void hfi_leave(hf_client *client, struct hfi_entry *entry);

/* Remembers a failure as this thread's last error, and returns the code. `error` NULL: just the
 * code's text. */
int hfi_remember(int err, const hf_error *error);

/* run_op.c: runs an operation on this thread; `ret` may be NULL. */
int hfi_run_sync(hf_client *client, struct hfi_op_args *args, hf_result *ret);
int hfi_start_async(hf_client *client, struct hfi_op_args *args, hf_op **ret_op);

/* dispatch.c */
int hfi_dispatcher_init(hf_client *client, bool manual, hf_error *error);
/* makes sure that the thread runs; else there will be no callbacks: HF_ESYS */
int hfi_dispatcher_ensure(hf_client *client);
void hfi_dispatch_notice(void *arg, struct hfi_notice *notice);
void hfi_dispatcher_drain(hf_client *client); /* close, manual: run everything that is left, here */
/* close, manual: the same, and read replies, until there is something to do */
void hfi_dispatcher_serve(hf_client *client, int64_t until_ms);
/* hf_close_start(), manual: nothing is left to run */
bool hfi_dispatcher_is_drained(hf_client *client);
void hfi_dispatcher_stop(hf_client *client); /* close: run what is queued, end the thread */
void hfi_dispatcher_clear(hf_client *client);
void hfi_dispatcher_close_fds(hf_client *client);

#endif
