/*
 * A real server behind a proxy, a client on it, a lock and the other objects; see world.h.
 *
 * Used by the tests of faults and rules. The server is one per test program and lives from the
 * group's setup to its teardown; everything else is made and ended by the test itself, on its own
 * thread. A client is warmed up before a test begins: scripts are loaded and connections made, so a
 * rule of the proxy meets the command it is meant for.
 */
#include "support/world.h"

#include <inttypes.h>
#include <sched.h>

static struct server *shared_server;

int world_start_server(void **state) {
    (void)state;
    shared_server = server_start(NULL);
    return 0;
}

int world_stop_server(void **state) {
    (void)state;
    server_free(shared_server);
    return 0;
}

struct server *world_server(void) {
    return shared_server;
}

hf_sem *object_sem(hf_client *client) {
    hf_sem *sem = NULL;
    assert_int_equal(hf_sem_new_bytes(client, SEM_NAME, strlen(SEM_NAME), &sem), HF_OK);
    return sem;
}

hf_latch *object_latch(hf_client *client) {
    hf_latch *latch = NULL;
    assert_int_equal(hf_latch_new_bytes(client, LATCH_NAME, strlen(LATCH_NAME), &latch), HF_OK);
    return latch;
}

hf_permits *pool_permits(hf_client *client) {
    hf_permits *permits = NULL;
    assert_int_equal(hf_permits_new_bytes(client, POOL_NAME, strlen(POOL_NAME), &permits), HF_OK);
    return permits;
}

hf_options world_options(void) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = 5000;
    options.connect_timeout_ms = 10000;
    options.watchdog_ms = 60000;
    return options;
}

void world_owner_text(const hf_client *client, hf_owner owner, char text[64]) {
    snprintf(text, 64, "%s:%" PRIu64, hf_client_id(client), owner);
}

void world_open(struct world *world, struct server *server, const hf_options *given) {
    hf_options options = given != NULL ? *given : world_options();
    memset(world, 0, sizeof *world);
    world->server = server;
    server_empty(server);
    world->proxy = server_proxy(server);
    assert_int_equal(hf_open(proxy_url(world->proxy), &options, &world->client), HF_OK);
    assert_int_equal(hf_open(server_url(server), &options, &world->rival), HF_OK);
    assert_int_equal(hf_lock_new(world->client, WORLD_NAME, &world->lock), HF_OK);
    assert_int_equal(hf_lock_new(world->rival, WORLD_NAME, &world->rival_lock), HF_OK);
    world->sem = object_sem(world->client);
    world->rival_sem = object_sem(world->rival);
    world->latch = object_latch(world->client);
    world->rival_latch = object_latch(world->rival);
    world->permits = pool_permits(world->client);
    world->rival_permits = pool_permits(world->rival);
    world_owner_text(world->client, hf_owner_self(), world->owner);
    world_owner_text(world->rival, hf_owner_self(), world->rival_owner);
}

void world_begin_on(struct world *world, struct server *server, const hf_options *given) {
    world_open(world, server, given);
    world_warm_up(world->lock);
    world_warm_up(world->rival_lock);
}

void world_begin(struct world *world, const hf_options *options) {
    world_begin_on(world, shared_server, options);
}

void world_end(struct world *world) {
    hf_lock_free(world->lock);
    hf_lock_free(world->rival_lock);
    hf_sem_free(world->sem);
    hf_sem_free(world->rival_sem);
    hf_latch_free(world->latch);
    hf_latch_free(world->rival_latch);
    hf_permits_free(world->permits);
    hf_permits_free(world->rival_permits);
    assert_int_equal(hf_close(world->client), HF_OK);
    assert_int_equal(hf_close(world->rival), HF_OK);
    proxy_free(world->proxy);
}

/* ---- What the server knows ---- */

int world_wait_op(int err, hf_op *op, hf_result *ret) {
    if (err != HF_OK)
        return err;
    err = hf_op_wait(op, HANG_MS, ret);
    hf_op_free(op);
    return err;
}

/* The node says who, and only the holder how often. */
static long long count_beside_node(struct world *world, const char *text) {
    hf_owner owner = strtoull(strchr(text, ':') + 1, NULL, 10);
    bool rivals = strncmp(text, hf_client_id(world->rival), strcspn(text, ":")) == 0;
    hf_lock *lock = rivals ? world->rival_lock : world->lock;
    hf_op *op = NULL;
    hf_result result = HF_RESULT_INIT;
    if (!server_first_is(world->server, WORLD_NAME, text))
        return 0;
    int err = hf_lock_hold_count_start(lock, owner, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &result), HF_OK);
    return result.value;
}

