/* Time. Everything that is compared with a lease uses CLOCK_BOOTTIME, which counts suspend as the
 * server's clock does; the wall clock is never asked. */
#ifndef HFI_BASE_CLOCK_H
#define HFI_BASE_CLOCK_H

#include <stdint.h>

#define HFI_NEVER INT64_MAX /* a deadline that does not come */

int64_t hfi_now_ms(void);
int64_t hfi_now_us(void);

/* `base` + `delta`, stopping at HFI_NEVER instead of wrapping. A negative delta (HF_FOREVER) is
 * never. */
int64_t hfi_after_ms(int64_t base_ms, int64_t delta_ms);

/* Whole milliseconds from now until then, rounded down, so that nobody is promised a part of one
 * that is over; 0 when it has passed. */
int64_t hfi_left_ms(int64_t until_ms);

/* The earlier and the later of two times, or the shorter and the longer of two durations. */
static inline int64_t hfi_min_ms(int64_t a_ms, int64_t b_ms) {
    return a_ms < b_ms ? a_ms : b_ms;
}

static inline int64_t hfi_max_ms(int64_t a_ms, int64_t b_ms) {
    return a_ms > b_ms ? a_ms : b_ms;
}

#endif
