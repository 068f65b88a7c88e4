/*
 * The numbers of a client as OpenMetrics text, made from hf_client_stats(). On the caller's thread;
 * stateless.
 *
 * Some names have histograms of their own, with the name as a label, so they cannot be confused
 * with other series. They are copied first, so that no thread waits while the text is written.
 *
 * Fractions are written as whole seconds and microseconds: printf()'s decimal separator depends on
 * the program's locale.
 */
#include "api/client.h"

#include "base/json.h"
#include "fleet/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Times below the first and above the last bucket are not listed separately. */
#define FIRST_BUCKET 4 /* 16 us */
#define LAST_BUCKET 30 /* 1074 s */
/* There are many histograms by name, so they are coarser. */
#define NAMED_FIRST_BUCKET 6 /* 64 us */
#define NAMED_LAST_BUCKET 28 /* 268 s */
#define NAMED_STEP 2

static void write_seconds(FILE *out, uint64_t us) {
    fprintf(out, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
}

static void write_head(FILE *out, const char *name, const char *type, const char *help) {
    fprintf(out, "# TYPE holdfast_client_%s %s\n# HELP holdfast_client_%s %s\n", name, type, name,
            help);
}

static void write_gauges(FILE *out, const hf_stats *stats) {
    write_head(out, "holds", "gauge", "Holds now.");
    fprintf(out, "holdfast_client_holds %" PRIu64 "\n", stats->holds);
    write_head(out, "tracked", "gauge", "Holds of which a server reports the next change.");
    fprintf(out, "holdfast_client_tracked %" PRIu64 "\n", stats->tracked);
    write_head(out, "waits", "gauge", "Calls waiting now.");
    fprintf(out, "holdfast_client_waits %" PRIu64 "\n", stats->waits);
    write_head(out, "oldest_wait_seconds", "gauge", "Age of the longest wait.");
    fputs("holdfast_client_oldest_wait_seconds ", out);
    write_seconds(out, stats->oldest_wait_ms * 1000);
    putc('\n', out);
}

static void write_counters(FILE *out, const hf_stats *stats) {
    const struct {
        const char *name, *help;
        uint64_t value;
    } counters[] = {
        {"acquired", "Successful acquires.", stats->acquired},
        {"contended", "Acquires that waited for another owner.", stats->contended},
        {"timed_out", "Acquires that ended without the lock.", stats->timed_out},
        {"cancelled", "Cancelled acquires.", stats->cancelled},
        {"released", "Successful releases.", stats->released},
        {"renewals", "Renewals confirmed by the server.", stats->renewals},
        {"renew_failures", "Failed renewals.", stats->renew_failures},
        {"losses", "Lost holds.", stats->losses},
        {"in_doubt", "Commands whose outcome was settled later.", stats->in_doubt},
        {"notify_failures", "Releases that could not notify waiters.", stats->notify_failures},
        {"reconnects", "Reconnections.", stats->reconnects},
        {"commands", "Commands sent.", stats->commands},
        {"failovers", "Changes of the primary.", stats->failovers},
        {"redirects", "Commands redirected by a cluster.", stats->redirects},
        {"ack_failures", "Acquires and renewals confirmed by too few replicas.",
         stats->ack_failures},
        {"track_events", "Changes of locks that servers have reported.", stats->track_events},
        {"track_false", "Of these, how often a hold was still there.", stats->track_false},
    };
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        write_head(out, counters[i].name, "counter", counters[i].help);
        fprintf(out, "holdfast_client_%s_total %" PRIu64 "\n", counters[i].name, counters[i].value);
    }
}

/* The counters move while they are read, so the count is the sum of the buckets. */
static void write_times(FILE *out, const char *name, const char *help, const hf_histogram *times) {
    uint64_t count = 0;
    write_head(out, name, "histogram", help);
    for (unsigned i = 0; i < sizeof times->buckets / sizeof times->buckets[0]; i++) {
        count += times->buckets[i];
        if (i < FIRST_BUCKET || i > LAST_BUCKET)
            continue;
        fprintf(out, "holdfast_client_%s_bucket{le=\"", name);
        write_seconds(out, UINT64_C(1) << i);
        fprintf(out, "\"} %" PRIu64 "\n", count);
    }
    fprintf(out,
            "holdfast_client_%s_bucket{le=\"+Inf\"} %" PRIu64 "\nholdfast_client_%s_count %" PRIu64
            "\nholdfast_client_%s_sum ",
            name, count, name, count, name);
    write_seconds(out, times->sum_us);
    putc('\n', out);
}

/* ---- By name ---- */

struct named {
    struct named *next;
    struct hfi_named_times times; /* its name is behind the struct */
};

struct named_list {
    struct named *first;
    bool failed; /* out of memory */
};

/* Under the mutex of the statistics table. */
static void add_named(void *arg, const struct hfi_named_times *times) {
    struct named_list *list = arg;
    struct named *named = malloc(sizeof *named + times->name_len);
    if (named == NULL) {
        list->failed = true;
        return;
    }
    *named = (struct named){.next = list->first, .times = *times};
    named->times.name = memcpy(named + 1, times->name, times->name_len);
    list->first = named;
}

static void free_names(struct named_list *list) {
    while (list->first != NULL) {
        struct named *named = list->first;
        list->first = named->next;
        free(named);
    }
}

