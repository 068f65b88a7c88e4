/*
 * Jitter, to keep many clients out of step. Stateless; any thread.
 */
#include "base/jitter.h"

#include "base/clock.h"

uint64_t hfi_jitter_bits(const void *salt) {
    uint64_t bits = (uint64_t)hfi_now_us() ^ (uint64_t)(uintptr_t)salt;
    return ((bits ^ (bits >> 33)) * 0xff51afd7ed558ccdu) >> 33;
}
