/* Words of OpenMetrics that more than one part of the tool writes: labels, seconds, histograms. */
#ifndef CLI_METRICS_TEXT_H
#define CLI_METRICS_TEXT_H

#include "cli.h"

#include <stdio.h>

#define METRICS_LABEL_MAX 1024 /* a longer name has no metrics of its own */

/* ---- Counts ---- */

/* A histogram with every other bucket of hf_times, since each is a line for as many as there are. The last one has all that
 * took longer than the others say. */
#define METRICS_BUCKETS 13
struct metrics_counts {
    uint64_t buckets[METRICS_BUCKETS]; /* each by itself, not with those below it */
    uint64_t sum_us;
};

struct metrics_counts metrics_counts_of(const hf_times *times);
uint64_t metrics_counted(const struct metrics_counts *counts);

/* ---- Writing ---- */

/* What a family begins with. */
void metrics_head(FILE *out, const char *family, const char *type, const char *help);
/* Seconds, without printf's point, which is a comma in some languages. */
void metrics_seconds(FILE *out, uint64_t us);
/* label="text", as UTF-8. What is none, or has a NUL in it, would be the same as other such texts: it is told in hex,
 * too. */
void metrics_label(FILE *out, const char *label, const char *text, size_t len);
/* All samples of one histogram; `write_labels` writes those that it has, at least one. */
void metrics_histogram(FILE *out, const char *family, const struct metrics_counts *counts,
                       void (*write_labels)(FILE *out, const void *arg), const void *arg);

#endif
