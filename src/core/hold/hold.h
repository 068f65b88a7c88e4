/*
 * A hold: what one owner possesses at one place on the server. A record and a state machine.
 *
 * Three parts of its state change independently, each an enum: possession, wire (what commands may
 * still do at the server), and renewal. Every transition is a function in hold.c. Only hold.c
 * writes the fields under "State" (tests/frame/hold_state.sh); any thread with the shard locked may
 * read them.
 *
 *     possession          FREE ──granted──▶ HELD ◀──proof──▶ WARNED
 *                           ▲ ▲               │                │
 *                           │ └──released─────┴────────────────┤
 *                           └─reported─ LOST ◀─lost, ran out───┘
 *
 *     wire                QUIET ──settle──▶ SETTLING ──left behind──▶ SETTLING_AND_MORE
 *                           │ ▲                │                            │
 *                  left behind└──turn left─────┘                            │
 *                           ▼                                               │
 *                        RESIDUE ◀──turn left───────────────────────────────┘
 *
 *     renewing            RESTING ──due──▶ DUE ──sent──▶ SENT, ASKING or PROBING
 *                         RESTING ◀──answered──┘
 */
#ifndef HFI_CORE_HOLD_HOLD_H
#define HFI_CORE_HOLD_HOLD_H

#include "core/hold/parts.h"

/* What the owner possesses. */
enum hfi_possession {
    HFI_HOLD_FREE,
    HFI_HOLD_HELD,
    HFI_HOLD_WARNED, /* held, and the expiry warning was given */
    HFI_HOLD_LOST    /* ended without our release, and the loss is not reported yet */
};

/* How the last possession ended. */
enum hfi_ending { HFI_NOT_ENDED, HFI_ENDED_BY_RELEASE, HFI_ENDED_BY_LOSS, HFI_RAN_OUT };

/* What commands may still do at the server. */
enum hfi_wire {
    HFI_WIRE_QUIET,
    /* The server may still have a residue of an earlier possession, or of a wait for one. A
     * settlement was broken off, or the hold was given up without a release. */
    HFI_WIRE_RESIDUE,
    /* `active` has completed for its caller, but the server has not answered yet. */
    HFI_WIRE_SETTLING,
    /* And there is a residue that this settlement does not cover. */
    HFI_WIRE_SETTLING_AND_MORE
};

enum hfi_renewing {
    HFI_RESTING,
    HFI_DUE,    /* in core->due */
    HFI_SENT,   /* a renewal is in flight */
    HFI_ASKING, /* in flight, to verify a hint that the hold is gone */
    HFI_PROBING /* in flight, a probe: whether it is still there, and to have it tracked */
};

enum hfi_loss_kind { HFI_WARNING, HFI_LOST, HFI_ORPHANED, HFI_LOSS_KINDS };

struct hfi_loss_notice {
    struct hfi_notice notice;
    struct hfi_hold *hold; /* referenced while queued */
    enum hfi_loss_kind kind;
    bool queued;
    int64_t remaining_ms;
};

struct hfi_hold {
    struct hfi_keyed keyed; /* in the shard, by place */
    size_t size;            /* bytes allocated */
    /* the table, an armed alarm, queued notices, a renewal, operations, the expired-release list */
    atomic_int refs;
    struct hfi_core *core;
    struct hfi_shard *shard;
    const struct hfi_kind *kind;
    /* a cohort's: each of its threads has its own hold, which is counted and reported instead */
    bool inner;

    struct hfi_alarm alarm;    /* on the keeper */
    struct hfi_link due_link;  /* in core->due */
    struct hfi_link lost_link; /* in shard->lost */
    struct hfi_link expired_link;
    struct hfi_loss_notice loss_notices[HFI_LOSS_KINDS];

    /* stakes of joint locks in this hold; guarded by the shard, written by parts.c */
    struct hfi_link stakes;
    struct hfi_link shares; /* of a joint kind: its stakes in its parts; the same */

    hf_owner number;         /* 0: the owner is not a number, but the id of a permit */
    struct hfi_alias *alias; /* referenced: set if the owner was adopted; else NULL */
    size_t name_len, owner_len, place_len;
    char *name; /* all three in one allocation behind the struct */
    char *owner;
    char *place;

