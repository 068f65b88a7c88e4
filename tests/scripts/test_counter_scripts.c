/* The scripts of semaphore and latch, each alone, on a real server.
 *
 * Every row is a test of its own: state before, call, expected result. It runs as an ACL user
 * that may use three keys (the number; `thetaken`, the key of permits with leases of that name;
 * for latches `theproof`, for acquires with an idempotency key `theidemkey`), one channel, and
 * the commands that the script needs. The tests after the rows show that no right is
 * superfluous, what a missing right to publish does, and what happens when the server is out of
 * memory. Only an acquire with an idempotency key, and its undo, may run twice.
 *
 * One thread, one server for the whole group; each row starts by emptying it. */
#include "group.h"
#include "support/case.h"
#include "support/wait.h"

#include <inttypes.h>

#define TELL " publish thechannel"
#define NUMBER "thekey"
#define TAKEN "thetaken"
#define PROOF "theproof" /* that a latch was open; lasts for five minutes */
#define PROOF_MS 300000
#define IDEM_KEY "theidemkey"
#define IDEM_KEY_MS 70000
#define OURS "; SET " IDEM_KEY " 7 PX 70000"
#define ANOTHER "; SET " IDEM_KEY " 6 PX 70000"
#define PERMITS "SET thekey 3; ZADD " TAKEN " 922337203685477 id" /* one is taken, three are free */
#define LEFT_OVER "ZADD " TAKEN " 922337203685477 id"

struct counter_row {
    const char *name;
    const char *before; /* one or two commands with "; " between; may be NULL */
    const char *script;
    const char *call;     /* as for script_call(); the second key is put between */
    const char *reply;    /* two integers, or "!CODE" for an error that starts with it */
    const char *after;    /* the value of the key; its type if it is no string; NULL: no key */
    int64_t ttl_ms;       /* NO_TTL, or what it was set to */
    const char *received; /* as listener_received() tells it; NULL for nothing */
};

