/*
 * The options of a client: reading and checking what the caller gave. Used by hf_open() on the
 * caller's thread; stateless.
 */
#include "api/options.h"

#include "api/versioned_struct.h"
#include "base/error.h"

#define TIMED_NAMES_MAX 10000
#define CLOCK_DRIFT_MAX_PPM 500000 /* half of a lease is left then */

static int check_acks(const hf_options *o, hf_error *error) {
    if (o->acks < HF_ACKS_OFF || o->acks > HF_ACKS_MAX)
        return hfi_fail(error, HF_EINVAL, "acks must be 1 to %d, or one of HF_ACKS_...",
                        HF_ACKS_MAX);
    if (o->ack_disk != 0 && o->ack_disk != 1)
        return hfi_fail(error, HF_EINVAL, "ack_disk must be 0 or 1");
    return HF_OK;
}

int hfi_options_read(const hf_options *given, hf_options *options, hf_error *error) {
    *options = (hf_options)HF_OPTIONS_INIT;
    int err = hfi_versioned_read(&hfi_versioned_options, given, options, error);
    if (err != HF_OK)
        return err;
    const hf_allocator *a = &options->allocator;
    bool some = a->allocate != NULL || a->resize != NULL || a->release != NULL;
    if (some && (a->allocate == NULL || a->resize == NULL || a->release == NULL))
        return hfi_fail(error, HF_EINVAL, "an allocator needs all three functions");
    if ((options->flags &
         ~(HF_MANUAL_DISPATCH | HF_TLS_INSECURE | HF_NO_BUSY_POLL | HF_NO_TRACKING)) != 0)
        return hfi_fail(error, HF_EINVAL, "unknown bits in flags");
    if (options->tls_min_version != 0 && options->tls_min_version != HF_TLS_1_2 &&
        options->tls_min_version != HF_TLS_1_3)
        return hfi_fail(error, HF_EINVAL, "tls_min_version must be HF_TLS_1_2 or HF_TLS_1_3");
    if (options->sentinel_tls != 0 && options->sentinel_tls != HF_SENTINEL_TLS_ON &&
        options->sentinel_tls != HF_SENTINEL_TLS_OFF)
        return hfi_fail(error, HF_EINVAL,
                        "sentinel_tls must be HF_SENTINEL_TLS_ON or HF_SENTINEL_TLS_OFF");
    if (options->sentinel_confirm != 0 && options->sentinel_confirm != 1)
        return hfi_fail(error, HF_EINVAL, "sentinel_confirm must be 0 or 1");
    return check_acks(options, error);
}

int hfi_options_check_numbers(const hf_options *o, hf_error *error) {
    const int64_t day_ms = 24 * 3600 * 1000;
    if (o->cmd_timeout_ms < 1 || o->cmd_timeout_ms > day_ms || o->connect_timeout_ms < 1 ||
        o->connect_timeout_ms > day_ms || o->ping_interval_ms < 1 || o->ping_interval_ms > day_ms ||
        o->failover_timeout_ms < 1 || o->failover_timeout_ms > day_ms || o->ack_timeout_ms < 1 ||
        o->ack_timeout_ms > day_ms)
        return hfi_fail(error, HF_EINVAL, "timeouts must be 1 ms to one day");
    if (o->fair_wait_ms < 0 || o->fair_wait_ms > HF_LEASE_MAX_MS)
        return hfi_fail(error, HF_EINVAL, "fair_wait_ms must be 0 to ten years");
    if (o->restart_guard_ms < -1 || o->restart_guard_ms > HF_LEASE_MAX_MS)
        return hfi_fail(error, HF_EINVAL, "restart_guard_ms must be -1, or 0 to ten years");
    if (o->report_after_ms < -1 || o->report_after_ms > day_ms)
        return hfi_fail(error, HF_EINVAL, "report_after_ms must be -1, or 0 to one day");
    if (o->histogram_names < 0 || o->histogram_names > TIMED_NAMES_MAX)
        return hfi_fail(error, HF_EINVAL, "histogram_names must be 0 to %d", TIMED_NAMES_MAX);
    if (o->clock_drift_ppm < 0 || o->clock_drift_ppm > CLOCK_DRIFT_MAX_PPM)
        return hfi_fail(error, HF_EINVAL, "clock_drift_ppm must be 0 to %d", CLOCK_DRIFT_MAX_PPM);
    if (o->watchdog_ms < 30 || o->watchdog_ms > HF_LEASE_MAX_MS || o->max_hold_ms < 0)
        return hfi_fail(error, HF_EINVAL,
                        "watchdog_ms must be 30 ms to ten years, and max_hold_ms not negative");
    return HF_OK;
}
