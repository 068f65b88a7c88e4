/*
 * Tests of the test support itself: a cluster, its slots that move, its failovers.
 *
 * What others build on is shown here without a client of ours: a key can be had at the one server, then at
 * the other, and a write that was to be lost is lost.
 */
#include "support/case.h"
#include "support/shards.h"
#include "support/wait.h"

static struct shards *shards;

static int start(void **state) {
    /* A failover that nobody asked for would disturb: no pause of a busy machine is this long. */
    const struct shards_options options = {.replicas = true, .node_timeout_ms = 2000};
    (void)state;
    shards = shards_start(&options);
    return 0;
}

static int stop(void **state) {
    (void)state;
    shards_free(shards);
    return 0;
}

static int heal(void **state) {
    (void)state;
    shards_heal(shards);
    return 0;
}

static void assert_says(redisReply *reply, const char *text) {
    assert_non_null(reply);
    assert_memory_equal(reply->str, text, strlen(text));
    freeReplyObject(reply);
}

CASE_AROUND(a_slot_moves_key_by_key, heal, NULL) {
    unsigned slot = shards_slot(shards, "{k}1");
    struct server *from = shards_owner(shards, slot), *to = shards_other(shards, from);
    assert_int_equal(slot, shards_slot(shards, "k"));
    cmd_ok(from, "SET {k}1 one");
    cmd_ok(from, "SET {k}2 two");
    assert_says(cmd(to, "GET {k}1"), "MOVED ");

    shards_open_slot(shards, slot, from, to);
    shards_move_key(shards, from, to, "{k}1");
    shards_move_key(shards, from, to, "{k}none");
    assert_says(cmd(from, "GET {k}1"), "ASK ");
    assert_says(cmd(to, "GET {k}1"), "MOVED ");
    assert_says(shards_ask(shards, to, "GET {k}1"), "one");
    assert_says(cmd(from, "GET {k}2"), "two");

    shards_move_keys(shards, slot, from, to);
    shards_close_slot(shards, slot, from, to);
    assert_ptr_equal(shards_owner_of(shards, "{k}1"), to);
    assert_says(cmd(to, "GET {k}2"), "two");
    assert_says(cmd(from, "GET {k}2"), "MOVED ");
}

CASE_AROUND(a_slot_that_was_opened_can_stay, heal, NULL) {
    unsigned slot = shards_slot(shards, "stay");
    struct server *from = shards_owner(shards, slot), *to = shards_other(shards, from);
    shards_open_slot(shards, slot, from, to);
    assert_says(cmd(from, "SET stay 1"), "ASK ");
    shards_keep_slot(shards, slot, from, to);
    cmd_ok(from, "SET stay 1");
    shards_open_slot(shards, slot, from, to); /* the next heals it */
}

CASE_AROUND(failovers_are_followed, heal, NULL) {
    struct server *first = shards_owner_of(shards, "f");
    cmd_ok(first, "SET f 1");
    assert_int_equal(cmd_int(first, "WAIT 1 30000"), 1);
    struct server *second = shards_fail_over(shards, first);
    assert_ptr_not_equal(second, first);
    assert_int_equal(cmd_int(second, "GET f"), 1);
    shards_heal(shards);

    struct server *third = shards_kill(shards, second);
    assert_ptr_not_equal(third, second);
    assert_ptr_equal(shards_owner_of(shards, "f"), third);
}

CASE_AROUND(a_lost_write_is_lost_for_certain, heal, NULL) {
    struct server *primary = shards_owner_of(shards, "lost");
    shards_cut_off_replica(shards, primary);
    cmd_ok(primary, "SET lost 1");
    struct server *next = shards_lose_writes(shards, primary);
    assert_ptr_not_equal(next, primary);
    assert_false(key_exists(next, "lost"));
}

RUN_CASES(start, stop)
