/*
 * The connections of one server, as a part of a survey. CLIENT LIST takes the server more than a
 * microsecond per connection.
 *
 *   INFO clients -> few ─────────────────────────────────────▶ CLIENT LIST
 *                -> many: INFO stats -> connections ever ─────▶ CLIENT LIST ID <400 of them>, ...
 *
 * Steps of survey.c, on the thread of the call's executor. No command may keep the server busy for
 * long. So if there are many connections, they are queried by id, some hundred at a time. The
 * server numbers connections, and an id that does not exist costs it next to nothing. If there were
 * too many for that, or the server does not say how many, one CLIENT LIST gets all.
 */
#include "redis/fleet/survey.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTIONS_MAX 100000 /* with names, of all servers: some 35 MB */
#define FEW 400                /* connections: half a millisecond of the server's time */
#define IDS_MAX 1000000        /* ids that are tried: some tenths of a second of ours */
#define IDS_MORE 1000          /* ids of scripts and the like are not in that count */
#define LAST_MS 100            /* no command is started this close to the deadline */

/* ---- A list ---- */

/* The value of `field` ("name=") in one line, up to a blank. */
static const char *field_of(const char *line, size_t len, const char *field, size_t *ret_len) {
    const char *at = memmem(line, len, field, strlen(field));
    if (at == NULL)
        return NULL;
    at += strlen(field);
    const char *blank = memchr(at, ' ', (size_t)(line + len - at));
    *ret_len = (size_t)((blank != NULL ? blank : line + len) - at);
    return at;
}

static bool is_zero(const char *value, size_t len) {
    return value == NULL || (len == 1 && *value == '0');
}

/* Adds a connection with a name, or notes that there are too many. False: out of memory. */
static bool add_connection(struct hfi_redis_survey *survey, const char *line, size_t len) {
    size_t name_len = 0, sub_len = 0, ssub_len = 0;
    const char *name = field_of(line, len, " name=", &name_len);
    if (name == NULL || name_len == 0 || name_len >= HFI_FOUND_NAME_SIZE)
        return true;
    if (survey->connections_kept == CONNECTIONS_MAX) {
        survey->connections_cut = true;
        return true;
    }
    struct hfi_found_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return false;
    const char *sub = field_of(line, len, " sub=", &sub_len);
    const char *ssub = field_of(line, len, " ssub=", &ssub_len);
    memcpy(connection->name, name, name_len);
    connection->listens = !is_zero(sub, sub_len) || !is_zero(ssub, ssub_len);
    hfi_list_push_back(&survey->findings->connections, &connection->link);
    survey->connections_kept++;
    return true;
}

/* False: out of memory. */
static bool read_connections(struct hfi_redis_survey *survey, const struct hfi_reply *list) {
    const char *line = list->str, *end = list->str + list->len;
    while (line < end && !survey->connections_cut) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t len = (size_t)((newline != NULL ? newline : end) - line);
        if (!add_connection(survey, line, len))
            return false;
        survey->connections_known += len > 0;
        line += len + 1;
    }
    return true;
}

/* ---- Clients that should answer ---- */

#define HERE_MAX 200 /* clients in one PUBSUB NUMSUB */

static const char ours[] = "holdfast:";

static bool may_answer(const struct hfi_found_connection *connection) {
    return connection->listens && strncmp(connection->name, ours, strlen(ours)) == 0 &&
           strlen(connection->name) >= strlen(ours) + 36;
}

/* The next connection, from `link` on, whose client may answer. NULL: there is none. */
static struct hfi_found_connection *next_of(const struct hfi_redis_survey *survey,
                                            struct hfi_link **link) {
    while (*link != &survey->findings->connections) {
        struct hfi_found_connection *connection =
            HFI_CONTAINER(*link, struct hfi_found_connection, link);
        *link = (*link)->next;
        if (may_answer(connection))
            return connection;
        connection->listens = false; /* it subscribes to something else, not to questions */
    }
    return NULL;
}

static void query_subscribers(struct hfi_call *call);

static void write_numsub(struct hfi_exchange *x, int64_t not_after_ms,
                         struct hfi_command *command) {
    const struct hfi_redis_survey *survey = hfi_state_around(x)->u.survey;
    const struct hfi_found_connection *connection;
    struct hfi_link *link = survey->uncounted;
    char channel[HFI_HERE_SIZE];
    (void)not_after_ms;
    hfi_command_text(command, "PUBSUB");
    hfi_command_text(command, "NUMSUB");
    for (int i = 0; i < HERE_MAX && (connection = next_of(survey, &link)) != NULL; i++) {
        hfi_survey_responder_here(x->redis, connection->name + strlen(ours), channel);
        hfi_command_text(command, channel);
    }
}

/* The reply lists the channels, each with its number of subscribers, in the order of the
 * command. */
static void got_subscribers(struct hfi_call *call) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    struct hfi_found_connection *connection;
    const struct hfi_reply *reply = x->err == HF_OK ? hfi_exchange_reply(x) : NULL;
    if (x->err == HF_ECLOSED || x->err == HF_ECANCELED) {
        hfi_survey_failed(call);
        return;
    }
    if (reply == NULL || reply->type != HFI_REPLY_ARRAY) {
        /* any connection with a subscription counts as one that should answer */
        survey->subscribers_unknown = true;
        survey->next(call);
        return;
    }
    for (size_t i = 0; i < HERE_MAX && (connection = next_of(survey, &survey->uncounted)) != NULL;
         i++) {
        const struct hfi_reply *subscribers =
            2 * i + 1 < reply->elements ? reply->element[2 * i + 1] : NULL;
        connection->listens = subscribers == NULL || subscribers->type != HFI_REPLY_INTEGER ||
                              subscribers->integer > 0;
        survey->subscribers += connection->listens;
    }
    query_subscribers(call);
}

