/* Exponential back-off with jitter, for retries that no event triggers: longer each time, with a
 * random part so that clients that began together do not retry in step. */
#ifndef HFI_BASE_BACKOFF_H
#define HFI_BASE_BACKOFF_H

#include <stdint.h>

struct hfi_backoff {
    int64_t first_ms, max_ms;
    int64_t factor; /* at least 1 */
};

/* The sleep after `attempts` earlier ones: first * factor^attempts, plus a random 0 .. `attempts`
 * ms from `bits`, at most max. For waiters: many sleeps mean many waiters, as in Redisson. */
int64_t hfi_backoff_ms(const struct hfi_backoff *backoff, unsigned attempts, uint64_t bits);

/* The pause after `failures` earlier ones: first * factor^failures, at most max, of which `bits`
 * randomizes the second half. For failures that hit a whole fleet at once. */
int64_t hfi_backoff_spread_ms(const struct hfi_backoff *backoff, unsigned failures, uint64_t bits);

#endif
