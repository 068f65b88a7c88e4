/* Shared by the parts of `holdfast serve`. Everything runs on one thread, that of loop.c: its poll
 * wakes up for libmicrohttpd, for the library's callbacks (HF_MANUAL_DISPATCH) and for signals. So
 * there are no locks.
 *
 * cmd_serve.c parses the options. Without libmicrohttpd, without_serve.c replaces all other files
 * of this directory. */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include "cli.h"
#include "serve/record.h"

#include <stddef.h>

#define SERVE_DEFAULT_LISTEN "127.0.0.1:7380"
#define SERVE_MAX_HOST_NAMES 16
#define SERVE_MAX_METRICS_LOCKS 10000

struct serve_settings {
    const char *listen;
    const char *host_names[SERVE_MAX_HOST_NAMES]; /* accepted in Host, besides addresses */
    size_t host_names_len;
    const char *token_file;
    bool allow_break;
    size_t metrics_locks;     /* how many names get their own metrics */
    const char *history_file; /* NULL: in memory only */
    int64_t history_size;
    const char *on_event; /* a shell command; NULL: none */
    int64_t on_event_limit_ms;
    int64_t long_wait_ms; /* such a wait is an event */
    int64_t every_ms;     /* the least time between surveys that nothing has announced */
};

/* Whether it surveys also while nobody asks. */
bool serve_always_watches(const struct serve_settings *settings);

/* Serves until a signal. The connection must be resolved. Returns the exit status. */
int serve_run(struct connection *connection, const struct serve_settings *settings);

/* ---- socket.c -------------------------------------------------------------------------------- */

struct listener {
    int fd; /* -1: none */
    bool loopback;
    char host[256]; /* as given, without brackets */
    char url[320];
};

/* HOST:PORT, HOST, PORT or [ADDRESS]:PORT. Returns 0 or an exit status. */
int listener_open(const char *text, struct listener *ret);

/* ---- auth.c: HTTP authorisation -------------------------------------------------------------- */

/* Reads the first line of a private file. Returns 0 or an exit status; the caller frees the
 * token. */
int token_read(const char *path, char **ret_token);
/* Whether an Authorization header (NULL: none) has the token. Constant time for each length. */
bool token_matches(const char *token, const char *authorization);
/* Whether a Host header (NULL: none) is one of our names. */
bool host_is_ours(const struct listener *listener, const struct serve_settings *settings,
                  const char *host);
/* Whether the page of an Origin header came from that Host. */
bool origin_is_host(const char *origin, const char *host);
/* Decodes percent-encoding in place. Returns the length; -1: invalid, or it contains NUL. */
long percent_decode(char *text);

/* ---- hook.c: a command for each event that needs attention ----------------------------------- */

struct hook; /* accepted as NULL by all functions: there is no command */

/* Call before other threads exist. NULL: after a message. */
struct hook *hook_new(const char *command, int64_t limit_ms);
void hook_free(struct hook *hook); /* ends what still runs */
/* Readable when hook_run() has something to do. */
int hook_fd(const struct hook *hook);
void hook_push(struct hook *hook, const struct history_event *event, const char *line);
/* Starts and ends commands. Returns how long it may be left alone, in ms; -1: no limit. */
int hook_run(struct hook *hook);

/* ---- view.c: the latest survey, and the changes between surveys ------------------------------ */

#define VIEW_PERIOD_MS 1000 /* unless --every says otherwise */
#define VIEW_RATES 60

struct rate {
    int64_t at_ms;              /* Unix time */
    int64_t seen;               /* hand-overs visible in the surveys */
    int64_t counted_by_clients; /* hand-overs counted by the clients */
    int64_t between_ms;         /* over this interval */
};

struct view {
    hf_client *client;
    void (*changed)(void *user); /* called after a survey, or its failure */
    void *user;

    hf_fleet *earlier, *later, *coming;
    hf_deadlocks *deadlocks; /* of the later survey; NULL: not known */
    hf_op *op;
    bool running;
    int64_t every_ms;
    bool announced;       /* something has happened that the latest survey may not show */
    bool requested;       /* a request waits for a survey */
    int64_t hurried_ms;   /* start of the latest survey that an announcement caused */
    int64_t started_ms;   /* start of the latest survey */
    int64_t good_ms;      /* when `later` arrived; 0: never */
    int64_t good_at_ms;   /* the same as Unix time */
    int64_t failed_at_ms; /* Unix time of the first failure since then; 0: none */
    char error[448];
    uint64_t seq;             /* number of surveys, failed ones included; 0: none yet */
    bool times_wanted;        /* the next survey must ask for per-name times */
    bool times_asked;         /* the running survey, or else the latest, asks for them */
    struct lock_times *times; /* their sums */
    struct losses *losses;    /* of all clients */
    bool joined;              /* `later` followed `earlier` closely enough to compare */

    struct recorder recorder;
    uint64_t recorded, recorded_before; /* the total of its history at the latest two surveys */
    struct rate rates[VIEW_RATES];
    uint64_t rates_total;
    struct rate next_rate; /* sums, until they span half a period */
    bool rated;            /* the latest survey has added a rate */
    /* for breaks and losses; NULL: not started, or the servers do not report them */
    hf_listener *listener;
    bool no_breaks;                   /* the servers do not report them */
    unsigned subscribed, interrupted; /* one bit for each server: its subscription is up; was */
};

/* False: out of memory. The history must outlive the view. */
bool view_init(struct view *view, const struct serve_settings *settings, struct history *history);
/* Call while surveys are needed; starts one when it is due. Returns the time until then in ms; -1:
 * one is running. */
int view_tick(struct view *view);
/* Whether the latest survey is recent enough. `times`: it must also have asked for per-name times,
 * or have failed. */
bool view_is_fresh(const struct view *view, bool times);
/* The next view_tick() that may starts a survey. `times`: with per-name times. */
void view_request(struct view *view, bool times);
/* Records that we broke a lock, so that it is not shown as released by its holders, and surveys.
 * Not needed while a server's subscription is up: then its message reports the break. */
void view_note_own_break(struct view *view, const char *name);
/* Call when no surveys are needed for now. */
void view_rest(struct view *view);
void view_free(struct view *view); /* after hf_close() */

/* ---- json.c: JSON ---------------------------------------------------------------------------- */

struct frame_facts {
    const char *server;
    const char *self; /* our own client's uuid */
    bool allow_break;
    bool beyond_loopback; /* reachable from other machines, without a token */
};

/* An event for the page: everything, or the changes of the latest survey. The caller frees it;
 * NULL: out of memory. */
char *frame_make(const struct view *view, const struct frame_facts *facts, bool full);
/* API responses, likewise. *ret_found is false if there is no such lock. */
char *frame_locks(const struct view *view);
char *frame_clients(const struct view *view);
char *frame_lock(const struct view *view, const char *name, bool *ret_found);
char *frame_history(const struct history *history, const struct history_query *query);
char *frame_metrics(const struct view *view, bool openmetrics, bool up, size_t names_max);

/* ---- The page's files, embedded at build time (cmake/EmbedPage.cmake) ------------------------ */

struct page_file {
    const char *body;
    size_t len;
    const char *etag; /* including quotes */
};

extern const struct page_file page_index_html, page_page_css, page_page_js, page_icon_svg;

#endif
