/* Renewals, and the proofs that they and other calls return. */
#ifndef HFI_ENGINE_RENEWAL_H
#define HFI_ENGINE_RENEWAL_H

#include "engine/kind.h"
#include "engine/stamp.h"

/* What the engine proves about a hold that it has granted, extended or renewed. */
struct hfi_proof {
    /* the hold is ours no longer than this, on our clock, unless proved again */
    int64_t valid_until_ms;
    int64_t renew_at_ms; /* when to renew, if the hold is to last longer */
    /* The end of the lease that was asked for. Later than valid_until_ms: the proof covers a part
     * of the lease, and a renewal can prove more. */
    int64_t promised_until_ms;
};

/* One hold in a renewal. */
struct hfi_renewal_item {
    const struct hfi_kind *kind;
    const char *name;
    size_t name_len;
    const char *owner;
    size_t owner_len;
    struct hfi_stamp stamp; /* of kinds that are `stamped`; its text belongs to the caller */
    /* extend to at least this much from now; 1: only probe it; HF_NO_LEASE: it is to have none */
    int64_t lease_ms;
    int acks; /* as in struct hfi_call */
    /* out: 1 held, 0 gone, HF_EWRONGTYPE: the key holds something else; other HF_E...: no answer
     * for this hold */
    int answer;
    struct hfi_proof proof; /* out, if held */
    bool tracked;           /* out, if held: the server reports the next change of it */
};

/* A renewal of up to HFI_RENEWAL_MAX holds of one node, on the keeper's thread. Several may be in
 * flight at once. */
#define HFI_RENEWAL_MAX 100
struct hfi_renewal {
    const void *node;
    int64_t deadline_ms; /* give up by then */
    size_t len;
    struct hfi_renewal_item items[HFI_RENEWAL_MAX];
    int err;          /* out: HF_OK: read the answers; else no item was answered */
    const char *gone; /* out: why holds are gone, if the engine knows; or NULL */
    hf_error error;   /* out: set if some items had no answer */
    void (*done)(struct hfi_renewal *renewal); /* on the keeper's thread, exactly once */
    void *engine_private;
};

#endif
