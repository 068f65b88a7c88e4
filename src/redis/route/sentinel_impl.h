/* What the files of the Sentinel route share. Nobody else includes this.
 *
 *   sentinel.c         the route: which node is the primary, who waits for one, its life
 *   sentinel_search.c  asking the sentinels, and trying what they name
 *   sentinel_peer.c    one sentinel: its connections, a question and its answers
 *   sentinel_watch.c   hearing of a change: the subscription, and the eye on the primary
 *
 * But for what `mtx` guards, all of it belongs to the keeper's thread. */
#ifndef HFI_REDIS_ROUTE_SENTINEL_IMPL_H
#define HFI_REDIS_ROUTE_SENTINEL_IMPL_H

#include "base/clock.h"
#include "base/error.h"
#include "net/keeper.h"
#include "net/resp.h"
#include "redis/route/nodes.h"
#include "redis/route/sentinel.h"

#include <hiredis/hiredis.h>

#define HFI_PEERS_MAX 64
#define HFI_PEER_HOST_MAX 256

struct hfi_sentinel;

/* How far a sentinel has come with the question of this search. */
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
    struct hfi_conn *ask, *ear; /* for questions, for messages; the second when it is needed */

    enum hfi_peer_state state;
    int64_t asked_ms;
    struct hfi_want want;
    struct hfi_req *address, *details, *others, *names, *replicas;

    char said_host[HFI_PEER_HOST_MAX];
    uint16_t said_port;
    int64_t said_epoch; /* -1: it does not tell */
    int said_replicas;  /* that are up; -1: it was not asked */
    bool tried;         /* what it has said */
    bool knows_not;     /* the name, and why has those that it knows */
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
    const struct hfi_url *url;   /* theirs */
    struct hfi_tls_context *tls; /* of the sentinels */
    bool stopped;

    _Atomic int64_t heard_ms; /* when a sentinel last said anything */
    atomic_bool counts;       /* somebody wants to know how many replicas are up, */
    atomic_uint replicas;     /* which is so many; 0: not known */
    pthread_mutex_t mtx; /* guards the next two; the first is also read without it, to compare */
    struct hfi_node *_Atomic primary; /* with a reference; NULL: none is known */
    struct hfi_link wants;
    int64_t epoch; /* of what is in use; -1: unknown */

    struct hfi_link peers; /* who answered last is first */
    size_t peers_len;
    bool peers_known; /* they were asked for others like them */

    /* A search. */
    bool searching, look_due, look_again;
    unsigned fruitless; /* searches in a row */
    int64_t deadline_ms, ask_next_ms, next_search_ms;
    int64_t
        anew_since_ms; /* most say since then that it is there, of an older epoch; 0: they do not */
    char anew_host[HFI_PEER_HOST_MAX];
    uint16_t anew_port;
    struct hfi_alarm timer;
    struct hfi_node *candidate; /* being tried, with a reference; NULL: none is */
    int64_t candidate_epoch;
    struct hfi_want probe;
    hf_error candidate_why; /* the last that was tried in this search was not it; HF_OK: none was */

    /* Watching. */
    struct hfi_peer *ear; /* whose messages are heard; NULL: nobody's yet */
    bool watching;
    struct hfi_alarm tick, sweep;
    int64_t look_at_ms;         /* the next look for no reason */
    struct hfi_req *role;       /* the primary was asked for its role */
    struct hfi_node *role_node; /* who was, with a reference */
    bool role_forbidden;
};

/* Events of the route's task. */
enum {
    HFI_SENTINEL_LOOK = 1,
    HFI_SENTINEL_TIMER = 2,
    HFI_SENTINEL_PROBED = 4,
    HFI_SENTINEL_ROLE = 8,
};

/* ---- sentinel.c ---- */

/* This node is the primary from now on. Takes over the reference. */
void hfi_sentinel_publish(struct hfi_sentinel *route, struct hfi_node *node, int64_t epoch);
/* A search was in vain: tells those who wait for a node. */
void hfi_sentinel_tell_failure(struct hfi_sentinel *route, int err, const hf_error *error);
/* A node was retired: frees it when it can. */
void hfi_sentinel_sweep_soon(struct hfi_sentinel *route);

/* ---- sentinel_search.c ---- */

/* There is a reason to ask the sentinels: soon, and not too often. */
void hfi_sentinel_look(struct hfi_sentinel *route);
/* Somebody says that the primary is there. */
void hfi_sentinel_hint(struct hfi_sentinel *route, const char *host, uint16_t port);
/* A sentinel has answered, or has failed to. */
void hfi_sentinel_peer_done(struct hfi_sentinel *route, struct hfi_peer *peer);
void hfi_sentinel_search_run(struct hfi_sentinel *route, unsigned events);
void hfi_sentinel_search_init(struct hfi_sentinel *route);
/* Its connections are gone. */
void hfi_sentinel_search_stop(struct hfi_sentinel *route);

/* ---- sentinel_peer.c ---- */

/* Adds one to the end, unless it is there already. */
int hfi_peer_add(struct hfi_sentinel *route, const char *host, uint16_t port, hf_error *error);
void hfi_peer_ask(struct hfi_peer *peer);
/* The search is over: whatever it was asked is forgotten. */
void hfi_peer_forget(struct hfi_peer *peer);
/* Makes its second connection. False: out of memory. */
bool hfi_peer_lend_ear(struct hfi_peer *peer);
/* On the keeper's thread, or when it has ended: its connections end. */
void hfi_peer_stop(struct hfi_peer *peer);
void hfi_peer_close_fds(struct hfi_peer *peer);

/* ---- sentinel_watch.c ---- */

void hfi_sentinel_watch_init(struct hfi_sentinel *route);
void hfi_sentinel_watch(struct hfi_sentinel *route, bool on);
void hfi_sentinel_watch_stop(struct hfi_sentinel *route);
/* Hears somebody's messages, if nobody's yet. */
void hfi_sentinel_lend_ear(struct hfi_sentinel *route);
/* What the second connection of a sentinel tells. */
void hfi_sentinel_ear_state(struct hfi_peer *peer, bool up);
void hfi_sentinel_ear_message(struct hfi_peer *peer, const redisReply *message);
void hfi_sentinel_role_told(struct hfi_sentinel *route);

static inline const char *hfi_sentinel_master(const struct hfi_sentinel *route) {
    return route->url->master;
}

#endif
