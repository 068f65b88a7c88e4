/*
 * Scopes: locks that are a part of something, such as some values of a group.
 *
 * Two such locks may have something in common. Of different owners, the server keeps them apart; of
 * one owner it does not, because to it they are one: a release of one would free what the other
 * needs. So no owner may hold two that overlap. All holds of a scope are in one shard, and whoever
 * wants to acquire looks at those of its owner first. If there is nothing in the way it claims what
 * it wants: until its operation ends, another of the same owner finds it. A hold that is being
 * released, settled or let go is in the way, too, but not for long.
 *
 * Guarded by the shard. The walk through its holds is for kinds that overlap only.
 */
#include "core/op.h"

#include <string.h>

static size_t scope_of(const struct hfi_hold *hold) {
    return hfi_kind_scope_len(hold->kind, hold->name, hold->name_len);
}

bool hfi_hold_is_in_scope(const struct hfi_hold *hold, const char *scope, size_t scope_len) {
    return scope_of(hold) == scope_len && memcmp(hold->name, scope, scope_len) == 0;
}

bool hfi_hold_overlaps(const struct hfi_hold *hold, const struct hfi_kind *kind, const char *name,
                       size_t name_len) {
    return hold->kind == kind &&
           hfi_hold_is_in_scope(hold, name, hfi_kind_scope_len(kind, name, name_len)) &&
           kind->overlap(hold->name, hold->name_len, name, name_len);
}

static enum hfi_entanglement state_of_locked(const struct hfi_hold *hold) {
    const struct hf_op *active = hold->active;
    if (hold->count > hold->leaving && !hfi_hold_expired_locked(hold))
        return HFI_HELD;
    if (active != NULL && active->claims && !hold->settling)
        return HFI_HELD;
    /* one that has not claimed yet will find ours */
    bool acquires = active != NULL && active->verb->waits && !active->claims;
    bool ends = hold->count > 0 || hold->leftover || hold->letting_go ||
                hold->quiet_until_ms > hfi_now_ms() || (active != NULL && !acquires);
    return ends ? HFI_ENDING : HFI_APART;
}

enum hfi_entanglement hfi_scope_claim_locked(struct hf_op *op) {
    enum hfi_entanglement worst = HFI_APART;
    struct hfi_hold *hold, *next;
    HASH_ITER(hh, op->shard->holds, hold, next) {
        if (hold == op->hold || hold->number != op->owner ||
            !hfi_hold_overlaps(hold, op->call.kind, op->call.name, op->call.name_len))
            continue;
        enum hfi_entanglement state = state_of_locked(hold);
        worst = state > worst ? state : worst;
    }
    op->claims = worst == HFI_APART;
    return worst;
}
