/*
 * A session with an ensemble, and its one connection: connect, handshake, pings, requests and
 * replies, and how long the session is valid.
 *
 * The keeper drives the connection. When a session is over, the next one gets the next number. The
 * servers have deleted all nodes of the old session, or are about to.
 */
#ifndef HFI_ZK_SESSION_SESSION_H
#define HFI_ZK_SESSION_SESSION_H

#include "engine/config.h"
#include "net/conn/conn.h"
#include "zk/session/session_validity.h"
#include "zk/wire/errors.h"
#include "zk/wire/wire.h"

struct hfi_zk_session;

/* Callbacks of a session. They run on the keeper's thread, with no mutex held. */
struct hfi_zk_session_hooks {
    void (*event)(void *arg, const struct hfi_zk_event *event); /* a watch fired */
    void (*state)(void *arg, bool up);                          /* the connection is up, or down */
    /* the connection is being replaced on purpose; its watches are gone */
    void (*renewed)(void *arg);
    void (*shortened)(void *arg); /* the session's validity got shorter */
    /* The session is over, and so are all its nodes. */
    void (*over)(void *arg, const char *why);
};

int hfi_zk_session_new(const struct hfi_engine_config *config,
                       const struct hfi_zk_session_hooks *hooks, void *arg,
                       struct hfi_zk_session **ret, hf_error *error);
/* Closes the connection. With `at_once` it sends closeSession first: the server then deletes the
 * session's nodes at once, not when the session times out. On the keeper's thread. */
void hfi_zk_session_stop(struct hfi_zk_session *session, bool at_once);
void hfi_zk_session_free(struct hfi_zk_session *session); /* after stop; NULL is fine */
void hfi_zk_session_close_fds(struct hfi_zk_session *session);
bool hfi_zk_session_stopped(const struct hfi_zk_session *session);

const char *hfi_zk_session_node(const struct hfi_zk_session *session); /* for messages */
struct hfi_conn *hfi_zk_session_conn(struct hfi_zk_session *session);
/* When any server last sent anything; 0: never. */
int64_t hfi_zk_session_last_received_ms(const struct hfi_zk_session *session);
/* The last session is over and the next has not begun, so it is worth connecting once more. */
bool hfi_zk_session_begins_anew(const struct hfi_zk_session *session);

/* Adds or removes a user of the connection. While there is at least one, a lost connection is
 * reconnected. */
void hfi_zk_session_keep(struct hfi_zk_session *session, bool on);

/* ---- Validity -------------------------------------------------------------------------------- */

struct hfi_zk_credit {
    uint64_t number;       /* of the session; 0: none so far */
    int64_t id;            /* the server's session id */
    int64_t timeout_ms;    /* T */
    int64_t good_until_ms; /* 0: no valid session */
    int64_t heartbeat_at_ms;
};
struct hfi_zk_credit hfi_zk_session_credit(struct hfi_zk_session *session);

/* ---- Requests -------------------------------------------------------------------------------- */

/* A request in flight. All zero: none. */
struct hfi_zk_ask {
    struct hfi_req *req;
    int32_t xid;
    bool commits; /* it needs a quorum commit */
    bool multi;   /* its results say whether it was done */
    uint64_t number, greeting;
};

/* Sends `len` requests, whose frames are in `out`, in one write. `events[i]` is posted to `task`
 * when asks[i] is complete. Bit i of `commits`: request i needs a quorum commit. *number: the
 * session it must run in; 0: any, and then it is set. HF_EUNREACH: nothing was sent, since there is
 * no connection or it is being replaced so that requests prove more (session_validity.h). HF_ELOST:
 * that session is over. HF_ENOMEM: the requests may have been sent nevertheless. */
int hfi_zk_session_submit(struct hfi_zk_session *session, struct hfi_zk_out *out, size_t len,
                          unsigned commits, struct hfi_task *task, const unsigned *events,
                          struct hfi_zk_ask *asks, uint64_t *number);

/* The reply to a complete request. HF_OK: header->err is the server's error code and `body` the
 * rest, valid until the ask is dropped. HF_EUNREACH: there is no reply, and the request may or may
 * not have been carried out; also if the reply is to another request, and then the connection is
 * dropped. HF_ECLOSED. */
int hfi_zk_session_answer(struct hfi_zk_session *session, const struct hfi_zk_ask *ask,
                          struct hfi_zk_header *header, struct hfi_zk_in *body, hf_error *error);

/* Ends the interest in a request, answered or not. */
void hfi_zk_session_drop(struct hfi_zk_session *session, struct hfi_zk_ask *ask);

/* A reply cannot be parsed: drop the connection and try another. */
void hfi_zk_session_invalidate(struct hfi_zk_session *session);

#endif
