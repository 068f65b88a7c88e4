/*
 * A real server behind a proxy, a client on it, and permits with leases; see pool.h.
 *
 * Used by the tests of permits, each on its own thread; the server is the scene's, one per program.
 * The server knows the scripts, and the client is connected, before a test begins, so a rule of the
 * proxy meets the command it is meant for.
 */
#include "sync/pool.h"

#include <stdio.h>
#include <stdlib.h>

hf_permits *pool_permits(hf_client *client) {
    hf_permits *permits = NULL;
    assert_int_equal(hf_permits_new_bytes(client, POOL_NAME, strlen(POOL_NAME), &permits), HF_OK);
    return permits;
}

static void load_scripts(void) {
    const struct hfi_script *const scripts[] = {
        &hfi_script_permits_acquire, &hfi_script_permits_release, &hfi_script_permits_extend,
        &hfi_script_permits_lease,   &hfi_script_permits_count,   &hfi_script_permits_set,
        &hfi_script_permits_expire,  &hfi_script_permits_delete,  &hfi_script_permits_renew};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        cmd_ok(scene_server(), "SCRIPT LOAD %b", scripts[i]->body, scripts[i]->len);
}

hf_options pool_short_watchdog(void) {
    hf_options options = scene_options();
    options.watchdog_ms = WATCHDOG_MS;
    return options;
}

void pool_begin(struct pool *pool, const hf_options *given, int64_t number) {
    hf_options options = given != NULL ? *given : scene_options();
    memset(pool, 0, sizeof *pool);
    pool->server = scene_server();
    server_empty(pool->server);
    load_scripts();
    pool->proxy = server_proxy(pool->server);
    assert_int_equal(hf_open(proxy_url(pool->proxy), &options, &pool->client), HF_OK);
    assert_int_equal(hf_open(server_url(pool->server), &options, &pool->rival), HF_OK);
    pool->permits = pool_permits(pool->client);
    pool->rival_permits = pool_permits(pool->rival);
    hf_op *op = NULL;
    assert_int_equal(hf_ping(pool->client), HF_OK);
    int err = hf_ping_start(pool->client, NULL, NULL, &op); /* the keeper's connection, too */
    assert_int_equal(scene_wait_op(err, op, NULL), HF_OK);
    bool set = false;
    if (number > 0) {
        assert_int_equal(hf_permits_try_set(pool->permits, number, &set), HF_OK);
        assert_true(set);
    }
}

void pool_end(struct pool *pool) {
    hf_permits_free(pool->permits);
    hf_permits_free(pool->rival_permits);
    assert_int_equal(hf_close(pool->client), HF_OK);
    assert_int_equal(hf_close(pool->rival), HF_OK);
    proxy_free(pool->proxy);
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
    if (server_is_other(scene_server()))
        return server_value(scene_server(), POOL_NAME "/permits") - pool_taken_there();
    return cmd_int(scene_server(), "GET " POOL_NAME);
}

long long pool_taken_there(void) {
    if (server_is_other(scene_server()))
        return server_in_line(scene_server(), POOL_NAME "/leases");
    return cmd_int(scene_server(), "ZCARD " POOL_TAKEN);
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
    while (now_ms() < at_ms)
        sleep_ms(at_ms - now_ms());
    if (server_is_other(scene_server()))
        assert_true(wait_until(is_taken, &taken, HANG_MS));
}

static const char *attempt(const struct pool *pool) {
    return server_is_other(pool->server) ? "/" POOL_NAME "/leases\1" : POOL_ACQUIRE;
}

size_t pool_attempts(struct pool *pool) {
    return proxy_seen(pool->proxy, attempt(pool));
}

bool pool_wait_asleep(struct pool *pool, size_t attempts, size_t watches) {
    if (!server_is_other(pool->server))
        return proxy_wait_seen(pool->proxy, attempt(pool), attempts, HANG_MS);
    return proxy_wait_seen(pool->proxy, attempt(pool), watches, HANG_MS) &&
           proxy_wait_answered(pool->proxy, HANG_MS);
}

long long pool_ends_at(const hf_permit_id *id) {
    unsigned char bytes[16];
    for (size_t i = 0; i < sizeof bytes; i++) {
        char two[3] = {id->text[2 * i], id->text[2 * i + 1], '\0'};
        bytes[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    char *score = cmd_str(scene_server(), "ZSCORE " POOL_TAKEN " %b", bytes, sizeof bytes);
    long long ends_ms = score != NULL ? strtoll(score, NULL, 10) : -1;
    free(score);
    return ends_ms;
}

/* ---- Calls ---- */

hf_permits_options pool_options(int64_t count, int64_t wait_ms, int64_t lease_ms) {
    hf_permits_options options = HF_PERMITS_INIT;
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
    return scene_wait_op(err, op, NULL);
}

static int release_async(hf_permits *permits, const hf_permit_id *ids, size_t len) {
    hf_op *op = NULL;
    int err = hf_permits_release_start(permits, ids, len, NULL, NULL, &op);
    return scene_wait_op(err, op, NULL);
}

static int extend_async(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms) {
    hf_op *op = NULL;
    int err = hf_permits_extend_start(permits, id, lease_ms, NULL, NULL, &op);
    return scene_wait_op(err, op, NULL);
}

const struct pool_form pool_forms[2] = {
    {hf_permits_acquire_with, hf_permits_release_many, hf_permits_extend},
    {acquire_async, release_async, extend_async},
};

static void *wait_there(void *arg) {
    struct pool_waiter *waiter = arg;
    int64_t start_ms = now_ms();
    waiter->result = hf_permits_acquire_with(waiter->permits, &waiter->options, waiter->ids);
    waiter->took_ms = now_ms() - start_ms;
    atomic_store(&waiter->done, true);
    return NULL;
}

void pool_wait_for(struct pool_waiter *waiter, hf_permits *permits, hf_permits_options options) {
    assert_true(options.count <= 8);
    *waiter = (struct pool_waiter){.permits = permits, .options = options, .result = -99};
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_there, waiter), 0);
}

static bool is_done(void *arg) {
    return atomic_load(&((struct pool_waiter *)arg)->done);
}

int pool_join(struct pool_waiter *waiter) {
    if (!wait_until(is_done, waiter, HANG_MS))
        support_die("a waiter hangs");
    pthread_join(waiter->thread, NULL);
    return waiter->result;
}

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

struct wanted_atomic {
    atomic_int *value;
    int at_least;
};

static bool is_reached(void *arg) {
    const struct wanted_atomic *wanted = arg;
    return atomic_load(wanted->value) >= wanted->at_least;
}

bool pool_wait_atomic(atomic_int *value, int at_least, int64_t limit_ms) {
    struct wanted_atomic wanted = {value, at_least};
    return wait_until(is_reached, &wanted, limit_ms);
}
