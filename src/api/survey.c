/*
 * A survey of the whole fleet: arguments, and the calls that need no client. The engine collects
 * the findings, and src/fleet joins them into one view. On the caller's thread; stateless.
 */
#include "fleet/survey.h"
#include "fleet/fleet_json.h"

#include "api/client.h"
#include "api/handle.h"
#include "api/versioned_struct.h"

#include <string.h>

#define PATTERN_MAX 256
#define HOUR_MS (3600 * 1000)
#define ALL_WANTS                                                                                  \
    (HF_WANT_HOLDS | HF_WANT_WAITS | HF_WANT_STATS | HF_WANT_HISTOGRAMS | HF_WANT_LOSSES)

static int survey_args(const hf_survey_options *given, hf_fleet **ret_fleet,
                       struct hfi_op_args *args) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_error error;
    hfi_error_clear(&error);
    int err = hfi_versioned_read(&hfi_versioned_survey_options, given, &options, &error);
    if (err != HF_OK)
        return hfi_remember(err, &error);
    if (ret_fleet == NULL)
        return hfi_invalid("the pointer for the survey's result is NULL");
    if (options.limit_ms < 1 || options.limit_ms > HOUR_MS)
        return hfi_invalid("limit_ms must be 1 ms to one hour");
    if ((options.wanted & ~ALL_WANTS) != 0)
        return hfi_invalid("unknown bits in wanted: combine HF_WANT_...");
    const char *pattern = options.pattern != NULL ? options.pattern : "";
    if (strlen(pattern) > PATTERN_MAX)
        return hfi_invalid("the pattern is longer than 256 bytes");
    *args = (struct hfi_op_args){.verb = &hfi_verb_survey,
                                 .name = pattern,
                                 .name_len = strlen(pattern),
                                 .wait_ms = options.limit_ms,
                                 .wanted = options.wanted,
                                 .ret_fleet = ret_fleet};
    return HF_OK;
}

int hf_survey(hf_client *client, const hf_survey_options *options, hf_fleet **ret_fleet) {
    struct hfi_op_args args;
    int err = survey_args(options, ret_fleet, &args);
    return err == HF_OK ? hfi_run_sync(client, &args, NULL) : err;
}

int hf_survey_start(hf_client *client, const hf_survey_options *options, hf_fleet **ret_fleet,
                    hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    int err = survey_args(options, ret_fleet, &args);
    if (err != HF_OK)
        return err;
    if (callback == NULL && ret_op == NULL)
        return hfi_invalid("a survey without a callback needs ret_op, to wait for it");
    args.callback = callback;
    args.user = user;
    return hfi_start_async(client, &args, ret_op);
}

void hf_fleet_free(hf_fleet *fleet) {
    hfi_fleet_free(fleet);
}

int hf_fleet_deadlocks(const hf_fleet *earlier, const hf_fleet *later,
                       hf_deadlocks **ret_deadlocks) {
    if (earlier == NULL || later == NULL || ret_deadlocks == NULL)
        return hfi_invalid("hf_fleet_deadlocks() needs two surveys and a pointer for the result");
    if (later->taken_ms < earlier->taken_ms)
        return hfi_invalid("the second survey is the earlier one");
    return hfi_remember(hfi_fleet_deadlocks(earlier, later, ret_deadlocks), NULL);
}

void hf_deadlocks_free(hf_deadlocks *deadlocks) {
    hfi_deadlocks_free(deadlocks);
}

static int give_text(char *text, char **ret_text) {
    if (text == NULL)
        return hfi_remember(HF_ENOMEM, NULL);
    *ret_text = text;
    return hfi_remember(HF_OK, NULL);
}

int hf_fleet_json(const hf_fleet *fleet, char **ret_text) {
    if (fleet == NULL || ret_text == NULL)
        return hfi_invalid("hf_fleet_json() needs a survey, and a pointer for the text");
    return give_text(hfi_fleet_json(fleet), ret_text);
}

int hf_lock_info_json(const hf_lock_info *info, const char *name, size_t name_len,
                      char **ret_text) {
    if (info == NULL || name == NULL || ret_text == NULL)
        return hfi_invalid(
            "hf_lock_info_json() needs what was found, a name, and a pointer for the "
            "text");
    return give_text(hfi_lock_info_json(name, name_len, info), ret_text);
}
