/*
 * Chance for keeping many clients out of step. Stateless; any thread.
 */
#include "base/chance.h"

#include "base/clock.h"

uint64_t hfi_throw_dice(const void *salt) {
    uint64_t dice = (uint64_t)hfi_now_us() ^ (uint64_t)(uintptr_t)salt;
    return ((dice ^ (dice >> 33)) * 0xff51afd7ed558ccdu) >> 33;
}
