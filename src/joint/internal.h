/*
 * What the files of src/joint share.
 *
 *   quorum.c    the engine's tables; requests, which carry a call to the keeper's thread and back
 *   members.c   the servers: their cores, what is known of them, their order for a name
 *   ballot.c    ballots: one for each lock and owner, with a seat for each server
 *   errand.c    operations on members
 *   acquire.c   winning a hold
 *   confirm.c   renewing it, and filling up servers that do not have it
 *   release.c   giving it back
 *   survey.c    questions to all servers
 *   hear.c      hearing what each of them says of a name
 *   votes.c     the arithmetic
 *   token.c     the token of a hold
 *   words.c     what errors say of each server
 *
 * Everything here belongs to the keeper's thread, or to the caller that stands in for it (net/chair.c), so
 * nothing is locked, but for the two lists by which requests arrive (`inbox`); hear.c has nothing to lock.
 */
#ifndef HFI_JOINT_INTERNAL_H
#define HFI_JOINT_INTERNAL_H

#include "core/op.h"
#include "joint/quorum.h"

#define HFI_LOST_WORDS "fewer than a majority of its servers have held it without a break"

struct hfi_ballot;
struct hfi_request;

/* ---- Members ---- */

struct hfi_member {
    struct hfi_quorum *quorum;
    struct hfi_core core;
    struct hfi_news news; /* for its engine */
    char node[108];
    bool slow;      /* it did not answer when the others did, and has not answered since */
    bool unguarded; /* it does not tell since when it is up, which was logged */
    int64_t rtt_us; /* of its answers, on average; 0: none yet */
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
    struct hfi_link inbox;    /* requests that begin */
    struct hfi_link stops;    /* requests that are to end */
    bool stopped;             /* guarded by inbox_mtx: nothing begins any more */
    struct hfi_link finished; /* errands whose operation has completed */
    struct hfi_ballot *table; /* by place */
    struct hfi_link running;  /* requests that have begun */
    atomic_size_t errands;    /* under way */

    const struct hfi_news *news; /* of the core above */
};

static inline struct hfi_quorum *hfi_quorum_of_engine(struct hfi_engine *engine) {
    return HFI_CONTAINER(engine, struct hfi_quorum, base);
}

/* members.c */
int hfi_members_check(struct hfi_quorum *quorum, hf_error *error);
/* Writes the indices of all members in the order for this name, which is the same for all clients. */
void hfi_members_order(const struct hfi_quorum *quorum, const char *name, size_t name_len,
                       size_t *ret_order);
/* Since when it has been up, at the latest; INT64_MIN: nobody can tell. */
int64_t hfi_member_up_since_ms(struct hfi_member *member);
void hfi_member_answered(struct hfi_member *member, int64_t took_us);
/* A round trip to a majority, in microseconds. */
int64_t hfi_members_rtt_us(const struct hfi_quorum *quorum);
void hfi_member_free(struct hfi_member *member);
int hfi_member_new(struct hfi_quorum *quorum, struct hfi_engine *engine, const char *node,
                   struct hfi_member **ret);

/* ---- hear.c: as struct hfi_engine_ops has them, on any thread ---- */

int hfi_quorum_hear(struct hfi_engine *engine, const char *name, size_t name_len,
                    struct hfi_hearer *hearer, struct hfi_hearing **ret);
void hfi_quorum_unhear(struct hfi_engine *engine, struct hfi_hearing *hearing);
size_t hfi_quorum_servers(struct hfi_engine *engine);

/* ---- Errands: an operation on a member ---- */

enum hfi_errand_kind { HFI_ERRAND_ACQUIRE, HFI_ERRAND_EXTEND, HFI_ERRAND_RELEASE, HFI_ERRAND_ASK };

struct hfi_errand {
    struct hfi_link link; /* in quorum->finished */
    struct hfi_quorum *quorum;
    struct hfi_member *member;
    size_t index; /* of the member */
    enum hfi_errand_kind kind;
    struct hf_op *op; /* referenced */
    int64_t began_us, lease_ms, token_wish;
    uint64_t round; /* of its ballot, when it began */
    bool waits;
    bool again; /* it was sent a second time, because the first reported an old loss */
    int code;
    hf_error error;
    int64_t value, token, sent_ms;
    hf_lock_info *info;
    struct hfi_findings *findings;
    struct hfi_ballot *ballot; /* referenced; NULL: of a survey */
    struct hfi_survey *survey;
    void (*done)(struct hfi_errand *errand); /* then it is freed */
};

