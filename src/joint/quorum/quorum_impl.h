/*
 * Shared by the files of src/joint/quorum.
 *
 *   quorum.c           the engine's tables; requests, which carry a call to the keeper and back
 *   members.c          the servers: their cores, their state, their order for a name
 *   ballot.c           ballots: one for each lock and owner, with a vote for each server
 *   member_op.c        operations on members
 *   acquire.c          winning a hold
 *   renew.c            renewing it, and acquiring it at servers that do not have it
 *   release.c          giving it back
 *   survey.c           queries to all servers
 *   name_listener.c    a name listener at each server
 *   quorum_validity.c  how long a hold is valid, computed from its votes
 *   tally.c            counting the answers of a round
 *   token.c            the fencing token of a hold
 *   error_text.c       what errors say about each server
 *
 * The keeper's thread owns everything here, or the caller that has borrowed its loop
 * (net/driver/keeper_borrow.c). So nothing is locked, except the two lists by which requests arrive
 * (`inbox`); name_listener.c has nothing to lock.
 */
#ifndef HFI_JOINT_QUORUM_QUORUM_IMPL_H
#define HFI_JOINT_QUORUM_QUORUM_IMPL_H

#include "core/op/op.h"
#include "engine/observe.h"
#include "joint/quorum/quorum.h"

#define HFI_LOST_TEXT "fewer than a majority of the servers have held it without interruption"

struct hfi_ballot;
struct hfi_request;

/* What a kind of the quorum is at each server: the kind's `engine_private`. */
struct hfi_quorum_kind {
    hf_kind kind;
    unsigned flags;
};

/* ---- Members ---- */

struct hfi_member {
    struct hfi_quorum *quorum;
    struct hfi_core core;
    struct hfi_engine_events engine_events; /* for its engine */
    char node[108];
    /* it did not answer together with the others, and has not since */
    bool slow;
    bool unguarded; /* it does not report its uptime, which was logged */
    int64_t rtt_us; /* average round trip; 0: none yet */
};

struct hfi_quorum {
    struct hfi_engine base;
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_log silent;
    struct hfi_exec *keeper;
    struct hfi_quorum_config config;
    char id[37];
    int64_t guard_ms;
    size_t len, majority;
    struct hfi_member *members[HFI_SERVERS_MAX];

    struct hfi_task *task;
    pthread_mutex_t inbox_mtx;
    struct hfi_link inbox;    /* new requests */
    struct hfi_link stops;    /* requests to cancel */
    bool stopped;             /* guarded by inbox_mtx: takes no new requests */
    struct hfi_link finished; /* member ops whose operation has completed */
    struct hfi_table table;   /* of ballots, by place */
    struct hfi_link running;  /* requests that have begun */
    atomic_size_t member_ops; /* in progress */

    const struct hfi_engine_events *engine_events; /* of the core above */
};

static inline struct hfi_quorum *hfi_quorum_of_engine(struct hfi_engine *engine) {
    return HFI_CONTAINER(engine, struct hfi_quorum, base);
}

/* members.c */
int hfi_members_check(struct hfi_quorum *quorum, hf_error *error);
/* Writes the indices of all members in the order for this name, which is the same in all
 * clients. */
void hfi_members_order(const struct hfi_quorum *quorum, const char *name, size_t name_len,
                       size_t *ret_order);
/* Since when it has been up, at the latest; INT64_MIN: unknown. */
int64_t hfi_member_up_since_ms(struct hfi_member *member);
void hfi_member_answered(struct hfi_member *member, int64_t took_us);
/* The round trip to a majority, in microseconds. */
int64_t hfi_members_rtt_us(const struct hfi_quorum *quorum);
void hfi_member_free(struct hfi_member *member);
int hfi_member_new(struct hfi_quorum *quorum, struct hfi_engine *engine, const char *node,
                   struct hfi_member **ret);

/* ---- name_listener.c: as in struct hfi_observe_ops, on any thread ---- */

int hfi_quorum_subscribe(struct hfi_engine *engine, const char *name, size_t name_len,
                         struct hfi_name_subscriber *subscriber, struct hfi_name_listener **ret);

/* ---- Member ops: an operation on one member ---- */

