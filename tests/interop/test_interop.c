/*
 * The interop suite: holdfast and the released Redisson on one real server, in both directions.
 *
 * One JVM and one private server serve all rows. Every row has lock names, actors and C clients of
 * its own, and the server is empty before and after it. A row that fails, or is skipped, stops where
 * it is: with threads that wait, holds that are renewed and subscriptions that count as listeners. So
 * the next one gets another server and another JVM. The Java actor is built on the first run; where
 * Java or Maven is missing, or Maven cannot fetch Redisson, the suite is skipped (exit status 77) with
 * the reason.
 *
 * Environment: HF_SOAK makes the stress row long; HF_SEED repeats one; HF_REDISSON_VERSION takes another
 * Redisson than the pom's (scripts/matrix runs several): a row about what that version lacks is
 * skipped.
 */
#include "five.h"
#include "interop.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct suite suite;

/* A row as it is written, and the state that it wants. */
struct row {
    void (*play)(void **state);
    void *state;
};

/* ---- Java side ------------------------------------------------------------------------------- */

void java_client(const char *name, const char *options) {
    const char *answer =
        java_call(suite.java, "client %s %s %s", name, server_tcp_url(suite.server), options);
    if (strncmp(answer, "ok ", 3) != 0)
        fail_msg("Redisson does not connect: %s", answer);
}

void java_lasting_client(const char *name, const char *options) {
    if (strncmp(java_call(suite.java, "ids %s", name), "ok ", 3) != 0)
        java_client(name, options);
}

void java_open(const char *client, const char *kind, const char *lock_name, const char *handle) {
    char *word = java_word(lock_name);
    const char *answer = java_call(suite.java, "open %s %s %s %s", client, kind, word, handle);
    free(word);
    if (java_lacks(answer))
        skip();
    assert_string_equal(answer, "ok");
}

bool java_lacks(const char *answer) {
    return strncmp(answer, "err NoSuchMethodError ", 22) == 0 ||
           strncmp(answer, "err NoClassDefFoundError ", 25) == 0;
}

bool java_has_kind(const char *kind) {
    return !java_lacks(java_call(suite.java, "open j1 %s probe probe", kind));
}

int java_thread(void) {
    static int last = 0;
    return ++last;
}

const char *java_owner(const char *client, int thread) {
    static char owner[128];
    const char *answer = java_call(suite.java, "ids %s thread=%d", client, thread);
    char uuid[64];
    long long number;
    if (sscanf(answer, "ok %63s %lld", uuid, &number) != 2)
        fail_msg("ids: %s", answer);
    snprintf(owner, sizeof owner, "%s:%lld", uuid, number);
    return owner;
}

/* ---- C side ---------------------------------------------------------------------------------- */

hf_client *c_client(int64_t watchdog_ms) {
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    if (watchdog_ms != 0)
        options.watchdog_ms = watchdog_ms;
    assert_hf(HF_OK, hf_open(server_url(suite.server), &options, &client));
    return client;
}

hf_lock *c_lock(hf_client *client, const char *name) {
    hf_lock *lock;
    assert_hf(HF_OK, hf_lock_new(client, name, &lock));
    return lock;
}

const char *c_owner(hf_client *client, hf_owner owner) {
    static char name[128];
    snprintf(name, sizeof name, "%s:%llu", hf_client_id(client),
             (unsigned long long)(owner != 0 ? owner : hf_owner_self()));
    return name;
}

/* ---- Server side ----------------------------------------------------------------------------- */

int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void assert_left(int64_t left_ms, int64_t lease_ms, int64_t since_ms) {
    int64_t elapsed_ms = wall_ms() - since_ms;
    if (left_ms > lease_ms || left_ms < lease_ms - elapsed_ms)
        fail_msg("%lld ms are left of %lld after %lld", (long long)left_ms, (long long)lease_ms,
                 (long long)elapsed_ms);
}

int64_t lease_of_step(const char *step) {
    const char *lease = strstr(step, "lease=");
    if (strncmp(step, "lock", 4) != 0)
        return 0;
    return lease != NULL ? atoll(lease + strlen("lease=")) : 30000;
}

/* The proof that a latch was open, which stays for some minutes. */
bool is_proof(const char *key) {
    const char *end = strstr(key, ":holdfast_latch");
    bool latch = end != NULL && end[strlen(":holdfast_latch")] == '\0';
    return (latch || strstr(key, ":holdfast_took:") != NULL) && pttl(suite.server, key) != -1;
}

static bool server_is_empty(void *arg) {
    (void)arg;
    own_reply *keys = cmd(suite.server, "KEYS *");
    bool empty = true;
    for (size_t i = 0; i < keys->elements; i++)
        empty = empty && is_proof(keys->element[i]->str);
    return empty;
}

