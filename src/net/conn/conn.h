/*
 * One connection to a server. `protocol` in its target is the table of what it speaks (protocol.h).
 *
 * A request is submitted by appending its bytes. Replies come in order, and complete requests by
 * posting to their tasks. One thread at a time, the driver, reads:
 *   HFI_DRIVER_CALLERS   a synchronous caller that waits (hfi_conn_drive); the keeper only if no
 *                        caller would
 *   HFI_DRIVER_LISTENERS the same for pub/sub messages; the keeper if no caller has waited for a
 *                        while, and for listeners that do not drive (hfi_conn_listen)
 *   HFI_DRIVER_KEEPER    always the keeper
 *   HFI_DRIVER_DISPATCH  the thread in hf_dispatch()
 * The keeper's thread connects, greets and reconnects, and only while a task has asked for it
 * (hfi_conn_want).
 */
#ifndef HFI_NET_CONN_CONN_H
#define HFI_NET_CONN_CONN_H

#include "base/log.h"
#include "base/mem.h"
#include "net/lookup.h"
#include "net/protocol.h"
#include "net/server_identity.h"
#include "net/tls.h"
#include "task/task.h"

struct hfi_conn;
struct hfi_keeper;
struct hfi_sync_caller;

enum hfi_driver_policy {
    HFI_DRIVER_CALLERS,
    HFI_DRIVER_LISTENERS,
    HFI_DRIVER_KEEPER,
    HFI_DRIVER_DISPATCH
};

/* One address or name of a server. */
struct hfi_host {
    const char *name;       /* for messages, if there are several: "host:port" or a path */
    hfi_resolve_fn resolve; /* NULL: `address` is final */
    const char *resolve_arg;
    struct hfi_addr address;
    const struct hfi_tls_context *tls; /* expects this host; NULL: plain text */
};

/* Whether drivers with followers spin before they sleep: driver_wait.c. All zero at first; any
 * thread. */
struct hfi_spin_tuner {
    _Atomic int64_t period, since_us; /* the current one; when a driver first waited in it */
    atomic_bool spins;                /* this period spins */
    atomic_uint answers;              /* replies in this period */
    _Atomic int64_t rates[2]; /* replies per period without and with spinning; 0: not tried yet */
};

/* Where a connection leads, what it speaks, and how it introduces itself. Shared by all
 * connections of a node; outlives them. */
struct hfi_target {
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    struct hfi_exec *dispatch;    /* the executor behind HFI_DRIVER_DISPATCH, or NULL */
    const struct hfi_host *hosts; /* at least one; tried in turn, starting anywhere */
    size_t hosts_len;
    bool identified;  /* connections record which server they lead to */
    const char *node; /* for messages: "host:port" or a path; never a password */
    const struct hfi_protocol *protocol;
    void *login;            /* the greeting's credentials and settings */
    int64_t cmd_timeout_ms; /* connect and greeting together */
    int64_t ping_interval_ms;
    bool sleeps_at_once; /* drivers never spin before they sleep */
    struct hfi_spin_tuner spin_tuner;
    atomic_ullong *commands; /* counters of hf_stats */
    atomic_ullong *reconnects;
    /* The failure that was logged last; HF_OK: none. Owned by the keeper's thread. */
    int reported_err, reported_errno;
    _Atomic int64_t last_answer_ms; /* when this node last sent a valid message; 0: never */
    /* Called when connecting has failed (`err` says why), or a connection was lost (HF_OK). On
     * the keeper's thread. It must not free a connection. May be NULL. */
    void (*on_failure)(void *arg, int err, const hf_error *error);
    void *on_failure_arg;
};

/* Called for every pushed message, on the driver's thread. */
typedef void (*hfi_push_fn)(void *arg, const void *message);
/* Called on the keeper's thread when a connection is ready (up) or was lost (down). */
typedef void (*hfi_state_fn)(void *arg, bool up);

struct hfi_conn *hfi_conn_new(struct hfi_target *target, enum hfi_driver_policy driver_policy,
                              hfi_push_fn push, hfi_state_fn state, void *arg);
/* On the keeper's thread, even inside another connection's state callback, or after that thread
 * has ended. Requests in flight complete with HF_ECLOSED. */
