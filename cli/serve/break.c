/* DELETE /api/locks/NAME of `holdfast serve`: breaks a lock, like `holdfast unlock --force`. It
 * first asks the server for the kind, because kinds are broken differently; slots are freed all at
 * once.
 *
 * The request is suspended meanwhile. A running operation is owned by its callback; its pointer to
 * the request is cleared when the request ends. */
#include "serve/http.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

struct breaking {
    struct request *request; /* NULL: the request has ended */
    hf_client *client;
    struct view *view;
    char *name;
    char who[512]; /* the requester, for the log */
    hf_lock *lock;
    hf_permits *permits;
    hf_lock_info *info;
    bool done;
    bool broken;
    int code;
    char text[448]; /* the error text */
};

static void breaking_free(struct breaking *breaking) {
    hf_lock_info_free(breaking->info);
    hf_lock_free(breaking->lock);
    hf_permits_free(breaking->permits);
    free(breaking->name);
    free(breaking);
}

void break_forget(struct breaking *breaking) {
    if (breaking == NULL)
        return;
    breaking->request = NULL;
    if (breaking->done)
        breaking_free(breaking);
}

/* The requester: the peer's address, and the client it claims to forward for, if it is a proxy. */
static void describe_who(const struct request *request, char *text, size_t size) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const char *forwarded = request_header(request, "X-Forwarded-For");
    char host[NI_MAXHOST] = "unknown client", port[NI_MAXSERV] = "";
    if (info != NULL) {
        const struct sockaddr *address = info->client_addr;
        socklen_t len = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                       : sizeof(struct sockaddr_in);
        getnameinfo(address, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    }
    snprintf(text, size, "%.64s port %.8s%s%.128s%s", host, port,
             forwarded != NULL ? " (for '" : "", forwarded != NULL ? forwarded : "",
             forwarded != NULL ? "', it claims)" : "");
}

static void finish(struct breaking *breaking, int code, const hf_error *error) {
    char shown[SHOWN_NAME_SIZE];
    shown_name(breaking->name, shown);
    breaking->done = true;
    breaking->code = code;
    if (code != HF_OK)
        snprintf(breaking->text, sizeof breaking->text, "%s%s%s", hf_strerror(code),
                 error->text[0] != '\0' ? ": " : "", error->text);
    say_of(LEVEL_NOTICE, &(struct subject){.code = code, .lock = breaking->name},
           "%s asked to break '%s': %s", breaking->who, shown,
           code != HF_OK      ? breaking->text
           : breaking->broken ? "it is broken"
                              : "nobody held it");
    if (breaking->request != NULL)
        request_resume(breaking->request);
    else
        breaking_free(breaking);
}

static void broken(hf_op *op, const hf_result *result, void *user) {
    struct breaking *breaking = user;
    (void)op;
    breaking->broken = result->code == HF_OK && result->value != 0;
    if (breaking->broken)
        view_note_own_break(breaking->view, breaking->name);
    finish(breaking, result->code, &result->error);
}

/* If no slot is taken, the number of slots is kept. */
static void counted(hf_op *op, const hf_result *result, void *user) {
    struct breaking *breaking = user;
    (void)op;
    int code = result->code;
    if (code != HF_OK || result->value == 0) {
        finish(breaking, code, &result->error);
        return;
    }
    code = hf_permits_delete_start(breaking->permits, broken, breaking, NULL);
    if (code != HF_OK)
        finish(breaking, code, hf_last_error());
}

static int free_slots(struct breaking *breaking) {
    int code = hf_permits_new(breaking->client, breaking->name, &breaking->permits);
    return code == HF_OK ? hf_permits_taken_start(breaking->permits, counted, breaking, NULL)
                         : code;
}

static int break_kind(struct breaking *breaking, hf_kind kind) {
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = kind;
    hf_lock_free(breaking->lock);
    breaking->lock = NULL;
    int code = hf_lock_new_with(breaking->client, breaking->name, strlen(breaking->name), &options,
                                &breaking->lock);
    return code == HF_OK ? hf_lock_break_start(breaking->lock, broken, breaking, NULL) : code;
}

static void inspected(hf_op *op, const hf_result *result, void *user) {
    struct breaking *breaking = user;
    (void)op;
    if (result->code != HF_OK) {
        finish(breaking, result->code, &result->error);
        return;
    }
    hf_found found = breaking->info->kind;
    int code = found == HF_FOUND_PERMITS  ? free_slots(breaking)
               : found == HF_FOUND_FAIR   ? break_kind(breaking, HF_FAIR)
               : found == HF_FOUND_READ   ? break_kind(breaking, HF_READ)
               : found == HF_FOUND_WRITE  ? break_kind(breaking, HF_WRITE)
               : found == HF_FOUND_STRING ? break_kind(breaking, HF_STRING)
                                          : break_kind(breaking, HF_PLAIN);
    if (code != HF_OK)
        finish(breaking, code, hf_last_error());
}

static enum MHD_Result begin(struct request *request, const char *name) {
    struct breaking *breaking = calloc(1, sizeof *breaking);
    if (breaking == NULL)
        return MHD_NO;
    breaking->request = request;
    breaking->client = request->serve->client;
    breaking->view = &request->serve->view;
    breaking->name = strdup(name);
    describe_who(request, breaking->who, sizeof breaking->who);
    int code = breaking->name == NULL ? HF_ENOMEM : HF_OK;
    if (code == HF_OK)
        code = hf_lock_new(breaking->client, name, &breaking->lock);
    if (code == HF_OK)
        code = hf_lock_inspect_start(breaking->lock, &breaking->info, inspected, breaking, NULL);
    if (code != HF_OK) {
        breaking_free(breaking);
        return answer_error(request, MHD_HTTP_BAD_REQUEST, hf_strerror(code));
    }
    request->breaking = breaking;
    request_suspend(request);
    return MHD_YES;
}

static unsigned status_of(int code) {
    switch (code) {
    case HF_EINVAL:
        return MHD_HTTP_BAD_REQUEST;
    case HF_EPERM:
        return MHD_HTTP_FORBIDDEN;
    case HF_EWRONGTYPE:
        return MHD_HTTP_CONFLICT;
    case HF_ENOTSUP:
        return MHD_HTTP_NOT_IMPLEMENTED;
    default:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
}

enum MHD_Result break_answer(struct request *request, const char *name) {
    struct breaking *breaking = request->breaking;
    if (breaking == NULL)
        return begin(request, name);
    if (!breaking->done)
        return MHD_NO; /* shutting down */
    if (breaking->code != HF_OK)
        return answer_error(request, status_of(breaking->code), breaking->text);
    json_t *object =
        json_pack("{s:o, s:b}", "name", json_text(breaking->name), "broken", breaking->broken);
    char *body = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return answer(request, MHD_HTTP_OK, "application/json", body);
}
