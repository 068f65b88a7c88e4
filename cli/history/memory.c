/* The latest events of the history, in memory, with limits for all locks together and for each.
 *
 * Every event is in two lists, oldest first: of all events, and of its lock. Events without a name
 * are a lock's, too, that of the name "". Locks are found by a hash table and live while they have
 * events. Owned by `serve`, on its one thread. */
#include "history/history.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096

struct lock;

struct entry {
    struct entry *older, *newer;           /* of all */
    struct entry *lock_older, *lock_newer; /* of the same lock */
    struct lock *lock;
    uint64_t number;
    int64_t at_ms;
    size_t bytes;
    char line[];
};

struct lock {
    struct lock *next; /* in its bucket */
    struct entry *oldest, *newest;
    size_t entries;
    size_t name_len;
    bool named;
    char name[];
};

struct history {
    struct history_limits limits;
    history_fn added;
    void *user;
    struct entry *oldest, *newest;
    size_t entries, bytes;
    uint64_t total;
    struct lock *buckets[BUCKETS];
};

struct history *history_new(const struct history_limits *limits, history_fn added, void *user) {
    struct history *history = calloc(1, sizeof *history);
    if (history != NULL) {
        history->limits = *limits;
        history->added = added;
        history->user = user;
    }
    return history;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

/* FNV-1a. Names are chosen by users of the server, who can only slow this down. */
static size_t bucket_of(const char *name, size_t len) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3u;
    return (size_t)(hash % BUCKETS);
}

static struct lock *find_lock(const struct history *history, const char *name, size_t len) {
    bool named = name != NULL;
    struct lock *lock = history->buckets[bucket_of(name, len)];
    while (lock != NULL && (lock->named != named || lock->name_len != len ||
                            (len > 0 && memcmp(lock->name, name, len) != 0)))
        lock = lock->next;
    return lock;
}

/* NULL: out of memory. */
static struct lock *get_lock(struct history *history, const char *name, size_t len) {
    struct lock *lock = find_lock(history, name, len);
    if (lock != NULL)
        return lock;
    lock = calloc(1, sizeof *lock + len);
    if (lock == NULL)
        return NULL;
    struct lock **bucket = &history->buckets[bucket_of(name, len)];
    lock->named = name != NULL;
    lock->name_len = len;
    if (len > 0)
        memcpy(lock->name, name, len);
    lock->next = *bucket;
    *bucket = lock;
    return lock;
}

