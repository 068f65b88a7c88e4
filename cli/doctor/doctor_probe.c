/* The checks of `holdfast doctor` that need a test: the latency of locks, and whether waiters are
 * woken. They use a unique name with a fixed lease, and a few hundred commands in all.
 *
 * Called on the main thread. A server that fails meanwhile is a finding. */
#include "doctor/doctor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define PAIRS 100
#define AT_MOST_MS 5000 /* for all pairs */
#define LEASE_MS 30000
#define SLOW_US 500000

static int64_t now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static int compare(const void *a, const void *b) {
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

static int time_pairs(hf_lock *lock, int64_t *took_us, size_t *ret_len) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 0;
    options.lease_ms = LEASE_MS;
    int64_t began_us = now_us();
    *ret_len = 0;
    for (size_t i = 0; i <= PAIRS && now_us() - began_us < AT_MOST_MS * 1000; i++) {
        int64_t start_us = now_us();
        int code = hf_lock_acquire_with(lock, &options, NULL);
        int64_t end_us = now_us();
        if (code == HF_OK)
            code = hf_lock_release(lock);
        if (code != HF_OK)
            return code;
        if (i > 0) /* the first one connects and loads its script */
            took_us[(*ret_len)++] = end_us - start_us;
    }
    return HF_OK;
}

static void failed(struct findings *findings, const char *check, int code) {
    const hf_error *error = hf_last_error();
    finding_add(findings, VERDICT_BAD, check,
                "no lock can be acquired here; see 'scripting' and 'rights'", "%s (%s)",
                hf_strerror(code), error->text);
}

/* Returns false if further checks are useless. */
static bool check_latency(struct findings *findings, hf_lock *lock) {
    int64_t took_us[PAIRS];
    size_t len;
    int code = time_pairs(lock, took_us, &len);
    if (code != HF_OK || len == 0) {
        failed(findings, "latency", code);
        return false;
    }
    qsort(took_us, len, sizeof took_us[0], compare);
    int64_t half_us = took_us[len / 2], most_us = took_us[len * 99 / 100];
    enum verdict verdict = half_us >= SLOW_US   ? VERDICT_BAD
                           : most_us >= SLOW_US ? VERDICT_WARNING
                                                : VERDICT_OK;
    finding_add(findings, verdict, "latency",
                verdict != VERDICT_OK
                    ? "find what keeps the server busy (SLOWLOG GET, redis-cli --latency), and "
                      "check the network"
                    : NULL,
                "an acquire takes %" PRId64 ".%03d ms; 99 of 100 take less than %" PRId64
                ".%03d ms",
                half_us / 1000, (int)(half_us % 1000), most_us / 1000, (int)(most_us % 1000));
    return true;
}

/* One owner holds the lock, another waits, the first releases. If the waiter acquired by polling
 * instead of a wake-up, the library logs a warning. */
static void check_waking(struct findings *findings, hf_lock *lock) {
    hf_acquire_options holder = HF_ACQUIRE_OPTIONS_INIT, waiter = HF_ACQUIRE_OPTIONS_INIT;
    hf_result result = HF_RESULT_INIT;
    hf_op *op = NULL;
    bool locked = true;
    holder.wait_ms = 0;
    holder.lease_ms = waiter.lease_ms = LEASE_MS;
    waiter.wait_ms = AT_MOST_MS;
    int code = hf_lock_acquire_with(lock, &holder, NULL);
    if (code == HF_OK)
        code = hf_lock_acquire_start(lock, &waiter, NULL, NULL, &op);
    if (code == HF_OK && hf_op_wait(op, 200, NULL) == HF_EPENDING) /* it is queued by now */
        code = hf_lock_is_locked(lock, &locked);
    int64_t start_us = now_us();
    if (code == HF_OK)
        code = hf_lock_release(lock);
    if (code == HF_OK)
        code = hf_op_wait(op, AT_MOST_MS, &result);
    int64_t took_us = now_us() - start_us;
    hf_op_cancel(op);
    hf_op_free(op);
    if (code != HF_OK) {
        failed(findings, "waking", code);
        return;
    }
    hf_lock_release_as(lock, result.owner);
    bool slow = took_us > 2 * SLOW_US;
    finding_add(findings, slow ? VERDICT_WARNING : VERDICT_OK, "waking",
                slow ? "waiters are not woken: see the channels in 'rights'" : NULL,
                "a waiter has the lock %" PRId64 ".%03d ms after its release", took_us / 1000,
                (int)(took_us % 1000));
}

void doctor_probe(struct findings *findings, hf_client *client, const char *name) {
    hf_lock *lock = NULL;
    int code = hf_lock_new(client, name, &lock);
    if (code != HF_OK) {
        failed(findings, "latency", code);
        return;
    }
    bool lockable = findings_skip(findings, "latency") || check_latency(findings, lock);
    if (lockable && !findings_skip(findings, "waking"))
        check_waking(findings, lock);
    hf_lock_free(lock);
}
