/*
 * Questions to all servers, and breaking a lock at all of them. Answered when a majority has, and those
 * that are not known to be slow had as much time again; but not before it is known whether it is locked,
 * if the others can still say so. A survey of all locks is what all that answer have found, together. On
 * the keeper's thread.
 */
#include "joint/internal.h"

#include "engine/findings.h"

#include <stdio.h>
#include <string.h>

struct hfi_survey {
    int refs; /* the request's, and one for each errand */
    struct hfi_quorum *quorum;
    struct hfi_request *request;                 /* NULL: it is over */
    void (*conclude)(struct hfi_survey *survey); /* when enough have answered: what they say */
    struct hfi_alarm alarm;
    int64_t began_us, majority_us;
    struct {
        bool pending, answered;
        int code;
        hf_error error;
        int64_t value;
        hf_lock_info *info;
        struct hfi_findings *findings;
    } of[HFI_SERVERS_MAX];
};

static void unref(struct hfi_survey *survey) {
    if (--survey->refs > 0)
        return;
    for (size_t i = 0; i < survey->quorum->len; i++) {
        hf_lock_info_free(survey->of[i].info);
        hfi_findings_free(survey->of[i].findings);
    }
    hfi_free(survey->quorum->mem, survey);
}

static void finish(struct hfi_survey *survey, int err) {
    struct hfi_request *request = survey->request;
    if (err == HF_OK)
        for (size_t i = 0; i < survey->quorum->len; i++)
            survey->quorum->members[i]->slow |= survey->of[i].pending;
    survey->request = NULL;
    request->survey = NULL;
    hfi_alarm_clear(survey->quorum->keeper, &survey->alarm);
    hfi_request_finish(request, err);
    unref(survey);
}

/* ---- What the answers come to ---- */

/* Of the answers, in ascending order, the one that a majority reaches: so many are free, or were
 * broken, or have that much of a lease left at most. */
static int64_t majority_value(const struct hfi_survey *survey) {
    int64_t values[HFI_SERVERS_MAX] = {0};
    size_t len = 0;
    for (size_t i = 0; i < survey->quorum->len; i++) {
        size_t at = len;
        if (!survey->of[i].answered)
            continue;
        for (; at > 0 && values[at - 1] > survey->of[i].value; at--)
            values[at] = values[at - 1];
        values[at] = survey->of[i].value;
        len++;
    }
    return values[survey->quorum->majority - 1];
}

static int64_t largest_value(const struct hfi_survey *survey) {
    int64_t value = 0;
    for (size_t i = 0; i < survey->quorum->len; i++)
        if (survey->of[i].answered && survey->of[i].value > value)
            value = survey->of[i].value;
    return value;
}

/* Servers store 1, however often it is nested. Those that have not answered may have it if we hold it,
 * as far as we know. */
static int64_t own_count(const struct hfi_survey *survey) {
    const struct hfi_request *request = survey->request;
    const struct hfi_ballot *ballot =
        hfi_ballot_find(survey->quorum, request->name, request->name_len, request->owner);
    bool ours = ballot != NULL && ballot->votes.won;
    size_t held = 0;
    int64_t count = ours ? ballot->count : 0;
    for (size_t i = 0; i < survey->quorum->len; i++) {
        bool says_so = survey->of[i].answered && survey->of[i].value > 0;
        held += says_so || (ours && !survey->of[i].answered);
        if (says_so && survey->of[i].value > count)
            count = survey->of[i].value;
    }
    return held >= survey->quorum->majority ? count : 0;
}

/* That of a server that says what a majority says. */
static hf_lock_info *take_info(struct hfi_survey *survey) {
    size_t held = 0, len = survey->quorum->len;
    for (size_t i = 0; i < len; i++)
        held += survey->of[i].answered && survey->of[i].info->holders_len > 0;
    bool locked = held * 2 >= len;
    size_t chosen = len;
    for (size_t i = 0; i < len; i++)
        if (survey->of[i].answered &&
            (chosen == len || (survey->of[i].info->holders_len > 0) == locked))
            chosen = i;
    hf_lock_info *info = survey->of[chosen].info;
    survey->of[chosen].info = NULL;
    return info;
}

static void conclude_break(struct hfi_survey *survey) {
    survey->request->value = largest_value(survey);
}

