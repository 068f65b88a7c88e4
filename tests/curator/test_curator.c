/*
 * holdfast and the released Apache Curator on one real ZooKeeper server, in both directions.
 *
 * One JVM and one server serve all rows; every row has names, actors and C clients of its own. A
 * row that fails stops where it is, with threads that wait and nodes that stay, so the next one
 * gets another server and another JVM. The Java program is built on the first run; where Java or
 * Maven is missing, or Maven cannot fetch Curator, the suite is skipped (exit status 77) with the
 * reason.
 *
 * Environment: HF_CURATOR_VERSION takes another Curator than the pom's, e.g. 5.4.0; HF_SOAK makes the stress long.
 */
#include "suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

struct suite suite;

/* ---- Java side ------------------------------------------------------------------------------- */

static void make_client(struct remote *java, const char *name, int64_t session_ms) {
    const char *answer =
        java_call(java, "client %s %s session=%lld", name, zk_url(suite.zk), (long long)session_ms);
    if (strcmp(answer, "ok") != 0)
        fail_msg("Curator does not connect: %s", answer);
}

struct remote *java_new(int64_t session_ms) {
    struct remote *java = java_start(JAVA_CURATOR);
    make_client(java, "c", session_ms);
    return java;
}

int java_thread(void) {
    static int last = 0;
    return ++last;
}

/* ---- C side ---------------------------------------------------------------------------------- */

hf_client *c_client(int64_t session_ms) {
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    options.watchdog_ms = session_ms;
    options.cmd_timeout_ms = 20000;
    options.connect_timeout_ms = HANG_MS;
    assert_hf(HF_OK, hf_open(zk_url(suite.zk), &options, &client));
    return client;
}

hf_lock *c_lock(hf_client *client, any_kind kind, const char *name) {
    hf_lock *lock = NULL;
    assert_hf(HF_OK, new_lock(client, kind, name, strlen(name), &lock));
    return lock;
}

hf_op *c_acquire_start(hf_lock *lock) {
    hf_op *op = NULL;
    assert_hf(HF_OK, hf_lock_acquire_start(lock, NULL, NULL, NULL, &op));
    return op;
}

hf_owner c_acquired(hf_op *op) {
    hf_result result = HF_RESULT_INIT;
    assert_hf(HF_OK, joined(op, &result));
    return result.owner;
}

struct behind {
    const char *path;
    int nodes;
    hf_op *op; /* the one that waits; NULL: it is the command */
    int command;
};

static bool is_behind(void *arg) {
    const struct behind *behind = arg;
    return zk_count(suite.eyes, behind->path) == behind->nodes ||
           (behind->op != NULL ? hf_op_wait(behind->op, 0, NULL) != HF_EPENDING
                               : java_answered(suite.java, behind->command));
}

bool wait_behind_java(const char *path, int nodes, hf_op *op) {
    struct behind behind = {.path = path, .nodes = nodes, .op = op};
    return wait_until(is_behind, &behind, HANG_MS);
}

bool wait_behind_c(const char *path, int nodes, int command) {
    struct behind behind = {.path = path, .nodes = nodes, .command = command};
    return wait_until(is_behind, &behind, HANG_MS);
}

/* ---- Server side ----------------------------------------------------------------------------- */

struct watched {
    const char *path;
    int sessions;
};

/* "wchp" names each path, and below it the sessions that watch it. */
static bool is_watched(void *arg) {
    const struct watched *watched = arg;
    char *text = zk_word(suite.zk, "wchp"), *line, *rest = text;
    int sessions = 0;
    bool here = false;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (line[0] == '/')
            here = strcmp(line, watched->path) == 0;
        else if (line[0] == '\t')
            sessions += here;
    }
    free(text);
    return sessions == watched->sessions;
}

bool wait_watched(const char *path, int sessions) {
    struct watched watched = {path, sessions};
    return wait_until(is_watched, &watched, HANG_MS);
}

/* ---- The suite ------------------------------------------------------------------------------- */

static void open_stage(void) {
    struct zk_options options = {.keeps_containers =
                                     true, /* trees are compared, empty nodes and all */
                                 .config = (const char *const[]){"maxSessionTimeout=60000", NULL}};
    suite.zk = zk_start(&options);
    suite.eyes = zk_client_open(zk_port(suite.zk));
    suite.java = java_start(JAVA_CURATOR);
    make_client(suite.java, "j1", SESSION_MS);
    make_client(suite.java, "j2", SESSION_MS);
    suite.row_ended = true;
}

static void close_stage(void) {
    java_kill_all();
    zk_client_close(suite.eyes);
    zk_free(suite.zk);
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
    return 0;
}

/* What fails does not come back from here. */
static void play_row(void **state) {
    suite.row_ended = false;
    void (*const *row)(void **) = *state;
    (*row)(state);
    suite.row_ended = true;
}

#define ROW(name)                                                                                  \
    {                                                                                              \
#name, play_row, start_row, NULL, (void (*[1])(void **)) {                                 \
            name                                                                                   \
        }                                                                                          \
    }

int main(void) {
    const struct CMUnitTest rows[] = {
        ROW(mutex_c_waits_for_java),
        ROW(mutex_java_waits_for_c),
        ROW(mutex_mixed_queue_in_order),
        ROW(mutex_nests_on_either_side),
        ROW(mutex_timed_waits_give_up),
        ROW(mutex_revoked_node_stays_held),
        ROW(mutex_broken_by_c),
        ROW(mutex_inspect_names_java),
        ROW(mutex_survey_names_java),
        ROW(mutex_killed_java_holder),
        ROW(mutex_killed_c_holder),
        ROW(rw_readers_of_both_sides_share),
        ROW(rw_readers_queue_behind_a_writer),
        ROW(rw_downgrade_by_java),
        ROW(rw_downgrade_by_c),
        ROW(permits_cross),
        ROW(permits_wait_on_either_side),
        ROW(permits_of_the_killed_come_back),
        ROW(semaphore_is_a_count),
        ROW(latch_is_a_barrier),
        ROW(multi_crosses),
        ROW(mutex_leaves_the_same_tree),
        ROW(readwrite_leaves_the_same_tree),
        ROW(permits_leave_the_same_tree),
        ROW(semaphore_leaves_the_same_tree),
        ROW(multi_leaves_the_same_tree),
        ROW(tool_reports_java),
        ROW(tool_finds_a_deadlock_with_java),
        ROW(tool_sees_a_dead_java_go),
        ROW(mixed_stress_with_kills),
    };

    /* A JVM that is killed must not take the driver along when it is written to. */
    signal(SIGPIPE, SIG_IGN);
    int built = java_build(JAVA_CURATOR);
    if (built != 0)
        return built;
    zk_need();
    return cmocka_run_group_tests_name("curator", rows, start_suite, end_suite) == 0 ? 0 : 1;
}
