/*
 * Queries to all servers, and breaking a lock at all of them.
 *
 * The answer is complete when a majority has answered, and the servers not known to be slow had as
 * much time again. But while the missing answers can still decide whether it is locked, it waits
 * for them. A survey of all locks merges the findings of all servers that answered. On the keeper's
 * thread.
 */
#include "joint/quorum/quorum_impl.h"

#include "fleet/survey.h"

struct hfi_survey {
    int refs; /* the request's, and one for each member op */
    struct hfi_quorum *quorum;
    struct hfi_request *request;                 /* NULL: it is over */
    void (*conclude)(struct hfi_survey *survey); /* combines the answers, when enough have come */
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

/* ---- Combining the answers ---- */

/* The value, in ascending order, that a majority does not exceed: so many are free, or were broken,
 * or have at most that much of a lease left. */
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

/* Servers store 1, however often it is nested. If we hold it, as far as we know, servers without an
 * answer may have it, too. */
static int64_t own_count(const struct hfi_survey *survey) {
    const struct hfi_request *request = survey->request;
    const struct hfi_ballot *ballot = hfi_ballot_find(survey->quorum, request->kind, request->name,
                                                      request->name_len, request->owner);
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

/* The info of a server that agrees with the majority. */
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
    request->value = request->query == HFI_QUERY_COUNT ? own_count(survey) : majority_value(survey);
}

static void conclude_inspect(struct hfi_survey *survey) {
    survey->request->info = take_info(survey);
}

_Static_assert(HFI_SERVERS_MAX <= HFI_FOUND_SERVERS_MAX, "each server has a bit");

static void conclude_find(struct hfi_survey *survey) {
    const struct hfi_quorum *quorum = survey->quorum;
    struct hfi_findings *of[HFI_SERVERS_MAX];
    for (size_t i = 0; i < quorum->len; i++) {
        of[i] = survey->of[i].findings;
        survey->of[i].findings = NULL;
    }
    survey->request->findings = hfi_findings_merge(of, quorum->len, quorum->majority);
}

static bool says_locked(const struct hfi_survey *survey, size_t i) {
    const int64_t free_ms = -2;
    if (survey->conclude == conclude_inspect)
        return survey->of[i].info->holders_len > 0;
    return survey->request->query == HFI_QUERY_TTL ? survey->of[i].value != free_ms
                                                   : survey->of[i].value > 0;
}

/* Two of the first three may say that it is locked, while it is free at the other two as well. */
static bool is_decided(const struct hfi_survey *survey) {
    const struct hfi_quorum *quorum = survey->quorum;
    enum hfi_query query = survey->request->query;
    size_t locked = 0, free = 0;
    if (survey->conclude == conclude_break || survey->conclude == conclude_find ||
        query == HFI_QUERY_PING || query == HFI_QUERY_COUNT)
        return true;
    for (size_t i = 0; i < quorum->len; i++) {
        locked += survey->of[i].answered && says_locked(survey, i);
        free += survey->of[i].answered && !says_locked(survey, i);
    }
    return free >= quorum->majority || locked > quorum->len - quorum->majority;
}

/* ---- Collecting the answers ---- */

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
        if (survey->of[i].code != HF_EUNREACH && survey->of[i].code != HF_EUNAVAILABLE) {
            code = survey->of[i].code;
            hard++;
        }
    }
    int err = hard > survey->quorum->len - survey->quorum->majority ? code : HF_ENOQUORUM;
    hfi_fail(&request->error, err, "%zu of %zu servers answered, %zu needed; one error: %.120s",
             answered, survey->quorum->len, survey->quorum->majority,
             first != NULL ? first->text : "nothing");
    finish(survey, err);
}

static void check(struct hfi_survey *survey) {
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
        survey->majority_us = now_us + (took_us < HFI_GRACE_US ? HFI_GRACE_US : took_us);
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
    check(HFI_CONTAINER(alarm, struct hfi_survey, alarm));
}

static void asked(struct hfi_member_op *member_op) {
    struct hfi_survey *survey = member_op->survey;
    size_t i = member_op->index;
    survey->of[i].pending = false;
    survey->of[i].answered = member_op->code == HF_OK;
    survey->of[i].code = member_op->code;
    survey->of[i].error = member_op->error;
    survey->of[i].value = member_op->value;
    survey->of[i].info = member_op->info;
    survey->of[i].findings = member_op->findings;
    check(survey);
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
    bool about_server = request->query == HFI_QUERY_PING || verb == &hfi_verb_survey;
    const struct hfi_member_op_args args = {.kind = HFI_MEMBER_QUERY,
                                            .verb = verb,
                                            .lock = about_server ? NULL : request->kind,
                                            .name = request->name,
                                            .name_len = request->name_len,
                                            .owner = request->owner,
                                            .wait_ms =
                                                verb->waits ? hfi_left_ms(request->deadline_ms) : 0,
                                            .query = request->query,
                                            .wanted = request->wanted};
    for (size_t i = 0; i < quorum->len; i++) {
        struct hfi_member_op *member_op = hfi_member_op_begin(quorum, i, &args, asked);
        survey->of[i].pending = member_op != NULL;
        survey->of[i].code = HF_ENOMEM;
        if (member_op == NULL)
            continue;
        member_op->survey = survey;
        survey->refs++;
    }
    check(survey);
}

void hfi_break_begin(struct hfi_request *request) {
    begin(request, &hfi_verb_break, conclude_break);
}

void hfi_ask_begin(struct hfi_request *request) {
    begin(request, &hfi_verb_query, conclude_question);
}

void hfi_find_begin(struct hfi_request *request) {
    begin(request, &hfi_verb_survey, conclude_find);
}

void hfi_inspect_begin(struct hfi_request *request) {
    begin(request, &hfi_verb_inspect, conclude_inspect);
}
