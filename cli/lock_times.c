/*
 * Sums of what clients count by name (lock_times.h). Used by `serve`, on its one thread.
 *
 * Three arrays, all in order, so that a survey is added by going through them side by side:
 *
 *   names    what is summed up, by name
 *   accounts what a client has told last of a name, by name and client
 *   told     the same of one survey
 *
 * A name stays as long as there is room, told or not: its counters must not begin anew. When there is none, those give
 * way that nobody has told of for FORGET_MS, and so do accounts. What then still has no room is not added: a client whose
 * account was forgotten too soon would be counted from its beginning whenever it tells again, and in a fleet that is larger than
 * a survey, others tell each time.
 */
#include "lock_times.h"

#include "metrics_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ACCOUNTS_MAX 65536 /* some 400 bytes each */
#define FORGET_MS (15 * 60 * 1000)
#define ID_LEN 36
#define SUM_MAX (UINT64_MAX / 64) /* the sum of all buckets is a number, too */

enum { WAIT, HOLD, HAND_OVER, KINDS };

struct name {
    char *bytes;
    size_t len;
    int64_t told_ms;
    struct name *next_gone; /* see struct lock_times */
    bool gone;
    struct metrics_counts sums[KINDS];
};

struct account {
    const struct name *name; /* what it has is older than itself, and stays */
    char id[ID_LEN + 1];
    uint64_t begun; /* counting, as the client says */
    int64_t told_ms;
    struct metrics_counts last[KINDS];
};

struct told {
    const hf_fleet_times *times;
    const char *id;
    struct name *name; /* of the sums; NULL: it has none */
};

struct lock_times {
    size_t names_max, names_len;
    struct name **names; /* names_max of them, by name */
    struct name *gone;   /* those that have given way, until nobody has an account of them */
    struct account *accounts;
    size_t accounts_len;
    size_t left_out; /* names of the last survey that have no sums */
};

/* ---- Orders ---- */