struct hfi_errand_args {
    enum hfi_errand_kind kind;
    const struct hfi_verb *verb; /* of HFI_ERRAND_ASK */
    bool about_server;           /* ping: there is no lock */
    bool fenced;
    const char *name;
    size_t name_len;
    hf_owner owner;
    int64_t wait_ms, lease_ms, token_wish;
    enum hfi_question question;
    unsigned wanted; /* of a survey */
};

/* NULL: out of memory. `done` is called later, from the quorum's task. */
struct hfi_errand *hfi_errand_begin(struct hfi_quorum *quorum, size_t member,
                                    const struct hfi_errand_args *args,
                                    void (*done)(struct hfi_errand *errand));
void hfi_errand_stop(struct hfi_errand *errand); /* it is to end soon */
/* How long the server has not helped it; 0: all is well. */
int64_t hfi_errand_held_up_ms(const struct hfi_errand *errand);
/* From the quorum's task. */
void hfi_errands_finish(struct hfi_quorum *quorum);

/* ---- Ballots ---- */

enum hfi_answer { HFI_UNASKED, HFI_GRANTED, HFI_BUSY, HFI_FAILED };

struct hfi_seat {
    struct hfi_errand *errand; /* under way; NULL: none */
    enum hfi_answer answer;    /* of this attempt */
    int code;                  /* HFI_FAILED: why */
    uint64_t asked_round;      /* the round of its last question */
    uint64_t proved_round;     /* the round of its last proof */
    uint64_t unwilling_round;  /* in that round it did not do what was wished of its token */
    bool gone;                 /* release: it said that it was not there */
    bool owed;                 /* it is to be given back, and there was no memory for that */
    bool known;                /* release: it is known not to have it */
};

/* A round of renewals of one hold, for a renewal of the core or for a verb. */
struct hfi_round {
    struct hfi_link link; /* in ballot->rounds; the first is under way */
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

/* What one owner has of one lock at the servers. */
struct hfi_ballot {
    UT_hash_handle hh;
    int refs; /* the table's, its request's, one for each errand */
    struct hfi_quorum *quorum;
    hf_owner owner;
    bool fenced;
    int64_t token; /* of the hold; 0: it has none */
    bool thin;     /* no more than a majority has it, which was logged */
    bool wanted;   /* what servers grant is kept; else it is given back */
    int64_t count; /* of the hold, as far as the core has told */
    int64_t lease_ms;
    uint64_t round;
    struct hfi_votes votes;
    struct hfi_seat seats[HFI_SERVERS_MAX];
    size_t order[HFI_SERVERS_MAX];
    struct hfi_request *request; /* an acquire or release under way */
    struct hfi_link rounds;
    struct hfi_alarm alarm; /* of the request */
    struct hfi_alarm round_alarm;
    struct hfi_alarm end_alarm;     /* of the hold */
    const struct hfi_kind *held_as; /* how the core above calls its kind */
    size_t name_len, place_len;
    char *name;
    char *place; /* name, a zero byte, owner */
};

struct hfi_ballot *hfi_ballot_find(struct hfi_quorum *quorum, const char *name, size_t name_len,
                                   hf_owner owner);
struct hfi_ballot *hfi_ballot_get(struct hfi_quorum *quorum, const char *name, size_t name_len,
                                  hf_owner owner);
void hfi_ballot_ref(struct hfi_ballot *ballot);
void hfi_ballot_unref(struct hfi_ballot *ballot);
/* Removes it from the table if nothing needs it any more. */
void hfi_ballot_tidy(struct hfi_ballot *ballot);
/* Begins an errand of a seat that has none. False: out of memory. */
/* Extends it there, with a wish for its token. */
bool hfi_seat_wish(struct hfi_ballot *ballot, size_t i, int64_t token_wish, int64_t lease_ms);
bool hfi_seat_send(struct hfi_ballot *ballot, size_t i, enum hfi_errand_kind kind, int64_t wait_ms,
                   int64_t lease_ms);
/* Gives back whatever was granted, in the background. What is still being asked for is given back when
 * it comes, unless the ballot is wanted again by then. */
void hfi_ballot_give_back(struct hfi_ballot *ballot);
/* Nobody waits for what is being asked for. */
void hfi_ballot_stop_asking(struct hfi_ballot *ballot);
void hfi_ballot_clear_alarms(struct hfi_ballot *ballot);
/* Something has changed: the request and the round look at it. */
void hfi_ballot_look(struct hfi_ballot *ballot);

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
    struct hfi_link link; /* in the inbox, then among those that are running */
    struct hfi_link stop_link;
    struct hfi_quorum *quorum;
    struct hfi_task *task; /* whom to tell; referenced, and so the signs stay */
    struct hfi_signs *signs;
    void (*begin)(struct hfi_request *request);
    /* It is to end now, with that. */
    void (*stop)(struct hfi_request *request, int err);
    /* Something of its ballot has changed. */
    void (*look)(struct hfi_request *request);
    atomic_int stop_err;
    atomic_bool done;

