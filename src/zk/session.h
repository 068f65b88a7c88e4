/*
 * A session with an ensemble, and its one connection, which the keeper drives: connecting, the
 * handshake, pings, requests and their answers, how long the session can be trusted.
 *
 * A session that is over is followed by another, with the next number; whatever belonged to the last
 * one is gone from the servers, or about to be.
 */
#ifndef HFI_ZK_SESSION_H
#define HFI_ZK_SESSION_H

#include "engine/config.h"
#include "net/conn.h"
#include "zk/errors.h"
#include "zk/trust.h"
#include "zk/wire.h"

struct hfi_zk_session;

/* What a session tells, on the keeper's thread, under no mutex. */
struct hfi_zk_session_hooks {
    void (*event)(void *arg, const struct hfi_zk_event *event); /* of a watch */
    void (*state)(void *arg, bool up);                          /* of the connection */
    /* A session is over, and so is everything that it had. */
    void (*over)(void *arg, const char *why);
};

int hfi_zk_session_new(const struct hfi_engine_config *config,
                       const struct hfi_zk_session_hooks *hooks, void *arg,
                       struct hfi_zk_session **ret, hf_error *error);
/* Closes the connection, and if `at_once` ends the session first: then everything that it had goes at
 * once, and not when it has timed out. On the keeper's thread. */
void hfi_zk_session_stop(struct hfi_zk_session *session, bool at_once);
void hfi_zk_session_free(struct hfi_zk_session *session); /* after stop; NULL is fine */
void hfi_zk_session_close_fds(struct hfi_zk_session *session);
bool hfi_zk_session_stopped(const struct hfi_zk_session *session);

const char *hfi_zk_session_node(const struct hfi_zk_session *session); /* for messages */
struct hfi_conn *hfi_zk_session_conn(struct hfi_zk_session *session);
/* When a server last said anything; 0: never. */
int64_t hfi_zk_session_heard_ms(const struct hfi_zk_session *session);
/* The last one is over, and the next has not begun: connecting once more is worth it. */
bool hfi_zk_session_begins_anew(const struct hfi_zk_session *session);

/* Somebody depends on the connection, or does not any more: as long as anybody does it is made again
 * when it is lost. */
void hfi_zk_session_keep(struct hfi_zk_session *session, bool on);

/* ---- What it is worth ------------------------------------------------------------------------ */

struct hfi_zk_credit {
    uint64_t number;       /* of the session; 0: there was none yet */
    int64_t id;            /* as servers know it */
    int64_t timeout_ms;    /* T */
    int64_t good_until_ms; /* 0: there is none */
    int64_t heartbeat_at_ms;
};
struct hfi_zk_credit hfi_zk_session_credit(struct hfi_zk_session *session);

/* ---- Requests -------------------------------------------------------------------------------- */

/* A request under way. All zero: none. */
struct hfi_zk_ask {
    struct hfi_req *req;
    int32_t xid;
    bool commits; /* its answer proves that the leader knows the session */
    uint64_t number;
};

/* Sends `len` requests, whose frames are in `out`, in one write; each `events[i]` is posted to `task`
 * when asks[i] is complete. `commits` has a bit for each that a quorum has to commit. *number: in this
 * session only; 0: in any, and then it is set. HF_EUNREACH: there is no connection, nothing was sent;
 * HF_ELOST: that session is over; HF_ENOMEM: they may have been sent all the same. */
int hfi_zk_session_submit(struct hfi_zk_session *session, struct hfi_zk_out *out, size_t len,
                          unsigned commits, struct hfi_task *task, const unsigned *events,
                          struct hfi_zk_ask *asks, uint64_t *number);

/* The answer of one that is complete. HF_OK: header->err is what the server says, and `body` what
 * follows, valid until the ask is dropped. HF_EUNREACH: there is none, nobody knows if it was done;
 * HF_ECLOSED; HF_EPROTO: it makes no sense, and the connection is dropped. */
int hfi_zk_session_answer(struct hfi_zk_session *session, const struct hfi_zk_ask *ask,
                          struct hfi_zk_header *header, struct hfi_zk_in *body, hf_error *error);

/* Nobody waits for it any more, or it was answered. */
void hfi_zk_session_drop(struct hfi_zk_session *session, struct hfi_zk_ask *ask);

/* What came cannot be read: another connection may do better. */
void hfi_zk_session_distrust(struct hfi_zk_session *session);

#endif