long long world_count(struct world *world, const char *owner) {
    if (server_is_other(world->server))
        return count_beside_node(world, owner);
    own_reply *reply = cmd(world->server, "HGET %s %s", WORLD_NAME, owner);
    assert_non_null(reply);
    long long count = 0;
    if (reply->type == REDIS_REPLY_STRING)
        count = strtoll(reply->str, NULL, 10);
    else
        assert_int_equal(reply->type, REDIS_REPLY_NIL);
    return count;
}

bool world_free(struct world *world) {
    return !server_has(world->server, WORLD_NAME);
}

long long world_keys(struct server *server) {
    return server_things(server);
}

static bool is_free(void *arg) {
    return world_free(arg);
}

bool world_wait_free(struct world *world, int64_t limit_ms) {
    return wait_until(is_free, world, limit_ms);
}

bool world_free_after_refusal(struct world *world) {
    return server_is_other(world->server) ? world_wait_free(world, HANG_MS) : world_free(world);
}

struct wanted_count {
    struct world *world;
    const char *owner;
    long long count;
};

static bool has_count(void *arg) {
    struct wanted_count *wanted = arg;
    return world_count(wanted->world, wanted->owner) == wanted->count;
}

bool world_wait_count(struct world *world, const char *owner, long long count, int64_t limit_ms) {
    struct wanted_count wanted = {world, owner, count};
    return wait_until(has_count, &wanted, limit_ms);
}

long long world_channels(struct server *server) {
    if (server_is_other(server))
        return server_watches(server);
    own_reply *reply = cmd(server, "PUBSUB CHANNELS redisson*");
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    return (long long)reply->elements;
}

/* A watch stays until what it is on goes, no matter who gave up meanwhile. */
static bool no_channels(void *arg) {
    return server_is_other(arg) ? server_queued(arg, WORLD_NAME) <= 1 : world_channels(arg) == 0;
}

bool world_wait_no_channels(struct server *server, int64_t limit_ms) {
    return wait_until(no_channels, server, limit_ms);
}

hf_stats world_stats(hf_client *client) {
    hf_stats stats = HF_STATS_INIT;
    assert_int_equal(hf_client_stats(client, &stats), HF_OK);
    return stats;
}

static bool has_verified(void *client) {
    return world_stats(client).renewals >= 1;
}

bool world_wait_verified(struct world *world, int64_t limit_ms) {
    return server_is_other(world->server) || wait_until(has_verified, world->client, limit_ms);
}

const char *world_acquires(const struct world *world) {
    return server_is_other(world->server) ? "create2 /" WORLD_NAME "/" : WORLD_ACQUIRE;
}

const char *world_releases(const struct world *world) {
    return server_is_other(world->server) ? "delete /" WORLD_NAME "/" : WORLD_RELEASE;
}

const char *world_renews(const struct world *world) {
    return server_is_other(world->server) ? "multi" : WORLD_RENEW;
}

const char *world_listens(const struct world *world) {
    return server_is_other(world->server) ? "getData /" WORLD_NAME "/" : WORLD_SUBSCRIBE;
}

static bool is_watched(void *arg) {
    const struct world *world = arg;
    return server_watches(world->server) > 0 && proxy_wait_answered(world->proxy, 0);
}

/* With Redis the second attempt, after the subscription, is the one that is followed by sleep. */
bool world_wait_asleep(const struct world *world, size_t seen, int64_t limit_ms) {
    struct world watched = *world;
    return server_is_other(world->server)
               ? wait_until(is_watched, &watched, limit_ms)
               : proxy_wait_seen(world->proxy, WORLD_ACQUIRE, seen + 2, limit_ms);
}

/* ---- Calls ---- */

hf_acquire_options world_wait_for(int64_t wait_ms, int64_t lease_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    options.lease_ms = lease_ms;
    return options;
}

hf_acquire_options world_wait_as(hf_owner owner, int64_t wait_ms, int64_t lease_ms) {
    hf_acquire_options options = world_wait_for(wait_ms, lease_ms);
    options.owner = owner;
    return options;
}

void world_warm_up(hf_lock *lock) {
    hf_acquire_options leased = world_wait_for(HF_FOREVER, 60000); /* no watchdog of the test's */
    int64_t until_ms = now_ms() + HANG_MS;
    bool warm = false;
    while (!warm) {
        assert_true(now_ms() < until_ms);
        bool acquired = hf_lock_acquire_with(lock, &leased, NULL) == HF_OK;
        bool extended = acquired && hf_lock_extend(lock, 60000) == HF_OK;
        bool released = acquired && hf_lock_release(lock) == HF_OK;
        warm = extended && released;
    }
}

void world_acquire_brief(hf_lock *lock, const hf_acquire_options *options) {
    int64_t until_ms = now_ms() + HANG_MS;
    int err;
    do
        err = hf_lock_acquire_with(lock, options, NULL);
    while (err == HF_ETIMEDOUT && now_ms() < until_ms &&
           strstr(hf_last_error()->text, "the lease ended") != NULL);
    assert_int_equal(err, HF_OK);
}

