/*
 * A semaphore, a latch and permits in a world; see objects.h.
 */
#include "sync/objects.h"

hf_client *object_open_mute(void) {
    hf_options options = world_options();
    hf_client *client = NULL;
    cmd_ok(world_server(), "ACL SETUSER mute on >x ~* +@all resetchannels");
    options.user = "mute";
    options.password = "x";
    assert_int_equal(hf_open(server_url(world_server()), &options, &client), HF_OK);
    return client;
}

void object_close_mute(hf_client *client) {
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(world_server(), "ACL DELUSER mute");
}

static void load_scripts(void) {
    const struct hfi_script *const scripts[] = {
        &hfi_script_plain_acquire,     &hfi_script_plain_release,    &hfi_script_semaphore_set,
        &hfi_script_semaphore_acquire, &hfi_script_semaphore_change, &hfi_script_semaphore_drain,
        &hfi_script_latch_set,         &hfi_script_latch_count_down, &hfi_script_counter_delete,
        &hfi_script_latch_read,        &hfi_script_semaphore_undo,   &hfi_script_permits_acquire,
        &hfi_script_permits_release,   &hfi_script_permits_extend,   &hfi_script_permits_lease,
        &hfi_script_permits_count,     &hfi_script_permits_set,      &hfi_script_permits_expire,
        &hfi_script_permits_delete,    &hfi_script_permits_renew};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        cmd_ok(world_server(), "SCRIPT LOAD %b", scripts[i]->body, scripts[i]->len);
}

void objects_begin(struct world *world, const hf_options *options) {
    hf_op *op = NULL;
    world_open(world, world_server(), options);
    load_scripts();
    assert_int_equal(hf_ping(world->client), HF_OK);
    int err = hf_ping_start(world->client, NULL, NULL, &op); /* the keeper's connection, too */
    assert_int_equal(world_wait_op(err, op, NULL), HF_OK);
}

/* ---- What the server knows ---- */

long long object_number(const char *name) {
    return server_value(world_server(), name);
}

struct wanted {
    const char *key;
    long long number;
};

static bool has_number(void *arg) {
    const struct wanted *wanted = arg;
    return server_has(world_server(), wanted->key) && object_number(wanted->key) == wanted->number;
}

bool object_wait_number(const char *key, long long number, int64_t limit_ms) {
    struct wanted wanted = {key, number};
    return wait_until(has_number, &wanted, limit_ms);
}

/* Of those that somebody waits at: the client that has held something for a second listens, too, for breaks. */
static bool no_channels(void *arg) {
    (void)arg;
    if (server_is_other(world_server()))
        return true; /* a watch that nobody waits for any more stays until it fires */
    own_reply *reply = cmd(world_server(), "PUBSUB CHANNELS redisson_*");
    assert_non_null(reply);
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 0;
}

bool object_wait_no_channels(int64_t limit_ms) {
    return wait_until(no_channels, NULL, limit_ms);
}

/* ---- Calls ---- */

void object_set_permits(hf_sem *sem, int64_t permits) {
    bool was_set = false;
    assert_int_equal(hf_sem_try_set(sem, permits, 0, &was_set), HF_OK);
    assert_true(was_set);
}

void object_assert_available(hf_sem *sem, int64_t expected) {
    int64_t permits = -99;
    assert_int_equal(hf_sem_available(sem, &permits), HF_OK);
    assert_int_equal(permits, expected);
}

static int acquire_here(struct world *world, int64_t permits, int64_t wait_ms) {
    return hf_sem_acquire_for(world->sem, permits, wait_ms);
}

static int release_here(struct world *world, int64_t permits) {
    return hf_sem_release(world->sem, permits);
}

static int count_down_here(struct world *world) {
    return hf_latch_count_down(world->latch);
}

static int await_here(struct world *world, int64_t wait_ms) {
    return hf_latch_await_for(world->latch, wait_ms);
}

static int acquire_started(struct world *world, int64_t permits, int64_t wait_ms) {
    hf_op *op = NULL;
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    int err = hf_sem_acquire_start(world->sem, permits, &options, NULL, NULL, &op);
    return world_wait_op(err, op, NULL);
}

static int release_started(struct world *world, int64_t permits) {
    hf_op *op = NULL;
    int err = hf_sem_release_start(world->sem, permits, NULL, NULL, &op);
    return world_wait_op(err, op, NULL);
}

static int count_down_started(struct world *world) {
    hf_op *op = NULL;
    int err = hf_latch_count_down_start(world->latch, NULL, NULL, &op);
    return world_wait_op(err, op, NULL);
}

static int await_started(struct world *world, int64_t wait_ms) {
    hf_op *op = NULL;
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    int err = hf_latch_await_start(world->latch, &options, NULL, NULL, &op);
    return world_wait_op(err, op, NULL);
}

const struct form object_forms[2] = {
    {"synchronous", acquire_here, release_here, count_down_here, await_here},
    {"asynchronous", acquire_started, release_started, count_down_started, await_started},
};

bool object_wait_asleep(struct world *world, const char *matcher, size_t attempts,
                        int64_t limit_ms) {
    return proxy_wait_seen(world->proxy, matcher, attempts, limit_ms);
}

/* A path and, behind it in the frame, that a watch is wanted. */
static bool wait_watches(struct world *world, const char *path_and_watch, size_t watches) {
    return proxy_wait_seen(world->proxy, path_and_watch, watches, HANG_MS) &&
           proxy_wait_answered(world->proxy, HANG_MS);
}

bool object_wait_sem(struct world *world, size_t attempts, size_t watches) {
    return server_is_other(world_server())
               ? wait_watches(world, "/" SEM_NAME "\1", watches)
               : object_wait_asleep(world, SEM_ACQUIRE, attempts, HANG_MS);
}

bool object_wait_latch(struct world *world, size_t attempts, size_t watches) {
    return server_is_other(world_server())
               ? wait_watches(world, "/" LATCH_NAME "\1", watches)
               : object_wait_asleep(world, LATCH_LOOK, attempts, HANG_MS);
}

/* ---- Generations of a latch ---- */

void object_next_generation(enum object_hand opener, enum object_hand closer, int count) {
    static const char keys[] = "3 " LATCH_NAME " {" LATCH_NAME "}:timeout " LATCH_PROOF;
    char command[512];
    cmd_ok(world_server(), "MULTI");
    if (opener == LATCH_OURS) {
        snprintf(command, sizeof command, "EVALSHA %s %s 0 publish " LATCH_CHANNEL,
                 hfi_script_latch_count_down.sha1, keys);
        cmd_ok(world_server(), command);
    } else {
        cmd_ok(world_server(), "DEL " LATCH_NAME);
        cmd_ok(world_server(), "PUBLISH " LATCH_CHANNEL " 0");
    }
    if (closer == LATCH_OURS) {
        snprintf(command, sizeof command, "EVALSHA %s %s 0 %d publish " LATCH_CHANNEL,
                 hfi_script_latch_set.sha1, keys, count);
        cmd_ok(world_server(), command);
    } else {
        cmd_ok(world_server(), "SET " LATCH_NAME " %d", count);
        cmd_ok(world_server(), "PUBLISH " LATCH_CHANNEL " 1");
    }
    cmd_ok(world_server(), "EXEC");
}
