/*
 * A hold: what one owner possesses at one place on the server. A record and a state machine.
 *
 * Three things about it change independently of each other, and each is an enum: what we possess,
 * what the wire may still do, and its renewal. Every transition is a function of hold.c, and only
 * hold.c writes what is listed under "State" (tests/frame/hold_state.sh); whoever has the shard may
 * read it.
 *
 *     possession          FREE ──granted──▶ HELD ◀──proof──▶ WARNED
 *                           ▲ ▲               │                │
 *                           │ └──released─────┴────────────────┤
 *                           └──told── LOST ◀──lost, ran out────┘
 *
 *     wire                QUIET ──settle──▶ SETTLING ──left behind──▶ SETTLING_AND_MORE
 *                           │ ▲                │                            │
 *                  left behind└──turn left─────┘                            │
 *                           ▼                                               │
 *                        LEFTOVER ◀──turn left──────────────────────────────┘
 *
 *     renewing            RESTING ──due──▶ DUE ──sent──▶ SENT or ASKING ──answered──▶ RESTING
 */
#ifndef HFI_CORE_HOLD_H
#define HFI_CORE_HOLD_H

#include "core/parts.h"

/* What we possess. */
enum hfi_possession {
    HFI_HOLD_FREE,
    HFI_HOLD_HELD,
    HFI_HOLD_WARNED, /* held, and its end was warned of */
    HFI_HOLD_LOST    /* it ended without our release, and its owner has not been told */
};

/* How the last possession ended. */
enum hfi_ending { HFI_NOT_ENDED, HFI_ENDED_BY_RELEASE, HFI_ENDED_BY_LOSS, HFI_RAN_OUT };

/* What the wire may still do. */
enum hfi_wire {
    HFI_WIRE_QUIET,
    /* Something of a former possession, or of a wait for one, may still be at the server: a
     * settlement was broken off, or the hold was given up without a release. */
    HFI_WIRE_LEFTOVER,
    /* `active` is over for its caller, but the server has not answered yet. */
    HFI_WIRE_SETTLING,
    /* And there is, or came meanwhile, something that this settlement does not see to. */
    HFI_WIRE_SETTLING_AND_MORE
};

enum hfi_renewing {
    HFI_RESTING,
    HFI_DUE,   /* in core->due */
    HFI_SENT,  /* a renewal is under way */
    HFI_ASKING /* and it is asked because there was word that the hold is gone */
};

enum hfi_trouble { HFI_WARNING, HFI_LOST, HFI_ORPHANED, HFI_TROUBLES };

struct hfi_trouble_notice {
    struct hfi_notice notice;
    struct hfi_hold *hold; /* referenced while queued */
    enum hfi_trouble kind;
    bool queued;
    int64_t remaining_ms;
};

struct hfi_hold {
    struct hfi_keyed keyed; /* in the shard, by its place */
    size_t size;            /* of its memory */
    atomic_int refs; /* the table, an armed alarm, queued notices, a renewal, operations, a place
                        among those to be let go */
    struct hfi_core *core;
    struct hfi_shard *shard;
    const struct hfi_kind *kind;
    bool
        inner; /* a cohort's: each of its threads has a hold of its own, which is counted and told of */

    struct hfi_alarm alarm;   /* on the keeper */
    struct hfi_link due_link; /* in core->due */
    struct hfi_link let_go_link;
    struct hfi_trouble_notice troubles[HFI_TROUBLES];

    struct hfi_link stakes; /* those who count on it; guarded by the shard, written by parts.c */
    struct hfi_link shares; /* of a joint kind: what it has of its parts; the same */

    hf_owner number;         /* 0: its owner is no number, but the id of a permit */
    struct hfi_alias *alias; /* referenced: its owner was adopted; else NULL */
    size_t name_len, owner_len, place_len;
    char *name; /* all three in one allocation behind the struct */
    char *owner;
    char *place;

    /* ---- State: guarded by the shard, written by hold.c ---- */

    enum hfi_possession possession;
    int64_t count;       /* more than 0: it is held */
    uint64_t generation; /* of the possession: changes when it begins and ends */
    int64_t since_us;
    int64_t token;
    int64_t lease_ms;               /* the longest lease given so far */
    int acks;                       /* who must confirm its renewals: the strictest given so far */
    const struct hfi_kind *held_as; /* the kind of the handle by which it was acquired last */
    struct hfi_self *self;          /* the thread whose default owner this is, or NULL */
    struct hfi_diary *diary;        /* referenced: where its time will be noted; or NULL */
    bool orphaned;                  /* which has ended */
    enum hfi_ending ended;
    const char *reason; /* of the loss */
    int64_t forget_ms;  /* a loss that nobody asks about, of an owner that never returns */

