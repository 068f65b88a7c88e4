/* The HTTP server of `holdfast serve`: connections and their limits, and paths. auth.c checks access.
 * libmicrohttpd runs on our thread (it has none of its own), so everything is called from MHD_run()
 * in loop.c.
 *
 * A request that needs a survey is suspended until there is one, then handled again. Requests have
 * no body. */
#include "serve/http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_LIMIT_MS                                                                              \
    10000 /* for the head of a request, from the connect or from the previous response */
#define CONNECTION_MEMORY ((size_t)64 * 1024)
#define JSON "application/json"
#define HISTORY_ANSWERED 1000 /* events, unless the request has a limit */
#define HISTORY_ANSWERED_MAX 10000

/* ---- Connections ----------------------------------------------------------------------------- */

static void visitor_notify(void *user, struct MHD_Connection *connection, void **context,
                           enum MHD_ConnectionNotificationCode code) {
    struct serve *serve = user;
    struct visitor *visitor = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        visitor = calloc(1, sizeof *visitor);
        if (visitor == NULL)
            return; /* Its requests will be refused. */
        visitor->fd = info != NULL ? info->connect_fd : -1;
        visitor->deadline_ms = now_ms() + HEAD_LIMIT_MS;
        visitor->next = serve->visitors;
        if (visitor->next != NULL)
            visitor->next->previous = visitor;
        serve->visitors = visitor;
        *context = visitor;
    } else if (visitor != NULL) {
        if (visitor->next != NULL)
            visitor->next->previous = visitor->previous;
        if (visitor->previous != NULL)
            visitor->previous->next = visitor->next;
        else
            serve->visitors = visitor->next;
        free(visitor);
        *context = NULL;
    }
}

/* libmicrohttpd then notices the end of the connection and closes it. */
void http_sweep(struct serve *serve) {
    int64_t now = now_ms();
    for (struct visitor *visitor = serve->visitors; visitor != NULL; visitor = visitor->next) {
        if (visitor->deadline_ms == 0 || visitor->deadline_ms > now)
            continue;
        shutdown(visitor->fd, SHUT_RDWR);
        visitor->deadline_ms = 0;
    }
}

/* ---- Requests -------------------------------------------------------------------------------- */

static struct request *request_new(struct serve *serve, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct visitor *visitor = info != NULL ? info->socket_context : NULL;
    struct request *request = visitor != NULL ? calloc(1, sizeof *request) : NULL;
    if (request == NULL)
        return NULL;
    request->serve = serve;
    request->connection = connection;
    request->visitor = visitor;
    request->next = serve->requests;
    if (request->next != NULL)
        request->next->previous = request;
    serve->requests = request;
    return request;
}

static void request_over(void *user, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code) {
    struct serve *serve = user;
    struct request *request = *context;
    (void)connection;
    (void)code;
    if (request == NULL)
        return;
    stream_end(request);
    break_forget(request->breaking);
    if (request->next != NULL)
        request->next->previous = request->previous;
    if (request->previous != NULL)
        request->previous->next = request->next;
    else
        serve->requests = request->next;
    request->visitor->deadline_ms = now_ms() + HEAD_LIMIT_MS;
    free(request);
    *context = NULL;
}

bool http_is_watched(const struct serve *serve) {
    if (serve->streams > 0)
        return true;
    for (const struct request *request = serve->requests; request != NULL; request = request->next)
        if (request->waits_for_view)
            return true;
    return false;
}

void http_view_changed(struct serve *serve) {
    streams_wake(serve);
    for (struct request *request = serve->requests; request != NULL; request = request->next)
        if (request->waits_for_view)
            request_resume(request);
}

/* ---- Paths ----------------------------------------------------------------------------------- */

/* Whether the current survey, or its failure, can be used. If not, suspends the request until the
 * next one. `times`: it must include per-name times, which a survey already running may not. */
static bool view_is_ready(struct request *request, bool times) {
    struct view *view = &request->serve->view;
    bool came = request->waits_for_view && (!times || view->times_asked || view->failed_at_ms > 0);
    if (came || view_is_fresh(view, times)) {
        request->waits_for_view = false;
        return true;
    }
    view_request(view, times);
    request->waits_for_view = true;
    request_suspend(request);
    return false;
}

/* Why no survey can be shown; NULL: it can. */
static const char *view_trouble(const struct view *view) {
    return view->failed_at_ms > 0 || view->later == NULL ? view->error : NULL;
}

static char *make_locks(const struct serve *serve) {
    return frame_locks(&serve->view);
}

static char *make_clients(const struct serve *serve) {
    return frame_clients(&serve->view);
}

static char *make_metrics(const struct serve *serve) {
    return frame_metrics(&serve->view, false, view_trouble(&serve->view) == NULL,
                         serve->settings->metrics_locks);
}

