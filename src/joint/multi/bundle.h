/*
 * A bundle: operations on all parts of a multi-lock at once.
 *
 * Each operation runs on the keeper of its part's client and writes its outcome to its slot. When
 * none is in progress any more, an event is posted to the bundle's task. A bundle that acquires
 * allocates its give-back operations beforehand, so giving back needs no memory; it becomes the
 * share of the hold. No caller has to wait for a bundle: an abandoned one gives back whatever it is
 * granted.
 */
#ifndef HFI_JOINT_MULTI_BUNDLE_H
#define HFI_JOINT_MULTI_BUNDLE_H

#include "core/op/op.h"

enum hfi_slot_state {
    HFI_SLOT_EMPTY,   /* nothing there is ours */
    HFI_SLOT_ASKED,   /* being acquired */
    HFI_SLOT_HELD,    /* held */
    HFI_SLOT_FAILED,  /* the acquire failed: `code` */
    HFI_SLOT_LEAVING, /* being given back */
};

/* Guarded by the bundle's mutex. */
struct hfi_slot {
    struct hfi_bundle *bundle;
    struct hf_op *op;        /* in progress; referenced */
    struct hf_op *give_back; /* allocated beforehand; NULL: already begun, or none */
    enum hfi_slot_state state;
    bool contended;
    int code; /* of the last operation */
    int64_t value;
    hf_error error;
};

struct hfi_bundle {
    struct hfi_share share;
    atomic_int refs; /* its users, and operations in progress */
    const struct hfi_mem *mem;
    struct hfi_core *core; /* the core of the whole; also that of one of the parts */
    struct hfi_parts *parts;
    struct hfi_stake **stakes;

    pthread_mutex_t mtx;
    struct hfi_task *task; /* referenced: gets the event when nothing is in progress; NULL: none */
    bool unwanted;         /* grants from now on are given back */
    size_t under_way;
    struct hfi_slot slots[];
};

#define HFI_BUNDLE_EVENT (1u << HFI_ENGINE_EVENT_SHIFT) /* for its task */

/* `call` gets its events. `holds`: it can acquire. NULL: out of memory. */
struct hfi_bundle *hfi_bundle_new(struct hfi_call *call, bool holds);
void hfi_bundle_unref(struct hfi_bundle *bundle);

/* Begins an operation on a part; `args` has only what is specific to this operation. HF_ENOMEM, or
 * HF_OK: the outcome comes in the slot. */
int hfi_bundle_begin(struct hfi_bundle *bundle, size_t i, struct hfi_op_args *args);
bool hfi_bundle_is_idle(struct hfi_bundle *bundle);
/* Gives back what is held, and cancels pending acquires. */
void hfi_bundle_give_back(struct hfi_bundle *bundle);
/* From now on this call gets the events; NULL: none. */
void hfi_bundle_report(struct hfi_bundle *bundle, struct hfi_call *call);
/* The caller is done with it and must not touch it afterwards. */
void hfi_bundle_leave_alone(struct hfi_bundle *bundle);

static inline struct hfi_bundle *hfi_bundle_of_share(struct hfi_share *share) {
    return HFI_CONTAINER(share, struct hfi_bundle, share);
}

/* The error of a part, with its name. The bundle must be idle. */
int hfi_bundle_error(const struct hfi_bundle *bundle, size_t i, hf_error *error);
/* The worst error of all parts; HF_OK: none. */
int hfi_bundle_worst(const struct hfi_bundle *bundle, hf_error *error);

#endif
