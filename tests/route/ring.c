/* Two clients on a cluster; see ring.h. */
#include "route/ring.h"

/* A failover takes about 3 s. With less, servers that wait for a processor are replaced, too. */
#define BRISK_MS 2000
#define STEADY_MS 5000 /* as with an ordinary cluster */

static struct shards *shards;

int ring_start(void **state) {
    (void)state;
    shards = shards_start(NULL);
    return 0;
}

int ring_start_with_replicas(void **state) {
    (void)state;
    const struct shards_options options = {.replicas = true, .node_timeout_ms = BRISK_MS};
    shards = shards_start(&options);
    return 0;
}

int ring_start_by_hand(void **state) {
    (void)state;
    const struct shards_options options = {
        .replicas = true, .by_hand = true, .node_timeout_ms = BRISK_MS};
    shards = shards_start(&options);
    return 0;
}

int ring_start_steady(void **state) {
    (void)state;
    const struct shards_options options = {
        .replicas = true, .partial = true, .by_hand = true, .node_timeout_ms = STEADY_MS};
    shards = shards_start(&options);
    return 0;
}

int ring_start_partial(void **state) {
    (void)state;
    const struct shards_options options = {
        .replicas = true, .partial = true, .node_timeout_ms = BRISK_MS};
    shards = shards_start(&options);
    return 0;
}

int ring_stop(void **state) {
    (void)state;
    shards_free(shards);
    return 0;
}

void ring_begin(struct ring *ring, const hf_options *given) {
    hf_options options = given != NULL ? *given : scene_options();
    shards_heal(shards);
    *ring = (struct ring){.shards = shards};
    assert_int_equal(hf_open(shards_url(shards), &options, &ring->client), HF_OK);
    assert_int_equal(hf_open(shards_url(shards), &options, &ring->rival), HF_OK);
    assert_int_equal(hf_ping(ring->client), HF_OK);
    assert_int_equal(hf_ping(ring->rival), HF_OK);
}

void ring_end(struct ring *ring) {
    hf_close(ring->client);
    hf_close(ring->rival);
}

void ring_name_at(struct ring *ring, const struct server *server, const char *stem, char *name) {
    for (int i = 0; i < 1000; i++) {
        snprintf(name, 32, "%s-%d", stem, i);
        if (shards_owner_of(ring->shards, name) == server)
            return;
    }
    fail_msg("no name for that server");
}

static bool has_replicated(void *primary) {
    redisReply *reply = cmd(primary, "WAIT 1 1000");
    bool done = reply != NULL && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    if (reply != NULL)
        freeReplyObject(reply);
    return done;
}

/* The connection's WAIT is for what it has written itself, and so for all that came before that. */
void ring_replicate(struct ring *ring, struct server *primary) {
    char name[32];
    ring_name_at(ring, primary, "replicated", name);
    cmd_ok(primary, "SET %s 1", name);
    assert_true(wait_until(has_replicated, primary, HANG_MS));
}

struct ring_move ring_move_of(struct ring *ring, const char *name) {
    struct ring_move move = {.ring = ring, .slot = shards_slot(ring->shards, name)};
    move.from = shards_owner(ring->shards, move.slot);
    move.to = shards_other(ring->shards, move.from);
    return move;
}

void ring_open_slot(const struct ring_move *move) {
    shards_open_slot(move->ring->shards, move->slot, move->from, move->to);
}

void ring_move_key(const struct ring_move *move, const char *key) {
    shards_move_key(move->ring->shards, move->from, move->to, key);
}

void ring_close_slot(const struct ring_move *move) {
    shards_move_keys(move->ring->shards, move->slot, move->from, move->to);
    shards_close_slot(move->ring->shards, move->slot, move->from, move->to);
}

struct listened {
    struct server *server;
    const char *name;
};

static bool any_channel(struct server *server, const char *question, const char *name) {
    char line[128];
    bool braced = strchr(name, '{') != NULL; /* then its channels add none */
    snprintf(line, sizeof line, braced ? "%s *%s*" : "%s *{%s}*", question, name);
    redisReply *reply = cmd(server, line);
    bool any = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0;
    if (reply != NULL)
        freeReplyObject(reply);
    return any;
}

static bool is_listened(void *arg) {
    const struct listened *listened = arg;
    return any_channel(listened->server, "PUBSUB SHARDCHANNELS", listened->name) ||
           any_channel(listened->server, "PUBSUB CHANNELS", listened->name);
}

bool ring_wait_listened(struct server *server, const char *name) {
    struct listened listened = {server, name};
    return wait_until(is_listened, &listened, HANG_MS);
}
