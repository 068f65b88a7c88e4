/* Kinds: what an engine offers under one name, as const tables. No code outside of an engine
 * switches on the kind; it reads these properties. */
#ifndef HFI_ENGINE_KIND_H
#define HFI_ENGINE_KIND_H

#include <holdfast/holdfast.h>

#include <stdbool.h>
#include <stddef.h>

struct hfi_call_ops;

/* A kind of lock, or an ownerless object, as an engine offers it: a const table. */
struct hfi_kind {
    const char *name;
    const struct hfi_call_ops *ops; /* its operations */
    /* Kinds with the same part share their holds under one name. NULL: the lock has only one
     * part. */
    const char *part;
    bool reentrant;
    bool exclusive; /* one holder at a time: one remote waiter per process is enough */
    bool token;     /* grants carry a fencing token */
    bool queues;    /* fair queue: the server queues waiters, so giving up needs a command */
    bool spins;     /* acquire spins; the caller sets the back-off (hfi_call.spin) */
    bool leaseless; /* no fixed lease: held until released or lost */
    /* The server keeps a hold as long as the client's session, and the client ends a fixed lease
     * itself. Nothing expires on the server while the client lives. */
    bool ends_with_session;
    /* Other clients can shorten the remaining lease of a hold of this kind. So even a fixed lease
     * is set again periodically, up to its end. */
    bool keeps_fresh;
    /* Other owners of the lock may keep a remainder of an ended hold alive. So a renewal that does
     * not find the hold does not prove that nothing is left. */
    bool leaves_traces;
    /* The server knows each hold by a stamp that the engine draws for it (stamp.h), and does not
     * know how often the owner has re-entered. */
    bool stamped;
    bool takes_stamp;    /* the caller may choose that stamp */
    bool takes_no_lease; /* a lock that can be held without a lease: HF_NO_LEASE */
    /* The engine may have the server report changes of a hold, if it does so at all. */
    bool tracked;
    /* A lock made of other locks (core/hold/parts.h): its holds are their holds. The engine of the
     * core that owns it knows nothing of it. */
    bool joint;
    /* joint, and one owner holds its parts for many threads (src/joint/cohort/cohort.h) */
    bool cohort;
    /* An owner that holds a lock of this other kind would wait for itself: HF_EDEADLK. NULL: no
     * such kind. */
    const struct hfi_kind *never_beside;
    /* How many of the first bytes of a lock's name are its stem: the name that other clients know,
     * and that overlapping locks share. NULL: the whole name. */
    size_t (*stem_len)(const char *name, size_t name_len);
    /* Whether two locks of one stem overlap: then no owner may hold both. NULL: each lock has its
     * own stem. Called with a shard locked. */
    bool (*overlap)(const char *a, size_t a_len, const char *b, size_t b_len);
    /* Writes the name of the lock on some values to `to`, independent of their order; returns its
     * length. `to` NULL: returns the size needed. */
    size_t (*name_values)(const void *stem, size_t stem_len, const hf_bytes *values, size_t len,
                          char *to);
    const void *engine_private;
};

/* Surveys and statistics report the parts of a joint lock by name, not the lock itself. The
 * exception is a cohort: no server knows its inner holders and waiters, so the client reports them
 * beside the hold that the server knows. */
static inline bool hfi_kind_is_reported(const struct hfi_kind *kind) {
    return !kind->joint || kind->cohort;
}

static inline size_t hfi_kind_stem_len(const struct hfi_kind *kind, const char *name,
                                       size_t name_len) {
    return kind->stem_len != NULL ? kind->stem_len(name, name_len) : name_len;
}

static inline const char *hfi_kind_part(const struct hfi_kind *kind) {
    return kind->part != NULL ? kind->part : "";
}

/* Ownerless objects: not locks, since no owner holds them. */
enum hfi_object { HFI_SEMAPHORE, HFI_PERMITS, HFI_LATCH };

/* Operations on an ownerless object: one exchange, no waiting. The engine decides which of them an
 * object supports. Input: `amount`, `ttl_ms`, `lease_ms` and `ids` of the call; output: `value`. */
enum hfi_object_op {
    HFI_OBJECT_SET,           /* amount, ttl_ms (0: none); unless it exists. 1: it was set */
    HFI_OBJECT_RESET,         /* amount; unconditionally */
    HFI_OBJECT_ADD,           /* amount, may be negative */
    HFI_OBJECT_PUT,           /* give back: amount, or ids */
    HFI_OBJECT_PUT_IF_EXISTS, /* the same, but only if it exists. 1: it did */
    HFI_OBJECT_DRAIN,         /* take all that are free; how many */
    HFI_OBJECT_COUNT_DOWN,    /* by one */
    HFI_OBJECT_AVAILABLE,     /* how many are free; of a latch: its count */
    HFI_OBJECT_TOTAL,         /* how many exist */
    HFI_OBJECT_TAKEN,         /* how many are taken */
    HFI_OBJECT_EXTEND,        /* ids, lease_ms */
    HFI_OBJECT_LEASE,         /* ids: the remaining lease */
    HFI_OBJECT_EXPIRE,        /* ttl_ms. 1: it existed */
    HFI_OBJECT_DELETE,        /* 1: it existed */
    HFI_OBJECT_OPS
};

#define HFI_ID_LEN 16 /* bytes of a permit's id */

#endif