static char *make_openmetrics(const struct serve *serve) {
    return frame_metrics(&serve->view, true, view_trouble(&serve->view) == NULL,
                         serve->settings->metrics_locks);
}

static enum MHD_Result answer_view(struct request *request, enum shared_path path,
                                   char *(*make)(const struct serve *)) {
    if (!view_is_ready(request, false))
        return MHD_YES;
    const char *trouble = view_trouble(&request->serve->view);
    if (trouble != NULL)
        return answer_error(request, MHD_HTTP_SERVICE_UNAVAILABLE, trouble);
    return answer_shared(request, path, JSON, make);
}

static enum MHD_Result answer_lock(struct request *request, const char *name) {
    bool found;
    if (!view_is_ready(request, false))
        return MHD_YES;
    const char *trouble = view_trouble(&request->serve->view);
    if (trouble != NULL)
        return answer_error(request, MHD_HTTP_SERVICE_UNAVAILABLE, trouble);
    char *body = frame_lock(&request->serve->view, name, &found);
    if (!found)
        return answer_error(request, MHD_HTTP_NOT_FOUND, "nobody holds it or waits for it");
    return answer(request, MHD_HTTP_OK, JSON, body);
}

/* Prometheus' own `up` says whether we respond; holdfast_up says whether the lock server does. So
 * an unreachable lock server is not a failed scrape. OpenMetrics is sent to clients that accept
 * it. */
static enum MHD_Result answer_metrics(struct request *request) {
    const char *accepted = request_header(request, MHD_HTTP_HEADER_ACCEPT);
    if (!view_is_ready(request, true))
        return MHD_YES;
    if (accepted != NULL && strstr(accepted, "application/openmetrics-text") != NULL)
        return answer_shared(request, SHARED_OPENMETRICS,
                             "application/openmetrics-text; version=1.0.0; charset=utf-8",
                             make_openmetrics);
    return answer_shared(request, SHARED_METRICS, "text/plain; version=0.0.4; charset=utf-8",
                         make_metrics);
}

/* ?since=DURATION&limit=N. Returns what is wrong with it; NULL: nothing. */
static const char *read_query(const struct request *request, struct history_query *query) {
    const char *since =
        MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "since");
    const char *limit =
        MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "limit");
    int64_t since_ms = 0;
    long number = HISTORY_ANSWERED;
    if (since != NULL && !parse_duration(since, &since_ms))
        return "since is not a duration such as 90s, 2h or 1d";
    if (limit != NULL && !parse_number(limit, 1, HISTORY_ANSWERED_MAX, &number))
        return "limit is not a number of events up to 10000";
    query->since_ms = since != NULL ? unix_ms() - since_ms : 0;
    query->limit = (size_t)number;
    return NULL;
}

/* What is recorded, without a new survey. `name` is encoded; NULL: all locks. */
static enum MHD_Result answer_history(struct request *request, const char *name) {
    struct history_query query = {0};
    const char *wrong = read_query(request, &query);
    if (wrong != NULL)
        return answer_error(request, MHD_HTTP_BAD_REQUEST, wrong);
    char *decoded = name != NULL ? strdup(name) : NULL;
    if (name != NULL && decoded == NULL)
        return MHD_NO;
    long len = decoded != NULL ? percent_decode(decoded) : 0;
    query.name = decoded;
    query.name_len = len > 0 ? (size_t)len : 0;
    enum MHD_Result result =
        name != NULL && len <= 0
            ? answer_error(request, MHD_HTTP_BAD_REQUEST, "invalid name")
            : answer(request, MHD_HTTP_OK, JSON, frame_history(request->serve->history, &query));
    free(decoded);
    return result;
}

static enum MHD_Result answer_break(struct request *request, const char *name) {
    unsigned status = 0;
    const char *refusal =
        request->breaking == NULL ? request_may_not_break(request, &status) : NULL;
    return refusal != NULL ? answer_error(request, status, refusal) : break_answer(request, name);
}

static const struct {
    const char *path, *type;
    const struct page_file *file;
} files[] = {{"/", "text/html; charset=utf-8", &page_index_html},
             {"/page.css", "text/css; charset=utf-8", &page_page_css},
             {"/page.js", "text/javascript; charset=utf-8", &page_page_js},
             {"/icon.svg", "image/svg+xml", &page_icon_svg}};

static enum MHD_Result answer_name(struct request *request, const char *path, bool reads,
                                   bool deletes) {
    char *name = strdup(path);
    enum MHD_Result result;
    if (name == NULL)
        return MHD_NO;
    if (percent_decode(name) <= 0)
        result = answer_error(request, MHD_HTTP_BAD_REQUEST, "invalid name");
    else if (reads)
        result = answer_lock(request, name);
    else if (deletes && request->serve->settings->allow_break)
        result = answer_break(request, name);
    else
        result = answer_not_allowed(
            request, request->serve->settings->allow_break ? "GET, HEAD, DELETE" : "GET, HEAD");
    free(name);
    return result;
}

