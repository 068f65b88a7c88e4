/*
 * Ownerless counters: a node with a number in it, Curator's SharedCount. An operation reads it,
 * then changes it with a compare-and-set on its version.
 */
#ifndef HFI_ZK_KINDS_COUNTER_H
#define HFI_ZK_KINDS_COUNTER_H

#include "engine/engine.h"
#include "zk/wire/wire.h"

#define HFI_ZK_NUMBER_LEN 4

struct hfi_zk_answer;

/* The queue's parent holds a number, so the name is a counter's. Other data mean nothing: Java
 * clients put their address into every node that they make. */
static inline bool hfi_zk_is_of_a_number(const struct hfi_zk_children *queue) {
    return queue->stat.data_len == HFI_ZK_NUMBER_LEN;
}

/* The counter as read. */
struct hfi_zk_count {
    bool there;
    bool is_number; /* four bytes, and no children */
    int32_t number;
    struct hfi_zk_stat stat;
};

/* The decision about it. */
struct hfi_zk_change {
    enum {
        HFI_ZK_LEAVE, /* no change: the call is over */
        HFI_ZK_AWAIT, /* wait until it changes */
        HFI_ZK_STORE, /* write `number`, creating the node if needed */
        HFI_ZK_REMOVE
    } what;
    int64_t number;
    int64_t value; /* the call's result, when it is done */
    int err;       /* not HF_OK: fail with this and `words` */
    const char *text;
};

static inline struct hfi_zk_change hfi_zk_leave(int64_t value) {
    return (struct hfi_zk_change){.what = HFI_ZK_LEAVE, .value = value};
}

static inline struct hfi_zk_change hfi_zk_store(int64_t number, int64_t value) {
    return (struct hfi_zk_change){.what = HFI_ZK_STORE, .number = number, .value = value};
}

static inline struct hfi_zk_change hfi_zk_remove(void) {
    return (struct hfi_zk_change){.what = HFI_ZK_REMOVE, .value = 1};
}

static inline struct hfi_zk_change hfi_zk_refuse(int err, const char *text) {
    return (struct hfi_zk_change){.what = HFI_ZK_LEAVE, .err = err, .text = text};
}

/* An object that is one counter. */
struct hfi_zk_counter {
    const char *beneath; /* the node's path, relative to the name; NULL: the name itself */
    /* The decision of a call. `first` is what an acquire read first. */
    struct hfi_zk_change (*acquire)(const struct hfi_call *call, const struct hfi_zk_count *found,
                                    const struct hfi_zk_count *first);
    struct hfi_zk_change (*object_op)(const struct hfi_call *call,
                                      const struct hfi_zk_count *found);
    const char *busy; /* the error text if one attempt was not enough */
};

/* Parses the reply to a getData. HF_EPROTO. */
int hfi_zk_read_count(struct hfi_zk_answer *answer, struct hfi_zk_count *ret);

/* For kinds that contain such a counter. */
void hfi_zk_counter_object_op(struct hfi_call *call, const struct hfi_zk_counter *counter);

extern const struct hfi_call_ops hfi_zk_counter_ops;
extern const struct hfi_kind hfi_zk_semaphore, hfi_zk_latch;

#endif
