/* Text cells for a survey, and the sort orders of locks.
 *
 * Clients describe themselves, so the text is untrusted: callers escape it before printing
 * (escape.c). */
#include "fleet/fleet.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers ---- */

int64_t fleet_age(const hf_fleet_lock *lock) {
    const hf_fleet_party *holder = fleet_holder(lock);
    return holder != NULL ? holder->for_ms : -1;
}

int64_t fleet_ttl(const hf_fleet_lock *lock) {
    return lock->ttl_ms;
}

int64_t fleet_wait(const hf_fleet_lock *lock) {
    int64_t longest_ms = -1;
    for (size_t i = 0; i < lock->waiters_len; i++)
        if (lock->waiters[i]->for_ms > longest_ms)
            longest_ms = lock->waiters[i]->for_ms;
    return longest_ms;
}

static int64_t larger(int64_t one, int64_t other) {
    return one > other ? one : other;
}

static int64_t seen_by_server(const hf_fleet_party *const *parties, size_t len) {
    int64_t count = 0;
    for (size_t i = 0; i < len; i++)
        count += (parties[i]->seen_by & HF_SEEN_BY_SERVER) != 0;
    return count;
}

/* Whether the parties that the server left out are in its fair queue. It lists the same number of
 * holders and waiters at most, so the longer list was cut. Waiters outside a queue are known to the
 * server only as a number. */
static bool line_was_cut(const hf_fleet_lock *lock) {
    int64_t queued = seen_by_server(lock->waiters, lock->waiters_len);
    return strcmp(lock->kind, "fair") == 0 ||
           (queued > 0 && queued >= seen_by_server(lock->holders, lock->holders_len));
}

/* A party that the server left out may have answered the survey itself; do not count it twice. */
static int64_t count_all(const hf_fleet_party *const *parties, size_t len, int64_t left_out) {
    return larger((int64_t)len, seen_by_server(parties, len) + left_out);
}

int64_t fleet_waiters(const hf_fleet_lock *lock) {
    int64_t left_out = lock->left_out > 0 && line_was_cut(lock) ? lock->left_out : 0;
    return larger(lock->listeners, count_all(lock->waiters, lock->waiters_len, left_out));
}

/* For a large group the server leaves out values, and the number of their owners is unknown. */
int64_t fleet_holders(const hf_fleet_lock *lock) {
    bool holders = !line_was_cut(lock) && strcmp(lock->kind, "group") != 0;
    int64_t left_out = lock->left_out > 0 && holders ? lock->left_out : 0;
    return count_all(lock->holders, lock->holders_len, left_out);
}

bool fleet_is_stuck(const hf_fleet_lock *lock, int64_t over_ms) {
    for (size_t i = 0; i < lock->holders_len; i++)
        if (lock->holders[i]->presence == HF_PRESENCE_SILENT ||
            lock->holders[i]->presence == HF_PRESENCE_GONE)
            return true;
    return fleet_wait(lock) >= over_ms;
}

/* ---- Words ---- */

const char *presence_text(hf_presence presence) {
    switch (presence) {
    case HF_PRESENCE_ALIVE:
        return "alive";
    case HF_PRESENCE_CONNECTED:
        return "connected";
    case HF_PRESENCE_SILENT:
        return "silent";
    case HF_PRESENCE_GONE:
        return "gone";
    case HF_PRESENCE_UNKNOWN:
        break;
    }
    return "unknown";
}

const char *fleet_shown_name(const hf_fleet_lock *lock, char buffer[SHOWN_NAME_SIZE]) {
    char name[SHOWN_NAME_SIZE + 1]; /* one byte more than is shown, so that truncation is visible */
    size_t len = lock->name_len < sizeof name - 1 ? lock->name_len : sizeof name - 1;
    for (size_t i = 0; i < len; i++)
        name[i] = lock->name[i] != '\0' ? lock->name[i] : '?';
    name[len] = '\0';
    return shown_name(name, buffer);
}

const hf_fleet_party *fleet_holder(const hf_fleet_lock *lock) {
    for (size_t i = 0; i < lock->holders_len; i++)
        if ((lock->holders[i]->seen_by & HF_SEEN_BY_SERVER) != 0)
            return lock->holders[i];
    return lock->holders_len > 0 ? lock->holders[0] : NULL;
}

