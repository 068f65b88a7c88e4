/* Time. Everything that is compared with a lease uses CLOCK_BOOTTIME, which counts suspend as
 * the server's clock does; the wall clock is never used. */
#ifndef HFI_BASE_CLOCK_H
#define HFI_BASE_CLOCK_H

#include <stdint.h>

#define HFI_NEVER INT64_MAX /* a deadline that never comes */

int64_t hfi_now_ms(void);
int64_t hfi_now_us(void);

/* `base` + `delta`, saturating at HFI_NEVER. A negative delta (HF_FOREVER) is never. */
int64_t hfi_after_ms(int64_t base_ms, int64_t delta_ms);

/* Whole milliseconds from now until then, rounded down so that a promise is never too long; 0
 * when it has passed; HFI_NEVER stays so. */
int64_t hfi_left_ms(int64_t until_ms);

/* The earlier and the later of two times, or the shorter and the longer of two durations. */
static inline int64_t hfi_min_ms(int64_t a_ms, int64_t b_ms) {
    return a_ms < b_ms ? a_ms : b_ms;
}

static inline int64_t hfi_max_ms(int64_t a_ms, int64_t b_ms) {
    return a_ms > b_ms ? a_ms : b_ms;
}

/* How far a clock with a rate error of up to `drift_ppm` is off after `span`; rounded up. Any
 * unit of time. */
static inline int64_t hfi_drift(int64_t span, int64_t drift_ppm) {
    const int64_t million = 1000000;
    if (span <= 0)
        return 0;
    if (span < million * million) /* every lease: one division is enough */
        return (span * drift_ppm + million - 1) / million;
    return span / million * drift_ppm + (span % million * drift_ppm + million - 1) / million;
}

/* The part of a lease that we can trust: the server's clock may be faster. */
static inline int64_t hfi_trusted_ms(int64_t lease_ms, int64_t drift_ppm) {
    return lease_ms - hfi_drift(lease_ms, drift_ppm);
}

/* The lease of which so much can be trusted. */
static inline int64_t hfi_lease_for_ms(int64_t trusted_ms, int64_t drift_ppm) {
    return trusted_ms + hfi_drift(trusted_ms, drift_ppm * 1000000 / (1000000 - drift_ppm) + 1);
}

#endif
