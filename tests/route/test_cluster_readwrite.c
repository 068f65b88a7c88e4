/*
 * A read/write lock in a slot that moves from one server of a cluster to another.
 *
 * A reader's holds are keys beside the lock, which scripts cannot declare. While the slot is open, the lock
 * may be at the one server and those keys at the other, and the client that is sent after the lock takes live readers
 * for dead. The first test shows it with our scripts: a writer gets in beside a reader. The others show that
 * clients of ours do not go there: they wait, and nobody is let in.
 */
#include "redis/wire/script.h"
#include "route/ring.h"

/* All keys of the slot but for the lock's own. */
static void move_holds(const struct ring_move *move, const char *name) {
    own_reply *keys = cmd(move->from, "CLUSTER GETKEYSINSLOT %u 100", move->slot);
    for (size_t i = 0; i < keys->elements; i++)
        if (strcmp(keys->element[i]->str, name) != 0)
            ring_move_key(move, keys->element[i]->str);
}

/* ---- What would happen ---- */

/* Runs a script of ours on one key, with three arguments behind `not-after`; perhaps as one who was
 * sent there. Returns the first number of its answer; the time alone means that it went well. */
static long long run(struct server *server, bool asking, const struct hfi_script *script,
                     const char *key, const char *a, const char *b, const char *c) {
    own_context *context = server_connect(server);
    assert_non_null(context);
    if (asking)
        freeReplyObject(redisCommand(context, "ASKING"));
    own_reply *reply = redisCommand(context, "EVAL %b 1 %s 0 %s %s %s publish somewhere",
                                    script->body, script->len, key, a, b, c);
    assert_non_null(reply);
    if (reply->type != REDIS_REPLY_ARRAY && reply->type != REDIS_REPLY_INTEGER)
        fail_msg("%s: %s", script->name, reply->str);
    return reply->type == REDIS_REPLY_ARRAY ? reply->element[0]->integer : 1;
}

RING_CASE(following_the_lock_lets_a_writer_in_beside_a_reader) {
    struct ring_move move = ring_move_of(r, "rw");
    assert_int_equal(run(move.from, false, &hfi_script_read_acquire, "rw", "ann", "300000", "0"),
                     1);
    assert_int_equal(run(move.from, false, &hfi_script_read_acquire, "rw", "bob", "300000", "0"),
                     1);
    assert_int_equal(
        run(move.from, false, &hfi_script_write_acquire, "rw", "eve:write", "300000", "0"), 0);
    ring_open_slot(&move);
    ring_move_key(&move, "rw");
    run(move.to, true, &hfi_script_read_release, "rw", "bob", "1", "publish");
    assert_int_equal(
        run(move.to, true, &hfi_script_write_acquire, "rw", "eve:write", "300000", "0"), 1);
    assert_true(pttl(move.from, "{rw}:ann:rwlock_timeout:1") > 0); /* who reads all the while */
}

/* ---- What happens ---- */

struct released {
    pthread_t thread;
    hf_lock *lock;
    hf_owner owner;
    int result;
    atomic_bool done;
};

static void *release_it(void *arg) {
    struct released *released = arg;
    released->result = hf_lock_release_as(released->lock, released->owner);
    atomic_store(&released->done, true);
    return NULL;
}

struct redirected {
    hf_client *client;
    uint64_t at_least;
};

static bool is_redirected(void *arg) {
    const struct redirected *redirected = arg;
    return scene_stats(redirected->client).redirects >= redirected->at_least;
}

static void wait_redirects(hf_client *client, uint64_t more) {
    struct redirected redirected = {client, scene_stats(client).redirects + more};
    assert_true(wait_until(is_redirected, &redirected, HANG_MS));
}

static bool is_free(hf_lock *lock) {
    bool locked;
    assert_int_equal(hf_lock_is_locked(lock, &locked), HF_OK);
    return !locked;
}

/* Ann reads all the while; Bob reads and lets go; Eve wants to write. The lock moves, and then
 * stays alone over there. */