/* Escapes a name in any bytes for a quoted label; if it is not UTF-8, other bytes than ASCII become
 * U+FFFD. */
static void write_escaped(FILE *out, const char *name, size_t len, bool is_text) {
    for (size_t i = 0; i < len; i++) {
        if (name[i] == '\n')
            fputs("\\n", out);
        else if (name[i] == '\0')
            fputs("\\\\u0000", out);
        else if (name[i] == '"' || name[i] == '\\')
            fprintf(out, "\\%c", name[i]);
        else if (is_text || (unsigned char)name[i] < 0x80)
            putc(name[i], out);
        else
            fputs("\xef\xbf\xbd", out);
    }
}

/* A name that is not plain text could look like another, so its bytes are written in hex, too. */
static void write_lock_label(FILE *out, const struct hfi_named_times *times) {
    bool is_text = hfi_is_utf8(times->name, times->name_len);
    fputs("lock=\"", out);
    write_escaped(out, times->name, times->name_len, is_text);
    putc('"', out);
    if (is_text && memchr(times->name, '\0', times->name_len) == NULL)
        return;
    fputs(",lock_hex=\"", out);
    for (size_t i = 0; i < times->name_len; i++)
        fprintf(out, "%02x", (unsigned char)times->name[i]);
    putc('"', out);
}

static void begin_named(FILE *out, const char *family, const char *suffix,
                        const struct hfi_named_times *of) {
    fprintf(out, "holdfast_client_%s%s{", family, suffix);
    write_lock_label(out, of);
}

static void write_named(FILE *out, const char *family, const struct hfi_named_times *of,
                        const hf_histogram *times) {
    uint64_t count = 0;
    for (unsigned i = 0; i < sizeof times->buckets / sizeof times->buckets[0]; i++) {
        count += times->buckets[i];
        if (i < NAMED_FIRST_BUCKET || i > NAMED_LAST_BUCKET ||
            (i - NAMED_FIRST_BUCKET) % NAMED_STEP != 0)
            continue;
        begin_named(out, family, "_bucket", of);
        fputs(",le=\"", out);
        write_seconds(out, UINT64_C(1) << i);
        fprintf(out, "\"} %" PRIu64 "\n", count);
    }
    begin_named(out, family, "_bucket", of);
    fprintf(out, ",le=\"+Inf\"} %" PRIu64 "\n", count);
    begin_named(out, family, "_count", of);
    fprintf(out, "} %" PRIu64 "\n", count);
    begin_named(out, family, "_sum", of);
    fputs("} ", out);
    write_seconds(out, times->sum_us);
    putc('\n', out);
}

static void write_names(FILE *out, const struct named_list *list) {
    static const struct {
        const char *family, *help;
        size_t at;
    } all[] = {
        {"lock_wait_seconds", "Time from the call to the acquire, by name.",
         offsetof(struct hfi_named_times, wait)},
        {"lock_hold_seconds", "Time from the acquire to the full release, by name.",
         offsetof(struct hfi_named_times, hold)},
        {"lock_hand_over_seconds", "Time from the release message to the acquire, by name.",
         offsetof(struct hfi_named_times, hand_over)},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        write_head(out, all[k].family, "histogram", all[k].help);
        for (const struct named *named = list->first; named != NULL; named = named->next) {
            hf_histogram times;
            memcpy(&times, (const char *)&named->times + all[k].at, sizeof times);
            if (times.count > 0)
                write_named(out, all[k].family, &named->times, &times);
        }
    }
}

/* ---- All of it ---- */

static void write_all(FILE *out, const char *id, const hf_stats *stats,
                      const struct named_list *names) {
    fprintf(out,
            "# TYPE holdfast_client info\n# HELP holdfast_client Which client it is.\n"
            "holdfast_client_info{id=\"%s\",version=\"%s\"} 1\n",
            id, hf_version());
    write_gauges(out, stats);
    write_counters(out, stats);
    write_times(out, "wait_seconds", "Time from the call to the acquire.", &stats->wait);
    write_times(out, "hold_seconds", "Time from the acquire to the full release.", &stats->hold);
    write_times(out, "hand_over_seconds", "Time from the release message to the acquire.",
                &stats->hand_over);
    write_names(out, names);
    fputs("# EOF\n", out);
}

/* NULL: out of memory. */
static char *make_text(const char *id, const hf_stats *stats, const struct named_list *names) {
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (out == NULL)
        return NULL;
    write_all(out, id, stats, names);
    bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}

int hf_client_metrics(hf_client *client, char **ret_text) {
    hf_stats stats = HF_STATS_INIT;
    struct named_list names = {.first = NULL};
    struct hfi_entry entry;
    if (ret_text == NULL)
        return hfi_remember(HF_EINVAL, NULL);
    int err = hf_client_stats(client, &stats);
    if (err != HF_OK)
        return err;
    err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    hfi_name_stats_table_report(&client->stats_table, add_named, &names);
    char *text = names.failed ? NULL : make_text(hf_client_id(client), &stats, &names);
    free_names(&names);
    hfi_leave(client, &entry);
    if (text == NULL)
        return hfi_remember(HF_ENOMEM, NULL);
    *ret_text = text;
    return HF_OK;
}

void hf_text_free(char *text) {
    free(text);
}
