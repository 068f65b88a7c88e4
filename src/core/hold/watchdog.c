/*
 * The watchdog: deadlines, warnings, renewal times, and threads that ended while holding. When a
 * renewal is due is planned by the engine with each proof, and after a failed one in hold.c.
 *
 * Every hold has one alarm on the keeper, set to its next event. A hold has one renewal in flight
 * at a time. A second on the same connection would only wait behind it; the engine gives up a
 * connection that does not answer. Renewal times are rounded down to a sixteenth of the period, so
 * that ten thousand holds make a hundred batches and not ten thousand (renewal_batches.c).
 *
 * Alarms run on the keeper's thread; a hold's state belongs to its shard. An armed alarm and an
 * entry in `due` each keep the hold alive.
 */
#include "core/core.h"

#include <assert.h>

static int64_t listen_at_ms(const struct hfi_hold *hold) {
    return hold->since_us / 1000 + hfi_listen_after_ms(hold->core);
}

/* ---- The alarm ---- */

static void set_alarm_locked(struct hfi_hold *hold, int64_t at_ms) {
    hfi_hold_ref(hold);
    if (hfi_alarm_clear(hold->core->keeper, &hold->alarm))
        hfi_hold_unref(hold);
    hfi_alarm_set(hold->core->keeper, &hold->alarm, at_ms);
    if (at_ms == HFI_NEVER) /* it is not set, and keeps nothing alive */
        hfi_hold_unref(hold);
}

void hfi_watchdog_check_at_locked(struct hfi_hold *hold, int64_t at_ms) {
    set_alarm_locked(hold, at_ms);
}

/* From when on it is not renewed; HFI_NEVER: no limit. A cohort's hold has no age limit: the holds
 * of its threads have. */
static int64_t too_old_at_ms(const struct hfi_hold *hold) {
    int64_t max_ms = hold->core->max_hold_ms;
    return max_ms > 0 && !hold->inner ? hold->since_us / 1000 + max_ms : HFI_NEVER;
}

static int64_t renewal_slot(const struct hfi_hold *hold) {
    int64_t slot = hfi_renewal_slot_ms(hold->core);
    return hold->renews_exactly || slot <= 1 ? hold->renew_at_ms : hold->renew_at_ms / slot * slot;
}

void hfi_watchdog_arm_locked(struct hfi_hold *hold) {
    int64_t at_ms = hfi_hold_deadline_ms(hold);
    if (hold->renewing == HFI_RESTING && hfi_hold_is_renewed(hold))
        at_ms = hfi_min_ms(at_ms, renewal_slot(hold));
    if (hold->renewing == HFI_RESTING && hold->verify_at_ms != 0)
        at_ms = hfi_min_ms(at_ms, hold->verify_at_ms);
    if (hold->renewing == HFI_RESTING && hold->probe_at_ms != 0)
        at_ms = hfi_min_ms(at_ms, hold->probe_at_ms);
    if (hold->kind->joint && hfi_hold_is_watched(hold)) /* no renewal would check this */
        at_ms = hfi_min_ms(at_ms, too_old_at_ms(hold));
    if (hold->possession != HFI_HOLD_WARNED)
        at_ms = hfi_min_ms(at_ms, hfi_hold_warn_at_ms(hold));
    if (!atomic_load_explicit(&hold->core->listening, memory_order_relaxed))
        at_ms = hfi_min_ms(at_ms, listen_at_ms(hold));
    set_alarm_locked(hold, at_ms);
    if (!hfi_list_empty(&hold->stakes))
        hfi_stakes_set_times_locked(hold);
}

void hfi_watchdog_disarm_locked(struct hfi_hold *hold) {
    if (hfi_alarm_clear(hold->core->keeper, &hold->alarm))
        hfi_hold_unref(hold);
}

/* ---- Due work ---- */

static bool is_due(const struct hfi_hold *hold, int64_t now_ms) {
    if (hold->renewing != HFI_RESTING)
        return false;
    return hfi_hold_renewal_is_due_locked(hold, now_ms) ||
           (hold->probe_at_ms != 0 && now_ms >= hold->probe_at_ms);
}

