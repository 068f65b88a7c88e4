/* Shared by the files that parse clients' reports: survey_answers.c, and survey_answer_times.c for
 * latencies. No other file includes this. */
#ifndef HFI_FLEET_SURVEY_ANSWER_H
#define HFI_FLEET_SURVEY_ANSWER_H

#include "base/json.h"
#include "fleet/join.h"

#define HFI_ANSWER_NAME_SIZE 65537

struct hfi_answer_name {
    char *bytes; /* HFI_ANSWER_NAME_SIZE of them */
    size_t len;
};

/* Reads it if the key is that of a name, as text or in hex. *ret_good becomes false if it is
 * invalid. */
bool hfi_answer_read_name(struct hfi_json_reader *reader, const char *key,
                          struct hfi_answer_name *name, bool *ret_good);

void hfi_answer_read_times(struct hfi_json_reader *reader, hf_histogram *times);
/* For the client; NULL: they are only skipped. */
void hfi_answer_read_names(struct hfi_join *join, struct hfi_json_reader *reader,
                           hf_fleet_client *client, struct hfi_answer_name *name);

/* A count is never negative, whatever a report says. */
static inline uint64_t hfi_counted(int64_t number) {
    return number > 0 ? (uint64_t)number : 0;
}

#endif
