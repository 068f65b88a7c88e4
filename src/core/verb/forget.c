/*
 * Forgetting a hold: the watchdog lets it end with its lease, as that of a thread that has ended.
 *
 * On the caller's thread, with the hold's shard locked. Nothing is sent, so it needs no operation
 * and no turn.
 */
#include "core/op/op.h"

int hfi_forget(struct hfi_core *core, const struct hfi_kind *kind, const char *name,
               size_t name_len, hf_owner owner, hf_error *error) {
    struct hfi_shard *shard = hfi_core_shard(core, name, hfi_kind_stem_len(kind, name, name_len));
    bool is_new = false;
    int err = HF_ENOTOWNER;
    pthread_mutex_lock(&shard->mtx);
    struct hfi_hold *hold = hfi_hold_find_locked(core, shard, kind, name, name_len, owner);
    if (hold != NULL) {
        hfi_hold_ref(hold);
        if (hfi_hold_take_loss_locked(hold, &is_new)) {
            const char *reason = hold->reason;
            err = hfi_fail(error, HF_ELOST, "%s", reason != NULL ? reason : hf_strerror(HF_ELOST));
        } else if (hold->count > 0) {
            hfi_hold_unwatch_locked(hold);
            hfi_watchdog_arm_locked(hold);
            err = HF_OK;
        }
        hfi_hold_tidy_locked(hold);
    }
    pthread_mutex_unlock(&shard->mtx);
    if (is_new)
        hfi_hold_report(hold, HFI_LOST);
    hfi_hold_unref(hold);
    return err;
}
