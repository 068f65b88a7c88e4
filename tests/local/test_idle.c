/*
 * local: when the private server leaves, and when it must not.
 *
 * The idle time is short here. That a server leaves is waited for as an event; that it stays is
 * shown by something that takes several idle times and happens in the meantime.
 */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "support/case.h"
#include "support/server.h"

#define IDLE_MS 300

static void in_dir(const char *name, char *ret, size_t size) {
    snprintf(ret, size, "%s/%s", local_case_dir, name);
}

/* A connection to the server, which is started if need be. Tried again, as a client would, when the
 * server has gone before it said anything: on a slow machine the idle time may pass at any moment.
 */
static redisContext *enter(const struct hfi_local_options *options, pid_t *ret_server) {
    for (int attempt = 0; attempt < 100; attempt++) {
        struct hfi_addr addr;
        if (hfi_local_ensure(options, hfi_now_ms() + HANG_MS, &addr, NULL) != HF_OK)
            return NULL;
        redisContext *connection = local_connect(local_case_dir);
        redisReply *reply = connection != NULL ? redisCommand(connection, "INFO server") : NULL;
        if (reply != NULL) {
            *ret_server = atoi(strstr(reply->str, "process_id:") + strlen("process_id:"));
            freeReplyObject(reply);
            return connection;
        }
        if (connection != NULL)
            redisFree(connection);
    }
    return NULL;
}

/* The same with an idle time, and with clients from `programs` for the monitor if that is given. */
static redisContext *come_for(int64_t idle_ms, const char *programs, pid_t *ret_server) {
    const struct hfi_local_options options = {
        .directory = local_case_dir, .idle_ms = idle_ms, .search = programs};
    redisContext *connection = enter(&options, ret_server);
    assert_non_null(connection);
    return connection;
}

static redisContext *come(const char *programs, pid_t *ret_server) {
    return come_for(IDLE_MS, programs, ret_server);
}

/* ---- Leaving --------------------------------------------------------------------------------- */

LOCAL_CASE(idle_server_leaves) {
    local_ensure(dir, IDLE_MS);
    int64_t began_ms = hfi_now_ms();
    local_ensure(dir, IDLE_MS); /* short-lived clients count, too */
    assert_true(local_wait_count(dir, LOCAL_SERVER, 0));
    assert_true(hfi_now_ms() - began_ms >= IDLE_MS);
    assert_true(local_wait_count(dir, LOCAL_ANY, 0)); /* the monitor, too */
    assert_true(local_lock_free(dir));

    pid_t server;
    redisFree(come(NULL, &server)); /* and it can come back */
}

LOCAL_CASE(fencing_counters_do_not_keep_it) {
    pid_t server;
    redisContext *connection = come(NULL, &server);
    assert_true(answers(connection, "1", "INCR redisson_lock_token:{a}"));
    assert_true(answers(connection, "OK", "SELECT 3"));
    assert_true(answers(connection, "1", "INCR redisson_lock_token:{b}"));
    redisFree(connection);
    assert_true(local_wait_count(dir, LOCAL_ANY, 0));
}

/* ---- Staying --------------------------------------------------------------------------------- */

LOCAL_CASE(connection_keeps_it) {
    pid_t server;
    redisContext *connection = come(NULL, &server);
    assert_true(HOLDS_FOR(local_server_pid(dir) == server, 6 * IDLE_MS));
    assert_true(answers(connection, "PONG", "PING"));
    redisFree(connection);
    assert_true(local_wait_count(dir, LOCAL_ANY, 0));
}

/* A lock that nobody is connected for: its holder may be on its way back. */
static void keeps_until_expired(const char *db) {
    const int64_t ttl_ms = 6 * IDLE_MS;
    pid_t server;
    redisContext *connection = come(NULL, &server);
    assert_true(answers(connection, "OK", "SELECT %s", db));
    assert_true(answers(connection, "1", "HSET lock owner:1 1"));
    int64_t began_ms = hfi_now_ms();
    assert_true(answers(connection, "1", "PEXPIRE lock %lld", (long long)ttl_ms));
    redisFree(connection);
    assert_true(local_wait_count(local_case_dir, LOCAL_SERVER, 0));
    assert_true(hfi_now_ms() - began_ms >= ttl_ms);
}

LOCAL_CASE(key_with_ttl_keeps_it) {
    keeps_until_expired("0");
}

LOCAL_CASE(key_in_another_database_keeps_it) {
    keeps_until_expired("7");
}