void hfi_conn_free(struct hfi_conn *conn);
/* Ends the connection for good, because this server must not be used any more. It is closed
 * abortively, at once, whichever thread drives it. Requests in flight and wants end with
 * HF_EUNREACH, and so do all later ones; it never reconnects. On the keeper's thread, outside of
 * a connection's callbacks, or before any other thread knows the connection. */
void hfi_conn_retire(struct hfi_conn *conn);
/* In a forked child: closes descriptors, touches nothing else. */
void hfi_conn_close_fds(struct hfi_conn *conn);
const struct hfi_target *hfi_conn_target(const struct hfi_conn *conn);

/* ---- What the server calls it ---- */

/* One life of a connection, as the server names it: CLIENT KILL ID id ADDR addr ends it. */
struct hfi_conn_id {
    int64_t id;    /* 0: unknown */
    uint64_t run;  /* the process of the server: ids begin anew in another */
    char addr[56]; /* the client's address */
};

/* For a greeting: what the server calls the connection that is being made. */
void hfi_conn_identify(struct hfi_conn *conn, const struct hfi_conn_id *id);
/* What it called the connection of this generation (struct hfi_req). False: that is not known, or the connection
 * has not ended. Any thread, as the next. */
bool hfi_conn_ended_id(struct hfi_conn *conn, unsigned generation, struct hfi_conn_id *ret);
/* The process to which it leads now; 0: unknown. */
uint64_t hfi_conn_run(struct hfi_conn *conn);

/* ---- Requests ---- */

struct hfi_req {
    atomic_int refs;      /* its submitter, and the FIFO until it is complete */
    struct hfi_link link; /* in the connection's FIFO */
    const struct hfi_mem *mem;
    const struct hfi_protocol *protocol;
    struct hfi_conn *conn;
    /* posted to when it completes; NULL once abandoned (guarded by the connection's mutex) */
    struct hfi_task *task;
    unsigned event;
    /* waits for it; NULL: no synchronous caller does */
    struct hfi_sync_caller *sync_caller;
    int64_t sent_ms;     /* when it was submitted: leases count from here */
    unsigned generation; /* which life of the connection it was submitted to */

    /* Set when the event is posted: */
    atomic_bool complete;
    /* HF_OK: `reply` is set (it may be an error reply). Else the connection was lost */
    int err;
    void *reply; /* a message of the protocol, owned by the request */
    /* Of hfi_conn_submit_behind(): the request for the command in front, owned by this one, and
     * complete when this one is; NULL: none */
    struct hfi_req *front;

    /* Of hfi_conn_submit_acked(): the answer to the ack command. If the connection was lost,
     * `unsent` tells that the request was never sent. If only the ack command's answer was lost,
     * both `reply` and `err` are set. */
    bool (*needs_acks)(const void *reply); /* NULL: completes without an ack */
    int64_t acked_requests;
    bool unsent;

    hf_error error; /* why `err`. Last: not zeroed with the rest */
};

/* Is it ready for requests now? If so, *ret_server_ms is the server's clock (ms since 1970) as
 * of *ret_received_ms on our clock: a lower bound for computing `not-after`. */
bool hfi_conn_ready(struct hfi_conn *conn, int64_t *ret_server_ms, int64_t *ret_received_ms);

/* Records the server's clock from a reply to a command that was sent at `sent_ms`. `received_ms` is
 * our time when the reply arrived. */
void hfi_conn_clock(struct hfi_conn *conn, int64_t server_ms, int64_t sent_ms, int64_t received_ms);
/* The last record: the server's clock cannot be further ahead of ours than *ret_ahead_ms. Returns
 * when it was made. */
int64_t hfi_conn_clock_limit(struct hfi_conn *conn, int64_t *ret_ahead_ms);

/* Two of its readings contradicted each other not long ago: the server's clock is being stepped. */
bool hfi_conn_clock_is_stepped(const struct hfi_conn *conn, int64_t now_ms);

/* Requests in flight, for choosing one of several connections. */
unsigned hfi_conn_load(struct hfi_conn *conn);
/* Commands are in flight, and more were submitted long after it last received anything. A hint,
 * as the load is. */
bool hfi_conn_stalls(const struct hfi_conn *conn);

