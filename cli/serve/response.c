/* Responses of `holdfast serve`, with headers that restrict the browser: no foreign resources, no
 * framing, no MIME sniffing, no referrer. */
#include "serve/http.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define POLICY                                                                                      \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "                                 \
    "require-trusted-types-for 'script'; trusted-types 'none'"

#define ANSWER_LIMIT_MS 30000

const char *request_header(const struct request *request, const char *name) {
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

void request_suspend(struct request *request) {
    request->suspended = true;
    request->visitor->deadline_ms = 0;
    MHD_suspend_connection(request->connection);
}

void request_resume(struct request *request) {
    if (!request->suspended)
        return;
    request->suspended = false;
    request->visitor->deadline_ms = now_ms() + ANSWER_LIMIT_MS;
    MHD_resume_connection(request->connection);
}

void answer_headers(struct MHD_Response *response, const char *type, const char *caching) {
    const struct {
        const char *name, *value;
    } all[] = {{MHD_HTTP_HEADER_CONTENT_TYPE, type},
               {MHD_HTTP_HEADER_CACHE_CONTROL, caching},
               {"Content-Security-Policy", POLICY},
               {"X-Content-Type-Options", "nosniff"},
               {"X-Frame-Options", "DENY"},
               {"Referrer-Policy", "no-referrer"},
               {"Cross-Origin-Resource-Policy", "same-origin"},
               {"Cross-Origin-Opener-Policy", "same-origin"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        MHD_add_response_header(response, all[i].name, all[i].value);
}

/* The caller keeps its reference. */
static enum MHD_Result queue(struct request *request, unsigned status,
                             struct MHD_Response *response) {
    if (response == NULL)
        return MHD_NO;
    request->visitor->deadline_ms = now_ms() + ANSWER_LIMIT_MS;
    return MHD_queue_response(request->connection, status, response);
}

enum MHD_Result answer_with(struct request *request, unsigned status,
                            struct MHD_Response *response) {
    enum MHD_Result result = queue(request, status, response);
    if (response != NULL)
        MHD_destroy_response(response);
    return result;
}

static struct MHD_Response *response_of(char *body, const char *type) {
    if (body == NULL)
        return NULL;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_MUST_FREE);
    if (response == NULL)
        free(body);
    else
        answer_headers(response, type, "no-store");
    return response;
}

enum MHD_Result answer(struct request *request, unsigned status, const char *type, char *body) {
    return answer_with(request, status, response_of(body, type));
}

/* Drops the response of an older survey. */
static void shared_drop(struct shared_answer *shared) {
    if (shared->response != NULL)
        MHD_destroy_response(shared->response);
    *shared = (struct shared_answer){0};
}

enum MHD_Result answer_shared(struct request *request, enum shared_path path, const char *type,
                              char *(*make)(const struct serve *serve)) {
    struct shared_answer *shared = &request->serve->shared[path];
    if (shared->seq != request->serve->view.seq)
        shared_drop(shared);
    if (shared->response == NULL) {
        shared->response = response_of(make(request->serve), type);
        shared->seq = request->serve->view.seq;
    }
    return queue(request, MHD_HTTP_OK, shared->response);
}

void shared_forget(struct serve *serve) {
    for (size_t i = 0; i < SHARED_PATHS; i++)
        shared_drop(&serve->shared[i]);
}

static char *error_body(const char *message) {
    json_t *object = json_pack("{s:o}", "error", json_text(message));
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL, *line = NULL;
    json_decref(object);
    if (text != NULL && asprintf(&line, "%s\n", text) < 0)
        line = NULL;
    free(text);
    return line;
}

enum MHD_Result answer_error(struct request *request, unsigned status, const char *text) {
    struct MHD_Response *response = response_of(error_body(text), "application/json");
    if (response != NULL && status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                "Bearer realm=\"holdfast\"");
    if (response != NULL && status == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "5");
    return answer_with(request, status, response);
}

enum MHD_Result answer_not_allowed(struct request *request, const char *allowed) {
    struct MHD_Response *response =
        response_of(error_body("method not allowed for this path"), "application/json");
    if (response != NULL)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allowed);
    return answer_with(request, MHD_HTTP_METHOD_NOT_ALLOWED, response);
}

enum MHD_Result answer_file(struct request *request, const struct page_file *file,
                            const char *type) {
    const char *known = request_header(request, MHD_HTTP_HEADER_IF_NONE_MATCH);
    bool same = known != NULL && strcmp(known, file->etag) == 0;
    /* It is only read, although the prototype is not const. */
    struct MHD_Response *response = MHD_create_response_from_buffer(
        same ? 0 : file->len, (void *)(uintptr_t)file->body, MHD_RESPMEM_PERSISTENT);
    if (response != NULL) {
        answer_headers(response, type, "no-cache");
        MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, file->etag);
    }
    return answer_with(request, same ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, response);
}
