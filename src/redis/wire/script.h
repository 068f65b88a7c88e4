/* The Lua scripts, embedded at build time from the .lua files of src/redis/scripts. */
#ifndef HFI_REDIS_WIRE_SCRIPT_H
#define HFI_REDIS_WIRE_SCRIPT_H

#include <stddef.h>

struct hfi_script {
    const char *name;
    const char *body;
    size_t len;
    const char *sha1; /* 40 hexadecimal digits */
};

#define HFI_SHA1_LEN 40

extern const struct hfi_script hfi_script_plain_acquire;
extern const struct hfi_script hfi_script_plain_release;
extern const struct hfi_script hfi_script_plain_break;
extern const struct hfi_script hfi_script_fenced_acquire;
extern const struct hfi_script hfi_script_fenced_extend;
extern const struct hfi_script hfi_script_fair_acquire;
extern const struct hfi_script hfi_script_fair_release;
extern const struct hfi_script hfi_script_fair_give_up;
extern const struct hfi_script hfi_script_fair_break;
extern const struct hfi_script hfi_script_fair_hand_over;
extern const struct hfi_script hfi_script_renew, hfi_script_lease, hfi_script_poll_batch;
extern const struct hfi_script hfi_script_string_acquire;
extern const struct hfi_script hfi_script_string_release;
extern const struct hfi_script hfi_script_string_break;
extern const struct hfi_script hfi_script_string_renew, hfi_script_string_lease;
extern const struct hfi_script hfi_script_read_acquire;
extern const struct hfi_script hfi_script_read_release;
extern const struct hfi_script hfi_script_read_renew;
extern const struct hfi_script hfi_script_write_acquire;
extern const struct hfi_script hfi_script_write_release;
extern const struct hfi_script hfi_script_readwrite_break;
extern const struct hfi_script hfi_script_group_acquire;
extern const struct hfi_script hfi_script_group_release;
extern const struct hfi_script hfi_script_group_renew;
extern const struct hfi_script hfi_script_group_break;
extern const struct hfi_script hfi_script_group_inspect;
extern const struct hfi_script hfi_script_semaphore_set;
extern const struct hfi_script hfi_script_semaphore_acquire;
extern const struct hfi_script hfi_script_semaphore_undo;
extern const struct hfi_script hfi_script_semaphore_change;
extern const struct hfi_script hfi_script_semaphore_drain;
extern const struct hfi_script hfi_script_latch_set;
extern const struct hfi_script hfi_script_latch_count_down;
extern const struct hfi_script hfi_script_latch_read;
extern const struct hfi_script hfi_script_counter_delete;
extern const struct hfi_script hfi_script_permits_acquire;
extern const struct hfi_script hfi_script_permits_release;
extern const struct hfi_script hfi_script_permits_extend;
extern const struct hfi_script hfi_script_permits_lease;
extern const struct hfi_script hfi_script_permits_count;
extern const struct hfi_script hfi_script_permits_set;
extern const struct hfi_script hfi_script_permits_expire;
extern const struct hfi_script hfi_script_permits_delete;
extern const struct hfi_script hfi_script_permits_renew;
extern const struct hfi_script hfi_script_survey_locks;
extern const struct hfi_script hfi_script_survey_permits;

#endif
