/*
 * The tool on ZooKeeper: a command runs while the lock is held, is shown, refused to a second, and ended when the lock
 * is lost or about to be. What the tool does with a lock in general is tested in tests/cli, on Redis.
 *
 * A command goes on as long as this program does, so that a row that fails leaves nothing running.
 */
#include "support/case.h"
#include "support/tool.h"
#include "zk/scene.h"

#include <signal.h>
#include <sys/wait.h>

enum { BUSY = 75, LOST = 79 };

static char *dir;

static void assert_tool(int status, const char *words) {
    assert_true(expect_exit(tool_start(words), status, HANG_MS));
}

/* `holdfast run` of a command that writes a file and waits, and another file when it is asked to
 * end, if it is to heed that. */
static pid_t start_run(const char *options, const char *name, const char *on_term) {
    char words[640];
    snprintf(words, sizeof words,
             "run %s %s -- bash -c 'trap \"touch %s/%s.term; %s\" TERM; touch %s/%s; "
             "while [ -d /proc/%d ]; do " TICK "; done'",
             options, name, dir, name, on_term, dir, name, (int)getpid());
    return tool_start(words);
}

static bool has_file(void *path) {
    return access(path, F_OK) == 0;
}

static bool is_there(const char *name, const char *suffix, int64_t limit_ms) {
    own_text *path = text_of("%s/%s%s", dir, name, suffix);
    return wait_until(has_file, path, limit_ms);
}

CASE_AROUND(a_command_runs_under_the_lock, scene_heal, NULL) {
    assert_tool(7, "run status -- sh -c 'exit 7'");
    assert_nodes("status", 0);
    assert_tool(1, "show --held status");
}

CASE_AROUND(a_second_is_refused_and_a_break_ends_the_first, scene_heal, NULL) {
    pid_t first = start_run("--ttl 30s", "second", "exit 0");
    assert_true(is_there("second", "", HANG_MS));
    assert_nodes("second", 1);
    assert_tool(0, "show --held second");
    assert_tool(BUSY, "run --wait 0 second -- true");
    assert_tool(0, "unlock --force second");
    assert_true(expect_exit(first, LOST, HANG_MS));
    assert_nodes("second", 0);
}

/* It is asked to end while there is time, and killed before the time is over. */
CASE_AROUND(a_silent_server_ends_the_command, scene_heal, NULL) {
    pid_t ignores = start_run("--ttl 6s", "ignores", "true"),
          heeds = start_run("--ttl 6s --preserve-status", "heeds", "exit 5");
    bool both = is_there("ignores", "", HANG_MS) && is_there("heeds", "", HANG_MS);
    zk_freeze(scene.zk);
    bool ended = expect_exit(heeds, 5, HANG_MS) && expect_exit(ignores, LOST, HANG_MS);
    zk_unfreeze(scene.zk);
    assert_true(both);
    assert_true(ended);
    assert_true(is_there("heeds", ".term", 0));
    assert_true(is_there("ignores", ".term", 0));
}

CASE_AROUND(a_killed_tool_frees_it_with_its_session, scene_heal, NULL) {
    pid_t tool = start_run("--ttl 6s", "killed", "true");
    own_client *client = scene_direct(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "killed");
    assert_true(is_there("killed", "", HANG_MS));
    kill_child(tool);
    assert_hf(HF_OK, hf_lock_acquire_for(lock, HANG_MS)); /* when its session is over */
    assert_hf(HF_OK, hf_lock_release(lock));
}

static void assert_says(const char *words, const char *expected) {
    assert_true(tool_says(words, expected));
}

CASE_AROUND(holders_and_waiters_are_listed, scene_heal, NULL) {
    pid_t holder = start_run("--ttl 30s", "listed", "exit 0");
    assert_true(is_there("listed", "", HANG_MS));
    pid_t waiter = tool_start("run --wait 60s listed -- true");
    assert_nodes("listed", 2);
    char *text = tool_output("ls 'list*'", NULL);
    assert_non_null(strstr(text, "listed  plain  connected"));
    assert_non_null(strstr(text, " bash  "));
    free(text);
    assert_says("ls --json 'list*'", "\"waiting\":1");
    assert_tool(0, "ls --stuck 'list*'");
    assert_tool(1, "ls --stuck --over 1ms 'list*'");
    assert_tool(0, "unlock --force listed");
    assert_true(expect_exit(holder, LOST, HANG_MS));
    assert_true(expect_exit(waiter, 0, HANG_MS));
}

