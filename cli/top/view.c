/* The data of `holdfast top`: the last survey compared with the one before, and the selection and
 * order of its locks. Sends no requests.
 *
 * The overall hand-over rate comes from the clients' own counters. For one lock, a survey only
 * shows that the holders have changed, so its count is a lower bound. */
#include "top/top.h"

#include <stdlib.h>
#include <string.h>

/* ---- Orders ---- */

static const char *const order_names[] = {"name", "age", "ttl", "wait", "waiters", "hand-overs"};

bool top_order_find(const char *name, enum top_order *ret) {
    for (size_t i = 0; i < sizeof order_names / sizeof order_names[0]; i++)
        if (strcmp(order_names[i], name) == 0) {
            *ret = (enum top_order)i;
            return true;
        }
    return false;
}

static int64_t value_of(enum top_order order, const struct top_row *row) {
    switch (order) {
    case TOP_BY_AGE:
        return fleet_age(row->lock);
    case TOP_BY_TTL:
        return fleet_ttl(row->lock);
    case TOP_BY_WAIT:
        return fleet_wait(row->lock);
    case TOP_BY_WAITERS:
        return fleet_waiters(row->lock);
    case TOP_BY_HAND_OVERS:
        return (int64_t)row->hand_overs;
    case TOP_BY_NAME:
        break;
    }
    return 0;
}

/* In descending order, then by name. */
static int compare(const void *a, const void *b, void *user) {
    const struct top_view *view = user;
    const struct top_row *one = *(const struct top_row *const *)a;
    const struct top_row *other = *(const struct top_row *const *)b;
    int64_t first = value_of(view->order, one), second = value_of(view->order, other);
    int order = (first < second) - (first > second);
    if (order == 0)
        order = fleet_order(one->lock, other->lock);
    return view->reverse ? -order : order;
}

/* ---- Selection ---- */

static bool is_wanted(const struct top_view *view, const struct top_row *row) {
    const hf_fleet_lock *lock = row->lock;
    char holder[CELL_SIZE];
    if (view->stuck_only && !row->deadlocked && !fleet_is_stuck(lock, FLEET_OVER_MS))
        return false;
    if (memmem(lock->name, lock->name_len, view->filter, strlen(view->filter)) != NULL)
        return true;
    fleet_describe_holder(lock, holder, sizeof holder);
    return strstr(holder, view->filter) != NULL;
}

void top_view_choose(struct top_view *view) {
    view->shown_len = 0;
    for (size_t i = 0; i < view->fleet->locks_len; i++)
        if (is_wanted(view, &view->all[i]))
            view->shown[view->shown_len++] = &view->all[i];
    qsort_r(view->shown, view->shown_len, sizeof(const struct top_row *), compare, view);
}

/* ---- Comparing two surveys ---- */

static int by_name(const void *key, const void *member) {
    return fleet_order(key, ((const struct top_row *)member)->lock);
}

/* If out of memory, a hand-over is not counted. */
static uint64_t hand_overs_of(const struct top_view *view, const hf_fleet *fleet,
                              const hf_fleet_lock *lock, const struct top_row *before) {
    struct fleet_change change;
    if (before == NULL)
        return 0;
    if (!fleet_compare_holders(view->fleet, before->lock, fleet, lock, &change))
        return before->hand_overs;
    fleet_change_free(&change);
    return before->hand_overs + change.handed;
}

static struct top_row *compare_locks(const struct top_view *view, const hf_fleet *fleet) {
    struct top_row *all = calloc(fleet->locks_len + 1, sizeof *all);
    for (size_t i = 0; all != NULL && i < fleet->locks_len; i++) {
        const hf_fleet_lock *lock = fleet->locks[i];
        const struct top_row *before =
            view->fleet == NULL
                ? NULL
                : bsearch(lock, view->all, view->fleet->locks_len, sizeof *view->all, by_name);
        all[i] =
            (struct top_row){.lock = lock, .hand_overs = hand_overs_of(view, fleet, lock, before)};
    }
    return all;
}

static int by_id(const void *key, const void *member) {
    return strcmp(key, (*(const hf_fleet_client *const *)member)->id);
}

/* Rates from the counters of clients that answered both surveys, in tenths per second. */
static void compare_clients(struct top_view *view, const hf_fleet *earlier, const hf_fleet *later) {
    int64_t passed_ms = later->taken_ms - earlier->taken_ms;
    uint64_t acquires = 0, hand_overs = 0;
    if (passed_ms <= 0)
        return;
    for (size_t i = 0; i < later->clients_len; i++) {
        const hf_fleet_client *now = later->clients[i];
        const hf_fleet_client *const *found = bsearch(
            now->id, earlier->clients, earlier->clients_len, sizeof(hf_fleet_client *), by_id);
        if (found == NULL || now->presence != HF_PRESENCE_ALIVE ||
            (*found)->presence != HF_PRESENCE_ALIVE)
            continue;
        if (now->acquired > (*found)->acquired)
            acquires += now->acquired - (*found)->acquired;
        if (now->hand_over.count > (*found)->hand_over.count)
            hand_overs += now->hand_over.count - (*found)->hand_over.count;
    }
    view->acquires_per_s_x10 = (int64_t)(acquires * 10000 / (uint64_t)passed_ms);
    view->hand_overs_per_s_x10 = (int64_t)(hand_overs * 10000 / (uint64_t)passed_ms);
}

static void mark_deadlocked(struct top_view *view) {
    for (size_t i = 0; i < view->deadlocks->len; i++)
        for (size_t k = 0; k < view->deadlocks->all[i].steps_len; k++) {
            const hf_fleet_lock *lock = view->deadlocks->all[i].steps[k].lock;
            struct top_row *row =
                bsearch(lock, view->all, view->fleet->locks_len, sizeof *view->all, by_name);
            if (row != NULL)
                row->deadlocked = true;
        }
}

bool top_view_take(struct top_view *view, hf_fleet *fleet) {
    struct top_row *all = compare_locks(view, fleet);
    const struct top_row **shown = calloc(fleet->locks_len + 1, sizeof(const struct top_row *));
    if (all == NULL || shown == NULL) {
        free(all);
        free(shown);
        hf_fleet_free(fleet);
        return false;
    }
    free(view->all);
    free(view->shown);
    hf_deadlocks_free(view->deadlocks);
    hf_fleet_free(view->earlier);
    view->earlier = view->fleet;
    view->fleet = fleet;
    view->all = all;
    view->shown = shown;
    view->deadlocks = NULL;
    view->acquires_per_s_x10 = view->hand_overs_per_s_x10 = -1;
    if (view->earlier != NULL) {
        compare_clients(view, view->earlier, fleet);
        if (hf_fleet_deadlocks(view->earlier, fleet, &view->deadlocks) == HF_OK)
            mark_deadlocked(view);
    }
    fleet_remember(fleet);
    top_view_choose(view);
    return true;
}

void top_view_free(struct top_view *view) {
    free(view->all);
    free(view->shown);
    hf_deadlocks_free(view->deadlocks);
    hf_fleet_free(view->earlier);
    hf_fleet_free(view->fleet);
    fleet_forget();
}
