/*
 * A cohort: the threads of one process that take turns at a lock without asking the server each time.
 *
 *   cohort.c          who is inside and who waits, passing on, the limits; its hold at the server
 *   cohort_give_up.c  leaving the line without it
 *   cohort_kind.c     the operations of the kind
 *   cohorts.c         finding the cohort of a lock, which all handles on it share
 *
 * A lock with HF_COHORT is a lock of a kind of its own, with one part: the same lock, held at the server by
 * one owner for all threads. From grant to release of that hold is a tenure, with one stake. Each thread
 * that is let in has a hold like any other, and a share that looks at this stake: so whoever is inside is
 * told when the hold is lost, and nobody is let in on one that is.
 *
 *     FREE ──somebody comes──▶ ACQUIRING ──granted──▶ HELD ──pass on──▶ HELD
 *       ▲                        ▲    │                 │ nobody waits here, or others must be let in
 *       │              nobody    │    │ not granted     ▼
 *       └──────────────waits─────┼────┘             RELEASING ──others must be let in──▶ PAUSING
 *                                └──somebody waits──────┴──────────────────────────────────┘
 *
 * All that is said to be guarded is guarded by the cohort's mutex, which is taken before that of any task.
 */
#ifndef HFI_JOINT_COHORT_H
#define HFI_JOINT_COHORT_H

#include "joint/bundle.h"

/* How long threads may keep the lock among themselves while somebody waits. */
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
    atomic_int refs; /* the cohort, shares */
    const struct hfi_mem *mem;
    struct hfi_stake *stake;
    struct hf_op *give_back; /* made beforehand; NULL: it has begun */
};

/* What one acquire has. */
struct hfi_cohort_share {
    struct hfi_share share;
    struct hfi_parts *parts;   /* referenced: the cohort's */
    struct hfi_tenure *tenure; /* referenced */
};

struct hfi_cohorts {
    pthread_mutex_t mtx;
    const struct hfi_mem *mem;
    struct hfi_cohort *all; /* by name and kind; one that nobody uses any more may still be there */
};

struct hfi_cohort {
    UT_hash_handle hh; /* guarded by the registry, as `listed` */
    bool listed;
    struct hfi_cohorts *cohorts;
    struct hfi_parts
        *parts;     /* its references are the cohort's: handles, operations, shares, its own
                                operation while that is under way, its alarm while that is set */
    hf_owner owner; /* at the server */
    bool yields;    /* the server lets others in by itself: it keeps them in line */

    pthread_mutex_t mtx; /* guards what follows */
    struct hfi_cohort_limits limits;
    enum hfi_cohort_state state;
    struct hf_op *op;          /* acquires or gives back at the server; referenced */
    hf_error trouble;          /* what is known of its acquire, if the server is of no help */
    struct hfi_tenure *tenure; /* referenced */
    struct hfi_call *releaser; /* waits for the answer; NULL: nobody does */
    struct hfi_link queue;     /* calls that wait, in order */
    struct hfi_call *granted;  /* was let in and has not come for it yet; or NULL */
    int64_t granted_ms;
    hf_owner inside; /* who is in there */
    int64_t count;   /* how many shares that one has */
    int64_t passes;  /* of this tenure */
    int64_t until_ms;
    bool in_the_way;    /* the tenure was ended although somebody here waits */
    int64_t release_us; /* when it was */
    unsigned unheard;   /* tenures that ended while nobody listened elsewhere */
    struct hfi_alarm alarm;
    bool alarm_set;

    size_t key_len;
    char key[]; /* a byte that says whether it yields, and the name */
};

enum hfi_cohort_phase {
    HFI_COHORT_OVER,
    HFI_COHORT_WAITING, /* in line */
    HFI_COHORT_GRANTED,
    HFI_COHORT_PARKED, /* did not come for it in time: lines up again when it does */
    HFI_COHORT_FAILED,
    HFI_COHORT_LEAVING, /* waits for the server to answer its release */
    HFI_COHORT_LEFT,
    HFI_COHORT_ASKING /* a question to the server; its executor's alone */
};

/* Of a call. Phase, link, err, error and the share's tenure are guarded; the rest is its executor's. */
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
#define HFI_COHORT_TIME (HFI_BUNDLE_EVENT << 2)  /* the alarm has fired */

static inline struct hfi_cohort_call *hfi_cohort_call_of(const struct hfi_call *call) {
    return call->state;
}

/* ---- For src/api ---- */

/* A kind for each base; an owner that acquires again is let in again, or not. */
extern const struct hfi_kind hfi_kind_cohort, hfi_kind_cohort_once, hfi_kind_cohort_fair,
    hfi_kind_cohort_fair_once;

void hfi_cohorts_init(struct hfi_cohorts *cohorts, const struct hfi_mem *mem);
void hfi_cohorts_clear(struct hfi_cohorts *cohorts);
/* The cohort of a lock, with a reference, as the parts that its operations have. Of the limits of several
 * handles the strictest count. NULL: out of memory. */
struct hfi_parts *hfi_cohort_get(struct hfi_cohorts *cohorts, const struct hfi_part *part,
                                 bool yields, const struct hfi_cohort_limits *limits);

/* ---- For cohort_kind.c ---- */

/* Lets it in, lines it up, or fails: then that is its phase. */
void hfi_cohort_come(struct hfi_cohort *cohort, struct hfi_call *call);
/* Its phase, when it has changed; whoever was let in has come for it. */
enum hfi_cohort_phase hfi_cohort_look(struct hfi_cohort *cohort, struct hfi_call *call);
/* Its wait is over: HF_ETIMEDOUT, HF_EBUSY of a single attempt, or what the server has to answer for, with its words in
 * the call's state; HF_EPENDING: it is to look again soon. Else it is in no line any more. HF_OK: its phase is another
 * than WAITING or PARKED. */
int hfi_cohort_give_up(struct hfi_cohort *cohort, struct hfi_call *call);
/* It is told to end. False: its phase is another than WAITING or PARKED. */
bool hfi_cohort_stop(struct hfi_cohort *cohort, struct hfi_call *call);
/* For cohort_give_up.c. True: a reference is to be dropped when the cohort is unlocked. */
bool hfi_cohort_clear_alarm_locked(struct hfi_cohort *cohort);
/* A share comes back. With a call its phase becomes LEFT, or LEAVING. Frees the share. */
void hfi_cohort_leave(struct hfi_cohort_share *share, struct hfi_call *call);
/* The client is closed: the share is freed, and nothing else. */
void hfi_cohort_run_out(struct hfi_cohort_share *share);
void hfi_cohort_share_free(struct hfi_cohort_share *share); /* NULL is fine */
/* cohorts.c: it fires on the keeper. */
void hfi_cohort_alarm_fired(struct hfi_alarm *alarm);
/* How many times it is in there. */
int64_t hfi_cohort_count(struct hfi_cohort *cohort, hf_owner owner);

#endif
