/*
 * What the files of src/net share: the connection's insides. Nobody else includes this.
 *
 *   conn.c       life, giving up requests, losing the connection
 *   send.c       submitting, the output buffer
 *   receive.c    reading, completing requests, handing on messages
 *   seat.c       who reads: callers taking, offering and leaving the seat
 *   await.c      how whoever is in the seat waits
 *   relief.c     somebody in the seat who does not come back
 *   connect.c    getting connected: hosts, lookup, connect, TLS, greeting (the keeper's thread)
 *   tend.c       who wants it, back-off, pings (the same)
 *   seal.c       requests that complete when a command behind them was answered
 *   retire.c     ending it for good, whoever uses it
 *   tls.c        between the two buffers and the socket, if the target wants it
 *   keeper.c     the keeper's thread
 *   chair.c      callers that stand in for it
 *
 * What is spoken is behind protocol.h: resp.c and resp_greet.c do not include this.
 *
 * Lock order: connection, then task, then executor.
 */
#ifndef HFI_NET_IMPL_H
#define HFI_NET_IMPL_H

#include "net/conn.h"
#include "net/keeper.h"

#include "base/clock.h"
#include "base/error.h"

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
    bool disowned; /* the connection was lost: its socket and `writing` are the writer's to end */
};

/* Whether it pays to look for an answer before sleeping: await.c. Owned by the holder of the seat. */
struct looking {
    unsigned skip;        /* so many commands are not looked for */
    unsigned next_skip;   /* and so many, or twice that, when it does not pay the next time */
    unsigned until_check; /* then it looks again how many processors there are */
};

struct hfi_conn {
    struct hfi_target *target;
    enum hfi_seat seat;
    hfi_push_fn push;
    hfi_state_fn on_state;
    void *arg;

    pthread_mutex_t mtx;           /* guards all below, except where a line names another owner */
    _Atomic enum conn_state state; /* read without the mutex only as a hint, or by its changer */
    int fd;                        /* closed only by the holder of the seat */
    int receive_fd;                /* the same, to wait in recv() for a tick at most; or -1 */
    int poll_set;                  /* the epoll set that `fd` is in, or -1 */
    unsigned poll_events;          /* what it is there for */
    unsigned generation;           /* counts connections made */
    atomic_bool broken;            /* to be torn down by the holder of the seat */
    bool lost;                     /* was ready and no longer is: the keeper has yet to say so */
    bool retired;                  /* and will never be again */

    /* The seat. */
    int kick_fd;               /* what a caller in the seat polls beside the socket; -1: not yet */
    struct hfi_exec *driver;   /* NULL: empty */
    struct hfi_link followers; /* attendants who wait beside it */
    unsigned attendants;       /* requests in flight that a caller looks after */
    unsigned wards;            /* listeners who cannot read for themselves */
    unsigned overhearers;      /* who hear what is read, and wait for nothing */
    struct hfi_alarm adopt;    /* the keeper looks if anybody still comes to listen */
    bool adopt_is_set;
    bool left_lately;        /* somebody has left the seat since it last looked */
    struct hfi_alarm relief; /* the keeper looks if a caller in the seat is stuck */
    bool relief_is_set;
    unsigned met; /* callers have met here: so many commands are not waited for in recv() */
    const struct hfi_exec *idler; /* had something to do when it last looked, and did nothing */
    unsigned idler_polls;
    unsigned idler_looks; /* it has seen that idler so often */

    /* Requests. */
    struct hfi_link fifo;
    atomic_uint in_flight; /* read without the mutex as a hint */
    struct seal *seal;     /* NULL: none are used */
    bool is_doubted;       /* `doubt` is set */
    struct hfi_alarm doubt;
    unsigned unsent;
    struct hfi_link gathered; /* the keeper is to write; it alone looks at this */
    struct buffer out;        /* appended to by submits */
    struct buffer writing;    /* being written, from write_pos; not to be changed by others */
    size_t write_pos;
    struct writer *writer; /* who is in send(); NULL: nobody */
    struct hfi_tls *tls;   /* NULL: `out` is sent as it is; else `writing` is what TLS made of it */
    atomic_bool blocked;   /* the socket takes no more: poll for POLLOUT */

    /* Owned by the holder of the seat. */
    void *reader;   /* the protocol's; NULL before the first greeting */
    unsigned ticks; /* how often waiting in recv() has not paid of late */
    struct looking looking;

    _Atomic int64_t last_rx_ms; /* 0: nothing has come on this connection yet */
    _Atomic int64_t last_submit_ms;
    _Atomic int64_t busy_since_ms;  /* when something was submitted and nothing else in flight */
    _Atomic int64_t clock_ahead_ms; /* the server's clock less ours, at least */

    /* Getting connected: wants under the mutex, the rest the keeper's. */
    struct hfi_link wants;
    bool keep_up;
    struct hfi_lookup *lookup;
    struct hfi_identity identity; /* of the server it leads to, if known; under the mutex */
    struct hfi_addr addrs[HFI_LOOKUP_MAX_ADDRS];
    size_t addrs_len, addrs_next;
    size_t host;       /* which of the target's is tried, or was last */
    size_t hosts_left; /* to be tried in this attempt, with that one */
    bool has_tried;    /* any */
    hf_error why;      /* how this attempt has failed so far, or the last one; under `mtx` */
    int64_t connect_deadline_ms, host_deadline_ms, retry_at_ms;
    unsigned failures;
    int64_t ready_since_ms;
    unsigned short_lives; /* connections in a row that were lost soon after they were made */
    bool was_ready;
    int64_t ping_sent_ms; /* 0: no ping is out */
    struct hfi_alarm alarm;
    void *greeting; /* the protocol's; NULL: none is under way */
    bool greeted;   /* the other side has answered all of it */
};

