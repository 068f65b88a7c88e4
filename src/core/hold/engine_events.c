/*
 * Unsolicited events of the engine about holds (struct hfi_engine_events).
 *
 * A hint that a hold is gone may be false, so it only brings the next renewal forward. It is sent
 * now, but at most ten times a second. A hold with a fixed lease is only verified, by a renewal
 * that lengthens nothing. A certain loss is reported at once, without waiting for a renewal.
 *
 * Runs on the keeper's thread; holds are accessed with their shards locked.
 */
#include "core/op/op.h"

#include <string.h>

const void *hfi_node_of(struct hfi_core *core, const struct hfi_hold *hold) {
    struct hfi_engine *engine = core->engine;
    if (engine->ops->node_of == NULL)
        return NULL;
    return engine->ops->node_of(engine, hold->kind, hold->name, hold->name_len);
}

/* ---- Holds in a scope ---- */

static bool same(const char *a, size_t a_len, const char *b, size_t b_len) {
    return a_len == b_len && memcmp(a, b, a_len) == 0;
}

static bool is_owner_meant(const struct hfi_hold *hold, const struct hfi_scope *scope) {
    return scope->owner == NULL ||
           (same(hold->owner, hold->owner_len, scope->owner, scope->owner_len) &&
            strcmp(hfi_kind_part(hold->kind), hfi_kind_part(scope->kind)) == 0);
}

static bool is_name_meant(const struct hfi_hold *hold, const struct hfi_scope *scope) {
    if (scope->name == NULL)
        return true;
    if (scope->kind != NULL && scope->kind->overlap != NULL)
        return hfi_hold_overlaps(hold, scope->kind, scope->name, scope->name_len);
    return hfi_hold_has_stem(hold, scope->name, scope->name_len);
}

static bool is_meant(const struct hfi_hold *hold, const struct hfi_scope *scope) {
    return hold->count > 0 && !hold->kind->joint && is_name_meant(hold, scope) &&
           is_owner_meant(hold, scope) &&
           (scope->among == NULL ||
            scope->among(scope->among_arg, hold->kind, hold->name, hold->name_len)) &&
           (scope->node == NULL || hfi_node_of(hold->core, hold) == scope->node);
}

/* The shards where such holds can be: all, or that of the name. */
static struct hfi_shard *first_shard(struct hfi_core *core, const struct hfi_scope *scope,
                                     struct hfi_shard **ret_end) {
    if (scope->name == NULL) {
        *ret_end = core->shards + HFI_SHARDS;
        return core->shards;
    }
    size_t stem_len = scope->kind != NULL
                          ? hfi_kind_stem_len(scope->kind, scope->name, scope->name_len)
                          : scope->name_len;
    struct hfi_shard *shard = hfi_core_shard(core, scope->name, stem_len);
    *ret_end = shard + 1;
    return shard;
}

static void visit_meant(struct hfi_core *core, const struct hfi_scope *scope,
                        void (*visit)(struct hfi_hold *hold, const void *arg), const void *arg) {
    struct hfi_shard *end;
    for (struct hfi_shard *shard = first_shard(core, scope, &end); shard != end; shard++) {
        struct hfi_hold *hold, *next;
        pthread_mutex_lock(&shard->mtx);
        for (hold = hfi_hold_first_locked(shard); hold != NULL; hold = next) {
            next = hfi_hold_next_locked(hold);
            if (is_meant(hold, scope))
                visit(hold, arg);
        }
        pthread_mutex_unlock(&shard->mtx);
    }
}

/* ---- Losses ---- */

static bool is_lost_locked(const struct hfi_hold *hold, const struct hfi_losing *losing) {
    return is_meant(hold, &losing->scope) && hold->since_us < losing->since_before_us &&
           (hold->active == NULL || !losing->only_idle);
}

/* A hold that is lost in part, such as some values of a group, is given up as a whole. The keeper
 * does that, since this may be another thread. */
static void leave_traces_locked(struct hfi_hold *hold) {
    hfi_hold_leave_behind_locked(hold);
    hfi_task_post(hold->core->watchdog, HFI_WATCHDOG_EXPIRED_RELEASE);
}

