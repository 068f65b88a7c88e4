/*
 * A call in progress (struct hfi_call): a sequence of steps, each a few requests in one write.
 *
 * It handles what can go wrong between steps: no connection yet, lost replies, an expired session,
 * silent servers. An operation says what to ask (hfi_zk_ask_for) and continues when it is answered.
 * Only the thread of the call's task touches it.
 */
#ifndef HFI_ZK_OPS_CALL_H
#define HFI_ZK_OPS_CALL_H

#include "zk/kinds/counter.h"
#include "zk/kinds/kind.h"
#include "zk/session/session.h"
#include "zk/session/watches.h"
#include "zk/wire/nodes.h"

#define HFI_ZK_CHROOT_MAX 1000
#define HFI_ZK_PATH_MAX (HFI_ZK_CHROOT_MAX + HFI_ZK_NAME_MAX + HFI_ZK_NODE_TEXT + 32)
#define HFI_ZK_ASKS 3        /* requests of one step, at most */
#define HFI_ZK_ASKS_MANY 256 /* of a step that brings its own arrays and commits nothing */

struct hfi_zk;
struct hfi_zk_call;
struct hfi_zk_survey;

/* The engine's events. An event is only a hint: the handler checks the actual state. */
enum {
    HFI_ZK_EVENT_ANSWER = 1u << HFI_ENGINE_EVENT_SHIFT,
    HFI_ZK_EVENT_READY = 2u << HFI_ENGINE_EVENT_SHIFT,
    HFI_ZK_EVENT_TIMER = 4u << HFI_ENGINE_EVENT_SHIFT,
    HFI_ZK_EVENT_WATCH = 8u << HFI_ENGINE_EVENT_SHIFT
};

/* The requests of one write, and their handlers. */
struct hfi_zk_step {
    size_t frames;    /* how many requests `write` makes */
    unsigned commits; /* a bit for each request that needs a quorum commit */
    bool leaves;      /* once the first was sent, a node of ours may be at the server */
    bool tolerant;    /* a refusal (NoAuth and the like) is an ordinary answer */
    void (*write)(struct hfi_zk_call *c, struct hfi_zk_out *out);
    /* All were answered: c->answers. Errors that mean the same for every step have ended the
     * call. */
    void (*answered)(struct hfi_zk_call *c);
    /* The replies are lost, and the requests may have been carried out. NULL: resend them. */
    void (*lost)(struct hfi_zk_call *c);
};

struct hfi_zk_answer {
    int32_t err; /* 0, or the server's error code */
    struct hfi_zk_in body;
};

/* Our node in a queue, as queue.c knows it. */
struct hfi_zk_queue {
    unsigned char uuid[HFI_ZK_UUID_LEN];
    bool drawn;   /* the uuid is drawn; if c->leaves, its node may exist, in session c->number */
    bool made;    /* our node exists, as `node` */
    bool proved;  /* the session was proved for this grant */
    bool borrows; /* the sequence number is that of another node of our owner */
    bool only;    /* the node we watch is the only one before us */
    struct hfi_zk_node node;
    int64_t token;
    struct hfi_zk_watch watch;
    void (*searched)(struct hfi_zk_call *c); /* continues when the lost create is recovered */
    void (*parents_made)(struct hfi_zk_call *c);
    size_t parent_len;           /* length of the parent path that is being made */
    const char *parents_beneath; /* appended to the lock's path */
};

struct hfi_zk_call {
    struct hfi_call *call;
    struct hfi_zk *zk;
    const struct hfi_zk_kind *kind; /* NULL: no lock */
    const struct hfi_zk_step *step; /* the current step; NULL: none */
    enum { HFI_ZK_IDLE, HFI_ZK_CONNECTING, HFI_ZK_ASKED, HFI_ZK_PAUSED, HFI_ZK_ASLEEP } phase;
    /* The session is not that of c->number any more. Set before anything is asked. */
    void (*session_over)(struct hfi_zk_call *c);
    /* The deadline has passed, and ZooKeeper may only have been too slow. NULL: that is a
     * failure. */
    void (*overdue)(struct hfi_zk_call *c);
    void (*woken)(struct hfi_zk_call *c);   /* asleep: the timer or a watch fired */
    void (*on_left)(struct hfi_zk_call *c); /* our node has left the queue */
    void (*cleanup)(struct hfi_zk_call *c); /* frees what is in `u`; may be NULL */

    bool waits;      /* waits out unreachable servers, up to the call's deadline */
    bool settling;   /* this is the settlement: it retries until it succeeds */
    bool leaves;     /* a node of ours may be at the server: on failure the call is unsettled */
    bool unanswered; /* a request that commits was sent and is not answered */
    bool resent;     /* a request was resent after its reply was lost */
    bool undoes;     /* the settlement undoes what was sent, so a lost reply is no HF_EINDOUBT */
    bool in_doubt;   /* only the reply can tell whether the change was done */
    bool answered;   /* at least one reply has come */

    uint64_t number;         /* the session that it must run in; 0: any */
    struct hfi_zk_ask *asks; /* arrays of `room` elements */
    struct hfi_zk_answer *answers;
    size_t room;
    struct hfi_zk_ask few_asks[HFI_ZK_ASKS];
    struct hfi_zk_answer few_answers[HFI_ZK_ASKS];
    struct hfi_zk_ask kept; /* a reply that outlives its step */
    struct hfi_want want;
    struct hfi_alarm alarm;
    struct hfi_exec *alarm_exec;
    int64_t end_ms; /* the call's deadline, except for an exchange that has begun */
    int64_t wake_ms, limit_ms, asked_ms, useless_since_ms;
    unsigned tries;

