/* How long to wait between attempts when nothing says when the next is worth it: longer each time,
 * with a random part so that many who began together do not come back in step. */
#ifndef HFI_BASE_BACKOFF_H
#define HFI_BASE_BACKOFF_H

#include <stdint.h>

struct hfi_backoff {
    int64_t first_ms, max_ms;
    int64_t factor; /* at least 1 */
};

/* The sleep after `naps` earlier ones: first * factor^naps, plus up to `naps` ms as the `dice` say,
 * and never more than max. For waiters: many sleeps mean many waiters, as in Redisson. */
int64_t hfi_backoff_ms(const struct hfi_backoff *backoff, unsigned naps, uint64_t dice);

/* The pause after `failures` earlier ones: as the `dice` say between half and all of
 * first * factor^failures, and never more than max. For what fails for a whole fleet at once. */
int64_t hfi_backoff_spread_ms(const struct hfi_backoff *backoff, unsigned failures, uint64_t dice);

#endif