/* For a hold that has time left: renews it if that is due. True: warn of its expiry. */
static bool renew_or_warn_locked(struct hfi_hold *hold, int64_t now_ms) {
    if (now_ms >= too_old_at_ms(hold))
        /* max_hold_ms: let it expire, with a warning */
        hfi_hold_unwatch_locked(hold);
    if (is_due(hold, now_ms))
        hfi_renewals_add_locked(hold);
    bool warn = hfi_hold_warn_locked(hold, now_ms);
    hfi_watchdog_arm_locked(hold);
    return warn;
}

void hfi_watchdog_fired(struct hfi_alarm *alarm) {
    struct hfi_hold *hold = HFI_CONTAINER(alarm, struct hfi_hold, alarm);
    struct hfi_core *core = hold->core;
    int64_t now_ms = hfi_now_ms();
    bool lost = false, warn = false;
    pthread_mutex_lock(&hold->shard->mtx);
    bool old = hold->count > 0 && now_ms >= listen_at_ms(hold);
    if (hold->count > 0 && now_ms >= hfi_hold_deadline_ms(hold)) {
        lost = hfi_hold_run_out_locked(hold);
        hfi_expired_release_locked(hold);
        old = false;
    } else if (hold->count > 0) {
        warn = renew_or_warn_locked(hold, now_ms);
    } else {
        hfi_hold_forget_losses_locked(hold->shard);
    }
    hfi_hold_tidy_locked(hold);
    pthread_mutex_unlock(&hold->shard->mtx);
    if (old)
        hfi_listen(core);
    if (warn)
        hfi_hold_report(hold, HFI_WARNING);
    if (lost)
        hfi_hold_report(hold, HFI_LOST);
    hfi_expired_release_begin(core);
    hfi_hold_unref(hold); /* the alarm's */
}

/* ---- Threads that ended ---- */

/* The hold of a thread that has ended is not renewed any more. */
static void orphan(struct hfi_hold *hold) {
    if (!hfi_hold_orphan_locked(hold))
        return;
    if (hold->count == 0) {
        hfi_hold_tidy_locked(hold);
        return;
    }
    hfi_watchdog_arm_locked(hold);
    hfi_hold_ref(hold);
    hfi_list_push_back(&hold->core->due, &hold->due_link); /* reuses `due`: reported below */
}

static void find_orphans(struct hfi_core *core) {
    assert(hfi_list_empty(&core->due));
    hfi_for_each_hold(core, orphan);
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&core->due)) != NULL) {
        struct hfi_hold *hold = HFI_CONTAINER(link, struct hfi_hold, due_link);
        hfi_hold_report(hold, HFI_ORPHANED);
        hfi_hold_unref(hold);
    }
}

/* ---- The task ---- */

struct watchdog {
    struct hfi_task task;
    const struct hfi_mem *mem;
    struct hfi_core *core;
};

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_core *core = HFI_CONTAINER(task, struct watchdog, task)->core;
    hfi_renewals_send(core);
    if (events & HFI_THREAD_ENDED)
        find_orphans(core);
    if (events & HFI_WATCHDOG_PARTS)
        hfi_parts_check(core);
    if (events & HFI_WATCHDOG_EXPIRED_RELEASE)
        hfi_expired_release_check(core);
    if (events & HFI_WATCHDOG_RELEASE_AWAITED)
        hfi_expired_release_hasten(core);
}

/* Threads may keep a reference to the task after the client is gone, so its memory must not come
 * from the client. */
static void destroy(struct hfi_task *task) {
    struct watchdog *watchdog = HFI_CONTAINER(task, struct watchdog, task);
    hfi_free(watchdog->mem, watchdog);
}

int hfi_watchdog_init(struct hfi_core *core) {
    static const struct hfi_mem plain_malloc;
    struct watchdog *watchdog = hfi_zalloc(&plain_malloc, sizeof *watchdog);
    if (watchdog == NULL)
        return HF_ENOMEM;
    hfi_task_init(&watchdog->task, core->keeper, run, destroy);
    watchdog->mem = &plain_malloc;
    watchdog->core = core;
    core->watchdog = &watchdog->task;
    return HF_OK;
}

void hfi_watchdog_stop(struct hfi_core *core) {
    if (core->watchdog == NULL)
        return;
    hfi_task_retire(core->watchdog);
    hfi_task_unref(core->watchdog);
    core->watchdog = NULL;
}
