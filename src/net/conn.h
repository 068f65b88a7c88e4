/*
 * One connection to a server, driven by whoever waits on it. What it speaks is a table of its
 * target: protocol.h.
 *
 * A request is submitted by appending its bytes; replies come in order, and complete requests by
 * posting to their task. Reading is the work of the one who sits in the driver's seat:
 *   HFI_SEAT_CALLERS   a synchronous caller that waits (hfi_conn_attend); the keeper only when
 *                      nobody else would
 *   HFI_SEAT_LISTENERS the same for messages; the keeper when nobody has waited for a while, and
 *                      for those who listen but do not attend (hfi_conn_listen)
 *   HFI_SEAT_KEEPER    always the keeper
 *   HFI_SEAT_DISPATCH  the thread in hf_dispatch()
 * Connecting, the greeting, and connecting again are always the keeper's work, and happen only
 * while somebody has asked for it (hfi_conn_want).
 */
#ifndef HFI_NET_CONN_H
#define HFI_NET_CONN_H

#include "base/log.h"
#include "base/mem.h"
#include "base/task.h"
#include "net/identity.h"
#include "net/lookup.h"
#include "net/protocol.h"
#include "net/tls.h"

struct hfi_conn;
struct hfi_keeper;
struct hfi_attendant;

enum hfi_seat { HFI_SEAT_CALLERS, HFI_SEAT_LISTENERS, HFI_SEAT_KEEPER, HFI_SEAT_DISPATCH };

/* Where a server may be found. */
struct hfi_host {
    const char *name;       /* for messages, if there are several: "host:port" or a path */
    hfi_resolve_fn resolve; /* NULL: `address` is final */
    const char *resolve_arg;
    struct hfi_addr address;
    const struct hfi_tls_context *tls; /* expects this host; NULL: in clear */
};

/* Whether those who drive connections of callers look for answers before they sleep: await.c. All zero at first; any
 * thread. */
struct hfi_trial {
    _Atomic int64_t period, since_us; /* the present one, and when somebody first waited in it */
    atomic_bool looks;                /* in that */
    atomic_uint answers;              /* in that */
    _Atomic int64_t rates[2];         /* of answers, without and with looking; 0: not tried yet */
};

/* Where a connection leads, what it speaks, and how it introduces itself. Shared by all connections
 * of a node; outlives them. */
struct hfi_target {
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    struct hfi_exec *dispatch;    /* the executor behind HFI_SEAT_DISPATCH, or NULL */
    const struct hfi_host *hosts; /* at least one; tried in turn, by each connection from any on */
    size_t hosts_len;
    bool identified;  /* connections note which server they lead to */
    const char *node; /* for messages: "host:port" or a path; never a password */
    const struct hfi_protocol *protocol;
    void *login;            /* what the protocol's greeting has to know of us */
    int64_t cmd_timeout_ms; /* connect and greeting together */
    int64_t ping_ms;
    bool sleeps_at_once; /* callers never look for an answer before they sleep */
    struct hfi_trial trial;
    atomic_ullong *commands; /* counters of hf_stats */
    atomic_ullong *reconnects;
    _Atomic int64_t last_answer_ms; /* when this node last said anything sensible; 0: never */
    /* Told when a connection could not be made, and why, or was lost (HF_OK). On the keeper's thread; it ends no
     * connection. NULL: nobody is. */
    void (*trouble)(void *arg, int err, const hf_error *error);
    void *trouble_arg;
};

/* What a connection calls for every message that nobody has asked for, on the thread of whoever
 * reads. */
typedef void (*hfi_push_fn)(void *arg, const void *message);
/* Called on the keeper's thread when a connection is ready (up) or has been lost (down). */
typedef void (*hfi_state_fn)(void *arg, bool up);

struct hfi_conn *hfi_conn_new(struct hfi_target *target, enum hfi_seat seat, hfi_push_fn push,
                              hfi_state_fn state, void *arg);
/* On the keeper's thread, even while it tells of another connection's state, or when it has ended.
 * Requests in flight complete with HF_ECLOSED. */
void hfi_conn_free(struct hfi_conn *conn);
/* Nobody is to talk to this server any more: ends the connection abortively, at once, whoever is in the
 * seat. Requests in flight and wants end with HF_EUNREACH, and so do all that come later; it never
 * connects again. On the keeper's thread, outside of what a connection tells, or before anybody else
 * knows the connection. */
void hfi_conn_retire(struct hfi_conn *conn);
/* In a forked child: closes descriptors, touches nothing else. */
void hfi_conn_close_fds(struct hfi_conn *conn);
const struct hfi_target *hfi_conn_target(const struct hfi_conn *conn);

/* ---- Requests ---- */