static const struct counter_row rows[] = {
    /* ---- semaphore_set ---- */
    {"C144_set", NULL, "semaphore_set", "thekey , 0 10 0" TELL, "1 10", "10", NO_TTL, "publish 10"},
    {"C144_set_again", "SET thekey 10", "semaphore_set", "thekey , 0 15 0" TELL, "0 10", "10",
     NO_TTL, NULL},
    {"C144_set_with_ttl", NULL, "semaphore_set", "thekey , 0 1 60000" TELL, "1 1", "1", 60000,
     "publish 1"},
    {"set_again_keeps_the_ttl", "SET thekey 3 PX 50000", "semaphore_set", "thekey , 0 5 60000" TELL,
     "0 3", "3", 50000, NULL},
    {"set_to_none_notifies_nobody", NULL, "semaphore_set", "thekey , 0 0 0" TELL, "1 0", "0",
     NO_TTL, NULL},
    {"set_again_over_none", "SET thekey 0", "semaphore_set", "thekey , 0 5 0" TELL, "0 0", "0",
     NO_TTL, NULL},
    {"set_again_over_a_negative", "SET thekey -5", "semaphore_set", "thekey , 0 5 0" TELL, "0 -5",
     "-5", NO_TTL, NULL},
    {"set_sharded", NULL, "semaphore_set", "thekey , 0 2147483647 0 spublish thechannel",
     "1 2147483647", "2147483647", NO_TTL, "spublish 2147483647"},
    {"set_in_time", NULL, "semaphore_set", "thekey , @+60000 1 0" TELL, "1 1", "1", NO_TTL,
     "publish 1"},
    {"set_too_late", NULL, "semaphore_set", "thekey , @-1 10 0" TELL, "-3 0", NULL, 0, NULL},
    {"U67_set_hash", "HSET thekey me 1", "semaphore_set", "thekey , 0 1 0" TELL, "!WRONGTYPE",
     "hash", NO_TTL, NULL},
    {"U67_set_text", "SET thekey many", "semaphore_set", "thekey , 0 1 0" TELL,
     "!WRONGTYPE the value", "many", NO_TTL, NULL},
    {"U02_set_ttl_too_long", NULL, "semaphore_set", "thekey , 0 1 9223372036854775807" TELL,
     "!ERR invalid expire", NULL, 0, NULL},
    {"U67_set_permits", PERMITS, "semaphore_set", "thekey , 0 1 0" TELL,
     "!WRONGTYPE permits with leases are taken", "3", NO_TTL, NULL},
    {"U67_set_left_over_permits", LEFT_OVER, "semaphore_set", "thekey , 0 1 0" TELL,
     "!WRONGTYPE permits with leases are left over", NULL, 0, NULL},

    /* ---- semaphore_acquire ---- */
    {"acquire_without_a_semaphore", NULL, "semaphore_acquire", "thekey , 0 1", "0 0", NULL, 0,
     NULL},
    {"acquire_one", "SET thekey 10", "semaphore_acquire", "thekey , 0 1", "1 9", "9", NO_TTL, NULL},
    {"acquire_all", "SET thekey 10 PX 50000", "semaphore_acquire", "thekey , 0 10", "1 0", "0",
     50000, NULL},
    {"acquire_too_many", "SET thekey 2", "semaphore_acquire", "thekey , 0 3", "0 2", "2", NO_TTL,
     NULL},
    {"acquire_of_none", "SET thekey 0", "semaphore_acquire", "thekey , 0 1", "0 0", "0", NO_TTL,
     NULL},
    {"acquire_of_a_negative", "SET thekey -5", "semaphore_acquire", "thekey , 0 1", "0 -5", "-5",
     NO_TTL, NULL},
    {"C155_acquire_the_most", "SET thekey 2147483647", "semaphore_acquire", "thekey , 0 2147483647",
     "1 0", "0", NO_TTL, NULL},
    {"acquire_in_time", "SET thekey 1", "semaphore_acquire", "thekey , @+60000 1", "1 0", "0",
     NO_TTL, NULL},
    {"acquire_too_late", "SET thekey 10", "semaphore_acquire", "thekey , @-1 1", "-3 0", "10",
     NO_TTL, NULL},
    {"U67_acquire_list", "RPUSH thekey 1", "semaphore_acquire", "thekey , 0 1", "!WRONGTYPE",
     "list", NO_TTL, NULL},
    {"U67_acquire_text", "SET thekey many", "semaphore_acquire", "thekey , 0 1",
     "!WRONGTYPE the value", "many", NO_TTL, NULL},
    {"U67_acquire_fraction", "SET thekey 1.5", "semaphore_acquire", "thekey , 0 1",
     "!WRONGTYPE the value", "1.5", NO_TTL, NULL},
    {"U67_acquire_more_than_can_be_counted", "SET thekey 99999999999999999999", "semaphore_acquire",
     "thekey , 0 1", "!WRONGTYPE the value", "99999999999999999999", NO_TTL, NULL},
    {"U67_acquire_permits", PERMITS, "semaphore_acquire", "thekey , 0 1",
     "!WRONGTYPE permits with leases are taken", "3", NO_TTL, NULL},
    {"U67_acquire_left_over_permits", LEFT_OVER, "semaphore_acquire", "thekey , 0 1",
     "!WRONGTYPE permits with leases are left over", NULL, 0, NULL},
    {"acquire_too_late_of_permits", PERMITS, "semaphore_acquire", "thekey , @-1 1", "-3 0", "3",
     NO_TTL, NULL},
    {"acquire_beside_another_key", "SET thekey 3; SET " TAKEN " text", "semaphore_acquire",
     "thekey , 0 1", "1 2", "2", NO_TTL, NULL},

    {"acquire_leaves_its_idempotency_key", "SET thekey 10", "semaphore_acquire",
     "thekey theidemkey , 0 3 7 0", "1 7", "7", NO_TTL, NULL},
    {"acquire_after_another_idempotency_key", "SET thekey 10" ANOTHER, "semaphore_acquire",
     "thekey theidemkey , 0 3 7 0", "1 7", "7", NO_TTL, NULL},
    {"acquire_over_what_is_no_idempotency_key", "SET thekey 10; RPUSH " IDEM_KEY " x",
     "semaphore_acquire", "thekey theidemkey , 0 3 7 0", "1 7", "7", NO_TTL, NULL},
    {"acquire_too_many_leaves_no_idempotency_key", "SET thekey 2", "semaphore_acquire",
     "thekey theidemkey , 0 3 7 0", "0 2", "2", NO_TTL, NULL},
    {"acquire_too_late_leaves_no_idempotency_key", "SET thekey 10", "semaphore_acquire",
     "thekey theidemkey , @-1 3 7 0", "-3 0", "10", NO_TTL, NULL},
    {"acquire_from_too_large_a_number_leaves_no_idempotency_key", "SET thekey 99999999999999999999",
     "semaphore_acquire", "thekey theidemkey , 0 3 7 0", "!WRONGTYPE", "99999999999999999999",
     NO_TTL, NULL},
    {"acquire_again_when_it_has_run", "SET thekey 7 PX 50000" OURS, "semaphore_acquire",
     "thekey theidemkey , @+60000 3 7 1", "1 7", "7", 50000, NULL},
    {"acquire_again_when_there_are_none_left", "SET thekey 0" OURS, "semaphore_acquire",
     "thekey theidemkey , 0 3 7 1", "1 0", "0", NO_TTL, NULL},
    {"acquire_again_when_it_has_not_run", "SET thekey 10" ANOTHER, "semaphore_acquire",
     "thekey theidemkey , 0 3 7 1", "1 7", "7", NO_TTL, NULL},
    {"acquire_again_too_many", "SET thekey 2" ANOTHER, "semaphore_acquire",
     "thekey theidemkey , 0 3 7 1", "0 2", "2", NO_TTL, NULL},
    {"acquire_again_after_a_delete", "DEL thekey" OURS, "semaphore_acquire",
     "thekey theidemkey , 0 3 7 1", "1 0", NULL, 0, NULL},
    {"acquire_again_too_late", "SET thekey 7" OURS, "semaphore_acquire",
     "thekey theidemkey , @-1 3 7 1", "-3 0", "7", NO_TTL, NULL},

    /* ---- semaphore_undo ---- */
    {"undo_what_has_run", "SET thekey 7" OURS, "semaphore_undo", "thekey theidemkey , 0 3 7" TELL,
     "1 10", "10", NO_TTL, "publish 10"},
    {"undo_keeps_the_ttl", "SET thekey 0 PX 50000" OURS, "semaphore_undo",
     "thekey theidemkey , @+60000 3 7" TELL, "1 3", "3", 50000, "publish 3"},
    {"undo_up_to_zero_notifies_nobody", "SET thekey -3" OURS, "semaphore_undo",
     "thekey theidemkey , 0 3 7" TELL, "1 0", "0", NO_TTL, NULL},
    {"undo_what_has_not_run", "SET thekey 7", "semaphore_undo", "thekey theidemkey , 0 3 7" TELL,
     "0 0", "7", NO_TTL, NULL},
    {"undo_leaves_another_alone", "SET thekey 7" ANOTHER, "semaphore_undo",
     "thekey theidemkey , 0 3 7" TELL, "0 0", "7", NO_TTL, NULL},
    {"undo_after_a_delete", "DEL thekey" OURS, "semaphore_undo", "thekey theidemkey , 0 3 7" TELL,
     "0 0", NULL, 0, NULL},
    {"undo_sharded", "SET thekey 7" OURS, "semaphore_undo",
     "thekey theidemkey , 0 3 7 spublish thechannel", "1 10", "10", NO_TTL, "spublish 10"},
    {"undo_too_late", "SET thekey 7" OURS, "semaphore_undo", "thekey theidemkey , @-1 3 7" TELL,
     "-3 0", "7", NO_TTL, NULL},
    {"U67_undo_hash", "HSET thekey me 1" OURS, "semaphore_undo", "thekey theidemkey , 0 3 7" TELL,
     "!WRONGTYPE", "hash", NO_TTL, NULL},
    {"U67_undo_permits", PERMITS OURS, "semaphore_undo", "thekey theidemkey , 0 3 7" TELL,
     "!WRONGTYPE permits with leases are taken", "3", NO_TTL, NULL},

    /* ---- semaphore_change: release, add ---- */
    {"C150_release_without_a_semaphore", NULL, "semaphore_change", "thekey , 0 1 0" TELL, "1 1",
     "1", NO_TTL, "publish 1"},
    {"release_keeps_the_ttl", "SET thekey 2 PX 50000", "semaphore_change", "thekey , 0 3 0" TELL,
     "1 5", "5", 50000, "publish 5"},
    {"release_up_to_zero_notifies_nobody", "SET thekey -3", "semaphore_change",
     "thekey , 0 3 0" TELL, "1 0", "0", NO_TTL, NULL},
    {"C153_release_if_exists", "SET thekey 9", "semaphore_change", "thekey , 0 1 1" TELL, "1 10",
     "10", NO_TTL, "publish 10"},
    {"C153_release_if_exists_without_one", NULL, "semaphore_change", "thekey , 0 1 1" TELL, "0 0",
     NULL, 0, NULL},
    {"U51_add_keeps_the_ttl", "SET thekey 5 PX 50000", "semaphore_change", "thekey , 0 3 0" TELL,
     "1 8", "8", 50000, "publish 8"},
    {"C146_add_a_negative", "SET thekey 0", "semaphore_change", "thekey , 0 -5 0" TELL, "1 -5",
     "-5", NO_TTL, NULL},
    {"add_a_negative_notifies_nobody", "SET thekey 10", "semaphore_change", "thekey , 0 -5 0" TELL,
     "1 5", "5", NO_TTL, NULL},
    {"add_nothing", "SET thekey 10", "semaphore_change", "thekey , 0 0 0" TELL, "1 10", "10",
     NO_TTL, NULL},
    {"change_above_what_Java_counts", "SET thekey 2147483647", "semaphore_change",
     "thekey , 0 2147483647 0" TELL, "1 4294967294", "4294967294", NO_TTL, "publish 4294967294"},
    {"release_sharded", "SET thekey 1", "semaphore_change", "thekey , 0 1 0 spublish thechannel",
     "1 2", "2", NO_TTL, "spublish 2"},
    {"release_in_time", "SET thekey 1", "semaphore_change", "thekey , @+60000 1 0" TELL, "1 2", "2",
     NO_TTL, "publish 2"},
    {"release_too_late", "SET thekey 1", "semaphore_change", "thekey , @-1 1 0" TELL, "-3 0", "1",
     NO_TTL, NULL},
    {"U67_release_hash", "HSET thekey me 1", "semaphore_change", "thekey , 0 1 0" TELL,
     "!WRONGTYPE", "hash", NO_TTL, NULL},
    {"U67_release_text", "SET thekey many", "semaphore_change", "thekey , 0 1 1" TELL,
     "!WRONGTYPE the value", "many", NO_TTL, NULL},
    {"U67_release_permits", PERMITS, "semaphore_change", "thekey , 0 1 0" TELL,
     "!WRONGTYPE permits with leases are taken", "3", NO_TTL, NULL},
    {"U67_release_left_over_permits", LEFT_OVER, "semaphore_change", "thekey , 0 1 0" TELL,
     "!WRONGTYPE permits with leases are left over", NULL, 0, NULL},
    {"U67_release_if_exists_permits", PERMITS, "semaphore_change", "thekey , 0 1 1" TELL,
     "!WRONGTYPE permits with leases are taken", "3", NO_TTL, NULL},
    {"U67_release_if_exists_left_over_permits", LEFT_OVER, "semaphore_change",
     "thekey , 0 1 1" TELL, "!WRONGTYPE permits with leases are left over", NULL, 0, NULL},

    /* ---- semaphore_drain ---- */
    {"C151_drain_without_a_semaphore", NULL, "semaphore_drain", "thekey , 0", "0 0", NULL, 0, NULL},
    {"C151_drain", "SET thekey 7", "semaphore_drain", "thekey , 0", "1 7", "0", NO_TTL, NULL},
    {"U51_drain_keeps_the_ttl", "SET thekey 7 PX 50000", "semaphore_drain", "thekey , @+60000",
     "1 7", "0", 50000, NULL},
    {"drain_a_negative", "SET thekey -5", "semaphore_drain", "thekey , 0", "1 -5", "0", NO_TTL,
     NULL},
    {"drain_too_late", "SET thekey 7", "semaphore_drain", "thekey , @-1", "-3 0", "7", NO_TTL,
     NULL},
    {"U67_drain_set", "SADD thekey 7", "semaphore_drain", "thekey , 0", "!WRONGTYPE", "set", NO_TTL,
     NULL},
    {"U67_drain_text", "SET thekey many", "semaphore_drain", "thekey , 0", "!WRONGTYPE the value",
     "many", NO_TTL, NULL},
    {"U67_drain_permits", PERMITS, "semaphore_drain", "thekey , 0",
     "!WRONGTYPE permits with leases are taken", "3", NO_TTL, NULL},
    {"U67_drain_left_over_permits", LEFT_OVER, "semaphore_drain", "thekey , 0",
     "!WRONGTYPE permits with leases are left over", NULL, 0, NULL},

    /* ---- counter_delete ---- */
    {"delete_a_semaphore", "SET thekey 7", "counter_delete", "thekey , 0 - -", "1 0", NULL, 0,
     NULL},
    {"U79_delete_a_latch", "SET thekey 7", "counter_delete", "thekey , 0" TELL, "1 0", NULL, 0,
     "publish 0"},
    {"delete_a_latch_sharded", "SET thekey 7", "counter_delete", "thekey , 0 spublish thechannel",
     "1 0", NULL, 0, "spublish 0"},
    {"C193_delete_what_is_not_there", NULL, "counter_delete", "thekey , 0" TELL, "0 0", NULL, 0,
     NULL},
    {"delete_in_time", "SET thekey 7", "counter_delete", "thekey , @+60000 - -", "1 0", NULL, 0,
     NULL},
    {"delete_too_late", "SET thekey 7", "counter_delete", "thekey , @-1" TELL, "-3 0", "7", NO_TTL,
     NULL},
    {"U67_delete_hash", "HSET thekey me 1", "counter_delete", "thekey , 0" TELL, "!WRONGTYPE",
     "hash", NO_TTL, NULL},
    {"U67_delete_text", "SET thekey many", "counter_delete", "thekey , 0" TELL,
     "!WRONGTYPE the value", "many", NO_TTL, NULL},
    {"U67_delete_permits", PERMITS, "counter_delete", "thekey , 0" TELL,
     "!WRONGTYPE permits with leases are taken", "3", NO_TTL, NULL},
    {"U67_delete_left_over_permits", LEFT_OVER, "counter_delete", "thekey , 0" TELL,
     "!WRONGTYPE permits with leases are left over", NULL, 0, NULL},

    /* ---- latch_set ---- */
    {"C194_latch_set", NULL, "latch_set", "thekey , 0 3" TELL, "1 3", "3", NO_TTL, "publish 1"},
    {"C194_latch_set_again", "SET thekey 1", "latch_set", "thekey , 0 2" TELL, "0 1", "1", NO_TTL,
     NULL},
    {"latch_set_over_a_zero", "SET thekey 0", "latch_set", "thekey , 0 2" TELL, "1 2", "2", NO_TTL,
     "publish 1"},
    {"latch_set_over_a_negative", "SET thekey -1", "latch_set", "thekey , 0 2" TELL, "1 2", "2",
     NO_TTL, "publish 1"},
    {"latch_set_to_zero", NULL, "latch_set", "thekey , 0 0" TELL, "!ERR the count", NULL, 0, NULL},
    {"latch_set_to_a_negative", NULL, "latch_set", "thekey , 0 -1" TELL, "!ERR the count", NULL, 0,
     NULL},
    {"latch_set_sharded", NULL, "latch_set", "thekey , @+60000 1 spublish thechannel", "1 1", "1",
     NO_TTL, "spublish 1"},
    {"latch_set_too_late", NULL, "latch_set", "thekey , @-1 3" TELL, "-3 0", NULL, 0, NULL},
    {"U67_latch_set_hash", "HSET thekey me 1", "latch_set", "thekey , 0 1" TELL, "!WRONGTYPE",
     "hash", NO_TTL, NULL},
    {"U67_latch_set_text", "SET thekey many", "latch_set", "thekey , 0 1" TELL,
     "!WRONGTYPE the value", "many", NO_TTL, NULL},
    {"U67_latch_set_permits", PERMITS, "latch_set", "thekey , 0 1" TELL,
     "!WRONGTYPE permits with leases are taken", "3", NO_TTL, NULL},
    {"U67_latch_set_left_over_permits", LEFT_OVER, "latch_set", "thekey , 0 1" TELL,
     "!WRONGTYPE permits with leases are left over", NULL, 0, NULL},

    /* ---- latch_count_down ---- */
    {"C191_count_down_what_was_never_set", NULL, "latch_count_down", "thekey , 0" TELL, "0 0", NULL,
     0, NULL},
    {"count_down", "SET thekey 3", "latch_count_down", "thekey , 0" TELL, "1 2", "2", NO_TTL, NULL},
    {"C191_count_down_to_zero", "SET thekey 1", "latch_count_down", "thekey , 0" TELL, "1 0", NULL,
     0, "publish 0"},
    {"count_down_a_zero", "SET thekey 0", "latch_count_down", "thekey , 0" TELL, "0 0", NULL, 0,
     NULL},
    {"count_down_a_negative", "SET thekey -4", "latch_count_down", "thekey , 0" TELL, "0 0", NULL,
     0, NULL},
    {"count_down_keeps_a_ttl", "SET thekey 3 PX 50000", "latch_count_down", "thekey , 0" TELL,
     "1 2", "2", 50000, NULL},
    {"count_down_sharded", "SET thekey 1", "latch_count_down", "thekey , 0 spublish thechannel",
     "1 0", NULL, 0, "spublish 0"},
    {"count_down_in_time", "SET thekey 2", "latch_count_down", "thekey , @+60000" TELL, "1 1", "1",
     NO_TTL, NULL},
    {"count_down_too_late", "SET thekey 1", "latch_count_down", "thekey , @-1" TELL, "-3 0", "1",
     NO_TTL, NULL},
    {"U67_count_down_list", "RPUSH thekey 1", "latch_count_down", "thekey , 0" TELL, "!WRONGTYPE",
     "list", NO_TTL, NULL},
    {"U67_count_down_text", "SET thekey many", "latch_count_down", "thekey , 0" TELL,
     "!WRONGTYPE the value", "many", NO_TTL, NULL},
    {"U67_count_down_permits", PERMITS, "latch_count_down", "thekey , 0" TELL,
     "!WRONGTYPE permits with leases are taken", "3", NO_TTL, NULL},
    {"count_down_proves_more_than_before", "SET thekey 1; SET " PROOF " 9000000000000000",
     "latch_count_down", "thekey , 0" TELL, "1 0", NULL, 0, "publish 0"},
    {"count_down_over_what_is_no_proof", "SET thekey 1; RPUSH " PROOF " x", "latch_count_down",
     "thekey , 0" TELL, "1 0", NULL, 0, "publish 0"},
    {"count_down_beside_text", "SET thekey 1; SET " PROOF " x", "latch_count_down",
     "thekey , 0" TELL, "1 0", NULL, 0, "publish 0"},
    {"U67_count_down_left_over_permits", LEFT_OVER, "latch_count_down", "thekey , 0" TELL,
     "!WRONGTYPE permits with leases are left over", NULL, 0, NULL},

    /* ---- latch_read ---- */
    {"read_one_that_was_never_set", NULL, "latch_read", "thekey , 0", "0 0", NULL, 0, NULL},
    {"look", "SET thekey 3", "latch_read", "thekey , 0", "3 0", "3", NO_TTL, NULL},
    {"observe_with_a_proof", "SET thekey 3; SET " PROOF " 1700000000000000 PX 300000", "latch_read",
     "thekey , 0", "3 1700000000000000", "3", NO_TTL, NULL},
    {"read_a_negative", "SET thekey -3", "latch_read", "thekey , 0", "0 0", "-3", NO_TTL, NULL},
    {"read_the_most", "SET thekey 9007199254740991", "latch_read", "thekey , 0",
     "9007199254740991 0", "9007199254740991", NO_TTL, NULL},
    {"U67_read_a_list", "RPUSH thekey 1", "latch_read", "thekey , 0", "!WRONGTYPE", "list", NO_TTL,
     NULL},
    {"U67_read_text", "SET thekey many", "latch_read", "thekey , 0", "!WRONGTYPE the value", "many",
     NO_TTL, NULL},
    {"U67_read_more_than_can_be_counted", "SET thekey 99999999999999999999", "latch_read",
     "thekey , 0", "!WRONGTYPE the value", "99999999999999999999", NO_TTL, NULL},
    {"observe_a_bad_proof", "SET thekey 3; SET " PROOF " 1e308 PX 300000", "latch_read",
     "thekey , 0", "3 0", "3", NO_TTL, NULL},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- Users ---------------------------------------------------------------------------------- */

static const struct grant grants[] = {
    {"semaphore_set", "~thekey ~thetaken", "&thechannel", "time get type set publish spublish"},
    {"semaphore_acquire", "~thekey ~thetaken ~theidemkey", "", "time get type decrby set"},
    {"semaphore_undo", "~thekey ~thetaken ~theidemkey", "&thechannel",
     "time get type del incrby publish spublish"},
    {"semaphore_change", "~thekey ~thetaken", "&thechannel",
     "time get type incrby publish spublish"},
    {"semaphore_drain", "~thekey ~thetaken", "", "time get type set"},
    {"counter_delete", "~thekey ~thetaken ~theproof", "&thechannel",
     "time get type set del publish spublish"},
    {"latch_set", "~thekey ~thetaken ~theproof", "&thechannel",
     "time get type set publish spublish"},
    {"latch_count_down", "~thekey ~thetaken ~theproof", "&thechannel",
     "time get type set decr del publish spublish"},
    {"latch_read", "~thekey ~theproof", "", "time get"},
};
enum { GRANTS = sizeof grants / sizeof *grants };

/* ---- Playing -------------------------------------------------------------------------------- */

static void prepare(const char *commands) {
    char copy[256], *rest = copy;
    cmd_ok(stage->server, "FLUSHALL");
    snprintf(copy, sizeof copy, "%s", commands != NULL ? commands : "");
    for (char *line; (line = strsep(&rest, ";")) != NULL;)
        if (line[0] != '\0')
            cmd_ok(stage->server, line);
}

/* A dash stands for an argument without a byte. */
static redisReply *call_script(redisContext *user, const struct counter_row *row,
                               int64_t begin_ms) {
    const char *sha = stage_sha(stage, row->script);
    if (strstr(row->call, " - -") == NULL) {
        char call[256];
        bool looks = strcmp(row->script, "latch_read") == 0;
        bool latch = strncmp(row->script, "semaphore", 9) != 0;
        snprintf(call, sizeof call, NUMBER "%s%s%s", looks ? "" : " " TAKEN, latch ? " " PROOF : "",
                 row->call + strlen(NUMBER));
        return script_call(user, sha, call, begin_ms);
    }
    int64_t not_after = strstr(row->call, "@+60000") != NULL ? begin_ms + 60000 : 0;
    return redisCommand(user, "EVALSHA %s 2 " NUMBER " " TAKEN " %lld %s %s", sha,
                        (long long)not_after, "", "");
}

/* A latch that was opened, closed or deleted leaves a proof that it was open; looking leaves it as it
 * is. */
static bool leaves_proof(const struct counter_row *row) {
    bool done = row->reply[0] == '1' || row->reply[0] == '2';
    if (strcmp(row->script, "latch_read") == 0)
        return row->before != NULL && strstr(row->before, PROOF) != NULL;
    if (strcmp(row->script, "latch_set") == 0)
        return done;
    bool latch = strcmp(row->script, "latch_count_down") == 0 ||
                 (strcmp(row->script, "counter_delete") == 0 && strstr(row->call, " - -") == NULL);
    return latch && done && row->after == NULL;
}

/* What was taken leaves its idempotency key; undone, it is gone, and so it is if there was nothing to give it
 * back to. */
static bool leaves_idem_key(const struct counter_row *row) {
    bool ours = row->before != NULL && strstr(row->before, OURS) != NULL;
    bool there = row->before != NULL && strstr(row->before, IDEM_KEY) != NULL;
    if (strstr(row->call, IDEM_KEY) == NULL)
        return false;
    if (strcmp(row->script, "semaphore_acquire") == 0)
        return there || row->reply[0] == '1';
    return there && !(ours && strchr("012", row->reply[0]) != NULL);
}

/* It is the one that was given, or was there before, and it does not stay. */
static bool idem_key_fits(const struct counter_row *row, struct span span, char why[WHY]) {
    if (!leaves_idem_key(row))
        return true;
    bool taken = strcmp(row->script, "semaphore_acquire") == 0 && row->reply[0] == '1';
    bool another = row->before != NULL && strstr(row->before, ANOTHER) != NULL;
    const char *wanted = another && !taken ? "6" : "7";
    char *text = cmd_str(stage->server, "GET " IDEM_KEY);
    int64_t ttl_ms = pttl(stage->server, IDEM_KEY);
    span.end_ms = server_time_ms(stage->server);
    bool fits = strcmp(text, wanted) == 0 || differs(why, "the idempotency key is %s", text);
    free(text);
    return fits &&
           (ttl_fits(ttl_ms, IDEM_KEY_MS, span) || differs(why, "its TTL is %" PRId64, ttl_ms));
}

/* What permits with leases need is as it was before, and there is nothing else. */
static bool others_fit(const struct counter_row *row, char why[WHY]) {
    const char *before = row->before != NULL ? row->before : "";
    bool beside = strstr(before, TAKEN) != NULL;
    if (strstr(before, "ZADD") != NULL && cmd_int(stage->server, "ZCARD " TAKEN) != 1)
        return differs(why, "the permit that was taken is gone");
    int keys = (row->after != NULL) + beside + leaves_proof(row) + leaves_idem_key(row);
    return cmd_int(stage->server, "DBSIZE") == keys ||
           differs(why, "there are other keys, or fewer");
}

/* Larger than the one before, which a row may have set into the future; and it does not stay. */
static bool proof_fits(const struct counter_row *row, struct span span, char why[WHY]) {
    if (!leaves_proof(row))
        return true;
    const char *before = row->before != NULL ? strstr(row->before, "SET " PROOF " ") : NULL;
    long long last = before != NULL ? strtoll(before + strlen("SET " PROOF " "), NULL, 10) : 0;
    bool looks = strcmp(row->script, "latch_read") == 0;
    char *text = cmd_str(stage->server, "GET " PROOF);
    long long proof = strtoll(text, NULL, 10);
    free(text);
    if (proof < last + !looks || (!looks && proof < span.begin_ms * 1000))
        return differs(why, "the proof is %lld", proof);
    int64_t ttl_ms = pttl(stage->server, PROOF);
    span.end_ms = server_time_ms(stage->server);
    return ttl_fits(ttl_ms, PROOF_MS, span) || differs(why, "its TTL is %" PRId64, ttl_ms);
}

/* The time on the server when the row began is all that a TTL can have lost since. */
static bool key_fits(const struct counter_row *row, struct span span, char why[WHY]) {
    own_text *type = cmd_str(stage->server, "TYPE thekey");
    own_text *value = strcmp(type, "string") == 0 ? cmd_str(stage->server, "GET thekey") : NULL;
    const char *there = value != NULL ? value : strcmp(type, "none") == 0 ? "" : type;
    const char *wanted = row->after != NULL ? row->after : "";
    int64_t ttl_ms = pttl(stage->server, "thekey");
    span.end_ms = server_time_ms(stage->server);
    bool fits = strcmp(there, wanted) == 0 || differs(why, "'%s' instead of '%s'", there, wanted);
    if (fits && row->after != NULL && row->ttl_ms == NO_TTL && ttl_ms != NO_TTL)
        fits = differs(why, "a TTL of %" PRId64, ttl_ms);
    if (fits && row->after != NULL && row->ttl_ms > 0 && !ttl_fits(ttl_ms, row->ttl_ms, span))
        fits = differs(why, "a TTL of %" PRId64 " instead of %" PRId64, ttl_ms, row->ttl_ms);
    fits =
        fits && others_fit(row, why) && proof_fits(row, span, why) && idem_key_fits(row, span, why);
    return fits;
}

/* Calls the script of a row whose preparations are done, and compares. */
static bool call_fits(redisContext *user, const struct counter_row *row, int64_t begin_ms,
                      char why[WHY]) {
    struct span span = {begin_ms, server_time_ms(stage->server), 0};
    listener_received(stage->listener);
    redisReply *reply = call_script(user, row, span.call_ms);
    span.end_ms = server_time_ms(stage->server);
    bool fits = reply_fits(reply, row->reply, span, why);
    freeReplyObject(reply);
    return fits && key_fits(row, span, why) && received_fits(stage->listener, row->received, why);
}

static bool counter_row_plays(redisContext *user, const struct counter_row *row, char why[WHY]) {
    int64_t begin_ms = server_time_ms(stage->server);
    prepare(row->before);
    return call_fits(user, row, begin_ms, why);
}

static struct row_head head_of(size_t i) {
    return (struct row_head){rows[i].name, rows[i].script, rows[i].call};
}

static bool plays(redisContext *user, size_t i, char why[WHY]) {
    return counter_row_plays(user, &rows[i], why);
}

/* ---- Rights --------------------------------------------------------------------------------- */

/* No right to the channel: it is done, and the reply says that nobody was notified. */
CASE(U46_done_but_not_notified) {
    static const struct counter_row unpublished[] = {
        {"set", NULL, "semaphore_set", "thekey , 0 3 0" TELL, "2 3", "3", NO_TTL, NULL},
        {"release", "SET thekey 1", "semaphore_change", "thekey , 0 3 0" TELL, "2 4", "4", NO_TTL,
         NULL},
        {"undo", "SET thekey 7" OURS, "semaphore_undo", "thekey theidemkey , 0 3 7" TELL, "2 10",
         "10", NO_TTL, NULL},
        {"delete", "SET thekey 1", "counter_delete", "thekey , 0" TELL, "2 0", NULL, 0, NULL},
        {"latch", NULL, "latch_set", "thekey , 0 3" TELL, "2 3", "3", NO_TTL, NULL},
        {"open", "SET thekey 1", "latch_count_down", "thekey , 0" TELL, "2 0", NULL, 0, NULL},
    };
    for (size_t i = 0; i < sizeof unpublished / sizeof *unpublished; i++) {
        struct grant mute = *grant_of(unpublished[i].script);
        mute.channels = "";
        own_context *user = connect_new_user(stage, "mute", &mute, NULL);
        char why[WHY];
        if (!counter_row_plays(user, &unpublished[i], why))
            fail_msg("%s: %s", unpublished[i].name, why);
    }
}

/* ---- Out of memory -------------------------------------------------------------------------- */

/* Nothing is written, and the answer is a definite no; but what deletes works: the last count down,
 * delete, and the undoing of an acquire. */
CASE(U39_out_of_memory) {
    static const struct counter_row full[] = {
        {"set", NULL, "semaphore_set", "thekey , 0 3 0" TELL, "!OOM", NULL, 0, NULL},
        {"acquire", "SET thekey 3", "semaphore_acquire", "thekey , 0 1", "!OOM", "3", NO_TTL, NULL},
        {"idempotency_key", "SET thekey 3", "semaphore_acquire", "thekey theidemkey , 0 1 7 0",
         "!OOM", "3", NO_TTL, NULL},
        {"undo", "SET thekey 7" OURS, "semaphore_undo", "thekey theidemkey , 0 3 7" TELL, "1 10",
         "10", NO_TTL, "publish 10"},
        {"release", "SET thekey 3", "semaphore_change", "thekey , 0 1 0" TELL, "!OOM", "3", NO_TTL,
         NULL},
        {"drain", "SET thekey 3", "semaphore_drain", "thekey , 0", "!OOM", "3", NO_TTL, NULL},
        {"latch", NULL, "latch_set", "thekey , 0 3" TELL, "!OOM", NULL, 0, NULL},
        {"down", "SET thekey 3", "latch_count_down", "thekey , 0" TELL, "!OOM", "3", NO_TTL, NULL},
        {"open", "SET thekey 1", "latch_count_down", "thekey , 0" TELL, "1 0", NULL, 0,
         "publish 0"},
        {"delete", "SET thekey 3", "counter_delete", "thekey , 0" TELL, "1 0", NULL, 0,
         "publish 0"},
    };
    own_context *user = connect_as(stage->server, NULL, NULL);
    for (size_t i = 0; i < sizeof full / sizeof *full; i++) {
        char why[WHY];
        int64_t begin_ms = server_time_ms(stage->server);
        prepare(full[i].before);
        use_up_memory();
        bool fits = call_fits(user, &full[i], begin_ms, why);
        free_up_memory();
        if (!fits)
            fail_msg("%s: %s", full[i].name, why);
    }
}

/* ---- Idempotency keys ----------------------------------------------------------------------- */

/* Any number of copies do what one does. */
CASE(with_an_idempotency_key_twice_is_once) {
    own_context *user = connect_as(stage->server, NULL, NULL);
    prepare("SET " NUMBER " 10");
    for (int i = 0; i < 3; i++) {
        assert_code(user, "semaphore_acquire", NUMBER " " TAKEN " " IDEM_KEY " , 0 3 7 1", "1");
        assert_int_equal(cmd_int(stage->server, "INCRBY " NUMBER " 0"), 7);
    }
    for (int i = 0; i < 3; i++) {
        assert_code(user, "semaphore_undo", NUMBER " " TAKEN " " IDEM_KEY " , 0 3 7" TELL,
                    i == 0 ? "1" : "0");
        assert_int_equal(cmd_int(stage->server, "INCRBY " NUMBER " 0"), 10);
    }
    assert_int_equal(cmd_int(stage->server, "DBSIZE"), 1);
}

/* Who may not write an idempotency key takes nothing with one. */
CASE(no_idempotency_key_nothing_taken) {
    struct grant poor = *grant_of("semaphore_acquire");
    poor.commands = "time get type decrby incrby";
    own_context *user = connect_new_user(stage, "poor", &poor, NULL);
    prepare("SET " NUMBER " 10");
    /* The first word of it differs from one version of the server to the next. */
    redisReply *reply = script_call(user, stage_sha(stage, "semaphore_acquire"),
                                    NUMBER " " TAKEN " " IDEM_KEY " , 0 3 7 0", 0);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    assert_int_equal(cmd_int(stage->server, "INCRBY " NUMBER " 0"), 10);
    assert_int_equal(cmd_int(stage->server, "DBSIZE"), 1);
    assert_code(user, "semaphore_acquire", NUMBER " " TAKEN " , 0 3", "1");
}

/* ---- Without the second key ----------------------------------------------------------------- */

/* Who may not write the proof can open a latch all the same. */
CASE(a_latch_opens_without_proof) {
    struct grant poor = *grant_of("latch_count_down");
    poor.commands = "time get type decr del publish spublish";
    own_context *user = connect_new_user(stage, "poor", &poor, NULL);
    prepare("SET " NUMBER " 1");
    assert_code(user, "latch_count_down", NUMBER " " TAKEN " " PROOF " , 0" TELL, "1");
    assert_int_equal(cmd_int(stage->server, "DBSIZE"), 0);
}

/* It is left out where it would be in another slot; then nothing is looked at but the number. */
CASE(one_key_alone) {
    struct grant one = *grant_of("semaphore_acquire");
    one.keys = "~" NUMBER;
    redisContext *user = connect_new_user(stage, "one", &one, NULL);
    prepare(PERMITS);
    assert_code(user, "semaphore_acquire", NUMBER " , 0 1", "1");
    assert_code(user, "semaphore_acquire", NUMBER " " TAKEN " , 0 1", "NOP");
    assert_int_equal(cmd_int(stage->server, "DECR " NUMBER), 1);
    redisFree(user);
    one = *grant_of("latch_read");
    one.keys = "~" NUMBER;
    user = connect_new_user(stage, "one", &one, NULL);
    assert_code(user, "latch_read", NUMBER " , 0", "1");
    redisFree(user);
}

/* ---- All of them ---------------------------------------------------------------------------- */

int main(void) {
    static const struct table table = {.channel = "thechannel",
                                       .grants = grants,
                                       .grant_count = GRANTS,
                                       .row_count = ROWS,
                                       .head = head_of,
                                       .plays = plays};
    return group_run(&table);
}
