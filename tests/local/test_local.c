/*
 * local: starting and finding the private server, with real servers and processes.
 *
 * Every test has a directory of its own. What happens when a server is idle is in test_idle.c.
 */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "support/case.h"

#define LONG_MS 600000 /* these servers are not to leave */
#define NOBODY 65534

/* ---- One server ------------------------------------------------------------------------------ */

LOCAL_CASE(starts_a_private_server) {
    local_ensure(dir, LONG_MS);
    redisContext *connection = local_connect(dir);
    assert_true(answers(connection, "PONG", "PING"));
    assert_true(answers(connection, "0", "CONFIG GET port"));
    assert_true(answers(connection, "", "CONFIG GET save"));
    assert_true(answers(connection, "no", "CONFIG GET appendonly"));
    assert_true(answers(connection, "noeviction", "CONFIG GET maxmemory-policy"));
    assert_true(answers(connection, "0", "CONFIG GET maxmemory"));
    assert_true(answers(connection, dir, "CONFIG GET dir"));
    redisFree(connection);

    struct stat st;
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    own_text *path = text_of("%s/redis.sock", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_false(local_lock_free(dir));
}

LOCAL_CASE(second_call_finds_the_first_server) {
    local_ensure(dir, LONG_MS);
    pid_t pid = local_server_pid(dir);
    local_ensure(dir, LONG_MS);
    assert_int_equal(local_server_pid(dir), pid);
}

struct starter {
    char dir[128];
    struct barrier *barrier;
    int64_t *pids; /* shared: the server each of them found */
    int index;
};

static int start_server(void *arg) {
    const struct starter *starter = arg;
    if (!barrier_wait(starter->barrier, HANG_MS))
        return 2;
    if (local_try(starter->dir, LONG_MS, NULL) != HF_OK)
        return 3;
    redisContext *connection = local_connect(starter->dir);
    redisReply *reply = connection != NULL ? redisCommand(connection, "INFO server") : NULL;
    const char *line =
        reply != NULL && reply->str != NULL ? strstr(reply->str, "process_id:") : NULL;
    if (line == NULL)
        return 4;
    starter->pids[starter->index] = atoi(line + strlen("process_id:"));
    return 0;
}

static void starters_find_one_server(const char *dir, int size) {
    struct starter starter = {.barrier = barrier_new((unsigned)size),
                              .pids = shared_new((size_t)size * sizeof(int64_t))};
    snprintf(starter.dir, sizeof starter.dir, "%s", dir);
    pid_t members[16];
    for (starter.index = 0; starter.index < size; starter.index++)
        members[starter.index] = run_child(start_server, &starter);
    for (int i = 0; i < size; i++)
        assert_true(expect_exit(members[i], 0, HANG_MS));
    pid_t server = local_server_pid(dir);
    for (int i = 0; i < size; i++)
        assert_int_equal(starter.pids[i], server);
    shared_free(starter.pids, (size_t)size * sizeof(int64_t));
    barrier_free(starter.barrier);
}

CASE(two_at_once_get_one_server) {
    for (int round = 0; round < 10; round++) {
        own_text *dir = local_dir();
        starters_find_one_server(dir, 2);
        local_stop(dir);
    }
}

LOCAL_CASE(ten_at_once_get_one_server) {
    starters_find_one_server(dir, 10);
    for (int round = 0; round < 5; round++) { /* and again when it was killed */
        kill(local_server_pid(dir), SIGKILL);
        starters_find_one_server(dir, 10);
    }
}

/* ---- What is left of another ----------------------------------------------------------------- */

LOCAL_CASE(killed_server_is_replaced) {
    local_ensure(dir, LONG_MS);
    pid_t first = local_server_pid(dir);
    kill(first, SIGKILL);
    local_ensure(dir, LONG_MS);
    pid_t second = local_server_pid(dir);
    assert_int_not_equal(first, second);
    assert_false(process_alive(first));
}

static bool lock_is_free(void *dir) {
    return local_lock_free(dir);
}

LOCAL_CASE(lock_is_free_once_the_server_is_dead) {
    local_ensure(dir, LONG_MS);
    pid_t monitor = local_monitor_pid(dir);
    stop_process(monitor); /* or it might see the end of the server, and end too */
    assert_false(local_lock_free(dir));
    kill(local_server_pid(dir), SIGKILL);
    assert_true(wait_until(lock_is_free, dir, HANG_MS));
    assert_true(process_alive(monitor)); /* it had no part in the lock */
}

static void write_program(const char *dir, const char *name, const char *text) {
    own_text *path = text_of("%s/%s", dir, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
}

static int try_with_search(const char *dir, const char *search, int64_t limit_ms, hf_error *error) {
    const struct hfi_local_options options = {
        .directory = dir, .idle_ms = LONG_MS, .search = search};
    struct hfi_addr addr;
    return hfi_local_ensure(&options, hfi_now_ms() + limit_ms, &addr, error);
}

/* On one processor the server's program begins before its new monitor has run at all. */
LOCAL_CASE(server_starts_when_the_monitor_has_closed_the_lock) {
    char *programs = local_dir(), path[128];
    assert_int_equal(mkdir(programs, 0700), 0);
    write_program(programs, "redis-server",
                  "#!/bin/sh\n"
                  "read -r children </proc/$$/task/$$/children\n"
                  "for child in $children; do\n"
                  "    [ ! -e /proc/$child/fd/9 ] || echo $child >>still_open\n"
                  "    echo $child >>looked_at\n"
                  "done\n"
                  "exec redis-server \"$@\"\n");
    write_program(programs, "redis-cli", "#!/bin/sh\nexec redis-cli \"$@\"\n");
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    hf_error error = {0};
    int err = try_with_search(dir, programs, HANG_MS, &error);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(err, HF_OK);
    snprintf(path, sizeof path, "%s/looked_at", dir);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/still_open", dir);
    assert_int_equal(access(path, F_OK), -1);
    free(programs);
}

/* Leaves a socket file behind that nobody listens on. */
static void plant_stale_socket(const char *dir, const char *name) {
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    snprintf(un.sun_path, sizeof un.sun_path, "%.80s/%.20s", dir, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof un), 0);
    close(fd);
}

LOCAL_CASE(stale_sockets_are_replaced) {
    assert_int_equal(mkdir(dir, 0700), 0);
    plant_stale_socket(dir, "redis.sock");
    plant_stale_socket(dir, "redis.sock.idle");
    local_ensure(dir, LONG_MS);
    redisContext *connection = local_connect(dir);
    assert_true(answers(connection, "PONG", "PING"));
    redisFree(connection);
    own_text *path = text_of("%s/redis.sock.idle", dir);
    assert_int_equal(access(path, F_OK), -1);
}

LOCAL_CASE(killed_monitor_leaves_a_usable_server) {
    local_ensure(dir, LONG_MS);
    pid_t server = local_server_pid(dir);
    kill(local_monitor_pid(dir), SIGKILL);
    assert_true(local_wait_count(dir, LOCAL_SHELL, 0));
    local_ensure(dir, LONG_MS);
    assert_int_equal(local_server_pid(dir), server);

    /* Killed in the middle of leaving, it has hidden the socket. */
    char socket_path[128], hidden[128];
    snprintf(socket_path, sizeof socket_path, "%s/redis.sock", dir);
    snprintf(hidden, sizeof hidden, "%s/redis.sock.idle", dir);
    assert_int_equal(rename(socket_path, hidden), 0);
    local_ensure(dir, LONG_MS);
    assert_int_equal(local_server_pid(dir), server);
}

/* ---- Hostile directories --------------------------------------------------------------------- */

static void assert_refused(const char *dir, int code, const char *words) {
    hf_error error = {0};
    assert_int_equal(local_try(dir, LONG_MS, &error), code);
    assert_int_equal(error.code, code);
    if (strstr(error.text, words) == NULL)
        fail_msg("'%s' does not say '%s'", error.text, words);
    assert_int_equal(local_count(dir, LOCAL_ANY), 0);
}

CASE(symbolic_link_is_refused) {
    char *real = local_dir(), *dir = local_dir(), with_slash[128];
    assert_int_equal(mkdir(real, 0700), 0);
    assert_int_equal(symlink(real, dir), 0);
    assert_refused(dir, HF_EPERM, "not a directory");
    snprintf(with_slash, sizeof with_slash, "%s/", dir);
    assert_refused(with_slash, HF_EPERM, "not a directory");
    assert_int_equal(rmdir(real), 0); /* nothing was put into it */
    free(real);
    free(dir);
}

LOCAL_CASE(file_is_refused) {
    close(open(dir, O_WRONLY | O_CREAT | O_CLOEXEC, 0700));
    assert_refused(dir, HF_EPERM, "not a directory");
}

CASE(wrong_mode_is_refused) {
    static const mode_t modes[] = {0755, 0701, 0710, 0777, 0600};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        own_text *dir = local_dir();
        assert_int_equal(mkdir(dir, 0700), 0);
        assert_int_equal(chmod(dir, modes[i]), 0);
        assert_refused(dir, HF_EPERM, modes[i] == 0600 && geteuid() != 0 ? "" : "0700");
        assert_int_equal(rmdir(dir), 0);
    }
}