static enum MHD_Result route(struct request *request, const char *path, const char *method) {
    static const char locks[] = "/api/locks/", history[] = "/api/history/";
    bool head = strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    bool reads = head || strcmp(method, MHD_HTTP_METHOD_GET) == 0;
    bool deletes = strcmp(method, MHD_HTTP_METHOD_DELETE) == 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(path, files[i].path) == 0)
            return reads ? answer_file(request, files[i].file, files[i].type)
                         : answer_not_allowed(request, "GET, HEAD");
    if (request_is_foreign(request))
        return answer_error(request, MHD_HTTP_FORBIDDEN, "requests from other sites are refused");
    if (!request_may_read(request))
        return answer_error(request, MHD_HTTP_UNAUTHORIZED, "the token is required");
    if (strncmp(path, locks, sizeof locks - 1) == 0)
        return answer_name(request, path + sizeof locks - 1, reads, deletes);
    if (strncmp(path, history, sizeof history - 1) == 0)
        return reads ? answer_history(request, path + sizeof history - 1)
                     : answer_not_allowed(request, "GET, HEAD");
    if (strcmp(path, "/api/history") == 0)
        return reads ? answer_history(request, NULL) : answer_not_allowed(request, "GET, HEAD");
    if (strcmp(path, "/api/events") == 0)
        return reads && !head ? stream_begin(request) : answer_not_allowed(request, "GET");
    if (strcmp(path, "/api/locks") == 0)
        return reads ? answer_view(request, SHARED_LOCKS, make_locks)
                     : answer_not_allowed(request, "GET, HEAD");
    if (strcmp(path, "/api/clients") == 0)
        return reads ? answer_view(request, SHARED_CLIENTS, make_clients)
                     : answer_not_allowed(request, "GET, HEAD");
    if (strcmp(path, "/metrics") == 0)
        return reads ? answer_metrics(request) : answer_not_allowed(request, "GET, HEAD");
    return answer_error(request, MHD_HTTP_NOT_FOUND, "there is no such path");
}

/* Checks the head, before any path. True: the request is refused and answered. */
static bool refused(struct request *request, enum MHD_Result *ret) {
    const struct serve *serve = request->serve;
    const char *length = request_header(request, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (!host_is_ours(&serve->listener, serve->settings,
                      request_header(request, MHD_HTTP_HEADER_HOST))) {
        *ret = answer_error(request, MHD_HTTP_MISDIRECTED_REQUEST,
                            "unknown host name; allow it with --allowed-host");
        return true;
    }
    if ((length != NULL && strcmp(length, "0") != 0) ||
        request_header(request, MHD_HTTP_HEADER_TRANSFER_ENCODING) != NULL) {
        *ret = answer_error(request, MHD_HTTP_CONTENT_TOO_LARGE, "a request must not have a body");
        return true;
    }
    return false;
}

/* The callback of libmicrohttpd: called with the head, then with the complete request, and after
 * each resume. */
static enum MHD_Result handle(void *user, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **context) {
    struct serve *serve = user;
    struct request *request = *context;
    enum MHD_Result result;
    (void)version;
    (void)upload;
    if (request == NULL) {
        *context = request = request_new(serve, connection);
        if (request == NULL)
            return MHD_NO;
        return refused(request, &result) ? result : MHD_YES;
    }
    if (*upload_size > 0 || serve->closing)
        return MHD_NO;
    return route(request, url, method);
}

/* ---- Start and stop
 * ---------------------------------------------------------------------------- */

static void pass_on_log(void *user, const char *format, va_list args) {
    char line[512];
    (void)user;
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\n")] = '\0';
    say(LEVEL_DEBUG, "http: %s", line);
}

/* We decode names ourselves, because a name may contain a slash. */
static size_t leave_encoded(void *user, struct MHD_Connection *connection, char *text) {
    (void)user;
    (void)connection;
    return strlen(text);
}

int http_start(struct serve *serve) {
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    serve->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, handle, serve, MHD_OPTION_EXTERNAL_LOGGER, pass_on_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, serve->listener.fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)MOST_VISITORS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY,
        MHD_OPTION_NOTIFY_CONNECTION, visitor_notify, serve, MHD_OPTION_NOTIFY_COMPLETED,
        request_over, serve, MHD_OPTION_UNESCAPE_CALLBACK, leave_encoded, NULL, MHD_OPTION_END);
    if (serve->daemon != NULL)
        return 0;
    say(LEVEL_ERROR, "cannot serve HTTP: %s", strerror(errno));
    return STATUS_OS;
}

void http_stop(struct serve *serve) {
    serve->closing = true;
    for (struct request *request = serve->requests; request != NULL; request = request->next)
        request_resume(request);
    if (serve->daemon != NULL)
        MHD_stop_daemon(serve->daemon);
    serve->daemon = NULL;
    frames_forget(serve);
    shared_forget(serve);
}
