/*
 * The registry of a client's cohorts. All handles on a lock share one cohort, which ends with the
 * last handle or the last hold acquired through them. Any thread; no other mutex is held when the
 * registry's is taken.
 */
#include "joint/cohort/cohort.h"

#include <string.h>

void hfi_cohorts_init(struct hfi_cohorts *cohorts, const struct hfi_mem *mem) {
    pthread_mutex_init(&cohorts->mtx, NULL);
    cohorts->mem = mem;
}

void hfi_cohorts_clear(struct hfi_cohorts *cohorts) {
    pthread_mutex_destroy(&cohorts->mtx);
}

/* ---- Life ---- */

static void free_cohort(struct hfi_cohort *cohort) {
    pthread_mutex_destroy(&cohort->mtx);
    hfi_free(cohort->cohorts->mem, cohort);
}

static struct hfi_cohort *make(struct hfi_cohorts *cohorts, const struct hfi_part *part,
                               bool yields) {
    struct hfi_cohort *cohort = hfi_zalloc(cohorts->mem, sizeof *cohort + 1 + part->name_len);
    if (cohort == NULL)
        return NULL;
    cohort->cohorts = cohorts;
    cohort->owner = hfi_owner_next();
    cohort->yields = yields;
    cohort->limits = (struct hfi_cohort_limits){INT64_MAX, INT64_MAX};
    cohort->alarm.fire = hfi_cohort_alarm_fired;
    cohort->key[0] = part->kind->takes_stamp ? 's' : yields ? 'y' : 'n';
    memcpy(cohort->key + 1, part->name, part->name_len);
    cohort->key_len = 1 + part->name_len;
    hfi_list_init(&cohort->queue);
    pthread_mutex_init(&cohort->mtx, NULL);
    cohort->parts = hfi_parts_new(cohorts->mem, part, 1);
    if (cohort->parts == NULL) {
        free_cohort(cohort);
        return NULL;
    }
    cohort->parts->cohort = cohort;
    return cohort;
}

/* Frees a cohort that is not in the table yet. */
static void unmake(struct hfi_cohort *cohort) {
    hfi_parts_unref(cohort->parts);
    free_cohort(cohort);
}

/* ---- The table ---- */

static void unlist_locked(struct hfi_cohorts *cohorts, struct hfi_cohort *cohort) {
    if (hfi_keyed_is_in_table(&cohort->keyed))
        hfi_table_remove(cohorts->mem, &cohorts->all, &cohort->keyed);
}

/* The last reference is gone. */
static void end(struct hfi_parts *parts) {
    struct hfi_cohort *cohort = parts->cohort;
    struct hfi_cohorts *cohorts = cohort->cohorts;
    pthread_mutex_lock(&cohorts->mtx);
    unlist_locked(cohorts, cohort);
    pthread_mutex_unlock(&cohorts->mtx);
    free_cohort(cohort);
}

static struct hfi_cohort *find_locked(struct hfi_cohorts *cohorts, const struct hfi_cohort *alike) {
    struct hfi_keyed *keyed = hfi_table_find(&cohorts->all, alike->key, alike->key_len);
    return keyed != NULL ? HFI_CONTAINER(keyed, struct hfi_cohort, keyed) : NULL;
}

static void list_locked(struct hfi_cohorts *cohorts, struct hfi_cohort *cohort) {
    hfi_table_add(cohorts->mem, &cohorts->all, &cohort->keyed, cohort->key, cohort->key_len);
    cohort->parts->end = end;
}

/* False: its last reference is gone, and it is about to end. */
static bool revive(struct hfi_parts *parts) {
    int refs = atomic_load(&parts->refs);
    while (refs > 0)
        if (atomic_compare_exchange_weak(&parts->refs, &refs, refs + 1))
            return true;
    return false;
}

/* The one in the table, else inserts `fresh`. */
static struct hfi_cohort *get_locked(struct hfi_cohorts *cohorts, struct hfi_cohort *fresh) {
    struct hfi_cohort *found = find_locked(cohorts, fresh);
    if (found != NULL && revive(found->parts))
        return found;
    if (found != NULL)
        unlist_locked(cohorts, found);
    list_locked(cohorts, fresh);
    return fresh;
}

struct hfi_parts *hfi_cohort_get(struct hfi_cohorts *cohorts, const struct hfi_part *part,
                                 bool yields, const struct hfi_cohort_limits *limits) {
    struct hfi_cohort *fresh = make(cohorts, part, yields);
    if (fresh == NULL)
        return NULL;
    pthread_mutex_lock(&cohorts->mtx);
    struct hfi_cohort *cohort = get_locked(cohorts, fresh);
    pthread_mutex_unlock(&cohorts->mtx);
    if (cohort != fresh)
        unmake(fresh);
    pthread_mutex_lock(&cohort->mtx);
    cohort->limits.passes = hfi_min_ms(cohort->limits.passes, limits->passes);
    cohort->limits.ms = hfi_min_ms(cohort->limits.ms, limits->ms);
    pthread_mutex_unlock(&cohort->mtx);
    return cohort->parts;
}
