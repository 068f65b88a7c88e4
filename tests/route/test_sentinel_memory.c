/*
 * Memory runs out while a primary is looked for, and while it is followed.
 *
 * A client's allocator fails its n-th call, for each n in turn until a whole scene ran without
 * coming to it. Whatever fails, the outcome is an error or a slower way; when there is memory
 * again, the primary is found and used; and in the end every byte is given back. `make test` tries
 * some of them, `make soak` all. The sentinel is scripted, the servers are real.
 */
#include "route/scripted.h"

#include "route/scene.h"
#include "support/memory.h"

#define LOCALHOST "127.0.0.1"
#define STRIDE 11 /* prime to the length of whatever is done in turn */

static struct server *servers[2];
static struct scripted *sentinel;

static int start(void **state) {
    const struct server_options options = {.tcp = true};
    (void)state;
    for (int i = 0; i < 2; i++)
        servers[i] = server_start(&options);
    sentinel = scripted_start();
    return 0;
}

static int stop(void **state) {
    (void)state;
    scripted_free(sentinel);
    for (int i = 0; i < 2; i++)
        server_free(servers[i]);
    return 0;
}

static void assert_allowed(int err) {
    if (err != HF_OK && err != HF_ENOMEM && err != HF_EUNREACH && err != HF_EINDOUBT &&
        err != HF_ETIMEDOUT && err != HF_ELOST && err != HF_ENOTOWNER)
        fail_msg("%s: %s", hf_error_name(err), hf_last_error()->text);
}

static void cut_off(struct server *server) {
    freeReplyObject(cmd(server, "CLIENT KILL TYPE normal"));
}

/* It was notified of the change, or is now. What was acquired before may be released after it: the new
 * one does not have it. */
static bool has_moved(void *arg) {
    hf_lock *lock = arg;
    if (hf_lock_acquire_for(lock, HANG_MS) != HF_OK)
        return false;
    bool moved = key_exists(servers[1], "memory");
    int err = hf_lock_release(lock);
    assert_true(err == HF_OK || (!moved && err == HF_ELOST));
    if (!moved)
        cut_off(servers[0]);
    return moved;
}

static void live_through(hf_client *client, struct memory *memory) {
    own_lock *lock = NULL;
    int err = hf_lock_new(client, "memory", &lock);
    if (err != HF_OK) {
        assert_int_equal(err, HF_ENOMEM);
        return;
    }
    assert_allowed(hf_lock_acquire_for(lock, 3000));
    scripted_name(sentinel, LOCALHOST, server_port(servers[1]), 2);
    cut_off(servers[0]);
    assert_allowed(hf_lock_acquire_for(lock, 3000));
    assert_allowed(hf_lock_release(lock));
    atomic_store(&memory->fail_at, 0);
    for (err = HF_OK; err == HF_OK || err == HF_ELOST;) /* whatever of it came about */
        err = hf_lock_release(lock);
    assert_true(wait_until(has_moved, lock, HANG_MS));
}

/* True: it came so far. */
static bool run_step(long fail_at) {
    struct memory memory = {0};
    hf_options options = scene_options();
    hf_client *client = NULL;
    char url[256];
    options.allocator = memory_allocator(&memory);
    atomic_store(&memory.fail_at, fail_at);
    cmd_ok(servers[0], "FLUSHALL");
    cmd_ok(servers[1], "FLUSHALL");
    scripted_name(sentinel, LOCALHOST, server_port(servers[0]), 1);
    snprintf(url, sizeof url, "redis-sentinel://" LOCALHOST ":%d/" SCRIPTED_NAME,
             scripted_port(sentinel));
    int err = hf_open(url, &options, &client);
    if (err == HF_OK)
        live_through(client, &memory);
    else
        assert_int_equal(err, HF_ENOMEM);
    hf_close(client);
    assert_int_equal(atomic_load(&memory.live), 0);
    return atomic_load(&memory.calls) >= fail_at;
}

CASE(each_allocation_fails_in_turn) {
    long stride = getenv("HF_SOAK") != NULL ? 1 : STRIDE, at = 1;
    while (run_step(at))
        at += stride;
    assert_true(at > 50); /* else the allocator was never asked */
    print_message("%ld allocations\n", at - stride);
}

RUN_CASES(start, stop)