/* send.c */
bool hfi_buffer_append(const struct hfi_mem *mem, struct buffer *buffer, const char *bytes,
                       size_t len);
void hfi_conn_flush_locked(struct hfi_conn *conn);
void hfi_conn_discard_output(struct hfi_conn *conn); /* locked */
/* Adds so many commands to the output; HF_ENOMEM. And a request whose command was added to the FIFO. */
int hfi_conn_append_locked(struct hfi_conn *conn, const char *bytes, size_t len, unsigned commands);
void hfi_conn_push_locked(struct hfi_conn *conn, struct hfi_req *req);

/* receive.c */
/* Reads once. HF_OK: go on. Otherwise the connection is no longer usable, and `error` says why. */
int hfi_conn_read(struct hfi_conn *conn, hf_error *error);
/* The same during the TLS handshake, which it feeds. */
int hfi_conn_read_tls_handshake(struct hfi_conn *conn, hf_error *error);
/* Something has arrived on an idle connection whose seat is empty. Is it only TLS housekeeping?
 * Locked. */
bool hfi_conn_is_tls_talk(struct hfi_conn *conn);

/* conn.c */
/* The request is off the FIFO, or the connection is lost: tells its task, if it still has one. */
void hfi_req_complete_locked(struct hfi_conn *conn, struct hfi_req *req, struct hfi_wakes *wakes);
/* holder of the seat; unlocked */
void hfi_conn_lose(struct hfi_conn *conn, int err, const hf_error *error);
void hfi_conn_close_socket(struct hfi_conn *conn); /* locked */
/* Ends what the socket carries, and leaves it to the holder of the seat to close it. Abortively: what
 * the server has not read yet must not be read any more. Locked. */
void hfi_conn_hang_up(const struct hfi_conn *conn, bool abortively);
/* The holder of the seat will tear it down. */
void hfi_conn_break_locked(struct hfi_conn *conn);

/* seal.c */
/* Puts a request into the FIFO, or among those that go when the seal that is out has come back. */
int hfi_seal_submit_locked(struct hfi_conn *conn, struct hfi_req *preface, struct hfi_req *req,
                           const char *bytes, size_t len, const struct hfi_sealing *sealing);
/* A request off the FIFO has its reply. True: it waits for its seal, or was one. */
bool hfi_seal_takes_locked(struct hfi_conn *conn, struct hfi_req *req, struct hfi_wakes *wakes);
/* The connection is lost: gives away all that are not in the FIFO. */
void hfi_seal_lose_locked(struct hfi_conn *conn, struct hfi_link *ret_orphans);
void hfi_seal_free(struct hfi_conn *conn);

/* For the holder of the seat: the same as hfi_conn_service() with what a recv() of its own has given. */
bool hfi_conn_serve(struct hfi_conn *conn, char *chunk, size_t size, ssize_t got, int sys_errno);

/* await.c: for the holder of the seat */
enum hfi_awaited {
    HFI_AWAITED_NEWS, /* perhaps: look again */
    HFI_AWAITED_WORK, /* its executor has something to run */
    HFI_AWAITED_LOSS  /* of the seat, perhaps with the connection */
};
enum hfi_awaited hfi_conn_await(struct hfi_conn *conn, struct hfi_exec *exec);
/* The same for one that has the only command in flight, as this says when it takes the seat. */
enum hfi_awaited hfi_conn_await_alone(struct hfi_conn *conn, struct hfi_exec *exec);
bool hfi_conn_is_alone_locked(struct hfi_conn *conn);
#define HFI_MET 1000

/* seat.c */
/* its reply is here: it no longer waits for the seat */
void hfi_seat_excuse_locked(struct hfi_attendant *attendant);
void hfi_seat_leave_locked(struct hfi_conn *conn);
/* the keeper takes a seat that nobody else would */
bool hfi_seat_adopt_locked(struct hfi_conn *conn);
void hfi_seat_adopt_fired(struct hfi_alarm *alarm);
/* the keeper is in the seat, and leaves it to a caller, or if nothing is left to read */
bool hfi_seat_yield_locked(struct hfi_conn *conn);

/* relief.c */
/* Somebody depends on whoever is in the seat: the keeper has an eye on it. */
void hfi_seat_watch_locked(struct hfi_conn *conn);
void hfi_seat_relief_fired(struct hfi_alarm *alarm);

/* connect.c: the keeper's thread */
void hfi_conn_start_connecting(struct hfi_conn *conn);
void hfi_conn_look_at_lookup(struct hfi_conn *conn);
/* the time of this host is over */
void hfi_conn_host_is_silent(struct hfi_conn *conn);
/* the greeting could not be sent */
void hfi_conn_give_up_greeting(struct hfi_conn *conn);
/* the socket of a connect is ready */
void hfi_conn_progress(struct hfi_conn *conn);
void hfi_conn_connect_failed(struct hfi_conn *conn, int err, const hf_error *error);
/* the next message of the greeting; it is over when `greeted` is set */
int hfi_conn_greeted(struct hfi_conn *conn, const void *message, hf_error *error);

/* tend.c: the keeper's thread */
void hfi_conn_tend(struct hfi_conn *conn);
void hfi_conn_tell_wants_locked(struct hfi_conn *conn, int err, const hf_error *error);
int64_t hfi_conn_backoff_ms(const struct hfi_conn *conn, unsigned failures);

#endif
