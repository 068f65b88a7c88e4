/* A client's report to a survey: a JSON text, which the asker parses in survey_answers.c.
 *
 * The core has the data (src/core/observe/survey_report.c), and the engine received the request and
 * sends the text. */
#ifndef HFI_FLEET_REPORT_H
#define HFI_FLEET_REPORT_H

#include "base/json.h"
#include "engine/observe.h"

/* One hold or wait of this client. */
struct hfi_survey_entry {
    bool waits; /* else it holds */
    const struct hfi_kind *kind;
    const char *name;
    size_t name_len;
    const char *owner;
    size_t owner_len;
    int64_t count;   /* how often it is held */
    int64_t for_ms;  /* age of the hold or wait */
    int64_t left_ms; /* how long the hold is proved, or the wait goes on; -1: no limit */
    bool renewed;
    const char *thread; /* the name of its thread; "": none */
};

/* The client itself. */
struct hfi_survey_client {
    const char *id;
    int64_t up_ms;
    const char *under; /* the owner for whom its process was started; NULL: unknown */
    uint64_t acquired, contended, timed_out, released, renewals, losses, renew_failures;
    hf_histogram wait, hold, hand_over;
};

/* Latencies of one name: acquires, holds and hand-overs. */
struct hfi_named_times {
    const char *name;
    size_t name_len;
    uint64_t begun; /* a new number whenever counting restarted */
    hf_histogram wait, hold, hand_over;
};

/* Both are called with a mutex locked, so they must not call back. */
typedef void hfi_survey_entry_fn(void *arg, const struct hfi_survey_entry *entry);
typedef void hfi_named_times_fn(void *arg, const struct hfi_named_times *times);

/* Where the data are. */
struct hfi_report_source {
    /* False: this client reports no more than that it is there. */
    bool (*client)(void *arg, struct hfi_survey_client *ret);
    void (*entries)(void *arg, hfi_survey_entry_fn *visit, void *visit_arg);
    void (*times)(void *arg, hfi_named_times_fn *visit, void *visit_arg);
    void *arg;
};

/* As `report` of struct hfi_reporter. */
bool hfi_report_write(const struct hfi_report_request *request,
                      const struct hfi_report_source *source, struct hfi_json *json);

#endif