static int compare_bytes(const char *a, size_t a_len, const char *b, size_t b_len) {
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare_names(const void *a, const void *b) {
    const struct name *first = *(struct name *const *)a, *second = *(struct name *const *)b;
    return compare_bytes(first->bytes, first->len, second->bytes, second->len);
}

static int compare_told(const void *a, const void *b) {
    const struct told *first = a, *second = b;
    int order = compare_bytes(first->times->name, first->times->name_len, second->times->name,
                              second->times->name_len);
    return order != 0 ? order : strcmp(first->id, second->id);
}

static int compare_with_account(const struct told *told, const struct account *account) {
    int order = compare_bytes(told->times->name, told->times->name_len, account->name->bytes,
                              account->name->len);
    return order != 0 ? order : strcmp(told->id, account->id);
}

/* ---- What a survey tells ---- */

/* By name and client, each once, and no more than there can be accounts. The caller frees it; NULL: out of memory. */
static struct told *gather(const hf_fleet *fleet, size_t *ret_len) {
    size_t len = 0, once = 0;
    for (size_t i = 0; i < fleet->clients_len; i++)
        len += fleet->clients[i]->names_len;
    struct told *all = calloc(len + 1, sizeof *all);
    if (all == NULL)
        return NULL;
    len = 0;
    for (size_t i = 0; i < fleet->clients_len; i++)
        for (size_t k = 0; k < fleet->clients[i]->names_len; k++)
            if (fleet->clients[i]->names[k]->name_len <= METRICS_LABEL_MAX && len < ACCOUNTS_MAX)
                all[len++] = (struct told){.times = fleet->clients[i]->names[k],
                                           .id = fleet->clients[i]->id};
    if (len > 1)
        qsort(all, len, sizeof *all, compare_told);
    for (size_t i = 0; i < len; i++)
        if (once == 0 || compare_told(&all[once - 1], &all[i]) != 0)
            all[once++] = all[i];
    *ret_len = once;
    return all;
}

static bool same_name(const struct told *a, const struct told *b) {
    return compare_bytes(a->times->name, a->times->name_len, b->times->name, b->times->name_len) ==
           0;
}

/* Behind the last that is about the same name as the one at `from`. */
static size_t end_of_name(const struct told *all, size_t len, size_t from) {
    size_t end = from + 1;
    while (end < len && same_name(&all[from], &all[end]))
        end++;
    return end;
}

/* ---- Which names have sums ---- */

/* A name that has none yet. */
struct candidate {
    size_t from, end;   /* in what was told */
    uint64_t waited_us; /* by all who tell of it */
};

/* The most waited for come first, and of those the first by name. */
static int compare_candidates(const void *a, const void *b) {
    const struct candidate *first = a, *second = b;
    if (first->waited_us != second->waited_us)
        return first->waited_us > second->waited_us ? -1 : 1;
    return (first->from > second->from) - (first->from < second->from);
}

/* Whatever anybody says, a sum does not fall: it stays at what all of them together can have. */
static uint64_t sum_of(uint64_t a, uint64_t b) {
    return b < SUM_MAX - a ? a + b : SUM_MAX;
}

static void set_name(struct told *told, const struct candidate *candidate, struct name *name) {
    for (size_t i = candidate->from; i < candidate->end; i++)
        told[i].name = name;
}

/* Finds the names of what was told; those that are new become candidates. Returns how many there are. */
static size_t match_names(struct lock_times *times, struct told *told, size_t len, int64_t now_ms,
                          struct candidate *candidates) {
    size_t candidates_len = 0, at = 0;
    for (size_t from = 0, end; from < len; from = end) {
        struct candidate candidate = {.from = from, .end = end_of_name(told, len, from)};
        const hf_fleet_times *first = told[from].times;
        int order = 1;
        end = candidate.end;
        while (at < times->names_len &&
               (order = compare_bytes(times->names[at]->bytes, times->names[at]->len, first->name,
                                      first->name_len)) < 0)
            at++;
        if (at < times->names_len && order == 0) {
            times->names[at]->told_ms = now_ms;
            set_name(told, &candidate, times->names[at]);
            continue;
        }
        for (size_t i = from; i < end; i++)
            candidate.waited_us = sum_of(candidate.waited_us, told[i].times->wait.sum_us);
        candidates[candidates_len++] = candidate;
    }
    return candidates_len;
}

static void name_free(struct name *name) {
    if (name != NULL)
        free(name->bytes);
    free(name);
}

/* All at once: accounts are large, and there may be many. */
static void free_gone(struct lock_times *times) {
    size_t kept = 0;
    if (times->gone == NULL)
        return;
    for (size_t i = 0; i < times->accounts_len; i++)
        if (!times->accounts[i].name->gone)
            times->accounts[kept++] = times->accounts[i];
    times->accounts_len = kept;
    while (times->gone != NULL) {
        struct name *name = times->gone;
        times->gone = name->next_gone;
        name_free(name);
    }
}

/* Puts it where there is room, or in the place of the one that nobody has told of for the longest. False: there is
 * none. */
static bool place_name(struct lock_times *times, struct name *name) {
    if (times->names_len < times->names_max) {
        times->names[times->names_len++] = name;
        return true;
    }
    size_t oldest = 0;
    for (size_t i = 1; i < times->names_len; i++)
        if (times->names[i]->told_ms < times->names[oldest]->told_ms)
            oldest = i;
    if (times->names_len == 0 || name->told_ms - times->names[oldest]->told_ms < FORGET_MS)
        return false;
    times->names[oldest]->gone = true;
    times->names[oldest]->next_gone = times->gone;
    times->gone = times->names[oldest];
    times->names[oldest] = name;
    return true;
}

static struct name *name_new(const hf_fleet_times *times, int64_t now_ms) {
    struct name *name = calloc(1, sizeof *name);
    if (name == NULL)
        return NULL;
    name->bytes = malloc(times->name_len + 1);
    if (name->bytes == NULL) {
        free(name);
        return NULL;
    }
    memcpy(name->bytes, times->name, times->name_len);
    name->len = times->name_len;
    name->told_ms = now_ms;
    return name;
}

/* Those that get none are counted: they are tried again with the next survey. */
static void choose_names(struct lock_times *times, struct told *told, size_t len, int64_t now_ms) {
    struct candidate *candidates = calloc(len + 1, sizeof *candidates);
    if (candidates == NULL)
        return;
    size_t candidates_len = match_names(times, told, len, now_ms, candidates), placed = 0;
    if (candidates_len > 1)
        qsort(candidates, candidates_len, sizeof *candidates, compare_candidates);
    for (; placed < candidates_len; placed++) {
        struct name *name = name_new(told[candidates[placed].from].times, now_ms);
        if (name == NULL || !place_name(times, name)) {
            name_free(name);
            break;
        }
        set_name(told, &candidates[placed], name);
    }
    free_gone(times);
    times->left_out = candidates_len - placed;
    if (placed > 0)
        qsort(times->names, times->names_len, sizeof(struct name *), compare_names);
    free(candidates);
}

/* ---- Adding ---- */

/* What is more than before. Nothing of it ever falls, but anybody may say anything. */
static void add_more(struct metrics_counts *sum, const struct metrics_counts *now,
                     const struct metrics_counts *before) {
    for (size_t i = 0; i < METRICS_BUCKETS; i++)
        if (now->buckets[i] > before->buckets[i])
            sum->buckets[i] = sum_of(sum->buckets[i], now->buckets[i] - before->buckets[i]);
    if (now->sum_us > before->sum_us)
        sum->sum_us = sum_of(sum->sum_us, now->sum_us - before->sum_us);
}

static void settle(struct account *account, const struct told *told, int64_t now_ms) {
    const struct metrics_counts now[KINDS] = {[WAIT] = metrics_counts_of(&told->times->wait),
                                              [HOLD] = metrics_counts_of(&told->times->hold),
                                              [HAND_OVER] =
                                                  metrics_counts_of(&told->times->hand_over)};
    if (account->begun != told->times->begun)
        memset(account->last, 0, sizeof account->last); /* it has begun anew: all of it is more */
    for (size_t kind = 0; kind < KINDS; kind++)
        add_more(&told->name->sums[kind], &now[kind], &account->last[kind]);
    memcpy(account->last, now, sizeof now);
    account->begun = told->times->begun;
    account->told_ms = now_ms;
}

static void forget_old(struct lock_times *times, int64_t now_ms) {
    size_t kept = 0;
    for (size_t i = 0; i < times->accounts_len; i++)
        if (now_ms - times->accounts[i].told_ms < FORGET_MS)
            times->accounts[kept++] = times->accounts[i];
    times->accounts_len = kept;
}

/* One account for all that is in either. Done once more with the same, it adds what there was no room for. False: there
 * was none. */
static bool merge(struct lock_times *times, const struct told *told, size_t len, int64_t now_ms) {
    struct account *all = calloc(times->accounts_len + len + 1, sizeof *all);
    size_t all_len = 0, at = 0, room = ACCOUNTS_MAX - times->accounts_len;
    bool all_fit = true;
    if (all == NULL)
        return true; /* and no memory either */
    for (size_t i = 0; i < len; i++) {
        int order = 1;
        if (told[i].name == NULL)
            continue;
        while (at < times->accounts_len &&
               (order = compare_with_account(&told[i], &times->accounts[at])) > 0)
            all[all_len++] = times->accounts[at++];
        if (at < times->accounts_len && order == 0) {
            all[all_len] = times->accounts[at++];
        } else if (room == 0) {
            all_fit = false;
            continue;
        } else {
            room--;
            all[all_len].name = told[i].name;
            snprintf(all[all_len].id, sizeof all[all_len].id, "%s", told[i].id);
        }
        settle(&all[all_len++], &told[i], now_ms);
    }
    while (at < times->accounts_len)
        all[all_len++] = times->accounts[at++];
    free(times->accounts);
    times->accounts = all;
    times->accounts_len = all_len;
    return all_fit;
}

void lock_times_add(struct lock_times *times, const hf_fleet *fleet) {
    size_t len;
    struct told *told = gather(fleet, &len);
    if (told == NULL)
        return;
    choose_names(times, told, len, fleet->taken_ms);
    if (!merge(times, told, len, fleet->taken_ms)) {
        forget_old(times, fleet->taken_ms);
        merge(times, told, len, fleet->taken_ms);
    }
    free(told);
}

/* ---- Writing ---- */

static void write_label(FILE *out, const void *arg) {
    const struct name *name = arg;
    metrics_label(out, "lock", name->bytes, name->len);
}

void lock_times_write(const struct lock_times *times, FILE *out) {
    static const struct {
        const char *family, *help;
    } all[KINDS] = {
        [WAIT] = {"holdfast_lock_wait_seconds", "From the call to acquired, of all clients."},
        [HOLD] = {"holdfast_lock_hold_seconds", "From acquired to fully released."},
        [HAND_OVER] = {"holdfast_lock_hand_over_seconds",
                       "From being told that it is free to acquired."},
    };
    for (size_t kind = 0; kind < KINDS; kind++) {
        metrics_head(out, all[kind].family, "histogram", all[kind].help);
        for (size_t i = 0; i < times->names_len; i++) {
            const struct name *name = times->names[i];
            if (metrics_counted(&name->sums[kind]) > 0)
                metrics_histogram(out, all[kind].family, &name->sums[kind], write_label, name);
        }
    }
    metrics_head(out, "holdfast_lock_times_left_out", "gauge",
                 "Names that have no such histograms here.");
    fprintf(out, "holdfast_lock_times_left_out %zu\n", times->left_out);
}

/* ---- Life ---- */

struct lock_times *lock_times_new(size_t names_max) {
    struct lock_times *times = calloc(1, sizeof *times);
    if (times == NULL)
        return NULL;
    times->names_max = names_max;
    times->names = calloc(names_max + 1, sizeof(struct name *));
    if (times->names != NULL)
        return times;
    free(times);
    return NULL;
}

void lock_times_free(struct lock_times *times) {
    if (times == NULL)
        return;
    for (size_t i = 0; i < times->names_len; i++)
        name_free(times->names[i]);
    free(times->names);
    free(times->accounts);
    free(times);
}
