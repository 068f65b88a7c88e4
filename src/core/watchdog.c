/*
 * The watchdog: deadlines, warnings, the times of renewals, and threads that ended while holding.
 *
 * Every hold has one alarm on the keeper, set to the next moment anything is to be done for it. A
 * hold has one renewal under way at a time; another on the same connection would only wait behind
 * it, and a connection that answers nothing is given up by the engine. Times of renewal are rounded
 * down to a sixteenth of the period, so that ten thousand holds make a hundred batches and not ten
 * thousand (renewals.c).
 *
 * Alarms run on the keeper's thread; a hold's state is the shard's. An armed alarm and a place in
 * `due` each keep the hold alive.
 */
#include "core/core.h"

#include <assert.h>

/* Renewals due within so much time of each other go together. */
static int64_t slot_ms(const struct hfi_core *core) {
    return core->watchdog_ms / 3 / 16;
}

static int64_t listen_at_ms(const struct hfi_hold *hold) {
    return hold->since_us / 1000 + hfi_listen_after_ms(hold->core);
}

/* ---- The alarm ---- */

static void set_alarm_locked(struct hfi_hold *hold, int64_t at_ms) {
    hfi_hold_ref(hold);
    if (hfi_alarm_clear(hold->core->keeper, &hold->alarm))
        hfi_hold_unref(hold);
    hfi_alarm_set(hold->core->keeper, &hold->alarm, at_ms);
}

void hfi_watchdog_look_later_locked(struct hfi_hold *hold, int64_t at_ms) {
    set_alarm_locked(hold, at_ms);
}

/* From when on it is not renewed; HFI_NEVER: there is no such time. A cohort's hold has no age of its own: it is each of
 * its threads' that counts. */
static int64_t too_old_at_ms(const struct hfi_hold *hold) {
    int64_t max_ms = hold->core->max_hold_ms;
    return max_ms > 0 && !hold->inner ? hold->since_us / 1000 + max_ms : HFI_NEVER;
}

static int64_t renewal_slot(const struct hfi_hold *hold) {
    int64_t slot = slot_ms(hold->core);
    return hold->renews_exactly || slot <= 1 ? hold->renew_at_ms : hold->renew_at_ms / slot * slot;
}

void hfi_watchdog_arm_locked(struct hfi_hold *hold) {
    int64_t at_ms = hfi_hold_deadline_ms(hold);
    if (hold->renewing == HFI_RESTING && hfi_hold_is_renewed(hold))
        at_ms = hfi_min_ms(at_ms, renewal_slot(hold));
    if (hold->renewing == HFI_RESTING && hold->verify_at_ms != 0)
        at_ms = hfi_min_ms(at_ms, hold->verify_at_ms);
    if (hold->kind->joint && hfi_hold_is_watched(hold)) /* no renewal of its own finds out */
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

/* ---- What is due ---- */

static bool is_due(const struct hfi_hold *hold, int64_t now_ms) {
    if (hold->renewing != HFI_RESTING)
        return false;
    int64_t early_ms = hold->renews_exactly ? 0 : slot_ms(hold->core);
    return (hfi_hold_is_renewed(hold) && now_ms + early_ms >= hold->renew_at_ms) ||
           (hold->verify_at_ms != 0 && now_ms >= hold->verify_at_ms);
}

/* Looks after a hold that has time left. True: it is to be warned of. */
static bool attend_locked(struct hfi_hold *hold, int64_t now_ms) {
    if (now_ms >= too_old_at_ms(hold))
        /* asked for by max_hold_ms: let it run out, with a warning */
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
        hfi_let_go_locked(hold);
        old = false;
    } else if (hold->count > 0) {
        warn = attend_locked(hold, now_ms);
    }
    hfi_hold_tidy_locked(hold);
    pthread_mutex_unlock(&hold->shard->mtx);
    if (old)
        hfi_listen(core);
    if (warn)
        hfi_hold_report(hold, HFI_WARNING);
    if (lost)
        hfi_hold_report(hold, HFI_LOST);
    hfi_let_go_begin(core);
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
    hfi_list_push_back(&hold->core->due, &hold->due_link); /* borrowed: to be reported below */
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
    if (events & HFI_SELF_ENDED)
        find_orphans(core);
    if (events & HFI_WATCHDOG_PARTS)
        hfi_parts_look(core);
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
