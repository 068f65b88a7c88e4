/*
 * A cohort: the threads of one process that pass a lock on among themselves without asking the
 * server each time.
 *
 *   cohort.c          the thread inside, the queue, passing on, the limits; its hold at the server
 *   cohort_give_up.c  leaving the queue without the lock
 *   cohort_kind.c     the operations of the kind
 *   cohorts.c         finding the cohort of a lock, which all handles on it share
 *
 * A lock with HF_COHORT has a kind of its own, with one part: the same lock, held at the server by
 * one owner for all threads. A tenure is the time from grant to release of that hold; it has one
 * stake. Each thread inside has an ordinary hold, and a share that refers to this stake. So the
 * thread inside learns of a loss, and no thread is let in on a lost hold.
 *
 *     FREE ──a call comes────▶ ACQUIRING ──granted──▶ HELD ──pass on──▶ HELD
 *       ▲                        ▲    │                 │ no local waiter, or others must be let in
 *       │            no local    │    │ not granted     ▼
 *       └────────────waiter──────┼────┘             RELEASING ──others must be let in──▶ PAUSING
 *                                └──a local waiter──────┴──────────────────────────────────┘
 *
 * "Guarded" means guarded by the cohort's mutex, which is taken before that of any task.
 */
#ifndef HFI_JOINT_COHORT_COHORT_H
#define HFI_JOINT_COHORT_COHORT_H

#include "joint/multi/bundle.h"

/* How long threads may keep the lock among themselves while others wait. */
struct hfi_cohort_limits {
    int64_t passes, ms;
};

enum hfi_cohort_state {
    HFI_COHORT_FREE,
    HFI_COHORT_ACQUIRING,
    HFI_COHORT_HELD,
    HFI_COHORT_RELEASING,
    HFI_COHORT_PAUSING
};

struct hfi_tenure {
    atomic_int refs; /* the cohort's, and its shares' */
    const struct hfi_mem *mem;
    struct hfi_stake *stake;
    struct hf_op *give_back; /* allocated beforehand; NULL: it has begun */
};

/* The share of one acquire. */
struct hfi_cohort_share {
    struct hfi_share share;
    struct hfi_parts *parts;   /* referenced: the cohort's */
    struct hfi_tenure *tenure; /* referenced */
};

struct hfi_cohorts {
    pthread_mutex_t mtx;
    const struct hfi_mem *mem;
    struct hfi_table all; /* by name and kind; may still contain one without references */
};

struct hfi_cohort {
    struct hfi_keyed keyed; /* guarded by the registry */
    struct hfi_cohorts *cohorts;
    /* Its references are the cohort's: handles, operations, shares, its own operation in progress,
     * its alarm while set. */
    struct hfi_parts *parts;
    hf_owner owner; /* at the server */
    bool yields;    /* fair: the server's queue lets other processes in by itself */

    pthread_mutex_t mtx; /* guards what follows */
    struct hfi_cohort_limits limits;
    enum hfi_cohort_state state;
    struct hf_op *op;          /* its acquire or release at the server; referenced */
    hf_error stall_error;      /* the error of its acquire so far, if the server does not respond */
    struct hfi_tenure *tenure; /* referenced */
    struct hfi_call *releaser; /* waits for the release's reply; NULL: none */
    struct hfi_link queue;     /* waiting calls, in order */
    struct hfi_call *granted;  /* was let in and has not picked up its grant yet; or NULL */
    int64_t granted_ms;
    hf_owner inside; /* the owner inside */
    int64_t count;   /* its number of shares */
    int64_t passes;  /* of this tenure */
    int64_t until_ms;
    bool in_the_way;        /* the tenure was ended although calls wait here */
    int64_t release_us;     /* when the release began */
    unsigned no_subscriber; /* tenures that ended without a remote subscriber */
    struct hfi_alarm alarm;
    bool alarm_set;

    size_t key_len;
    char key[]; /* 'y' or 'n' for `yields`, then the name */
};

