/*
 * Sleeps between attempts.
 *
 * Used by whoever tries again: waiters without messages, exchanges that were refused, connections
 * that could not be made. No state: the caller counts and rolls the dice (chance.h). Any thread.
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

int64_t hfi_backoff_ms(const struct hfi_backoff *backoff, unsigned naps, uint64_t dice) {
    int64_t nap_ms = grown_ms(backoff, naps);
    if (nap_ms < backoff->max_ms)
        nap_ms += (int64_t)(dice % ((uint64_t)naps + 1));
    return nap_ms < backoff->max_ms ? nap_ms : backoff->max_ms;
}

int64_t hfi_backoff_spread_ms(const struct hfi_backoff *backoff, unsigned failures, uint64_t dice) {
    int64_t half_ms = grown_ms(backoff, failures) / 2;
    return half_ms + (int64_t)(dice % ((uint64_t)half_ms + 1));
}
