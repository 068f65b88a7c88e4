/* Formats a survey for people and programs: text cells, sort orders, JSON, metrics. Shared by every
 * command that shows the fleet. Nothing here sends a request. Stateless, except fleet_memory.c. */
#ifndef CLI_FLEET_H
#define CLI_FLEET_H

#include "cli.h"

#include <jansson.h>

/* ---- fleet_text.c: cells of text ------------------------------------------------------------- */

#define CELL_SIZE SHOWN_NAME_SIZE
#define FLEET_OVER_MS 60000 /* default: a longer wait counts as stuck */

const char *presence_text(hf_presence presence);
/* shown_name() for a name that may contain any bytes, NUL included. */
const char *fleet_shown_name(const hf_fleet_lock *lock, char buffer[SHOWN_NAME_SIZE]);

/* The holder to show: one that the server knows, else one that only claims it. NULL: not held. */
const hf_fleet_party *fleet_holder(const hf_fleet_lock *lock);

/* How long it has been held, the lease left at the server, the longest wait; -1: unknown or
 * none. */
int64_t fleet_age(const hf_fleet_lock *lock);
int64_t fleet_ttl(const hf_fleet_lock *lock);
int64_t fleet_wait(const hf_fleet_lock *lock);
/* The number of waiters: those in the survey and in the fair queue, or the number of subscribers if
 * that is larger. */
int64_t fleet_waiters(const hf_fleet_lock *lock);
/* The number of holders, including those not listed one by one. */
int64_t fleet_holders(const hf_fleet_lock *lock);
/* A holder is silent or gone, or a waiter has waited for over_ms. */
bool fleet_is_stuck(const hf_fleet_lock *lock, int64_t over_ms);

/* Host, process and program, or else the owner. Not escaped. */
void fleet_describe_party(const hf_fleet_party *party, char *text, size_t size);
/* The holder, and how many more there are; "-": none. Not escaped. */
void fleet_describe_holder(const hf_fleet_lock *lock, char *text, size_t size);
/* "alive", "gone!", "free". The exclamation mark: server and clients disagree about the holder. */
void fleet_describe_state(const hf_fleet_lock *lock, char *text, size_t size);
/* 1.2s, 3m07s, 5h00m; "-": not known */
void fleet_write_time(int64_t ms, char *text, size_t size);

/* ---- One name ---- */

#define FLEET_PATTERN_SIZE 257
/* A pattern that matches only this name. False: it is too long. */
bool fleet_quote_pattern(const char *name, char pattern[FLEET_PATTERN_SIZE]);
/* NULL: not found. */
const hf_fleet_lock *fleet_find(const hf_fleet *fleet, const char *name);
/* The one with the name of `wanted`. */
const hf_fleet_lock *fleet_find_lock(const hf_fleet *fleet, const hf_fleet_lock *wanted);

/* ---- The order of locks ---- */

/* Compares names of any bytes, in the order of a survey. */
int fleet_order(const hf_fleet_lock *a, const hf_fleet_lock *b);

struct fleet_sorting {
    const char *name;
    int64_t (*value)(const hf_fleet_lock *lock); /* NULL: in the survey's order, by name */
};

#define FLEET_SORTINGS "name, age, ttl, wait or waiters"

/* NULL: no such sorting. fleet_sorting_at() returns NULL after the last. */
const struct fleet_sorting *fleet_sorting_find(const char *name);
const struct fleet_sorting *fleet_sorting_at(size_t index);
/* Sorts in descending order, except names, which stay in order. Equal values are ordered by
 * name. */
void fleet_sort(const hf_fleet_lock **locks, size_t len, const struct fleet_sorting *sorting);

/* ---- fleet_compare.c: changes between two surveys -------------------------------------------- */

struct fleet_change {
    const hf_fleet_party **left, **came; /* sorted by owner: holders that left, holders that came */
    size_t left_len, came_len;
    bool handed; /* no holder stayed, and the lock is exclusive: it was handed over */
};

/* Compares the holders of one lock; `before` or `after` is NULL if that survey lacks it. False: out
 * of memory. The caller frees the result with fleet_change_free(). */
bool fleet_compare_holders(const hf_fleet *earlier, const hf_fleet_lock *before,
                           const hf_fleet *later, const hf_fleet_lock *after,
                           struct fleet_change *ret);
void fleet_change_free(struct fleet_change *change);

/* ---- fleet_memory.c: descriptions of earlier surveys ----------------------------------------- */

/* The party's client, or, if it no longer describes itself, its description from an earlier survey.
 * NULL: unknown. Valid until the next fleet_remember(). */
const hf_fleet_client *fleet_client_of(const hf_fleet_party *party);
/* Remembers the descriptions of all owners, and forgets owners that are not in this survey. */
void fleet_remember(const hf_fleet *fleet);
void fleet_forget(void);

/* ---- width.c: columns on a terminal, of escaped text ----------------------------------------- */

int text_width(const char *text);
/* How many bytes of the text fit into `columns`, and how many columns those take. */
size_t text_fit(const char *text, int columns, int *ret_width);

/* ---- fleet_json.c: JSON ---------------------------------------------------------------------- */

/* All return new references; NULL: out of memory, or a text is too large for JSON. Keys are absent
 * if the value is unknown. */

/* The name, including NUL; invalid UTF-8 is replaced. */
json_t *fleet_json_name(const hf_fleet_lock *lock);
/* A holder or waiter. */
json_t *fleet_json_party(const hf_fleet_party *party);
/* As `ls --json` prints it. A name that is not UTF-8 or contains NUL is also given as
 * `name_hex`. */
json_t *fleet_json_lock(const hf_fleet_lock *lock);
/* A client, with its counters if it has answered. */
json_t *fleet_json_client(const hf_fleet_client *client);
/* Arrays of all locks and all clients. */
json_t *fleet_json_locks(const hf_fleet *fleet);
json_t *fleet_json_clients(const hf_fleet *fleet);

/* ---- fleet_metrics.c: metrics for Prometheus ---------------------------------------------- */

#define FLEET_PROMETHEUS_NAMES_MAX 1000

struct lock_times;
struct losses;

/* Totals over time, which one survey does not have; NULL: not known. */
struct fleet_totals {
    const struct lock_times *times;
    const struct losses *losses;
};

enum metrics_format { METRICS_TEXT, METRICS_OPEN };

/* Writes all metrics, ending with "# EOF", which is a comment in Prometheus's text format. Only the
 * `names_max` locks with the most waiters get their own metrics. `deadlocks` may be NULL: not
 * known. False: writing failed, or out of memory. */
bool fleet_metrics_write(FILE *out, enum metrics_format format, const hf_fleet *fleet,
                         const hf_deadlocks *deadlocks, const struct fleet_totals *totals,
                         size_t names_max);

#endif
