/*
 * holdfast and the released Redisson on one cluster, in both directions: the messages that announce
 * releases, a slot that moves, and a failover.
 *
 * Three primaries with a replica each. Redisson's waiters lose their subscription when a slot moves
 * or its server dies, and do not get it back: they sleep until the lease that they saw ends. So
 * only our waiters must be woken by a message afterwards; Java's have until that end, and some time
 * to poll.
 */
#include "both.h"
#include "support/shards.h"

static struct shards *shards;

static struct server *server_of(const char *name) {
    return shards_owner_of(shards, name);
}

static int start_suite(void **state) {
    /* No pause of a busy machine is so long that a replica takes over by itself. */
    const struct shards_options options = {.replicas = true, .node_timeout_ms = 2000};
    (void)state;
    shards = shards_start(&options);
    return both_start(shards_url(shards), "PUBSUB SHARDCHANNELS", server_of) ? 0 : 1;
}

static int end_suite(void **state) {
    (void)state;
    both_stop();
    shards_free(shards);
    return 0;
}

static int start_row(void **state) {
    (void)state;
    shards_heal(shards);
    return 0;
}

static void each_kind_wakes_the_other_side_by_message(void **state) {
    (void)state;
    both_wake_each_other("plain", "plain", HF_PLAIN);
    both_wake_each_other("once", "nonreentrant", HF_PLAIN | HF_NONREENTRANT);
    both_wake_each_other("fenced", "fenced", HF_PLAIN | HF_FENCED);
    both_wake_each_other("fair", "fair", HF_FAIR);
    both_wake_each_other("writes", "write", HF_WRITE);
}

/* ---- A slot moves ---- */

static void move(const char *name) {
    unsigned slot = shards_slot(shards, name);
    struct server *from = shards_owner(shards, slot), *to = shards_other(shards, from);
    shards_move_slot(shards, slot, from, to);
}

static void c_is_woken_by_java_after_a_move(void **state) {
    (void)state;
    struct both both = both_on("moved-c", "plain", HF_PLAIN);
    both_java_takes(&both);
    hf_op *op = both_c_waits(&both);
    move(both.name);
    both_wait_listened(&both); /* over there */
    both_assert_c_still_waits(op);
    both_java_unlocks(&both);
    both_assert_c_gets_it(&both, op, BOTH_BY_MESSAGE_MS);
    both_end(&both);
}

static void java_gets_it_from_c_after_a_move(void **state) {
    (void)state;
    struct both both = both_on("moved-j", "plain", HF_PLAIN);
    both_c_takes(&both, BOTH_WAIT_MS);
    int waiting = both_java_waits(&both);
    move(both.name);
    both_c_releases(&both);
    both_assert_java_gets_it(&both, waiting, BOTH_WAIT_MS + BOTH_HANG_MS);
    both_java_unlocks(&both);
    both_end(&both);
}

/* ---- A primary dies ---- */

static bool has_replicated(void *arg) {
    redisReply *reply = cmd(arg, "WAIT 1 1000");
    bool done = reply != NULL && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    if (reply != NULL)
        freeReplyObject(reply);
    return done;
}

/* What the lock is at the moment is at the replica, too, when the primary dies. */
static void kill_primary_of(const struct both *both) {
    struct server *primary = shards_owner_of(shards, both->name);
    cmd_ok(primary, "SET {%s}replicated 1", both->name);
    assert_true(wait_until(has_replicated, primary, BOTH_HANG_MS));
    shards_kill(shards, primary);
}

static void c_gets_it_from_java_after_a_failover(void **state) {
    (void)state;
    struct both both = both_on("failed-c", "plain", HF_PLAIN);
    both_java_takes(&both);
    hf_op *op = both_c_waits(&both);
    kill_primary_of(&both);
    both_wait_listened(&both); /* at the new one */
    both_assert_c_still_waits(op);
    both_java_unlocks(&both);
    both_assert_c_gets_it(&both, op, BOTH_HANG_MS);
    both_end(&both);
}

static void java_gets_it_from_c_after_a_failover(void **state) {
    (void)state;
    struct both both = both_on("failed-j", "plain", HF_PLAIN);
    both_c_takes(&both, BOTH_WAIT_MS);
    int waiting = both_java_waits(&both);
    kill_primary_of(&both);
    both_c_releases(&both);
    both_assert_java_gets_it(&both, waiting, BOTH_WAIT_MS + BOTH_HANG_MS);
    both_java_unlocks(&both);
    both_end(&both);
}

int main(void) {
    const struct CMUnitTest rows[] = {
        cmocka_unit_test_setup(each_kind_wakes_the_other_side_by_message, start_row),
        cmocka_unit_test_setup(c_is_woken_by_java_after_a_move, start_row),
        cmocka_unit_test_setup(java_gets_it_from_c_after_a_move, start_row),
        cmocka_unit_test_setup(c_gets_it_from_java_after_a_failover, start_row),
        cmocka_unit_test_setup(java_gets_it_from_c_after_a_failover, start_row),
    };
    int built = both_build();
    if (built != 0)
        return built;
    return cmocka_run_group_tests_name("interop.cluster", rows, start_suite, end_suite) == 0 ? 0
                                                                                             : 1;
}
