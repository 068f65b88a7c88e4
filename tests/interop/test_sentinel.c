/*
 * holdfast and the released Redisson on one primary that sentinels name, in both directions, and through a
 * failover.
 *
 * Redisson's waiters are given until the end that they were told the other's hold has, and some time to
 * look: whether they listen again after a failover is theirs. Ours hear of it at the new primary.
 */
#include "both.h"
#include "support/watched.h"

static struct watched *watched;

static struct server *server_of(const char *name) {
    (void)name;
    return watched_primary(watched);
}

static int start_suite(void **state) {
    (void)state;
    watched = watched_start(NULL);
    return both_start(watched_url(watched), "PUBSUB CHANNELS", server_of) ? 0 : 1;
}

static int end_suite(void **state) {
    (void)state;
    both_stop();
    watched_free(watched);
    return 0;
}

static int start_row(void **state) {
    (void)state;
    watched_heal(watched);
    cmd_ok(watched_primary(watched), "FLUSHALL");
    return 0;
}

static void each_kind_wakes_the_other_side_by_message(void **state) {
    (void)state;
    both_wake_each_other("plain", "plain", HF_PLAIN);
    both_wake_each_other("fair", "fair", HF_FAIR);
}

static bool has_replicated(void *arg) {
    cmd_ok(arg, "SET replicated 1");
    return cmd_int(arg, "WAIT 2 1000") == WATCHED_SERVERS - 1;
}

/* What the lock is at the moment is at the replicas, too, when the primary dies. */
static void kill_primary(void) {
    struct server *primary = watched_primary(watched);
    assert_true(wait_until(has_replicated, primary, BOTH_HANG_MS));
    server_kill(primary);
    watched_wait_switch(watched, primary);
}

static void c_gets_it_from_java_after_a_failover(void **state) {
    (void)state;
    struct both both = both_on("failed-c", "plain", HF_PLAIN);
    both_java_takes(&both);
    hf_op *op = both_c_waits(&both);
    kill_primary();
    both_wait_listened(&both); /* at the new one */
    both_assert_c_still_waits(op);
    both_java_unlocks(&both);
    both_assert_c_gets_it(&both, op, BOTH_HANG_MS);
    both_end(&both);
}

static void java_gets_it_from_c_after_a_failover(void **state) {
    (void)state;
    struct both both = both_on("failed-j", "plain", HF_PLAIN);
    both_c_takes(&both, BOTH_TOLD_MS);
    int waiting = both_java_waits(&both);
    kill_primary();
    both_c_releases(&both);
    both_assert_java_gets_it(&both, waiting, BOTH_TOLD_MS + BOTH_HANG_MS);
    both_java_unlocks(&both);
    both_end(&both);
}

int main(void) {
    const struct CMUnitTest rows[] = {
        cmocka_unit_test_setup(each_kind_wakes_the_other_side_by_message, start_row),
        cmocka_unit_test_setup(c_gets_it_from_java_after_a_failover, start_row),
        cmocka_unit_test_setup(java_gets_it_from_c_after_a_failover, start_row),
    };
    int built = both_build();
    if (built != 0)
        return built;
    return cmocka_run_group_tests_name("interop.sentinel", rows, start_suite, end_suite) == 0 ? 0
                                                                                              : 1;
}
