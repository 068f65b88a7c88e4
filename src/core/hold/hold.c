/*
 * The state of a hold: all its transitions.
 *
 * Called by the verbs on their operations' executors, and by the watchdog, renewals, expired
 * releases and engine events on the keeper's thread; always with the shard locked. Nothing here
 * waits, calls the engine (but for `release_expired`) or notifies anything but the next queued operation.
 * hold.h has the diagram.
 *
 * Invariants: count is more than 0 exactly while HELD or WARNED. A possession that ends clears its
 * alarm. A renewal's answer counts only for the generation that it was sent for; its sender
 * compares them.
 */
#include "core/op/op.h"

#include <limits.h>

#define ROUNDING_MS 2      /* both clocks are read in whole milliseconds */
#define VERIFY_GAP_MS 100  /* between two queries whether a hold still exists */
#define LOST_MAX 256       /* unreported losses that a shard keeps */
#define PROBE_AFTER_MS 900 /* at this age a hold is first probed */
#define PROBE_SLOT_MS 150  /* first probes of holds within this time go together */
#define PROBE_GAP_MS 100
#define PROBE_GAP_MAX_MS 1000
#define PROBE_CALM_MS 2000 /* after this long without a report the next one counts as the first */

static int64_t max_ms(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t period_ms(const struct hfi_hold *hold) {
    return hold->core->watchdog_ms / 3;
}

bool hfi_hold_expired_locked(const struct hfi_hold *hold) {
    return hold->count > 0 && hfi_now_ms() >= hfi_hold_deadline_ms(hold);
}

/* When its parts warn; if it has a lease of its own, also a quarter of that before its end. */
static int64_t joint_warn_at_ms(const struct hfi_hold *hold) {
    int64_t of_parts_ms = hfi_shares_warn_at_ms(hold);
    if (hold->promised_until_ms == HFI_NEVER)
        return of_parts_ms;
    return hfi_min_ms(of_parts_ms, hold->promised_until_ms - hold->lease_ms / 4);
}

/* Warn when half the lease is left on a watchdog hold, a quarter on a fixed one. If only part of a
 * lease is proved yet, take the fraction of that part: a quarter, or half if the hold is bound to a
 * session. A session proves every lease in parts. */
int64_t hfi_hold_warn_at_ms(const struct hfi_hold *hold) {
    if (hold->kind->joint)
        return joint_warn_at_ms(hold);
    int64_t deadline_ms = hfi_hold_lease_end_ms(hold);
    if (deadline_ms == HFI_NEVER)
        return HFI_NEVER;
    if (hold->part_ms > 0)
        return deadline_ms - hold->part_ms / (hold->kind->ends_with_session ? 2 : 4);
    return deadline_ms -
           (hfi_hold_is_watched(hold) ? hold->core->watchdog_trusted_ms / 2 : hold->lease_ms / 4);
}

/* ---- Tracking ---- */

static bool may_be_tracked(const struct hfi_hold *hold) {
    return hold->kind->tracked && hold->core->engine->tracks;
}

/* Short holds are not tracked, nor those whose lease is over by then. */
static void plan_first_probe(struct hfi_hold *hold) {
    if (hold->probe_at_ms != 0 || hold->probed_ms != 0 || !may_be_tracked(hold))
        return;
    int64_t at_ms = hold->since_us / 1000 + PROBE_AFTER_MS;
    at_ms = at_ms / PROBE_SLOT_MS * PROBE_SLOT_MS;
    if (hold->promised_until_ms >= at_ms + PROBE_SLOT_MS)
        hold->probe_at_ms = max_ms(at_ms, hfi_now_ms());
}

static void set_tracked(struct hfi_hold *hold, bool tracked) {
    if (hold->tracked == tracked)
        return;
    hold->tracked = tracked;
    if (tracked)
        atomic_fetch_add_explicit(&hold->core->counters.tracked, 1, memory_order_relaxed);
    else
        atomic_fetch_sub_explicit(&hold->core->counters.tracked, 1, memory_order_relaxed);
}

/* Not before the first probe, which comes soon. */
static void probe_soon(struct hfi_hold *hold) {
    if (hold->count == 0 || hold->probed_ms == 0)
        return;
    int64_t gap_ms = hfi_min_ms((int64_t)PROBE_GAP_MS << hold->false_reports, PROBE_GAP_MAX_MS);
    int64_t at_ms = max_ms(hold->probed_ms + gap_ms, hfi_now_ms());
    set_tracked(hold, false);
    if (hold->probe_at_ms == 0 || at_ms < hold->probe_at_ms)
        hold->probe_at_ms = at_ms;
}

/* A command of the owner has changed it, so the server has reported that, or will not report the
 * next change: it has forgotten the key. */
static void own_change(struct hfi_hold *hold) {
    hold->own_ms = hfi_now_ms();
    probe_soon(hold);
}

void hfi_hold_touched_locked(struct hfi_hold *hold) {
    int64_t now_ms = hfi_now_ms();
    bool by_renewal = hold->acks != 0 && hold->renewing == HFI_SENT;
    bool own = hold->active != NULL || by_renewal || now_ms < hold->own_ms + PROBE_GAP_MS;
    if (hold->probed_ms == 0)
        return; /* it is about the last possession */
    if (now_ms >= hold->probed_ms + PROBE_CALM_MS)
        hold->false_reports = 0;
    hold->touched = hold->touched || !own;
    probe_soon(hold);
}

void hfi_hold_untracked_locked(struct hfi_hold *hold) {
    probe_soon(hold);
}

void hfi_hold_found_locked(struct hfi_hold *hold, bool tracked) {
    if (hold->touched) {
        hfi_count(&hold->core->counters.track_false);
        if (hold->false_reports < 4)
            hold->false_reports++;
    }
    hold->touched = false;
    set_tracked(hold, tracked && hold->probe_at_ms == 0);
    if (!tracked && hold->acks != 0 && hold->renewing != HFI_PROBING)
        own_change(hold); /* it was renewed on another connection */
}

void hfi_hold_not_probed_locked(struct hfi_hold *hold, int64_t now_ms) {
    if (hold->touched && hold->probe_at_ms == 0)
        hold->probe_at_ms = now_ms + PROBE_GAP_MAX_MS;
}

/* ---- Possession ---- */

static void begin_possession(struct hfi_hold *hold, const struct hfi_grant *grant) {
    hold->generation++;
    hold->since_us = hfi_now_us();
    hold->lease_ms = hold->token = 0;
    hfi_stamp_text_unref(hold->stamp.text);
    hold->stamp = hfi_stamp_copy(&grant->stamp);
    hold->acks = 0;
    hold->promised_until_ms = hold->proved_until_ms = hold->part_ms = 0;
    hold->leased_until_ms = hold->set_until_ms = 0;
    hold->ended = HFI_NOT_ENDED;
    hold->orphaned = false;
    hold->reason = NULL;
    hold->verify_at_ms = 0;
    hold->probe_at_ms = hold->probed_ms = hold->own_ms = 0;
    hold->false_reports = 0;
    hold->touched = false;
    if (hold->renewing == HFI_ASKING || hold->renewing == HFI_PROBING)
        hold->renewing = HFI_SENT; /* it was about the last possession */
    hfi_thread_record_unref(hold->self);
    hold->self = grant->self;
    hold->name_stats = grant->name_stats;
    hfi_name_stats_addref(hold->name_stats);
    if (!hold->inner)
        atomic_fetch_add_explicit(&hold->core->counters.holds, 1, memory_order_relaxed);
}

static bool is_in_part(const struct hfi_proof *proof) {
    return proof->valid_until_ms < proof->promised_until_ms;
}

/* One that is due within a slot is not sent at once, together with what is due now. */
static void plan_renewal(struct hfi_hold *hold, const struct hfi_proof *proof) {
    hold->renew_at_ms = proof->renew_at_ms;
    hold->renews_exactly =
        is_in_part(proof) || proof->renew_at_ms - hfi_now_ms() < hfi_renewal_slot_ms(hold->core);
    hold->done_with = false;
}

/* How far the proof reaches, and for how much of the lease. */
static void note_proof(struct hfi_hold *hold, const struct hfi_proof *proof) {
    hold->proved_until_ms = max_ms(hold->proved_until_ms, proof->valid_until_ms);
    hold->leased_until_ms = max_ms(hold->leased_until_ms, proof->promised_until_ms);
    if (is_in_part(proof))
        hold->part_ms = proof->valid_until_ms - hfi_now_ms();
    else if (!hfi_hold_lacks_proof(hold) || hfi_hold_is_watched(hold))
        hold->part_ms = 0;
}

static int strictness(int acks) {
    return acks == HF_ACKS_ALL ? INT_MAX : acks == HF_ACKS_REPORT ? 0 : acks > 0 ? acks : -1;
}

/* A nested grant with its own lease does not postpone the renewal that the other counts need. */
void hfi_hold_granted_locked(struct hfi_hold *hold, const struct hfi_grant *grant) {
    const struct hfi_proof *proof = &grant->proof;
    if (hold->count == 0) {
        hfi_hold_loss_reported_locked(hold);
        begin_possession(hold, grant);
    } else {
        own_change(hold);
    }
    hold->possession = HFI_HOLD_HELD;
    hold->count = grant->count;
    hold->held_as = grant->kind;
    if (grant->token != 0) /* a nested acquire of a kind without tokens leaves the last one valid */
        hold->token = grant->token;
    hold->lease_ms = max_ms(hold->lease_ms, grant->lease_ms);
    if (strictness(grant->acks) > strictness(hold->acks))
        hold->acks = grant->acks;
    if (grant->watched || is_in_part(proof) || !hfi_hold_lacks_proof(hold))
        plan_renewal(hold, proof);
    hold->promised_until_ms =
        grant->watched ? HFI_NEVER : max_ms(hold->promised_until_ms, proof->promised_until_ms);
    note_proof(hold, proof);
    plan_first_probe(hold);
    hfi_hold_nothing_left_locked(hold);
    hfi_watchdog_arm_locked(hold);
}

static void forget_warning(struct hfi_hold *hold) {
    if (hold->possession == HFI_HOLD_WARNED)
        hold->possession = HFI_HOLD_HELD;
}

void hfi_hold_extended_locked(struct hfi_hold *hold, int64_t lease_ms,
                              const struct hfi_proof *proof) {
    hold->lease_ms = max_ms(hold->lease_ms, lease_ms);
    if (hold->count == 0)
        return;
    own_change(hold);
    int64_t deadline_ms = hfi_hold_deadline_ms(hold);
    hold->promised_until_ms = max_ms(hold->promised_until_ms, proof->promised_until_ms);
    note_proof(hold, proof);
    plan_first_probe(hold);
    bool in_part = is_in_part(proof) && hfi_hold_lacks_proof(hold) && !hold->done_with;
    bool later = hfi_hold_deadline_ms(hold) > deadline_ms;
    if (in_part) /* a renewal proves the rest */
        plan_renewal(hold, proof);
    if (later)
        forget_warning(hold);
    if (in_part || later || hold->probe_at_ms != 0)
        hfi_watchdog_arm_locked(hold);
}

void hfi_hold_set_lease_locked(struct hfi_hold *hold, int64_t lease_ms,
                               const struct hfi_proof *proof) {
    hold->generation++; /* a renewal in flight no longer counts */
    hold->set_until_ms = 0;
    hold->lease_ms = lease_ms;
    hold->promised_until_ms = proof->promised_until_ms;
    hold->proved_until_ms = 0;
    note_proof(hold, proof);
    plan_renewal(hold, proof);
    forget_warning(hold);
    own_change(hold);
    plan_first_probe(hold);
    hfi_watchdog_arm_locked(hold);
}

void hfi_hold_may_end_locked(struct hfi_hold *hold, int64_t until_ms) {
    if (until_ms >= hfi_hold_deadline_ms(hold))
        return;
    hold->generation++; /* as above */
    hold->proved_until_ms = until_ms;
    if (!hfi_hold_is_watched(hold))
        hold->promised_until_ms = until_ms;
    hold->renew_at_ms = hfi_now_ms();
    forget_warning(hold);
    hfi_watchdog_arm_locked(hold);
}

void hfi_hold_setting_lease_locked(struct hfi_hold *hold, int64_t until_ms) {
    hold->set_until_ms = until_ms;
    hfi_watchdog_arm_locked(hold);
}

void hfi_hold_stay_quiet_locked(struct hfi_hold *hold, int64_t until_ms) {
    hold->quiet_until_ms = max_ms(hold->quiet_until_ms, until_ms + ROUNDING_MS);
}

void hfi_hold_lease_unknown_locked(struct hfi_hold *hold, int64_t until_ms,
                                   int64_t quiet_until_ms) {
    hold->generation++; /* as above */
    hold->set_until_ms = 0;
    hfi_hold_unwatch_locked(hold);
    hold->promised_until_ms = hfi_min_ms(hold->promised_until_ms, until_ms);
    hold->proved_until_ms = hfi_min_ms(hold->proved_until_ms, hold->promised_until_ms);
    hfi_hold_stay_quiet_locked(hold, quiet_until_ms);
    forget_warning(hold);
    hfi_watchdog_arm_locked(hold);
}

/* The engine did not answer a request, so how much was promised is taken from the hold. */
void hfi_hold_proved_locked(struct hfi_hold *hold, const struct hfi_proof *proof) {
    int64_t deadline_ms = hfi_hold_deadline_ms(hold);
    struct hfi_proof of_hold = *proof;
    of_hold.promised_until_ms = hold->promised_until_ms;
    hold->proved_until_ms = 0; /* it may reach less far than the last one */
    note_proof(hold, &of_hold);
    if (!hold->done_with)
        plan_renewal(hold, proof);
    if (hfi_hold_deadline_ms(hold) > deadline_ms)
        forget_warning(hold);
    hfi_watchdog_arm_locked(hold);
}

static void note_time(struct hfi_hold *hold, int64_t us) {
    struct hfi_entries *entries = hfi_name_stats_entries(hold->core->stats_table, hold->name_stats);
    hfi_times_add(&hold->core->hold, entries != NULL ? &entries->hold : NULL, us);
    hfi_name_stats_unref(hold->name_stats);
    hold->name_stats = NULL;
}

static void end_possession(struct hfi_hold *hold, enum hfi_possession possession,
                           enum hfi_ending ending) {
    hold->possession = possession;
    hold->ended = ending;
    hold->count = 0;
    hold->generation++;
    hold->verify_at_ms = hold->probe_at_ms = 0;
    set_tracked(hold, false);
    hfi_watchdog_disarm_locked(hold);
    if (hold->inner)
        return;
    atomic_fetch_sub_explicit(&hold->core->counters.holds, 1, memory_order_relaxed);
    note_time(hold, hfi_now_us() - hold->since_us);
}

void hfi_hold_end_locked(struct hfi_hold *hold) {
    if (hold->count == 0)
        return;
    end_possession(hold, HFI_HOLD_FREE, HFI_ENDED_BY_RELEASE);
    hfi_stakes_lose_locked(hold, "one of its member locks was released on its own");
}

void hfi_hold_end_by_locked(struct hfi_hold *hold, struct hf_op *op) {
    hfi_hold_end_locked(hold);
    hold->active = op;
}

bool hfi_hold_ended_by_locked(struct hfi_hold *hold, const struct hf_op *op, const char *lost) {
    if (hold->active != op)
        return false;
    hold->active = NULL;
    if (lost != NULL) {
        hold->ended = HFI_ENDED_BY_LOSS;
        hold->reason = lost;
        hfi_count(&hold->core->counters.losses);
    }
    return true;
}

void hfi_hold_released_locked(struct hfi_hold *hold, int64_t count) {
    if (count > 0) {
        hold->count = count;
        own_change(hold);
        if (hold->probe_at_ms != 0)
            hfi_watchdog_arm_locked(hold);
        return;
    }
    hfi_hold_end_locked(hold);
    hfi_hold_loss_reported_locked(hold); /* it existed when it was released */
}

static void forget_loss(struct hfi_hold *hold) {
    if (!hfi_linked(&hold->lost_link))
        return;
    hfi_list_remove(&hold->lost_link);
    hold->shard->lost_len--;
}

/* An operation in progress takes the loss itself. A long lease must not keep the losses behind it,
 * so the whole list is searched. */
void hfi_hold_forget_losses_locked(struct hfi_shard *shard) {
    int64_t now_ms = hfi_now_ms();
    struct hfi_link *next, *link = shard->lost.next;
    for (; link != &shard->lost && shard->lost_len > LOST_MAX; link = next) {
        struct hfi_hold *hold = HFI_CONTAINER(link, struct hfi_hold, lost_link);
        next = link->next;
        if (hold->active != NULL || now_ms < hold->forget_ms)
            continue;
        hfi_hold_loss_reported_locked(hold);
        hfi_hold_tidy_locked(hold);
    }
}

/* A thread gets its loss by its next call; when it ends there is no owner to report to. An owner
 * that is only a number may never call again, so its loss is listed to be forgotten. */
static void remember_loss(struct hfi_hold *hold) {
    struct hfi_shard *shard = hold->shard;
    hold->forget_ms = hfi_now_ms() + hold->lease_ms;
    if (hold->self != NULL || hfi_hold_is_permit(hold))
        return;
    hold->forget_ms = max_ms(hold->forget_ms, hfi_now_ms() + hold->core->watchdog_ms);
    hfi_list_push_back(&shard->lost, &hold->lost_link);
    shard->lost_len++;
    if (shard->lost_len > LOST_MAX)
        hfi_watchdog_check_at_locked(hold, hold->forget_ms);
}

static bool lose(struct hfi_hold *hold, const char *reason, enum hfi_ending ending) {
    if (hold->count == 0)
        return false;
    end_possession(hold, HFI_HOLD_LOST, ending);
    remember_loss(hold);
    hfi_stakes_lose_locked(hold, reason);
    hold->reason = reason;
    if (!hold->inner)
        hfi_count(&hold->core->counters.losses);
    return true;
}

bool hfi_hold_lose_locked(struct hfi_hold *hold, const char *reason) {
    return lose(hold, reason, HFI_ENDED_BY_LOSS);
}

bool hfi_hold_run_out_locked(struct hfi_hold *hold) {
    const char *why = hold->kind->joint ? hfi_shares_why_lost(hold) : NULL;
    bool is_new = lose(hold, why != NULL ? why : "the lease ran out", HFI_RAN_OUT);
    if (is_new && !hold->kind->joint) /* its parts are given back by the report */
        hfi_hold_leave_behind_locked(hold);
    return is_new;
}

bool hfi_hold_take_loss_locked(struct hfi_hold *hold, bool *ret_is_new) {
    *ret_is_new = hfi_hold_expired_locked(hold) && hfi_hold_run_out_locked(hold);
    bool lost = hold->possession == HFI_HOLD_LOST;
    hfi_hold_loss_reported_locked(hold);
    return lost;
}

void hfi_hold_loss_reported_locked(struct hfi_hold *hold) {
    if (hold->possession != HFI_HOLD_LOST)
        return;
    hold->possession = HFI_HOLD_FREE;
    forget_loss(hold);
}

bool hfi_hold_warn_locked(struct hfi_hold *hold, int64_t now_ms) {
    if (hold->kind->joint && now_ms < hfi_hold_warn_at_ms(hold))
        forget_warning(hold); /* its parts were renewed */
    if (hold->possession != HFI_HOLD_HELD || now_ms < hfi_hold_warn_at_ms(hold))
        return false;
    hold->possession = HFI_HOLD_WARNED;
    return true;
}

void hfi_hold_unwatch_locked(struct hfi_hold *hold) {
    if (hfi_hold_is_watched(hold))
        hold->promised_until_ms = hfi_hold_deadline_ms(hold);
}

void hfi_hold_stop_renewing_locked(struct hfi_hold *hold) {
    hold->promised_until_ms = hfi_hold_deadline_ms(hold);
    hold->renew_at_ms = HFI_NEVER;
    hold->done_with = true;
    hold->part_ms = 0;
}

bool hfi_hold_orphan_locked(struct hfi_hold *hold) {
    if (hold->self == NULL || !atomic_load(&hold->self->ended) || hold->orphaned)
        return false;
    hold->orphaned = true;
    hfi_hold_unwatch_locked(hold);
    return true;
}

/* ---- Renewal ---- */

void hfi_hold_verify_locked(struct hfi_hold *hold) {
    hold->verify_at_ms = max_ms(hold->verified_ms + VERIFY_GAP_MS, hfi_now_ms());
}

void hfi_hold_renew_at_locked(struct hfi_hold *hold, int64_t at_ms) {
    hold->renew_at_ms = at_ms;
}

void hfi_hold_renewal_due_locked(struct hfi_hold *hold) {
    hold->renewing = HFI_DUE;
}

/* Renewals due within this time go together. */
bool hfi_hold_renewal_is_due_locked(const struct hfi_hold *hold, int64_t now_ms) {
    int64_t early_ms = hold->renews_exactly ? 0 : hfi_renewal_slot_ms(hold->core);
    return (hfi_hold_is_renewed(hold) && now_ms + early_ms >= hold->renew_at_ms) ||
           (hold->verify_at_ms != 0 && now_ms >= hold->verify_at_ms);
}

static bool only_probes(const struct hfi_hold *hold, int64_t now_ms) {
    return hold->count > 0 && hold->probe_at_ms != 0 && now_ms >= hold->probe_at_ms &&
           !hfi_hold_renewal_is_due_locked(hold, now_ms);
}

/* The lease to renew with, so that the whole promise is proved. A hold that is only kept fresh
 * never gets more than was promised. A hold that is only verified gets no more time at all. */
static int64_t renewal_lease_ms(const struct hfi_hold *hold, int64_t now_ms) {
    if (!hfi_hold_is_renewed(hold) || only_probes(hold, now_ms))
        return hold->count > 0 && (hold->verify_at_ms != 0 || hold->probe_at_ms != 0);
    if (hfi_hold_has_no_lease(hold))
        return HF_NO_LEASE;
    int64_t drift_ppm = hold->core->clock_drift_ppm;
    int64_t lease_ms = hfi_hold_is_watched(hold)
                           ? hold->core->watchdog_ms
                           : hfi_lease_for_ms(hold->promised_until_ms - now_ms, drift_ppm);
    int64_t left_ms = hold->held_as->keeps_fresh ? hfi_hold_deadline_ms(hold) - now_ms : 0;
    return max_ms(max_ms(lease_ms, hfi_lease_for_ms(left_ms, drift_ppm)), 0);
}

int64_t hfi_hold_renewal_sent_locked(struct hfi_hold *hold, int64_t deadline_ms) {
    int64_t now_ms = hfi_now_ms(), lease_ms = renewal_lease_ms(hold, now_ms);
    bool probes = only_probes(hold, now_ms);
    if (lease_ms == 0) {
        hold->renewing = HFI_RESTING;
        return 0;
    }
    hold->renewal_until_ms = max_ms(hold->renewal_until_ms, deadline_ms + ROUNDING_MS);
    hold->promised_when_sent_ms = hold->promised_until_ms;
    hold->renewing = probes ? HFI_PROBING : hold->verify_at_ms != 0 ? HFI_ASKING : HFI_SENT;
    if (hold->renewing == HFI_ASKING)
        hold->verified_ms = now_ms;
    if (!probes)
        hold->verify_at_ms = 0;
    hold->probe_at_ms = 0; /* any answer shows whether it is there */
    if (may_be_tracked(hold))
        hold->probed_ms = now_ms;
    return lease_ms;
}

void hfi_hold_renewal_ended_locked(struct hfi_hold *hold, bool answered, int64_t now_ms) {
    hold->renewing = HFI_RESTING;
    if (!answered)
        hold->lost_renewal_until_ms = hold->renewal_until_ms;
    else if (hold->lost_renewal_until_ms > now_ms)
        hold->renewal_until_ms = hold->lost_renewal_until_ms;
    else
        hold->renewal_until_ms = 0;
    if (hold->renewal_until_ms == 0 && hold->renewal_awaited && hold->active != NULL)
        hfi_task_post(&hold->active->task, HFI_OP_TURN);
}

/* The answer is all that can be proved, unless the proof covers only a part, or more was promised
 * since the renewal was sent. */
void hfi_hold_renewed_locked(struct hfi_hold *hold, const struct hfi_proof *proof) {
    if (!hfi_hold_is_renewed(hold))
        return; /* it was only verified */
    if (hfi_hold_lacks_proof(hold)) {
        note_proof(hold, proof);
        if (!hfi_hold_is_watched(hold) && hold->promised_until_ms == hold->promised_when_sent_ms)
            hold->promised_until_ms = hfi_min_ms(
                hold->promised_until_ms, max_ms(hold->proved_until_ms, proof->promised_until_ms));
        if (!is_in_part(proof))
            hold->part_ms = 0;
        forget_warning(hold);
    }
    plan_renewal(hold, proof);
    hfi_count(&hold->core->counters.renewals);
}

/* The time between two attempts is a fraction of the time left, so that more attempts always
 * follow. */
void hfi_hold_renew_again_locked(struct hfi_hold *hold, int64_t now_ms) {
    int64_t pause_ms = hfi_min_ms(period_ms(hold) / 8, 1000);
    pause_ms = hfi_min_ms(pause_ms, (hfi_hold_deadline_ms(hold) - now_ms) / 8);
    int64_t at_ms = now_ms + max_ms(pause_ms, 10);
    if (hold->renew_at_ms != HFI_NEVER)
        hold->renew_at_ms = at_ms;
    hold->renews_exactly = true;
    if (hold->renewing == HFI_ASKING)
        hold->verify_at_ms = at_ms;
    hfi_count(&hold->core->counters.renew_failures);
}

void hfi_hold_missed_locked(struct hfi_hold *hold, int64_t now_ms) {
    if (hold->renew_at_ms != HFI_NEVER)
        hold->renew_at_ms = now_ms + period_ms(hold) / 8;
    if (hold->renewing == HFI_ASKING)
        hfi_hold_verify_locked(hold);
    if (hold->renewing == HFI_PROBING)
        probe_soon(hold);
}

/* ---- What commands may still do at the server ---- */

/* What a stamped hold leaves behind is the engine's to release: the next possession has another
 * stamp, and cannot take it over. */
void hfi_hold_leave_behind_locked(struct hfi_hold *hold) {
    struct hfi_engine *engine = hold->core->engine;
    if (hold->kind->stamped) {
        engine->ops->release_expired(engine, hold->kind, hold->name, hold->name_len, hold->owner,
                                     hold->owner_len, &hold->stamp,
                                     max_ms(hold->lease_ms, hold->core->watchdog_ms));
        return;
    }
    hold->wire = hfi_hold_is_settling(hold) ? HFI_WIRE_SETTLING_AND_MORE : HFI_WIRE_RESIDUE;
}

void hfi_hold_nothing_left_locked(struct hfi_hold *hold) {
    hold->wire = hfi_hold_is_settling(hold) ? HFI_WIRE_SETTLING : HFI_WIRE_QUIET;
}

static void settled(struct hfi_hold *hold) {
    hold->wire = hfi_hold_has_residue(hold) ? HFI_WIRE_RESIDUE : HFI_WIRE_QUIET;
}

void hfi_hold_settle_locked(struct hfi_hold *hold, bool silent) {
    if (!hfi_hold_has_residue(hold))
        hold->silent = silent;
    hold->wire = HFI_WIRE_SETTLING; /* this settlement covers the residue, too */
}

void hfi_hold_await_answer_locked(struct hfi_hold *hold) {
    hold->silent = true;
}

void hfi_hold_hand_on_locked(struct hfi_hold *hold, int64_t quiet_until_ms) {
    if (hold->kind->stamped)
        return; /* the engine goes on by itself, and its copies do nothing to another stamp */
    hfi_hold_leave_behind_locked(hold);
    hold->quiet_until_ms = quiet_until_ms;
}

/* A renewal of the previous possession that is still in flight would lengthen a fixed lease of the
 * next one. Its answer wakes the waiting operation. */
int64_t hfi_hold_quiet_until_locked(struct hfi_hold *hold, bool fixed_lease) {
    hold->renewal_awaited = hold->count == 0 && fixed_lease && !hold->kind->stamped &&
                            hold->renewal_until_ms > hold->quiet_until_ms;
    return hold->renewal_awaited ? hold->renewal_until_ms : hold->quiet_until_ms;
}

void hfi_hold_expired_release_at_locked(struct hfi_hold *hold, int64_t at_ms) {
    hold->releasing_expired = true;
    hold->expired_release_at_ms = at_ms;
}

bool hfi_hold_await_expired_release_locked(struct hfi_hold *hold) {
    if (hold->releasing_expired && hold->active == NULL)
        hold->release_awaited = true;
    return hold->release_awaited;
}

void hfi_hold_expired_release_ended_locked(struct hfi_hold *hold) {
    hold->releasing_expired = hold->release_awaited = false;
}

/* ---- Turns ---- */

/* While the hold is free and its last possession is being undone at the server, all verbs but
 * acquire can be answered from local state. So can an acquire that only reports a loss. */
static bool needs_no_turn(const struct hfi_hold *hold, const struct hf_op *op) {
    return hfi_hold_is_settling(hold) && hold->count == 0 && hfi_list_empty(&hold->queue) &&
           (!op->verb->acquires || hold->possession == HFI_HOLD_LOST);
}

bool hfi_hold_enqueue_locked(struct hfi_hold *hold, struct hf_op *op) {
    if (hold->active == NULL) {
        hold->active = op;
        if (op->verb->lets_go) /* from now on an acquire asks it to yield */
            hold->wire =
                hfi_hold_has_residue(hold) ? HFI_WIRE_SETTLING_AND_MORE : HFI_WIRE_SETTLING;
        return true;
    }
    if (needs_no_turn(hold, op))
        return true;
    hfi_list_push_back(&hold->queue, &op->hold_link);
    if (hfi_hold_is_settling(hold) && hold->count == 0 && op->verb->acquires)
        hfi_task_post(&hold->active->task, HFI_OP_YIELD);
    return false;
}

bool hfi_hold_leave_turn_locked(struct hfi_hold *hold, struct hf_op *op) {
    hfi_list_remove(&op->hold_link);
    if (hold->active != op)
        return false;
    settled(hold);
    struct hfi_link *next = hfi_list_pop_front(&hold->queue);
    hold->active = next != NULL ? HFI_CONTAINER(next, struct hf_op, hold_link) : NULL;
    if (hold->active != NULL)
        hfi_task_post(&hold->active->task, HFI_OP_TURN);
    return hold->active == NULL;
}

void hfi_hold_leave_locked(struct hfi_hold *hold) {
    if (++hold->leaving < hold->count)
        return;
    hfi_hold_stop_renewing_locked(hold);
    hfi_watchdog_arm_locked(hold);
}

void hfi_hold_left_locked(struct hfi_hold *hold) {
    hold->leaving--;
}
