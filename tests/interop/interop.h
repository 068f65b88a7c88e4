/* What the parts of the interop suite share: one server, one JVM, and the helpers that keep rows
 * short. */
#ifndef HF_TEST_INTEROP_INTEROP_H
#define HF_TEST_INTEROP_INTEROP_H

#include "support/assert_hf.h"
#include "support/case.h"
#include "support/java.h"
#include "support/new_lock.h"
#include "support/server.h"
#include "support/wait.h"

#include <holdfast/holdfast.h>

/* A hand-over by message takes a few milliseconds. This is long for that, and short against the
 * TTL of every hold in these rows and against any waiter's own poll, so a waiter that wakes within it
 * was notified. */
#define BY_MESSAGE_MS ((int64_t)5000)

/* So many servers are a quorum's, beside the suite's own. */
#define FIVE 5

struct suite {
    struct server *server;
    struct remote *java;
    bool row_ended; /* the last row came to its end, and left nothing behind */
};
extern struct suite suite;

/* Makes a Java client; `options` as in "watchdog=900". The other: if there is none of that name, for
 * rows that share one. */
void java_client(const char *name, const char *options);
void java_lasting_client(const char *name, const char *options);

/* Opens a handle of `kind` on `lock_name` for a client. Ends the row as skipped if this version of
 * Redisson has no such kind. */
void java_open(const char *client, const char *kind, const char *lock_name, const char *handle);

/* Whether an answer says that this version of Redisson has no such call; the same for a kind. */
bool java_lacks(const char *answer);
bool java_has_kind(const char *kind);

/* An actor nobody has used yet: a failed row may leave one blocked, and must not take others
 * along. */
int java_thread(void);

/* "uuid:number" of an actor, as the server knows it. The actor must not be waiting. Valid until
 * the next call. */
const char *java_owner(const char *client, int thread);

/* Makes a C client with this watchdog (0: the default). */
hf_client *c_client(int64_t watchdog_ms);
hf_lock *c_lock(hf_client *client, const char *name);

/* "uuid:number" of an owner, 0 for this thread. Valid until the next call. */
const char *c_owner(hf_client *client, hf_owner owner);

/* Watches for a wait by a client that is about to begin. Its attempts have the needle in them: an
 * owner, or the name. */
struct watched_wait;
struct watched_wait *java_watch(const char *client, const char *needle);
struct watched_wait *c_watch(const hf_client *client, const char *needle);

/* The same for an owner's wait at one of several servers, each with the client that would be there. */
struct watched_wait *c_watch_at(struct server *const *servers, hf_client *const *clients,
                                size_t len, hf_owner owner);

/* Each waits for what it says, and ends the watch: that it sleeps, having listened and then tried
 * in vain; that it has tried, for one that is heard already when it comes; that it has tried
 * again, for one that never listens. */
void wait_until_asleep(struct watched_wait *wait);
void wait_until_java_asleep(struct watched_wait *wait, int thread); /* in a lock that listens */
bool java_sleeps(int thread);
void wait_until_java_sleeps(int thread); /* at whichever server */
void wait_until_tried(struct watched_wait *wait);
void wait_until_trying(struct watched_wait *wait);

/* Start a wait for ever and return when its owner sleeps: it has listened and then tried once
 * more in vain, so that from then on only a message or the TTL wakes it. The first returns the
 * command's id. */
int java_wait_start(const char *client, const char *handle, int thread);
hf_op *c_wait_start(hf_client *client, hf_lock *lock, hf_owner owner);

/* CLOCK_REALTIME in milliseconds, by which the server ends a lease and Java a wait. What they end
 * is not over before its time to the millisecond by this clock, as it may be by another one, whose
 * milliseconds begin elsewhere. */
int64_t wall_ms(void);

/* Asserts that so much can be left of a lease that was given after `since_ms` of that clock. */
void assert_left(int64_t left_ms, int64_t lease_ms, int64_t since_ms);

/* The lease that a step like "lock lease=20000" gives; without one, that of a watchdog by default; 0: the
 * step gives none. */
int64_t lease_of_step(const char *step);

/* Asserts that nothing is left on the server, apart from what Redisson deletes by itself in a
 * moment. */
void assert_server_empty(void);
/* That a latch was open, or that an acquire of a semaphore has run: ours alone, and it ends. */
bool is_proof(const char *key);
void print_keys(void); /* what is there and should not be */

/* ---- The rows, by file ----------------------------------------------------------------------- */

/* rows_sentinel.c */
void sentinel_each_waits_for_the_other(void **state);
void sentinel_java_waits_for_c_through_a_failover(void **state);
void sentinel_c_waits_for_java_through_a_failover(void **state);
void sentinel_stop(void); /* ends the servers of these rows; nothing if there are none */

/* rows_plain.c */
void plain_java_waits_for_c(void **state);
void plain_c_waits_for_java(void **state);
void plain_mixed_waiters_take_turns(void **state);
void plain_reentry_by_c_seen_by_java(void **state);
void plain_reentry_by_java_seen_by_c(void **state);
void plain_timed_waits_give_up(void **state);
void plain_break_by_java_notifies_c(void **state);
void plain_force_by_c_fails_java(void **state);
void plain_not_owner_on_either_side(void **state);
void plain_inspect_names_java_holder(void **state);
void plain_every_sort_of_name(void **state);
void plain_name_prefix_meets_full_name(void **state);
void plain_refuses_java_read_write_lock(void **state);