/* Sends a formatted command. On HF_OK `event` is posted to `task` exactly once, unless the
 * request is abandoned first. The caller owns *ret_req (hfi_req_unref), and keeps its bytes.
 * HF_EUNREACH: not ready, nothing was sent. `sync_caller`, for HFI_DRIVER_CALLERS: this is the
 * thread of the task's executor, and it drives or follows until the reply is here. NULL: another
 * thread reads the reply. */
int hfi_conn_submit(struct hfi_conn *conn, const char *bytes, size_t len, struct hfi_task *task,
                    unsigned event, struct hfi_sync_caller *sync_caller, struct hfi_req **ret_req);

/* The same without a sync caller and without writing, so that several go out in one write. The
 * caller flushes afterwards (hfi_conn_flush). */
int hfi_conn_enqueue(struct hfi_conn *conn, const char *bytes, size_t len, struct hfi_task *task,
                     unsigned event, struct hfi_req **ret_req);

/* Like hfi_conn_submit() for a command behind `fronts` others that stay adjacent, e.g. ASKING. The
 * request is for the last reply; the others are in its `front`, that one's `front`, and so on. */
int hfi_conn_submit_behind(struct hfi_conn *conn, unsigned fronts, const char *bytes, size_t len,
                           struct hfi_task *task, unsigned event,
                           struct hfi_sync_caller *sync_caller, struct hfi_req **ret_req);
/* ---- Ack batches: see ack_batch.c ---- */

/* The ack command (WAIT), sent behind a batch of requests. It asks for the highest `want` among
 * them. */
struct hfi_ack_batch_ops {
    /* Formats it, at most HFI_ACK_BATCH_MAX bytes; returns the length. */
    size_t (*write)(void *arg, unsigned want, char *to);
    /* Parses its answer: a count, or HF_E... with `error` set. */
    int64_t (*read)(void *arg, const void *message, hf_error *error);
};
#define HFI_ACK_BATCH_MAX 96

struct hfi_ack_request {
    unsigned want;
    bool (*needs_acks)(const void *reply); /* false: completes without an ack */
    unsigned fronts;                       /* as for hfi_conn_submit_behind() */
};

/* A connection for hfi_conn_submit_acked(), driven by callers. NULL: no memory or descriptors. */
struct hfi_conn *hfi_conn_new_acked(struct hfi_target *target, const struct hfi_ack_batch_ops *ops,
                                    void *arg);
/* As hfi_conn_submit(). But if the reply needs acks, the request completes when the ack command
 * behind it is answered. */
int hfi_conn_submit_acked(struct hfi_conn *conn, const char *bytes, size_t len,
                          struct hfi_task *task, unsigned event,
                          struct hfi_sync_caller *sync_caller,
                          const struct hfi_ack_request *ack_request, struct hfi_req **ret_req);

/* Checks whether the server has closed an idle connection, so that the next submit does not lose
 * its command. For commands that must not be sent twice; a submit checks by itself only after
 * some idle time. */
void hfi_conn_check_alive(struct hfi_conn *conn);

/* For pub/sub connections: sends bytes that have no reply of their own. */
int hfi_conn_send(struct hfi_conn *conn, const char *bytes, size_t len);

/* No event is posted any more. The request stays in the FIFO to swallow its reply. If nothing
 * has arrived when the reply is overdue, the connection is closed. Drops the reference. NULL is
 * fine. */
void hfi_req_abandon(struct hfi_req *req);
void hfi_req_unref(struct hfi_req *req);
/* The synchronous caller leaves, but its task still wants the reply: another thread has to read
 * it. */
void hfi_req_detach_caller(struct hfi_req *req);

/* A request timed out: closes the connection abortively, unless something has arrived since
 * `since_ms`. */
void hfi_conn_suspect(struct hfi_conn *conn, int64_t since_ms);

/* Reconnects although nothing is wrong. It takes no more requests, is closed when those in
 * flight are answered, and is made again when a task wants it, with the same host first. If it
 * is suspected meanwhile, it is lost like any other. False: not ready, or already being renewed.
 * Only for HFI_DRIVER_KEEPER. */
bool hfi_conn_renew(struct hfi_conn *conn);

/* Closes it if it leads to another server than the one with this identity (all zero: no server).
 * Returns whether it did; the next connection leads to the server that is there then. */
bool hfi_conn_leave_unless(struct hfi_conn *conn, const struct hfi_identity *there);

/* ---- Getting connected ---- */

