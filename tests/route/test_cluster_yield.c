/*
 * Yielding (src/redis/wait/yield_to_waiters.c) for a lock that has moved to another server of a
 * cluster meanwhile, with memory that fails at each step in turn.
 *
 * A client that released it listens where it was. Its next attempt is sent elsewhere, where
 * somebody else has the lock, so it listens there instead; and if there is no memory for that,
 * nowhere: it polls. What it was owed for is then nobody's business any more.
 */
#include "route/ring.h"
#include "support/memory.h"

#define NAME "stood-back-for"
#define STEPS_MAX 200
#define POLL_MS 10000 /* who believes that it listens, and does not, sleeps for so long */
#define SLOW "0.015"  /* s: what the release takes, so that what is stood back for is 20 ms */

struct stage {
    struct ring *ring;
    struct memory memory;
    hf_client *client;
    hf_lock *lock, *rival;
    unsigned slot;
    struct server *from, *to;
    redisContext *subscriber; /* somebody else who listens there */
    char channel[128];
    bool sharded;
    hf_lock *beside, *beside_rival;
    hf_op *beside_op; /* waits where the slot goes to, so that there is a way to there */
};

static void listen_too(struct stage *stage) {
    redisReply *channels = cmd(stage->from, "PUBSUB SHARDCHANNELS *{" NAME "}");
    stage->sharded = channels->type == REDIS_REPLY_ARRAY && channels->elements > 0;
    if (!stage->sharded) {
        freeReplyObject(channels);
        channels = cmd(stage->from, "PUBSUB CHANNELS *{" NAME "}");
    }
    assert_int_equal(channels->elements, 1);
    snprintf(stage->channel, sizeof stage->channel, "%s", channels->element[0]->str);
    freeReplyObject(channels);
    stage->subscriber = server_connect(stage->from);
    freeReplyObject(redisCommand(
        stage->subscriber, stage->sharded ? "SSUBSCRIBE %s" : "SUBSCRIBE %s", stage->channel));
}

static int join(hf_op *op, int64_t limit_ms) {
    int err = hf_op_wait(op, limit_ms, NULL);
    hf_op_free(op);
    return err;
}

static hf_op *start(hf_lock *lock, hf_owner owner) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op = NULL;
    options.owner = owner;
    options.wait_ms = HF_FOREVER;
    int err = hf_lock_acquire_start(lock, &options, NULL, NULL, &op);
    assert_true(err == HF_OK || err == HF_ENOMEM);
    return op;
}

static void wait_beside(struct stage *stage) {
    char name[32];
    ring_name_at(stage->ring, stage->to, "beside", name);
    assert_int_equal(hf_lock_new(stage->client, name, &stage->beside), HF_OK);
    assert_int_equal(hf_lock_new(stage->ring->rival, name, &stage->beside_rival), HF_OK);
    assert_int_equal(hf_lock_acquire(stage->beside_rival), HF_OK);
    stage->beside_op = start(stage->beside, 7);
    assert_true(ring_wait_listened(stage->to, name));
}

/* The client has the lock after a wait, so it listens, and somebody else does, too. */
static void begin(struct stage *stage, struct ring *ring) {
    hf_options options = scene_options();
    memset(stage, 0, sizeof *stage);
    stage->ring = ring;
    options.allocator = memory_allocator(&stage->memory);
    assert_int_equal(hf_open(shards_url(stage->ring->shards), &options, &stage->client), HF_OK);
    assert_int_equal(hf_lock_new(stage->client, NAME, &stage->lock), HF_OK);
    assert_int_equal(hf_lock_new(stage->ring->rival, NAME, &stage->rival), HF_OK);
    stage->slot = shards_slot(stage->ring->shards, NAME);
    stage->from = shards_owner(stage->ring->shards, stage->slot);
    stage->to = shards_other(stage->ring->shards, stage->from);
    assert_int_equal(hf_lock_acquire(stage->rival), HF_OK);
    hf_op *op = start(stage->lock, 5);
    assert_true(ring_wait_listened(stage->from, NAME));
    assert_int_equal(hf_lock_release(stage->rival), HF_OK);
    assert_int_equal(join(op, HANG_MS), HF_OK);
    listen_too(stage);
    wait_beside(stage);
}

