/*
 * A client, as the files of src/api see it.
 *
 *   client.c    opening, closing, entering and leaving a call, statistics
 *   call.c      running an operation: synchronously, or started for a callback
 *   lock.c      the verbs of a lock
 *   loss.c      telling handles about trouble with holds
 *   dispatch.c  where callbacks run
 *   fence.c     the check of fencing tokens, which needs no client
 */
#ifndef HFI_API_CLIENT_H
#define HFI_API_CLIENT_H

#include "core/core.h"
#include "core/op.h"

struct hfi_keeper;

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
    int watched_fd; /* the connection's descriptor in epoll_fd, or -1 */
    short watched_events;
};

struct hf_client {
    atomic_int refs; /* the opener, handles, operations */
    /* a page that the kernel wipes in a forked child; NULL: ask for the pid */
    const atomic_int *not_forked;
    struct hfi_mem mem;
    struct hfi_log log;
    struct hfi_keeper *keeper;
    struct hfi_core core;
    struct hfi_dispatcher dispatcher;

    atomic_int callers; /* synchronous calls inside */
    pthread_mutex_t close_mtx;
    pthread_cond_t close_cond;
    bool closed;

    pthread_mutex_t handles_mtx; /* guards handles and what is told to them */
    pthread_cond_t handles_cond;
    struct hfi_link handles; /* those that want to hear of trouble */
    hf_lock *telling;        /* its callback is running */
    uint64_t telling_round;
};

struct hf_lock {
    hf_client *client;
    const struct hfi_kind *kind;
    struct hfi_link link; /* in client->handles; guarded, as is the rest down to told_round */
    hf_event_fn on_lost;
    void *user;
    int lost_fd;
    uint64_t told_round;
    size_t name_len;
    char name[];
};

void hfi_client_ref(hf_client *client);
void hfi_client_unref(hf_client *client);

/* Every public call on a client: refuses in a forked child and after close; counts the caller, keeps thread
 * cancellation away. Only if HF_OK, hfi_leave() must follow. */
struct hfi_entry {
    int cancel_state;
};
int hfi_enter(hf_client *client, struct hfi_entry *entry);
void hfi_leave(hf_client *client, struct hfi_entry *entry);

/* Remembers a failure as this thread's last error, and returns the code. `error` NULL: just the code's words. */
int hfi_remember(int err, const hf_error *error);

/* Copies a result to a caller's struct of whatever size it was compiled with. */
void hfi_copy_result(hf_result *to, const hf_result *from);

/* call.c: runs an operation on this thread; *ret_info is for inspect. */
int hfi_run_sync(hf_client *client, struct hfi_op_args *args, hf_result *ret,
                 hf_lock_info **ret_info);
int hfi_start_async(hf_client *client, struct hfi_op_args *args, hf_op **ret_op);

/* loss.c: the core's hooks. */
bool hfi_trouble(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                 hf_event_kind event);
void hfi_tell(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
              const hf_event *event);

/* dispatch.c */
int hfi_dispatcher_init(hf_client *client, bool manual, hf_error *error);
/* the thread is there, or there will be no callbacks: HF_ESYS */
int hfi_dispatcher_ensure(hf_client *client);
void hfi_dispatch_notice(void *arg, struct hfi_notice *notice);
void hfi_dispatcher_drain(hf_client *client); /* close, manual: run everything that is left, here */
void hfi_dispatcher_stop(hf_client *client);  /* close: run what is queued, end the thread */
void hfi_dispatcher_clear(hf_client *client);
void hfi_dispatcher_close_fds(hf_client *client);

#endif
