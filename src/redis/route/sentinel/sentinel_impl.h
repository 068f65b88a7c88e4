/* Shared by the files of the Sentinel route; not for other files.
 *
 *   sentinel.c         the route: the primary's node, tasks that wait for one, life cycle
 *   sentinel_search.c  a search: asks the sentinels, and connects to the addresses they name
 *   sentinel_query.c   one sentinel: its connections, a query and its replies
 *   sentinel_watch.c   noticing a failover: the subscription, and ROLE of the primary
 *
 * The keeper's thread owns everything that `mtx` does not guard. */
#ifndef HFI_REDIS_ROUTE_SENTINEL_SENTINEL_IMPL_H
#define HFI_REDIS_ROUTE_SENTINEL_SENTINEL_IMPL_H

#include "base/clock.h"
#include "base/error.h"
#include "net/driver/keeper.h"
#include "net/resp/resp.h"
#include "net/resp/wire/reply.h"
#include "redis/route/nodes.h"
#include "redis/route/sentinel/sentinel.h"

#define HFI_PEERS_MAX 64
#define HFI_PEER_HOST_MAX 256

struct hfi_sentinel;

/* Progress of a sentinel's query in this search. */
enum hfi_peer_state {
    HFI_PEER_UNASKED,
    HFI_PEER_CONNECTING,
    HFI_PEER_ASKED,
    HFI_PEER_SAID,  /* it has named an address */
    HFI_PEER_FAILED /* `why` */
};

struct hfi_peer {
    struct hfi_task task; /* freed with its last reference */
    struct hfi_link link; /* in the order in which they are asked */
    struct hfi_sentinel *route;
    struct hfi_target target;
    struct hfi_host host;
    struct hfi_resp_login login;
    char *name, *resolve_arg;
    struct hfi_tls_context *tls;
    struct hfi_conn *ask,
        *pubsub_conn; /* for queries, for messages; the second is made when needed */

    enum hfi_peer_state state;
    int64_t asked_ms;
    struct hfi_want want;
    struct hfi_req *address, *details, *others, *names, *replicas;

    char said_host[HFI_PEER_HOST_MAX];
    uint16_t said_port;
    int64_t said_epoch; /* -1: it does not say */
    int said_replicas;  /* that are up; -1: it was not asked */
    bool tried;         /* its address was considered */
    bool confirms;      /* it named the primary in use */
    bool knows_not;     /* it does not know the name; `why` has the names that it knows */
    hf_error why;
};

struct hfi_sentinel {
    struct hfi_route base;
    struct hfi_task task; /* freed with its last reference */
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    struct hfi_exec *exec; /* the keeper's */
    int64_t cmd_timeout_ms;
    hfi_changed_fn changed;
    void *changed_arg;
    struct hfi_nodes nodes;
    const struct hfi_url *url;   /* in `nodes` */
    struct hfi_tls_context *tls; /* of the sentinels */
    bool stopped;
    bool failure_logged; /* logged: no primary was found, since the last one was */

    _Atomic int64_t last_answer_ms; /* when a sentinel last replied */
    atomic_bool counts;             /* replicas are to be counted, */
    atomic_uint replicas;           /* and this many are up; 0: not known */
    pthread_mutex_t mtx; /* guards the next four; `primary` is also read without it, to compare */
    struct hfi_node *_Atomic primary; /* with a reference; NULL: none is known */
    struct hfi_link wants;
    /* wants that ask the next search to confirm the primary */
    struct hfi_link awaiting_confirm;
    struct hfi_link confirming; /* wants of the search in progress; only the keeper adds to it */
    int64_t epoch;              /* of the primary in use; -1: unknown */

    struct hfi_link peers; /* the last to reply is first */
    size_t peers_len;
    bool peers_known; /* SENTINELS was answered */

