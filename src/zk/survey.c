/*
 * A survey: who holds what, and who waits, out of the tree beneath the chroot and the prefix. Nothing is written.
 *
 *   sync, exists(top) -> list -> for each name: exists -> list -> data of who is in line ... -> done
 *
 * Called by src/core through the engine's table, on the thread of the call's executor. What is to be asked is a list of
 * errands, of which so many go together in one write as one step may have; what they find (survey_tree.c) adds more. The deepest come
 * first, so the list stays about as long as the widest nodes are. A node is looked at before it is listed: a list that is
 * longer than a message may be would be sent for nothing.
 *
 * Everybody who waits stands in the line, Java's clients too, and each node belongs to a session, so nobody has to be asked.
 * The answers are of different moments; nothing is decided by them.
 */
#include "zk/survey.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NODES_MAX 500000 /* that are heard of: other trees may be on the same servers */
#define LAST_MS 100      /* so long before its end nothing is begun any more */
#define LOST_MAX 3       /* answers, in a row */

static void go_on(struct hfi_zk_call *c);

static void drop_errands(struct hfi_zk_survey *survey) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&survey->errands)) != NULL)
        hfi_free(survey->mem, HFI_CONTAINER(link, struct hfi_zk_errand, link));
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
    drop_errands(survey);
    hfi_findings_free(survey->findings);
    hfi_free(survey->mem, survey);
    c->u.survey = NULL;
}

void hfi_zk_survey_cut(struct hfi_zk_survey *survey, const char *words) {
    struct hfi_findings *findings = survey->findings;
    findings->cut = true;
    if (findings->words[0] == '\0')
        snprintf(findings->words, sizeof findings->words, "%s", words);
}

/* ---- Errands ---- */

void hfi_zk_survey_add(struct hfi_zk_survey *survey, enum hfi_zk_errand_kind kind, const char *path,
                       struct hfi_zk_text child, struct hfi_found_lock *lock, size_t owner) {
    bool beneath_root = strcmp(path, "/") == 0 && child.len > 0;
    size_t len = beneath_root ? 0 : strlen(path);
    size_t all = len + (child.len > 0) + child.len;
    if (survey->nodes >= NODES_MAX) {
        hfi_zk_survey_cut(survey, "there are more nodes than a survey looks at");
        return;
    }
    if (all >= HFI_ZK_PATH_MAX)
        return; /* no name of a lock is that long */
    struct hfi_zk_errand *errand = hfi_alloc(survey->mem, sizeof *errand + all + 1);
    if (errand == NULL) {
        survey->failed = true;
        return;
    }
    *errand = (struct hfi_zk_errand){.kind = kind, .lock = lock, .owner = owner, .len = all};
    memcpy(errand->path, path, len);
    if (child.len > 0) {
        errand->path[len] = '/';
        memcpy(errand->path + len + 1, child.bytes, child.len);
    }
    errand->path[all] = '\0';
    survey->nodes++;
    hfi_list_push_front(&survey->errands, &errand->link);
}

static void write_batch(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    const struct hfi_zk_survey *survey = c->u.survey;
    for (size_t i = 0; i < survey->batch_len; i++) {
        const struct hfi_zk_errand *errand = survey->batch[i];
        if (errand->kind == HFI_ZK_ERRAND_LOOK || errand->kind == HFI_ZK_ERRAND_SESSION)
            hfi_zk_put_exists(out, 0, errand->path, false);
        else if (errand->kind == HFI_ZK_ERRAND_DATA)
            hfi_zk_put_get_data(out, 0, errand->path, false);
        else
            hfi_zk_put_get_children(out, 0, errand->path, false);
    }
}

static const char *why_cut(int32_t err) {
    return err == HFI_ZK_NO_AUTH    ? "some nodes may not be listed by this user"
           : err == HFI_ZK_TOO_LONG ? "a list of nodes is longer than an answer may be"
                                    : "some nodes could not be listed";
}

/* Whose data cannot be read has a session all the same. */
static void refused(struct hfi_zk_survey *survey, const struct hfi_zk_errand *errand, int32_t err) {
    static const struct hfi_zk_text itself = {.bytes = "", .len = 0};
    if (errand->kind == HFI_ZK_ERRAND_DATA)
        hfi_zk_survey_add(survey, HFI_ZK_ERRAND_SESSION, errand->path, itself, errand->lock,
                          errand->owner);
    else
        hfi_zk_survey_cut(survey, why_cut(err));
}