CASE(wrong_owner_is_refused) {
    if (geteuid() != 0)
        skip();
    own_text *dir = local_dir();
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(chown(dir, NOBODY, NOBODY), 0);
    assert_refused(dir, HF_EPERM, "another user");
    assert_int_equal(rmdir(dir), 0);
}

/* A server in our directory that runs as another user. */
static int impostor(void *arg) {
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    snprintf(un.sun_path, sizeof un.sun_path, "%.80s/redis.sock", (const char *)arg);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&un, sizeof un) != 0 || seteuid(NOBODY) != 0 ||
        listen(fd, 8) != 0)
        return 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the change of user has undone it */
    for (;;)
        pause();
}

static bool can_connect(void *dir) {
    redisContext *connection = local_connect(dir);
    if (connection != NULL)
        redisFree(connection);
    return connection != NULL;
}

CASE(foreign_server_is_refused) {
    if (geteuid() != 0)
        skip();
    own_text *dir = local_dir();
    assert_int_equal(mkdir(dir, 0700), 0);
    pid_t pid = run_child(impostor, dir);
    assert_true(wait_until(can_connect, dir, HANG_MS));
    assert_refused(dir, HF_EPERM, "another user");
    kill_child(pid);
}

CASE(bad_paths_are_refused) {
    char longest[128] = "/tmp/";
    memset(longest + 5, 'x', 90);
    assert_refused("relative", HF_EINVAL, "absolute");
    assert_refused("/", HF_EINVAL, "absolute");
    assert_refused("///", HF_EINVAL, "absolute");
    assert_refused(longest, HF_EINVAL, "longer");
    assert_refused("/nonexistent/below", HF_ESYS, "No such file");
}

