/* OpenMetrics syntax shared by several writers: labels, seconds, histograms. */
#ifndef CLI_METRICS_SYNTAX_H
#define CLI_METRICS_SYNTAX_H

#include "cli.h"

#include <stdio.h>

#define METRICS_LABEL_MAX 1024 /* a longer name gets no metrics of its own */

/* ---- Counts ---- */

/* A histogram with every other bucket of hf_histogram, because each bucket is one line per series. The
 * last bucket counts everything above. */
#define METRICS_BUCKETS 13
struct metrics_counts {
    uint64_t buckets[METRICS_BUCKETS]; /* not cumulative */
    uint64_t sum_us;
};

struct metrics_counts metrics_counts_of(const hf_histogram *times);
uint64_t metrics_counted(const struct metrics_counts *counts);

/* ---- Writing ---- */

/* Writes the TYPE and HELP lines of a family. */
void metrics_head(FILE *out, const char *family, const char *type, const char *help);
/* Writes seconds without printf's decimal point, which depends on the locale. */
void metrics_seconds(FILE *out, uint64_t us);
/* Writes label="text" in UTF-8. Different invalid texts could look the same, so a text with invalid
 * UTF-8 or NUL also gets a hex label. */
void metrics_label(FILE *out, const char *label, const char *text, size_t len);
/* Writes all samples of one histogram; `write_labels` writes at least one label. */
void metrics_histogram(FILE *out, const char *family, const struct metrics_counts *counts,
                       void (*write_labels)(FILE *out, const void *arg), const void *arg);

#endif
