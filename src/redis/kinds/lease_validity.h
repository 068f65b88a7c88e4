/* How long a lease granted by one server is valid on our clock: deadlines and proofs of holds.
 * quorum_validity.h and session_validity.h say the same for a quorum and for ZooKeeper. */
#ifndef HFI_REDIS_KINDS_LEASE_VALIDITY_H
#define HFI_REDIS_KINDS_LEASE_VALIDITY_H

#include "redis/kinds/kind.h"

/* How long the reply to a command that was sent then can be trusted, on our clock. The server
 * started the lease later, but its clock may be faster. */
static inline int64_t hfi_redis_valid_until_ms(const struct hfi_redis *redis,
                                               const struct hfi_kind *kind, int64_t sent_ms,
                                               int64_t lease_ms) {
    int64_t until_ms = hfi_after_ms(sent_ms, hfi_trusted_ms(lease_ms, redis->clock_drift_ppm));
    return until_ms == HFI_NEVER ? until_ms : until_ms - hfi_redis_kind_of(kind)->ends_early_ms;
}

/* What the reply to a command that was sent then proves. The next renewal is planned from then,
 * too: the time that the reply took is gone from the lease. */
static inline struct hfi_proof hfi_proof_of(const struct hfi_redis *redis,
                                            const struct hfi_kind *kind, int64_t sent_ms,
                                            int64_t lease_ms) {
    int64_t until_ms = hfi_redis_valid_until_ms(redis, kind, sent_ms, lease_ms);
    return (struct hfi_proof){.valid_until_ms = until_ms,
                              .renew_at_ms = sent_ms + redis->renew_every_ms,
                              .promised_until_ms = until_ms};
}

/* The same for a renewal by command: of a longer lease a part. */
static inline struct hfi_proof hfi_native_proof_of(const struct hfi_redis *redis,
                                                   const struct hfi_kind *kind, int64_t sent_ms,
                                                   int64_t lease_ms) {
    struct hfi_proof proof =
        hfi_proof_of(redis, kind, sent_ms, hfi_min_ms(lease_ms, redis->watchdog_ms));
    proof.promised_until_ms = hfi_redis_valid_until_ms(redis, kind, sent_ms, lease_ms);
    return proof;
}

#endif