    /* ---- State: guarded by the shard, written by hold.c ---- */

    enum hfi_possession possession;
    int64_t count;       /* more than 0: held */
    uint64_t generation; /* of the possession: changes when it begins and ends */
    int64_t since_us;
    int64_t token;
    struct hfi_stamp stamp;            /* with a reference to its text */
    int64_t lease_ms;                  /* the longest lease given so far */
    int acks;                          /* required for renewals: the strictest given so far */
    const struct hfi_kind *held_as;    /* the kind of the handle that acquired it last */
    struct hfi_thread_record *self;    /* the thread whose default owner this is, or NULL */
    struct hfi_name_stats *name_stats; /* referenced: where to record the hold time; or NULL */
    bool orphaned;                     /* `self` has ended */
    enum hfi_ending ended;
    const char *reason; /* of the loss */
    int64_t forget_ms;  /* an unreported loss may be forgotten then, if its owner is not a thread */

    /* The hold lasts until the earlier of both (hfi_hold_deadline_ms). */
    int64_t promised_until_ms;     /* the end of the lease; HFI_NEVER: renewed until released */
    int64_t promised_when_sent_ms; /* the same when the last renewal was sent */
    int64_t proved_until_ms;       /* how far the engine's last proof reaches */
    int64_t leased_until_ms;       /* the latest end of a lease that was asked for and answered */
    int64_t set_until_ms;          /* its end, if the lease that is being set is in force; or 0 */
    /* If the last proof covered only a part of the lease: how far it reached when it came. 0: it
     * covered the whole lease. */
    int64_t part_ms;

    enum hfi_renewing renewing;
    /* HFI_NEVER: no more renewals, or none needed as far as the engine knows */
    int64_t renew_at_ms;
    bool done_with;                /* by its owner: no proof restarts renewals */
    bool renews_exactly;           /* exactly then, not a little earlier together with others */
    bool renewal_awaited;          /* by `active`, which must not begin a possession before that */
    int64_t renewal_until_ms;      /* a renewal was sent that may still act until then; 0: none */
    int64_t lost_renewal_until_ms; /* the same for a renewal that was given up */
    /* When to ask the server whether the hold still exists; 0: do not. */
    int64_t verify_at_ms;
    int64_t verified_ms; /* when it was last asked for that reason */
    /* When to probe whether it is there, which also has it tracked; 0: do not. */
    int64_t probe_at_ms;
    int64_t probed_ms;     /* when it was last probed in this possession; 0: never */
    int64_t own_ms;        /* when its owner's last command about it was answered */
    uint8_t false_reports; /* reported changes in a row after which it was still there */
    bool touched;          /* the server has reported a change since it was last probed */
    bool tracked;          /* the server reports the next change */

    enum hfi_wire wire;
    bool silent;            /* the server did not answer (as opposed to: we stopped waiting) */
    bool releasing_expired; /* the keeper releases the residue, or is about to */
    int64_t expired_release_at_ms; /* when it begins with that */
    bool release_awaited;          /* an overlapping acquire waits for that, so it begins at once */
    /* a copy of an earlier command may act until then: send nothing before */
    int64_t quiet_until_ms;

    struct hf_op *active;  /* one command per hold at a time */
    struct hfi_link queue; /* operations that wait for their turn */
    /* releases in `queue` whose callers no longer wait: for them the release is done */
    int64_t leaving;
};

/* ---- Reading it, with the shard locked ---- */

/* All holds of a shard, in no order; NULL: no more. */
static inline struct hfi_hold *hfi_hold_around(struct hfi_keyed *keyed) {
    return keyed != NULL ? HFI_CONTAINER(keyed, struct hfi_hold, keyed) : NULL;
}
static inline struct hfi_hold *hfi_hold_first_locked(const struct hfi_shard *shard) {
    return hfi_hold_around(hfi_table_first(&shard->holds));
}
static inline struct hfi_hold *hfi_hold_next_locked(const struct hfi_hold *hold) {
    return hfi_hold_around(hfi_table_next(&hold->shard->holds, &hold->keyed));
}

