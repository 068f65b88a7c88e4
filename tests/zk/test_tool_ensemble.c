/*
 * What an operator sees of three servers: `ls`, `watch`, `top`, `doctor` and the page, while all
 * are there, while one is missing, and through the death of the one that leads.
 *
 * A command goes on as long as this program does, so that a row that fails leaves nothing running.
 */
#include "support/case.h"
#include "support/tool.h"
#include "zk/scene.h"

static struct zk_ensemble *ensemble;
static char *dir;

static int start(void **state) {
    (void)state;
    dir = temp_dir();
    ensemble = zk_ensemble_start(&scene_options);
    return 0;
}

static int stop(void **state) {
    (void)state;
    zk_client_close(scene.eyes);
    zk_ensemble_free(ensemble);
    temp_dir_remove(dir);
    free(dir);
    return 0;
}

/* Each test finds all three, and looks at the tree through the leader. */
static int make_whole(void **state) {
    (void)state;
    int leader = zk_wait_whole(ensemble);
    zk_client_close(scene.eyes);
    scene.eyes = zk_client_open(zk_port(zk_member(ensemble, leader)));
    tool_use(zk_ensemble_url(ensemble));
    return 0;
}

static int a_follower(void) {
    return (zk_wait_leader(ensemble) + 1) % ZK_MEMBERS;
}

/* `run` of a command that ends when there is a file of the lock's name. */
static pid_t start_run(const char *name) {
    char words[512];
    snprintf(words, sizeof words,
             "run --ttl 30s %s -- sh -c 'while [ -d /proc/%d ] && ! [ -e %s/%s ]; do " TICK
             "; done'",
             name, (int)getpid(), dir, name);
    return tool_start(words);
}

static void end_run(const char *name, pid_t pid) {
    own_text *path = text_of("%s/%s", dir, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fclose(file);
    assert_true(expect_exit(pid, 0, HANG_MS));
}

/* Whichever server is asked, it has heard of what the others did. */
CASE_AROUND(every_server_lists_the_same, make_whole, NULL) {
    pid_t holder = start_run("same");
    assert_nodes("same", 1);
    pid_t waiter = tool_start("run --wait 60s same -- true");
    assert_nodes("same", 2);
    for (int i = 0; i < ZK_MEMBERS; i++) {
        tool_use(zk_url(zk_member(ensemble, i)));
        assert_true(tool_says("ls same", "same  plain  connected"));
        assert_true(tool_says("ls --json same", "\"waiting\":1"));
        assert_true(tool_says("top -b -n 1", "1 lock, 1 held, 1 waiting"));
    }
    end_run("same", holder);
    assert_true(expect_exit(waiter, 0, HANG_MS));
}

/* Whether `watch` has said so. */
static bool is_watched(void *event) {
    char line[512], path[512];
    bool found = false;
    snprintf(path, sizeof path, "%s/log", dir);
    FILE *log = fopen(path, "re");
    while (log != NULL && !found && fgets(line, sizeof line, log) != NULL)
        found = strstr(line, event) != NULL;
    if (log != NULL)
        fclose(log);
    return found;
}

CASE_AROUND(a_hand_over_is_watched_through_the_death_of_the_leader, make_whole, NULL) {
    own_text *words = text_of("watch --for 10m watched >%s/log", dir);
    pid_t watch = tool_start(words);
    assert_true(wait_until(is_watched, "  free", HANG_MS));
    pid_t holder = start_run("watched");
    assert_true(wait_until(is_watched, "  acquired  ", HANG_MS));
    /* Held for long enough to be seen: what is watched is looked at now and then. */
    pid_t waiter = tool_start("run --wait 10m watched -- sleep 3");
    assert_true(wait_until(is_watched, "  waits  ", HANG_MS));

    int leader = zk_wait_leader(ensemble);
    zk_kill(zk_member(ensemble, leader));
    zk_wait_leader(ensemble); /* another */
    end_run("watched", holder);
    assert_true(expect_exit(waiter, 0, HANG_MS));
    assert_true(wait_until(is_watched, "  released  ", HANG_MS));
    zk_launch(zk_member(ensemble, leader));
    kill_child(watch);
}

CASE_AROUND(the_doctor_counts_servers, make_whole, NULL) {
    static const char words[] = "doctor --skip latency --skip waking --skip deadlocks";
    int status, follower = a_follower();
    own_text *missing =
        text_of("127.0.0.1:%d does not answer", zk_port(zk_member(ensemble, follower)));
    char *text = tool_output(words, &status);
    assert_int_equal(status, 0);
    assert_non_null(strstr(text, "3 of 3 servers are up, 1 of them leads; 3 vote"));
    free(text);

    zk_kill(zk_member(ensemble, follower));
    text = tool_output(words, &status);
    assert_int_equal(status, 1);
    assert_non_null(strstr(text, "2 of 3 servers are up, 1 of them leads; 3 vote"));
    assert_non_null(strstr(text, missing));
    assert_non_null(strstr(text, "with one more down, nothing can be locked"));
    free(text);
    zk_launch(zk_member(ensemble, follower));
}

static struct tool_page *page;

static bool page_shows(void *text) {
    own_text *body = tool_fetch(page, "/api/locks");
    return strstr(body, text) != NULL;
}

CASE_AROUND(the_page_outlives_a_server, make_whole, NULL) {
    page = tool_serve();
    if (page == NULL)
        skip();
    pid_t holder = start_run("paged");
    assert_true(wait_until(page_shows, "\"name\":\"paged\",\"kind\":\"plain\"", HANG_MS));
    int leader = zk_wait_leader(ensemble);
    zk_kill(zk_member(ensemble, leader));
    assert_true(wait_until(page_shows, "\"name\":\"paged\",\"kind\":\"plain\"", HANG_MS));
    end_run("paged", holder);
    assert_true(wait_until(page_shows, "\"locks\":[]", HANG_MS));
    char *metrics = tool_fetch(page, "/metrics");
    assert_non_null(strstr(metrics, "\nholdfast_up 1\n"));
    free(metrics);
    zk_launch(zk_member(ensemble, leader));
    tool_serve_end(page);
}

int main(void) {
    zk_need();
    return test_cases_run(start, stop);
}
