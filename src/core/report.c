/*
 * Telling of trouble with a hold: to the log at once, and to the listeners on the dispatcher.
 *
 * Whoever finds trouble calls hfi_hold_report() with no mutex held, on any thread. Each kind of
 * trouble has one notice in the record, which keeps the record alive while it is queued, so telling
 * needs no memory; the same trouble again while it is queued is told once.
 */
#include "core/op.h"

static const struct {
    hf_event_kind event;
    const char *reason;
} troubles[HFI_TROUBLES] = {
    [HFI_WARNING] = {HF_EVENT_WARNING, "the lease is running out and has not been renewed"},
    [HFI_LOST] = {HF_EVENT_LOST, "the hold ended before it was released"},
    [HFI_ORPHANED] = {HF_EVENT_ORPHANED, "the thread that holds the lock has ended"},
};

/* On the dispatcher. */
static void tell_trouble(struct hfi_notice *notice) {
    struct hfi_trouble_notice *trouble = HFI_CONTAINER(notice, struct hfi_trouble_notice, notice);
    struct hfi_hold *hold = trouble->hold;
    hf_event event = {.kind = troubles[trouble->kind].event};
    pthread_mutex_lock(&hold->shard->mtx);
    event.owner = hold->number;
    trouble->queued = false;
    event.remaining_ms = trouble->remaining_ms;
    event.reason = trouble->kind == HFI_LOST && hold->reason != NULL
                       ? hold->reason
                       : troubles[trouble->kind].reason;
    pthread_mutex_unlock(&hold->shard->mtx);
    hold->core->hooks.tell(hold->core->hooks.arg, hold->kind, hold->name, hold->name_len,
                           hold->owner, &event);
    hfi_hold_unref(hold);
}

void hfi_hold_init_reports(struct hfi_hold *hold) {
    for (int i = 0; i < HFI_TROUBLES; i++) {
        hold->troubles[i].hold = hold;
        hold->troubles[i].kind = (enum hfi_trouble)i;
        hold->troubles[i].notice.run = tell_trouble;
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

void hfi_hold_report(struct hfi_hold *hold, enum hfi_trouble kind) {
    struct hfi_core *core = hold->core;
    struct hfi_trouble_notice *trouble = &hold->troubles[kind];
    hfi_log(core->log, HF_LOG_WARN, "'%.*s', owner %s: %s", (int)hold->name_len, hold->name,
            hold->owner, troubles[kind].reason);
    if (kind == HFI_LOST) {
        hfi_hold_changed(hold);
        hfi_shares_give_back(hold);
    }
    if (hold->inner) /* those who hold it together are told, each of its own */
        return;
    if (!core->hooks.trouble(core->hooks.arg, hold->kind, hold->name, hold->name_len,
                             troubles[kind].event))
        return;
    pthread_mutex_lock(&hold->shard->mtx);
    bool dispatch = !trouble->queued;
    if (dispatch) {
        trouble->queued = true;
        trouble->remaining_ms = hold->count > 0 ? hfi_left_ms(hfi_hold_deadline_ms(hold)) : 0;
        hfi_hold_ref(hold);
    }
    pthread_mutex_unlock(&hold->shard->mtx);
    if (dispatch)
        core->hooks.dispatch(core->hooks.arg, &trouble->notice);
}
