/*
 * Holds: one record per (place on the server, owner), whatever the handle or kind.
 *
 * A record is in its shard's table while it is held, is being worked on or let go, has a loss to
 * report, or a renewal of it may still act. Everything that is true of the possession is guarded by
 * the shard's mutex. Other threads keep the memory alive by references: the keeper's alarm, a
 * renewal in flight, a place among those to be let go, a notice on its way to the dispatcher.
 */
#include "core/core.h"

#include <assert.h>
#include <string.h>

struct hfi_shard *hfi_core_shard(struct hfi_core *core, const char *scope, size_t scope_len) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < scope_len; i++)
        hash = (hash ^ (unsigned char)scope[i]) * 16777619u;
    return &core->shards[(hash ^ (hash >> 16)) % HFI_SHARDS];
}

static void tell_trouble(struct hfi_notice *notice);

static struct hfi_hold *new_hold(struct hfi_core *core, struct hfi_shard *shard,
                                 const struct hfi_kind *kind, const char *name, size_t name_len,
                                 const char *owner, size_t owner_len, const char *place,
                                 size_t place_len) {
    struct hfi_hold *hold =
        hfi_zalloc(core->mem, sizeof *hold + name_len + 1 + owner_len + 1 + place_len);
    if (hold == NULL)
        return NULL;
    atomic_init(&hold->refs, 1);
    hold->core = core;
    hold->shard = shard;
    hold->kind = kind;
    hfi_list_init(&hold->queue);
    hold->name = (char *)(hold + 1);
    hold->owner = hold->name + name_len + 1;
    hold->place = hold->owner + owner_len + 1;
    memcpy(hold->name, name, name_len);
    memcpy(hold->owner, owner, owner_len);
    memcpy(hold->place, place, place_len);
    hold->name_len = name_len;
    hold->owner_len = owner_len;
    hold->place_len = place_len;
    for (int i = 0; i < HFI_TROUBLES; i++) {
        hold->troubles[i].hold = hold;
        hold->troubles[i].kind = (enum hfi_trouble)i;
        hold->troubles[i].notice.run = tell_trouble;
    }
    return hold;
}

void hfi_hold_ref(struct hfi_hold *hold) {
    atomic_fetch_add_explicit(&hold->refs, 1, memory_order_relaxed);
}

void hfi_hold_unref(struct hfi_hold *hold) {
    if (hold == NULL || atomic_fetch_sub_explicit(&hold->refs, 1, memory_order_acq_rel) != 1)
        return;
    hfi_self_unref(hold->self);
    hfi_free(hold->core->mem, hold);
}

/* Finding a hold must not need memory, or a release, of all things, could fail for lack of it. So
 * each shard has a buffer as long as the longest place of any hold made so far. NULL: the place is
 * longer; then there is no such hold, unless this was to make it and memory has run out. */
static char *long_place_locked(const struct hfi_mem *mem, struct hfi_shard *shard, size_t len,
                               bool make) {
    if (len <= shard->long_place_room)
        return shard->long_place;
    char *place = make ? hfi_alloc(mem, len) : NULL;
    if (place == NULL)
        return NULL;
    hfi_free(mem, shard->long_place);
    shard->long_place = place;
    shard->long_place_room = len;
    return place;
}

/* NOLINTNEXTLINE(readability-function-size): the macro is what is big */
static struct hfi_hold *find_hold(struct hfi_shard *shard, const char *place, size_t place_len) {
    struct hfi_hold *hold = NULL;
    HASH_FIND(hh, shard->holds, place, place_len, hold);
    return hold;
}

/* False: out of memory. */
/* NOLINTNEXTLINE(readability-function-size): the macro is what is big */
static bool insert_hold(const struct hfi_mem *mem, struct hfi_shard *shard, struct hfi_hold *hold) {
    HASH_ADD_KEYPTR(hh, shard->holds, hold->place, hold->place_len, hold);
    return hold->hh.tbl != NULL;
}

struct hfi_hold *hfi_hold_of_locked(struct hfi_core *core, struct hfi_shard *shard,
                                    const struct hfi_kind *kind, const char *name, size_t name_len,
                                    const char *owner, size_t owner_len, bool make) {
    const struct hfi_mem *mem = core->mem;
    char small[256], *place = small;
    size_t place_len =
        core->engine->ops->hold_id(kind, name, name_len, owner, owner_len, small, sizeof small);
    if (place_len > sizeof small) {
        place = long_place_locked(mem, shard, place_len, make);
        if (place == NULL)
            return NULL;
        core->engine->ops->hold_id(kind, name, name_len, owner, owner_len, place, place_len);
    }
    struct hfi_hold *hold = find_hold(shard, place, place_len);
    if (hold != NULL || !make)
        return hold;
    hold = new_hold(core, shard, kind, name, name_len, owner, owner_len, place, place_len);
    if (hold != NULL && !insert_hold(mem, shard, hold)) {
        hfi_free(mem, hold);
        hold = NULL;
    }
    return hold;
}