static void say(struct stage *stage, const char *line) {
    own_reply *reply = shards_ask(stage->ring->shards, stage->to, line);
    assert_true(reply != NULL && reply->type == REDIS_REPLY_INTEGER);
}

/* Somebody else has it where the slot goes to, and the client that finds nothing here is sent there. */
static void move_away(struct stage *stage) {
    shards_open_slot(stage->ring->shards, stage->slot, stage->from, stage->to);
    say(stage, "HSET " NAME " other:1 1");
}

/* That one has released it, and a listener where it was is notified, too. */
static void free_it(struct stage *stage) {
    say(stage, "DEL " NAME);
    cmd_ok(stage->from, stage->sharded ? "SPUBLISH %s 0" : "PUBLISH %s 0", stage->channel);
}

static void release_slowly(struct stage *stage) {
    own_context *sleeper = server_connect(stage->from);
    own_reply *reply = NULL;
    int sent = 0;
    assert_int_equal(redisAppendCommand(sleeper, "DEBUG SLEEP " SLOW), REDIS_OK);
    while (sent == 0)
        assert_int_equal(redisBufferWrite(sleeper, &sent), REDIS_OK);
    assert_int_equal(hf_lock_release_as(stage->lock, 5), HF_OK);
    assert_int_equal(redisGetReply(sleeper, (void **)&reply), REDIS_OK);
}

struct asked {
    struct server *server;
    long long before;
    hf_op *op;
};

static bool was_asked_or_over(void *arg) {
    const struct asked *asked = arg;
    return server_calls(asked->server, "evalsha") > asked->before ||
           hf_op_wait(asked->op, 0, NULL) != HF_EPENDING;
}

static void end(struct stage *stage) {
    redisFree(stage->subscriber);
    hf_op_cancel(stage->beside_op);
    assert_int_equal(join(stage->beside_op, HANG_MS), HF_ECANCELED);
    assert_int_equal(hf_lock_release(stage->beside_rival), HF_OK);
    hf_lock_free(stage->beside);
    hf_lock_free(stage->beside_rival);
    shards_keep_slot(stage->ring->shards, stage->slot, stage->from, stage->to);
    hf_lock_free(stage->lock);
    hf_lock_free(stage->rival);
    assert_int_equal(hf_close(stage->client), HF_OK);
    assert_int_equal(atomic_load(&stage->memory.live), 0);
}

/* True: an allocation was the n-th from when it came again, and so it failed. */
static bool comes_again_without(struct ring *ring, long step) {
    struct stage stage;
    begin(&stage, ring);
    move_away(&stage);
    release_slowly(&stage);
    struct asked asked = {stage.to, server_calls(stage.to, "evalsha"), NULL};
    long fail_at = atomic_load(&stage.memory.calls) + step;
    atomic_store(&stage.memory.fail_at, fail_at);
    asked.op = start(stage.lock, 6);
    if (asked.op != NULL) {
        assert_true(wait_until(was_asked_or_over, &asked, HANG_MS));
        free_it(&stage);
        int err = join(asked.op, POLL_MS / 2);
        assert_true(err == HF_OK || err == HF_ENOMEM);
        atomic_store(&stage.memory.fail_at, 0);
        if (err == HF_OK)
            assert_int_equal(hf_lock_release_as(stage.lock, 6), HF_OK);
    }
    bool failed = atomic_load(&stage.memory.calls) >= fail_at;
    atomic_store(&stage.memory.fail_at, 0);
    end(&stage);
    return failed;
}

CASE(undone_where_the_lock_was) {
    struct ring ring;
    long step = 1;
    ring_begin(&ring, NULL);
    while (step < STEPS_MAX && comes_again_without(&ring, step))
        step++;
    ring_end(&ring);
    print_message("%ld steps\n", step - 1);
    assert_in_range(step, 3, STEPS_MAX - 1);
}

RUN_CASES(ring_start, ring_stop)
