/* How long acquires, holds and hand-overs took per name, summed over all clients and over time.
 *
 * Clients report counts since their start, and they exit. A sum over the living clients would then
 * fall, which a metrics reader takes for a counter reset. So the last report of each client is kept
 * here, and only the increase is added to the name's sum. */
#ifndef CLI_LOCK_TIMES_H
#define CLI_LOCK_TIMES_H

#include "cli.h"

#include <stdio.h>

struct lock_times;

/* For at most names_max names; those with the longest waits are preferred. NULL: out of memory. */
struct lock_times *lock_times_new(size_t names_max);
void lock_times_free(struct lock_times *times); /* accepts NULL */

/* Adds the reports of a survey with HF_WANT_HISTOGRAMS. Reports that do not fit in memory are added with
 * the next survey. */
void lock_times_add(struct lock_times *times, const hf_fleet *fleet);

/* Writes complete OpenMetrics families; no other sample may belong to them. */
void lock_times_write(const struct lock_times *times, FILE *out);

#endif
