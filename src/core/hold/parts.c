/*
 * Joint locks: parts, stakes and shares (parts.h).
 *
 * The core of a part writes the stake, with the shard of the part's hold locked. The joint lock's
 * core reads it without that shard, so the fields it reads are atomic. In the other direction there
 * is only the give-back operation. The two cores' shards are never locked together.
 */
#include "core/op/op.h"

#include <string.h>

/* ---- Parts ---- */

struct hfi_parts *hfi_parts_new(const struct hfi_mem *mem, const struct hfi_part *parts,
                                size_t len) {
    size_t slot_size = sizeof(struct hfi_name_stats_ref);
    size_t size = sizeof(struct hfi_parts) + len * (sizeof parts[0] + slot_size);
    for (size_t i = 0; i < len; i++)
        size += parts[i].name_len;
    struct hfi_parts *copy = hfi_zalloc(mem, size);
    if (copy == NULL)
        return NULL;
    atomic_init(&copy->refs, 1);
    copy->mem = mem;
    copy->len = len;
    copy->stats_table = (struct hfi_name_stats_ref *)(void *)(copy->of + len);
    char *name = (char *)(copy->stats_table + len);
    for (size_t i = 0; i < len; i++) {
        struct hfi_core *core = parts[i].core;
        copy->of[i] = parts[i];
        copy->of[i].name = memcpy(name, parts[i].name, parts[i].name_len);
        name += parts[i].name_len;
        core->hooks.retain(core->hooks.arg);
    }
    return copy;
}

void hfi_parts_ref(struct hfi_parts *parts) {
    atomic_fetch_add_explicit(&parts->refs, 1, memory_order_relaxed);
}

/* The memory is one of the clients', so it is freed before the clients are. */
void hfi_parts_unref(struct hfi_parts *parts) {
    struct {
        void (*forget)(void *arg);
        void *arg;
    } hooks[HF_MULTI_MAX];
    if (parts == NULL || atomic_fetch_sub_explicit(&parts->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (parts->end != NULL)
        parts->end(parts);
    size_t len = parts->len;
    for (size_t i = 0; i < len; i++) {
        hfi_name_stats_ref_clear(&parts->stats_table[i]);
        hooks[i].forget = parts->of[i].core->hooks.forget;
        hooks[i].arg = parts->of[i].core->hooks.arg;
    }
    hfi_free(parts->mem, parts);
    for (size_t i = 0; i < len; i++)
        hooks[i].forget(hooks[i].arg);
}

/* ---- Stakes ---- */

struct hfi_stake *hfi_stake_new(const struct hfi_part *part, struct hfi_core *whole) {
    const struct hfi_mem *mem = part->core->mem; /* the stake may stay in that core's hold */
    struct hfi_stake *stake = hfi_zalloc(mem, sizeof *stake);
    if (stake == NULL)
        return NULL;
    atomic_init(&stake->refs, 1);
    atomic_init(&stake->deadline_ms, HFI_NEVER);
    atomic_init(&stake->warn_at_ms, HFI_NEVER);
    stake->mem = mem;
    stake->watcher = whole->watchdog;
    hfi_task_ref(stake->watcher);
    return stake;
}

void hfi_stake_ref(struct hfi_stake *stake) {
    atomic_fetch_add_explicit(&stake->refs, 1, memory_order_relaxed);
}

void hfi_stake_unref(struct hfi_stake *stake) {
    if (stake == NULL || atomic_fetch_sub_explicit(&stake->refs, 1, memory_order_acq_rel) != 1)
        return;
    hfi_task_unref(stake->watcher);
    hfi_free(stake->mem, stake);
}

static struct hfi_stake *stake_at(struct hfi_link *link) {
    return HFI_CONTAINER(link, struct hfi_stake, link);
}

/* The joint lock's core finds later deadlines by itself, but has to be notified of earlier ones. */
static void set_times(struct hfi_stake *stake, const struct hfi_hold *hold) {
    int64_t deadline_ms = hfi_hold_deadline_ms(hold), warn_at_ms = hfi_hold_warn_at_ms(hold);
    bool earlier = atomic_exchange(&stake->deadline_ms, deadline_ms) > deadline_ms;
    earlier |= atomic_exchange(&stake->warn_at_ms, warn_at_ms) > warn_at_ms;
    if (earlier)
        hfi_task_post(stake->watcher, HFI_WATCHDOG_PARTS);
}

void hfi_stake_put_locked(struct hfi_stake *stake, struct hfi_hold *hold) {
    hfi_stake_ref(stake);
    hfi_list_push_back(&hold->stakes, &stake->link);
    atomic_store(&stake->deadline_ms, hfi_hold_deadline_ms(hold));
    atomic_store(&stake->warn_at_ms, hfi_hold_warn_at_ms(hold));
}

bool hfi_stake_take_locked(struct hfi_stake *stake) {
    if (!hfi_linked(&stake->link))
        return false;
    hfi_list_remove(&stake->link);
    hfi_stake_unref(stake);
    return true;
}

bool hfi_stake_is_lost_locked(const struct hfi_stake *stake, const struct hfi_hold *hold) {
    return atomic_load(&stake->lost) != NULL && hold->possession == HFI_HOLD_LOST &&
           hold->generation == stake->generation;
}

void hfi_stakes_set_times_locked(struct hfi_hold *hold) {
    for (struct hfi_link *link = hold->stakes.next; link != &hold->stakes; link = link->next)
        set_times(stake_at(link), hold);
}

void hfi_stakes_lose_locked(struct hfi_hold *hold, const char *why) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&hold->stakes)) != NULL) {
        struct hfi_stake *stake = stake_at(link);
        stake->generation = hold->generation;
        atomic_store(&stake->lost, why);
        hfi_task_post(stake->watcher, HFI_WATCHDOG_PARTS);
        hfi_stake_unref(stake);
    }
}

