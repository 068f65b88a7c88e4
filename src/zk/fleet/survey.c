/*
 * A survey: holders and waiters of all locks, read from the tree beneath chroot and prefix. Writes
 * nothing.
 *
 *   sync, exists(top) -> list -> for each name: exists -> list -> data of queued nodes ... -> done
 *
 * Called by src/core through the fleet view's door, on the thread of the call's executor. It works off
 * a list of requests, as many in one write as a step may have; their replies (survey_tree.c) add
 * more. The deepest come first, so the list stays about as long as the widest nodes. `exists` comes
 * before the list: a list too long for a message would be sent for nothing.
 *
 * Every waiter has a node in the queue, Java's too, and each node belongs to a session, so no
 * client has to be asked. The replies are of different moments; nothing is decided by them.
 */
#include "zk/fleet/survey.h"

#include "base/clock.h"
#include "base/error.h"
#include "zk/fleet/observe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NODES_MAX 500000 /* nodes found: other trees may be on the same servers */
#define LAST_MS 100      /* nothing is begun this close to the deadline */
#define LOST_MAX 3       /* lost replies, in a row */

static void go_on(struct hfi_zk_call *c);

static void drop_requests(struct hfi_zk_survey *survey) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&survey->requests)) != NULL)
        hfi_free(survey->mem, HFI_CONTAINER(link, struct hfi_zk_request, link));
    for (size_t i = 0; i < survey->batch_len; i++)
        hfi_free(survey->mem, survey->batch[i]);
    survey->batch_len = 0;
}

static void drop_survey(struct hfi_zk_call *c) {
    struct hfi_zk_survey *survey = c->u.survey;
    c->asks = c->few_asks; /* all are dropped by now */
    c->answers = c->few_answers;
    c->room = HFI_ZK_ASKS;
    if (survey == NULL)
        return;
    drop_requests(survey);
    hfi_findings_free(survey->findings);
    hfi_free(survey->mem, survey);
    c->u.survey = NULL;
}

void hfi_zk_survey_cut(struct hfi_zk_survey *survey, const char *text) {
    struct hfi_findings *findings = survey->findings;
    findings->cut = true;
    if (findings->text[0] == '\0')
        snprintf(findings->text, sizeof findings->text, "%s", text);
}

/* ---- Requests ---- */

void hfi_zk_survey_add(struct hfi_zk_survey *survey, enum hfi_zk_request_kind kind,
                       const char *path, struct hfi_zk_text child, struct hfi_found_lock *lock,
                       size_t owner) {
    bool beneath_root = strcmp(path, "/") == 0 && child.len > 0;
    size_t len = beneath_root ? 0 : strlen(path);
    size_t all = len + (child.len > 0) + child.len;
    if (survey->nodes >= NODES_MAX) {
        hfi_zk_survey_cut(survey, "there are more nodes than a survey reads");
        return;
    }
    if (all >= HFI_ZK_PATH_MAX)
        return; /* no lock's name is that long */
    struct hfi_zk_request *request = hfi_alloc(survey->mem, sizeof *request + all + 1);
    if (request == NULL) {
        survey->failed = true;
        return;
    }
    *request = (struct hfi_zk_request){.kind = kind, .lock = lock, .owner = owner, .len = all};
    memcpy(request->path, path, len);
    if (child.len > 0) {
        request->path[len] = '/';
        memcpy(request->path + len + 1, child.bytes, child.len);
    }
    request->path[all] = '\0';
    survey->nodes++;
    hfi_list_push_front(&survey->requests, &request->link);
}

static void write_batch(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    const struct hfi_zk_survey *survey = c->u.survey;
    for (size_t i = 0; i < survey->batch_len; i++) {
        const struct hfi_zk_request *request = survey->batch[i];
        if (request->kind == HFI_ZK_REQUEST_CHECK || request->kind == HFI_ZK_REQUEST_SESSION)
            hfi_zk_put_exists(out, 0, request->path, false);
        else if (request->kind == HFI_ZK_REQUEST_DATA)
            hfi_zk_put_get_data(out, 0, request->path, false);
        else
            hfi_zk_put_get_children(out, 0, request->path, false);
    }
}

