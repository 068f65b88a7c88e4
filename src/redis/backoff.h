/* How long to sleep between attempts when nobody reports releases: longer each time, with a random
 * part so that waiters do not come back in step. */
#ifndef HFI_REDIS_BACKOFF_H
#define HFI_REDIS_BACKOFF_H

#include <stdint.h>

struct hfi_backoff {
    int64_t first_ms, max_ms;
    int64_t factor; /* at least 1 */
};

/* The sleep after `naps` earlier ones: first * factor^naps, plus up to `naps` ms as the `dice` say,
 * and never more than max. */
int64_t hfi_backoff_ms(const struct hfi_backoff *backoff, unsigned naps, uint64_t dice);

#endif
