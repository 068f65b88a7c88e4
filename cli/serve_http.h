/* The part of `holdfast serve` that speaks HTTP, on libmicrohttpd: what its files share. */
#ifndef CLI_SERVE_HTTP_H
#define CLI_SERVE_HTTP_H

#include "serve.h"

#include <microhttpd.h>

#define MOST_VISITORS 128 /* connections */
#define MOST_STREAMS 32   /* of these, pages that are kept up to date */

struct request;

/* A connection. It has some time for everything that depends on its other end. */
struct visitor {
    struct visitor *previous, *next;
    int fd;
    int64_t deadline_ms; /* it is dropped then; 0: we keep it waiting, not it us */
};

struct frame; /* an event, shared by all who are sent it */

struct stream {
    struct frame *frame; /* what is being sent; NULL: nothing */
    size_t sent;
    uint64_t seq; /* the survey that it has been told of; 0: none */
    bool poked;   /* to be written to, so that one who is gone is noticed */
    bool counted;
};

struct breaking; /* serve_break.c */

/* A request, from its head to the end of the answer. */
struct request {
    struct request *previous, *next;
    struct serve *serve;
    struct MHD_Connection *connection;
    struct visitor *visitor;
    bool checked;
    bool suspended;      /* libmicrohttpd leaves it alone until request_resume() */
    bool waits_for_view; /* it wants a survey that is younger than the one there was */
    bool streams;        /* it is one of the pages */
    struct stream stream;
    struct breaking *breaking;
};

/* What was answered with a survey, for all others who ask for the same of it. */
struct shared_answer {
    uint64_t seq; /* the survey */
    struct MHD_Response *response;
};

/* What can be answered so. */
enum shared_path { SHARED_LOCKS, SHARED_CLIENTS, SHARED_METRICS, SHARED_PATHS };

struct serve {
    const struct serve_settings *settings;
    hf_client *client;
    struct listener listener;
    char *token; /* NULL: none */
    struct frame_facts facts;
    struct MHD_Daemon *daemon;
    struct view view;
    struct visitor *visitors;
    struct request *requests;
    size_t streams;
    struct frame *full, *changes; /* of the survey with that number, made when first wanted */
    struct shared_answer shared[SHARED_PATHS];
    bool closing;
};

/* ---- serve_http.c ---- */

/* Returns 0 or an exit status. */
int http_start(struct serve *serve);
/* Ends all connections at once. */
void http_stop(struct serve *serve);
/* Drops who has been too slow. */
void http_sweep(struct serve *serve);
/* Somebody looks: a survey is wanted. */
bool http_is_watched(const struct serve *serve);
/* There is another view. */
void http_view_changed(struct serve *serve);

/* ---- serve_answer.c ---- */

/* Queues an answer with the headers that all have. `body` is freed; NULL: out of memory. */
enum MHD_Result answer(struct request *request, unsigned status, const char *type, char *body);
/* The same, with a body that is made once for each survey; NULL: out of memory. */
enum MHD_Result answer_shared(struct request *request, enum shared_path path, const char *type,
                              char *(*make)(const struct serve *serve));
void shared_forget(struct serve *serve);
/* {"error": "..."} */
enum MHD_Result answer_error(struct request *request, unsigned status, const char *words);
enum MHD_Result answer_not_allowed(struct request *request, const char *allowed);
enum MHD_Result answer_file(struct request *request, const struct page_file *file,
                            const char *type);
/* Adds the headers that all have. */
void answer_headers(struct MHD_Response *response, const char *type, const char *caching);
/* Queues and forgets the response; NULL: out of memory. */
enum MHD_Result answer_with(struct request *request, unsigned status,
                            struct MHD_Response *response);
const char *request_header(const struct request *request, const char *name);

void request_suspend(struct request *request);
void request_resume(struct request *request);

/* ---- serve_stream.c ---- */

enum MHD_Result stream_begin(struct request *request);
void stream_end(struct request *request); /* when the request is over */
void streams_wake(struct serve *serve);   /* there is another view */
void streams_poke(struct serve *serve);
void frames_forget(struct serve *serve);

/* ---- serve_break.c ---- */

/* Called again and again until it has answered. */
enum MHD_Result break_answer(struct request *request, const char *name);
void break_forget(struct breaking *breaking); /* the request is over */

#endif
