/*
 * The clock of the library: milliseconds and microseconds since boot, suspend included.
 * Stateless; any thread.
 */
#include "base/clock.h"

#include <time.h>

int64_t hfi_now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t hfi_now_ms(void) {
    return hfi_now_us() / 1000;
}

int64_t hfi_after_ms(int64_t base_ms, int64_t delta_ms) {
    if (delta_ms < 0 || base_ms == HFI_NEVER || delta_ms > HFI_NEVER - base_ms)
        return HFI_NEVER;
    return base_ms + delta_ms;
}

int64_t hfi_left_ms(int64_t until_ms) {
    if (until_ms == HFI_NEVER)
        return HFI_NEVER;
    int64_t now_us = hfi_now_us();
    int64_t left_ms = until_ms - now_us / 1000 - (now_us % 1000 != 0);
    return left_ms > 0 ? left_ms : 0;
}
