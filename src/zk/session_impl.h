/* What session.c and protocol.c share. Nobody else includes this. */
#ifndef HFI_ZK_SESSION_IMPL_H
#define HFI_ZK_SESSION_IMPL_H

#include "zk/session.h"

struct hfi_zk_session {
    struct hfi_mem mem; /* its connection allocates with this, and so finds the session */
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    const struct hfi_zk_session_hooks *hooks;
    void *arg;
    int32_t wish_ms; /* the timeout to ask for */
    int64_t cmd_timeout_ms;
    char *secret; /* "user:password", or NULL */
    struct hfi_host *hosts;
    char **texts; /* two for each host: what to look up, and its name */
    struct hfi_tls_context **tls;
    size_t hosts_len;
    char *node;
    struct hfi_target target;
    struct hfi_conn *conn;
    atomic_bool stopped;
    atomic_bool anew;          /* the last one is over, and the next has not begun */
    _Atomic int64_t last_zxid; /* the latest that a server has told us */

    pthread_mutex_t mtx; /* guards the rest */
    int32_t next_xid;
    uint64_t number;
    int64_t id; /* 0: none */
    unsigned char password[HFI_ZK_PASSWORD_LEN];
    struct hfi_zk_trust trust;
    int64_t last_sent_ms;
    unsigned pings_due;    /* pings that were not answered */
    int64_t first_ping_ms; /* when the first of them was sent; 0: it was answered */
    int64_t pinged_ms;     /* since then an answer is due; 0: none is */
    const char *over;      /* why the last one is, as long as nobody was told */
    unsigned keepers;      /* who depend on the connection */

    /* The keeper's. */
    struct hfi_alarm alarm; /* pings */
    struct hfi_alarm news;  /* `over` is to be told */
};

/* protocol.c */
extern const struct hfi_protocol hfi_zk_protocol;

/* session.c: what the handshake has to say */
void hfi_zk_session_greet(struct hfi_zk_session *session, struct hfi_zk_connect *ret);
int hfi_zk_session_greeted(struct hfi_zk_session *session, int64_t sent_ms,
                           const struct hfi_zk_connected *connected, hf_error *error);

/* The same, made as its last step. */
int hfi_zk_session_open(struct hfi_zk_session *session, hf_error *error);

static inline void hfi_zk_session_saw(struct hfi_zk_session *session, int64_t zxid) {
    if (zxid > atomic_load_explicit(&session->last_zxid, memory_order_relaxed))
        atomic_store(&session->last_zxid, zxid); /* only the reader writes it */
}

/* A message as the connection carries it: the bytes of a frame, without its length. */
struct hfi_zk_message {
    const struct hfi_mem *mem;
    size_t len;
    unsigned char bytes[];
};

#endif
