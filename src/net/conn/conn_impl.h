/*
 * The connection's internals, shared by src/net/conn and src/net/driver. Only these and their tests
 * include this.
 *
 *   conn.c          life, abandoning requests, losing the connection
 *   send.c          submitting, the output buffer
 *   receive.c       reading, completing requests, delivering messages
 *   conn_driver.c   leader/followers: which thread drives
 *   driver_wait.c   how the driver waits: poll, recv(), spin
 *   driver_stall.c  preempting a driver that does not come back
 *   connect.c       hosts, lookup, connect, TLS, greeting (the keeper's thread)
 *   reconnect.c     when to connect again: back-off (the keeper's thread)
 *   conn_health.c   wants, pings (the keeper's thread)
 *   ack_batch.c     requests that complete when an ack command behind them is answered
 *   retire.c        ending it for good
 *   tls.c           between the two buffers and the socket, if the target wants it
 *   keeper.c        the keeper's thread
 *   keeper_borrow.c callers that borrow its loop
 *
 * The protocol is behind protocol.h: resp.c and resp_greet.c do not include this.
 *
 * Lock order: connection, then task, then executor.
 */
#ifndef HFI_NET_CONN_CONN_IMPL_H
#define HFI_NET_CONN_CONN_IMPL_H

#include "net/conn/conn.h"
#include "net/driver/keeper.h"

#include "base/clock.h"
#include "base/error.h"

#define HFI_EVENT_QUERIED (~0u) /* of a request whose answer goes to its protocol (protocol.h) */

enum conn_state {
    CONN_DOWN,
    CONN_RESOLVING,
    CONN_CONNECTING,
    CONN_TLS, /* its handshake */
    CONN_GREETING,
    CONN_READY,
    CONN_CLOSED
};

struct buffer {
    char *bytes;
    size_t len, cap;
};

/* On the stack of a thread that is in send(). */
struct writer {
    bool disowned; /* the connection was lost: this writer closes the socket and frees `writing` */
};

/* Whether spinning before recv() pays: driver_wait.c. Owned by the driver. */
struct spin_state {
    unsigned skip;        /* commands not to spin for */
    unsigned next_skip;   /* doubled when a spin does not pay, halved when it does */
    unsigned until_check; /* then count the processors again */
};

struct hfi_conn {
    struct hfi_target *target;
    enum hfi_driver_policy driver_policy;
    hfi_push_fn push;
    hfi_state_fn on_state;
    void *arg;

    pthread_mutex_t mtx;           /* guards all below, except where a line names another owner */
    _Atomic enum conn_state state; /* read without the mutex only as a hint, or by its changer */
    int fd;                        /* closed only by the driver */
    int receive_fd;                /* a copy to wait in recv() for a tick at most; or -1 */
    int poll_set;                  /* the epoll set that `fd` is in, or -1 */
    unsigned poll_events;          /* its events there */
    unsigned generation;           /* counts connections made */
    /* what the server calls this one, and called the last one that was ready */
    struct hfi_conn_id id, last_id;
    unsigned last_generation; /* of that one */
    atomic_bool broken;       /* to be torn down by the driver */
    bool lost;                /* was ready; the keeper has yet to report the loss */
    bool retired;             /* will never connect again */
    atomic_bool renewing;     /* takes no requests until it is made anew */

    /* The driver. */
    int wake_fd;               /* a driving caller polls it beside the socket; -1: not yet */
    struct hfi_exec *driver;   /* NULL: none */
    struct hfi_link followers; /* sync callers that wait for the driver */
    unsigned sync_callers;     /* requests in flight with a sync caller */
    unsigned keeper_listeners; /* listeners for which the keeper must read */
    unsigned lazy_listeners;   /* want messages, but do not wait for them */
    struct hfi_alarm adopt;    /* the keeper takes over if no listener comes */
    bool adopt_is_set;
    bool left_lately;             /* a driver has left since `adopt` was set */
    struct hfi_alarm stall_check; /* the keeper checks for a stalled driver */
    bool stall_check_is_set;
    /* Callers have met here: for so many commands no driver waits in recv(). */
    unsigned contended_left;
    const struct hfi_exec *stalled; /* was stalled at the last check */
    unsigned stalled_polls;
    unsigned stalled_checks; /* how many checks in a row */

