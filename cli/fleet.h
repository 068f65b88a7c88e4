/* A snapshot of the fleet on its way to people and programs: cells of text, orders, and JSON. Shared by
 * every command that shows one. Nothing here asks anybody anything; all of it is stateless. */
#ifndef CLI_FLEET_H
#define CLI_FLEET_H

#include "cli.h"

#include <jansson.h>

/* ---- fleet_text.c: cells of text --------------------------------------------------------------- */

#define CELL_SIZE SHOWN_NAME_SIZE
#define FLEET_OVER_MS 60000 /* a wait that is longer is stuck, unless somebody says otherwise */

const char *presence_word(hf_presence presence);
/* As shown_name(), of a name that may have any bytes. */
const char *fleet_shown_name(const hf_fleet_lock *lock, char buffer[SHOWN_NAME_SIZE]);

/* The one to be shown: the server's word counts, so one of which it knows nothing comes last. NULL: nobody
 * holds it. */
const hf_fleet_party *fleet_holder(const hf_fleet_lock *lock);

/* How long it has been held, what the server says is left, the longest wait; -1: not known, or there is none. */
int64_t fleet_age(const hf_fleet_lock *lock);
int64_t fleet_ttl(const hf_fleet_lock *lock);
int64_t fleet_wait(const hf_fleet_lock *lock);
/* How many wait: those who say so or are in line, or at least those who listen at the server. */
int64_t fleet_waiters(const hf_fleet_lock *lock);
/* How many hold it, those included that are not told one by one. */
int64_t fleet_holders(const hf_fleet_lock *lock);
/* The holder is silent or gone, or somebody waits for so long. */
bool fleet_is_stuck(const hf_fleet_lock *lock, int64_t over_ms);

/* Host, process and program, or else the owner. Not disarmed. */
void fleet_describe_party(const hf_fleet_party *party, char *text, size_t size);
/* The holder, and how many more there are; "-": nobody. Not disarmed. */
void fleet_describe_holder(const hf_fleet_lock *lock, char *text, size_t size);
/* "alive", "gone!", "free": the exclamation mark is for a lock that is disputed. */
void fleet_describe_state(const hf_fleet_lock *lock, char *text, size_t size);
/* 1.2s, 3m07s, 5h00m; "-": not known */
void fleet_write_time(int64_t ms, char *text, size_t size);

/* ---- The order of locks ---- */

/* Compares names, whatever bytes they have, as they are ordered in a survey. */
int fleet_order(const hf_fleet_lock *a, const hf_fleet_lock *b);

struct fleet_sorting {
    const char *name;
    int64_t (*value)(const hf_fleet_lock *lock); /* NULL: as they come, by name */
};

#define FLEET_SORTINGS "name, age, ttl, wait or waiters"

/* NULL: there is no such sorting. fleet_sorting_at() ends with NULL. */
const struct fleet_sorting *fleet_sorting_find(const char *name);
const struct fleet_sorting *fleet_sorting_at(size_t index);
/* The largest first, but for names; equals stay as they are. */
void fleet_sort(const hf_fleet_lock **locks, size_t len, const struct fleet_sorting *sorting);

/* ---- width.c: columns of a terminal, for text that was disarmed ------------------------------------- */

int text_width(const char *text);
/* How many bytes of it fit into so many columns, and how many of these they take. */
size_t text_fit(const char *text, int columns, int *ret_width);

/* ---- fleet_json.c: the same for programs ---------------------------------------------------------- */

/* All are new references; NULL: out of memory, or what came from outside is too much for JSON. Keys are absent
 * where nothing is known. */

/* The name, a NUL in it included; what is no UTF-8 is replaced. */
json_t *fleet_json_name(const hf_fleet_lock *lock);
/* As `ls --json` prints it. A name that JSON cannot tell, or a path cannot have, is told as `name_hex`, too. */
json_t *fleet_json_lock(const hf_fleet_lock *lock);
/* A client, with its numbers if it has answered. */
json_t *fleet_json_client(const hf_fleet_client *client);
/* Arrays of all. */
json_t *fleet_json_locks(const hf_fleet *fleet);
json_t *fleet_json_clients(const hf_fleet *fleet);

/* ---- openmetrics.c: the same for Prometheus and its like ------------------------------------------ */

#define OPENMETRICS_NAMES_MAX 1000

struct lock_times;

/* Writes all of it, with "# EOF" at its end. Of the locks the `names_max` with the most waiters have metrics of
 * their own. `deadlocks`: NULL if nobody has looked. `times`: NULL if nobody has summed them up. False: it could not be
 * written, or there is no memory. */
bool openmetrics_write(FILE *out, const hf_fleet *fleet, const hf_deadlocks *deadlocks,
                       const struct lock_times *times, size_t names_max);

#endif