void print_keys(void) {
    own_reply *keys = cmd(suite.server, "KEYS *");
    for (size_t i = 0; i < keys->elements; i++)
        print_error("left behind: %s\n", keys->element[i]->str);
}

void assert_server_empty(void) {
    /* Redisson deletes its latch key after the answer, without waiting for it. */
    if (wait_until(server_is_empty, NULL, BY_MESSAGE_MS))
        return;
    print_keys();
    fail();
}

/* ---- The suite ------------------------------------------------------------------------------- */

static void open_stage(void) {
    struct server_options options = {.tcp = true};
    suite.server = server_start(&options);
    suite.java = java_start(JAVA_REDISSON);
    java_client("j1", "");
    java_client("j2", "");
    suite.row_ended = true;
}

static void close_stage(void) {
    java_kill_all();
    five_stop();
    sentinel_stop();
    server_free(suite.server);
}

static int start_suite(void **state) {
    (void)state;
    open_stage();
    return 0;
}

static int end_suite(void **state) {
    (void)state;
    close_stage();
    return 0;
}

static int start_row(void **state) {
    (void)state;
    if (!suite.row_ended) {
        close_stage();
        open_stage();
    }
    cmd_ok(suite.server, "FLUSHALL");
    return 0;
}

/* What fails or is skipped does not come back from here. */
static void play_row(void **state) {
    struct row *row = *state;
    suite.row_ended = false;
    row->play(&row->state);
    suite.row_ended = true;
}

#define NAMED_ROW(title, plays, needs)                                                             \
    {                                                                                              \
        title, play_row, start_row, NULL, &(struct row) {                                          \
            plays, (void *)(uintptr_t)(needs)                                                      \
        }                                                                                          \
    }
#define ROW(plays) NAMED_ROW(#plays, plays, NULL)

/* One row for each kind of rows_kinds.c. */
#define KIND_ROW(plays, index, kind) NAMED_ROW(#plays "." kind, plays, &interop_kinds[index])
#define STATE_ROW(plays, kind) NAMED_ROW(#plays "." kind, plays, kind)
#define KIND_ROWS(row)                                                                             \
    KIND_ROW(row, 0, "nonreentrant"), KIND_ROW(row, 1, "spin"), KIND_ROW(row, 2, "fenced")
#define FAIR_ROWS(row) KIND_ROW(row, 3, "fair"), KIND_ROW(row, 4, "nonreentrantfair")

