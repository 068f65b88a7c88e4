/* Five servers, their proxies and a quorum client; see fleet.h. */
#include "joint/fleet.h"

#include <inttypes.h>

static struct server *servers[FLEET];

int fleet_start_servers(void **state) {
    (void)state;
    for (int i = 0; i < FLEET; i++)
        servers[i] = server_start(NULL);
    return 0;
}

int fleet_stop_servers(void **state) {
    (void)state;
    for (int i = 0; i < FLEET; i++)
        server_free(servers[i]);
    return 0;
}

hf_options fleet_options(void) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = 5000;
    options.connect_timeout_ms = 10000;
    options.watchdog_ms = 60000;
    options.restart_guard_ms = 0;
    return options;
}

static void add_url(char *urls, const char *url) {
    size_t len = strlen(urls);
    snprintf(urls + len, 2048 - len, "%s%s", len > 0 ? " " : "", url);
}

/* Scripts are loaded and connections made. All servers have granted before it is released: else an
 * acquire would still be on its way to one of them, and its grant would be the next attempt's. */
static void open_client(struct fleet *fleet, const char *urls, const hf_options *options,
                        hf_client **ret_client, hf_lock **ret_lock) {
    char owner[64];
    assert_int_equal(hf_open(urls, options, ret_client), HF_OK);
    assert_int_equal(hf_lock_new(*ret_client, FLEET_NAME, ret_lock), HF_OK);
    hf_acquire_options leased = fleet_wait_for(HF_FOREVER, 60000);
    assert_int_equal(hf_lock_acquire_with(*ret_lock, &leased, NULL), HF_OK);
    snprintf(owner, sizeof owner, "%s:%" PRIu64, hf_client_id(*ret_client), hf_owner_self());
    assert_true(fleet_wait_held(fleet, owner, FLEET, HANG_MS));
    assert_int_equal(hf_lock_extend(*ret_lock, 60000), HF_OK);
    assert_int_equal(hf_lock_release(*ret_lock), HF_OK);
}

void fleet_begin(struct fleet *fleet, const hf_options *given) {
    hf_options options = given != NULL ? *given : fleet_options();
    memset(fleet, 0, sizeof *fleet);
    for (int i = 0; i < FLEET; i++) {
        fleet->server[i] = servers[i];
        if (server_pid(servers[i]) == 0)
            server_restart(servers[i]);
        cmd_ok(servers[i], "FLUSHALL");
        fleet->proxy[i] = proxy_start(server_socket(servers[i]));
        add_url(fleet->urls, proxy_url(fleet->proxy[i]));
        add_url(fleet->direct_urls, server_url(servers[i]));
    }
    hf_options warm = options; /* a guard is for the test, not for its preparation */
    int64_t guard_ms = options.restart_guard_ms;
    warm.restart_guard_ms = 0;
    open_client(fleet, fleet->direct_urls, &warm, &fleet->rival, &fleet->rival_lock);
    assert_true(fleet_wait_free(fleet, HANG_MS));
    if (guard_ms == 0) {
        open_client(fleet, fleet->urls, &options, &fleet->client, &fleet->lock);
    } else {
        assert_int_equal(hf_open(fleet->urls, &options, &fleet->client), HF_OK);
        assert_int_equal(hf_lock_new(fleet->client, FLEET_NAME, &fleet->lock), HF_OK);
    }
    snprintf(fleet->owner, sizeof fleet->owner, "%s:%" PRIu64, hf_client_id(fleet->client),
             hf_owner_self());
    assert_true(fleet_wait_free(fleet, HANG_MS));
}

void fleet_end(struct fleet *fleet) {
    hf_lock_free(fleet->rival_lock);
    assert_int_equal(hf_close(fleet->rival), HF_OK);
    hf_lock_free(fleet->lock);
    assert_int_equal(hf_close(fleet->client), HF_OK);
    for (int i = 0; i < FLEET; i++)
        proxy_free(fleet->proxy[i]);
}

/* ---- What the servers know ---- */

