/*
 * Verification: there is word that a hold may be gone, so the server is asked.
 *
 * Whoever breaks a lock says so, and an engine that hears of it calls changed(). That may be a lie,
 * so all it does is to bring the next renewal forward: to now, but no more than ten times a second.
 * A hold with a fixed lease is only asked about, by a renewal that lengthens nothing.
 *
 * Listening costs the server a subscription, so only a client that has held something for a while
 * does: one that locks and releases quickly never listens. Some time after the last such hold has
 * ended it stops.
 *
 * Runs on the keeper's thread; holds are touched under their shards.
 */
#include "core/op.h"

#define GAP_MS 100
#define LOOK_MS 5000 /* how often to look whether anything is held for that long */

void hfi_verify_locked(struct hfi_hold *hold) {
    int64_t now_ms = hfi_now_ms(), at_ms = hold->verified_ms + GAP_MS;
    hold->verify_at_ms = at_ms > now_ms ? at_ms : now_ms;
}

static void verify(struct hfi_hold *hold) {
    /* one that is being released finds out by itself */
    if (hold->count == 0 || (hold->active != NULL && hold->active->verb == &hfi_verb_release))
        return;
    hfi_verify_locked(hold);
    hfi_watchdog_arm_locked(hold);
}

static void changed(void *arg, const char *name, size_t name_len) {
    struct hfi_core *core = arg;
    if (name == NULL) {
        hfi_for_each_hold(core, verify);
        return;
    }
    struct hfi_shard *shard = hfi_core_shard(core, name, name_len);
    struct hfi_hold *hold, *next;
    pthread_mutex_lock(&shard->mtx);
    HASH_ITER(hh, shard->holds, hold, next) {
        if (hfi_hold_is_in_scope(hold, name, name_len))
            verify(hold);
    }
    pthread_mutex_unlock(&shard->mtx);
}

/* ---- Listening ---- */

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
    if (atomic_load(&core->closing))
        return;
    core->engine->ops->listen(core->engine, true);
    hfi_alarm_set(core->keeper, &core->listen_alarm, hfi_now_ms() + LOOK_MS);
}

void hfi_verify_init(struct hfi_core *core) {
    core->listen_alarm.fire = alarm_fired;
    core->engine->ops->on_change(core->engine, changed, core);
}
