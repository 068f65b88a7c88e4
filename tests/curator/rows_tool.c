/*
 * What an operator sees of Curator's clients: who holds and who waits by every command, a deadlock
 * that goes through one, and a process that has died.
 */
#include "suite.h"

#include "support/tool.h"

#include <stdio.h>
#include <string.h>

static struct tool_page *page;

static bool page_shows(const char *text) {
    own_text *body = tool_fetch(page, "/api/locks");
    return strstr(body, text) != NULL;
}

void tool_reports_java(void **state) {
    (void)state;
    int holder = java_thread(), waiter = java_thread();
    tool_use(zk_url(suite.zk));
    assert_java("ok", "open j1 mutex /seen seen");
    assert_java("ok", "open j2 mutex /seen seen-by-2");
    assert_java("ok true", "lock seen thread=%d", holder);
    int waiting = java_send(suite.java, "lock seen-by-2 thread=%d", waiter);
    assert_nodes("/seen", 2);

    assert_true(tool_says("ls seen", "seen  plain  connected  session 0x"));
    assert_true(tool_says("ls --json seen", "\"waiting\":1"));
    int status;
    free(tool_output("ls --stuck seen", &status));
    assert_int_equal(status, 0);
    assert_true(tool_says("top -b -n 1", "connected session 0x"));
    assert_true(tool_says("watch -n 1 seen", "  held      "));
    assert_true(tool_says("doctor --skip latency --skip waking", "ok       deadlocks"));
    page = tool_serve();
    if (page != NULL)
        assert_true(page_shows("\"name\":\"seen\",\"kind\":\"plain\""));
    tool_serve_end(page);

    assert_java("ok", "unlock seen thread=%d", holder);
    assert_java_ends("ok true", waiting);
    assert_java("ok", "unlock seen-by-2 thread=%d", waiter);
}

static bool doctor_warns(void *arg) {
    (void)arg;
    own_text *text = tool_output("doctor --skip ensemble --skip latency --skip waking", NULL);
    bool found = strstr(text, "warning  deadlocks") != NULL &&
                 strstr(text, "waits for 'knot-c'") != NULL &&
                 strstr(text, "waits for 'knot-java'") != NULL;
    return found;
}

/* Java has one and waits for the other; ours the other way round. That they are of one thread nobody knows, so it is a
 * warning. */
void tool_finds_a_deadlock_with_java(void **state) {
    (void)state;
    int thread = java_thread();
    hf_client *client = c_client(SESSION_MS);
    hf_lock *held = c_lock(client, HF_PLAIN, "knot-c"),
            *wanted = c_lock(client, HF_PLAIN, "knot-java");
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    options.owner = hf_owner_self();
    options.wait_ms = HF_FOREVER;
    tool_use(zk_url(suite.zk));
    assert_hf(HF_OK, hf_lock_acquire(held));
    assert_java("ok", "open j1 mutex /knot-java knot-java");
    assert_java("ok", "open j1 mutex /knot-c knot-c");
    assert_java("ok true", "lock knot-java thread=%d", thread);
    int waiting = java_send(suite.java, "lock knot-c thread=%d", thread);
    assert_nodes("/knot-c", 2);
    assert_hf(HF_OK, hf_lock_acquire_start(wanted, &options, NULL, NULL, &op));
    assert_nodes("/knot-java", 2);
    assert_true(wait_until(doctor_warns, NULL, HANG_MS));

    assert_hf(HF_OK, hf_lock_release(held));
    assert_java_ends("ok true", waiting);
    assert_java("ok", "unlock knot-java thread=%d", thread);
    assert_java("ok", "unlock knot-c thread=%d", thread);
    assert_hf(HF_OK, hf_lock_release_as(wanted, c_acquired(op)));
    hf_lock_free(held);
    hf_lock_free(wanted);
    hf_close(client);
}

static bool is_free(void *arg) {
    (void)arg;
    own_text *text = tool_output("ls --json doomed", NULL);
    return text[0] == '\0';
}

/* Its session outlives it, so it is connected until that is over, and then the lock is free. */
void tool_sees_a_dead_java_go(void **state) {
    (void)state;
    struct remote *java = java_new(DOOMED_SESSION_MS);
    tool_use(zk_url(suite.zk));
    assert_string_equal(java_call(java, "open c mutex /doomed doomed"), "ok");
    assert_string_equal(java_call(java, "lock doomed"), "ok true");
    java_kill(java);
    assert_true(wait_until(is_free, NULL, HANG_MS));
    assert_true(zk_wait_children(suite.eyes, "/doomed", 0, HANG_MS));
    java_free(java);
}