CASE_AROUND(the_doctor_checks_zookeeper, scene_heal, NULL) {
    static const char words[] = "doctor --skip latency --skip waking --skip deadlocks";
    assert_says(words, "ok       version      ZooKeeper 3.");
    assert_says(words, "ok       ensemble     one server");
    assert_says(words, "ok       session      30.000 s are granted");
    assert_says(words, "not checked on ZooKeeper: eviction, persistence");
    assert_says("doctor --skip deadlocks", "latency      an acquire takes");
}

static bool doctor_finds_a_deadlock(void *arg) {
    (void)arg;
    own_text *text = tool_output("doctor --skip ensemble --skip latency --skip waking", NULL);
    bool found = strstr(text, "bad      deadlocks") != NULL &&
                 strstr(text, "waits for 'knot-a'") != NULL &&
                 strstr(text, "waits for 'knot-b'") != NULL;
    return found;
}

/* Each runs the other's lock inside its own. */
CASE_AROUND(a_deadlock_of_two_scripts_is_found, scene_heal, NULL) {
    static const char *const names[] = {"knot-a", "knot-b"};
    pid_t scripts[2];
    for (int i = 0; i < 2; i++) {
        char words[TOOL_LINE + 512];
        char inner[TOOL_LINE];
        own_text *inner_words = text_of("run --wait 60s %s -- true", names[1 - i]);
        tool_line(inner, inner_words);
        for (char *quote = strchr(inner, '\''); quote != NULL; quote = strchr(quote, '\''))
            *quote = '"';
        snprintf(words, sizeof words,
                 "run %s -- sh -c 'touch %s/%s; while ! [ -e %s/go ]; do " TICK "; done; %s'",
                 names[i], dir, names[i], dir, inner);
        scripts[i] = tool_start(words);
    }
    assert_true(is_there("knot-a", "", HANG_MS) && is_there("knot-b", "", HANG_MS));
    own_text *path = text_of("%s/go", dir);
    FILE *go = fopen(path, "we");
    assert_non_null(go);
    fclose(go);
    bool found = wait_until(doctor_finds_a_deadlock, NULL, 2 * HANG_MS);
    for (int i = 0; i < 2; i++)
        kill_child(scripts[i]);
    assert_true(found);
}

CASE_AROUND(handles_are_refused_with_words, scene_heal, NULL) {
    assert_tool(64, "acquire --lease 30s handle 2>/dev/null");
    assert_says("acquire --lease 30s handle 2>&1", "ZooKeeper has no handles");
    assert_says("release handle 5c4d0000-0000-4000-8000-000000000001:5 2>&1",
                "ZooKeeper has no handles");
}

/* Where the url leads to nothing, a lock is not free: nobody looks there but by mistake. */
CASE_AROUND(a_missing_chroot_is_reported, scene_heal, NULL) {
    own_text *url = text_of("%s/no-such-root", zk_url(scene.zk));
    tool_use(url);
    bool shown = tool_says("show nightly 2>&1", "the url's node /no-such-root does not exist");
    pid_t held = tool_start("show --held nightly 2>/dev/null");
    bool refused = expect_exit(held, 64, HANG_MS);
    tool_use(zk_url(scene.zk));
    assert_true(shown);
    assert_true(refused);
    assert_tool(1, "show --held nightly");
}

/* What a holder is called is in its node. */
CASE_AROUND(a_label_is_shown, scene_heal, NULL) {
    pid_t holder = start_run("--ttl 30s --label 'nightly backup'", "label", "exit 0");
    assert_true(is_there("label", "", HANG_MS));
    assert_says("ls label", " nightly_backup  ");
    assert_says("show label", " nightly_backup");
    assert_tool(0, "unlock --force label");
    assert_true(expect_exit(holder, LOST, HANG_MS));
}

CASE_AROUND(a_leader_is_elected_and_the_server_measured, scene_heal, NULL) {
    assert_tool(0, "elect --once leader -- true");
    assert_says("bench --duration 100ms", "hand-over:");
}

static int start(void **state) {
    dir = temp_dir();
    int err = scene_start(state);
    tool_use(zk_url(scene.zk));
    return err;
}

static int stop(void **state) {
    temp_dir_remove(dir);
    free(dir);
    return scene_stop(state);
}

int main(void) {
    zk_need();
    return test_cases_run(start, stop);
}