enum hfi_member_op_kind {
    HFI_MEMBER_ACQUIRE,
    HFI_MEMBER_EXTEND,
    HFI_MEMBER_RELEASE,
    HFI_MEMBER_QUERY
};

struct hfi_member_op {
    struct hfi_link link; /* in quorum->finished */
    struct hfi_quorum *quorum;
    struct hfi_member *member;
    size_t index; /* of the member */
    enum hfi_member_op_kind kind;
    struct hf_op *op; /* referenced */
    int64_t began_us, lease_ms, token_wish;
    uint64_t round; /* of its ballot, when it began */
    bool waits;
    bool again;    /* resent, because the first acquire reported an old loss */
    bool hopeless; /* failed, because the server's host name does not exist */
    int code;
    hf_error error;
    int64_t value, token, sent_ms;
    hf_lock_info *info;
    struct hfi_findings *findings;
    struct hfi_ballot *ballot; /* referenced; NULL: of a survey */
    struct hfi_survey *survey;
    void (*done)(struct hfi_member_op *member_op); /* then it is freed */
};

struct hfi_member_op_args {
    enum hfi_member_op_kind kind;
    const struct hfi_verb *verb; /* of HFI_MEMBER_QUERY */
    /* of the whole quorum: members have its lock; NULL: of the server, as a ping */
    const struct hfi_kind *lock;
    struct hfi_stamp_text *text; /* acquire: the stamp that the caller chose; or NULL */
    const char *name;
    size_t name_len;
    hf_owner owner;
    int64_t wait_ms, lease_ms, token_wish;
    enum hfi_query query;
    unsigned wanted; /* of a survey */
};

/* NULL: out of memory. The quorum's task calls `done` later. */
struct hfi_member_op *hfi_member_op_begin(struct hfi_quorum *quorum, size_t member,
                                          const struct hfi_member_op_args *args,
                                          void (*done)(struct hfi_member_op *member_op));
void hfi_member_op_stop(struct hfi_member_op *member_op); /* cancels it */
/* For how long the server has made no progress on it; 0: it is not stalled. */
int64_t hfi_member_op_stalled_ms(const struct hfi_member_op *member_op);
/* From the quorum's task. */
void hfi_member_ops_finish(struct hfi_quorum *quorum);

/* ---- Ballots ---- */

enum hfi_answer { HFI_UNASKED, HFI_GRANTED, HFI_BUSY, HFI_FAILED };

struct hfi_member_vote {
    struct hfi_member_op *member_op; /* in progress; NULL: none */
    enum hfi_answer answer;          /* of this attempt */
    /* Its last answer, of this attempt or an earlier one; HF_EUNREACH: none. */
    int code;
    bool hopeless;            /* with `code`: its host name does not exist */
    uint64_t asked_round;     /* the round in which it was last asked */
    uint64_t proved_round;    /* the round of its last proof */
    uint64_t unwilling_round; /* in that round it did not fulfil the token wish */
    bool gone;                /* release: it says that the hold was not there */
    bool owed;                /* its release is still to be sent: there was no memory for it */
    bool known;               /* release: it is known not to have the hold */
};

/* One renewal round of a hold, for a renewal of the core or for an operation. */
struct hfi_round {
    struct hfi_link link; /* in ballot->rounds; the first is in progress */
    struct hfi_ballot *ballot;
    bool begun;
    uint64_t number;
    int64_t lease_ms, deadline_ms;
    /* HF_OK, HF_ELOST, or HF_ENOQUORUM: too few have answered. */
    void (*done)(struct hfi_round *round, int err);
    struct hfi_request *request;
    struct hfi_renewal *renewal;
    size_t item;
};

