/*
 * A bundle: operations on all parts of a lock of several, at once.
 *
 * Each runs on the keeper of its part's client and writes its outcome to its slot; when none is under way
 * any more, whoever asked is told. A bundle that acquires makes beforehand what gives it back, so that
 * needs no memory; it becomes the share of the hold. Nobody has to wait for a bundle: one that was left
 * alone gives back what it gets.
 */
#ifndef HFI_JOINT_BUNDLE_H
#define HFI_JOINT_BUNDLE_H

#include "core/op.h"

enum hfi_slot_state {
    HFI_SLOT_EMPTY,   /* nothing there is ours */
    HFI_SLOT_ASKED,   /* it is being acquired */
    HFI_SLOT_HELD,    /* it is ours */
    HFI_SLOT_FAILED,  /* it could not be acquired: `code` */
    HFI_SLOT_LEAVING, /* it is being given back */
};

/* Guarded by the bundle. */
struct hfi_slot {
    struct hfi_bundle *bundle;
    struct hf_op *op;        /* under way; referenced */
    struct hf_op *give_back; /* made beforehand; NULL: it has begun, or there is none */
    enum hfi_slot_state state;
    bool contended;
    int code; /* of the last operation */
    int64_t value;
    hf_error error;
};

struct hfi_bundle {
    struct hfi_share share;
    atomic_int refs; /* whoever uses it, and operations under way */
    const struct hfi_mem *mem;
    struct hfi_core *core; /* that has the whole; one of the parts' */
    struct hfi_parts *parts;
    struct hfi_stake **stakes;

    pthread_mutex_t mtx;
    struct hfi_task *task; /* referenced: told when nothing is under way any more; NULL: nobody */
    bool unwanted;         /* what is granted from now on is given back */
    size_t under_way;
    struct hfi_slot slots[];
};

#define HFI_BUNDLE_EVENT (1u << HFI_ENGINE_EVENT_SHIFT) /* for its task */

/* `call` is told of it. `holds`: it can acquire. NULL: out of memory. */
struct hfi_bundle *hfi_bundle_new(struct hfi_call *call, bool holds);
void hfi_bundle_unref(struct hfi_bundle *bundle);

/* Begins an operation on a part; only what is different for this one is given in `args`. HF_ENOMEM, or
 * HF_OK: the rest is in the slot. */
int hfi_bundle_begin(struct hfi_bundle *bundle, size_t i, struct hfi_op_args *args);
bool hfi_bundle_is_idle(struct hfi_bundle *bundle);
/* Gives back what is held, and stops asking. */
void hfi_bundle_give_back(struct hfi_bundle *bundle);
/* From now on this call is told; NULL: nobody is. */
void hfi_bundle_tell(struct hfi_bundle *bundle, struct hfi_call *call);
/* Nobody waits for it any more; it is not to be touched afterwards. */
void hfi_bundle_leave_alone(struct hfi_bundle *bundle);

static inline struct hfi_bundle *hfi_bundle_of_share(struct hfi_share *share) {
    return HFI_CONTAINER(share, struct hfi_bundle, share);
}

/* The error of a part, with its name. Of a bundle that is idle. */
int hfi_bundle_error(const struct hfi_bundle *bundle, size_t i, hf_error *error);
/* The worst of all; HF_OK: there is none. */
int hfi_bundle_worst(const struct hfi_bundle *bundle, hf_error *error);

#endif