struct hfi_req {
    atomic_int refs;      /* whoever submitted it, and the FIFO until it is complete */
    struct hfi_link link; /* in the connection's FIFO */
    const struct hfi_mem *mem;
    const struct hfi_protocol *protocol;
    struct hfi_conn *conn;
    /* told when it completes; NULL once abandoned (guarded by the connection's mutex) */
    struct hfi_task *task;
    unsigned event;
    struct hfi_attendant *attendant; /* a synchronous caller looks after it; NULL: nobody does */
    int64_t sent_ms;                 /* when it was submitted: leases count from here */

    /* Set when the event is posted: */
    atomic_bool complete;
    /* HF_OK: `reply` is set (it may be an error reply). Else the connection was lost */
    int err;
    void *reply; /* a message of the protocol, owned by the request */

    /* Sealed ones: what the seal said; or, when the connection was lost, that it was not even sent. One
     * whose seal was lost has its reply, and `err` as well. */
    bool (*needs_seal)(const void *reply); /* NULL: it is not one */
    int64_t sealed;
    bool unsent;

    hf_error error; /* why `err`. Last: what is not zeroed with the rest */
};

/* Is it ready for requests right now? If so, *ret_server_ms is the server's clock (ms since 1970)
 * as of *ret_received_ms on ours: a lower bound for computing `not-after`. */
bool hfi_conn_ready(struct hfi_conn *conn, int64_t *ret_server_ms, int64_t *ret_received_ms);

/* A reply carried the server's clock: remember it. `received_ms` is our time when it arrived. */
void hfi_conn_clock(struct hfi_conn *conn, int64_t server_ms, int64_t received_ms);

/* How busy it is: requests in flight. For choosing one of several. */
unsigned hfi_conn_load(struct hfi_conn *conn);
/* Commands are on it, and were still submitted long after it last said anything. A hint, as the load is. */
bool hfi_conn_stalls(const struct hfi_conn *conn);

/* Sends a formatted command. On HF_OK `event` will be posted to `task` exactly once, unless it is
 * abandoned first; the caller owns *ret_req (hfi_req_unref). HF_EUNREACH: not ready, nothing was
 * sent. Takes no ownership of bytes. With an attendant, for HFI_SEAT_CALLERS: this is the thread of
 * the task's executor, and will attend until the reply is here. NULL: somebody else reads it. */
int hfi_conn_submit(struct hfi_conn *conn, const char *bytes, size_t len, struct hfi_task *task,
                    unsigned event, struct hfi_attendant *attendant, struct hfi_req **ret_req);

/* The same without an attendant, and without writing, so that several go out together: whoever has
 * enqueued calls hfi_conn_flush() next. */
int hfi_conn_enqueue(struct hfi_conn *conn, const char *bytes, size_t len, struct hfi_task *task,
                     unsigned event, struct hfi_req **ret_req);

/* The same for two commands, one behind the other, that no other gets between. The request is for the
 * answer to the second; nobody hears that to the first. */
int hfi_conn_submit_two(struct hfi_conn *conn, const char *bytes, size_t len, struct hfi_task *task,
                        unsigned event, struct hfi_attendant *attendant, struct hfi_req **ret_req);
/* ---- Seals: see seal.c ---- */

/* A command that is sent behind others, and asked of for as much as the most demanding of them wants. */
struct hfi_seal_ops {
    /* Writes it, at most HFI_SEAL_MAX bytes; returns how many. */
    size_t (*write)(void *arg, unsigned want, char *to);
    /* What its answer says: a number, or HF_E..., with words. */
    int64_t (*read)(void *arg, const void *message, hf_error *error);
};
#define HFI_SEAL_MAX 96

struct hfi_sealing {
    unsigned want;
    bool (*needs_seal)(const void *reply); /* else it completes without */
    bool prefaced;                         /* it is two, as for hfi_conn_submit_two() */
};

/* A connection that callers drive, whose requests may be sealed. NULL: no memory or descriptors. */
struct hfi_conn *hfi_conn_new_sealing(struct hfi_target *target, const struct hfi_seal_ops *ops,
                                      void *arg);
/* As hfi_conn_submit(), but it completes when the seal behind it was answered, if its reply needs one. */
int hfi_conn_submit_sealed(struct hfi_conn *conn, const char *bytes, size_t len,
                           struct hfi_task *task, unsigned event, struct hfi_attendant *attendant,
                           const struct hfi_sealing *sealing, struct hfi_req **ret_req);

/* Checks whether the other side has closed an idle connection, so that the next submit does not
 * lose its command in it. For commands that must not be sent twice; a submit checks by itself only
 * after some idle time. */
void hfi_conn_look(struct hfi_conn *conn);

/* For pub/sub connections: sends bytes that have no reply of their own. */
int hfi_conn_send(struct hfi_conn *conn, const char *bytes, size_t len);

/* No event will be posted any more. The request stays in the queue to swallow its reply; if nothing
 * has come when that is overdue, the connection is closed. Drops the reference. NULL is fine. */