/* Short visits, most of them between two looks of the monitor. */
LOCAL_CASE(visitors_keep_it) {
    pid_t first, server;
    int64_t last_ms = hfi_now_ms();
    redisFree(come(NULL, &first));
    for (int visits = 0; visits < 20; visits++) {
        linger(IDLE_MS / 3);
        own_context *connection = come(NULL, &server);
        if (server != first) { /* only if this machine made a long pause of a short one */
            assert_true(hfi_now_ms() - last_ms >= IDLE_MS);
            first = server;
            visits = 0;
        }
        last_ms = hfi_now_ms();
    }
}

/* ---- Newcomers in the last moment ------------------------------------------------------------ */

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
}

/* Makes a directory with the real server and a client that first runs `prologue`, a piece of shell.
 */
static char *programs_with_prologue(const char *prologue) {
    char *programs = local_dir(), path[128], text[1024];
    assert_int_equal(mkdir(programs, 0700), 0);
    snprintf(path, sizeof path, "%s/redis-server", programs);
    write_text(path, "#!/bin/sh\nexec redis-server \"$@\"\n");
    snprintf(path, sizeof path, "%s/redis-cli", programs);
    snprintf(text, sizeof text, "#!/bin/sh\n%s\nexec redis-cli \"$@\"\n", prologue);
    write_text(path, text);
    return programs;
}

static bool exists(void *name) {
    char path[128];
    in_dir(name, path, sizeof path);
    return access(path, F_OK) == 0;
}

static bool is_back(void *arg) {
    (void)arg;
    char name[] = "redis.sock", idle_name[] = "redis.sock.idle";
    return exists(name) && !exists(idle_name);
}

/* The worst moment: all checks were passed, and the command to leave is about to be sent. */
LOCAL_CASE(lock_taken_before_the_last_command_keeps_it) {
    own_text *programs = programs_with_prologue(
        "case \"$*\" in\n"
        "*--pipe*) [ -e came ] || redis-cli -s redis.sock.idle set lock 1 >came ;;\n"
        "esac");
    char came[] = "came";
    pid_t server;
    redisFree(come(programs, &server));
    assert_true(wait_until(exists, came, HANG_MS));
    assert_true(wait_until(is_back, NULL, HANG_MS));
    redisContext *connection = local_connect(dir);
    assert_true(answers(connection, "1", "GET lock"));
    assert_int_equal(local_server_pid(dir), server);
    assert_true(answers(connection, "1", "DEL lock"));
    redisFree(connection);
    assert_true(local_wait_count(dir, LOCAL_ANY, 0)); /* and later it leaves after all */
}

/* The same for a client that is connected, but has no lock yet. */
LOCAL_CASE(visit_before_the_last_command_keeps_it) {
    own_text *programs = programs_with_prologue(
        "case \"$*\" in\n"
        "*--pipe*) [ -e came ] || redis-cli -s redis.sock.idle ping >came ;;\n"
        "esac");
    char came[] = "came";
    pid_t server;
    redisFree(come_for(20 * IDLE_MS, programs, &server)); /* time to look before it tries again */
    assert_true(wait_until(exists, came, HANG_MS));
    assert_true(wait_until(is_back, NULL, HANG_MS));
    assert_int_equal(local_server_pid(dir), server);
}

/* A monitor that is stopped after its last check, goes on when others have long come, and must do
 * no harm. */
LOCAL_CASE(late_monitor_does_no_harm) {
    char *programs =
        programs_with_prologue("case \"$*\" in\n"
                               "*--pipe*) [ -e hold ] || { >hold; kill -STOP $$; } ;;\n"
                               "esac");
    char hold[] = "hold";
    pid_t server;
    redisFree(come(programs, &server));
    assert_true(wait_until(exists, hold, HANG_MS));
    pid_t found;
    redisContext *connection = come(NULL, &found); /* finds the socket hidden, and shows it again */
    assert_int_equal(found, server);
    assert_true(answers(connection, "OK", "SET lock 1"));
    redisFree(connection);

    pid_t pids[16];
    size_t count = local_processes(dir, LOCAL_ANY, pids, 16);
    for (size_t i = 0; i < count; i++)
        kill(pids[i], SIGCONT);
    assert_true(HOLDS_FOR(local_server_pid(dir) == server, 6 * IDLE_MS));
    connection = local_connect(dir);
    assert_true(answers(connection, "1", "GET lock"));
    redisFree(connection);
    assert_int_equal(local_server_pid(dir), server);
    free(programs);
}