/* NOLINTNEXTLINE(readability-function-size): it is a table */
int main(void) {
    const struct CMUnitTest rows[] = {
        ROW(plain_java_waits_for_c),
        ROW(plain_c_waits_for_java),
        ROW(plain_mixed_waiters_take_turns),
        ROW(plain_reentry_by_c_seen_by_java),
        ROW(plain_reentry_by_java_seen_by_c),
        ROW(plain_timed_waits_give_up),
        ROW(plain_break_by_java_notifies_c),
        ROW(plain_force_by_c_fails_java),
        ROW(plain_not_owner_on_either_side),
        ROW(plain_inspect_names_java_holder),
        ROW(plain_every_sort_of_name),
        ROW(plain_name_prefix_meets_full_name),
        ROW(plain_refuses_java_read_write_lock),
        ROW(plain_lease_of_c_ends_for_java),
        ROW(plain_lease_of_java_ends_for_c),
        ROW(plain_watchdog_of_c_seen_by_java),
        ROW(plain_watchdog_of_java_seen_by_c),
        ROW(plain_killed_c_holder),
        ROW(plain_killed_java_holder),
        ROW(plain_closed_c_client),
        ROW(plain_shut_down_java_client),
        STATE_ROW(lock_leaves_the_same_state, "plain"),
        STATE_ROW(lock_leaves_the_same_state, "nonreentrant"),
        STATE_ROW(lock_leaves_the_same_state, "spin"),
        STATE_ROW(lock_leaves_the_same_state, "fenced"),
        STATE_ROW(lock_leaves_the_same_state, "fair"),
        STATE_ROW(lock_leaves_the_same_state, "nonreentrantfair"),
        STATE_ROW(other_leaves_the_same_state, "readwrite"),
        STATE_ROW(other_leaves_the_same_state, "semaphore"),
        STATE_ROW(other_leaves_the_same_state, "permits"),
        STATE_ROW(other_leaves_the_same_state, "latch"),
        KIND_ROWS(kin_java_waits_for_c),
        KIND_ROWS(kin_c_waits_for_java),
        KIND_ROWS(kin_wakes_plain_waiters_of_the_other_side),
        KIND_ROWS(kin_nests_or_not_on_either_side),
        KIND_ROWS(kin_forced_and_not_owner_on_either_side),
        KIND_ROWS(kin_leases_end_for_the_other_side),
        KIND_ROWS(kin_watchdogs_seen_by_the_other_side),
        ROW(fenced_tokens_are_one_row_of_numbers),
        FAIR_ROWS(kin_java_waits_for_c),
        FAIR_ROWS(kin_c_waits_for_java),
        FAIR_ROWS(kin_nests_or_not_on_either_side),
        FAIR_ROWS(kin_leases_end_for_the_other_side),
        FAIR_ROWS(kin_watchdogs_seen_by_the_other_side),
        FAIR_ROWS(fair_mixed_queue_is_first_come),
        FAIR_ROWS(fair_give_ups_keep_the_order),
        FAIR_ROWS(fair_turn_that_java_lets_pass),
        FAIR_ROWS(fair_forced_serves_the_first),
        KIND_ROW(fair_killed_c_holder_and_waiter, 3, "fair"),
        KIND_ROW(fair_killed_java_holder_and_waiter, 3, "fair"),
        KIND_ROW(fair_killed_java_is_passed_over_when_silent, 3, "fair"),
        ROW(rw_mixed_readers_and_writers),
        ROW(rw_downgrade_wakes_readers_of_both_sides),
        ROW(rw_java_watchdog_does_not_end_a_c_hold),
        ROW(rw_watchdogs_of_both_readers),
        ROW(rw_java_reader_keeps_no_dead_level_of_c),
        ROW(rw_killed_readers),
        ROW(rw_killed_holders_alone),
        ROW(others_every_sort_of_name),
        ROW(others_refuse_objects_of_another_kind_by_java),
        ROW(others_inspect_names_both_sides),
        ROW(group_fields_of_every_length),
        ROW(group_java_waits_for_c),
        ROW(group_c_waits_for_java),
        ROW(group_waiters_of_both_sides),
        ROW(group_timed_waits_give_up),
        ROW(group_nests_on_either_side),
        ROW(group_forced_and_not_owner_on_either_side),
        ROW(group_java_forces_one_value_of_ours),
        ROW(group_leases_end_for_the_other_side),
        ROW(group_watchdogs_seen_by_the_other_side),
        ROW(group_killed_c_holder),
        ROW(group_killed_java_holder),
        ROW(group_leaves_the_same_state),
        ROW(quorum_java_waits_for_c),
        ROW(quorum_c_waits_for_java),
        ROW(quorum_waiters_of_both_sides),
        ROW(quorum_minority_of_the_other_side),
        ROW(quorum_majority_of_the_other_side),
        ROW(quorum_each_server_in_turn),
        ROW(quorum_java_refused_by_a_bare_majority),
        ROW(quorum_first_server_stopped),
        ROW(quorum_last_server_stopped),
        ROW(quorum_java_unlocks_one_after_the_other),
        ROW(quorum_nested_redlock_loses_the_outer_hold),
        ROW(quorum_nested_c_keeps_the_outer_hold),
        ROW(quorum_java_is_late_and_does_not_check),
        ROW(quorum_java_cannot_be_interrupted),
        ROW(quorum_broken_servers_are_refilled_or_reported),
        ROW(quorum_killed_c_holder),
        ROW(quorum_killed_java_holder),
        ROW(multi_java_waits_for_c),
        ROW(multi_c_waits_for_java),
        ROW(multi_plain_lock_on_each_member),
        ROW(multi_opposite_orders),
        ROW(multi_leaves_the_same_state),
        ROW(multi_killed_c_holder),
        ROW(multi_killed_java_holder),
        ROW(multi_java_unlock_stops_at_a_lost_member),
        ROW(multi_of_multis_with_a_lease),
        ROW(sentinel_each_waits_for_the_other),
        ROW(sentinel_java_waits_for_c_through_a_failover),
        ROW(sentinel_c_waits_for_java_through_a_failover),
        ROW(semaphore_wakes_all_of_both_sides),
        ROW(semaphore_give_ups_take_nothing),
        ROW(permits_many_ids_cross),
        ROW(permits_leases_cross),
        ROW(permits_of_the_killed_come_back),
        ROW(latch_wakes_all_of_both_sides),
        ROW(latch_ends_for_c_whatever_java_does),
        ROW(plain_mixed_stress_wakes_by_message),
        ROW(plain_mixed_stress),
        ROW(kin_mixed_stress_wakes_by_message),
        ROW(kin_mixed_stress),
        ROW(others_mixed_stress_wakes_by_message),
        ROW(group_mixed_stress),
        ROW(group_mixed_stress_wakes_by_message),
        ROW(quorum_mixed_stress),
        ROW(multi_mixed_stress),
        ROW(others_mixed_stress),
        ROW(latch_mixed_rounds),
    };

    /* A JVM that is killed must not take the driver along when it is written to. */
    signal(SIGPIPE, SIG_IGN);
    int built = java_build(JAVA_REDISSON);
    if (built != 0)
        return built;
    return cmocka_run_group_tests_name("interop", rows, start_suite, end_suite) == 0 ? 0 : 1;
}
