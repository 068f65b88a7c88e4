/* Sums the clients' per-name statistics (lock_times.h). Used by `serve`, on its one thread.
 *
 * Three sorted arrays, so that a survey is added by merging them:
 *
 *   names    the sums, by name
 *   accounts a client's last report of a name, by name and client
 *   report   the reports of one survey
 *
 * A name stays while there is room, reported or not: its counters must not restart. When the table
 * is full, names and accounts not reported for FORGET_MS are dropped. What still has no room is not
 * added. The reason: if a client's account were dropped too soon, its next report would be counted
 * from the client's start again. In a fleet larger than a survey, the reporting clients differ each
 * time. */
#include "fleet/lock_times.h"

#include "fleet/metrics_syntax.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ACCOUNTS_MAX 65536 /* some 400 bytes each */
#define FORGET_MS (15 * 60 * 1000)
#define ID_LEN 36
#define SUM_MAX (UINT64_MAX / 64) /* so that the sum over all buckets does not overflow */

enum { WAIT, HOLD, HAND_OVER, KINDS };

struct name {
    char *bytes;
    size_t len;
    int64_t reported_ms;
    struct name *next_gone; /* list of struct lock_times */
    bool gone;
    struct metrics_counts sums[KINDS];
};

struct account {
    const struct name *name; /* it exists longer than this account does */
    char id[ID_LEN + 1];
    uint64_t begun; /* when the client began counting, as it reports */
    int64_t reported_ms;
    struct metrics_counts last[KINDS];
};

struct report {
    const hf_fleet_name_stats *times;
    const char *id;
    struct name *name; /* its sums; NULL: it has none */
};