LOCAL_CASE(server_without_socket_ends) {
    pid_t server, other;
    redisContext *connection = come(NULL, &server);
    assert_true(answers(connection, "OK", "SET lock 1"));
    char path[128];
    in_dir("redis.sock", path, sizeof path);
    assert_int_equal(unlink(path), 0);
    assert_true(local_wait_count(dir, LOCAL_ANY, 0));
    redisFree(connection);
    redisFree(come(NULL, &other));
    assert_int_not_equal(server, other);
}

/* What a test that cleans up after itself does, or a person: the server must not stay for ever. */
LOCAL_CASE(server_without_directory_ends) {
    pid_t server;
    redisFree(come(NULL, &server));
    static const char *const names[] = {"redis.sock", "server.log", ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        in_dir(names[i], path, sizeof path);
        assert_int_equal(remove(path), 0);
    }
    assert_true(local_wait_count(dir, LOCAL_ANY, 0));
}

/* ---- The race -------------------------------------------------------------------------------- */

#define RACE_IDLE_MS 90
#define RACERS 2

struct racer {
    unsigned seed;
    int number, rounds;
    struct barrier *barrier;
    pid_t server; /* who served us last */
};

static redisContext *come_in(struct racer *racer) {
    const struct hfi_local_options options = {.directory = local_case_dir, .idle_ms = RACE_IDLE_MS};
    return enter(&options, &racer->server);
}

/* A lock is taken and must still be there at the end, also when we were away in between. */
static int visit(struct racer *racer, int round) {
    redisContext *connection = come_in(racer);
    if (connection == NULL || !answers(connection, "OK", "SET lock%d %d", racer->number, round))
        return 2;
    linger(rand_r(&racer->seed) % 30);
    if (rand_r(&racer->seed) % 4 == 0) {
        redisFree(connection);
        linger(rand_r(&racer->seed) % (4 * RACE_IDLE_MS));
        connection = come_in(racer);
    }
    own_text *expected = text_of("%d", round);
    if (connection == NULL || !answers(connection, expected, "GET lock%d", racer->number))
        return 3;
    if (!answers(connection, "1", "DEL lock%d", racer->number))
        return 4;
    redisFree(connection);
    return 0;
}

static bool is_leaving(void *arg) {
    const struct racer *racer = arg;
    char name[] = "redis.sock";
    return !exists(name) || !process_alive(racer->server);
}

/* Visits, waits until nobody is there and the server is about to leave, and comes back in that
 * moment. */
static int race(void *arg) {
    struct racer *racer = arg;
    for (int round = 0; round < racer->rounds; round++) {
        int status = visit(racer, round);
        if (status != 0)
            return status;
        if (!barrier_wait(racer->barrier, HANG_MS) || !wait_until(is_leaving, racer, HANG_MS))
            return 5;
        linger(rand_r(&racer->seed) % 20);
    }
    return 0;
}

/* Whether the same two servers run at two times: in a single look one may have ended while we
 * looked for the other. */
static bool two_servers_run(void) {
    pid_t before[8], after[8];
    size_t count = local_processes(local_case_dir, LOCAL_SERVER, before, 8);
    if (count < 2)
        return false;
    return HOLDS_FOR(local_processes(local_case_dir, LOCAL_SERVER, after, 8) >= 2 &&
                         before[0] == after[0] && before[1] == after[1],
                     50);
}

LOCAL_CASE(newcomers_race_the_exit) {
    const char *given = getenv("HF_TEST_SEED");
    unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid();
    print_message("HF_TEST_SEED=%u\n", seed);
    struct racer racer = {.rounds = getenv("HF_SOAK") != NULL ? 1000 : 40,
                          .barrier = barrier_new(RACERS)};
    pid_t pids[RACERS];
    for (racer.number = 0; racer.number < RACERS; racer.number++) {
        racer.seed = seed + (unsigned)racer.number;
        pids[racer.number] = run_child(race, &racer);
    }

    int servers = 0;
    pid_t last = 0;
    while (process_alive(pids[0]) || process_alive(pids[1])) {
        pid_t now = last;
        local_processes(dir, LOCAL_SERVER, &now, 1);
        servers += now != last;
        last = now;
        assert_false(two_servers_run());
        (void)wait_a_moment();
    }
    for (int i = 0; i < RACERS; i++)
        assert_true(expect_exit(pids[i], 0, HANG_MS));
    print_message("%d servers came and went\n", servers);
    assert_true(servers > 1); /* or there was no race */
    barrier_free(racer.barrier);
}

RUN_CASES(local_setup, local_teardown)