/* The end of the lease, as far as it is promised and proved. */
static inline int64_t hfi_hold_lease_end_ms(const struct hfi_hold *hold) {
    if (hold->kind->joint)
        return hfi_min_ms(hold->promised_until_ms, hfi_shares_deadline_ms(hold));
    return hold->promised_until_ms < hold->proved_until_ms ? hold->promised_until_ms
                                                           : hold->proved_until_ms;
}

/* Trust the hold no longer than this. */
static inline int64_t hfi_hold_deadline_ms(const struct hfi_hold *hold) {
    int64_t end_ms = hfi_hold_lease_end_ms(hold);
    return hold->set_until_ms != 0 ? hfi_min_ms(end_ms, hold->set_until_ms) : end_ms;
}

/* Its stamp, with a reference to the text. */
static inline struct hfi_stamp hfi_hold_stamp(const struct hfi_hold *hold) {
    struct hfi_stamp stamp = hold->stamp;
    stamp.leased_until_ms = hold->leased_until_ms;
    return hfi_stamp_copy(&stamp);
}

/* It ends only by release: the watchdog renews it, or it has no lease. */
static inline bool hfi_hold_is_watched(const struct hfi_hold *hold) {
    return hold->count > 0 && hold->promised_until_ms == HFI_NEVER;
}

/* It has no lease (HF_NO_LEASE): the server keeps it until it is released. */
static inline bool hfi_hold_has_no_lease(const struct hfi_hold *hold) {
    return hold->kind->takes_no_lease && hold->count > 0 && hold->promised_until_ms == HFI_NEVER &&
           hold->proved_until_ms == HFI_NEVER;
}

/* More was promised than is proved yet. */
static inline bool hfi_hold_lacks_proof(const struct hfi_hold *hold) {
    return hold->proved_until_ms < hold->promised_until_ms;
}

static inline bool hfi_hold_is_permit(const struct hfi_hold *hold) {
    return hold->number == 0;
}

static inline bool hfi_hold_has_residue(const struct hfi_hold *hold) {
    return hold->wire == HFI_WIRE_RESIDUE || hold->wire == HFI_WIRE_SETTLING_AND_MORE;
}

static inline bool hfi_hold_is_settling(const struct hfi_hold *hold) {
    return hold->wire == HFI_WIRE_SETTLING || hold->wire == HFI_WIRE_SETTLING_AND_MORE;
}

/* Whether to renew: to prove more of what was promised, because others may have shortened the lease,
 * or, without a lease, to see that it is still there. */
static inline bool hfi_hold_is_renewed(const struct hfi_hold *hold) {
    return hold->count > 0 && hold->renew_at_ms != HFI_NEVER &&
           (hold->held_as->keeps_fresh || hfi_hold_lacks_proof(hold) ||
            hfi_hold_has_no_lease(hold));
}

/* Its deadline has passed, but the keeper has not noticed yet. */
bool hfi_hold_expired_locked(const struct hfi_hold *hold);
/* When to warn of its expiry. */
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

/* ---- Overlapping locks (overlap.c), with the shard locked ---- */

/* Its name has this stem, e.g. the name of a broken lock. */
bool hfi_hold_has_stem(const struct hfi_hold *hold, const char *stem, size_t stem_len);
/* It is of this kind, and overlaps the lock of this name. */
bool hfi_hold_overlaps(const struct hfi_hold *hold, const struct hfi_kind *kind, const char *name,
                       size_t name_len);

enum hfi_entanglement {
    HFI_APART,
    HFI_ENDING, /* another hold may still have a residue, but not for long */
    /* the same, but the server has not answered the command that ends it */
    HFI_ENDING_UNANSWERED,
    HFI_HELD /* another hold is held, or is being acquired */
};
/* Whether another hold of the operation's owner overlaps the lock it wants. If not, the operation
 * has claimed the lock: other acquires of this owner find that claim. */
enum hfi_entanglement hfi_overlap_claim_locked(struct hf_op *op);

/* ---- Possession ---- */

struct hfi_grant {
    const struct hfi_kind *kind;
    int64_t count, token, lease_ms;
    struct hfi_stamp stamp;
    int acks;
    bool watched; /* ends only by release */
    struct hfi_proof proof;
    /* if a possession begins, this reference passes to the hold; or NULL */
    struct hfi_thread_record *self;
    struct hfi_name_stats *name_stats; /* of its name; NULL: none */
};