    /* How long it lasts: until the earlier of both (hfi_hold_deadline_ms). */
    int64_t promised_until_ms; /* the lease's own end; HFI_NEVER: it is renewed until released */
    int64_t proved_until_ms;   /* how far the last proof of the engine reaches */
    /* The last proof was for a part of its lease only, and reached so far when it came; 0: for all
     * of it. */
    int64_t part_ms;

    enum hfi_renewing renewing;
    int64_t renew_at_ms;           /* HFI_NEVER: not any more, or not as far as the engine knows */
    bool done_with;                /* by its owner: no proof makes it be renewed again */
    bool renews_exactly;           /* then, and not a little earlier with others */
    bool renewal_awaited;          /* by `active`, which must not begin a possession before that */
    int64_t renewal_until_ms;      /* a renewal was sent that may still act until then; 0: none */
    int64_t lost_renewal_until_ms; /* the same of one that was given up */
    /* The server is to be asked then if the hold is still there; 0: not. */
    int64_t verify_at_ms;
    int64_t verified_ms; /* when it was last asked for that reason */

    enum hfi_wire wire;
    bool silent;            /* the server did not answer (it is not that we stopped listening) */
    bool letting_go;        /* the keeper is to end what is left, or is about to */
    int64_t let_go_at_ms;   /* and when it begins with that */
    int64_t quiet_until_ms; /* a copy of a former command may act until then: send nothing before */

    struct hf_op *active;  /* one command per hold at a time */
    struct hfi_link queue; /* those that wait for their turn */
    /* releases in `queue` that nobody waits for any more: for their callers they are done */
    int64_t leaving;
};

/* ---- Reading it, with the shard locked ---- */

/* All holds of a shard, in no order; NULL: that was the last. */
static inline struct hfi_hold *hfi_hold_around(struct hfi_keyed *keyed) {
    return keyed != NULL ? HFI_CONTAINER(keyed, struct hfi_hold, keyed) : NULL;
}
static inline struct hfi_hold *hfi_hold_first_locked(const struct hfi_shard *shard) {
    return hfi_hold_around(hfi_table_first(&shard->holds));
}
static inline struct hfi_hold *hfi_hold_next_locked(const struct hfi_hold *hold) {
    return hfi_hold_around(hfi_table_next(&hold->shard->holds, &hold->keyed));
}

/* Trust it no longer than this. */
static inline int64_t hfi_hold_deadline_ms(const struct hfi_hold *hold) {
    if (hold->kind->joint)
        return hfi_min_ms(hold->promised_until_ms, hfi_shares_deadline_ms(hold));
    return hold->promised_until_ms < hold->proved_until_ms ? hold->promised_until_ms
                                                           : hold->proved_until_ms;
}

/* It has no end but its release: a watchdog keeps it. */
static inline bool hfi_hold_is_watched(const struct hfi_hold *hold) {
    return hold->count > 0 && hold->promised_until_ms == HFI_NEVER;
}

/* More was promised than is proved yet. */
static inline bool hfi_hold_lacks_proof(const struct hfi_hold *hold) {
    return hold->proved_until_ms < hold->promised_until_ms;
}

static inline bool hfi_hold_is_permit(const struct hfi_hold *hold) {
    return hold->number == 0;
}

static inline bool hfi_hold_has_leftover(const struct hfi_hold *hold) {
    return hold->wire == HFI_WIRE_LEFTOVER || hold->wire == HFI_WIRE_SETTLING_AND_MORE;
}

static inline bool hfi_hold_is_settling(const struct hfi_hold *hold) {
    return hold->wire == HFI_WIRE_SETTLING || hold->wire == HFI_WIRE_SETTLING_AND_MORE;
}

/* Is it to be renewed? To prove more of what was promised, or because others may have shortened
 * what is left of it. */
static inline bool hfi_hold_is_renewed(const struct hfi_hold *hold) {
    return hold->count > 0 && hold->renew_at_ms != HFI_NEVER &&
           (hold->held_as->keeps_fresh || hfi_hold_lacks_proof(hold));
}

