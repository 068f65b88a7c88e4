/* The session's private state. Only session.c, session_new.c and frames.c include this. */
#ifndef HFI_ZK_SESSION_SESSION_IMPL_H
#define HFI_ZK_SESSION_SESSION_IMPL_H

#include "zk/session/session.h"

struct hfi_zk_session {
    struct hfi_mem mem; /* the connection's allocator; frames.c finds the session by it */
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    const struct hfi_zk_session_hooks *hooks;
    void *arg;
    int32_t wish_ms; /* the requested session timeout */
    int64_t cmd_timeout_ms;
    int64_t clock_drift_ppm;
    char *secret; /* "user:password", or NULL */
    struct hfi_host *hosts;
    char **texts; /* two for each host: the resolver's argument, and the host's name */
    struct hfi_tls_context **tls;
    size_t hosts_len;
    char *node;
    struct hfi_target target;
    struct hfi_conn *conn;
    atomic_bool stopped;
    atomic_bool anew;          /* the last session is over, and the next has not begun */
    _Atomic int64_t last_zxid; /* the latest zxid seen in any reply */

    pthread_mutex_t mtx; /* guards the rest */
    int32_t next_xid;
    uint64_t number;
    int64_t id; /* 0: none */
    unsigned char password[HFI_ZK_PASSWORD_LEN];
    struct hfi_zk_validity validity;
    int64_t asked_for;   /* the session id sent in the last handshake; 0: a new one */
    uint64_t greetings;  /* handshakes answered; identifies the connection */
    bool renewing;       /* the connection is being replaced on purpose and takes no new requests */
    int64_t renew_by_ms; /* requests unanswered by then are lost with the connection */
    bool checking;       /* our own check request, to get one commit, was sent on this connection */
    bool shortened;      /* a shorter timeout was granted; the hook is yet to be called */
    int64_t last_sent_ms;
    int64_t pinged_ms; /* a reply is due since then; 0: none is */
    const char *over;  /* why the last session is over; NULL once the hook was called */
    unsigned keepers;  /* users of the connection */

    /* The keeper's. */
    struct hfi_alarm alarm;         /* pings and proofs */
    struct hfi_alarm engine_events; /* calls the `over` hook */
};

/* frames.c */
extern const struct hfi_protocol hfi_zk_protocol;

/* session.c: what the handshake sends, and what its reply does */
void hfi_zk_session_greet(struct hfi_zk_session *session, struct hfi_zk_connect *ret);
int hfi_zk_session_greeted(struct hfi_zk_session *session, int64_t sent_ms,
                           const struct hfi_zk_connected *connected, hf_error *error);

/* session.c: the last step of hfi_zk_session_new(). */
int hfi_zk_session_open(struct hfi_zk_session *session, hf_error *error);

static inline void hfi_zk_session_saw(struct hfi_zk_session *session, int64_t zxid) {
    if (zxid > atomic_load_explicit(&session->last_zxid, memory_order_relaxed))
        atomic_store(&session->last_zxid, zxid); /* only the reader writes it */
}

/* A received message: a frame's bytes without the length. */
struct hfi_zk_message {
    const struct hfi_mem *mem;
    size_t len;
    unsigned char bytes[];
};

#endif