struct lock_times {
    size_t names_max, names_len;
    struct name **names; /* room for names_max, sorted by name */
    struct name *gone;   /* dropped names, until no account refers to them */
    struct account *accounts;
    size_t accounts_len;
    size_t left_out; /* names of the last survey without sums */
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

static int compare_reports(const void *a, const void *b) {
    const struct report *first = a, *second = b;
    int order = compare_bytes(first->times->name, first->times->name_len, second->times->name,
                              second->times->name_len);
    return order != 0 ? order : strcmp(first->id, second->id);
}

static int compare_with_account(const struct report *report, const struct account *account) {
    int order = compare_bytes(report->times->name, report->times->name_len, account->name->bytes,
                              account->name->len);
    return order != 0 ? order : strcmp(report->id, account->id);
}

/* ---- The reports of a survey ---- */

/* The reports, sorted by name and client, unique, at most ACCOUNTS_MAX. The caller frees them;
 * NULL: out of memory. */
static struct report *gather(const hf_fleet *fleet, size_t *ret_len) {
    size_t len = 0, once = 0;
    for (size_t i = 0; i < fleet->clients_len; i++)
        len += fleet->clients[i]->names_len;
    struct report *all = calloc(len + 1, sizeof *all);
    if (all == NULL)
        return NULL;
    len = 0;
    for (size_t i = 0; i < fleet->clients_len; i++)
        for (size_t k = 0; k < fleet->clients[i]->names_len; k++)
            if (fleet->clients[i]->names[k]->name_len <= METRICS_LABEL_MAX && len < ACCOUNTS_MAX)
                all[len++] = (struct report){.times = fleet->clients[i]->names[k],
                                             .id = fleet->clients[i]->id};
    if (len > 1)
        qsort(all, len, sizeof *all, compare_reports);
    for (size_t i = 0; i < len; i++)
        if (once == 0 || compare_reports(&all[once - 1], &all[i]) != 0)
            all[once++] = all[i];
    *ret_len = once;
    return all;
}

static bool same_name(const struct report *a, const struct report *b) {
    return compare_bytes(a->times->name, a->times->name_len, b->times->name, b->times->name_len) ==
           0;
}

/* The index behind the last report about the same name as the one at `from`. */
static size_t end_of_name(const struct report *all, size_t len, size_t from) {
    size_t end = from + 1;
    while (end < len && same_name(&all[from], &all[end]))
        end++;
    return end;
}

/* ---- Which names have sums ---- */

/* A name without sums. */
struct candidate {
    size_t from, end;   /* range in the reports */
    uint64_t waited_us; /* in all its reports */
};

/* By total wait, longest first, then by name. */
static int compare_candidates(const void *a, const void *b) {
    const struct candidate *first = a, *second = b;
    if (first->waited_us != second->waited_us)
        return first->waited_us > second->waited_us ? -1 : 1;
    return (first->from > second->from) - (first->from < second->from);
}

/* Saturating addition: a sum never falls, whatever clients report. */
static uint64_t sum_of(uint64_t a, uint64_t b) {
    return b < SUM_MAX - a ? a + b : SUM_MAX;
}

static void set_name(struct report *report, const struct candidate *candidate, struct name *name) {
    for (size_t i = candidate->from; i < candidate->end; i++)
        report[i].name = name;
}

/* Finds the names of the reports; new names become candidates. Returns their number. */
static size_t match_names(struct lock_times *times, struct report *report, size_t len,
                          int64_t now_ms, struct candidate *candidates) {
    size_t candidates_len = 0, at = 0;
    for (size_t from = 0, end; from < len; from = end) {
        struct candidate candidate = {.from = from, .end = end_of_name(report, len, from)};
        const hf_fleet_name_stats *first = report[from].times;
        int order = 1;
        end = candidate.end;
        while (at < times->names_len &&
               (order = compare_bytes(times->names[at]->bytes, times->names[at]->len, first->name,
                                      first->name_len)) < 0)
            at++;
        if (at < times->names_len && order == 0) {
            times->names[at]->reported_ms = now_ms;
            set_name(report, &candidate, times->names[at]);
            continue;
        }
        for (size_t i = from; i < end; i++)
            candidate.waited_us = sum_of(candidate.waited_us, report[i].times->wait.sum_us);
        candidates[candidates_len++] = candidate;
    }
    return candidates_len;
}

static void name_free(struct name *name) {
    if (name != NULL)
        free(name->bytes);
    free(name);
}

/* In one pass, because there may be many accounts and they are large. */
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

/* Puts the name into free room, or replaces the one not reported for the longest time. False: no
 * room. */
static bool place_name(struct lock_times *times, struct name *name) {
    if (times->names_len < times->names_max) {
        times->names[times->names_len++] = name;
        return true;
    }
    size_t oldest = 0;
    for (size_t i = 1; i < times->names_len; i++)
        if (times->names[i]->reported_ms < times->names[oldest]->reported_ms)
            oldest = i;
    if (times->names_len == 0 || name->reported_ms - times->names[oldest]->reported_ms < FORGET_MS)
        return false;
    times->names[oldest]->gone = true;
    times->names[oldest]->next_gone = times->gone;
    times->gone = times->names[oldest];
    times->names[oldest] = name;
    return true;
}

static struct name *name_new(const hf_fleet_name_stats *times, int64_t now_ms) {
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
    name->reported_ms = now_ms;
    return name;
}

/* Names without room are counted in left_out and tried again with the next survey. */
static void choose_names(struct lock_times *times, struct report *report, size_t len,
                         int64_t now_ms) {
    struct candidate *candidates = calloc(len + 1, sizeof *candidates);
    if (candidates == NULL)
        return;
    size_t candidates_len = match_names(times, report, len, now_ms, candidates), placed = 0;
    if (candidates_len > 1)
        qsort(candidates, candidates_len, sizeof *candidates, compare_candidates);
    for (; placed < candidates_len; placed++) {
        struct name *name = name_new(report[candidates[placed].from].times, now_ms);
        if (name == NULL || !place_name(times, name)) {
            name_free(name);
            break;
        }
        set_name(report, &candidates[placed], name);
    }
    free_gone(times);
    times->left_out = candidates_len - placed;
    if (placed > 0)
        qsort(times->names, times->names_len, sizeof(struct name *), compare_names);
    free(candidates);
}

/* ---- Adding ---- */

/* Adds the increase. Counts never fall, but reports are untrusted, so a decrease is ignored. */
static void add_more(struct metrics_counts *sum, const struct metrics_counts *now,
                     const struct metrics_counts *before) {
    for (size_t i = 0; i < METRICS_BUCKETS; i++)
        if (now->buckets[i] > before->buckets[i])
            sum->buckets[i] = sum_of(sum->buckets[i], now->buckets[i] - before->buckets[i]);
    if (now->sum_us > before->sum_us)
        sum->sum_us = sum_of(sum->sum_us, now->sum_us - before->sum_us);
}

static void settle(struct account *account, const struct report *report, int64_t now_ms) {
    const struct metrics_counts now[KINDS] = {[WAIT] = metrics_counts_of(&report->times->wait),
                                              [HOLD] = metrics_counts_of(&report->times->hold),
                                              [HAND_OVER] =
                                                  metrics_counts_of(&report->times->hand_over)};
    if (account->begun != report->times->begun)
        memset(account->last, 0, sizeof account->last); /* it restarted: all counts are new */
    for (size_t kind = 0; kind < KINDS; kind++)
        add_more(&report->name->sums[kind], &now[kind], &account->last[kind]);
    memcpy(account->last, now, sizeof now);
    account->begun = report->times->begun;
    account->reported_ms = now_ms;
}

static void forget_old(struct lock_times *times, int64_t now_ms) {
    size_t kept = 0;
    for (size_t i = 0; i < times->accounts_len; i++)
        if (now_ms - times->accounts[i].reported_ms < FORGET_MS)
            times->accounts[kept++] = times->accounts[i];
    times->accounts_len = kept;
}

/* Merges reports and accounts. Calling it again with the same reports adds only those that had no
 * room. False: some had none. */
static bool merge(struct lock_times *times, const struct report *report, size_t len,
                  int64_t now_ms) {
    struct account *all = calloc(times->accounts_len + len + 1, sizeof *all);
    size_t all_len = 0, at = 0, room = ACCOUNTS_MAX - times->accounts_len;
    bool all_fit = true;
    if (all == NULL)
        return true; /* out of memory: a retry is useless */
    for (size_t i = 0; i < len; i++) {
        int order = 1;
        if (report[i].name == NULL)
            continue;
        while (at < times->accounts_len &&
               (order = compare_with_account(&report[i], &times->accounts[at])) > 0)
            all[all_len++] = times->accounts[at++];
        if (at < times->accounts_len && order == 0) {
            all[all_len] = times->accounts[at++];
        } else if (room == 0) {
            all_fit = false;
            continue;
        } else {
            room--;
            all[all_len].name = report[i].name;
            snprintf(all[all_len].id, sizeof all[all_len].id, "%s", report[i].id);
        }
        settle(&all[all_len++], &report[i], now_ms);
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
    struct report *report = gather(fleet, &len);
    if (report == NULL)
        return;
    choose_names(times, report, len, fleet->taken_ms);
    if (!merge(times, report, len, fleet->taken_ms)) {
        forget_old(times, fleet->taken_ms);
        merge(times, report, len, fleet->taken_ms);
    }
    free(report);
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
        [WAIT] = {"holdfast_fleet_lock_wait_seconds",
                  "Time from the call to the acquire, of all clients."},
        [HOLD] = {"holdfast_fleet_lock_hold_seconds", "Time from the acquire to the full release."},
        [HAND_OVER] = {"holdfast_fleet_lock_hand_over_seconds",
                       "Time from the release message to the acquire."},
    };
    for (size_t kind = 0; kind < KINDS; kind++) {
        metrics_head(out, all[kind].family, "histogram", all[kind].help);
        for (size_t i = 0; i < times->names_len; i++) {
            const struct name *name = times->names[i];
            if (metrics_counted(&name->sums[kind]) > 0)
                metrics_histogram(out, all[kind].family, &name->sums[kind], write_label, name);
        }
    }
    metrics_head(out, "holdfast_fleet_lock_times_left_out", "gauge",
                 "Names left out of these histograms.");
    fprintf(out, "holdfast_fleet_lock_times_left_out %zu\n", times->left_out);
}

/* ---- Construction ---- */

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
