/*
 * A call in progress (struct hfi_call): one step after the other, each a few requests that are sent
 * together, with everything that can go wrong between: no connection yet, answers that are lost, a
 * session that is over, servers that are silent.
 *
 * Whoever runs a call says what to ask (hfi_zk_ask_for) and goes on when it is answered. Only the
 * thread of the call's task touches it.
 */
#ifndef HFI_ZK_CALL_H
#define HFI_ZK_CALL_H

#include "zk/counter.h"
#include "zk/kind.h"
#include "zk/nodes.h"
#include "zk/session.h"
#include "zk/watches.h"

#define HFI_ZK_CHROOT_MAX 1000
#define HFI_ZK_PATH_MAX (HFI_ZK_CHROOT_MAX + HFI_ZK_NAME_MAX + HFI_ZK_NODE_TEXT + 32)
#define HFI_ZK_ASKS 3        /* requests of one step, at most, */
#define HFI_ZK_ASKS_MANY 256 /* and of one that brings room for them, and commits nothing */

struct hfi_zk;
struct hfi_zk_call;
struct hfi_zk_survey;

/* The engine's events. That there is one says little: what is true is looked up. */
enum {
    HFI_ZK_EVENT_ANSWER = 1u << HFI_ENGINE_EVENT_SHIFT,
    HFI_ZK_EVENT_READY = 2u << HFI_ENGINE_EVENT_SHIFT,
    HFI_ZK_EVENT_TIMER = 4u << HFI_ENGINE_EVENT_SHIFT,
    HFI_ZK_EVENT_WATCH = 8u << HFI_ENGINE_EVENT_SHIFT
};

/* What is asked in one write, and what to do then. */
struct hfi_zk_step {
    size_t frames;    /* how many requests `write` makes */
    unsigned commits; /* a bit for each that a quorum has to commit */
    bool leaves;      /* once the first was sent, something of ours may be at the server */
    bool tolerant;    /* that it may not be done is an answer like others */
    void (*write)(struct hfi_zk_call *c, struct hfi_zk_out *out);
    /* All were answered: c->answers. Errors that mean the same whoever asks have ended the call. */
    void (*answered)(struct hfi_zk_call *c);
    /* The answers are lost, and the requests may have been carried out. NULL: they are sent again. */
    void (*lost)(struct hfi_zk_call *c);
};

struct hfi_zk_answer {
    int32_t err; /* 0, or what the server says */
    struct hfi_zk_in body;
};

/* Our place in a line, as line.c knows it. */
struct hfi_zk_line {
    unsigned char uuid[HFI_ZK_UUID_LEN];
    bool drawn;   /* the uuid is: a node of it may be there if c->leaves, in session c->number */
    bool made;    /* it is, as `node` */
    bool proved;  /* it was seen to that the leader knows us, for this grant */
    bool borrows; /* the number is one that our owner has already */
    bool only;    /* nobody but the one we watch is before us */
    struct hfi_zk_node node;
    int64_t token;
    struct hfi_zk_watch watch;
    void (*searched)(struct hfi_zk_call *c); /* goes on when a lost answer was made up for */
    void (*parents_made)(struct hfi_zk_call *c);
    size_t parent_len;           /* how much of the lock's path is being made */
    const char *parents_beneath; /* behind the lock\'s path */
};

struct hfi_zk_call {
    struct hfi_call *call;
    struct hfi_zk *zk;
    const struct hfi_zk_kind *kind; /* NULL: no lock */
    const struct hfi_zk_step *step; /* what is asked; NULL: nothing */
    enum { HFI_ZK_IDLE, HFI_ZK_CONNECTING, HFI_ZK_ASKED, HFI_ZK_PAUSED, HFI_ZK_ASLEEP } phase;
    /* The session is not the one of c->number any more. Set before anything is asked. */
    void (*session_over)(struct hfi_zk_call *c);
    void (*woken)(struct hfi_zk_call *c);   /* asleep: the time has come, or there was an event */
    void (*left)(struct hfi_zk_call *c);    /* our node is out of the line again */
    void (*cleanup)(struct hfi_zk_call *c); /* frees what is in `u`; may be NULL */

    bool waits;      /* has patience with servers, as long as the call may take */
    bool settling;   /* it is the settlement, and nothing is settled unless it succeeds */
    bool leaves;     /* something of ours may be at the server: if it fails, it is unsettled */
    bool unanswered; /* what had to be committed was sent, and the answer has not come */
    bool resent;     /* something was sent again after its answer was lost */
    bool undoes;     /* what was sent is taken back behind the caller's back, so that is no doubt */
    bool in_doubt;   /* nobody can tell whether what was sent was done, unless it is answered */
    bool heard;      /* the server has answered anything */