    /* Requests. */
    struct hfi_link fifo;
    atomic_uint in_flight;       /* read without the mutex as a hint */
    struct ack_batch *ack_batch; /* NULL: no acks */
    bool is_doubted;             /* `doubt` is set */
    struct hfi_alarm doubt;
    unsigned unsent;
    struct hfi_link gathered; /* the keeper has output to write; only its thread uses this */
    struct buffer out;        /* submits append here */
    struct buffer writing;    /* being written, from write_pos; only its writer changes it */
    size_t write_pos;
    struct writer *writer; /* the thread in send(); NULL: none */
    struct hfi_tls *tls;   /* NULL: `out` is sent as it is; else `writing` is encrypted */
    atomic_bool blocked;   /* the socket is full: poll for POLLOUT */

    /* Owned by the driver. */
    void *reader;   /* the protocol's; NULL before the first greeting */
    unsigned ticks; /* cost of recv() waits that timed out, decaying */
    struct spin_state spin_state;

    _Atomic int64_t last_rx_ms; /* 0: nothing received on this connection yet */
    _Atomic int64_t last_submit_ms;
    _Atomic int64_t busy_since_ms;    /* when a submit found nothing in flight */
    _Atomic int64_t clock_ahead_ms;   /* lower bound: the server's clock less ours */
    _Atomic int64_t clock_limit_ms;   /* upper bound of the same */
    _Atomic int64_t clock_read_ms;    /* when that was measured, on ours; 0: not yet */
    _Atomic int64_t clock_stepped_ms; /* when two readings contradicted each other; 0: never */

    /* Getting connected: wants under the mutex, the rest owned by the keeper's thread. */
    struct hfi_link wants;
    bool keep_up;
    struct hfi_lookup *lookup;
    struct hfi_identity identity; /* of its server, if known; under the mutex */
    struct hfi_addr addrs[HFI_LOOKUP_MAX_ADDRS];
    size_t addrs_len, addrs_next;
    size_t host;       /* the target's host that is, or was last, tried */
    size_t hosts_left; /* to be tried in this attempt, including `host` */
    bool has_tried;    /* any host */
    size_t nowhere;    /* hosts of this attempt that do not exist */
    bool renews;       /* this attempt follows no loss */
    hf_error why;      /* why this or the last attempt failed; under `mtx` */
    int64_t connect_deadline_ms, host_deadline_ms, retry_at_ms;
    unsigned failures;
    int64_t ready_since_ms;
    unsigned short_lives; /* connections in a row that were lost soon after they were made */
    bool was_ready;
    int64_t ping_sent_ms; /* 0: no ping is out */
    struct hfi_alarm alarm;
    void *greeting; /* the protocol's; NULL: none is under way */
    bool greeted;   /* the greeting is complete */
};

/* send.c */
bool hfi_buffer_append(const struct hfi_mem *mem, struct buffer *buffer, const char *bytes,
                       size_t len);
void hfi_conn_flush_locked(struct hfi_conn *conn);
void hfi_conn_discard_output(struct hfi_conn *conn); /* locked */
/* Appends so many commands to the output; HF_ENOMEM. The second appends a request, whose command
 * was appended, to the FIFO. */
int hfi_conn_append_locked(struct hfi_conn *conn, const char *bytes, size_t len, unsigned commands);
void hfi_conn_push_locked(struct hfi_conn *conn, struct hfi_req *req);
/* The same, behind the requests in front of it, if any. */
void hfi_conn_push_all_locked(struct hfi_conn *conn, struct hfi_req *req);
/* Does it accept requests? Without the mutex, a hint. */
static inline bool hfi_conn_takes(const struct hfi_conn *conn) {
    return conn->state == CONN_READY && !atomic_load(&conn->broken) &&
           !atomic_load(&conn->renewing);
}

/* receive.c */
/* Reads once. HF_OK: go on. Otherwise the connection is no longer usable, and `error` says why. */
int hfi_conn_read(struct hfi_conn *conn, hf_error *error);
/* The same during the TLS handshake, which it feeds. */
int hfi_conn_read_tls_handshake(struct hfi_conn *conn, hf_error *error);
/* An idle connection without a driver is readable. Is it only TLS housekeeping? Locked. */
bool hfi_conn_is_tls_talk(struct hfi_conn *conn);

/* conn.c */
/* The request is off the FIFO, or the connection is lost: posts its event, unless it was
 * abandoned. */
void hfi_req_complete_locked(struct hfi_conn *conn, struct hfi_req *req, struct hfi_wakes *wakes);
/* By the driver; unlocked. */
void hfi_conn_lose(struct hfi_conn *conn, int err, const hf_error *error);
void hfi_conn_close_socket(struct hfi_conn *conn); /* locked */
/* Ends the connection and leaves closing the socket to the driver. Abortively: the server must
 * not read what it has not read yet. Locked. */
