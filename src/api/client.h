/*
 * A client, as the files of src/api see it.
 *
 *   client.c    opening, closing, entering and leaving a call
 *   stats.c     statistics
 *   survey.c    the whole fleet
 *   urls.c      the servers it was opened with
 *   call.c      running an operation: synchronously, or started for a callback
 *   handle.c    a handle: making, freeing and using one, whatever it is on
 *   lock.c, sem.c, permits.c, latch.c   the verbs of each
 *   group.c     making a lock of some values of a group
 *   all.c       making one lock out of many
 *   cohort.c    making one that threads pass on among themselves
 *   ears.c      telling handles about trouble with holds
 *   listen.c    telling those who listen what is heard of a name
 *   sized.c     the public structs that can grow
 *   dispatch.c  where callbacks run
 *   fence.c     the check of fencing tokens, which needs no client
 */
#ifndef HFI_API_CLIENT_H
#define HFI_API_CLIENT_H

#include "core/core.h"
#include "core/op.h"
#include "joint/cohort.h"

#include <poll.h>

struct hfi_handle;
struct hfi_keeper;
struct hfi_quorum;

/* Where callbacks run: a thread of ours, or whoever calls hf_dispatch(). */
struct hfi_dispatcher {
    bool manual;
    pthread_mutex_t mtx; /* guards the queue and the thread's life */
    pthread_cond_t cond;
    struct hfi_link notices;
    bool started, stopping;
    pthread_t thread;

    /* Manual: asynchronous operations run on this executor, inside hf_dispatch(). */
    struct hfi_exec exec;
    atomic_bool busy; /* somebody is in hf_dispatch() */
    bool polling;     /* the executor's kicks go to kick_fd, for the outside to see */
    int epoll_fd, kick_fd, timer_fd;
    struct pollfd *fds; /* room for what it polls by itself */
    size_t fds_cap;
    struct pollfd few_fds[4];
};

struct hf_client {
    atomic_int refs; /* the opener, handles, operations */
    /* a page that the kernel wipes in a forked child; NULL: ask for the pid */
    const atomic_int *not_forked;
    struct hfi_mem mem;
    struct hfi_spares spares; /* of `mem` */
    struct hfi_log log;
    struct hfi_keeper *keeper;
    struct hfi_core core;
    struct hfi_diaries diaries; /* of the core: handles have them for longer */
    struct hfi_quorum *quorum;  /* the core's engine, if there are several servers; else NULL */
    struct hfi_dispatcher dispatcher;
    struct hfi_cohorts cohorts;

    atomic_int callers; /* synchronous calls inside */
    pthread_mutex_t close_mtx;
    pthread_cond_t close_cond;
    bool closed;

    pthread_mutex_t handles_mtx; /* guards what is told to handles, and who listens */
    pthread_cond_t handles_cond;
    struct hfi_link ears;       /* those that want to hear of trouble */
    struct hfi_handle *telling; /* its callback is running */
    uint64_t telling_round;
    struct hfi_link listeners; /* those to whom the engine tells news */
};

void hfi_client_ref(hf_client *client);
void hfi_client_unref(hf_client *client);

/* Every public call on a client: refuses in a forked child and after close; counts the caller,
 * keeps thread cancellation away. If, and only if, it returns HF_OK, hfi_leave() must follow. */
struct hfi_entry {
    int cancel_state;
};
int hfi_enter(hf_client *client, struct hfi_entry *entry);
void hfi_leave(hf_client *client, struct hfi_entry *entry);

/* Remembers a failure as this thread's last error, and returns the code. `error` NULL: just the
 * code's words. */
int hfi_remember(int err, const hf_error *error);

/* call.c: runs an operation on this thread; `ret` may be NULL. */
int hfi_run_sync(hf_client *client, struct hfi_op_args *args, hf_result *ret);
int hfi_start_async(hf_client *client, struct hfi_op_args *args, hf_op **ret_op);

/* dispatch.c */
int hfi_dispatcher_init(hf_client *client, bool manual, hf_error *error);
/* the thread is there, or there will be no callbacks: HF_ESYS */
int hfi_dispatcher_ensure(hf_client *client);
void hfi_dispatch_notice(void *arg, struct hfi_notice *notice);
void hfi_dispatcher_drain(hf_client *client); /* close, manual: run everything that is left, here */
/* close, manual: the same, and read what comes, until there is something to do */
void hfi_dispatcher_serve(hf_client *client, int64_t until_ms);
void hfi_dispatcher_stop(hf_client *client); /* close: run what is queued, end the thread */
void hfi_dispatcher_clear(hf_client *client);
void hfi_dispatcher_close_fds(hf_client *client);

#endif