enum hfi_cohort_phase {
    HFI_COHORT_OVER,
    HFI_COHORT_WAITING, /* queued */
    HFI_COHORT_GRANTED,
    HFI_COHORT_PARKED, /* did not pick up its grant in time: joins the queue again when it runs */
    HFI_COHORT_FAILED,
    HFI_COHORT_LEAVING, /* waits for the reply to its release */
    HFI_COHORT_LEFT,
    HFI_COHORT_ASKING /* a query to the server; its executor's alone */
};

/* State of a call. Phase, link, err, error and the share's tenure are guarded; the rest is owned by
 * its executor's thread. */
struct hfi_cohort_call {
    struct hfi_call *call;
    enum hfi_cohort_phase phase;
    struct hfi_link link;
    struct hfi_cohort_share *share;
    bool one_attempt, contended, alarm_set;
    int err;
    hf_error error;
    struct hfi_alarm alarm;
    struct hfi_bundle *bundle;
};

#define HFI_COHORT_EVENT (HFI_BUNDLE_EVENT << 1) /* the phase has changed */
#define HFI_COHORT_TIME (HFI_BUNDLE_EVENT << 2)  /* the alarm fired */

static inline struct hfi_cohort_call *hfi_cohort_call_of(const struct hfi_call *call) {
    return call->state;
}

/* ---- For src/api ---- */

/* A kind for each base; "once": not reentrant. */
extern const struct hfi_kind hfi_kind_cohort, hfi_kind_cohort_once, hfi_kind_cohort_fair,
    hfi_kind_cohort_fair_once, hfi_kind_cohort_string, hfi_kind_cohort_string_once;

void hfi_cohorts_init(struct hfi_cohorts *cohorts, const struct hfi_mem *mem);
void hfi_cohorts_clear(struct hfi_cohorts *cohorts);
/* The cohort of a lock, with a reference, as the parts of its operations. If several handles set
 * limits, the strictest apply. NULL: out of memory. */
struct hfi_parts *hfi_cohort_get(struct hfi_cohorts *cohorts, const struct hfi_part *part,
                                 bool yields, const struct hfi_cohort_limits *limits);

/* ---- For cohort_kind.c ---- */

/* Lets the call in, queues it, or fails it: its phase says which. */
void hfi_cohort_come(struct hfi_cohort *cohort, struct hfi_call *call);
/* Its phase, after an event. A granted call has picked up its grant by this. */
enum hfi_cohort_phase hfi_cohort_check(struct hfi_cohort *cohort, struct hfi_call *call);
/* The call's wait is over. HF_ETIMEDOUT, HF_EBUSY for a single attempt, or the server's error with
 * its text in the call's state: it has left the queue. HF_EPENDING: try again soon. HF_OK: its
 * phase is neither WAITING nor PARKED. */
int hfi_cohort_give_up(struct hfi_cohort *cohort, struct hfi_call *call);
/* Cancels a call. False: its phase is neither WAITING nor PARKED. */
bool hfi_cohort_stop(struct hfi_cohort *cohort, struct hfi_call *call);
/* For cohort_give_up.c. True: drop a reference after unlocking the cohort. */
bool hfi_cohort_clear_alarm_locked(struct hfi_cohort *cohort);
/* Returns a share and frees it. With a call, its phase becomes LEFT, or LEAVING. */
void hfi_cohort_leave(struct hfi_cohort_share *share, struct hfi_call *call);
/* The client is closed: frees the share, and releases nothing at the server. */
void hfi_cohort_run_out(struct hfi_cohort_share *share);
void hfi_cohort_share_free(struct hfi_cohort_share *share); /* NULL is fine */
/* For cohorts.c: runs on the keeper. */
void hfi_cohort_alarm_fired(struct hfi_alarm *alarm);
/* How many shares this owner has. */
int64_t hfi_cohort_count(struct hfi_cohort *cohort, hf_owner owner);

#endif
