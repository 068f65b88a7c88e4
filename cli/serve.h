/* What the parts of `holdfast serve` share. All of it runs on one thread, that of serve_loop.c: its poll wakes for
 * libmicrohttpd, for the library's callbacks (HF_MANUAL_DISPATCH) and for signals. So nothing here is locked.
 *
 * cmd_serve.c reads the options; where libmicrohttpd is missing, without_serve.c stands in for all serve_*.c. */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include "cli.h"

#include <stddef.h>

#define SERVE_DEFAULT_LISTEN "127.0.0.1:7380"
#define SERVE_MAX_HOST_NAMES 16
#define SERVE_MAX_METRICS_LOCKS 10000

struct serve_settings {
    const char *listen;
    const char *host_names[SERVE_MAX_HOST_NAMES]; /* by which it may be called, besides addresses */
    size_t host_names_len;
    const char *token_file;
    bool allow_break;
    size_t metrics_locks; /* so many names have metrics of their own */
};

/* Serves until a signal ends it. The connection is resolved. Returns the exit status. */
int serve_run(struct connection *connection, const struct serve_settings *settings);

/* ---- serve_listen.c ------------------------------------------------------------------------------ */

struct listener {
    int fd; /* -1: none */
    bool loopback;
    char host[256]; /* as it was given, without brackets */
    char url[320];
};

/* HOST:PORT, HOST, PORT or [ADDRESS]:PORT. Returns 0 or an exit status. */
int listener_open(const char *text, struct listener *ret);

/* ---- serve_guard.c: who may ask what ----------------------------------------------------------------- */

/* The first line of a file that nobody else can read. Returns 0 or an exit status; the caller frees it. */
int token_read(const char *path, char **ret_token);
/* Whether an Authorization header (NULL: there is none) has the token. Takes as long for every wrong one of
 * a length. */
bool token_matches(const char *token, const char *authorization);
/* Whether a Host header (NULL: there is none) is one that we are called by. */
bool host_is_ours(const struct listener *listener, const struct serve_settings *settings,
                  const char *host);
/* Whether an Origin header is of a page that came from that Host. */
bool origin_is_host(const char *origin, const char *host);
/* Decodes percent-encoding in place. Returns the length; -1: it is no such encoding, or has a NUL in it. */
long percent_decode(char *text);

/* ---- serve_view.c: the latest survey, and what happened between surveys -------------------------------- */

#define VIEW_PERIOD_MS 1000
#define VIEW_HANDOVERS 1024
#define VIEW_RATES 60

struct handover {
    int64_t at_ms;          /* Unix time */
    char *name, *from, *to; /* "": nobody */
    size_t name_len;
};

struct rate {
    int64_t at_ms;      /* Unix time */
    int64_t seen;       /* locks that were found with another holder than before */
    int64_t told;       /* what clients have acquired meanwhile, by their own count */
    int64_t between_ms; /* over so long */
};

struct view {
    hf_client *client;
    void (*changed)(void *user); /* there is a new survey, or an error instead of one */
    void *user;

    hf_fleet *earlier, *later, *coming;
    hf_deadlocks *deadlocks; /* of the later one; NULL: not known */
    hf_op *op;
    bool running;
    int64_t started_ms;   /* the latest survey */
    int64_t good_ms;      /* when the later one came; 0: there is none */
    int64_t good_at_ms;   /* the same as Unix time */
    int64_t failed_at_ms; /* Unix time of the first failure since; 0: all is well */
    char error[448];
    uint64_t seq;             /* counts surveys, whatever came of them; 0: there was none */
    bool times_wanted;        /* the next survey is to ask for them, too */
    bool times_asked;         /* by the one that runs, or else by the latest */
    struct lock_times *times; /* their sums */
    bool joined;              /* the later one follows the earlier one closely */

    struct handover handovers[VIEW_HANDOVERS];
    uint64_t handovers_total;
    uint64_t handovers_before; /* the total before the latest survey */
    struct rate rates[VIEW_RATES];
    uint64_t rates_total;
};

/* False: out of memory. */
bool view_init(struct view *view, size_t metrics_locks);
/* Called while somebody looks; starts a survey when one is due. Returns in how many ms one is due, -1: one
 * runs. */
int view_tick(struct view *view);
/* The latest survey is so young that nobody needs another. `times`: and it has asked for them, or has failed. */
bool view_is_fresh(const struct view *view, bool times);
void view_free(struct view *view); /* after hf_close() */
int64_t unix_ms(void);

/* ---- serve_frame.c: what is sent, as JSON -------------------------------------------------------------- */

struct frame_facts {
    const char *server;
    const char *self; /* our own client's uuid */
    bool allow_break;
    bool beyond_loopback; /* without a token */
};

/* An event for the page: everything, or what has changed with the latest survey. The caller frees it; NULL:
 * out of memory. */
char *frame_make(const struct view *view, const struct frame_facts *facts, bool full);
/* The answers of the API; the same. *ret_found is false if there is no such lock. */
char *frame_locks(const struct view *view);
char *frame_clients(const struct view *view);
char *frame_lock(const struct view *view, const char *name, bool *ret_found);
char *frame_metrics(const struct view *view, bool up, size_t names_max);

/* ---- The files of the page, embedded at build time (cmake/EmbedPage.cmake) -------------------------- */

struct page_file {
    const char *body;
    size_t len;
    const char *etag; /* with its quotes */
};

extern const struct page_file page_index_html, page_page_css, page_page_js, page_icon_svg;

#endif
