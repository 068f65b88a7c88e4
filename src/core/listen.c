/*
 * Listening: an engine may be able to hear that a hold was broken, and it may cost something.
 *
 * For Redis it is a subscription, so only a client that has held something for a while listens: one
 * that locks and releases quickly never does. Some time after the last such hold has ended it stops.
 * An engine that hears by itself has no `listen`.
 *
 * Runs on the keeper's thread; holds are touched under their shards.
 */
#include "core/core.h"

#define LOOK_MS 5000 /* how often to look whether anything is held for that long */

static void look_at_age(struct hfi_hold *hold) {
    int64_t age_ms = hfi_now_ms() - hold->since_us / 1000;
    if (hold->count > 0 && age_ms >= HFI_REPORT_AFTER_MS)
        hold->core->has_old_hold = true;
}

/* It is younger, and its alarm does not know yet that somebody has to listen for it. */
static void arm(struct hfi_hold *hold) {
    if (hold->count > 0)
        hfi_watchdog_arm_locked(hold);
}

static void alarm_fired(struct hfi_alarm *alarm) {
    struct hfi_core *core = HFI_CONTAINER(alarm, struct hfi_core, listen_alarm);
    core->has_old_hold = false;
    hfi_for_each_hold(core, look_at_age);
    if (core->has_old_hold) {
        core->engine->ops->listen(core->engine, true); /* there may have been no memory for it */
        hfi_alarm_set(core->keeper, &core->listen_alarm, hfi_now_ms() + LOOK_MS);
        return;
    }
    atomic_store(&core->listening, false);
    hfi_for_each_hold(core, arm);
    core->engine->ops->listen(core->engine, false);
}

void hfi_listen(struct hfi_core *core) {
    if (atomic_exchange(&core->listening, true)) /* from here on no alarm is set for it */
        return;
    if (core->engine->ops->listen == NULL || atomic_load(&core->closing))
        return;
    core->engine->ops->listen(core->engine, true);
    hfi_alarm_set(core->keeper, &core->listen_alarm, hfi_now_ms() + LOOK_MS);
}

void hfi_listen_init(struct hfi_core *core) {
    core->listen_alarm.fire = alarm_fired;
}