void hfi_req_abandon(struct hfi_req *req);
void hfi_req_unref(struct hfi_req *req);
/* Its caller leaves, but its task still wants the reply: somebody else will have to read. */
void hfi_req_unattend(struct hfi_req *req);

/* No answer in time: the connection is closed abortively unless something has arrived since
 * `since_ms`. */
void hfi_conn_suspect(struct hfi_conn *conn, int64_t since_ms);

/* Whether it is connected to another server than the one with this identity (all zero: there is
 * none). If so it is closed, and the next leads to whatever is there then. */
bool hfi_conn_leave_unless(struct hfi_conn *conn, const struct hfi_identity *there);

/* ---- Getting connected ---- */

/* Somebody who waits for a connection. One task, one event: posted once, when it is ready or an
 * attempt failed. */
struct hfi_want {
    struct hfi_link link;
    struct hfi_task *task;
    unsigned event;
    int err; /* when posted: HF_OK ready, else why not */
    hf_error error;
    unsigned what; /* for whoever is asked: what is wanted */
};

/* Asks for the connection. If it is already ready, the event is posted at once. The want must stay
 * valid until its event was posted or hfi_conn_unwant() has returned. */
void hfi_conn_want(struct hfi_conn *conn, struct hfi_want *want, struct hfi_task *task,
                   unsigned event);
void hfi_conn_unwant(struct hfi_conn *conn, struct hfi_want *want);

/* A hint for the error message when somebody stops waiting for a connection that is being made.
 * NULL: none. */
const char *hfi_conn_hint(struct hfi_conn *conn);
/* The last attempt has failed, the next has not begun: why, in words too. HF_OK: it is not so. Any thread. */
int hfi_conn_failure(struct hfi_conn *conn, hf_error *ret);

/* Keeps one of the keeper's connections up even while nobody waits for it (pub/sub, control). Off:
 * it may stay down. */
void hfi_conn_keep_up(struct hfi_conn *conn, bool up);

/* ---- Driving (synchronous callers) ---- */

/* A synchronous caller, as connections know it: a part of whatever it waits with, all zero at first.
 * It is used by that caller's thread alone, but for the last three, which the connection's mutex
 * guards while it attends. */
struct hfi_attendant {
    struct hfi_conn *asked;      /* has its request: attended first. Its owner clears it */
    struct hfi_conn *listens_to; /* attended when it has asked nothing: for messages */
    struct hfi_exec *exec;       /* of that thread */
    struct hfi_link link;        /* among the followers, beside the seat */
    atomic_bool following;       /* it is there; cleared before it is told that its reply came */
};

/* Waits until `exec`, this thread's, has work: in the driver's seat of the connection that it
 * attends, or beside it if that is taken. One that attends none only sleeps. */
void hfi_conn_attend(struct hfi_attendant *attendant, struct hfi_exec *exec);

/* For HFI_SEAT_LISTENERS. Somebody waits for messages from now on, and attends to it when it has
 * asked nothing elsewhere (on its own thread); NULL is one who does not attend, so the keeper
 * reads. */
void hfi_conn_listen(struct hfi_conn *conn, struct hfi_attendant *attendant);
void hfi_conn_unlisten(struct hfi_conn *conn, struct hfi_attendant *attendant);
/* Somebody hears what is read here, and neither reads nor waits for it. If whoever reads is stuck, it
 * is relieved for its sake, too. */
void hfi_conn_overhear(struct hfi_conn *conn, bool on);
/* Reads what has arrived while nobody listened, if nobody is there to do it. */
void hfi_conn_catch_up(struct hfi_conn *conn, struct hfi_exec *exec);

/* ---- Driving (keeper and dispatcher), see keeper.h and seat.c ---- */

/* What the one in the seat polls; -1: nothing. */
int hfi_conn_poll_fd(struct hfi_conn *conn, short *ret_events);
/* Reads and completes what has arrived, writes what is waiting. For the holder of the seat. False:
 * the connection is lost, and the seat with it. */
bool hfi_conn_service(struct hfi_conn *conn, short revents);
/* For the dispatcher: the descriptor to poll, or -1 while the connection is not its to drive. */
int hfi_conn_dispatch_fd(struct hfi_conn *conn, short *ret_events);
/* The same for an epoll set: puts the socket in, for what is to be polled now. It leaves the set
 * when it is closed, always, since the kernel keeps a closed socket in there for as long as a
 * forked child has a copy of it. Any number of connections may be in one set, each only in one; it
 * outlives them. */
void hfi_conn_enlist(struct hfi_conn *conn, int epoll_fd);
/* Writes what submits on the seat's own thread have gathered, or what was enqueued. */
void hfi_conn_flush(struct hfi_conn *conn);

/* As hfi_tls_until_s(), of the connection there is now; 0 also without TLS. Any thread. */
int64_t hfi_conn_tls_until_s(struct hfi_conn *conn);

#endif