void hfi_conn_hang_up(const struct hfi_conn *conn, bool abortively);
/* Makes the driver tear it down. */
void hfi_conn_break_locked(struct hfi_conn *conn);

/* ack_batch.c */
/* Puts a request into the FIFO; if an ack command is out, into the next batch. */
int hfi_ack_batch_submit_locked(struct hfi_conn *conn, struct hfi_req *req, const char *bytes,
                                size_t len, const struct hfi_ack_request *ack_request);
/* A request off the FIFO has its reply. True: it waits for its ack, or was the ack command. */
bool hfi_ack_batch_takes_locked(struct hfi_conn *conn, struct hfi_req *req,
                                struct hfi_wakes *wakes);
/* The connection is lost: moves all requests that are not in the FIFO to *ret_orphans. */
void hfi_ack_batch_lose_locked(struct hfi_conn *conn, struct hfi_link *ret_orphans);
void hfi_ack_batch_free(struct hfi_conn *conn);

/* For the driver: hfi_conn_on_ready() with the result of its own recv(). */
bool hfi_conn_consume(struct hfi_conn *conn, char *chunk, size_t size, ssize_t got, int sys_errno);

/* driver_wait.c: for the driver */
enum hfi_driver_wake {
    HFI_DRIVER_READY,    /* perhaps readable: check again */
    HFI_DRIVER_HAS_WORK, /* its executor has something to run */
    HFI_DRIVER_REPLACED  /* it drives no more; the connection may be lost */
};
enum hfi_driver_wake hfi_driver_wait(struct hfi_conn *conn, struct hfi_exec *exec);
/* The same for a driver whose command is the only one in flight; call the second when becoming
 * the driver. */
enum hfi_driver_wake hfi_driver_wait_alone(struct hfi_conn *conn, struct hfi_exec *exec);
bool hfi_conn_is_alone_locked(struct hfi_conn *conn);
#define HFI_CONTENDED_COMMANDS 1000

/* conn_driver.c */
/* Its reply is here: it no longer follows. */
void hfi_follower_remove_locked(struct hfi_sync_caller *sync_caller);
void hfi_driver_release_locked(struct hfi_conn *conn);
/* The keeper drives a connection that no caller would. */
bool hfi_driver_adopt_locked(struct hfi_conn *conn);
void hfi_driver_adopt_fired(struct hfi_alarm *alarm);
/* The keeper stops driving if a caller waits, or if nothing is left to read. */
bool hfi_driver_yield_locked(struct hfi_conn *conn);

/* driver_stall.c */
/* A caller or listener depends on the driver: the keeper checks it for stalls. */
void hfi_driver_watch_locked(struct hfi_conn *conn);
void hfi_driver_stall_fired(struct hfi_alarm *alarm);

/* connect.c: the keeper's thread */
void hfi_conn_start_connecting(struct hfi_conn *conn);
void hfi_conn_poll_lookup(struct hfi_conn *conn);
/* The time of this host is over. */
void hfi_conn_host_is_silent(struct hfi_conn *conn);
/* The greeting could not be sent. */
void hfi_conn_give_up_greeting(struct hfi_conn *conn);
/* The socket of a connect is ready. */
void hfi_conn_progress(struct hfi_conn *conn);
void hfi_conn_connect_failed(struct hfi_conn *conn, int err, const hf_error *error);
/* None of its host names exists, and none ever answered. On the keeper's thread. */
bool hfi_conn_is_hopeless(const struct hfi_conn *conn);
/* The next message of the greeting; sets `greeted` at its end. */
int hfi_conn_greeted(struct hfi_conn *conn, const void *message, hf_error *error);

/* conn_health.c: the keeper's thread */
void hfi_conn_maintain(struct hfi_conn *conn);
void hfi_conn_notify_wants_locked(struct hfi_conn *conn, int err, const hf_error *error);

/* reconnect.c: the keeper's thread */
int64_t hfi_conn_backoff_ms(const struct hfi_conn *conn, unsigned failures);
/* When to try again after a connection was lost. */
int64_t hfi_conn_after_loss_ms(struct hfi_conn *conn, int64_t now_ms);
/* Connects if a want or keep_up asks for it and the back-off is over; else sets the alarm. */
void hfi_conn_reconnect_if_wanted(struct hfi_conn *conn, int64_t now_ms);

#endif