RING_CASE(a_writer_waits_for_a_reader_whose_holds_have_not_moved) {
    struct scene_waiter eve;
    struct released bob;
    struct ring_move move = ring_move_of(r, "rw");
    own_lock *ann_lock = scene_lock(r->client, HF_READ, "rw");
    own_lock *bob_lock = scene_lock(r->rival, HF_READ, "rw");
    own_lock *eve_lock = scene_lock(r->rival, HF_WRITE, "rw");
    assert_int_equal(hf_lock_acquire(ann_lock), HF_OK);
    assert_int_equal(hf_lock_acquire(bob_lock), HF_OK);
    ring_open_slot(&move);
    ring_move_key(&move, "rw");
    struct monitor *over_there = monitor_start(move.to);

    bob = (struct released){.lock = bob_lock, .owner = hf_owner_self()};
    assert_int_equal(pthread_create(&bob.thread, NULL, release_it, &bob), 0);
    scene_wait_for(&eve, eve_lock);
    wait_redirects(r->rival, 6); /* both were sent there, and again */
    assert_false(atomic_load(&bob.done));
    assert_int_equal(monitor_count(over_there, "EVAL"), 0);
    monitor_stop(over_there);

    ring_close_slot(&move);
    assert_int_equal(pthread_join(bob.thread, NULL), 0);
    assert_int_equal(bob.result, HF_OK);
    assert_true(ring_wait_listened(move.to, "rw")); /* so Eve has asked there, in vain */
    assert_true(hf_lock_remaining_ms(ann_lock) > 0);
    assert_int_equal(hf_lock_extend(ann_lock, 2 * LONG_MS), HF_OK);
    assert_int_equal(hf_lock_release(ann_lock), HF_OK);
    assert_int_equal(scene_join(&eve), HF_OK);
    assert_int_equal(hf_lock_release_as(eve_lock, eve.owner), HF_OK);
    assert_true(is_free(ann_lock));
    assert_int_equal(scene_stats(r->client).losses, 0);
    assert_int_equal(scene_stats(r->rival).losses, 0);
}

struct tries {
    struct server *server;
    long long calls;
    atomic_bool *done;
};

static bool is_tried_or_done(void *arg) {
    const struct tries *tries = arg;
    return server_calls(tries->server, "evalsha") > tries->calls || atomic_load(tries->done);
}

/* The other way round: a script stops half way, since what it finds missing may be over there. */
RING_CASE(a_reader_whose_holds_have_moved_first_lets_go) {
    struct released ann;
    struct ring_move move = ring_move_of(r, "rw");
    own_lock *ann_lock = scene_lock(r->client, HF_READ, "rw");
    own_lock *eve_lock = scene_lock(r->rival, HF_WRITE, "rw");
    assert_int_equal(hf_lock_acquire(ann_lock), HF_OK);
    ring_open_slot(&move);
    move_holds(&move, "rw");
    assert_int_equal(hf_lock_try(eve_lock), HF_EBUSY);

    ann = (struct released){.lock = ann_lock, .owner = hf_owner_self()};
    struct tries tries = {move.from, server_calls(move.from, "evalsha") + 2, &ann.done};
    assert_int_equal(pthread_create(&ann.thread, NULL, release_it, &ann), 0);
    assert_true(wait_until(is_tried_or_done, &tries, HANG_MS));
    ring_close_slot(&move);
    assert_int_equal(pthread_join(ann.thread, NULL), 0);
    assert_int_equal(ann.result, HF_OK);
    assert_int_equal(hf_lock_acquire(eve_lock), HF_OK);
    assert_int_equal(hf_lock_release(eve_lock), HF_OK);
    assert_int_equal(scene_stats(r->client).losses, 0);
}

/* A writer has no keys beside the lock, and still waits: it cannot know which readers there are. */
RING_CASE(a_writer_keeps_its_lock_through_a_move) {
    struct released eve;
    struct ring_move move = ring_move_of(r, "rw");
    own_lock *eve_lock = scene_lock(r->client, HF_WRITE, "rw");
    own_lock *ann_lock = scene_lock(r->rival, HF_READ, "rw");
    assert_int_equal(hf_lock_acquire(eve_lock), HF_OK);
    ring_open_slot(&move);
    ring_move_key(&move, "rw");
    eve = (struct released){.lock = eve_lock, .owner = hf_owner_self()};
    assert_int_equal(pthread_create(&eve.thread, NULL, release_it, &eve), 0);
    wait_redirects(r->client, 3);
    assert_false(atomic_load(&eve.done));
    ring_close_slot(&move);
    assert_int_equal(pthread_join(eve.thread, NULL), 0);
    assert_int_equal(eve.result, HF_OK);
    assert_int_equal(hf_lock_acquire(ann_lock), HF_OK);
    assert_int_equal(hf_lock_release(ann_lock), HF_OK);
}

RUN_CASES(ring_start, ring_stop)