/* rows_kinds.c; the state of all but the last is a struct interop_kind */
struct interop_kind {
    const char *name; /* Java's */
    any_kind kind;
    bool reentrant, listens, token;
    bool java_publishes; /* Redisson tells waiters of a release */
};
enum { INTEROP_KINDS = 5 }; /* the last two are the fair ones */
extern const struct interop_kind interop_kinds[INTEROP_KINDS];
void kin_java_waits_for_c(void **state);
void kin_c_waits_for_java(void **state);
void kin_wakes_plain_waiters_of_the_other_side(void **state);
void kin_nests_or_not_on_either_side(void **state);
void kin_forced_and_not_owner_on_either_side(void **state);
void kin_leases_end_for_the_other_side(void **state);
void kin_watchdogs_seen_by_the_other_side(void **state);
void fenced_tokens_are_one_row_of_numbers(void **state);

/* rows_fair.c; the state is a struct interop_kind */
void fair_mixed_queue_is_first_come(void **state);
void fair_give_ups_keep_the_order(void **state);
void fair_turn_that_java_lets_pass(void **state);
void fair_forced_serves_the_first(void **state);
void fair_killed_c_holder_and_waiter(void **state);
void fair_killed_java_holder_and_waiter(void **state);
void fair_killed_java_is_passed_over_when_silent(void **state);

/* rows_readwrite.c */
void rw_mixed_readers_and_writers(void **state);
void rw_downgrade_wakes_readers_of_both_sides(void **state);
void rw_java_watchdog_does_not_end_a_c_hold(void **state);
void rw_watchdogs_of_both_readers(void **state);
void rw_java_reader_keeps_no_dead_level_of_c(void **state);
void rw_killed_readers(void **state);
void rw_killed_holders_alone(void **state);

/* rows_group.c */
void group_fields_of_every_length(void **state);
void group_java_waits_for_c(void **state);
void group_c_waits_for_java(void **state);
void group_waiters_of_both_sides(void **state);
void group_timed_waits_give_up(void **state);
void group_nests_on_either_side(void **state);
void group_forced_and_not_owner_on_either_side(void **state);
void group_java_forces_one_value_of_ours(void **state);
void group_leases_end_for_the_other_side(void **state);
void group_watchdogs_seen_by_the_other_side(void **state);
void group_killed_c_holder(void **state);
void group_killed_java_holder(void **state);
void group_leaves_the_same_state(void **state);

/* rows_quorum.c */
void quorum_java_waits_for_c(void **state);
void quorum_c_waits_for_java(void **state);
void quorum_waiters_of_both_sides(void **state);
void quorum_minority_of_the_other_side(void **state);
void quorum_majority_of_the_other_side(void **state);
void quorum_each_server_in_turn(void **state);
void quorum_java_refused_by_a_bare_majority(void **state);

/* rows_quorum_faults.c */
void quorum_first_server_stopped(void **state);
void quorum_last_server_stopped(void **state);
void quorum_java_unlocks_one_after_the_other(void **state);
void quorum_nested_redlock_loses_the_outer_hold(void **state);
void quorum_nested_c_keeps_the_outer_hold(void **state);
void quorum_java_is_late_and_does_not_check(void **state);
void quorum_java_cannot_be_interrupted(void **state);
void quorum_broken_servers_are_refilled_or_reported(void **state);
void quorum_killed_c_holder(void **state);
void quorum_killed_java_holder(void **state);

/* rows_multi.c */
void multi_java_waits_for_c(void **state);
void multi_c_waits_for_java(void **state);
void multi_plain_lock_on_each_member(void **state);
void multi_opposite_orders(void **state);
void multi_leaves_the_same_state(void **state);
void multi_killed_c_holder(void **state);
void multi_killed_java_holder(void **state);
void multi_java_unlock_stops_at_a_lost_member(void **state);
void multi_of_multis_with_a_lease(void **state);

/* rows_others.c */
void semaphore_wakes_all_of_both_sides(void **state);
void semaphore_give_ups_take_nothing(void **state);
void permits_many_ids_cross(void **state);
void permits_leases_cross(void **state);
void permits_of_the_killed_come_back(void **state);
void latch_wakes_all_of_both_sides(void **state);
void latch_ends_for_c_whatever_java_does(void **state);

/* rows_names.c */
void others_every_sort_of_name(void **state);
void others_refuse_objects_of_another_kind_by_java(void **state);
void others_inspect_names_both_sides(void **state);

/* rows_time.c */
void plain_lease_of_c_ends_for_java(void **state);
void plain_lease_of_java_ends_for_c(void **state);
void plain_watchdog_of_c_seen_by_java(void **state);
void plain_watchdog_of_java_seen_by_c(void **state);
void plain_killed_c_holder(void **state);
void plain_killed_java_holder(void **state);
void plain_closed_c_client(void **state);
void plain_shut_down_java_client(void **state);

/* rows_state.c; the state is the kind's name */
void lock_leaves_the_same_state(void **state);
/* rows_state_others.c; the same */
void other_leaves_the_same_state(void **state);

/* rows_stress.c */
void plain_mixed_stress(void **state);
void plain_mixed_stress_wakes_by_message(void **state);
void kin_mixed_stress(void **state);
void kin_mixed_stress_wakes_by_message(void **state);
void group_mixed_stress(void **state);
void group_mixed_stress_wakes_by_message(void **state);
void quorum_mixed_stress(void **state);
void multi_mixed_stress(void **state);
void others_mixed_stress(void **state);
void others_mixed_stress_wakes_by_message(void **state);

/* rows_rounds.c */
void latch_mixed_rounds(void **state);

#endif
