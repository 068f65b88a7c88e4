/*
 * The check of fencing tokens, for the side that is protected.
 *
 * Called by whoever guards data, perhaps in a process that has no client at all: nothing here
 * touches one. The fence is the caller's memory; its only state is the highest token seen, which
 * only rises. It is a plain number in the header, so that C++ can use it too, and atomic by the
 * compiler's builtins here.
 */
#include "api/client.h"

#include <inttypes.h>

int hf_fence_check(hf_fence *fence, int64_t token) {
    hf_error error;
    hfi_error_clear(&error);
    if (fence == NULL || token < 1)
        return hfi_remember(hfi_fail(&error, HF_EINVAL, "no fence, or no token: they start at 1"),
                            &error);
    int64_t highest = __atomic_load_n(&fence->highest, __ATOMIC_ACQUIRE);
    while (token > highest)
        if (__atomic_compare_exchange_n(&fence->highest, &highest, token, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return HF_OK;
    if (token == highest)
        return HF_OK;
    hfi_fail(&error, HF_ELOST, "token %" PRId64 " is stale: %" PRId64 " has been here", token,
             highest);
    return hfi_remember(HF_ELOST, &error);
}