    uint64_t number;         /* the session that it is about; 0: any */
    struct hfi_zk_ask *asks; /* `room` of each */
    struct hfi_zk_answer *answers;
    size_t room;
    struct hfi_zk_ask few_asks[HFI_ZK_ASKS];
    struct hfi_zk_answer few_answers[HFI_ZK_ASKS];
    struct hfi_zk_ask kept; /* an answer that is still needed */
    struct hfi_want want;
    struct hfi_alarm alarm;
    struct hfi_exec *alarm_exec;
    int64_t end_ms; /* of the call, but for an exchange that has begun */
    int64_t wake_ms, limit_ms, asked_ms, useless_since_ms;
    unsigned tries;

    struct hfi_zk_line line;
    struct hfi_zk_held held; /* release, settle, re-entry: what the table has of us */
    union {
        struct {
            struct hfi_zk_children line, walk; /* of `kept` */
            struct hfi_zk_front front;         /* of `line` */
            struct hfi_zk_text child;          /* the one that is looked at */
            size_t piece;                      /* break: how many go at once */
            struct hfi_zk_shown *shown;        /* inspect: who is to be shown, in order */
            size_t shown_len, at;
            hf_lock_info *info;
        } look;
        struct {
            const struct hfi_zk_counter *of;
            bool takes, looked;
            int cancelled; /* with this; 0: it is not */
            struct hfi_zk_count first, found;
            struct hfi_zk_change change;
        } counter;
        struct {
            struct hfi_zk_watch total_watch, name_watch;
            struct hfi_zk_children leases; /* of `kept` */
            bool all;                      /* they are to go, whosesoever they are */
            bool has_total;                /* and the number of permits with them */
            bool maybe_done;               /* they may have been deleted by us */
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
    struct hfi_zk_names names; /* of those two */
    char *who;                 /* "host pid program" */
    enum hfi_zk_acl acl;
    int64_t cmd_timeout_ms, connect_timeout_ms;
    atomic_ullong *unknowns;

    /* The keeper's. */
    struct hfi_link renewals;
    struct hfi_link hearings; /* of those who listen to a name (hear.c) */
    const struct hfi_news *news;
    bool was_up;
};

static inline struct hfi_zk *hfi_zk_of(struct hfi_engine *engine) {
    return HFI_CONTAINER(engine, struct hfi_zk, base);
}

/* ---- Life of a call ---- */

struct hfi_zk_call *hfi_zk_call_begin(struct hfi_call *call);
/* Ends it: err, with the words that call->error has, then done(). It may be gone afterwards. */
void hfi_zk_call_finish(struct hfi_zk_call *c, int err);
void hfi_zk_call_fail(struct hfi_zk_call *c, int err, const char *words);
/* By an error of the server, as an answer had it. */
void hfi_zk_call_refused(struct hfi_zk_call *c, int32_t err);
/* By an answer that cannot be read. */
void hfi_zk_call_fail_proto(struct hfi_zk_call *c);

/* ---- Steps ---- */

/* Sends it, when there is a connection. c->step->answered comes later, or has come. */
void hfi_zk_ask_for(struct hfi_zk_call *c, const struct hfi_zk_step *step);
/* Sleeps; c->woken comes then, at the latest. */
void hfi_zk_sleep(struct hfi_zk_call *c, int64_t until_ms);
/* Keeps an answer beyond the next step. */
void hfi_zk_keep_answer(struct hfi_zk_call *c, size_t which);

void hfi_zk_call_step(struct hfi_call *call, unsigned events);
void hfi_zk_call_cancel(struct hfi_call *call, int err);

/* ---- Paths, places, proofs ---- */

/* The path of the line that the call stands in, and of a node of it. */
size_t hfi_zk_line_path(const struct hfi_zk_call *c, char to[HFI_ZK_PATH_MAX]);
void hfi_zk_line_node_path(const struct hfi_zk_call *c, const struct hfi_zk_node *node,
                           char to[HFI_ZK_PATH_MAX]);
/* The path of the call's lock, with `beneath` and a node's name behind it unless that is NULL. */
size_t hfi_zk_call_path(const struct hfi_zk_call *c, char to[HFI_ZK_PATH_MAX]);
void hfi_zk_call_node_path(const struct hfi_zk_call *c, const char *beneath,
                           const struct hfi_zk_node *node, char to[HFI_ZK_PATH_MAX]);
struct hfi_zk_place hfi_zk_place_of(const struct hfi_call *call);
/* What the session proves of a hold now. */
struct hfi_proof hfi_zk_proof(const struct hfi_zk_credit *credit, int64_t lease_ms);
/* The table, and that the connection is wanted as long as anything is in it. */
int hfi_zk_remember(struct hfi_zk *zk, const struct hfi_zk_place *place,
                    const struct hfi_zk_held *held);
void hfi_zk_forget(struct hfi_zk *zk, const struct hfi_zk_place *place);
/* For whoever has not the hold's turn: its owner may have got another node there meanwhile. */
void hfi_zk_forget_node(struct hfi_zk *zk, const struct hfi_zk_place *place, int64_t token);

#endif
