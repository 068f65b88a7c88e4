/*
 * The numbers of a client as a text in the format of OpenMetrics, made from what hf_client_stats()
 * tells. On the caller's thread; stateless.
 *
 * Numbers with a fraction are written as whole seconds and microseconds: what printf() puts between
 * the two depends on the program's locale.
 */
#include "api/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Times under the first and over the last are of no interest by themselves. */
#define FIRST_BUCKET 4 /* 16 us */
#define LAST_BUCKET 30 /* 1074 s */

static void write_seconds(FILE *out, uint64_t us) {
    fprintf(out, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
}

static void write_head(FILE *out, const char *name, const char *type, const char *help) {
    fprintf(out, "# TYPE holdfast_client_%s %s\n# HELP holdfast_client_%s %s\n", name, type, name,
            help);
}

static void write_gauges(FILE *out, const hf_stats *stats) {
    write_head(out, "holds", "gauge", "Holds right now.");
    fprintf(out, "holdfast_client_holds %" PRIu64 "\n", stats->holds);
    write_head(out, "waits", "gauge", "Calls that wait right now.");
    fprintf(out, "holdfast_client_waits %" PRIu64 "\n", stats->waits);
    write_head(out, "oldest_wait_seconds", "gauge", "How long the first of them has waited.");
    fputs("holdfast_client_oldest_wait_seconds ", out);
    write_seconds(out, stats->oldest_wait_ms * 1000);
    putc('\n', out);
}

static void write_counters(FILE *out, const hf_stats *stats) {
    const struct {
        const char *name, *help;
        uint64_t value;
    } counters[] = {
        {"acquired", "Acquires that succeeded.", stats->acquired},
        {"contended", "Acquires that had to wait for another.", stats->contended},
        {"timed_out", "Acquires that ended without the lock.", stats->timed_out},
        {"cancelled", "Acquires that were cancelled.", stats->cancelled},
        {"released", "Releases that succeeded.", stats->released},
        {"renewals", "Renewals that the server confirmed.", stats->renewals},
        {"renew_failures", "Renewals that failed.", stats->renew_failures},
        {"losses", "Holds that were lost.", stats->losses},
        {"unknowns", "Commands whose outcome had to be settled later.", stats->unknowns},
        {"notify_failures", "Releases that could not wake anybody.", stats->notify_failures},
        {"reconnects", "Connections that were lost and made again.", stats->reconnects},
        {"commands", "Commands sent.", stats->commands},
        {"switches", "Servers that took over as the primary.", stats->switches},
        {"redirects", "Commands that were sent elsewhere.", stats->redirects},
        {"ack_failures", "Too few replicas confirmed it.", stats->ack_failures},
    };
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        write_head(out, counters[i].name, "counter", counters[i].help);
        fprintf(out, "holdfast_client_%s_total %" PRIu64 "\n", counters[i].name, counters[i].value);
    }
}

/* The counters move while they are read, so what is counted is what is in the buckets. */
static void write_times(FILE *out, const char *name, const char *help, const hf_times *times) {
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

static void write_all(FILE *out, const char *id, const hf_stats *stats) {
    fprintf(out,
            "# TYPE holdfast_client info\n# HELP holdfast_client Which client it is.\n"
            "holdfast_client_info{id=\"%s\",version=\"%s\"} 1\n",
            id, hf_version());
    write_gauges(out, stats);
    write_counters(out, stats);
    write_times(out, "wait_seconds", "From the call to acquired.", &stats->wait);
    write_times(out, "hold_seconds", "From acquired to fully released.", &stats->hold);
    write_times(out, "hand_over_seconds", "From being told that it is free to acquired.",
                &stats->hand_over);
    fputs("# EOF\n", out);
}

int hf_client_metrics(hf_client *client, char **ret_text) {
    hf_stats stats = HF_STATS_INIT;
    char *text = NULL;
    size_t len = 0;
    if (ret_text == NULL)
        return hfi_remember(HF_EINVAL, NULL);
    int err = hf_client_stats(client, &stats);
    if (err != HF_OK)
        return err;
    FILE *out = open_memstream(&text, &len);
    if (out == NULL)
        return hfi_remember(HF_ENOMEM, NULL);
    write_all(out, hf_client_id(client), &stats);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return hfi_remember(HF_ENOMEM, NULL);
    }
    *ret_text = text;
    return HF_OK;
}

void hf_text_free(char *text) {
    free(text);
}