struct hfi_hold *hfi_hold_get_locked(struct hfi_core *core, struct hfi_shard *shard,
                                     const struct hfi_kind *kind, const char *name, size_t name_len,
                                     hf_owner number) {
    char owner[HFI_OWNER_MAX];
    size_t owner_len = hfi_owner_text(core, number, owner);
    struct hfi_hold *hold =
        hfi_hold_of_locked(core, shard, kind, name, name_len, owner, owner_len, true);
    if (hold != NULL)
        hold->number = number;
    return hold;
}

struct hfi_hold *hfi_hold_find_locked(struct hfi_core *core, struct hfi_shard *shard,
                                      const struct hfi_kind *kind, const char *name,
                                      size_t name_len, hf_owner number) {
    char owner[HFI_OWNER_MAX];
    size_t owner_len = hfi_owner_text(core, number, owner);
    return hfi_hold_of_locked(core, shard, kind, name, name_len, owner, owner_len, false);
}

void hfi_hold_tidy_locked(struct hfi_hold *hold) {
    const struct hfi_mem *mem = hold->core->mem;
    (void)mem;
    if (hold->count > 0 || hold->active != NULL || !hfi_list_empty(&hold->queue) ||
        hold->letting_go || hold->hh.tbl == NULL)
        return;
    int64_t later_ms = hold->renewal_until_ms;
    if (hold->lost && !hold->orphaned) {
        if (!hold->ephemeral)
            return;
        if (hold->forget_ms > later_ms)
            later_ms = hold->forget_ms;
    }
    if (hfi_now_ms() < later_ms) {
        if (!hold->renewing)
            hfi_watchdog_look_later_locked(hold, later_ms);
        return;
    }
    hfi_watchdog_disarm_locked(hold);
    HASH_DEL(hold->shard->holds, hold);
    hold->hh.tbl = NULL;
    hfi_hold_unref(hold);
}

bool hfi_hold_expired_locked(const struct hfi_hold *hold) {
    return hold->count > 0 && hfi_now_ms() >= hold->deadline_ms;
}

void hfi_hold_end_locked(struct hfi_hold *hold) {
    if (hold->count == 0)
        return;
    hold->count = 0;
    hold->generation++;
    hold->watchdog = hold->kept_fresh = hold->warned = false;
    hold->provisional_ms = hold->verify_at_ms = 0;
    hfi_watchdog_disarm_locked(hold);
    atomic_fetch_sub_explicit(&hold->core->counters.holds, 1, memory_order_relaxed);
    hfi_times_add(&hold->core->hold, hfi_now_us() - hold->since_us);
}

bool hfi_hold_lose_locked(struct hfi_hold *hold, const char *reason) {
    if (hold->count == 0)
        return false;
    hfi_hold_end_locked(hold);
    hold->lost = true;
    hold->forget_ms = hfi_now_ms() + hold->lease_ms;
    hold->reason = reason;
    hfi_count(&hold->core->counters.losses);
    return true;
}

bool hfi_hold_run_out_locked(struct hfi_hold *hold) {
    bool news = hfi_hold_lose_locked(hold, "the lease ran out");
    if (news)
        hold->leftover = hold->ran_out = true;
    return news;
}

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

void hfi_hold_report(struct hfi_hold *hold, enum hfi_trouble kind) {
    struct hfi_core *core = hold->core;
    struct hfi_trouble_notice *trouble = &hold->troubles[kind];
    hfi_log(core->log, HF_LOG_WARN, "'%.*s', owner %s: %s", (int)hold->name_len, hold->name,
            hold->owner, troubles[kind].reason);
    if (!core->hooks.trouble(core->hooks.arg, hold->kind, hold->name, hold->name_len,
                             troubles[kind].event))
        return;
    pthread_mutex_lock(&hold->shard->mtx);
    bool dispatch = !trouble->queued;
    if (dispatch) {
        trouble->queued = true;
        trouble->remaining_ms = hold->count > 0 ? hfi_left_ms(hold->deadline_ms) : 0;
        hfi_hold_ref(hold);
    }
    pthread_mutex_unlock(&hold->shard->mtx);
    if (dispatch)
        core->hooks.dispatch(core->hooks.arg, &trouble->notice);
}