static void query_subscribers(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    struct hfi_link *link = survey->uncounted;
    if (next_of(survey, &link) != NULL) {
        hfi_survey_send(call, write_numsub, got_subscribers);
        return;
    }
    survey->subscribers_known = true;
    survey->next(call);
}

/* Connections are reported only if every server has listed them. If the list is refused, or too
 * long for one reply, the survey still reads the locks. */
static void conclude(struct hfi_call *call, bool known, const char *text) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    struct hfi_findings *findings = survey->findings;
    findings->connections_known = known && (findings->connections_known || !survey->begun);
    if (!known)
        snprintf(findings->text, sizeof findings->text, "connections are unknown: %s", text);
    survey->uncounted = survey->uncounted->next;
    survey->subscribers_unknown = survey->subscribers_unknown || !known;
    if (known)
        query_subscribers(call);
    else
        survey->next(call);
}

/* The reply to a list; NULL: the survey went on without it, or is over. */
static const struct hfi_reply *list_of(struct hfi_call *call) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    if (x->err != HF_OK && !hfi_is_withheld(x->err) && x->err != HF_EPROTO) {
        hfi_survey_failed(call);
        return NULL;
    }
    const struct hfi_reply *reply = x->err == HF_OK ? hfi_exchange_reply(x) : NULL;
    if (reply == NULL || reply->type != HFI_REPLY_STRING) {
        conclude(call, false,
                 x->err == HF_EPROTO ? "the reply to CLIENT LIST is too long"
                                     : "CLIENT LIST is refused");
        return NULL;
    }
    if (!read_connections(hfi_survey_of(call), reply)) {
        hfi_call_fail(call, HF_ENOMEM, "out of memory");
        return NULL;
    }
    if (hfi_survey_of(call)->connections_cut) {
        conclude(call, false, "too many connections for a survey");
        return NULL;
    }
    return reply;
}

static void write_list(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    (void)x;
    (void)not_after_ms;
    hfi_command_text(command, "CLIENT");
    hfi_command_text(command, "LIST");
}

static void listed(struct hfi_call *call) {
    if (list_of(call) != NULL)
        conclude(call, true, NULL);
}

static void list_all(struct hfi_call *call) {
    hfi_survey_send(call, write_list, listed);
}

/* ---- By id ---- */

static void list_some(struct hfi_call *call);

static void write_some(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_redis_survey *survey = hfi_state_around(x)->u.survey;
    write_list(x, not_after_ms, command);
    hfi_command_text(command, "ID");
    for (int64_t i = 0; i < FEW && survey->next_id - i > 0; i++)
        hfi_command_number(command, survey->next_id - i);
}

static void listed_some(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (list_of(call) == NULL)
        return;
    survey->next_id -= FEW;
    list_some(call);
}

/* The latest ids first: most of those connections still exist. */
static void list_some(struct hfi_call *call) {
    const struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (survey->connections_known >= survey->connections || survey->next_id <= 0)
        conclude(call, true, NULL);
    else if (hfi_now_ms() >= call->deadline_ms - LAST_MS)
        conclude(call, false, "too many connections for the time limit");
    else
        hfi_survey_send(call, write_some, listed_some);
}

/* ---- How many there are ---- */

/* A number in the reply to INFO; -1: it is not there. */
static int64_t info_of(struct hfi_call *call, const char *field) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    const struct hfi_reply *reply = x->err == HF_OK ? hfi_exchange_reply(x) : NULL;
    if (reply == NULL || reply->type != HFI_REPLY_STRING)
        return -1;
    const char *at = memmem(reply->str, reply->len, field, strlen(field));
    return at != NULL ? strtoll(at + strlen(field), NULL, 10) : -1;
}

/* A refusal is no failure. */
static bool has_failed(struct hfi_call *call) {
    int err = hfi_state_of(call)->exchange.err;
    if (err == HF_OK || hfi_is_withheld(err) || err == HF_EUNAVAILABLE)
        return false;
    hfi_survey_failed(call);
    return true;
}

static void write_info(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    (void)not_after_ms;
    hfi_command_text(command, "INFO");
    hfi_command_text(command,
                     hfi_state_around(x)->u.survey->connections == 0 ? "clients" : "stats");
}

static void counted_all(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (has_failed(call))
        return;
    int64_t ever = info_of(call, "total_connections_received:");
    if (ever < 0 || ever > IDS_MAX) {
        list_all(call);
        return;
    }
    survey->next_id = ever + IDS_MORE;
    list_some(call);
}

static void counted(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (has_failed(call))
        return;
    survey->connections = info_of(call, "connected_clients:");
    if (survey->connections <= FEW)
        list_all(call);
    else
        hfi_survey_send(call, write_info, counted_all);
}

void hfi_survey_list(struct hfi_call *call, hfi_survey_step *next) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    survey->next = next;
    survey->uncounted =
        survey->findings->connections.prev; /* the connections of this server follow it */
    survey->connections = survey->connections_known = 0;
    hfi_survey_send(call, write_info, counted);
}
