/*
 * Tests of the test support itself: private servers, their command helpers and monitors. Waiting
 * and children, the proxy and the hostile server have test_support_wait.c, test_support_proxy.c and
 * test_support_hostile.c.
 *
 * A fixture that quietly does not do what it says makes every test above it worthless; so each
 * promise of server.h that others build on is shown here with a real server and real processes.
 */
#include "support/case.h"
#include "support/server.h"
#include "support/wait.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { LIMIT_MS = 30000 };

/* ---- Where it is and how it lives ------------------------------------------------------------ */

static void assert_pong(redisContext *context) {
    assert_non_null(context);
    assert_int_equal(context->err, 0);
    redisReply *reply = redisCommand(context, "PING");
    assert_non_null(reply);
    assert_string_equal(reply->str, "PONG");
    freeReplyObject(reply);
    redisFree(context);
}

CASE(server_answers_on_its_socket_and_port) {
    own_server *s = server_start(&(struct server_options){.tcp = true});
    char url[256];
    snprintf(url, sizeof url, "unix://%s", server_socket(s));
    assert_string_equal(server_url(s), url);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", server_port(s));
    assert_string_equal(server_tcp_url(s), url);
    assert_pong(redisConnectUnix(server_socket(s)));
    assert_pong(redisConnect("127.0.0.1", server_port(s)));
}

CASE(servers_do_not_share_anything) {
    own_server *a = server_start(&(struct server_options){.tcp = true});
    own_server *b = server_start(&(struct server_options){.tcp = true});
    cmd_ok(a, "SET k 1");
    assert_true(key_exists(a, "k"));
    assert_false(key_exists(b, "k"));
    assert_int_not_equal(server_port(a), server_port(b));
}

CASE(restart_without_aof_is_empty) {
    own_server *s = server_start(NULL);
    pid_t before = server_pid(s);
    cmd_ok(s, "SET k 1");
    server_restart(s);
    assert_int_not_equal(server_pid(s), before);
    assert_false(process_alive(before));
    assert_false(key_exists(s, "k"));

    cmd_ok(s, "SET k 1");
    server_stop(s);
    server_restart(s);
    assert_false(key_exists(s, "k"));
}

CASE(restart_with_aof_keeps_data_and_address) {
    own_server *s = server_start(&(struct server_options){.tcp = true, .aof = true});
    own_text *socket_path = strdup(server_socket(s));
    int port = server_port(s);
    cmd_ok(s, "SET k 1 PX 600000");
    server_restart(s);
    assert_true(key_exists(s, "k"));
    assert_in_range(pttl(s, "k"), 1, 600000);
    assert_string_equal(server_socket(s), socket_path);
    assert_int_equal(server_port(s), port);
    assert_pong(redisConnect("127.0.0.1", port));
}

CASE(kill_and_stop_leave_no_process) {
    own_server *s = server_start(NULL);
    pid_t pid = server_pid(s);
    assert_true(process_alive(pid));
    server_kill(s);
    assert_false(process_alive(pid));
    assert_int_equal(server_pid(s), 0);
    server_kill(s); /* down already: fine */

    server_restart(s);
    pid = server_pid(s);
    server_freeze(s);
    server_stop(s); /* a frozen one ends as well */
    assert_false(process_alive(pid));
}

CASE(frozen_server_answers_when_unfrozen) {
    own_server *s = server_start(NULL);
    redisContext *context = server_connect(s);
    redisSetTimeout(context, (struct timeval){.tv_usec = 200000});
    server_freeze(s);
    assert_null(redisCommand(context, "PING"));
    redisFree(context);
    server_unfreeze(s);
    cmd_ok(s, "PING");
}

CASE(password_is_needed_and_escaped_in_urls) {
    own_server *s = server_start(&(struct server_options){.tcp = true, .password = "p@ss \"/:"});
    redisContext *stranger = redisConnectUnix(server_socket(s));
    redisReply *reply = redisCommand(stranger, "PING");
    assert_non_null(strstr(reply->str, "NOAUTH"));
    freeReplyObject(reply);
    redisFree(stranger);
    cmd_ok(s, "PING");
    assert_non_null(strstr(server_url(s), "unix://:p%40ss%20%22%2f%3a@/"));
    assert_non_null(strstr(server_tcp_url(s), "redis://:p%40ss%20%22%2f%3a@127.0.0.1:"));
}

CASE(config_lines_reach_the_server) {
    const char *const lines[] = {"maxmemory 12345678", "maxmemory-policy noeviction", NULL};
    own_server *s = server_start(&(struct server_options){.config = lines});
    redisReply *reply = cmd(s, "CONFIG GET maxmemory");
    assert_string_equal(reply->element[1]->str, "12345678");
    freeReplyObject(reply);
    cmd_ok(s, "DEBUG SLEEP 0"); /* debug commands are allowed */
}