    const struct hfi_kind *kind;
    hf_owner owner;
    int64_t count, lease_ms, start_ms, deadline_ms;
    enum hfi_question question;
    unsigned wanted; /* of a survey */

    struct hfi_ballot *ballot; /* referenced */
    struct hfi_survey *survey;
    struct hfi_round round; /* extend, nested acquire */
    struct {
        enum hfi_acquire_phase phase;
        bool one_attempt;
        unsigned late_rounds;  /* lost by answers that came late, and not by another owner */
        int64_t began_us;      /* the round of questions */
        int64_t majority_us;   /* a majority had answered it; 0: not yet */
        int64_t keep_until_us; /* 0: nothing is being kept */
        int64_t keep_pause_us;
        unsigned rounds_lost;
        size_t waits_at;     /* a member */
        size_t probes_at;    /* another, that was asked last, too; else the same */
        int64_t probe_us;    /* when the next is to be asked */
        bool unsure;         /* while it waits: a majority may be nobody's */
        int64_t answered_ms; /* a majority was last heard of */
    } acquire;
    struct {
        bool counted[HFI_SERVERS_MAX]; /* the server did when it was sent */
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

/* It is over: the call is told. */
void hfi_request_finish(struct hfi_request *request, int err);
void hfi_request_unref(struct hfi_request *request);

/* acquire.c, confirm.c, release.c, survey.c: what `begin` of a request is. */
void hfi_acquire_begin(struct hfi_request *request);
void hfi_extend_begin(struct hfi_request *request);
void hfi_release_begin(struct hfi_request *request);
void hfi_settle_begin(struct hfi_request *request);
void hfi_break_begin(struct hfi_request *request);
void hfi_ask_begin(struct hfi_request *request);
void hfi_inspect_begin(struct hfi_request *request);
void hfi_find_begin(struct hfi_request *request);

/* confirm.c */
void hfi_confirm(struct hfi_engine *engine, struct hfi_renewal *renewal);
void hfi_rounds_look(struct hfi_ballot *ballot);
void hfi_rounds_end(struct hfi_ballot *ballot, int err); /* all of them */
void hfi_round_begin(struct hfi_ballot *ballot, struct hfi_round *round);

/* tally.c: what the answers to the last question come to. */
#define HFI_PATIENCE_US 2000 /* at least so long for those that answer after a majority has */

struct hfi_tally {
    size_t answered;     /* granted, or another's */
    size_t refused;      /* for a reason that waiting does not cure */
    size_t pending;      /* not yet */
    size_t pending_fast; /* of these, by servers that are not known to be slow */
    int refusal;
};

struct hfi_tally hfi_tally_of(const struct hfi_ballot *ballot);
bool hfi_tally_is_open(const struct hfi_request *request, const struct hfi_tally *tally);
int64_t hfi_tally_patience_us(const struct hfi_request *request, bool open);
bool hfi_tally_is_over(struct hfi_request *request, const struct hfi_tally *tally);
void hfi_tally_mark_slow(struct hfi_ballot *ballot); /* whoever has not answered */

/* token.c: the token of a hold, 0 while a majority does not store it yet. Then servers are asked for what
 * is missing, and that is pending. */
int64_t hfi_token_agreed(struct hfi_ballot *ballot, int64_t lease_ms);
bool hfi_token_is_pending(const struct hfi_ballot *ballot);
/* Server `i` has granted or extended it; or did not. */
void hfi_token_heard(struct hfi_ballot *ballot, const struct hfi_errand *errand);

/* words.c: writes "2 of 5 granted, 3 needed; busy: ..." into the request's error. */
void hfi_words_of_servers(struct hfi_request *request, int err);
/* Tells them to whoever wants to know (struct hfi_signs). */
void hfi_tell_of_servers(struct hfi_request *request, int err);
/* The same of an attempt that won no majority, for whoever reads along. */
void hfi_log_votes(const struct hfi_ballot *ballot);

#endif
