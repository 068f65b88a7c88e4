/*
 * A survey: holders, waiters and clients, as reported by the servers and by the clients themselves.
 *
 *   list connections -> ask the clients -> SCAN, read, SCAN, read, ... -> await the answers -> done
 *
 * In a cluster the clients are asked once, since its nodes forward messages; the rest is done at
 * each node in turn. The connections that should answer are listed before the question is sent: a
 * client that connects later has not received it, and is not missed.
 *
 * Called by src/core through the fleet view's door, on the thread of the call's executor. Information
 * that cannot be had is missing, with a text why, and the rest is reported. It is an error only if
 * the server does not answer at all, or refuses to list its keys. The replies are from different
 * moments; nothing is decided by them.
 */
#include "redis/fleet/survey.h"

#include "base/clock.h"
#include "base/error.h"
#include "redis/fleet/announcements.h"
#include "redis/fleet/observe.h"

#include <stdio.h>
#include <string.h>

static void drop_survey(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis_survey *survey = state->u.survey;
    if (survey == NULL)
        return;
    hfi_survey_stop_asking(call);
    hfi_findings_free(survey->findings);
    for (size_t i = 0; i < survey->nodes_len; i++)
        hfi_node_unref(survey->nodes[i]);
    free(survey->nodes);
    free(survey->names);
    free(survey->awaited);
    free(survey);
    state->u.survey = NULL;
}

static bool wants_losses(const struct hfi_call *call) {
    return (call->wanted & (HF_WANT_HISTOGRAMS | HF_WANT_LOSSES)) != 0;
}

static void succeed(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    hfi_survey_stop_asking(call);
    hfi_survey_note_cut(survey);
    if (wants_losses(call) &&
        !hfi_announcements_copy(hfi_redis_of(call->engine)->announcements, survey->findings)) {
        hfi_call_fail(call, HF_ENOMEM, "out of memory");
        return;
    }
    survey->findings->subscribers_known = survey->subscribers_known && !survey->subscribers_unknown;
    survey->findings->taken_ms = hfi_now_ms();
    survey->findings->took_ms = survey->findings->taken_ms - survey->begun_ms;
    call->findings = survey->findings;
    survey->findings = NULL;
    hfi_error_clear(&call->error);
    hfi_call_finish(call, HF_OK);
}

static void await_answers(struct hfi_call *call) {
    hfi_survey_await(call, succeed);
}

/* ---- Each node ---- */

static void list_connections(struct hfi_call *call);
static void go_on(struct hfi_call *call);

static void scan_locks(struct hfi_call *call) {
    hfi_survey_scan(call, go_on);
}

static void was_asked(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    survey->asked = true;
    survey->node = 0; /* asking may have advanced it */
    scan_locks(call);
}

/* First list the connections at all nodes, then ask the clients, then read the locks. */
static void go_on(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (++survey->node < survey->nodes_len) {
        if (survey->asked)
            scan_locks(call);
        else
            list_connections(call);
    } else if (survey->asked) {
        await_answers(call);
    } else {
        survey->node = 0;
        hfi_survey_ask(call, was_asked);
    }
}

/* Adds a node that is in use. */
static void note_node(struct hfi_node *node, void *arg) {
    struct hfi_redis_survey *survey = arg;
    if (hfi_node_is_retired(node))
        return;
    if (survey->nodes_len == survey->nodes_cap) {
        size_t cap = survey->nodes_cap == 0 ? 16 : survey->nodes_cap * 2;
        struct hfi_node **nodes = realloc(survey->nodes, cap * sizeof(struct hfi_node *));
        if (nodes == NULL) {
            survey->nodes_failed = true;
            return;
        }
        survey->nodes = nodes;
        survey->nodes_cap = cap;
    }
    survey->nodes[survey->nodes_len++] = hfi_node_ref(node);
}

void hfi_survey_send(struct hfi_call *call,
                     void (*write)(struct hfi_exchange *, int64_t, struct hfi_command *),
                     void (*answered)(struct hfi_call *call)) {
    struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (survey->node < survey->nodes_len) {
        hfi_node_unref(x->ask_at);
        x->ask_at = hfi_node_ref(survey->nodes[survey->node]);
        x->retry = HFI_RETRY_NONE; /* another node's reply would be useless */
    }
    hfi_call_send(call, NULL, write, answered);
}

/* Clients that have not answered had no time to. */
static void run_out_of_time(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    survey->findings->cut = true;
    survey->findings->unread |= HFI_UNREAD_LOCKS | HFI_UNREAD_PERMITS;
    survey->subscribers_unknown = true;
    snprintf(survey->findings->text, sizeof survey->findings->text,
             "the time limit ended before the server answered");
    succeed(call);
}

void hfi_survey_failed(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    int err = hfi_state_of(call)->exchange.err;
    if (hfi_state_of(call)->exchange.overdue) {
        run_out_of_time(call);
        return;
    }
    if (survey->nodes_len == 0 || err == HF_ECLOSED || err == HF_ECANCELED) {
        hfi_call_finish(call, err);
        return;
    }
    survey->findings->cut = true;
    survey->findings->unread |= HFI_UNREAD_LOCKS | HFI_UNREAD_PERMITS;
    snprintf(survey->findings->text, sizeof survey->findings->text,
             "a server of the cluster did not answer: %s: %.80s",
             hfi_node_name(survey->nodes[survey->node]), call->error.text);
    hfi_error_clear(&call->error);
    go_on(call);
}

/* ---- The first node, and the others ---- */

/* The first server has answered, so the route knows the others. */
static void begin(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    struct hfi_route *route = hfi_redis_of(call->engine)->route;
    survey->begun = true;
    if (hfi_route_has_slots(route)) {
        struct hfi_node *first = hfi_state_of(call)->exchange.node;
        note_node(first, survey);
        route->ops->each(route, note_node, survey);
        for (size_t i = 1; i < survey->nodes_len; i++)
            if (survey->nodes[i] == first) { /* only once */
                hfi_node_unref(first);
                survey->nodes[i] = survey->nodes[--survey->nodes_len];
                break;
            }
    }
    if (survey->nodes_failed)
        hfi_call_fail(call, HF_ENOMEM, "out of memory");
    else
        go_on(call);
}

static void listed(struct hfi_call *call) {
    if (hfi_survey_of(call)->begun)
        go_on(call);
    else
        begin(call);
}

static void list_connections(struct hfi_call *call) {
    hfi_survey_list(call, listed);
}

void hfi_survey(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    state->exchange.name = NULL; /* the call's name is a pattern */
    state->exchange.name_len = 0;
    state->u.survey = calloc(1, sizeof *state->u.survey);
    state->cleanup = drop_survey;
    if (state->u.survey != NULL) {
        state->u.survey->begun_ms = hfi_now_ms();
        state->u.survey->findings = hfi_findings_new();
    }
    if (state->u.survey == NULL || state->u.survey->findings == NULL) {
        hfi_call_fail(call, HF_ENOMEM, "out of memory");
        return;
    }
    if (wants_losses(call))
        hfi_subscribe_announcements(call->engine);
    list_connections(call);
}