static bool rewrite_is_done(void *arg) {
    own_text *info = cmd_str(arg, "INFO persistence");
    bool done = strstr(info, "aof_rewrite_in_progress:0") != NULL &&
                strstr(info, "aof_rewrite_scheduled:0") != NULL;
    return done;
}

CASE(relaunched_server_can_be_seen_loading) {
    const char *const lines[] = {"key-load-delay 20000", "rdbcompression no", NULL};
    own_server *s = server_start(&(struct server_options){.aof = true, .config = lines});
    static char big[256 * 1024]; /* events are handled every 2 MB */
    memset(big, 'x', sizeof big);
    for (int i = 0; i < 50; i++)
        cmd_ok(s, "SET k%d %b", i, big, sizeof big);
    cmd_ok(s,
           "BGREWRITEAOF"); /* events are handled while a snapshot is read, hardly while a log is */
    assert_true(wait_until(rewrite_is_done, s, LIMIT_MS));

    server_relaunch(s);
    bool loading = false;
    for (int64_t end_ms = now_ms() + LIMIT_MS; !loading && now_ms() < end_ms;) {
        redisReply *reply = cmd(s, "GET k0");
        loading = reply != NULL && reply->type == REDIS_REPLY_ERROR &&
                  strncmp(reply->str, "LOADING", 7) == 0;
        if (reply != NULL)
            freeReplyObject(reply);
    }
    assert_true(loading);
    server_wait_ready(s);
    assert_true(key_exists(s, "k49"));
}

/* ---- Commands -------------------------------------------------------------------------------- */

CASE(helpers_answer_by_type) {
    own_server *s = server_start(NULL);
    cmd_ok(s, "SET text %s", "with spaces");
    char *text = cmd_str(s, "GET text");
    assert_string_equal(text, "with spaces");
    free(text);
    assert_null(cmd_str(s, "GET nothing"));
    cmd_ok(s, "SET number 42");
    assert_int_equal(cmd_int(s, "GET number"), 42);
    assert_int_equal(cmd_int(s, "INCR number"), 43);
    assert_int_equal(pttl(s, "number"), -1);
    assert_int_equal(pttl(s, "nothing"), -2);
    own_reply *reply = cmd(s, "HGET text field");
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
}

static int ask_wrongly(void *arg) {
    cmd_int(arg, "SET k notanumber");
    return 0;
}

CASE(wrong_reply_aborts_the_program) {
    own_server *s = server_start(NULL);
    assert_true(expect_exit(run_child(ask_wrongly, s), 128 + SIGABRT, LIMIT_MS));
}

CASE(helpers_connect_anew) {
    own_server *s = server_start(NULL);
    cmd_ok(s, "SET k 1");
    own_context *other = server_connect(s);
    freeReplyObject(redisCommand(other, "CLIENT KILL TYPE normal SKIPME yes"));
    assert_int_equal(cmd_int(s, "GET k"), 1);

    /* SIGPIPE has its default action here, so this also shows that none is raised. */
    server_kill(s);
    assert_null(cmd(s, "PING"));
    assert_null(cmd(s, "PING"));
    server_restart(s);
    cmd_ok(s, "PING");
}

static int use_in_child(void *arg) {
    struct server *s = arg;
    for (int i = 1; i <= 200; i++)
        if (cmd_int(s, "INCRBY child 1000") != i * 1000)
            return 1;
    return 0;
}

CASE(child_uses_a_connection_of_its_own) {
    own_server *s = server_start(NULL);
    cmd_ok(s, "PING");
    pid_t child = run_child(use_in_child, s);
    for (int i = 1; i <= 200; i++)
        assert_int_equal(cmd_int(s, "INCR parent"), i);
    assert_true(expect_exit(child, 0, LIMIT_MS));
    assert_int_equal(cmd_int(s, "GET child"), 200000);
}

static bool no_clients(void *arg) {
    return server_clients(arg) == 0;
}

CASE(counts_leave_out_the_helpers) {
    own_server *s = server_start(NULL);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(server_commands(s), 0);
        cmd_ok(s, "SET k 1");
        assert_int_equal(server_commands(s), 0);
        struct monitor *m = monitor_start(s);
        assert_int_equal(server_commands(s), 0);
        assert_int_equal(server_clients(s), 0);

        redisContext *other = redisConnectUnix(server_socket(s));
        for (int i = 0; i < 5; i++)
            freeReplyObject(redisCommand(other, "ECHO %d", i));
        assert_int_equal(server_commands(s), 5);
        assert_int_equal(server_calls(s, "echo"), 5);
        assert_int_equal(server_calls(s, "get"), 0);
        assert_int_equal(server_clients(s), 1);
        redisFree(other);
        assert_true(wait_until(no_clients, s, LIMIT_MS));
        monitor_stop(m);
        server_restart(s);
    }
}

/* ---- Monitors -------------------------------------------------------------------------------- */

