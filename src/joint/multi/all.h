/*
 * The kind "all": a multi-lock, held when all of its parts are.
 *
 *   bundle.c       operations on all parts at once, and giving them back
 *   all_acquire.c  acquires all parts, without ever waiting while one is held
 *   all.c          the other operations of the kind
 */
#ifndef HFI_JOINT_MULTI_ALL_H
#define HFI_JOINT_MULTI_ALL_H

#include "joint/multi/bundle.h"

/* Works in any core; its operations have parts (struct hfi_op_args). Its name consists of the
 * text of hf_lock_name(), a zero byte, and bytes without zero that tell locks with the same text
 * apart. */
extern const struct hfi_kind hfi_kind_all;

enum hfi_all_phase {
    HFI_ALL_OVER,      /* nothing in progress */
    HFI_ALL_ASKING,    /* one attempt at each part that is not held */
    HFI_ALL_WAITING,   /* waiting at one part, with nothing held */
    HFI_ALL_PAUSING,   /* random pause before waiting, to get out of step with other clients */
    HFI_ALL_EXTENDING, /* extending the parts acquired first */
    HFI_ALL_RETURNING, /* failed: giving the parts back */
    HFI_ALL_RELEASING,
    HFI_ALL_ANSWERING, /* extend, queries */
};

/* State of a call; owned by its executor's thread. */
struct hfi_all_state {
    struct hfi_bundle *bundle; /* NULL: none */
    struct hfi_call *call;
    enum hfi_all_phase phase;
    bool alarm_set, contended, closing;
    size_t waits_at;
    unsigned defeats;             /* how often it gave everything back, in a row */
    int64_t asked_us, waiting_us; /* start times */
    int err;                      /* HFI_ALL_RETURNING: the error; the text is in the call's */
    struct hfi_alarm alarm;
};

static inline struct hfi_all_state *hfi_all_state_of(const struct hfi_call *call) {
    return call->state;
}

static inline struct hf_op *hfi_all_op_of(struct hfi_call *call) {
    return hfi_op_of_call(call);
}

/* all.c: ends the call, and leaves its bundle, if it still has one. */
void hfi_all_end(struct hfi_call *call, int err);

/* all_acquire.c */
#define HFI_ALL_TIME (HFI_BUNDLE_EVENT << 1) /* the alarm fired */
void hfi_all_acquire(struct hfi_call *call);
void hfi_all_acquire_step(struct hfi_call *call, unsigned events);
void hfi_all_acquire_cancel(struct hfi_call *call, int err);

#endif
