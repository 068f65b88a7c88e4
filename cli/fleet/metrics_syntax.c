/* The OpenMetrics syntax (metrics_syntax.h). Stateless. */
#include "fleet/metrics_syntax.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#define FIRST_BUCKET 6 /* of hf_histogram: 64 us */
#define BUCKET_STEP 2  /* so the last finite bucket is 268 s */

/* ---- Counts ---- */

static size_t bucket_for(size_t of_times) {
    size_t bucket =
        of_times <= FIRST_BUCKET ? 0 : (of_times - FIRST_BUCKET + BUCKET_STEP - 1) / BUCKET_STEP;
    return bucket < METRICS_BUCKETS ? bucket : METRICS_BUCKETS - 1;
}

struct metrics_counts metrics_counts_of(const hf_histogram *times) {
    struct metrics_counts counts = {.sum_us = times->sum_us};
    for (size_t i = 0; i < sizeof times->buckets / sizeof times->buckets[0]; i++)
        counts.buckets[bucket_for(i)] += times->buckets[i];
    return counts;
}

uint64_t metrics_counted(const struct metrics_counts *counts) {
    uint64_t all = 0;
    for (size_t i = 0; i < METRICS_BUCKETS; i++)
        all += counts->buckets[i];
    return all;
}

/* ---- Writing ---- */

void metrics_head(FILE *out, const char *family, const char *type, const char *help) {
    fprintf(out, "# TYPE %s %s\n# HELP %s %s\n", family, type, family, help);
}

void metrics_seconds(FILE *out, uint64_t us) {
    fprintf(out, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
}

static void write_escaped(FILE *out, const char *text, size_t len) {
    for (const char *end = text + len; text < end; text++) {
        if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '\0')
            fputs("\\\\u0000", out);
        else if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else
            putc(*text, out);
    }
}

void metrics_label(FILE *out, const char *label, const char *text, size_t len) {
    json_t *json = json_bytes(text, len);
    const char *utf8 = json != NULL ? json_string_value(json) : "";
    size_t utf8_len = json != NULL ? json_string_length(json) : 0;
    fprintf(out, "%s=\"", label);
    write_escaped(out, utf8, utf8_len);
    putc('"', out);
    if (utf8_len != len || memcmp(utf8, text, len) != 0 || memchr(text, '\0', len) != NULL) {
        fprintf(out, ",%s_hex=\"", label);
        for (size_t i = 0; i < len; i++)
            fprintf(out, "%02x", (unsigned char)text[i]);
        putc('"', out);
    }
    json_decref(json);
}

void metrics_histogram(FILE *out, const char *family, const struct metrics_counts *counts,
                       void (*write_labels)(FILE *out, const void *arg), const void *arg) {
    uint64_t count = 0;
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        count += counts->buckets[i];
        fprintf(out, "%s_bucket{", family);
        write_labels(out, arg);
        fputs(",le=\"", out);
        if (i < METRICS_BUCKETS - 1)
            metrics_seconds(out, UINT64_C(1) << (FIRST_BUCKET + BUCKET_STEP * i));
        else
            fputs("+Inf", out);
        fprintf(out, "\"} %" PRIu64 "\n", count);
    }
    fprintf(out, "%s_count{", family);
    write_labels(out, arg);
    fprintf(out, "} %" PRIu64 "\n%s_sum{", count, family);
    write_labels(out, arg);
    fputs("} ", out);
    metrics_seconds(out, counts->sum_us);
    putc('\n', out);
}