static const char *why_cut(int32_t err) {
    return err == HFI_ZK_NO_AUTH    ? "this user may not list some nodes"
           : err == HFI_ZK_TOO_LONG ? "a list of nodes is longer than a reply may be"
                                    : "some nodes could not be listed";
}

/* A node whose data cannot be read still has a session. */
static void refused(struct hfi_zk_survey *survey, const struct hfi_zk_request *request,
                    int32_t err) {
    static const struct hfi_zk_text itself = {.bytes = "", .len = 0};
    if (request->kind == HFI_ZK_REQUEST_DATA)
        hfi_zk_survey_add(survey, HFI_ZK_REQUEST_SESSION, request->path, itself, request->lock,
                          request->owner);
    else
        hfi_zk_survey_cut(survey, why_cut(err));
}

static void note_answer(struct hfi_zk_survey *survey) {
    survey->lost = 0;
    survey->answered_ms = hfi_now_ms();
}

static void batch_answered(struct hfi_zk_call *c) {
    struct hfi_zk_survey *survey = c->u.survey;
    int err = HF_OK;
    c->number = 0;
    note_answer(survey);
    for (size_t i = 0; i < survey->batch_len && err == HF_OK; i++) {
        struct hfi_zk_request *request = survey->batch[i];
        if (c->answers[i].err == HFI_ZK_OK)
            err = hfi_zk_survey_found(survey, request, &c->answers[i].body);
        else if (c->answers[i].err != HFI_ZK_NO_NODE) /* deleted meanwhile */
            refused(survey, request, c->answers[i].err);
    }
    if (err != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    for (size_t i = 0; i < survey->batch_len; i++)
        hfi_free(survey->mem, survey->batch[i]);
    survey->batch_len = 0;
    go_on(c);
}

/* A server that greets and then closes each connection is not reached, either: no more than
 * connect_timeout_ms are spent on it, as in other calls. */
static void step_lost(struct hfi_zk_call *c) {
    struct hfi_zk_survey *survey = c->u.survey;
    c->number = 0;
    bool too_long = hfi_now_ms() - survey->answered_ms >= c->zk->connect_timeout_ms;
    if (++survey->lost > LOST_MAX || too_long)
        hfi_zk_call_fail(c, HF_EUNREACH, "the connection keeps breaking");
    else
        hfi_zk_ask_for(c, c->step);
}

/* ---- The walk ---- */

/* Drops owners without data: their nodes were deleted meanwhile. */
static void drop_the_unknown(struct hfi_found_lock *lock) {
    size_t kept = 0;
    for (size_t i = 0; i < lock->owners_len; i++)
        if (lock->owners[i].owner[0] != '\0')
            lock->owners[kept++] = lock->owners[i];
    lock->owners_len = kept;
}

static void succeed(struct hfi_zk_call *c) {
    struct hfi_zk_survey *survey = c->u.survey;
    struct hfi_findings *findings = survey->findings;
    for (struct hfi_link *link = findings->locks.next; link != &findings->locks; link = link->next)
        drop_the_unknown(HFI_CONTAINER(link, struct hfi_found_lock, link));
    findings->taken_ms = hfi_now_ms();
    findings->took_ms = findings->taken_ms - survey->begun_ms;
    c->call->findings = findings;
    survey->findings = NULL;
    hfi_zk_call_finish(c, HF_OK);
}

static bool is_late(const struct hfi_zk_call *c) {
    return c->call->deadline_ms != HFI_NEVER && hfi_now_ms() >= c->call->deadline_ms - LAST_MS;
}

static void run_out_of_time(struct hfi_zk_call *c) {
    hfi_zk_survey_cut(c->u.survey, "the time limit ended before ZooKeeper answered");
    succeed(c);
}

static void go_on(struct hfi_zk_call *c) {
    struct hfi_zk_survey *survey = c->u.survey;
    if (survey->failed) {
        hfi_zk_call_fail(c, HF_ENOMEM, "out of memory");
        return;
    }
    if (is_late(c) && !hfi_list_empty(&survey->requests)) {
        hfi_zk_survey_cut(survey, "the time limit ended before all nodes were read");
        drop_requests(survey);
    }
    while (survey->batch_len < HFI_ZK_ASKS_MANY && !hfi_list_empty(&survey->requests))
        survey->batch[survey->batch_len++] =
            HFI_CONTAINER(hfi_list_pop_front(&survey->requests), struct hfi_zk_request, link);
    if (survey->batch_len == 0) {
        succeed(c);
        return;
    }
    survey->step = (struct hfi_zk_step){.frames = survey->batch_len,
                                        .tolerant = true,
                                        .write = write_batch,
                                        .answered = batch_answered,
                                        .lost = step_lost};
    hfi_zk_ask_for(c, &survey->step);
}

/* ---- Start ---- */

/* A lagging server must first know what the others did before this survey. */
static void write_sync(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    hfi_zk_put_sync(out, 0, c->zk->chroot[0] != '\0' ? c->zk->chroot : "/");
}

static void synced(struct hfi_zk_call *c) {
    c->number = 0;
    note_answer(c->u.survey);
    go_on(c);
}

static const struct hfi_zk_step sync_step = {
    .frames = 1, .tolerant = true, .write = write_sync, .answered = synced, .lost = step_lost};

static void over(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, HF_EUNREACH, "the ZooKeeper session has ended");
}