CASE(monitor_counts_exactly) {
    own_server *s = server_start(NULL);
    cmd_ok(s, "SET before 1");
    own_monitor *m = monitor_start(s);
    own_context *other = server_connect(s);
    enum { MANY = 300 };
    for (int i = 1; i <= MANY; i++) {
        freeReplyObject(redisCommand(other, "SET k%d v", i));
        assert_int_equal(monitor_count(m, "\"SET\""), i);
    }
    assert_int_equal(monitor_count(m, "\"SET\" \"k7\""), 1);
    assert_int_equal(monitor_count(m, "before"), 0);
    assert_int_equal(monitor_count(m, "hf-monitor-mark"), 0);

    monitor_clear(m);
    assert_int_equal(monitor_count(m, "\"SET\""), 0);
    cmd_ok(s, "EVAL %s 1 scripted", "return redis.call('incr', KEYS[1])");
    assert_int_equal(monitor_count(m, "lua] \"incr\" \"scripted\""), 1);
    own_text *text = monitor_text(m);
    assert_non_null(strstr(text, "\"EVAL\""));
}

static void *set_later(void *arg) {
    sleep_ms(50); /* so that the other has begun to wait; if not, it passes all the same */
    cmd_ok(arg, "SET later 1");
    return NULL;
}

CASE(monitor_waits_and_outlives_the_server) {
    own_server *s = server_start(NULL);
    own_monitor *m = monitor_start(s);
    assert_false(monitor_wait(m, "later", 1, 20));
    pthread_t thread;
    pthread_create(&thread, NULL, set_later, s);
    assert_true(monitor_wait(m, "later", 1, LIMIT_MS));
    pthread_join(thread, NULL);
    server_kill(s);
    assert_int_equal(monitor_count(m, "later"), 1);
    assert_false(
        monitor_wait(m, "later", 2, LIMIT_MS)); /* ends with the server, not with the limit */
}

/* ---- Nothing is left behind ------------------------------------------------------------------ */

struct legacy {
    atomic_int ready;
    pid_t server, grandchild;
    char dir[128];
    int end_by; /* a signal, or 0 for exit() without cleaning up */
};

static int start_and_die(void *arg) {
    static struct server *s; /* so that it is forgotten, but not leaked */
    struct legacy *legacy = arg;
    s = server_start(&(struct server_options){.aof = true});
    legacy->server = server_pid(s);
    snprintf(legacy->dir, sizeof legacy->dir, "%s", server_dir(s));
    /* A child that outlives this process for a while, with copies of all its descriptors. */
    pid_t grandchild = fork();
    if (grandchild == 0) {
        alarm(60);
        child_waits_for_ever(NULL);
    }
    legacy->grandchild = grandchild;
    atomic_store(&legacy->ready, 1);
    if (legacy->end_by == 0)
        exit(0);
    raise(legacy->end_by);
    return 1;
}

static bool server_is_gone(void *arg) {
    return !process_alive(((struct legacy *)arg)->server);
}

static bool dir_is_gone(void *arg) {
    return access(((struct legacy *)arg)->dir, F_OK) != 0;
}

static void dead_program_leaves_nothing(int end_by) {
    struct legacy *legacy = shared_new(sizeof *legacy);
    legacy->end_by = end_by;
    pid_t pid = run_child(start_and_die, legacy);
    assert_true(expect_exit(pid, end_by == 0 ? 0 : 128 + end_by, LIMIT_MS));
    assert_int_equal(atomic_load(&legacy->ready), 1);
    assert_true(legacy->server > 0);
    assert_true(process_alive(legacy->grandchild));
    assert_true(wait_until(server_is_gone, legacy, LIMIT_MS));
    assert_true(wait_until(dir_is_gone, legacy, LIMIT_MS));
    kill(legacy->grandchild, SIGKILL);
    shared_free(legacy, sizeof *legacy);
}

CASE(program_killed_leaves_nothing) {
    dead_program_leaves_nothing(SIGKILL);
}

CASE(program_crashed_leaves_nothing) {
    dead_program_leaves_nothing(SIGABRT);
}

CASE(program_that_forgets_leaves_nothing) {
    dead_program_leaves_nothing(0);
}

static void *start_in_thread(void *arg) {
    (void)arg;
    return server_start(NULL);
}

CASE(server_outlives_the_thread_that_started_it) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, start_in_thread, NULL);
    pthread_join(thread, &result);
    own_server *s = result;
    struct legacy legacy = {.server = server_pid(s)};
    assert_false(wait_until(server_is_gone, &legacy, 200));
    cmd_ok(s, "PING");
}

CASE(servers_are_not_our_children) {
    own_server *s = server_start(NULL);
    assert_non_null(s);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

CASE(freed_server_leaves_nothing) {
    struct server *s = server_start(NULL);
    struct legacy legacy = {.server = server_pid(s)};
    snprintf(legacy.dir, sizeof legacy.dir, "%s", server_dir(s));
    server_free(s);
    assert_true(server_is_gone(&legacy));
    assert_true(dir_is_gone(&legacy));
}

RUN_CASES(NULL, NULL)
