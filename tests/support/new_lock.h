/* A handle on a lock of any kind, in one line. */
#ifndef TEST_SUPPORT_NEW_LOCK_H
#define TEST_SUPPORT_NEW_LOCK_H

#include <holdfast/holdfast.h>

/* A kind and its flags in one number, for the tables of tests: HF_FAIR | HF_NONREENTRANT. They have
 * no bit in common. */
typedef unsigned any_kind;

static inline int new_lock(hf_client *client, any_kind kind, const void *name, size_t name_len,
                           hf_lock **ret_lock) {
    const unsigned flags = HF_NONREENTRANT | HF_SPIN | HF_FENCED | HF_COHORT;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = (hf_kind)(kind & ~flags);
    options.flags = kind & flags;
    return hf_lock_new_with(client, name, name_len, &options, ret_lock);
}

#endif