void hfi_stakes_drop_locked(struct hfi_hold *hold) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&hold->stakes)) != NULL)
        hfi_stake_unref(stake_at(link));
}

bool hfi_stakes_are_all_locked(const struct hfi_hold *hold) {
    int64_t len = 0;
    for (const struct hfi_link *link = hold->stakes.next; link != &hold->stakes; link = link->next)
        len++;
    return len == hold->count;
}

/* ---- Shares ---- */

static struct hfi_share *share_at(struct hfi_link *link) {
    return HFI_CONTAINER(link, struct hfi_share, link);
}

const char *hfi_shares_why_lost(const struct hfi_hold *hold) {
    const char *why = NULL;
    for (struct hfi_link *link = hold->shares.next; link != &hold->shares; link = link->next)
        for (size_t i = 0; i < share_at(link)->len && why == NULL; i++)
            why = atomic_load(&share_at(link)->stakes[i]->lost);
    return why;
}

int64_t hfi_shares_deadline_ms(const struct hfi_hold *hold) {
    int64_t deadline_ms = hfi_shares_why_lost(hold) == NULL ? HFI_NEVER : 0;
    for (struct hfi_link *link = hold->shares.next; link != &hold->shares; link = link->next)
        for (size_t i = 0; i < share_at(link)->len; i++)
            deadline_ms =
                hfi_min_ms(deadline_ms, atomic_load(&share_at(link)->stakes[i]->deadline_ms));
    return deadline_ms;
}

int64_t hfi_shares_warn_at_ms(const struct hfi_hold *hold) {
    int64_t warn_at_ms = HFI_NEVER;
    for (struct hfi_link *link = hold->shares.next; link != &hold->shares; link = link->next)
        for (size_t i = 0; i < share_at(link)->len; i++)
            warn_at_ms =
                hfi_min_ms(warn_at_ms, atomic_load(&share_at(link)->stakes[i]->warn_at_ms));
    return warn_at_ms;
}

/* A part may have ended before the share was linked. */
void hfi_share_put_locked(struct hfi_share *share, struct hfi_hold *hold) {
    hfi_list_push_back(&hold->shares, &share->link);
    if (hfi_shares_why_lost(hold) != NULL)
        hfi_task_post(hold->core->watchdog, HFI_WATCHDOG_PARTS);
}

struct hfi_share *hfi_share_take_locked(struct hfi_hold *hold) {
    struct hfi_link *last = hold->shares.prev;
    if (hfi_list_empty(&hold->shares))
        return NULL;
    hfi_list_remove(last);
    return share_at(last);
}

static struct hfi_share *take_share(struct hfi_hold *hold) {
    pthread_mutex_lock(&hold->shard->mtx);
    struct hfi_share *share = hfi_share_take_locked(hold);
    pthread_mutex_unlock(&hold->shard->mtx);
    return share;
}

void hfi_shares_give_back(struct hfi_hold *hold) {
    struct hfi_share *share;
    if (!hold->kind->joint)
        return;
    while ((share = take_share(hold)) != NULL)
        share->give_back(share);
}

void hfi_shares_let_run_out(struct hfi_hold *hold) {
    struct hfi_share *share;
    while ((share = hfi_share_take_locked(hold)) != NULL)
        share->let_run_out(share);
}

/* ---- Checking them ---- */

static void check_hold(struct hfi_hold *hold) {
    if (hold->count == 0 || hfi_list_empty(&hold->shares))
        return;
    const char *why = hfi_shares_why_lost(hold);
    if (why == NULL) {
        hfi_watchdog_arm_locked(hold);
        return;
    }
    hfi_hold_lose_locked(hold, why);
    hfi_hold_ref(hold);
    hfi_list_push_back(&hold->core->due, &hold->due_link); /* reuses `due`: reported below */
    hfi_hold_tidy_locked(hold);
}

void hfi_parts_check(struct hfi_core *core) {
    struct hfi_link *link;
    hfi_for_each_hold(core, check_hold);
    while ((link = hfi_list_pop_front(&core->due)) != NULL) {
        struct hfi_hold *hold = HFI_CONTAINER(link, struct hfi_hold, due_link);
        hfi_hold_report(hold, HFI_LOST);
        hfi_hold_unref(hold);
    }
}