/* The lease was over before it could be used. */
static inline bool hfi_proof_is_over(const struct hfi_proof *proof) {
    int64_t now_ms = hfi_now_ms();
    return proof->valid_until_ms <= now_ms || proof->promised_until_ms <= now_ms;
}

/* The engine has granted the hold, first or nested. */
void hfi_hold_granted_locked(struct hfi_hold *hold, const struct hfi_grant *grant);
/* Its lease was raised. */
void hfi_hold_extended_locked(struct hfi_hold *hold, int64_t lease_ms,
                              const struct hfi_proof *proof);
/* It has this lease now, perhaps a shorter one, and no watchdog. */
void hfi_hold_set_lease_locked(struct hfi_hold *hold, int64_t lease_ms,
                               const struct hfi_proof *proof);
/* A command is sent now that sets a lease with this end, perhaps an earlier one. 0: it failed. */
void hfi_hold_setting_lease_locked(struct hfi_hold *hold, int64_t until_ms);
/* The lease may have been set to end at `until_ms`, which is earlier; the outcome is unknown. */
void hfi_hold_may_end_locked(struct hfi_hold *hold, int64_t until_ms);
/* The lease was set to end at `until_ms`, or will be by `quiet_until_ms`, or never: it is trusted
 * until the earlier end, and not renewed. */
void hfi_hold_lease_unknown_locked(struct hfi_hold *hold, int64_t until_ms, int64_t quiet_until_ms);
/* A copy of an earlier command may act until then, also on the next possession. */
void hfi_hold_stay_quiet_locked(struct hfi_hold *hold, int64_t until_ms);
/* The engine has proved a held lock without being asked. */
void hfi_hold_proved_locked(struct hfi_hold *hold, const struct hfi_proof *proof);

/* After our release `count` remain. */
void hfi_hold_released_locked(struct hfi_hold *hold, int64_t count);
/* The possession ends by our release. */
void hfi_hold_end_locked(struct hfi_hold *hold);
/* The possession ends without our release. True: the loss is new; then call hfi_hold_report()
 * unlocked. */
bool hfi_hold_lose_locked(struct hfi_hold *hold, const char *reason);
/* Its deadline has passed: it is lost, and a residue at the server has to be released. */
bool hfi_hold_run_out_locked(struct hfi_hold *hold);
/* The first call on a hold after its loss takes the loss, and reports it. *ret_is_new: the deadline
 * had passed unnoticed, so call hfi_hold_report() when the shard is unlocked. */
bool hfi_hold_take_loss_locked(struct hfi_hold *hold, bool *ret_is_new);
/* hfi_hold_end_by_locked: the release that `op` sends ends a permit; its record is kept until `op`
 * knows the outcome. hfi_hold_ended_by_locked: the outcome is known. `lost` not NULL: the permit
 * had been lost before, which the caller then reports. True: the record was kept for `op`. */
void hfi_hold_end_by_locked(struct hfi_hold *hold, struct hf_op *op);
bool hfi_hold_ended_by_locked(struct hfi_hold *hold, const struct hf_op *op, const char *lost);
/* The owner knows of the loss, if there was one; or is not waited for any longer. */
void hfi_hold_loss_reported_locked(struct hfi_hold *hold);

/* While a shard has too many unreported losses, forgets the oldest whose time is up. */
void hfi_hold_forget_losses_locked(struct hfi_shard *shard);

/* True, once: it is time to warn of its expiry. */
bool hfi_hold_warn_locked(struct hfi_hold *hold, int64_t now_ms);
/* From now on it ends with its proof. */
void hfi_hold_unwatch_locked(struct hfi_hold *hold);
/* Its owner is done with it: no more renewals. */
void hfi_hold_stop_renewing_locked(struct hfi_hold *hold);
/* True, once: the thread that owns it has ended. */
bool hfi_hold_orphan_locked(struct hfi_hold *hold);

/* ---- Renewal ---- */