static int64_t wall_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts); /* ctime is by the servers' wall clock */
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Length of the pattern's literal prefix. */
static size_t literal_len(const char *pattern, size_t len) {
    size_t literal = 0;
    while (literal < len && strchr("*?[\\", pattern[literal]) == NULL)
        literal++;
    return literal;
}

/* The walk begins at the node above all names. */
static void set_out(struct hfi_zk_survey *survey) {
    static const struct hfi_zk_text itself = {.bytes = "", .len = 0};
    char top[HFI_ZK_PATH_MAX];
    survey->base_len = hfi_zk_path(survey->names, "", 0, survey->base);
    size_t parent_len = hfi_zk_parent_len(survey->base, survey->base_len);
    survey->top_len = parent_len > 0 ? parent_len : 1;
    memcpy(top, survey->base, survey->top_len);
    top[survey->top_len] = '\0';
    hfi_zk_survey_add(survey, HFI_ZK_REQUEST_CHECK, top, itself, NULL, 0);
}

void hfi_zk_survey(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    struct hfi_zk_survey *survey = hfi_zalloc(c->zk->mem, sizeof *survey);
    c->session_over = over;
    c->overdue = run_out_of_time;
    c->u.survey = survey;
    c->cleanup = drop_survey;
    if (survey == NULL || (survey->findings = hfi_findings_new()) == NULL) {
        if (survey != NULL)
            hfi_free(c->zk->mem, survey);
        c->u.survey = NULL;
        hfi_zk_call_fail(c, HF_ENOMEM, "out of memory");
        return;
    }
    c->asks = survey->asks;
    c->answers = survey->answers;
    c->room = HFI_ZK_ASKS_MANY;
    survey->mem = c->zk->mem;
    survey->names = &c->zk->names;
    survey->pattern = call->name;
    survey->pattern_len = call->name_len;
    survey->literal_len = literal_len(call->name, call->name_len);
    survey->begun_ms = survey->answered_ms = hfi_now_ms();
    survey->wall_ms = wall_ms();
    survey->findings->subscribers = 0; /* no clients are asked, so none is missing */
    survey->findings->connections_known = true;
    hfi_list_init(&survey->requests);
    set_out(survey);
    hfi_zk_ask_for(c, &sync_step);
}