/* Its deadline has passed, but the keeper has not noticed yet. */
bool hfi_hold_expired_locked(const struct hfi_hold *hold);
/* When to warn of its end. */
int64_t hfi_hold_warn_at_ms(const struct hfi_hold *hold);

/* ---- Records (hold_table.c) ---- */

/* Finds or makes the record. Shard locked. NULL: out of memory. */
struct hfi_hold *hfi_hold_get_locked(struct hf_op *op);
/* Finds it only. */
struct hfi_hold *hfi_hold_find_locked(struct hfi_core *core, struct hfi_shard *shard,
                                      const struct hfi_kind *kind, const char *name,
                                      size_t name_len, hf_owner number);
/* The same for an owner that is not a number: a permit, by its id. Makes the record only if
 * `make`. */
struct hfi_hold *hfi_hold_of_locked(struct hfi_core *core, struct hfi_shard *shard,
                                    const struct hfi_kind *kind, const char *name, size_t name_len,
                                    const char *owner, size_t owner_len, bool make);
/* Removes the record from the table if nothing needs it any more. */
void hfi_hold_tidy_locked(struct hfi_hold *hold);
void hfi_hold_ref(struct hfi_hold *hold);
void hfi_hold_unref(struct hfi_hold *hold);
/* Visits every hold, shard by shard. `visit` runs under the shard's mutex. */
void hfi_for_each_hold(struct hfi_core *core, void (*visit)(struct hfi_hold *hold));
/* By the stem of a name, so that all holds of one stem are in one shard. */
struct hfi_shard *hfi_core_shard(struct hfi_core *core, const char *stem, size_t stem_len);

/* ---- Locks that may have something in common (overlap.c), with the shard locked ---- */

/* Under a name that others know, e.g. one that was broken. */
bool hfi_hold_has_stem(const struct hfi_hold *hold, const char *stem, size_t stem_len);
/* It is of this kind, and has something in common with the lock of this name. */
bool hfi_hold_overlaps(const struct hfi_hold *hold, const struct hfi_kind *kind, const char *name,
                       size_t name_len);

enum hfi_entanglement {
    HFI_APART,
    HFI_ENDING, /* something of another hold may still be there, but not for long */
    HFI_HELD    /* another one is held, or is being acquired */
};
/* Whether another hold of the operation's owner has something in common with the one that it wants.
 * If not, no other acquire of this owner's gets in its way from now on. */
enum hfi_entanglement hfi_overlap_claim_locked(struct hf_op *op);

/* ---- Possession ---- */

struct hfi_grant {
    const struct hfi_kind *kind;
    int64_t count, token, lease_ms;
    int acks;
    bool watched; /* it has no end but its release */
    struct hfi_proof proof;
    struct hfi_self *self;   /* if a possession begins, its reference goes to the hold; or NULL */
    struct hfi_diary *diary; /* of its name; NULL: none is kept */
};

/* It was over before it could be used. */
static inline bool hfi_proof_is_over(const struct hfi_proof *proof) {
    int64_t now_ms = hfi_now_ms();
    return proof->valid_until_ms <= now_ms || proof->promised_until_ms <= now_ms;
}

/* The engine has granted it, once or once more. */
void hfi_hold_granted_locked(struct hfi_hold *hold, const struct hfi_grant *grant);
/* Its lease was raised. */
void hfi_hold_extended_locked(struct hfi_hold *hold, int64_t lease_ms,
                              const struct hfi_proof *proof);
/* It has this lease now, perhaps a shorter one, and no watchdog. */
void hfi_hold_set_lease_locked(struct hfi_hold *hold, int64_t lease_ms,
                               const struct hfi_proof *proof);
/* Nobody knows whether its lease was set to end then, which is earlier. */
void hfi_hold_may_end_locked(struct hfi_hold *hold, int64_t until_ms);
/* The engine has proved it without being asked. It is held. */
void hfi_hold_proved_locked(struct hfi_hold *hold, const struct hfi_proof *proof);

/* By our release there are so many left. */
void hfi_hold_released_locked(struct hfi_hold *hold, int64_t count);
/* The possession ends by our release. */
void hfi_hold_end_locked(struct hfi_hold *hold);
/* The possession ends without our release. Returns true if that is news: then call
 * hfi_hold_report() unlocked. */
