/*
 * The rule "all": a lock of several that is held when all of them are.
 *
 *   bundle.c       operations on all parts at once, and what gives back
 *   all_acquire.c  getting all of them, without ever waiting while anything is held
 *   all.c          the other operations of the kind
 */
#ifndef HFI_JOINT_ALL_H
#define HFI_JOINT_ALL_H

#include "joint/bundle.h"

/* In any core; its operations have parts (struct hfi_op_args). Its names are what hf_lock_name() tells, a
 * zero byte, and bytes without one by which locks that are called alike are told apart. */
extern const struct hfi_kind hfi_kind_all;

enum hfi_all_phase {
    HFI_ALL_OVER,      /* nothing is under way */
    HFI_ALL_ASKING,    /* one attempt at each that is not held */
    HFI_ALL_WAITING,   /* at one of them, with nothing held */
    HFI_ALL_PAUSING,   /* before that, to get out of step with others */
    HFI_ALL_EXTENDING, /* those that were acquired first */
    HFI_ALL_RETURNING, /* it has failed, and gives back */
    HFI_ALL_RELEASING,
    HFI_ALL_ANSWERING, /* extend, questions */
};

/* Of a call; on its executor's thread. */
struct hfi_all_state {
    struct hfi_bundle *bundle; /* NULL: none */
    struct hfi_call *call;
    enum hfi_all_phase phase;
    bool alarm_set, contended, closing;
    size_t waits_at;
    unsigned defeats;             /* how often it gave back what it had, in a row */
    int64_t asked_us, waiting_us; /* when it began to */
    int err; /* HFI_ALL_RETURNING: what it fails with; the call's error has the words */
    struct hfi_alarm alarm;
};

static inline struct hfi_all_state *hfi_all_state_of(const struct hfi_call *call) {
    return call->state;
}

static inline struct hf_op *hfi_all_op_of(struct hfi_call *call) {
    return hfi_op_of_call(call);
}

/* all.c: it is over for the call, and so is its bundle, if it still has one. */
void hfi_all_end(struct hfi_call *call, int err);

/* all_acquire.c */
#define HFI_ALL_TIME (HFI_BUNDLE_EVENT << 1) /* the alarm has fired */
void hfi_all_acquire(struct hfi_call *call);
void hfi_all_acquire_step(struct hfi_call *call, unsigned events);
void hfi_all_acquire_cancel(struct hfi_call *call, int err);

#endif