    /* The search. */
    bool searching, search_due, search_again;
    unsigned fruitless; /* searches in a row */
    int64_t deadline_ms, ask_next_ms, next_search_ms;
    /* since when a majority names this address with an older epoch; 0: it does not */
    int64_t anew_since_ms;
    char anew_host[HFI_PEER_HOST_MAX];
    uint16_t anew_port;
    struct hfi_alarm timer;
    struct hfi_node *candidate; /* being probed, with a reference; NULL: none */
    int64_t candidate_epoch;
    struct hfi_want probe;
    /* why the last candidate of this search was rejected; HF_OK: none was */
    hf_error candidate_why;

    /* Watching. */
    struct hfi_peer *pubsub_conn; /* the sentinel that we subscribe to; NULL: none yet */
    bool watching;
    struct hfi_alarm tick, sweep;
    int64_t search_at_ms;       /* the next periodic search */
    struct hfi_req *role;       /* ROLE request to the primary */
    struct hfi_node *role_node; /* its node, with a reference */
    bool role_forbidden;
};

/* Events of the route's task. */
enum {
    HFI_SENTINEL_SEARCH = 1,
    HFI_SENTINEL_TIMER = 2,
    HFI_SENTINEL_PROBED = 4,
    HFI_SENTINEL_ROLE = 8,
};

/* ---- sentinel.c ---- */

/* Makes this node the primary. Takes over the reference. The caller completes the wants to confirm
 * the last one: `confirming` has all of them. */
void hfi_sentinel_publish(struct hfi_sentinel *route, struct hfi_node *node, int64_t epoch);
/* A search has failed: completes the wants for a node with an error. */
void hfi_sentinel_report_failure(struct hfi_sentinel *route, int err, const hf_error *error);
/* Completes the wants to confirm the primary. */
void hfi_sentinel_notify_confirming(struct hfi_sentinel *route, int err, const hf_error *error);
/* Why the last primary cannot be confirmed. */
void hfi_sentinel_changed(hf_error *ret);
/* A node was retired: frees it when it is no longer referenced. */
void hfi_sentinel_sweep_soon(struct hfi_sentinel *route);

/* ---- sentinel_search.c ---- */

/* Requests a search: soon, but rate-limited unless a want asks for confirmation. */
void hfi_sentinel_search(struct hfi_sentinel *route);
/* A message has named this address as the primary's. */
void hfi_sentinel_hint(struct hfi_sentinel *route, const char *host, uint16_t port);
/* A sentinel has replied, or has failed. */
void hfi_sentinel_peer_done(struct hfi_sentinel *route, struct hfi_peer *peer);
void hfi_sentinel_search_run(struct hfi_sentinel *route, unsigned events);
void hfi_sentinel_search_init(struct hfi_sentinel *route);
/* The connections are gone. */
void hfi_sentinel_search_stop(struct hfi_sentinel *route);

/* ---- sentinel_query.c ---- */

/* Appends a sentinel, unless it is known already. */
int hfi_peer_add(struct hfi_sentinel *route, const char *host, uint16_t port, hf_error *error);
void hfi_peer_ask(struct hfi_peer *peer);
/* The search is over: drops its requests. */
void hfi_peer_forget(struct hfi_peer *peer);
/* Makes its connection for messages. False: out of memory. */
bool hfi_peer_open_pubsub(struct hfi_peer *peer);
/* On the keeper's thread, or after that has ended: closes its connections. */
void hfi_peer_stop(struct hfi_peer *peer);
void hfi_peer_close_fds(struct hfi_peer *peer);

/* ---- sentinel_watch.c ---- */

void hfi_sentinel_watch_init(struct hfi_sentinel *route);
void hfi_sentinel_watch(struct hfi_sentinel *route, bool on);
void hfi_sentinel_watch_stop(struct hfi_sentinel *route);
/* Subscribes to the first sentinel, if to none yet. */
void hfi_sentinel_listen_at(struct hfi_sentinel *route);
/* Events of a sentinel's connection for messages. */
void hfi_sentinel_pubsub_state(struct hfi_peer *peer, bool up);
void hfi_sentinel_on_message(struct hfi_peer *peer, const struct hfi_reply *message);
void hfi_sentinel_on_role(struct hfi_sentinel *route);

static inline const char *hfi_sentinel_master(const struct hfi_sentinel *route) {
    return route->url->master;
}

#endif
