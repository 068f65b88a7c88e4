/* What the files of the Cluster route share. Nobody else includes this.
 *
 *   cluster.c         the route: which node serves a slot, who waits for one, its life
 *   cluster_map.c     the map: members, what they serve, and what is told of changes
 *   cluster_search.c  asking members for the map
 *   cluster_watch.c   noticing that something is wrong with one, and closing those without work
 *
 * But for what `mtx` guards, all of it belongs to the keeper's thread. */
#ifndef HFI_REDIS_ROUTE_CLUSTER_IMPL_H
#define HFI_REDIS_ROUTE_CLUSTER_IMPL_H

#include "base/clock.h"
#include "base/error.h"
#include "net/keeper.h"
#include "redis/route/cluster.h"
#include "redis/route/nodes.h"

#include <limits.h>

#define HFI_MEMBERS_MAX 1024 /* as many as a cluster can have in practice */
#define HFI_MEMBER_HOST_MAX 256
#define HFI_NO_SLOT HFI_SLOTS
#define HFI_REPLICAS_UNKNOWN UINT_MAX

struct hfi_cluster;

/* How far a member has come with the question of this search. */
enum hfi_member_state {
    HFI_MEMBER_UNASKED,
    HFI_MEMBER_CONNECTING,
    HFI_MEMBER_ASKED,
    HFI_MEMBER_FAILED /* `why` */
};

struct hfi_member {
    /* The keeper writes these, under `mtx`; the first is also read without it, to compare. */
    struct hfi_node
        *_Atomic node; /* the registry has the reference; NULL: there is room for another */
    char host[HFI_MEMBER_HOST_MAX]; /* where it is reached */
    uint16_t port;

    atomic_uint slots;    /* how many it serves. Written under `mtx`, like the next, by anybody */
    atomic_uint replicas; /* of its that are up, by the last map that had it */
    bool took_over;   /* it has begun to serve since the engine was last told; under `mtx`, too */
    int64_t gave_ms;  /* when a slot of its went to another; 0: none did. The same */
    atomic_bool used; /* somebody was sent there since it was last looked at */

    bool named;      /* by the url: it is never retired */
    bool idle;       /* its connections were closed for want of work */
    int64_t used_ms; /* when it was last seen to be used */
    bool serving;    /* it served something when that was last looked at */
    /* when there was a reason to think that it is gone; 0: there was none. What it says later refutes that */
    _Atomic int64_t doubted_ms;

    enum hfi_member_state state;
    unsigned order; /* in which it is asked */
    struct hfi_want want;
    struct hfi_req *map, *sharded; /* who serves what; whether messages can be sharded */
    hf_error why;

    struct hfi_req *role;
    int64_t role_ms; /* when that was asked */
    bool confirming; /* replicas were to confirm something when it was last looked at */
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

    _Atomic int64_t heard_ms; /* when a member last answered a question of the route */

    pthread_mutex_t mtx; /* guards the next five */
    /* [0] is nobody; who is there stays. Also read without it */
    struct hfi_member *_Atomic members[HFI_MEMBERS_MAX];
    atomic_size_t members_len;
    struct hfi_link wants;
    struct hfi_link strangers; /* addresses that servers named, to be made members */
    struct hfi_slot_set moved; /* the engine is to be told of these */
    /* Index of the member that serves each; 0: none is known. Written under `mtx`, read without it to
     * compare. */
    _Atomic uint16_t owner[HFI_SLOTS];

    /* A search. */
    bool searching, look_due, look_again;
    bool misses_named;  /* somebody whom the url names is no member, for want of memory */
    unsigned fruitless; /* searches in a row that changed nothing */
    int64_t deadline_ms, ask_next_ms, next_search_ms;
    struct hfi_alarm timer;

    /* Watching. */
    bool watching, role_forbidden;
    int64_t look_at_ms, tick_ms; /* the second: HFI_NEVER: there is nothing to look after */
    struct hfi_alarm tick;

    struct hfi_alarm sweep;
};

/* Events of the route's task. */
enum {
    HFI_CLUSTER_LOOK = 1,
    HFI_CLUSTER_TIMER = 2,
    HFI_CLUSTER_ASKED = 4,  /* a connection to ask on, or an answer */
    HFI_CLUSTER_ROLE = 8,   /* an answer to ROLE */
    HFI_CLUSTER_MOVED = 16, /* the map has changed, or is to be */
    HFI_CLUSTER_USED = 32   /* somebody was sent to a member that had no work */
};

/* ---- cluster.c ---- */

/* Nobody could tell: those who wait are told why. */
void hfi_cluster_tell_failure(struct hfi_cluster *route, const hf_error *error);
/* The map has changed: those who wait for a slot look again. */
void hfi_cluster_tell_wants(struct hfi_cluster *route);
void hfi_cluster_sweep_soon(struct hfi_cluster *route);

/* ---- cluster_map.c ---- */

/* For going through them: the next that has a node, from this index on; NULL: there is none. Any thread. */
struct hfi_member *hfi_cluster_next(struct hfi_cluster *route, size_t *index);
/* The one that has this node; NULL: none has. Any thread. */
struct hfi_member *hfi_cluster_member_of(struct hfi_cluster *route, const struct hfi_node *node);
/* As the url names it. If it is a member already, nothing happens. */
int hfi_cluster_add_named(struct hfi_cluster *route, const char *host, uint16_t port,
                          hf_error *error);
/* What a node said of one slot. Any thread. */
struct hfi_detour hfi_cluster_redirect(struct hfi_cluster *route, const struct hfi_node *node,
                                       const struct hfi_redirect *redirect);
/* What a member said of all of them. HF_EPROTO: that was no map; HF_EREFUSED: an empty one; HF_EUNREACH: one without
 * addresses. */
int hfi_cluster_read_map(struct hfi_cluster *route, const struct hfi_member *from,
                         const redisReply *reply);
/* Makes members of the strangers, and tells the engine what has moved. */
void hfi_cluster_settle_map(struct hfi_cluster *route);
/* It serves nothing, and nobody is to be sent there any more. */
void hfi_cluster_drop_member(struct hfi_cluster *route, struct hfi_member *member);
void hfi_cluster_free_map(struct hfi_cluster *route);

/* ---- cluster_search.c ---- */

void hfi_cluster_search_init(struct hfi_cluster *route);
void hfi_cluster_look(struct hfi_cluster *route);
void hfi_cluster_search_run(struct hfi_cluster *route, unsigned events);
/* Forgets what this member was asked. */
void hfi_cluster_unask(struct hfi_cluster *route, struct hfi_member *member);
void hfi_cluster_search_stop(struct hfi_cluster *route);

/* ---- cluster_watch.c ---- */

void hfi_cluster_watch_init(struct hfi_cluster *route);
void hfi_cluster_watch(struct hfi_cluster *route, bool on);
/* Somebody was sent to a member: from now on it is looked after. */
void hfi_cluster_watch_used(struct hfi_cluster *route);
void hfi_cluster_roles_told(struct hfi_cluster *route);
/* Something is wrong with it, as far as anybody knows. */
void hfi_cluster_doubt(struct hfi_cluster *route, struct hfi_member *member);
bool hfi_cluster_is_doubted(const struct hfi_member *member);
/* Its last slot has gone to another. */
void hfi_cluster_left(struct hfi_cluster *route, struct hfi_member *member);
/* Forgets the question of its role. */
void hfi_cluster_unwatch(struct hfi_cluster *route, struct hfi_member *member);
void hfi_cluster_watch_stop(struct hfi_cluster *route);

#endif
