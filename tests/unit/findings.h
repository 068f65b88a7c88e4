/* What an engine may have found in a survey, written down by hand, and joined (fleet/survey.h). */
#ifndef HF_TEST_UNIT_FINDINGS_H
#define HF_TEST_UNIT_FINDINGS_H

#include "fleet/survey.h"
#include "support/case.h"

#define A "aaaaaaaa-0000-4000-8000-000000000001"
#define B "bbbbbbbb-0000-4000-8000-000000000002"
#define C "cccccccc-0000-4000-8000-000000000003"

/* Found by a server, as these tests write it down. */
static inline struct hfi_findings *begin(int64_t taken_ms) {
    struct hfi_findings *findings = hfi_findings_new();
    assert_non_null(findings);
    findings->taken_ms = taken_ms;
    findings->connections_known = true;
    findings->subscribers = 0;
    return findings;
}

/* `owners` ends with NULL; the first holds, the others wait in the queue. */
static inline struct hfi_found_lock *found(struct hfi_findings *findings, const char *name,
                                           const char *const *owners) {
    struct hfi_found_lock *lock = calloc(1, sizeof *lock + strlen(name) + 1);
    assert_non_null(lock);
    lock->owners = calloc(8, sizeof *lock->owners);
    assert_non_null(lock->owners);
    lock->ttl_ms = 30000;
    lock->listeners = lock->available = -1;
    lock->name_len = strlen(name);
    memcpy(lock->name, name, lock->name_len);
    for (; owners[lock->owners_len] != NULL; lock->owners_len++) {
        struct hfi_found_owner *owner = &lock->owners[lock->owners_len];
        snprintf(owner->owner, sizeof owner->owner, "%s", owners[lock->owners_len]);
        owner->count = lock->owners_len == 0;
        owner->left_ms = owner->count > 0 ? lock->ttl_ms : -1;
    }
    lock->kind = lock->owners_len > 1 ? HFI_FOUND_FAIR : HFI_FOUND_PLAIN;
    hfi_list_push_back(&findings->locks, &lock->link);
    return lock;
}

static inline void answered(struct hfi_findings *findings, const char *text) {
    size_t len = strlen(text);
    struct hfi_found_answer *answer = malloc(sizeof *answer + len + 1);
    assert_non_null(answer);
    *answer = (struct hfi_found_answer){.len = len};
    memcpy(answer->text, text, len + 1);
    hfi_list_push_back(&findings->answers, &answer->link);
    findings->subscribers++;
}

static inline hf_fleet *join(struct hfi_findings *findings) {
    hf_fleet *fleet = hfi_fleet_join(findings, "", 0);
    assert_non_null(fleet);
    hfi_findings_free(findings);
    return fleet;
}

#define HOLD(name, owner)                                                                          \
    "{\"name\":\"" name "\",\"kind\":\"plain\",\"owner\":\"" owner                                 \
    "\",\"for_ms\":9000,\"left_ms\":20000,\"count\":1,\"renewed\":1}"
#define WAIT(name, owner, for_ms, left_ms)                                                         \
    "{\"name\":\"" name "\",\"kind\":\"plain\",\"owner\":\"" owner "\",\"for_ms\":" #for_ms        \
    ",\"left_ms\":" #left_ms "}"
#define ANSWER(id, more, waits, holds)                                                             \
    "{\"v\":1,\"id\":\"" id "\",\"name\":\"holdfast:" id ":host:12:prog\"," more                   \
    "\"waits\":[" waits "],\"holds\":[" holds "]}"

#endif