static void conclude_question(struct hfi_survey *survey) {
    struct hfi_request *request = survey->request;
    request->value =
        request->question == HFI_ASK_COUNT ? own_count(survey) : majority_value(survey);
}

static void conclude_inspect(struct hfi_survey *survey) {
    survey->request->info = take_info(survey);
}

/* Who hears a question is the same at most of them, so the largest number is taken. */
static void add_findings(struct hfi_findings *to, struct hfi_findings *from) {
    hfi_list_splice(&to->locks, &from->locks);
    hfi_list_splice(&to->answers, &from->answers);
    hfi_list_splice(&to->connections, &from->connections);
    to->taken_ms = hfi_max_ms(to->taken_ms, from->taken_ms);
    to->took_ms = hfi_max_ms(to->took_ms, from->took_ms);
    to->hearers = hfi_max_ms(to->hearers, from->hearers);
    to->hearers_known = to->hearers_known && from->hearers_known;
    to->connections_told = to->connections_told && from->connections_told;
    to->cut = to->cut || from->cut;
    to->unread |= from->unread;
    if (from->words[0] != '\0')
        memcpy(to->words, from->words, sizeof to->words);
}

_Static_assert(HFI_SERVERS_MAX <= HFI_FOUND_SERVERS_MAX, "each server has a bit");

static void note_server(struct hfi_findings *findings, size_t server) {
    for (struct hfi_link *link = findings->locks.next; link != &findings->locks; link = link->next)
        HFI_CONTAINER(link, struct hfi_found_lock, link)->server = server;
}

/* What fewer than a majority can have is no hold: somebody is about to take it, or has failed to. A server that did not answer may
 * have it. */
static void conclude_find(struct hfi_survey *survey) {
    struct hfi_findings *all = NULL;
    size_t missing = 0;
    for (size_t i = 0; i < survey->quorum->len; i++) {
        struct hfi_findings *one = survey->of[i].findings;
        missing += one == NULL;
        if (one != NULL)
            note_server(one, i);
        if (one != NULL && all != NULL) {
            add_findings(all, one);
        } else if (one != NULL) {
            all = one;
            survey->of[i].findings = NULL;
        }
    }
    if (all != NULL)
        all->votes = survey->quorum->majority > missing ? survey->quorum->majority - missing : 1;
    if (all != NULL && missing > 0) {
        all->cut = true;
        snprintf(all->words, sizeof all->words, "%zu of %zu servers did not answer", missing,
                 survey->quorum->len);
    }
    survey->request->findings = all;
}

static bool says_locked(const struct hfi_survey *survey, size_t i) {
    const int64_t free_ms = -2;
    if (survey->conclude == conclude_inspect)
        return survey->of[i].info->holders_len > 0;
    return survey->request->question == HFI_ASK_TTL ? survey->of[i].value != free_ms
                                                    : survey->of[i].value > 0;
}

/* Of the first three that answer two may say that it is locked, while it is free at the other two, too. */
static bool is_decided(const struct hfi_survey *survey) {
    const struct hfi_quorum *quorum = survey->quorum;
    enum hfi_question question = survey->request->question;
    size_t locked = 0, free = 0;
    if (survey->conclude == conclude_break || survey->conclude == conclude_find ||
        question == HFI_ASK_PING || question == HFI_ASK_COUNT)
        return true;
    for (size_t i = 0; i < quorum->len; i++) {
        locked += survey->of[i].answered && says_locked(survey, i);
        free += survey->of[i].answered && !says_locked(survey, i);
    }
    return free >= quorum->majority || locked > quorum->len - quorum->majority;
}

/* ---- Gathering them ---- */

static void fail(struct hfi_survey *survey) {
    struct hfi_request *request = survey->request;
    const hf_error *first = NULL;
    size_t answered = 0, hard = 0;
    int code = HF_OK;
    for (size_t i = 0; i < survey->quorum->len; i++) {
        answered += survey->of[i].answered;
        if (survey->of[i].answered || survey->of[i].pending)
            continue;
        first = first == NULL ? &survey->of[i].error : first;
        if (survey->of[i].code != HF_EUNREACH && survey->of[i].code != HF_EREFUSED) {
            code = survey->of[i].code;
            hard++;
        }
    }
    int err = hard > survey->quorum->len - survey->quorum->majority ? code : HF_ENOQUORUM;
    hfi_fail(&request->error, err, "%zu of %zu servers answered, %zu needed; one says: %.120s",
             answered, survey->quorum->len, survey->quorum->majority,
             first != NULL ? first->text : "nothing");
    finish(survey, err);
}

