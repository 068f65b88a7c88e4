/* Shared by the files of the cluster route; not for other files.
 *
 *   cluster.c         the route: the node of a slot, tasks that wait for one, life cycle
 *   cluster_map.c     the slot map: members, their slots, and notifying the engine of changes
 *   cluster_search.c  asking members for the map
 *   cluster_watch.c   noticing a failed member, and closing idle connections
 *
 * The keeper's thread owns everything that `mtx` does not guard. */
#ifndef HFI_REDIS_ROUTE_CLUSTER_CLUSTER_IMPL_H
#define HFI_REDIS_ROUTE_CLUSTER_CLUSTER_IMPL_H

#include "base/clock.h"
#include "base/error.h"
#include "net/driver/keeper.h"
#include "redis/route/cluster/cluster.h"
#include "redis/route/nodes.h"

#include <limits.h>

#define HFI_MEMBERS_MAX 1024 /* as many as a cluster can have in practice */
#define HFI_MEMBER_HOST_MAX 256
#define HFI_NO_SLOT HFI_SLOTS
#define HFI_REPLICAS_UNKNOWN UINT_MAX

struct hfi_cluster;

/* Progress of a member's query in this search. */
enum hfi_member_state {
    HFI_MEMBER_UNASKED,
    HFI_MEMBER_CONNECTING,
    HFI_MEMBER_ASKED,
    HFI_MEMBER_FAILED /* `why` */
};

struct hfi_member {
    /* Written by the keeper, under `mtx`; `node` is also read without it, to compare. The registry
     * has the reference to the node; NULL: the entry is free. */
    struct hfi_node *_Atomic node;
    char host[HFI_MEMBER_HOST_MAX]; /* where it is reached */
    uint16_t port;

    atomic_uint slots;    /* how many it serves. Written under `mtx` by any thread, like the next */
    atomic_uint replicas; /* how many of its replicas are up, by the last map that had it */
    bool took_over; /* it got its first slot since the engine was last notified; under `mtx`, too */
    int64_t gave_ms;  /* when it last lost a slot; 0: never; under `mtx`, too */
    atomic_bool used; /* a command was routed there since the last tick */

    bool named;      /* by the url: it is always a member */
    bool idle;       /* its connections were closed as unused */
    int64_t used_ms; /* when it was last seen to be used */
    bool serving;    /* it had slots at the last check */
    /* when it was last suspected to be down; 0: never. A later reply refutes that */
    _Atomic int64_t doubted_ms;

    enum hfi_member_state state;
    unsigned order; /* in which it is asked */
    struct hfi_want want;
    struct hfi_req *map, *sharded; /* CLUSTER SLOTS; PUBSUB SHARDNUMSUB */
    hf_error why;

    struct hfi_req *role;
    int64_t role_ms;           /* when that was sent */
    int64_t confirms_since_ms; /* first tick of a row with acked requests in flight; HFI_NEVER */
};

struct hfi_cluster {
    struct hfi_route base;
    struct hfi_task task; /* freed with its last reference */
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_exec *exec; /* the keeper's */
    int64_t cmd_timeout_ms;
    struct hfi_cluster_hooks hooks;
    const char *prefix;
    size_t prefix_len;
    struct hfi_nodes nodes;
    const struct hfi_url *url;
    bool stopped;
    bool failure_logged; /* logged: no map was found, since the last one was */

    _Atomic int64_t last_answer_ms; /* when a member last answered a query of the route */

    pthread_mutex_t mtx; /* guards the next five */
    /* [0] is none; entries are never removed. Also read without it */
    struct hfi_member *_Atomic members[HFI_MEMBERS_MAX];
    atomic_size_t members_len;
    struct hfi_link wants;
    struct hfi_link candidates; /* unknown addresses from redirects, to become members */
    struct hfi_slot_set moved;  /* slots of which the engine is to be notified */
    /* Index of the member that serves each slot; 0: none is known. Written under `mtx`, read
     * without it to compare. */
    _Atomic uint16_t owner[HFI_SLOTS];