/* What one owner has of one lock at all servers. */
struct hfi_ballot {
    struct hfi_keyed keyed;
    int refs; /* the table's, its request's, one for each member op */
    struct hfi_quorum *quorum;
    hf_owner owner;
    int64_t token; /* of the hold; 0: none */
    bool thin;     /* no more than a majority has it, which was logged */
    bool wanted;   /* grants are kept; else they are given back */
    int64_t count; /* of the hold, as the core last reported it */
    int64_t lease_ms;
    uint64_t round;
    struct hfi_votes votes;
    struct hfi_member_vote member_votes[HFI_SERVERS_MAX];
    size_t order[HFI_SERVERS_MAX];
    struct hfi_request *request; /* an acquire or release in progress */
    struct hfi_link rounds;
    struct hfi_alarm alarm; /* of the request */
    struct hfi_alarm round_alarm;
    struct hfi_alarm end_alarm;     /* of the hold */
    const struct hfi_kind *held_as; /* its kind in the core above */
    struct hfi_stamp_text *text;    /* referenced: the stamp that the caller chose; or NULL */
    size_t name_len, place_len;
    char *name;
    char *place; /* name, a zero byte, owner, part */
};

struct hfi_ballot *hfi_ballot_find(struct hfi_quorum *quorum, const struct hfi_kind *kind,
                                   const char *name, size_t name_len, hf_owner owner);
struct hfi_ballot *hfi_ballot_get(struct hfi_quorum *quorum, const struct hfi_kind *kind,
                                  const char *name, size_t name_len, hf_owner owner);
void hfi_ballot_ref(struct hfi_ballot *ballot);
void hfi_ballot_unref(struct hfi_ballot *ballot);
/* An entry of the quorum's table; NULL is fine. */
static inline struct hfi_ballot *hfi_ballot_of(struct hfi_keyed *keyed) {
    return keyed != NULL ? HFI_CONTAINER(keyed, struct hfi_ballot, keyed) : NULL;
}

/* Removes it from the table if nothing needs it any more. */
void hfi_ballot_tidy(struct hfi_ballot *ballot);
/* Begin a member op for a vote that has none; the first extends it with a token wish. False: out of
 * memory. */
bool hfi_member_vote_wish(struct hfi_ballot *ballot, size_t i, int64_t token_wish,
                          int64_t lease_ms);
bool hfi_member_vote_send(struct hfi_ballot *ballot, size_t i, enum hfi_member_op_kind kind,
                          int64_t wait_ms, int64_t lease_ms);
/* Gives back all grants, in the background. A grant that comes later is given back, too, unless the
 * ballot is wanted again by then. */
void hfi_ballot_give_back(struct hfi_ballot *ballot);
/* Cancels the acquires in progress. */
void hfi_ballot_stop_asking(struct hfi_ballot *ballot);
void hfi_ballot_clear_alarms(struct hfi_ballot *ballot);
/* Something has changed: the request and the round are re-evaluated. */
void hfi_ballot_check(struct hfi_ballot *ballot);

/* ---- Requests: calls, on the keeper's thread ---- */

enum hfi_acquire_phase {
    HFI_PHASE_ASKING,
    HFI_PHASE_KEEPING,
    HFI_PHASE_PAUSING,
    HFI_PHASE_WAITING,
    HFI_PHASE_AGEING
};

struct hfi_request {
    atomic_int refs;      /* the call's, and the keeper's */
    struct hfi_link link; /* in the inbox, then in `running` */
    struct hfi_link stop_link;
    struct hfi_quorum *quorum;
    struct hfi_task *task; /* gets the event; referenced, which keeps call_status alive, too */
    struct hfi_call_status *call_status;
    void (*begin)(struct hfi_request *request);
    /* Ends it now, with that error. */
    void (*stop)(struct hfi_request *request, int err);
    /* Something in its ballot has changed. */
    void (*check)(struct hfi_request *request);
    atomic_int stop_err;
    atomic_bool done;

    const struct hfi_kind *kind;
    struct hfi_stamp_text *text; /* referenced; acquire: the stamp that the caller chose; or NULL */
    hf_owner owner;
    int64_t count, lease_ms, start_ms, deadline_ms;
    enum hfi_query query;
    unsigned wanted; /* of a survey */

    struct hfi_ballot *ballot; /* referenced */
    struct hfi_survey *survey;
    struct hfi_round round; /* extend, re-entry */
    struct {
        enum hfi_acquire_phase phase;
        bool one_attempt;
        unsigned late_rounds;  /* lost because answers came late, not to another owner */
        int64_t began_us;      /* start of the round */
        int64_t majority_us;   /* when a majority had answered; 0: not yet */
        int64_t keep_until_us; /* 0: not keeping */
        int64_t keep_pause_us;
        unsigned rounds_lost;
        size_t waits_at;     /* a member */
        size_t probes_at;    /* the member probed last; else the same */
        int64_t probe_us;    /* when to probe the next */
        bool unsure;         /* while it waits: perhaps no owner holds a majority */
        int64_t answered_ms; /* when a majority last answered */
    } acquire;
    struct {
        bool counted[HFI_SERVERS_MAX]; /* the server's vote counted when the release was sent */
        bool valid;
    } release;

