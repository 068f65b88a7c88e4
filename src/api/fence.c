/*
 * The check of fencing tokens, for the protected side.
 *
 * Called by the code that guards data, possibly in a process without a client: nothing here uses
 * one. The fence is the caller's memory; its only state is the highest token seen, which only
 * rises. It is a plain number in the header, so that C++ can use it too, and is accessed with the
 * compiler's atomic builtins here.
 */
#include "api/client.h"

#include <inttypes.h>

int hf_fence_check(hf_fence *fence, int64_t token) {
    hf_error error;
    hfi_error_clear(&error);
    if (fence == NULL || token < 1)
        return hfi_remember(hfi_fail(&error, HF_EINVAL,
                                     "a fence check needs a fence and a token of 1 or "
                                     "more"),
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
