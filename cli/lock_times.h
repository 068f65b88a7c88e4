/* How long acquires, holds and hand-overs took by name, summed up over all clients and over time.
 *
 * Clients tell what they have counted since they began, and they end; a sum over those that are there would fall then, and
 * whoever reads metrics would take that for a counter that has begun anew. So it is kept here what each client has
 * told last, and what has been added since goes to the sum of the name. */
#ifndef CLI_LOCK_TIMES_H
#define CLI_LOCK_TIMES_H

#include "cli.h"

#include <stdio.h>

struct lock_times;

/* For so many names at most; those that were waited for the longest come first. NULL: out of memory. */
struct lock_times *lock_times_new(size_t names_max);
void lock_times_free(struct lock_times *times); /* NULL is fine */

/* Adds what clients tell in a survey that has asked for it (HF_WANT_TIMES). What there is no memory for is added with the
 * next. */
void lock_times_add(struct lock_times *times, const hf_fleet *fleet);

/* As families of OpenMetrics, of which nothing else may be part. */
void lock_times_write(const struct lock_times *times, FILE *out);

#endif