    /* The search. */
    bool searching, search_due, search_again;
    bool misses_named;  /* a host of the url is no member, for want of memory */
    unsigned fruitless; /* searches in a row that changed nothing */
    int64_t deadline_ms, ask_next_ms, next_search_ms;
    struct hfi_alarm timer;

    /* Watching. */
    bool watching, role_forbidden;
    int64_t search_at_ms, tick_ms; /* `tick_ms` is HFI_NEVER while there is nothing to watch */
    struct hfi_alarm tick;

    struct hfi_alarm sweep;
};

/* Events of the route's task. */
enum {
    HFI_CLUSTER_SEARCH = 1,
    HFI_CLUSTER_TIMER = 2,
    HFI_CLUSTER_ASKED = 4,  /* connected for a query, or a reply to one */
    HFI_CLUSTER_ROLE = 8,   /* a reply to ROLE */
    HFI_CLUSTER_MOVED = 16, /* the map has changed, or has to */
    HFI_CLUSTER_USED = 32   /* a command was routed to a member that was unused */
};

/* ---- cluster.c ---- */

/* A search has failed: completes the wants with an error. */
void hfi_cluster_report_failure(struct hfi_cluster *route, const hf_error *error);
/* The map has changed: completes the wants whose slots have a node. */
void hfi_cluster_notify_wants(struct hfi_cluster *route);
void hfi_cluster_sweep_soon(struct hfi_cluster *route);

/* ---- cluster_map.c ---- */

/* Iterates: the next member with a node, after this index; NULL: there is none. Any thread. */
struct hfi_member *hfi_cluster_next(struct hfi_cluster *route, size_t *index);
/* The member with this node; NULL: none has. Any thread. */
struct hfi_member *hfi_cluster_member_of(struct hfi_cluster *route, const struct hfi_node *node);
/* Adds a host of the url. If it is a member already, nothing happens. */
int hfi_cluster_add_named(struct hfi_cluster *route, const char *host, uint16_t port,
                          hf_error *error);
/* Handles MOVED or ASK of a node. Any thread. */
struct hfi_redirects hfi_cluster_redirect(struct hfi_cluster *route, const struct hfi_node *node,
                                          const struct hfi_redirect *redirect);
/* Applies a member's CLUSTER SLOTS reply. HF_EPROTO: it is no map; HF_EUNAVAILABLE: an empty one;
 * HF_EUNREACH: one without addresses. */
int hfi_cluster_read_map(struct hfi_cluster *route, const struct hfi_member *from,
                         const struct hfi_reply *reply);
/* Makes members of the unknown addresses, and notifies the engine of moved slots. */
void hfi_cluster_settle_map(struct hfi_cluster *route);
/* It has no slots: retires its node. */
void hfi_cluster_drop_member(struct hfi_cluster *route, struct hfi_member *member);
void hfi_cluster_free_map(struct hfi_cluster *route);

/* ---- cluster_search.c ---- */

void hfi_cluster_search_init(struct hfi_cluster *route);
void hfi_cluster_search(struct hfi_cluster *route);
void hfi_cluster_search_run(struct hfi_cluster *route, unsigned events);
/* Drops this member's query. */
void hfi_cluster_unask(struct hfi_cluster *route, struct hfi_member *member);
void hfi_cluster_search_stop(struct hfi_cluster *route);

/* ---- cluster_watch.c ---- */

void hfi_cluster_watch_init(struct hfi_cluster *route);
void hfi_cluster_watch(struct hfi_cluster *route, bool on);
/* A member is used: it is watched from now on. */
void hfi_cluster_watch_used(struct hfi_cluster *route);
void hfi_cluster_on_roles(struct hfi_cluster *route);
/* Marks a member as suspected to be down. */
void hfi_cluster_doubt(struct hfi_cluster *route, struct hfi_member *member);
bool hfi_cluster_is_doubted(const struct hfi_member *member);
/* Its last slot has moved to another. */
void hfi_cluster_left(struct hfi_cluster *route, struct hfi_member *member);
/* Drops its ROLE request. */
void hfi_cluster_unwatch(struct hfi_cluster *route, struct hfi_member *member);
void hfi_cluster_watch_stop(struct hfi_cluster *route);

#endif
