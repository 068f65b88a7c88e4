/* What an error says about each server: "2 of 5 granted, 3 needed; busy: c:6379; no answer:
 * d:6379; no such host: e:6379". On the keeper's thread. */
#include "joint/quorum/quorum_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void add(hf_error *error, const char *format, ...) {
    size_t len = strlen(error->text);
    va_list args;
    va_start(args, format);
    vsnprintf(error->text + len, sizeof error->text - len, format, args);
    va_end(args);
}

/* The list a server belongs to, by its answer; NULL: it has granted. */
static const char *list_of(const struct hfi_ballot *ballot, size_t i) {
    const struct hfi_member_vote *member_vote = &ballot->member_votes[i];
    if (ballot->votes.of[i].held)
        return NULL;
    /* the last answer, since between two attempts no server is asked */
    if (member_vote->hopeless)
        return "no such host";
    switch (member_vote->code) {
    case HF_EBUSY:
        return "busy";
    case HF_OK:
        return "granted and undone";
    case HF_EUNREACH:
    case HF_EINDOUBT:
    case HF_ECANCELED:
        return "no answer";
    default:
        return hf_strerror(member_vote->code);
    }
}

static void add_list(hf_error *error, const struct hfi_ballot *ballot, const char *list,
                     size_t from) {
    add(error, "; %s:", list);
    for (size_t i = from; i < ballot->quorum->len; i++) {
        const char *own = list_of(ballot, i);
        if (own != NULL && strcmp(own, list) == 0)
            add(error, " %s", ballot->quorum->members[i]->node);
    }
}

static bool was_listed(const struct hfi_ballot *ballot, const char *list, size_t before) {
    for (size_t i = 0; i < before; i++) {
        const char *own = list_of(ballot, i);
        if (own != NULL && strcmp(own, list) == 0)
            return true;
    }
    return false;
}

static void add_young(hf_error *error, const struct hfi_ballot *ballot, int64_t now_ms) {
    const struct hfi_votes *votes = &ballot->votes;
    for (size_t i = 0; i < votes->len; i++)
        if (votes->of[i].held && hfi_votes_is_young(votes, i, now_ms))
            add(error, "; started %lld s ago: %s",
                (long long)((now_ms - votes->of[i].up_since_ms) / 1000),
                ballot->quorum->members[i]->node);
}

static void write_error_text(const struct hfi_ballot *ballot, int err, hf_error *error) {
    int64_t now_ms = hfi_now_ms();
    hfi_fail(error, err, "%zu of %zu granted, %zu needed", hfi_votes_count(&ballot->votes, now_ms),
             ballot->votes.len, ballot->quorum->majority);
    for (size_t i = 0; i < ballot->votes.len; i++) {
        const char *list = list_of(ballot, i);
        if (list != NULL && !was_listed(ballot, list, i))
            add_list(error, ballot, list, i);
    }
    add_young(error, ballot, now_ms);
}

void hfi_error_text_of_servers(struct hfi_request *request, int err) {
    if (request->ballot == NULL || request->error.code == err) /* the text is there already */
        return;
    hfi_error_clear(&request->error);
    write_error_text(request->ballot, err, &request->error);
}

void hfi_report_servers(struct hfi_request *request, int err) {
    hf_error reason;
    if (request->ballot == NULL || request->call_status->on_stall == NULL)
        return;
    hfi_error_clear(&reason);
    write_error_text(request->ballot, err, &reason);
    request->call_status->on_stall(request->call_status, &reason);
}

void hfi_log_votes(const struct hfi_ballot *ballot) {
    const struct hfi_log *log = ballot->quorum->log;
    hf_error error;
    if (!hfi_log_is_read(log))
        return; /* most programs have no log */
    write_error_text(ballot, HF_EBUSY, &error);
    hfi_log(log, HF_LOG_INFO, HFI_ABOUT(.name = ballot->name, .name_len = ballot->name_len),
            "'%.*s': %s", (int)ballot->name_len, ballot->name, error.text);
}