static void look(struct hfi_survey *survey) {
    const struct hfi_quorum *quorum = survey->quorum;
    size_t pending = 0, fast = 0, answered = 0;
    int64_t now_us = hfi_now_us();
    if (survey->request == NULL)
        return;
    for (size_t i = 0; i < quorum->len; i++) {
        pending += survey->of[i].pending;
        fast += survey->of[i].pending && !quorum->members[i]->slow;
        answered += survey->of[i].answered;
    }
    if (answered >= quorum->majority && survey->majority_us == 0) {
        int64_t took_us = now_us - survey->began_us;
        survey->majority_us = now_us + (took_us < HFI_PATIENCE_US ? HFI_PATIENCE_US : took_us);
    }
    bool in_time = fast == 0 || now_us >= survey->majority_us;
    if (answered >= quorum->majority && in_time && (pending == 0 || is_decided(survey))) {
        survey->conclude(survey);
        finish(survey, HF_OK);
    } else if (pending == 0) {
        fail(survey);
    } else if (answered >= quorum->majority && !in_time) {
        hfi_alarm_set(quorum->keeper, &survey->alarm, survey->majority_us / 1000 + 1);
    }
}

static void alarm_fired(struct hfi_alarm *alarm) {
    look(HFI_CONTAINER(alarm, struct hfi_survey, alarm));
}

static void asked(struct hfi_errand *errand) {
    struct hfi_survey *survey = errand->survey;
    size_t i = errand->index;
    survey->of[i].pending = false;
    survey->of[i].answered = errand->code == HF_OK;
    survey->of[i].code = errand->code;
    survey->of[i].error = errand->error;
    survey->of[i].value = errand->value;
    survey->of[i].info = errand->info;
    survey->of[i].findings = errand->findings;
    look(survey);
    unref(survey);
}

static void stop(struct hfi_request *request, int err) {
    if (request->survey != NULL)
        finish(request->survey, err);
    else
        hfi_request_finish(request, err);
}

static void begin(struct hfi_request *request, const struct hfi_verb *verb,
                  void (*conclude)(struct hfi_survey *survey)) {
    struct hfi_quorum *quorum = request->quorum;
    struct hfi_survey *survey = hfi_zalloc(quorum->mem, sizeof *survey);
    request->stop = stop;
    if (survey == NULL) {
        hfi_request_finish(request, HF_ENOMEM);
        return;
    }
    survey->refs = 1;
    survey->quorum = quorum;
    survey->request = request;
    survey->conclude = conclude;
    survey->alarm.fire = alarm_fired;
    survey->began_us = hfi_now_us();
    request->survey = survey;
    const struct hfi_errand_args args = {
        .kind = HFI_ERRAND_ASK,
        .verb = verb,
        .about_server = request->question == HFI_ASK_PING || verb == &hfi_verb_survey,
        .name = request->name,
        .name_len = request->name_len,
        .owner = request->owner,
        .wait_ms = verb->waits ? hfi_left_ms(request->deadline_ms) : 0,
        .question = request->question,
        .wanted = request->wanted};
    for (size_t i = 0; i < quorum->len; i++) {
        struct hfi_errand *errand = hfi_errand_begin(quorum, i, &args, asked);
        survey->of[i].pending = errand != NULL;
        survey->of[i].code = HF_ENOMEM;
        if (errand == NULL)
            continue;
        errand->survey = survey;
        survey->refs++;
    }
    look(survey);
}

void hfi_break_begin(struct hfi_request *request) {
    begin(request, &hfi_verb_force, conclude_break);
}

void hfi_ask_begin(struct hfi_request *request) {
    begin(request, &hfi_verb_ask, conclude_question);
}

void hfi_find_begin(struct hfi_request *request) {
    begin(request, &hfi_verb_survey, conclude_find);
}

void hfi_inspect_begin(struct hfi_request *request) {
    begin(request, &hfi_verb_inspect, conclude_inspect);
}