static void drop_lock(struct history *history, struct lock *lock) {
    struct lock **at = &history->buckets[bucket_of(lock->name, lock->name_len)];
    while (*at != lock)
        at = &(*at)->next;
    *at = lock->next;
    free(lock);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void drop(struct history *history, struct entry *entry) {
    struct lock *lock = entry->lock;
    assert((entry->older == NULL) == (history->oldest == entry));
    *(entry->older != NULL ? &entry->older->newer : &history->oldest) = entry->newer;
    *(entry->newer != NULL ? &entry->newer->older : &history->newest) = entry->older;
    *(entry->lock_older != NULL ? &entry->lock_older->lock_newer : &lock->oldest) =
        entry->lock_newer;
    *(entry->lock_newer != NULL ? &entry->lock_newer->lock_older : &lock->newest) =
        entry->lock_older;
    history->entries--;
    history->bytes -= entry->bytes;
    if (--lock->entries == 0)
        drop_lock(history, lock);
    free(entry);
}

static void link_newest(struct history *history, struct lock *lock, struct entry *entry) {
    entry->lock = lock;
    entry->older = history->newest;
    *(entry->older != NULL ? &entry->older->newer : &history->oldest) = entry;
    history->newest = entry;
    entry->lock_older = lock->newest;
    *(entry->lock_older != NULL ? &entry->lock_older->lock_newer : &lock->oldest) = entry;
    lock->newest = entry;
    lock->entries++;
    history->entries++;
    history->bytes += entry->bytes;
}

static void keep(struct history *history, const struct history_event *event, const char *line) {
    size_t len = strlen(line);
    size_t name_len = event->name == NULL                  ? 0
                      : event->name_len < HISTORY_NAME_MAX ? event->name_len
                                                           : HISTORY_NAME_MAX;
    struct entry *entry = calloc(1, sizeof *entry + len + 1);
    struct lock *lock = entry != NULL ? get_lock(history, event->name, name_len) : NULL;
    if (lock == NULL) {
        free(entry);
        return;
    }
    entry->number = ++history->total;
    entry->at_ms = event->at_ms;
    entry->bytes = sizeof *entry + sizeof *lock + len + name_len; /* as if each had a lock alone */
    memcpy(entry->line, line, len + 1);
    link_newest(history, lock, entry);
    if (lock->entries > history->limits.events_of_lock)
        drop(history, lock->oldest);
    while (history->entries > history->limits.events || history->bytes > history->limits.bytes)
        drop(history, history->oldest);
}

void history_keep(struct history *history, const struct history_event *event) {
    char *line = history_event_line(event);
    if (line != NULL)
        keep(history, event, line);
    free(line);
}

void history_add(struct history *history, const struct history_event *event) {
    char *line = history_event_line(event);
    if (line == NULL)
        return;
    keep(history, event, line);
    if (history->added != NULL)
        history->added(history->user, event, line);
    free(line);
}

void history_free(struct history *history) {
    if (history == NULL)
        return;
    while (history->oldest != NULL)
        drop(history, history->oldest);
    free(history);
}

uint64_t history_total(const struct history *history) {
    return history->total;
}

/* ---- Queries --------------------------------------------------------------------------------- */

/* The later of the two, which its list then passes; NULL: none. */
static const struct entry *take_later(const struct entry **one, const struct entry **other) {
    const struct entry **from =
        *other == NULL || (*one != NULL && (*one)->number > (*other)->number) ? one : other;
    const struct entry *entry = *from;
    if (entry != NULL)
        *from = entry->lock_older;
    return entry;
}

/* The latest matching events, newest first. Returns their number. */
static size_t collect(const struct history *history, const struct history_query *query,
                      const struct entry **found) {
    const struct entry *all = history->newest, *of_lock = NULL, *of_none = NULL;
    size_t len = 0,
           name_len = query->name_len < HISTORY_NAME_MAX ? query->name_len : HISTORY_NAME_MAX;
    if (query->name != NULL) {
        const struct lock *lock = find_lock(history, query->name, name_len);
        const struct lock *none = find_lock(history, NULL, 0);
        of_lock = lock != NULL ? lock->newest : NULL;
        of_none = none != NULL ? none->newest : NULL;
    }
    while (len < query->limit) {
        const struct entry *entry = query->name != NULL ? take_later(&of_lock, &of_none) : all;
        if (entry == NULL || entry->number <= query->after)
            break;
        if (query->name == NULL)
            all = entry->older;
        if (entry->at_ms >= query->since_ms)
            found[len++] = entry;
    }
    return len;
}

char *history_find(const struct history *history, const struct history_query *query) {
    struct history_query limited = *query;
    if (limited.limit > history->entries)
        limited.limit = history->entries;
    const struct entry **found = calloc(limited.limit + 1, sizeof(const struct entry *));
    char *text = NULL;
    size_t size = 0;
    FILE *out = found != NULL ? open_memstream(&text, &size) : NULL;
    if (out != NULL) {
        size_t len = collect(history, &limited, found);
        putc('[', out);
        for (size_t i = len; i > 0; i--)
            fprintf(out, "%s%s", found[i - 1]->line, i > 1 ? "," : "");
        putc(']', out);
        if (fclose(out) != 0) {
            free(text);
            text = NULL;
        }
    }
    free(found);
    return text;
}
