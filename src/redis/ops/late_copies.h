/* Tokens of string locks that a lost copy of a command may still bring to life: they are released
 * in the background. */
#ifndef HFI_REDIS_OPS_LATE_COPIES_H
#define HFI_REDIS_OPS_LATE_COPIES_H

#include "engine/stamp.h"
#include "redis/ops/lost_conns.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hfi_late_copies;
struct hfi_redis;

struct hfi_late_copies *hfi_late_copies_new(struct hfi_redis *redis); /* NULL: out of memory */
/* On the keeper's thread, before the connections go. */
void hfi_late_copies_stop(struct hfi_late_copies *late_copies);
void hfi_late_copies_free(struct hfi_late_copies *late_copies); /* NULL is fine */

/* What a lock may come to have, until `until_ms`, and keep for a lease from then on. */
struct hfi_late_token {
    const struct hfi_stamp *stamp;
    int64_t until_ms, lease_ms;
    int64_t first_ms; /* when to release it first */
    /* with which all copies were lost that could bring it; NULL or none: unknown */
    const struct hfi_lost_conns *lost_conns;
};

/* The token is released when its time has passed, and first at `first_ms`; or only once, if the
 * server has ended the connections of all lost copies before. Any thread; does nothing without
 * memory, or for a token of the caller's choice: the lease ends it. */
void hfi_late_copies_add(struct hfi_redis *redis, const char *name, size_t name_len,
                         const char *owner, size_t owner_len, const struct hfi_late_token *token);

/* An attempt that was sent at `asked_ms` has found this token: it is released at once, if that is
 * still to come, unless that has failed before. True: it is being released, or may have been since
 * that time; another attempt may succeed. False: it is not known, or that was in vain. Any thread. */
bool hfi_late_copies_hurry(struct hfi_redis *redis, const char *name, size_t name_len,
                           const char *token, size_t token_len, int64_t asked_ms);

#endif