    struct hfi_zk_queue queue;
    struct hfi_zk_held held; /* release, settle, re-entry: our entry in the table of nodes */
    union {
        struct {
            struct hfi_zk_children queue, walk;  /* parsed from `kept` */
            struct hfi_zk_queue_head queue_head; /* of `queue` */
            struct hfi_zk_text child;            /* the current child */
            size_t piece;                        /* break: nodes deleted per multi */
            struct hfi_zk_shown *shown;          /* inspect: the nodes to be shown, in order */
            size_t shown_len, at;
            hf_lock_info *info;
        } query;
        struct {
            const struct hfi_zk_counter *of;
            bool takes, was_read;
            int cancelled; /* the cancel's error; 0: not cancelled */
            struct hfi_zk_count first, found;
            bool has_generation, unguarded; /* the generation node: exists; may not be used */
            int32_t generation;             /* its version */
            struct hfi_zk_change change;
        } counter;
        struct {
            struct hfi_zk_watch total_watch, name_watch;
            struct hfi_zk_children leases; /* parsed from `kept` */
            bool all;                      /* delete all leases, of all owners */
            bool has_total;                /* and the total with them */
            bool maybe_done;               /* an earlier delete of ours may have done it */
        } permits;
        struct hfi_zk_survey *survey;
    } u;
};

static inline struct hfi_zk_call *hfi_zk_call_of(struct hfi_call *call) {
    return call->state;
}

struct hfi_zk {
    struct hfi_engine base;
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    struct hfi_zk_session *session;
    struct hfi_zk_watches *watches;
    struct hfi_zk_nodes *nodes;
    char *chroot, *prefix;
    struct hfi_zk_names names; /* of chroot and prefix */
    char *who;                 /* "host pid program" */
    enum hfi_zk_acl acl;
    int64_t cmd_timeout_ms, connect_timeout_ms;
    atomic_ullong *in_doubt;

    /* The keeper's. */
    struct hfi_link renewals;
    struct hfi_link name_listeners; /* one per subscription (name_listener.c) */
    const struct hfi_engine_events *engine_events;
    bool was_up;
};

static inline struct hfi_zk *hfi_zk_of(struct hfi_engine *engine) {
    return HFI_CONTAINER(engine, struct hfi_zk, base);
}

/* ---- Life of a call ---- */

struct hfi_zk_call *hfi_zk_call_begin(struct hfi_call *call);
/* Ends it with `err` and the text in call->error, then calls done(). It may be freed afterwards. */
void hfi_zk_call_finish(struct hfi_zk_call *c, int err);
void hfi_zk_call_fail(struct hfi_zk_call *c, int err, const char *text);
/* Ends it with the server's error code. */
void hfi_zk_call_refused(struct hfi_zk_call *c, int32_t err);
/* Ends it for a malformed reply. */
void hfi_zk_call_fail_proto(struct hfi_zk_call *c);

/* ---- Steps ---- */

/* Sends the step as soon as there is a connection. c->step->answered comes later, or has come. */
void hfi_zk_ask_for(struct hfi_zk_call *c, const struct hfi_zk_step *step);
/* Sleeps until then or until a watch fires; then c->woken runs. */
void hfi_zk_sleep(struct hfi_zk_call *c, int64_t until_ms);
/* Keeps a reply beyond the next step. */
void hfi_zk_keep_answer(struct hfi_zk_call *c, size_t which);

void hfi_zk_call_step(struct hfi_call *call, unsigned events);
void hfi_zk_call_cancel(struct hfi_call *call, int err);

/* ---- Paths, places, proofs ---- */

/* The path of the call's queue, and of a node in it. */
size_t hfi_zk_queue_path(const struct hfi_zk_call *c, char to[HFI_ZK_PATH_MAX]);
void hfi_zk_queue_node_path(const struct hfi_zk_call *c, const struct hfi_zk_node *node,
                            char to[HFI_ZK_PATH_MAX]);
/* The path of the call's lock, and that of a node: lock path, `beneath`, node name. */
size_t hfi_zk_call_path(const struct hfi_zk_call *c, char to[HFI_ZK_PATH_MAX]);
void hfi_zk_call_node_path(const struct hfi_zk_call *c, const char *beneath,
                           const struct hfi_zk_node *node, char to[HFI_ZK_PATH_MAX]);
struct hfi_zk_place hfi_zk_place_of(const struct hfi_call *call);
/* What the session proves about a hold now. */
struct hfi_proof hfi_zk_proof(const struct hfi_zk_credit *credit, int64_t lease_ms);
/* Adds to the table of nodes, and keeps the connection up while the table has entries. */
int hfi_zk_remember(struct hfi_zk *zk, const struct hfi_zk_place *place,
                    const struct hfi_zk_held *held);
void hfi_zk_forget(struct hfi_zk *zk, const struct hfi_zk_place *place);
/* For callers outside the hold's turn: its owner may have another node there by now. */
void hfi_zk_forget_node(struct hfi_zk *zk, const struct hfi_zk_place *place, int64_t token);

#endif
