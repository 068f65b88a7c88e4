#include "route/acks.h"

#include <string.h>

struct trio *acks_trio;

int acks_start(void **state) {
    (void)state;
    acks_trio = trio_start();
    return 0;
}

int acks_stop(void **state) {
    (void)state;
    trio_free(acks_trio);
    return 0;
}

hf_client *acks_open(const char *options) {
    return made(hf_open, trio_url(acks_trio, options), NULL);
}

hf_client *acks_begin(const char *options) {
    trio_heal(acks_trio);
    cmd_ok(trio_primary(acks_trio), "FLUSHALL");
    cmd_ok(trio_primary(acks_trio), "CONFIG RESETSTAT");
    return acks_open(options);
}

hf_lock *acks_lock(hf_client *client, any_kind kind, const char *name) {
    return made(new_lock, client, kind, name, strlen(name));
}

hf_stats acks_stats(hf_client *client) {
    hf_stats stats = HF_STATS_INIT;
    assert_int_equal(hf_client_stats(client, &stats), HF_OK);
    return stats;
}

static bool is_free(void *arg) {
    return !key_exists(trio_primary(acks_trio), arg);
}

bool acks_wait_free(const char *name) {
    return wait_until(is_free, (void *)(uintptr_t)name, ACKS_HANG_MS);
}

struct failures {
    hf_client *client;
    uint64_t at_least;
};

static bool has_failed(void *arg) {
    const struct failures *failures = arg;
    return acks_stats(failures->client).ack_failures >= failures->at_least;
}

bool acks_wait_failures(hf_client *client, uint64_t at_least) {
    struct failures failures = {.client = client, .at_least = at_least};
    return wait_until(has_failed, &failures, ACKS_HANG_MS);
}

hf_op *acks_acquire_start(hf_lock *lock, int64_t wait_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    options.wait_ms = wait_ms;
    assert_int_equal(hf_lock_acquire_start(lock, &options, NULL, NULL, &op), HF_OK);
    return op;
}
