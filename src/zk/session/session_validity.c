/*
 * How long a session can be trusted (the rule is in session_validity.h).
 *
 * Called by the session under its mutex, and by the models that check the rule.
 */
#include "zk/session/session_validity.h"

#include "base/clock.h"

#define ROUNDING_MS 2 /* times are read in whole milliseconds */

static int64_t ends_ms(const struct hfi_zk_validity *validity, int64_t sent_ms) {
    return sent_ms + hfi_trusted_ms(validity->timeout_ms, validity->drift_ppm) - ROUNDING_MS;
}

void hfi_zk_validity_begin(struct hfi_zk_validity *validity, int64_t timeout_ms, int64_t drift_ppm,
                           int64_t sent_ms) {
    *validity = (struct hfi_zk_validity){.timeout_ms = timeout_ms,
                                         .drift_ppm = drift_ppm,
                                         .greeted_ms = sent_ms,
                                         .proved = true,
                                         .known_ms = sent_ms};
    validity->good_until_ms = ends_ms(validity, sent_ms);
}

/* The current leader applies the timeout granted last, a later leader the one granted first. */
void hfi_zk_validity_connected(struct hfi_zk_validity *validity, int64_t timeout_ms,
                               int64_t sent_ms) {
    if (timeout_ms < validity->timeout_ms) {
        validity->timeout_ms = timeout_ms;
        validity->good_until_ms = ends_ms(validity, validity->known_ms);
    }
    validity->greeted_ms = sent_ms;
    validity->proved = false;
}

void hfi_zk_validity_committed(struct hfi_zk_validity *validity, int64_t now_ms) {
    if (validity->proved || hfi_zk_is_spent(validity, now_ms))
        return;
    validity->proved = true;
    validity->known_ms = validity->greeted_ms;
    validity->good_until_ms = ends_ms(validity, validity->greeted_ms);
}
