/*
 * Locks that may overlap, such as locks on some values of a group.
 *
 * The server keeps locks of different owners apart, but not those of one owner. To the server these
 * are one: a release of one would free values that the other needs. So no owner may hold two that
 * overlap. All holds of one stem are in one shard, and an acquire first checks those of its owner.
 * If none is in the way, the acquire claims its lock: until the operation ends, other acquires of
 * the same owner find the claim. A hold that is being released, settled or expired is in the way,
 * too, but not for long: the release of what an expired hold has left begins at once.
 *
 * Guarded by the shard. Only kinds that overlap walk through its holds.
 */
#include "core/op/op.h"

#include <string.h>

bool hfi_hold_has_stem(const struct hfi_hold *hold, const char *stem, size_t stem_len) {
    return hfi_kind_stem_len(hold->kind, hold->name, hold->name_len) == stem_len &&
           memcmp(hold->name, stem, stem_len) == 0;
}

bool hfi_hold_overlaps(const struct hfi_hold *hold, const struct hfi_kind *kind, const char *name,
                       size_t name_len) {
    return hold->kind == kind &&
           hfi_hold_has_stem(hold, name, hfi_kind_stem_len(kind, name, name_len)) &&
           kind->overlap(hold->name, hold->name_len, name, name_len);
}

static enum hfi_entanglement state_of_locked(const struct hfi_hold *hold) {
    const struct hf_op *active = hold->active;
    if (hold->count > hold->leaving && !hfi_hold_expired_locked(hold))
        return HFI_HELD;
    if (active != NULL && active->claims && !hfi_hold_is_settling(hold))
        return HFI_HELD;
    /* an acquire that has not claimed yet will find our claim; but one that gave up before claiming
     * still gives back its lock */
    bool acquires =
        active != NULL && active->verb->waits && !active->claims && !hfi_hold_is_settling(hold);
    bool ends = hold->count > 0 || hfi_hold_has_residue(hold) || hold->releasing_expired ||
                hold->quiet_until_ms > hfi_now_ms() || (active != NULL && !acquires);
    if (!ends)
        return HFI_APART;
    bool unanswered = active != NULL && hfi_hold_is_settling(hold) && hold->silent &&
                      atomic_load(&active->call_status.stalled_since_ms) != 0;
    return unanswered ? HFI_ENDING_UNANSWERED : HFI_ENDING;
}

enum hfi_entanglement hfi_overlap_claim_locked(struct hf_op *op) {
    enum hfi_entanglement worst = HFI_APART;
    bool waits_for_release = false;
    struct hfi_hold *hold, *next;
    for (hold = hfi_hold_first_locked(op->shard); hold != NULL; hold = next) {
        next = hfi_hold_next_locked(hold);
        if (hold == op->hold || hold->number != op->owner ||
            !hfi_hold_overlaps(hold, op->call->kind, op->call->name, op->call->name_len))
            continue;
        enum hfi_entanglement state = state_of_locked(hold);
        worst = state > worst ? state : worst;
        waits_for_release |= hfi_hold_await_expired_release_locked(hold);
    }
    op->claims = worst == HFI_APART;
    if (waits_for_release)
        hfi_task_post(op->core->watchdog, HFI_WATCHDOG_RELEASE_AWAITED);
    return worst;
}
