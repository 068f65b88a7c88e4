/*
 * The tool on ZooKeeper: a command runs while the lock is held, is shown, refused to a second, and ended when the lock
 * is lost or about to be. What the tool does with a lock in general is tested in tests/cli, on Redis.
 *
 * A command goes on as long as this program does, so that a row that fails leaves nothing running.
 */
#include "zk/scene.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUSY = 75, LOST = 79 };

static char *dir;

/* The tool's line for a shell. */
struct line {
    char text[1024];
};

static void write_line(struct line *line, const char *words) {
    const char *tool = getenv("HOLDFAST");
    assert_non_null(tool);
    snprintf(line->text, sizeof line->text,
             "exec '%s' -u '%s?cmd_timeout_ms=5000&connect_timeout_ms=%d' -t 60s %s", tool,
             zk_url(scene.zk), HANG_MS, words);
}

static int run_line(void *arg) {
    const struct line *line = arg;
    execl("/bin/sh", "sh", "-c", line->text, (char *)NULL);
    return 126;
}

static pid_t start_tool(const char *words) {
    struct line line;
    write_line(&line, words);
    return run_child(run_line, &line);
}

static void assert_tool(int status, const char *words) {
    assert_true(expect_exit(start_tool(words), status, HANG_MS));
}

/* `holdfast run` of a command that writes a file and waits, and another file when it is told to end, if it is to heed that. */
static pid_t start_run(const char *options, const char *name, const char *on_term) {
    char words[640];
    snprintf(words, sizeof words,
             "run %s %s -- bash -c 'trap \"touch %s/%s.term; %s\" TERM; touch %s/%s; "
             "while [ -d /proc/%d ]; do sleep 0.02; done'",
             options, name, dir, name, on_term, dir, name, (int)getpid());
    return start_tool(words);
}

static bool has_file(void *path) {
    return access(path, F_OK) == 0;
}

static bool is_there(const char *name, const char *suffix, int64_t limit_ms) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s%s", dir, name, suffix);
    return wait_until(has_file, path, limit_ms);
}

static void a_command_runs_under_the_lock(void **state) {
    (void)state;
    assert_tool(7, "run status -- sh -c 'exit 7'");
    assert_nodes("status", 0);
    assert_tool(1, "show --held status");
}

static void a_second_is_refused_and_a_break_ends_the_first(void **state) {
    (void)state;
    pid_t first = start_run("--ttl 30s", "second", "exit 0");
    assert_true(is_there("second", "", HANG_MS));
    assert_nodes("second", 1);
    assert_tool(0, "show --held second");
    assert_tool(BUSY, "run --wait 0 second -- true");
    assert_tool(0, "unlock --force second");
    assert_true(expect_exit(first, LOST, HANG_MS));
    assert_nodes("second", 0);
}

/* It is told to end while there is time, and killed before the time is over. */
static void a_silent_server_ends_the_command(void **state) {
    (void)state;
    pid_t deaf = start_run("--ttl 6s", "deaf", "true"),
          heeds = start_run("--ttl 6s --preserve-status", "heeds", "exit 5");
    bool both = is_there("deaf", "", HANG_MS) && is_there("heeds", "", HANG_MS);
    zk_freeze(scene.zk);
    bool ended = expect_exit(heeds, 5, HANG_MS) && expect_exit(deaf, LOST, HANG_MS);
    zk_unfreeze(scene.zk);
    assert_true(both);
    assert_true(ended);
    assert_true(is_there("heeds", ".term", 0));
    assert_true(is_there("deaf", ".term", 0));
}

static void a_killed_tool_frees_it_with_its_session(void **state) {
    (void)state;
    pid_t tool = start_run("--ttl 6s", "killed", "true");
    hf_client *client = scene_direct(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "killed");
    assert_true(is_there("killed", "", HANG_MS));
    kill_child(tool);
    assert_hf(HF_OK, hf_lock_acquire_for(lock, HANG_MS)); /* when its session is over */
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_close(client);
}

static int start(void **state) {
    dir = temp_dir();
    return scene_start(state);
}

static int stop(void **state) {
    temp_dir_remove(dir);
    free(dir);
    return scene_stop(state);
}

#define ROW(name) cmocka_unit_test_setup(name, scene_heal)

int main(void) {
    const struct CMUnitTest tests[] = {
        ROW(a_command_runs_under_the_lock),
        ROW(a_second_is_refused_and_a_break_ends_the_first),
        ROW(a_silent_server_ends_the_command),
        ROW(a_killed_tool_frees_it_with_its_session),
    };
    zk_need();
    return cmocka_run_group_tests(tests, start, stop);
}
