/*
 * When to listen: an engine may be able to receive breaks of holds, and surveys that ask what is
 * held and waited for; and that may cost something.
 *
 * For Redis it is a subscription. So only a client that has held or waited for a while listens; one
 * that locks and releases quickly never does. Some time after the last such hold or wait has ended
 * it stops. An engine that receives these without a subscription has no `listen`.
 *
 * A hold has an alarm, which handles this too. A wait has none on the keeper, and should not pay
 * for one. So an operation that begins to wait sets one alarm for all waits, unless it is set, and
 * that alarm checks which waits there are.
 *
 * Runs on the keeper's thread; holds and operations are accessed with their shards locked.
 */
#include "core/core.h"
#include "engine/observe.h"

#define CHECK_MS 5000 /* how often to check whether anything is held for that long */
/* From this age on listen for breaks, whatever surveys report. There are reports of changes, too:
 * when it is a second old, a hold is tracked. */
#define BREAKS_AFTER_MS 750

int64_t hfi_listen_after_ms(const struct hfi_core *core) {
    return core->report_after_ms >= 0 ? hfi_min_ms(core->report_after_ms, BREAKS_AFTER_MS)
                                      : BREAKS_AFTER_MS;
}

static void check_age(struct hfi_hold *hold) {
    if (hold->core->has_old_hold)
        return; /* one is enough */
    int64_t age_ms = hfi_now_ms() - hold->since_us / 1000;
    if (hold->count > 0 && age_ms >= hfi_listen_after_ms(hold->core))
        hold->core->has_old_hold = true;
}

/* It is younger, and its alarm does not yet include the time to start listening. */
static void arm(struct hfi_hold *hold) {
    if (hold->count > 0)
        hfi_watchdog_arm_locked(hold);
}

/* When the oldest wait is old enough for surveys; HFI_NEVER: there is none, or reports are off. */
static int64_t wait_is_old_at_ms(struct hfi_core *core) {
    if (core->report_after_ms < 0)
        return HFI_NEVER;
    return hfi_after_ms(hfi_survey_entry_oldest_wait_ms(core), core->report_after_ms);
}

static void watch_waits_until(struct hfi_core *core, int64_t at_ms) {
    if (at_ms != HFI_NEVER && !atomic_exchange(&core->watches_waits, true))
        hfi_alarm_set(core->keeper, &core->wait_alarm, at_ms);
}

static void alarm_fired(struct hfi_alarm *alarm) {
    struct hfi_core *core = HFI_CONTAINER(alarm, struct hfi_core, listen_alarm);
    int64_t wait_ms = wait_is_old_at_ms(core), now_ms = hfi_now_ms();
    core->has_old_hold = wait_ms <= now_ms;
    if (!core->has_old_hold)
        hfi_for_each_hold(core, check_age);
    if (core->has_old_hold) {
        core->engine->ops->observe->listen(core->engine,
                                           true); /* it may have lacked memory before */
        hfi_alarm_set(core->keeper, &core->listen_alarm, now_ms + CHECK_MS);
        return;
    }
    atomic_store(&core->listening, false);
    hfi_for_each_hold(core, arm);
    watch_waits_until(core, wait_is_old_at_ms(core));
    core->engine->ops->observe->listen(core->engine, false);
}

void hfi_listen(struct hfi_core *core) {
    if (atomic_exchange(&core->listening, true)) /* from here on no alarm is set for it */
        return;
    if (core->engine->ops->observe->listen == NULL || atomic_load(&core->closing))
        return;
    core->engine->ops->observe->listen(core->engine, true);
    hfi_alarm_set(core->keeper, &core->listen_alarm, hfi_now_ms() + CHECK_MS);
}

/* Operations that begin to wait from now on set the alarm again; those that wait already are found
 * here. */
static void wait_alarm_fired(struct hfi_alarm *alarm) {
    struct hfi_core *core = HFI_CONTAINER(alarm, struct hfi_core, wait_alarm);
    atomic_store(&core->watches_waits, false);
    if (atomic_load(&core->listening))
        return;
    int64_t at_ms = wait_is_old_at_ms(core);
    if (at_ms <= hfi_now_ms())
        hfi_listen(core);
    else
        watch_waits_until(core, at_ms);
}

void hfi_listen_for_waits(struct hfi_core *core) {
    if (core->report_after_ms < 0 || core->engine->ops->observe->listen == NULL ||
        atomic_load_explicit(&core->listening, memory_order_relaxed) ||
        atomic_load_explicit(&core->watches_waits, memory_order_relaxed))
        return;
    watch_waits_until(core, hfi_after_ms(hfi_now_ms(), core->report_after_ms));
}

void hfi_listen_init(struct hfi_core *core) {
    core->listen_alarm.fire = alarm_fired;
    core->wait_alarm.fire = wait_alarm_fired;
}