/* A task that waits for a connection. Its event is posted once, when the connection is ready or
 * an attempt failed. */
struct hfi_want {
    struct hfi_link link;
    struct hfi_task *task;
    unsigned event;
    int err; /* when posted: HF_OK ready, else why not */
    hf_error error;
    unsigned what; /* which slot is wanted: for the cluster route */
    bool hopeless; /* with `err`: none of its host names exists, and none ever answered */
};

/* Asks for the connection. If it is ready, the event is posted at once. The want must stay valid
 * until its event was posted or hfi_conn_unwant() has returned. */
void hfi_conn_want(struct hfi_conn *conn, struct hfi_want *want, struct hfi_task *task,
                   unsigned event);
void hfi_conn_unwant(struct hfi_conn *conn, struct hfi_want *want);

/* A hint for the error message of a caller that stops waiting while the connection is being
 * made. NULL: none. */
const char *hfi_conn_hint(struct hfi_conn *conn);
/* Why the last attempt failed, if the next has not begun; else HF_OK. Any thread. */
int hfi_conn_failure(struct hfi_conn *conn, hf_error *ret);

/* Keeps a connection up even while no task wants it (pub/sub, control). Off: it may stay down. */
void hfi_conn_keep_up(struct hfi_conn *conn, bool up);
bool hfi_conn_is_kept_up(struct hfi_conn *conn); /* any thread */

/* ---- Driving (synchronous callers) ---- */

/* A synchronous caller, as connections know it: embedded in its exchange, all zero at first.
 * Owned by that caller's thread. While it drives or follows, the connection's mutex guards the
 * last three fields. */
struct hfi_sync_caller {
    struct hfi_conn *asked;      /* has its request: driven first. Its owner clears it */
    struct hfi_conn *listens_to; /* driven, for messages, if `asked` is NULL */
    struct hfi_exec *exec;       /* of that thread */
    struct hfi_link link;        /* among the followers */
    atomic_bool following;       /* it is a follower; cleared before its reply's event is posted */
};

/* Waits until `exec`, this thread's, has work: as the driver of the caller's connection, or as a
 * follower. A caller without a connection only sleeps. */
void hfi_conn_drive(struct hfi_sync_caller *sync_caller, struct hfi_exec *exec);

/* For HFI_DRIVER_LISTENERS: a listener waits for messages from now on. A sync caller drives this
 * connection, on its own thread, while `asked` is NULL. Without one (NULL) the keeper reads. */
void hfi_conn_listen(struct hfi_conn *conn, struct hfi_sync_caller *sync_caller);
void hfi_conn_unlisten(struct hfi_conn *conn, struct hfi_sync_caller *sync_caller);
/* A lazy listener wants the messages that are read here, but neither reads nor waits for them. A
 * stalled driver is preempted for its sake, too. */
void hfi_conn_listen_lazily(struct hfi_conn *conn, bool on);
/* Reads the messages that arrived while nobody listened, if there is no driver. */
void hfi_conn_catch_up(struct hfi_conn *conn, struct hfi_exec *exec);

/* ---- Driving (keeper and dispatcher), see keeper.h and conn_driver.c ---- */

/* What the driver polls; -1: nothing. */
int hfi_conn_poll_fd(struct hfi_conn *conn, short *ret_events);
/* For the driver: reads and completes what has arrived, writes what is pending. False: the
 * connection is lost, and has no driver any more. */
bool hfi_conn_on_ready(struct hfi_conn *conn, short revents);
/* For the dispatcher: the descriptor to poll; -1 if it does not drive this connection now. */
int hfi_conn_dispatch_fd(struct hfi_conn *conn, short *ret_events);
/* The same for an epoll set: adds the socket, for the events to poll now. Closing the socket
 * always removes it, since the kernel keeps a closed socket in the set while a forked child has
 * a copy. A set may have any number of connections, a connection only one set. The set outlives
 * them. */
void hfi_conn_enlist(struct hfi_conn *conn, int epoll_fd);
/* Writes what the driver's own submits have gathered, or what was enqueued. */
void hfi_conn_flush(struct hfi_conn *conn);

/* As hfi_tls_until_s(), of the current connection; 0 also without TLS. Any thread. */
int64_t hfi_conn_tls_until_s(struct hfi_conn *conn);

#endif
