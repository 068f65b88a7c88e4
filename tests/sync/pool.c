/*
 * Permits with leases in a world; see pool.h.
 */
#include "sync/pool.h"

hf_options pool_short_watchdog(void) {
    hf_options options = world_options();
    options.watchdog_ms = WATCHDOG_MS;
    return options;
}

void pool_begin(struct world *world, const hf_options *options, int64_t number) {
    bool set = false;
    objects_begin(world, options);
    if (number > 0) {
        assert_int_equal(hf_permits_try_set(world->permits, number, &set), HF_OK);
        assert_true(set);
    }
}

/* ---- What there is ---- */

void pool_assert_available(hf_permits *permits, int64_t expected) {
    int64_t number = -99;
    assert_int_equal(hf_permits_available(permits, &number), HF_OK);
    assert_int_equal(number, expected);
}

void pool_assert_counts(hf_permits *permits, int64_t total, int64_t available, int64_t taken) {
    int64_t number = -99;
    assert_int_equal(hf_permits_total(permits, &number), HF_OK);
    assert_int_equal(number, total);
    pool_assert_available(permits, available);
    assert_int_equal(hf_permits_taken(permits, &number), HF_OK);
    assert_int_equal(number, taken);
}

long long pool_free_there(void) {
    if (server_is_other(world_server()))
        return server_value(world_server(), POOL_NAME "/permits") - pool_taken_there();
    return cmd_int(world_server(), "GET " POOL_NAME);
}

long long pool_taken_there(void) {
    if (server_is_other(world_server()))
        return server_queued(world_server(), POOL_NAME "/leases");
    return cmd_int(world_server(), "ZCARD " POOL_TAKEN);
}

struct there {
    long long free, taken;
};

static bool is_there(void *arg) {
    const struct there *wanted = arg;
    return pool_free_there() == wanted->free && pool_taken_there() == wanted->taken;
}

bool pool_wait_there(long long free, long long taken, int64_t limit_ms) {
    struct there wanted = {free, taken};
    return wait_until(is_there, &wanted, limit_ms);
}

static bool is_taken(void *arg) {
    return pool_taken_there() == *(const long long *)arg;
}

void pool_wait_ended(int64_t at_ms, long long taken) {
    /* the end of a permit changes nothing at the server */
    assert_true(WAIT_FOR(now_ms() >= at_ms, HANG_MS));
    if (server_is_other(world_server()))
        assert_true(wait_until(is_taken, &taken, HANG_MS));
}

static const char *attempt(const struct world *world) {
    return server_is_other(world->server) ? "/" POOL_NAME "/leases\1" : POOL_ACQUIRE;
}

size_t pool_attempts(struct world *world) {
    return proxy_seen(world->proxy, attempt(world));
}

bool pool_wait_asleep(struct world *world, size_t attempts, size_t watches) {
    if (!server_is_other(world->server))
        return proxy_wait_seen(world->proxy, attempt(world), attempts, HANG_MS);
    return proxy_wait_seen(world->proxy, attempt(world), watches, HANG_MS) &&
           proxy_wait_answered(world->proxy, HANG_MS);
}

long long pool_ends_at(const hf_permit_id *id) {
    unsigned char bytes[16];
    for (size_t i = 0; i < sizeof bytes; i++) {
        char two[3] = {id->text[2 * i], id->text[2 * i + 1], '\0'};
        bytes[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    own_text *score = cmd_str(world_server(), "ZSCORE " POOL_TAKEN " %b", bytes, sizeof bytes);
    return score != NULL ? strtoll(score, NULL, 10) : -1;
}

/* ---- Calls ---- */

hf_permits_options pool_options(int64_t count, int64_t wait_ms, int64_t lease_ms) {
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    options.count = count;
    options.wait_ms = wait_ms;
    options.lease_ms = lease_ms;
    return options;
}

void pool_take(hf_permits *permits, int64_t count, int64_t lease_ms, hf_permit_id *ret_ids) {
    hf_permits_options options = pool_options(count, 0, lease_ms);
    assert_int_equal(hf_permits_acquire_with(permits, &options, ret_ids), HF_OK);
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(strlen(ret_ids[i].text), 32);
        assert_int_equal(strspn(ret_ids[i].text, "0123456789abcdef"), 32);
    }
}

static int acquire_async(hf_permits *permits, const hf_permits_options *options,
                         hf_permit_id *ret_ids) {
    hf_op *op = NULL;
    int err = hf_permits_acquire_start(permits, options, ret_ids, NULL, NULL, &op);
    return world_wait_op(err, op, NULL);
}

static int release_async(hf_permits *permits, const hf_permit_id *ids, size_t len) {
    hf_op *op = NULL;
    int err = hf_permits_release_start(permits, ids, len, NULL, NULL, &op);
    return world_wait_op(err, op, NULL);
}

static int extend_async(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms) {
    hf_op *op = NULL;
    int err = hf_permits_extend_start(permits, id, lease_ms, NULL, NULL, &op);
    return world_wait_op(err, op, NULL);
}

const struct pool_form pool_forms[2] = {
    {"synchronous", hf_permits_acquire_with, hf_permits_release_many, hf_permits_extend},
    {"asynchronous", acquire_async, release_async, extend_async},
};

void pool_on_event(hf_permits *permits, const char *id, const hf_event *event, void *arg) {
    struct pool_events *events = arg;
    (void)permits;
    if (event->kind == HF_EVENT_WARNING) {
        atomic_fetch_add(&events->warnings, 1);
    } else {
        snprintf(events->lost_id, sizeof events->lost_id, "%s", id);
        atomic_fetch_add(&events->losses, 1);
    }
}