int world_acquire_async(hf_lock *lock, hf_owner owner, int64_t wait_ms, hf_result *ret) {
    hf_op *op = NULL;
    hf_acquire_options options =
        world_wait_as(owner != 0 ? owner : hf_owner_self(), wait_ms, HF_WATCHDOG);
    int err = hf_lock_acquire_start(lock, &options, NULL, NULL, &op);
    return world_wait_op(err, op, ret);
}

int world_release_async(hf_lock *lock, hf_owner owner, hf_result *ret) {
    hf_op *op = NULL;
    int err = hf_lock_release_start(lock, owner, NULL, NULL, &op);
    return world_wait_op(err, op, ret);
}

void *world_fire(void *cancel) {
    sched_yield();
    hf_cancel_fire(cancel);
    return NULL;
}

int world_acquire_and_cancel(hf_lock *lock, hf_owner owner) {
    hf_acquire_options options = world_wait_as(owner, HF_FOREVER, HF_WATCHDOG);
    assert_int_equal(hf_cancel_new(&options.cancel), HF_OK);
    pthread_t thread = started(world_fire, options.cancel);
    int err = hf_lock_acquire_with(lock, &options, NULL);
    pthread_join(thread, NULL);
    hf_cancel_free(options.cancel);
    return err;
}

static void *run_call(void *arg) {
    struct world_caller *caller = arg;
    caller->owner = caller->options.owner != 0 ? caller->options.owner : hf_owner_self();
    int64_t start_ms = now_ms();
    caller->result = caller->call(caller);
    caller->took_ms = now_ms() - start_ms;
    atomic_store(&caller->done, true);
    return NULL;
}

static void start_call(struct world_caller *caller) {
    assert_int_equal(pthread_create(&caller->thread, NULL, run_call, caller), 0);
}

static int acquire_lock(struct world_caller *caller) {
    return hf_lock_acquire_with(caller->handle, &caller->options, NULL);
}

void world_call_acquire(struct world_caller *caller, hf_lock *lock, hf_acquire_options options) {
    *caller = (struct world_caller){.call = acquire_lock, .handle = lock, .options = options};
    start_call(caller);
}

static hf_wait_options wait_options(int64_t wait_ms, hf_cancel *cancel) {
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    options.cancel = cancel;
    return options;
}

static int acquire_sem(struct world_caller *caller) {
    return hf_sem_acquire_with(caller->handle, caller->permits, &caller->wait);
}

void world_call_sem(struct world_caller *caller, hf_sem *sem, int64_t permits, int64_t wait_ms,
                    hf_cancel *cancel) {
    *caller = (struct world_caller){.call = acquire_sem,
                                    .handle = sem,
                                    .permits = permits,
                                    .wait = wait_options(wait_ms, cancel)};
    start_call(caller);
}

static int await_latch(struct world_caller *caller) {
    return hf_latch_await_with(caller->handle, &caller->wait);
}

void world_call_latch(struct world_caller *caller, hf_latch *latch, int64_t wait_ms,
                      hf_cancel *cancel) {
    *caller = (struct world_caller){
        .call = await_latch, .handle = latch, .wait = wait_options(wait_ms, cancel)};
    start_call(caller);
}

static int acquire_permits(struct world_caller *caller) {
    return hf_permits_acquire_with(caller->handle, &caller->permits_options, caller->ids);
}

void world_call_permits(struct world_caller *caller, hf_permits *permits,
                        hf_permits_options options) {
    assert_true(options.count <= 8);
    *caller = (struct world_caller){
        .call = acquire_permits, .handle = permits, .permits_options = options};
    start_call(caller);
}

int world_join(struct world_caller *caller) {
    assert_int_equal(pthread_join(caller->thread, NULL), 0);
    return caller->result;
}

/* ---- Faults ---- */

void world_on_event(hf_lock *lock, const hf_event *event, void *arg) {
    struct world_events *events = arg;
    (void)lock;
    if (event->kind == HF_EVENT_WARNING) {
        atomic_store(&events->warned_with_ms, event->remaining_ms);
        atomic_store(&events->lost_when_warned, atomic_load(&events->losses));
        atomic_fetch_add(&events->warnings, 1);
    } else if (event->kind == HF_EVENT_LOST) {
        atomic_fetch_add(&events->losses, 1);
    } else {
        atomic_fetch_add(&events->orphans, 1);
    }
}

struct wanted_value {
    atomic_int *value;
    int at_least;
};

static bool has_value(void *arg) {
    struct wanted_value *wanted = arg;
    return atomic_load(wanted->value) >= wanted->at_least;
}

bool world_wait_atomic(atomic_int *value, int at_least, int64_t limit_ms) {
    struct wanted_value wanted = {value, at_least};
    return wait_until(has_value, &wanted, limit_ms);
}
