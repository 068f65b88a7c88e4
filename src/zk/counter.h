/*
 * Numbers that nobody owns: a node with a number in it, Curator's SharedCount. What is done to one is
 * looking at it, and then changing it on condition that it is still as it was.
 */
#ifndef HFI_ZK_COUNTER_H
#define HFI_ZK_COUNTER_H

#include "engine/engine.h"
#include "zk/wire.h"

#define HFI_ZK_NUMBER_LEN 4

struct hfi_zk_answer;

/* A line that stands beneath a number: it is the number that the name is for. Other data say nothing, as Java's clients
 * put their address into whatever they make. */
static inline bool hfi_zk_is_of_a_number(const struct hfi_zk_children *line) {
    return line->stat.data_len == HFI_ZK_NUMBER_LEN;
}

/* What is there. */
struct hfi_zk_count {
    bool there;
    bool is_number; /* four bytes, and nothing beneath it */
    int32_t number;
    struct hfi_zk_stat stat;
};

/* What is to become of it. */
struct hfi_zk_change {
    enum {
        HFI_ZK_LEAVE, /* nothing: the call is over */
        HFI_ZK_AWAIT, /* nothing yet: it has to change first */
        HFI_ZK_STORE, /* `number`, whether or not there is one */
        HFI_ZK_REMOVE
    } what;
    int64_t number;
    int64_t value; /* the call's answer, when it is done */
    int err;       /* not HF_OK: with these words */
    const char *words;
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

static inline struct hfi_zk_change hfi_zk_refuse(int err, const char *words) {
    return (struct hfi_zk_change){.what = HFI_ZK_LEAVE, .err = err, .words = words};
}

/* A thing that is made of one number. */
struct hfi_zk_counter {
    const char *beneath; /* where it is, behind the name; NULL: at the name itself */
    /* What a call does to what it finds. `first` is what an acquire found at first. */
    struct hfi_zk_change (*acquire)(const struct hfi_call *call, const struct hfi_zk_count *found,
                                    const struct hfi_zk_count *first);
    struct hfi_zk_change (*act)(const struct hfi_call *call, const struct hfi_zk_count *found);
    const char *busy; /* what to say if one attempt was not enough */
};

/* What is there, as the answer of a getData has it. HF_EPROTO. */
int hfi_zk_read_count(struct hfi_zk_answer *answer, struct hfi_zk_count *ret);

/* An act of a thing that has such a number, too. */
void hfi_zk_counter_act(struct hfi_call *call, const struct hfi_zk_counter *counter);

extern const struct hfi_call_ops hfi_zk_counter_ops;
extern const struct hfi_kind hfi_zk_semaphore, hfi_zk_latch;

#endif
