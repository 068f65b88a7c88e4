/* The history of locks: who acquired, released and lost them. `serve` records it in memory and, if
 * asked, in a file; `log` reads the file. An event is one line of JSON in all of them.
 *
 * Used on one thread. */
#ifndef CLI_HISTORY_H
#define CLI_HISTORY_H

#include "cli.h"

#include <stddef.h>

/* ---- event.c: an event as a line of JSON ----------------------------------------------------- */

#define HISTORY_NAME_MAX 1024 /* bytes of a name that are recorded */
#define HISTORY_LINE_MAX ((size_t)64 * 1024)

/* Texts are NULL if unknown. */
struct history_event {
    int64_t at_ms;     /* Unix time */
    int64_t within_ms; /* it happened at most this long before `at_ms`; -1: at that time */
    const char *event; /* "acquired", "released", ... */
    const char *name;  /* NULL: about the server, or the lock is unknown */
    size_t name_len;
    const char *kind;
    const char *owner, *who;
    const char *from_owner, *from_who; /* of an acquire: the holder before */
    int64_t for_ms;                    /* how long it held or waited; -1: unknown */
    int64_t count;                     /* 0: absent */
    const char *text;
    bool heard; /* known by a message */
};

/* Without a newline, to be freed by the caller. NULL: out of memory. */
char *history_event_line(const struct history_event *event);

struct json_t;

/* A line that was read. Its texts live until history_line_free(). */
struct history_line {
    struct history_event event;
    struct json_t *object;
    char *name; /* decoded; NULL: event.name points into `object` */
};

/* False: it is no event, and there is nothing to free. */
bool history_line_read(const char *text, size_t len, struct history_line *ret);
void history_line_free(struct history_line *line);
/* Whether a query for this lock shows the event. One without a name may be about any lock. */
bool history_event_is_about(const struct history_event *event, const char *name, size_t name_len);

/* ---- memory.c: the latest events ------------------------------------------------------------- */

struct history_limits {
    size_t events, bytes;
    size_t events_of_lock; /* so that a busy lock does not displace the others */
};

struct history;

/* Called for each new event, with its line; not for those that are only kept. */
typedef void (*history_fn)(void *user, const struct history_event *event, const char *line);

/* NULL: out of memory. */
struct history *history_new(const struct history_limits *limits, history_fn added, void *user);
void history_free(struct history *history); /* accepts NULL */
/* Records a new event. Without memory it is not recorded. */
void history_add(struct history *history, const struct history_event *event);
/* Keeps an event that was read. */
void history_keep(struct history *history, const struct history_event *event);
/* How many events were recorded or kept so far: the number of the latest. */
uint64_t history_total(const struct history *history);

struct history_query {
    const char *name; /* NULL: all */
    size_t name_len;
    int64_t since_ms; /* Unix time */
    uint64_t after;   /* number of an event; only later ones */
    size_t limit;     /* the latest of them */
};

/* A JSON array of the events, oldest first, to be freed by the caller; NULL: out of memory. */
char *history_find(const struct history *history, const struct history_query *query);

/* ---- file.c: lines in a file ----------------------------------------------------------------- */

#define HISTORY_FILE_SIZE ((int64_t)16 * 1024 * 1024)
#define HISTORY_FILE_SIZE_MIN 4096

struct history_file;

/* Opens the file to append, for this process alone; created with mode 600. With more than `size`
 * bytes it is renamed to FILE.1, which is replaced. Returns 0 or an exit status, after a message. */
int history_file_open(const char *path, int64_t size, struct history_file **ret);
void history_file_close(struct history_file *file); /* accepts NULL */
/* A failure is said once; the next event tries again, and says how many are missing. */
void history_file_append(struct history_file *file, const char *line);

typedef bool (*history_visit_fn)(void *user, const struct history_event *event);

/* Visits the events of FILE.1 and FILE, oldest first, until `visit` returns false. Skips what is no
 * event, such as a torn last line. Returns 0, or an errno value; ENOENT: neither exists. */
int history_file_read(const char *path, history_visit_fn visit, void *user);

#endif