void fleet_describe_party(const hf_fleet_party *party, char *text, size_t size) {
    const hf_fleet_client *client = fleet_client_of(party);
    if (client != NULL && client->host[0] != '\0')
        snprintf(text, size, "%s %" PRId64 " %s", client->host, client->pid, client->program);
    else
        snprintf(text, size, "%s", party->owner);
}

void fleet_describe_holder(const hf_fleet_lock *lock, char *text, size_t size) {
    const hf_fleet_party *holder = fleet_holder(lock);
    snprintf(text, size, "-");
    if (holder == NULL)
        return;
    fleet_describe_party(holder, text, size);
    size_t len = strlen(text);
    if (fleet_holders(lock) > 1)
        snprintf(text + len, size - len, " +%" PRId64, fleet_holders(lock) - 1);
    len = strlen(text);
    if (lock->available >= 0)
        snprintf(text + len, size - len, ", %" PRId64 " free", lock->available);
}

void fleet_describe_state(const hf_fleet_lock *lock, char *text, size_t size) {
    const hf_fleet_party *holder = fleet_holder(lock);
    snprintf(text, size, "%s%s", holder != NULL ? presence_text(holder->presence) : "free",
             lock->disputed ? "!" : "");
}

void fleet_write_time(int64_t ms, char *text, size_t size) {
    if (ms < 0)
        snprintf(text, size, "-");
    else if (ms < 60 * 1000)
        snprintf(text, size, "%" PRId64 ".%ds", ms / 1000, (int)(ms % 1000 / 100));
    else if (ms < 3600 * 1000)
        snprintf(text, size, "%" PRId64 "m%02ds", ms / 60000, (int)(ms / 1000 % 60));
    else
        snprintf(text, size, "%" PRId64 "h%02dm", ms / 3600000, (int)(ms / 60000 % 60));
}

int fleet_order(const hf_fleet_lock *a, const hf_fleet_lock *b) {
    size_t least = a->name_len < b->name_len ? a->name_len : b->name_len;
    int order = memcmp(a->name, b->name, least);
    return order != 0 ? order : (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

/* ---- One name ---- */

bool fleet_quote_pattern(const char *name, char pattern[FLEET_PATTERN_SIZE]) {
    size_t len = 0;
    for (; *name != '\0'; name++) {
        bool special = strchr("*?[]\\", *name) != NULL;
        if (len + 1 + special >= FLEET_PATTERN_SIZE)
            return false;
        if (special)
            pattern[len++] = '\\';
        pattern[len++] = *name;
    }
    pattern[len] = '\0';
    return true;
}

const hf_fleet_lock *fleet_find_lock(const hf_fleet *fleet, const hf_fleet_lock *wanted) {
    size_t low = 0, high = fleet->locks_len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (fleet_order(fleet->locks[middle], wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < fleet->locks_len && fleet_order(fleet->locks[low], wanted) == 0;
    return found ? fleet->locks[low] : NULL;
}

const hf_fleet_lock *fleet_find(const hf_fleet *fleet, const char *name) {
    const hf_fleet_lock wanted = {.name = name, .name_len = strlen(name)};
    return fleet_find_lock(fleet, &wanted);
}

/* ---- The order of locks ---- */

static const struct fleet_sorting sortings[] = {{"name", NULL},
                                                {"age", fleet_age},
                                                {"ttl", fleet_ttl},
                                                {"wait", fleet_wait},
                                                {"waiters", fleet_waiters}};

const struct fleet_sorting *fleet_sorting_at(size_t index) {
    return index < sizeof sortings / sizeof sortings[0] ? &sortings[index] : NULL;
}

const struct fleet_sorting *fleet_sorting_find(const char *name) {
    for (size_t i = 0; i < sizeof sortings / sizeof sortings[0]; i++)
        if (strcmp(sortings[i].name, name) == 0)
            return &sortings[i];
    return NULL;
}

/* In descending order; equal values by name. */
static int compare(const void *a, const void *b, void *user) {
    const struct fleet_sorting *sorting = user;
    const hf_fleet_lock *one = *(const hf_fleet_lock *const *)a;
    const hf_fleet_lock *other = *(const hf_fleet_lock *const *)b;
    int64_t first = sorting->value(one), second = sorting->value(other);
    return first != second ? (first < second) - (first > second) : fleet_order(one, other);
}

void fleet_sort(const hf_fleet_lock **locks, size_t len, const struct fleet_sorting *sorting) {
    struct fleet_sorting copy = *sorting;
    if (sorting->value != NULL)
        qsort_r(locks, len, sizeof *locks, compare, &copy);
}