    /* Out. */
    int err;
    hf_error error;
    int64_t value, votes, token;
    struct hfi_proof proof;
    bool contended, gone, no_server;
    hf_lock_info *info;
    struct hfi_findings *findings;

    size_t name_len;
    char name[];
};

/* What is proved of a hold, for the core above. */
struct hfi_proof hfi_ballot_proof(const struct hfi_ballot *ballot, int64_t lease_ms);

/* Ends it and posts the event to the call. */
void hfi_request_finish(struct hfi_request *request, int err);
void hfi_request_unref(struct hfi_request *request);

/* acquire.c, renew.c, release.c, survey.c: the `begin` functions of requests. */
void hfi_acquire_begin(struct hfi_request *request);
void hfi_extend_begin(struct hfi_request *request);
void hfi_release_begin(struct hfi_request *request);
void hfi_settle_begin(struct hfi_request *request);
void hfi_break_begin(struct hfi_request *request);
void hfi_ask_begin(struct hfi_request *request);
void hfi_inspect_begin(struct hfi_request *request);
void hfi_find_begin(struct hfi_request *request);

/* renew.c */
void hfi_quorum_renew(struct hfi_engine *engine, struct hfi_renewal *renewal);
void hfi_rounds_check(struct hfi_ballot *ballot);
void hfi_rounds_end(struct hfi_ballot *ballot, int err); /* all of them */
void hfi_round_begin(struct hfi_ballot *ballot, struct hfi_round *round);

/* tally.c: counts the answers of the current round. */
#define HFI_GRACE_US 2000 /* the least wait for answers after those of a majority */

struct hfi_tally {
    size_t answered;     /* granted or busy */
    size_t refused;      /* with an error that waiting does not cure */
    size_t hopeless;     /* no answer, because the host name does not exist */
    size_t pending;      /* no answer yet */
    size_t pending_fast; /* of these, from servers not known to be slow */
    int refusal;
};

int64_t hfi_doubled_us(int64_t us, unsigned times, int64_t most_us); /* exponential back-off */
struct hfi_tally hfi_tally_of(const struct hfi_ballot *ballot);
bool hfi_tally_is_open(const struct hfi_request *request, const struct hfi_tally *tally);
bool hfi_tally_is_hopeless(const struct hfi_request *request, const struct hfi_tally *tally);
int64_t hfi_tally_grace_us(const struct hfi_request *request, bool open);
/* When one attempt ends, unless its first round takes longer. */
int64_t hfi_attempt_ends_us(const struct hfi_request *request);
/* Its first round was answered by a majority, and a later one has no more time. */
bool hfi_attempt_is_over(const struct hfi_request *request);
bool hfi_tally_is_over(struct hfi_request *request, const struct hfi_tally *tally);
void hfi_tally_mark_slow(struct hfi_ballot *ballot); /* those without an answer */

/* token.c: the token of a hold; 0 while no majority stores it yet. Then it asks servers for what is
 * missing, and hfi_token_is_pending() is true. */
int64_t hfi_token_agreed(struct hfi_ballot *ballot, int64_t lease_ms);
bool hfi_token_is_pending(const struct hfi_ballot *ballot);
/* A server's reply to an acquire or extend, successful or not. */
void hfi_token_received(struct hfi_ballot *ballot, const struct hfi_member_op *member_op);

/* error_text.c: writes "2 of 5 granted, 3 needed; busy: ..." into the request's error. */
void hfi_error_text_of_servers(struct hfi_request *request, int err);
/* Reports the same text to the caller's status (struct hfi_call_status). */
void hfi_report_servers(struct hfi_request *request, int err);
/* Logs the same text for an attempt that won no majority. */
void hfi_log_votes(const struct hfi_ballot *ballot);

#endif