int fleet_locked(struct fleet *fleet) {
    int count = 0;
    for (int i = 0; i < FLEET; i++)
        if (server_pid(fleet->server[i]) != 0)
            count += key_exists(fleet->server[i], FLEET_NAME);
    return count;
}

int fleet_held(struct fleet *fleet, const char *owner) {
    int count = 0;
    for (int i = 0; i < FLEET; i++)
        if (server_pid(fleet->server[i]) != 0)
            count += cmd_int(fleet->server[i], "HEXISTS %s %s", FLEET_NAME, owner) == 1;
    return count;
}

struct expectation {
    struct fleet *fleet;
    const char *owner;
    int servers;
};

static bool is_held(void *arg) {
    const struct expectation *expected = arg;
    return fleet_held(expected->fleet, expected->owner) == expected->servers;
}

bool fleet_wait_held(struct fleet *fleet, const char *owner, int count, int64_t limit_ms) {
    struct expectation expected = {fleet, owner, count};
    return wait_until(is_held, &expected, limit_ms);
}

static bool is_free(void *arg) {
    return fleet_locked(arg) == 0;
}

bool fleet_wait_free(struct fleet *fleet, int64_t limit_ms) {
    return wait_until(is_free, fleet, limit_ms);
}

void fleet_occupy(struct fleet *fleet, int server) {
    /* in one step: a late command of the client's own must not find itself beside it */
    cmd_ok(fleet->server[server], "EVAL %s 1 %s another:1",
           "redis.call('del', KEYS[1]) redis.call('hset', KEYS[1], ARGV[1], 1) "
           "return redis.call('pexpire', KEYS[1], 60000)",
           FLEET_NAME);
}

void fleet_vacate(struct fleet *fleet, int server) {
    cmd_ok(fleet->server[server], "DEL %s", FLEET_NAME);
    cmd_ok(fleet->server[server], "PUBLISH redisson_lock__channel:{%s} 0", FLEET_NAME);
}

/* ---- Calls ---- */

hf_acquire_options fleet_wait_for(int64_t wait_ms, int64_t lease_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    options.lease_ms = lease_ms;
    return options;
}

void fleet_on_event(hf_lock *lock, const hf_event *event, void *arg) {
    struct fleet_events *events = arg;
    (void)lock;
    if (event->kind == HF_EVENT_LOST)
        atomic_fetch_add(&events->losses, 1);
    else if (event->kind == HF_EVENT_WARNING)
        atomic_fetch_add(&events->warnings, 1);
}

struct number {
    atomic_int *value;
    int at_least;
};

static bool has_come(void *arg) {
    const struct number *number = arg;
    return atomic_load(number->value) >= number->at_least;
}

bool fleet_wait_atomic(atomic_int *value, int at_least, int64_t limit_ms) {
    struct number number = {value, at_least};
    return wait_until(has_come, &number, limit_ms);
}

static uint64_t renewals_of(struct fleet *fleet) {
    hf_stats stats = HF_STATS_INIT;
    assert_int_equal(hf_client_stats(fleet->client, &stats), HF_OK);
    return stats.renewals;
}

struct renewals {
    struct fleet *fleet;
    uint64_t at_least;
};

static bool has_renewed(void *arg) {
    const struct renewals *wanted = arg;
    return renewals_of(wanted->fleet) >= wanted->at_least;
}

bool fleet_wait_renewed(struct fleet *fleet, uint64_t more, int64_t limit_ms) {
    struct renewals wanted = {fleet, renewals_of(fleet) + more};
    return wait_until(has_renewed, &wanted, limit_ms);
}

static void *call(void *arg) {
    struct fleet_caller *caller = arg;
    int64_t start_ms = now_ms();
    caller->result = hf_lock_acquire_with(caller->lock, &caller->options, NULL);
    caller->took_ms = now_ms() - start_ms;
    atomic_store(&caller->done, true);
    return NULL;
}

void fleet_call_acquire(struct fleet_caller *caller, hf_lock *lock, hf_acquire_options options) {
    memset(caller, 0, sizeof *caller);
    caller->lock = lock;
    caller->options = options;
    assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
}

int fleet_join(struct fleet_caller *caller) {
    pthread_join(caller->thread, NULL);
    return caller->result;
}