/* Plans to ask the server whether it still exists, at most every 100 ms. */
void hfi_hold_verify_locked(struct hfi_hold *hold);
void hfi_hold_renew_at_locked(struct hfi_hold *hold, int64_t at_ms);
/* The server has reported a change: probe soon, and less often if it was nothing the last times. */
void hfi_hold_touched_locked(struct hfi_hold *hold);
/* A change may not be reported any more: probe soon. */
void hfi_hold_untracked_locked(struct hfi_hold *hold);
/* An answer has found it: whether its changes are reported from now on. */
void hfi_hold_found_locked(struct hfi_hold *hold, bool tracked);
/* A probe was not answered. */
void hfi_hold_not_probed_locked(struct hfi_hold *hold, int64_t now_ms);
/* It is time to renew it, or to verify that it exists. */
bool hfi_hold_renewal_is_due_locked(const struct hfi_hold *hold, int64_t now_ms);
void hfi_hold_renewal_due_locked(struct hfi_hold *hold);
/* The renewal is sent, and given up at `deadline_ms`. Returns the lease to renew with, or
 * HF_NO_LEASE; 0: nothing to renew any more. */
int64_t hfi_hold_renewal_sent_locked(struct hfi_hold *hold, int64_t deadline_ms);
/* The renewal has ended. If unanswered, its command may still act for a while. */
void hfi_hold_renewal_ended_locked(struct hfi_hold *hold, bool answered, int64_t now_ms);
/* Outcome of a renewal for the possession it was sent for. renewed: proved. renew_again: unanswered
 * or refused. missed: not found while another command was in flight. */
void hfi_hold_renewed_locked(struct hfi_hold *hold, const struct hfi_proof *proof);
void hfi_hold_renew_again_locked(struct hfi_hold *hold, int64_t now_ms);
void hfi_hold_missed_locked(struct hfi_hold *hold, int64_t now_ms);

/* ---- What commands may still do at the server ---- */

/* There may be a residue at the server that no operation covers. */
void hfi_hold_leave_behind_locked(struct hfi_hold *hold);
/* There is no residue, or it belongs to the possession that begins. */
void hfi_hold_nothing_left_locked(struct hfi_hold *hold);
/* `active` settles, including any residue. `silent`: because the server did not answer. */
void hfi_hold_settle_locked(struct hfi_hold *hold, bool silent);
/* Operations that queue from now on wait for the server's answer. */
void hfi_hold_await_answer_locked(struct hfi_hold *hold);
/* A settlement was broken off: the next operation takes over, and sends nothing before
 * `quiet_until_ms`. */
void hfi_hold_hand_on_locked(struct hfi_hold *hold, int64_t quiet_until_ms);
/* Before this time nothing may be sent for a possession that begins, with a fixed lease or not. */
int64_t hfi_hold_quiet_until_locked(struct hfi_hold *hold, bool fixed_lease);
/* at: the keeper releases the residue from `at_ms` on. await: an overlapping acquire waits for that
 * release; true: it has not begun. ended: it has done so, or need not. */
void hfi_hold_expired_release_at_locked(struct hfi_hold *hold, int64_t at_ms);
bool hfi_hold_await_expired_release_locked(struct hfi_hold *hold);
void hfi_hold_expired_release_ended_locked(struct hfi_hold *hold);

/* ---- Turns ---- */

/* True: it is the operation's turn, or it needs none. False: it is queued. */
bool hfi_hold_enqueue_locked(struct hfi_hold *hold, struct hf_op *op);
/* If it was this operation's turn, gives it to the next. True: it was, and the queue is empty. */
bool hfi_hold_leave_turn_locked(struct hfi_hold *hold, struct hf_op *op);
/* leave: a queued release is left to the keeper. left: it now has its turn. */
void hfi_hold_leave_locked(struct hfi_hold *hold);
void hfi_hold_left_locked(struct hfi_hold *hold);

/* ---- Loss notification (loss_report.c) ---- */

/* No mutex may be held; the function keeps the record alive itself. */
void hfi_hold_report(struct hfi_hold *hold, enum hfi_loss_kind kind);
/* It was proved again, or lost: joint locks with a stake in it check again. The same. */
void hfi_hold_changed(struct hfi_hold *hold);
/* For a new record. */
void hfi_hold_init_reports(struct hfi_hold *hold);

#endif
