/* The HTTP part of `holdfast serve`, on libmicrohttpd: declarations shared by its files. */
#ifndef CLI_SERVE_HTTP_H
#define CLI_SERVE_HTTP_H

#include "serve/serve.h"

#include <microhttpd.h>

#define MOST_VISITORS 128 /* connections */
#define MOST_STREAMS 32   /* connections with a live page */

struct request;

/* A connection. The peer has a limited time for each step that depends on it. */
struct visitor {
    struct visitor *previous, *next;
    int fd;
    int64_t deadline_ms; /* when it is dropped; 0: it waits for us */
};

struct frame; /* an event, shared by all streams that send it */

struct stream {
    struct frame *frame; /* being sent; NULL: none */
    size_t sent;
    uint64_t seq;        /* number of the last survey sent; 0: none */
    bool keep_alive_due; /* send a comment, to detect a closed connection */
    bool counted;
};

struct breaking; /* break.c */

/* A request, from its head to the end of the response. */
struct request {
    struct request *previous, *next;
    struct serve *serve;
    struct MHD_Connection *connection;
    struct visitor *visitor;
    bool checked;
    bool suspended;      /* libmicrohttpd leaves it alone until request_resume() */
    bool waits_for_view; /* it needs a survey newer than the current one */
    bool streams;        /* it is an event stream of a page */
    struct stream stream;
    struct breaking *breaking;
};

/* A response made from a survey, reused for later requests. */
struct shared_answer {
    uint64_t seq; /* number of the survey */
    struct MHD_Response *response;
};

/* Paths with a shared response. */
enum shared_path { SHARED_LOCKS, SHARED_CLIENTS, SHARED_METRICS, SHARED_OPENMETRICS, SHARED_PATHS };

struct serve {
    const struct serve_settings *settings;
    hf_client *client;
    struct listener listener;
    char *token; /* NULL: none */
    struct frame_facts facts;
    struct MHD_Daemon *daemon;
    struct view view;
    struct history *history;
    struct history_file *history_file; /* NULL: none */
    struct hook *hook;                 /* NULL: none */
    struct visitor *visitors;
    struct request *requests;
    size_t streams;
    struct frame *full, *changes; /* events of the survey with their number, made on first use */
    struct shared_answer shared[SHARED_PATHS];
    bool closing;
};

/* ---- http.c ---- */

/* Returns 0 or an exit status. */
int http_start(struct serve *serve);
/* Closes all connections at once. */
void http_stop(struct serve *serve);
/* Drops connections past their deadline. */
void http_sweep(struct serve *serve);
/* Whether a stream or a request needs surveys. */
bool http_is_watched(const struct serve *serve);
/* Call after the view has changed. */
void http_view_changed(struct serve *serve);

/* ---- auth.c ---- */

/* Whether the request may read what is not a static page file. */
bool request_may_read(const struct request *request);
/* Whether a page of another site caused the request. */
bool request_is_foreign(const struct request *request);
/* Why the request may not break a lock, with the HTTP status; NULL: it may. */
const char *request_may_not_break(const struct request *request, unsigned *ret_status);

/* ---- response.c ---- */

/* Queues a response with the common headers. Frees `body`; NULL: out of memory. */
enum MHD_Result answer(struct request *request, unsigned status, const char *type, char *body);
/* The same with a body that is made once per survey; `make` returns NULL if out of memory. */
enum MHD_Result answer_shared(struct request *request, enum shared_path path, const char *type,
                              char *(*make)(const struct serve *serve));
void shared_forget(struct serve *serve);
/* {"error": "..."} */
enum MHD_Result answer_error(struct request *request, unsigned status, const char *text);
enum MHD_Result answer_not_allowed(struct request *request, const char *allowed);
enum MHD_Result answer_file(struct request *request, const struct page_file *file,
                            const char *type);
/* Adds the common headers. */
void answer_headers(struct MHD_Response *response, const char *type, const char *caching);
/* Queues the response and drops our reference; NULL: out of memory. */
enum MHD_Result answer_with(struct request *request, unsigned status,
                            struct MHD_Response *response);
const char *request_header(const struct request *request, const char *name);

void request_suspend(struct request *request);
void request_resume(struct request *request);

/* ---- stream.c ---- */

enum MHD_Result stream_begin(struct request *request);
void stream_end(struct request *request); /* when the request ends */
void streams_wake(struct serve *serve);   /* after the view has changed */
void streams_keep_alive(struct serve *serve);
void frames_forget(struct serve *serve);

/* ---- break.c ---- */

/* Called after each resume, until it has queued a response. */
enum MHD_Result break_answer(struct request *request, const char *name);
void break_forget(struct breaking *breaking); /* the request has ended */

#endif