/* False: there are no more in this shard. */
static bool lose_some(struct hfi_shard *shard, const struct hfi_losing *losing) {
    struct hfi_hold *hold, *next, *lost[16];
    size_t len = 0, cap = sizeof lost / sizeof lost[0];
    pthread_mutex_lock(&shard->mtx);
    for (hold = hfi_hold_first_locked(shard); hold != NULL; hold = next) {
        next = hfi_hold_next_locked(hold);
        if (len < cap && is_lost_locked(hold, losing) &&
            hfi_hold_lose_locked(hold, losing->reason)) {
            hfi_hold_ref(hold);
            lost[len++] = hold;
            if (hold->kind->leaves_traces)
                leave_traces_locked(hold);
            else
                hfi_hold_tidy_locked(hold);
        }
    }
    pthread_mutex_unlock(&shard->mtx);
    for (size_t i = 0; i < len; i++) {
        hfi_hold_report(lost[i], HFI_LOST);
        hfi_hold_unref(lost[i]);
    }
    return len == cap;
}

void hfi_lose_holds(struct hfi_core *core, const struct hfi_losing *losing) {
    struct hfi_shard *end;
    for (struct hfi_shard *shard = first_shard(core, &losing->scope, &end); shard != end; shard++) {
        while (lose_some(shard, losing)) {
        }
    }
}

static void lost(void *arg, const struct hfi_scope *scope, const char *reason) {
    const struct hfi_losing losing = {
        .scope = *scope, .since_before_us = HFI_NEVER, .reason = reason};
    hfi_lose_holds(arg, &losing);
}

/* ---- Hints, proofs ---- */

static void renew_now(struct hfi_hold *hold, const void *arg) {
    (void)arg;
    if (!hfi_hold_is_renewed(hold))
        return;
    hfi_hold_renew_at_locked(hold, hfi_now_ms());
    hfi_watchdog_arm_locked(hold);
}

static void reconnected(void *arg, const struct hfi_scope *scope) {
    visit_meant(arg, scope, renew_now, NULL);
}

static void verify(struct hfi_hold *hold, const void *arg) {
    (void)arg;
    if (hold->active != NULL && hold->active->verb->releases)
        return; /* the release finds out by itself */
    hfi_hold_verify_locked(hold);
    hfi_watchdog_arm_locked(hold);
}

static void doubted(void *arg, const struct hfi_scope *scope) {
    visit_meant(arg, scope, verify, NULL);
}

static bool is_being_released(const struct hfi_hold *hold) {
    return hold->active != NULL && hold->active->verb->releases && hold->count <= 1;
}

static void touch(struct hfi_hold *hold, const void *reported) {
    if (is_being_released(hold))
        return;
    if (reported != NULL)
        hfi_hold_touched_locked(hold);
    else
        hfi_hold_untracked_locked(hold);
    hfi_watchdog_arm_locked(hold);
}

static void touched(void *arg, const struct hfi_scope *scope) {
    visit_meant(arg, scope, touch, scope);
}

static void untracked(void *arg, const struct hfi_scope *scope) {
    visit_meant(arg, scope, touch, NULL);
}

static void prove(struct hfi_hold *hold, const void *arg) {
    hfi_hold_proved_locked(hold, arg);
}

static void proved(void *arg, const struct hfi_scope *scope, const struct hfi_proof *proof) {
    const struct hfi_core_hooks *hooks = &((struct hfi_core *)arg)->hooks;
    visit_meant(arg, scope, prove, proof);
    if (hooks->changed != NULL)
        hooks->changed(hooks->arg, scope);
}

static void announced(void *arg) {
    const struct hfi_core_hooks *hooks = &((struct hfi_core *)arg)->hooks;
    hooks->idle(hooks->arg);
}

void hfi_engine_events_init(struct hfi_core *core) {
    core->engine_events = (struct hfi_engine_events){.reconnected = reconnected,
                                                     .doubted = doubted,
                                                     .touched = touched,
                                                     .untracked = untracked,
                                                     .proved = proved,
                                                     .lost = lost,
                                                     .announced = announced,
                                                     .reporter = &hfi_core_reporter,
                                                     .arg = core};
    core->engine->ops->set_engine_events(core->engine, &core->engine_events);
}
