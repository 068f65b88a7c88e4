/*
 * Memory runs out while the map of a cluster is asked for, and while a slot is followed to another server.
 *
 * A client's allocator fails its n-th call, for each n in turn until a whole scene ran without
 * coming to it. Whatever fails, the outcome is an error or a slower way; when there is memory
 * again, the server of the slot is found and used; and in the end every byte is given back. `make
 * test` tries some of them, `make soak` all. The servers are real, three primaries.
 */
#include "route/ring.h"

#include "support/memory.h"

#define STRIDE 3 /* prime to the length of whatever is done in turn */

static void assert_allowed(int err) {
    if (err != HF_OK && err != HF_ENOMEM && err != HF_EUNREACH && err != HF_EINDOUBT &&
        err != HF_ETIMEDOUT && err != HF_ELOST && err != HF_ENOTOWNER && err != HF_EUNAVAILABLE)
        fail_msg("%s: %s", hf_error_name(err), hf_last_error()->text);
}

/* To another server, with what is in it. */
static struct server *move_slot(struct shards *shards, const char *name) {
    unsigned slot = shards_slot(shards, name);
    struct server *from = shards_owner(shards, slot), *to = shards_other(shards, from);
    shards_move_slot(shards, slot, from, to);
    return to;
}

static void live_through(hf_client *client, struct shards *shards, const char *name,
                         struct memory *memory) {
    own_lock *lock = NULL;
    int err = hf_lock_new(client, name, &lock);
    if (err != HF_OK) {
        assert_int_equal(err, HF_ENOMEM);
        return;
    }
    assert_allowed(hf_lock_acquire_for(lock, 3000));
    struct server *to = move_slot(shards, name);
    assert_allowed(hf_lock_acquire_for(lock, 3000));
    assert_allowed(hf_lock_release(lock));
    atomic_store(&memory->fail_at, 0);
    for (err = HF_OK; err == HF_OK || err == HF_ELOST;) /* whatever of it came about */
        err = hf_lock_release(lock);
    assert_int_equal(hf_lock_acquire_for(lock, HANG_MS), HF_OK);
    assert_true(key_exists(to, name));
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* Each time another slot moves: Redis 6.2 may not agree on one that goes back and forth. True: it came so far. */
static bool run_step(struct shards *shards, long fail_at) {
    struct memory memory = {0};
    char name[32];
    hf_options options = scene_options();
    hf_client *client = NULL;
    options.allocator = memory_allocator(&memory);
    atomic_store(&memory.fail_at, fail_at);
    snprintf(name, sizeof name, "memory-%ld", fail_at);
    int err = hf_open(shards_url(shards), &options, &client);
    if (err == HF_OK)
        live_through(client, shards, name, &memory);
    else
        assert_int_equal(err, HF_ENOMEM);
    hf_close(client);
    assert_int_equal(atomic_load(&memory.live), 0);
    return atomic_load(&memory.calls) >= fail_at;
}

RING_CASE(each_allocation_fails_in_turn) {
    long stride = getenv("HF_SOAK") != NULL ? 1 : STRIDE, at = 1;
    while (run_step(r->shards, at))
        at += stride;
    assert_true(at > 50); /* else the allocator was never asked */
    print_message("%ld allocations\n", at - stride);
}

RUN_CASES(ring_start, ring_stop)
