/* Which owners released a lock and which acquired it between two surveys. Called by `top` and
 * `serve` for each name. Stateless.
 *
 * Holders are compared as sets of owners: read locks, slots and groups have several at once, in no
 * meaningful order. A holder missing from an incomplete survey is not reported as a change. */
#include "fleet/fleet.h"

#include <stdlib.h>
#include <string.h>

/* Several owners may hold it at once, so a new holder does not imply a release. */
static bool is_shared(const hf_fleet_party *party) {
    static const char *const kinds[] = {"read", "permits", "group", "semaphore"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(party->kind, kinds[i]) == 0)
            return true;
    return false;
}

static bool is_at_server(const hf_fleet_party *party) {
    return (party->seen_by & HF_SEEN_BY_SERVER) != 0;
}

static int by_owner(const void *a, const void *b) {
    return strcmp((*(const hf_fleet_party *const *)a)->owner,
                  (*(const hf_fleet_party *const *)b)->owner);
}

struct holders {
    const hf_fleet_party **all; /* sorted by owner, unique */
    size_t len;
};

/* The holders that the server knows. If there are none: those that claim it themselves, unless some
 * clients did not answer. */
static bool collect(const hf_fleet_lock *lock, bool claims, struct holders *ret) {
    size_t len = lock != NULL ? lock->holders_len : 0, unique = 0;
    bool known = false;
    ret->all = calloc(len + 1, sizeof(const hf_fleet_party *));
    ret->len = 0;
    if (ret->all == NULL)
        return false;
    for (size_t i = 0; i < len; i++)
        known = known || is_at_server(lock->holders[i]);
    for (size_t i = 0; i < len; i++)
        if (is_at_server(lock->holders[i]) || (!known && claims))
            ret->all[ret->len++] = lock->holders[i];
    if (ret->len > 1)
        qsort(ret->all, ret->len, sizeof(const hf_fleet_party *), by_owner);
    for (size_t i = 0; i < ret->len; i++)
        if (unique == 0 || by_owner(&ret->all[unique - 1], &ret->all[i]) != 0)
            ret->all[unique++] = ret->all[i];
    ret->len = unique;
    return true;
}

/* Removes the owners that are in both. Returns their number. */
static size_t subtract(struct holders *before, struct holders *after) {
    size_t left = 0, came = 0, both = 0;
    for (size_t i = 0, k = 0; i < before->len || k < after->len;) {
        int order = i == before->len  ? 1
                    : k == after->len ? -1
                                      : by_owner(&before->all[i], &after->all[k]);
        if (order < 0)
            before->all[left++] = before->all[i];
        else if (order > 0)
            after->all[came++] = after->all[k];
        both += order == 0;
        i += order <= 0;
        k += order >= 0;
    }
    before->len = left;
    after->len = came;
    return both;
}

static bool are_shared(const struct holders *holders) {
    for (size_t i = 0; i < holders->len; i++)
        if (!is_shared(holders->all[i]))
            return false;
    return true;
}

/* In a truncated list, absence proves nothing. */
static bool is_known(const hf_fleet *fleet, const hf_fleet_lock *lock) {
    return lock != NULL ? lock->left_out == 0 : (fleet->missing & HF_MISSING_LOCKS) == 0;
}

bool fleet_compare_holders(const hf_fleet *earlier, const hf_fleet_lock *before,
                           const hf_fleet *later, const hf_fleet_lock *after,
                           struct fleet_change *ret) {
    struct holders left = {0}, came = {0};
    bool claims = ((earlier->missing | later->missing) & HF_MISSING_ANSWERS) == 0;
    *ret = (struct fleet_change){0};
    if (!is_known(earlier, before) || !is_known(later, after))
        return true;
    if (!collect(before, claims, &left) || !collect(after, claims, &came)) {
        free(left.all);
        free(came.all);
        return false;
    }
    size_t stayed = subtract(&left, &came);
    *ret = (struct fleet_change){.left = left.all,
                                 .left_len = left.len,
                                 .came = came.all,
                                 .came_len = came.len,
                                 .handed = stayed == 0 && left.len > 0 && came.len > 0 &&
                                           !(are_shared(&left) && are_shared(&came))};
    return true;
}

void fleet_change_free(struct fleet_change *change) {
    free(change->left);
    free(change->came);
}
