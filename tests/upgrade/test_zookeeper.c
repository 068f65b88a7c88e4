/*
 * Version 0.2 beside this build on one ZooKeeper server: counters, whose changes this build guards with a node that 0.2
 * does not know (src/zk/kinds/counter.c). Each works on what the other has made, in both directions.
 */
#include "fleet.h"

#include "support/zk.h"
#include "support/zk_client.h"

#include <string.h>

static struct zk *zk;
static struct zk_client *eyes;

static void latches_and_semaphores(void **state) {
    (void)state;
    struct member *pair[] = {member_new(OLD), member_new(NEW)};
    for (int i = 0; i < 2; i++) {
        struct member *one = pair[i];
        struct member *other = pair[1 - i];
        say(one, "ok", "set semaphore sem count=2");
        say(one, "ok", "acquire semaphore sem count=2");
        int wait = later(other, "acquire semaphore sem");
        say(one, "ok", "release semaphore sem");
        answered(other, wait, "ok");
        say(other, "ok", "release semaphore sem");
        say(one, "ok 1", "available semaphore sem");
        say(other, "ok", "delete semaphore sem");

        for (int round = 0; round < 3; round++) {
            say(one, "ok", "set latch gate count=2");
            wait = later(other, "acquire latch gate");
            say(other, "ok", "down latch gate");
            say(one, "ok", "down latch gate");
            answered(other, wait, "ok");
            assert_int_equal(zk_exists(eyes, "/gate"), ZK_NO_NODE);
        }
    }
}

/* The older version lists nothing that was not there before. */
static void nothing_else_is_listed(void **state) {
    (void)state;
    struct zk_children *nodes = zk_children(eyes, "/");
    size_t generations = 0;
    assert_non_null(nodes);
    for (size_t i = 0; i < nodes->count; i++) {
        char path[64];
        if (strncmp(nodes->names[i], ".holdfast-", 10) != 0)
            continue;
        snprintf(path, sizeof path, "/%s", nodes->names[i]);
        assert_int_equal(zk_count(eyes, path), 0);
        generations++;
    }
    assert_int_equal(generations, 2); /* of two names */
    zk_children_free(nodes);
}

int main(void) {
    static const struct old_version old = {"0.2", "79f616b"};
    zk_need();
    if (!fleet_build(&old))
        return EXIT_SKIPPED;
    zk = zk_start(NULL);
    eyes = zk_client_open(zk_port(zk));
    fleet_url = zk_url(zk);
    const struct CMUnitTest rows[] = {
        cmocka_unit_test_teardown(latches_and_semaphores, fleet_end),
        cmocka_unit_test(nothing_else_is_listed),
    };
    int failed = cmocka_run_group_tests_name("upgrade on ZooKeeper", rows, NULL, NULL);
    zk_client_close(eyes);
    zk_free(zk);
    return failed == 0 ? 0 : 1;
}
