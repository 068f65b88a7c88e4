/* What the rows beside Curator share: one server, one JVM, and the helpers that keep rows short. */
#ifndef HF_TEST_CURATOR_SUITE_H
#define HF_TEST_CURATOR_SUITE_H

#include <holdfast/holdfast.h>

#include "support/assert_hf.h"
#include "support/case.h"
#include "support/java.h"
#include "support/new_lock.h"
#include "support/wait.h"
#include "support/zk.h"
#include "support/zk_client.h"

#define SESSION_MS 30000
#define DOOMED_SESSION_MS 5000 /* of clients that are killed, and whose end is waited for */

struct suite {
    struct zk *zk;
    struct zk_client *eyes;
    struct remote *java; /* with clients j1 and j2 */
    bool row_ended;      /* the last row came to its end, and left nothing behind */
};
extern struct suite suite;

/* Another JVM, with a client `c`, for rows that kill it. */
struct remote *java_new(int64_t session_ms);

/* An actor nobody has used yet: a failed row may leave one blocked, and must not take others along. */
int java_thread(void);

#define assert_java(answer, ...) assert_string_equal(java_call(suite.java, __VA_ARGS__), answer)
#define assert_java_ends(answer, command)                                                          \
    assert_string_equal(java_answer(suite.java, command), answer)

hf_client *c_client(int64_t session_ms);
hf_lock *c_lock(hf_client *client, any_kind kind, const char *name);
hf_op *c_acquire_start(hf_lock *lock);
hf_owner c_acquired(hf_op *op);

/* Waits until so many nodes are under the path, or so many sessions watch the data of one. */
#define assert_nodes(path, count) assert_true(zk_wait_children(suite.eyes, path, count, HANG_MS))
#define assert_watched(path, count) assert_true(wait_watched(path, count))
bool wait_watched(const char *path, int sessions);

/* Waits until so many nodes are under the path, or the one that waits, by an operation or by a command, waits no more:
 * a session that is to run out may do so early. */
bool wait_behind_java(const char *path, int nodes, hf_op *op);
bool wait_behind_c(const char *path, int nodes, int command);

/* ---- The rows, by file ----------------------------------------------------------------------- */

/* rows_mutex.c */
void mutex_c_waits_for_java(void **state);
void mutex_java_waits_for_c(void **state);
void mutex_mixed_queue_in_order(void **state);
void mutex_nests_on_either_side(void **state);
void mutex_timed_waits_give_up(void **state);
void mutex_revoked_node_stays_held(void **state);
void mutex_broken_by_c(void **state);
void mutex_inspect_names_java(void **state);
void mutex_survey_names_java(void **state);
void mutex_killed_java_holder(void **state);
void mutex_killed_c_holder(void **state);

/* rows_readwrite.c */
void rw_readers_of_both_sides_share(void **state);
void rw_readers_queue_behind_a_writer(void **state);
void rw_downgrade_by_java(void **state);
void rw_downgrade_by_c(void **state);

/* rows_others.c */
void permits_cross(void **state);
void permits_wait_on_either_side(void **state);
void permits_of_the_killed_come_back(void **state);
void semaphore_is_a_count(void **state);
void latch_is_a_barrier(void **state);
void multi_crosses(void **state);

/* rows_trees.c */
void mutex_leaves_the_same_tree(void **state);
void readwrite_leaves_the_same_tree(void **state);
void permits_leave_the_same_tree(void **state);
void semaphore_leaves_the_same_tree(void **state);
void multi_leaves_the_same_tree(void **state);

/* rows_tool.c */
void tool_reports_java(void **state);
void tool_finds_a_deadlock_with_java(void **state);
void tool_sees_a_dead_java_go(void **state);

/* rows_stress.c */
void mixed_stress_with_kills(void **state);

#endif