bool hfi_hold_lose_locked(struct hfi_hold *hold, const char *reason);
/* Its deadline has passed: it is lost, and what the server may still have of it is to be ended. */
bool hfi_hold_run_out_locked(struct hfi_hold *hold);
/* The first call on a hold after its loss takes the loss, and reports it. *ret_news: the loss was
 * found only now, because the deadline has passed, so hfi_hold_report() is due when the shard is
 * unlocked. */
bool hfi_hold_take_loss_locked(struct hfi_hold *hold, bool *ret_news);
/* Its owner knows of the loss, if there was one. */
void hfi_hold_loss_told_locked(struct hfi_hold *hold);

/* True, once: it is time to warn of its end. */
bool hfi_hold_warn_locked(struct hfi_hold *hold, int64_t now_ms);
/* From now on it ends with what is proved. */
void hfi_hold_unwatch_locked(struct hfi_hold *hold);
/* Its owner is done with it: it is not renewed any more. */
void hfi_hold_stop_renewing_locked(struct hfi_hold *hold);
/* True, once: the thread that is its owner has ended. */
bool hfi_hold_orphan_locked(struct hfi_hold *hold);

/* ---- Renewal ---- */

/* Has the server asked about it at that time, and no more often than every 100 ms. */
void hfi_hold_verify_locked(struct hfi_hold *hold);
void hfi_hold_renew_at_locked(struct hfi_hold *hold, int64_t at_ms);
void hfi_hold_renewal_due_locked(struct hfi_hold *hold);
/* It is sent, and given up at `deadline_ms`. The lease to renew it with; 0: there is nothing to
 * renew any more. */
int64_t hfi_hold_renewal_sent_locked(struct hfi_hold *hold, int64_t deadline_ms);
/* It has ended. What it left at the server, if it was not answered, may act for a while. */
void hfi_hold_renewal_ended_locked(struct hfi_hold *hold, bool answered, int64_t now_ms);
/* What came of it for the possession that it was sent for: proved; not answered, or refused; not
 * found while another command was under way. */
void hfi_hold_renewed_locked(struct hfi_hold *hold, const struct hfi_proof *proof);
void hfi_hold_renew_again_locked(struct hfi_hold *hold, int64_t now_ms);
void hfi_hold_missed_locked(struct hfi_hold *hold, int64_t now_ms);

/* ---- What the wire may still do ---- */

/* There may be something of it at the server that nobody sees to. */
void hfi_hold_leave_behind_locked(struct hfi_hold *hold);
/* There is nothing of it, or it belongs to the possession that begins. */
void hfi_hold_nothing_left_locked(struct hfi_hold *hold);
/* `active` settles, all there is. `silent`: because the server did not answer. */
void hfi_hold_settle_locked(struct hfi_hold *hold, bool silent);
/* Whoever waits for its turn from now on waits for an answer. */
void hfi_hold_await_answer_locked(struct hfi_hold *hold);
/* A settlement was broken off: whoever is next takes over, and sends nothing before. */
void hfi_hold_hand_on_locked(struct hfi_hold *hold, int64_t quiet_until_ms);
/* The time before which nothing may be sent for a possession that begins, with a fixed lease or
 * not. */
int64_t hfi_hold_quiet_until_locked(struct hfi_hold *hold, bool fixed_lease);
/* The keeper is to end what is left, from then on; it has done so, or need not. */
void hfi_hold_let_go_at_locked(struct hfi_hold *hold, int64_t at_ms);
void hfi_hold_let_go_ended_locked(struct hfi_hold *hold);

/* ---- Turns ---- */

/* True: it is the operation's turn, or it needs none. Else it is in line. */
bool hfi_hold_line_up_locked(struct hfi_hold *hold, struct hf_op *op);
/* Gives the turn to the next, if it was this operation's. True: it was, and nobody is next. */
bool hfi_hold_leave_turn_locked(struct hfi_hold *hold, struct hf_op *op);
/* A release in line is left to the keeper; and now it has its turn. */
void hfi_hold_leave_locked(struct hfi_hold *hold);
void hfi_hold_left_locked(struct hfi_hold *hold);

/* ---- Telling the listeners (report.c) ---- */

/* No mutex may be held; it keeps the record alive by itself. */
void hfi_hold_report(struct hfi_hold *hold, enum hfi_trouble kind);
/* It was proved anew, or lost: whoever counts on it looks again. The same. */
void hfi_hold_changed(struct hfi_hold *hold);
/* For a new record. */
void hfi_hold_init_reports(struct hfi_hold *hold);

#endif