static void batch_answered(struct hfi_zk_call *c) {
    struct hfi_zk_survey *survey = c->u.survey;
    int err = HF_OK;
    c->number = 0;
    survey->lost = 0;
    for (size_t i = 0; i < survey->batch_len && err == HF_OK; i++) {
        struct hfi_zk_errand *errand = survey->batch[i];
        if (c->answers[i].err == HFI_ZK_OK)
            err = hfi_zk_survey_found(survey, errand, &c->answers[i].body);
        else if (c->answers[i].err != HFI_ZK_NO_NODE) /* gone meanwhile */
            refused(survey, errand, c->answers[i].err);
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

static void batch_lost(struct hfi_zk_call *c) {
    struct hfi_zk_survey *survey = c->u.survey;
    c->number = 0;
    if (++survey->lost > LOST_MAX)
        hfi_zk_call_fail(c, HF_EUNREACH, "the connection is lost again and again");
    else
        hfi_zk_ask_for(c, &survey->step);
}

/* ---- The walk ---- */

/* Those of whom nothing came to be known have left meanwhile. */
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

static void go_on(struct hfi_zk_call *c) {
    struct hfi_zk_survey *survey = c->u.survey;
    if (survey->failed) {
        hfi_zk_call_fail(c, HF_ENOMEM, "out of memory");
        return;
    }
    if (is_late(c) && !hfi_list_empty(&survey->errands)) {
        hfi_zk_survey_cut(survey, "the time was over before all nodes were read");
        drop_errands(survey);
    }
    while (survey->batch_len < HFI_ZK_ASKS_MANY && !hfi_list_empty(&survey->errands))
        survey->batch[survey->batch_len++] =
            HFI_CONTAINER(hfi_list_pop_front(&survey->errands), struct hfi_zk_errand, link);
    if (survey->batch_len == 0) {
        succeed(c);
        return;
    }
    survey->step = (struct hfi_zk_step){.frames = survey->batch_len,
                                        .tolerant = true,
                                        .write = write_batch,
                                        .answered = batch_answered,
                                        .lost = batch_lost};
    hfi_zk_ask_for(c, &survey->step);
}

/* ---- The beginning ---- */

/* A server that lags behind is to know what the others did before we asked. */
static void write_sync(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    hfi_zk_put_sync(out, 0, c->zk->chroot[0] != '\0' ? c->zk->chroot : "/");
}

static void synced(struct hfi_zk_call *c) {
    c->number = 0;
    go_on(c);
}

static const struct hfi_zk_step sync_step = {
    .frames = 1, .tolerant = true, .write = write_sync, .answered = synced};

static void over(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, HF_EUNREACH, "the session with ZooKeeper is over");
}

static int64_t wall_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts); /* nodes say when they were made, by the servers' clock */
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* How much of a pattern is no pattern. */
static size_t literal_len(const char *pattern, size_t len) {
    size_t literal = 0;
    while (literal < len && strchr("*?[\\", pattern[literal]) == NULL)
        literal++;
    return literal;
}

/* The walk begins with the node that all names are beneath. */
static void set_out(struct hfi_zk_survey *survey) {
    static const struct hfi_zk_text itself = {.bytes = "", .len = 0};
    char top[HFI_ZK_PATH_MAX];
    survey->base_len = hfi_zk_path(survey->names, "", 0, survey->base);
    size_t parent_len = hfi_zk_parent_len(survey->base, survey->base_len);
    survey->top_len = parent_len > 0 ? parent_len : 1;
    memcpy(top, survey->base, survey->top_len);
    top[survey->top_len] = '\0';
    hfi_zk_survey_add(survey, HFI_ZK_ERRAND_LOOK, top, itself, NULL, 0);
}

void hfi_zk_survey(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    struct hfi_zk_survey *survey = hfi_zalloc(c->zk->mem, sizeof *survey);
    c->session_over = over;
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
    survey->begun_ms = hfi_now_ms();
    survey->wall_ms = wall_ms();
    survey->findings->hearers = 0; /* there is nobody to ask, and nobody is missed */
    survey->findings->connections_told = true;
    hfi_list_init(&survey->errands);
    set_out(survey);
    hfi_zk_ask_for(c, &sync_step);
}
