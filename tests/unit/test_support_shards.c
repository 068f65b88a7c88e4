/*
 * Tests of the test support itself: a cluster, its slots that move, its failovers.
 *
 * What others build on is shown here without a client of ours: a key can be had at the one server, then at
 * the other, and a write that was to be lost is lost.
 */
#include "support/shards.h"
#include "support/wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

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

static void a_slot_moves_key_by_key(void **state) {
    unsigned slot = shards_slot(shards, "{k}1");
    struct server *from = shards_owner(shards, slot), *to = shards_other(shards, from);
    (void)state;
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

static void a_slot_that_was_opened_can_stay(void **state) {
    unsigned slot = shards_slot(shards, "stay");
    struct server *from = shards_owner(shards, slot), *to = shards_other(shards, from);
    (void)state;
    shards_open_slot(shards, slot, from, to);
    assert_says(cmd(from, "SET stay 1"), "ASK ");
    shards_keep_slot(shards, slot, from, to);
    cmd_ok(from, "SET stay 1");
    shards_open_slot(shards, slot, from, to); /* the next heals it */
}

static void failovers_are_followed(void **state) {
    struct server *first = shards_owner_of(shards, "f");
    (void)state;
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

static void a_lost_write_is_lost_for_certain(void **state) {
    struct server *primary = shards_owner_of(shards, "lost");
    (void)state;
    shards_cut_off_replica(shards, primary);
    cmd_ok(primary, "SET lost 1");
    struct server *next = shards_lose_writes(shards, primary);
    assert_ptr_not_equal(next, primary);
    assert_false(key_exists(next, "lost"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_slot_moves_key_by_key, heal),
        cmocka_unit_test_setup(a_slot_that_was_opened_can_stay, heal),
        cmocka_unit_test_setup(failovers_are_followed, heal),
        cmocka_unit_test_setup(a_lost_write_is_lost_for_certain, heal),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