/* ---- Servers that do not start --------------------------------------------------------------- */

LOCAL_CASE(says_what_to_install) {
    own_text *empty = local_dir();
    assert_int_equal(mkdir(empty, 0700), 0);
    const char *searches[] = {"", empty, "relative:also/relative", "::"};
    for (size_t i = 0; i < sizeof searches / sizeof searches[0]; i++) {
        hf_error error = {0};
        assert_int_equal(try_with_search(dir, searches[i], HANG_MS, &error), HF_EUNREACH);
        assert_non_null(strstr(error.text, "install redis-server"));
    }
    assert_true(local_lock_free(dir));
}

LOCAL_CASE(server_that_fails_is_given_up) {
    char *programs = local_dir(), path[128];
    assert_int_equal(mkdir(programs, 0700), 0);
    write_program(programs, "redis-server", "#!/bin/sh\necho started >>count\nexit 1\n");
    hf_error error = {0};
    assert_int_equal(try_with_search(dir, programs, HANG_MS, &error), HF_EUNREACH);
    assert_non_null(strstr(error.text, "server.log"));
    assert_true(wait_until(lock_is_free, dir, HANG_MS));

    struct stat st;
    snprintf(path, sizeof path, "%s/count", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_in_range(st.st_size / (off_t)strlen("started\n"), 2,
                    4); /* tried again, but not for ever */
    free(programs);
}

LOCAL_CASE(valkey_serves_as_well) {
    char *programs = local_dir(), path[128];
    assert_int_equal(mkdir(programs, 0700), 0);
    write_program(programs, "valkey-server", "#!/bin/sh\nexec redis-server \"$@\"\n");
    snprintf(path, sizeof path, "%s/", dir); /* a slash at the end is fine, too */
    hf_error error = {0};
    assert_int_equal(try_with_search(path, programs, HANG_MS, &error), HF_OK);
    local_server_pid(dir);
    free(programs);
}

LOCAL_CASE(frozen_server_is_waited_for_until_the_deadline) {
    local_ensure(dir, LONG_MS);
    pid_t server = local_server_pid(dir);
    stop_process(server);
    hf_error error = {0};
    int64_t began_ms = hfi_now_ms();
    assert_int_equal(try_with_search(dir, NULL, 1500, &error), HF_EUNREACH);
    assert_true(hfi_now_ms() - began_ms >= 1500);
    assert_non_null(strstr(error.text, "does not answer"));
    kill(server, SIGCONT);
    local_ensure(dir, LONG_MS);
    assert_int_equal(local_server_pid(dir), server);
}

/* ---- The default directory ------------------------------------------------------------------- */

static int resolve_as(void *arg) {
    uid_t uid = *(uid_t *)arg;
    if (setgid(uid) != 0 || setuid(uid) != 0)
        return 2;
    struct hfi_addr addrs[2];
    size_t count = 0;
    if (hfi_resolve_local("", hfi_now_ms() + HANG_MS, addrs, 2, &count, NULL) != HF_OK ||
        count != 1)
        return 3;
    struct sockaddr_un un;
    memcpy(&un, &addrs[0].sa, sizeof un);
    own_text *expected = text_of("/tmp/holdfast-%u/redis.sock", (unsigned)uid);
    return strcmp(un.sun_path, expected) == 0 ? 0 : 4;
}

CASE(default_directory_is_named_by_uid) {
    if (geteuid() != 0)
        skip(); /* it would be this user's real one */
    uid_t uid = 300000 + (uid_t)getpid();
    char dir[64], path[128];
    snprintf(dir, sizeof dir, "/tmp/holdfast-%u", (unsigned)uid);
    int status = wait_exit(run_child(resolve_as, &uid), HANG_MS);
    size_t servers = local_count(dir, LOCAL_SERVER);
    struct stat st = {0};
    stat(dir, &st);
    local_stop(dir);
    snprintf(path, sizeof path, "%s/redis.sock", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/server.log", dir);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(status, 0);
    assert_int_equal(servers, 1);
    assert_int_equal(st.st_uid, uid);
}

RUN_CASES(local_setup, local_teardown)
