/*
 * Sleeps between attempts.
 *
 * Used by acquire.c, for the spin lock and for waiters that the server does not let listen. No
 * state: the caller counts its sleeps and rolls the dice. The random part grows with the number of
 * sleeps, as in Redisson, because many sleeps mean many waiters.
 */
#include "redis/backoff.h"

#include <assert.h>

int64_t hfi_backoff_ms(const struct hfi_backoff *backoff, unsigned naps, uint64_t dice) {
    assert(backoff->factor >= 1 && backoff->first_ms >= 1);
    int64_t nap_ms = backoff->first_ms;
    unsigned steps = backoff->factor > 1 ? naps : 0;
    for (unsigned i = 0; i < steps && nap_ms < backoff->max_ms; i++)
        nap_ms *= backoff->factor;
    if (nap_ms < backoff->max_ms)
        nap_ms += (int64_t)(dice % ((uint64_t)naps + 1));
    return nap_ms < backoff->max_ms ? nap_ms : backoff->max_ms;
}
