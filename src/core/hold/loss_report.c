/*
 * Reports what happens to a hold: to the log at once, and to the loss listeners on the dispatcher
 * (api/loss_notify.c). Losses are found by the watchdog (its deadline passed), by renewals
 * (renewal_batches.c) and by verbs that find the hold gone.
 *
 * Called as hfi_hold_report() with no mutex held, on any thread. Each kind of loss has one notice
 * in the record, which keeps the record alive while it is queued. So a notification needs no
 * memory, and a repeated one while it is queued is delivered once.
 */
#include "core/op/op.h"

static const struct {
    hf_event_kind event;
    const char *reason;
} loss_notices[HFI_LOSS_KINDS] = {
    [HFI_WARNING] = {HF_EVENT_WARNING, "the lease is running out and has not been renewed"},
    [HFI_LOST] = {HF_EVENT_LOST, "the hold ended before it was released"},
    [HFI_ORPHANED] = {HF_EVENT_ORPHANED, "the thread that acquired the lock has ended"},
};

/* On the dispatcher. */
static void run_notice(struct hfi_notice *notice) {
    struct hfi_loss_notice *loss_notice = HFI_CONTAINER(notice, struct hfi_loss_notice, notice);
    struct hfi_hold *hold = loss_notice->hold;
    hf_event event = {.kind = loss_notices[loss_notice->kind].event};
    pthread_mutex_lock(&hold->shard->mtx);
    event.owner = hold->number;
    loss_notice->queued = false;
    event.remaining_ms = loss_notice->remaining_ms;
    event.reason = loss_notice->kind == HFI_LOST && hold->reason != NULL
                       ? hold->reason
                       : loss_notices[loss_notice->kind].reason;
    pthread_mutex_unlock(&hold->shard->mtx);
    hold->core->hooks.run_callbacks(hold->core->hooks.arg, hold->kind, hold->name, hold->name_len,
                                    hold->owner, &event);
    hfi_hold_unref(hold);
}

void hfi_hold_init_reports(struct hfi_hold *hold) {
    for (int i = 0; i < HFI_LOSS_KINDS; i++) {
        hold->loss_notices[i].hold = hold;
        hold->loss_notices[i].kind = (enum hfi_loss_kind)i;
        hold->loss_notices[i].notice.run = run_notice;
    }
}

void hfi_hold_changed(struct hfi_hold *hold) {
    const struct hfi_core_hooks *hooks = &hold->core->hooks;
    if (hooks->changed == NULL)
        return;
    const struct hfi_scope scope = {.name = hold->name,
                                    .name_len = hold->name_len,
                                    .owner = hold->owner,
                                    .owner_len = hold->owner_len,
                                    .kind = hold->kind};
    hooks->changed(hooks->arg, &scope);
}

void hfi_hold_report(struct hfi_hold *hold, enum hfi_loss_kind kind) {
    struct hfi_core *core = hold->core;
    struct hfi_loss_notice *loss_notice = &hold->loss_notices[kind];
    hfi_log(core->log, HF_LOG_WARN,
            HFI_ABOUT(.code = kind == HFI_LOST ? HF_ELOST : HF_OK, .name = hold->name,
                      .name_len = hold->name_len),
            "'%.*s', owner %s: %s", (int)hold->name_len, hold->name, hold->owner,
            loss_notices[kind].reason);
    if (kind == HFI_LOST) {
        hfi_hold_changed(hold);
        hfi_shares_give_back(hold);
        hfi_announce_loss(core);
    }
    if (hold->inner) /* the holds of its threads are notified, each of its own */
        return;
    if (!core->hooks.loss_event(core->hooks.arg, hold->kind, hold->name, hold->name_len,
                                loss_notices[kind].event))
        return;
    pthread_mutex_lock(&hold->shard->mtx);
    bool dispatch = !loss_notice->queued;
    if (dispatch) {
        loss_notice->queued = true;
        loss_notice->remaining_ms = hold->count > 0 ? hfi_left_ms(hfi_hold_deadline_ms(hold)) : 0;
        hfi_hold_ref(hold);
    }
    pthread_mutex_unlock(&hold->shard->mtx);
    if (dispatch)
        core->hooks.dispatch(core->hooks.arg, &loss_notice->notice);
}
