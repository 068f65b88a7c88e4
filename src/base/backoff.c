/*
 * Back-off between attempts.
 *
 * Used by all retries: waiters without pub/sub messages, refused exchanges, failed connects. No
 * state: the caller counts and passes the random bits (jitter.h). Any thread.
 */
#include "base/backoff.h"

#include <assert.h>

static int64_t grown_ms(const struct hfi_backoff *backoff, unsigned times) {
    assert(backoff->factor >= 1 && backoff->first_ms >= 1);
    int64_t ms = backoff->first_ms;
    if (backoff->factor == 1)
        times = 0;
    for (unsigned i = 0; i < times && ms < backoff->max_ms; i++)
        ms *= backoff->factor;
    return ms < backoff->max_ms ? ms : backoff->max_ms;
}

int64_t hfi_backoff_ms(const struct hfi_backoff *backoff, unsigned attempts, uint64_t bits) {
    int64_t pause_ms = grown_ms(backoff, attempts);
    if (pause_ms < backoff->max_ms)
        pause_ms += (int64_t)(bits % ((uint64_t)attempts + 1));
    return pause_ms < backoff->max_ms ? pause_ms : backoff->max_ms;
}

int64_t hfi_backoff_spread_ms(const struct hfi_backoff *backoff, unsigned failures, uint64_t bits) {
    int64_t half_ms = grown_ms(backoff, failures) / 2;
    return half_ms + (int64_t)(bits % ((uint64_t)half_ms + 1));
}
