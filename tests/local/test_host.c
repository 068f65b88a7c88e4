/*
 * local: and the process that starts the server: neither must feel the other.
 *
 * What the application has (descriptors, signal handling, children, a terminal) does not reach the
 * server, and nothing of the server reaches the application. Most tests put an application together
 * in a child.
 */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "support/case.h"

#define LONG_MS 600000

/* ---- Descriptors ----------------------------------------------------------------------------- */

/* The kind of thing an open descriptor of a process is, as /proc tells it; "" if it is not open. */
static void describe_fd(pid_t pid, int fd, char *ret, size_t size) {
    own_text *path = text_of("/proc/%d/fd/%d", (int)pid, fd);
    ssize_t len = readlink(path, ret, size - 1);
    ret[len > 0 ? len : 0] = '\0';
}

struct expected_fd {
    pid_t pid;
    int fd;
    const char *end;
    char target[256];
};

static bool is_as_expected(void *arg) {
    struct expected_fd *expected = arg;
    describe_fd(expected->pid, expected->fd, expected->target, sizeof expected->target);
    size_t len = strlen(expected->target), end = strlen(expected->end);
    return end == 0 ? len == 0
                    : len >= end && strcmp(expected->target + len - end, expected->end) == 0;
}

/* It is waited for: a shell that was just forked has yet to see to its descriptors. */
static void assert_fd(pid_t pid, int fd, const char *expected_end) {
    struct expected_fd expected = {.pid = pid, .fd = fd, .end = expected_end};
    if (!wait_until(is_as_expected, &expected, HANG_MS))
        fail_msg("descriptor %d of %d is '%s', not '%s'", fd, (int)pid, expected.target,
                 expected_end);
}

static int start_with_open_pipe(void *arg) {
    int *ends = arg;
    for (int fd = 5; fd < 40; fd++) /* also on the numbers that are used on the way */
        if (fd != ends[0] && fd != ends[1] && dup2(ends[1], fd) < 0)
            return 2;
    return local_try(local_case_dir, LONG_MS, NULL) == HF_OK ? 0 : 3;
}

LOCAL_CASE(host_descriptors_are_not_inherited) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0); /* without CLOEXEC */
    assert_true(expect_exit(run_child(start_with_open_pipe, ends), 0, HANG_MS));
    close(ends[1]);
    char byte;
    assert_int_equal(read(ends[0], &byte, 1), 0); /* nobody has the other end */
    close(ends[0]);

    pid_t server = local_server_pid(dir), monitor = local_monitor_pid(dir);
    assert_fd(server, 0, "/dev/null");
    assert_fd(server, 1, "/server.log");
    assert_fd(server, 2, "/server.log");
    assert_fd(server, 9, dir);
    assert_fd(monitor, 1, "/server.log");
    assert_fd(monitor, 9, "");
}

static int start_with_nothing_open(void *arg) {
    (void)arg;
    for (int fd = 0; fd < 64; fd++)
        close(fd);
    return local_try(local_case_dir, LONG_MS, NULL) == HF_OK ? 0 : 3;
}

LOCAL_CASE(host_may_have_no_standard_descriptors) {
    assert_true(expect_exit(run_child(start_with_nothing_open, NULL), 0, HANG_MS));
    pid_t server = local_server_pid(dir);
    assert_fd(server, 0, "/dev/null");
    assert_fd(server, 2, "/server.log");
    assert_fd(server, 9, dir);
}

struct forker {
    int ends[2]; /* children wait for the end of this pipe, and so for ours */
    atomic_bool stop;
    pid_t pids[200];
    size_t count;
};

/* An application that forks all the time, and whose children live on without exec. */
static void *fork_often(void *arg) {
    struct forker *forker = arg;
    while (!atomic_load(&forker->stop) && forker->count < 200) {
        pid_t pid = fork();
        if (pid == 0) {
            char byte;
            close(forker->ends[1]);
            _exit(read(forker->ends[0], &byte, 1) == 0 ? 0 : 1);
        }
        forker->pids[forker->count++] = pid;
    }
    return NULL;
}

static bool lock_is_free(void *arg) {
    return local_lock_free(arg);
}

static int start_while_forking(void *arg) {
    (void)arg;
    struct forker forker = {.count = 0};
    pthread_t thread;
    if (pipe2(forker.ends, O_CLOEXEC) != 0)
        return 1;
    pthread_create(&thread, NULL, fork_often, &forker);
    int err = local_try(local_case_dir, LONG_MS, NULL);
    atomic_store(&forker.stop, true);
    pthread_join(thread, NULL);
    pid_t pids[4];
    if (err != HF_OK || local_processes(local_case_dir, LOCAL_SERVER, pids, 4) != 1)
        return 2;
    kill(pids[0], SIGKILL);
    bool is_free = wait_until(lock_is_free, local_case_dir, HANG_MS / 2);
    for (size_t i = 0; i < forker.count; i++)
        kill(forker.pids[i], SIGKILL);
    return is_free ? 0 : 3;
}

LOCAL_CASE(forks_of_the_host_do_not_keep_the_lock) {
    assert_true(expect_exit(run_child(start_while_forking, NULL), 0, HANG_MS));
}

/* ---- Signals and children -------------------------------------------------------------------- */

static uint64_t signal_mask_of(pid_t pid, const char *name) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    uint64_t mask = ~(uint64_t)0;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            mask = strtoull(line + strlen(name), NULL, 16);
    fclose(file);
    return mask;
}

static uint64_t bit(int number) {
    return (uint64_t)1 << (number - 1);
}

static int start_with_odd_signals(void *arg) {
    (void)arg;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (int number = 1; number < 32; number++)
        signal(number, SIG_IGN);
    return local_try(local_case_dir, LONG_MS, NULL) == HF_OK ? 0 : 3;
}

/* What the host has blocked would stay so. A shell blocks all for a moment whenever it starts something. */
static bool blocks_nothing(void *pid) {
    return signal_mask_of(*(pid_t *)pid, "SigBlk:") == 0;
}

LOCAL_CASE(host_signal_handling_is_not_inherited) {
    assert_true(expect_exit(run_child(start_with_odd_signals, NULL), 0, HANG_MS));
    pid_t server = local_server_pid(dir), monitor = local_monitor_pid(dir);
    assert_true(wait_until(blocks_nothing, &server, HANG_MS));
    assert_true(wait_until(blocks_nothing, &monitor, HANG_MS));
    /* Some others the server, and a shell in the background, ignore by themselves. */
    uint64_t usual = bit(SIGTERM) | bit(SIGUSR1) | bit(SIGUSR2) | bit(SIGCHLD) | bit(SIGCONT);
    assert_int_equal(signal_mask_of(server, "SigIgn:") & usual, 0);
    assert_int_equal(signal_mask_of(monitor, "SigIgn:") & usual, 0);
    kill(server, SIGTERM);
    assert_true(local_wait_count(dir, LOCAL_SERVER, 0));
}

static atomic_int children_heard_of;

static void on_child(int number) {
    (void)number;
    atomic_fetch_add(&children_heard_of, 1);
}

static int start_and_look_for_children(void *arg) {
    (void)arg;
    struct sigaction action = {.sa_handler = on_child};
    sigaction(SIGCHLD, &action, NULL);
    if (local_try(local_case_dir, LONG_MS, NULL) != HF_OK)
        return 2;
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
        return 3;
    if (waitpid(-1, NULL, WNOHANG | __WALL) != -1 || errno != ECHILD)
        return 4;
    return atomic_load(&children_heard_of) == 0 ? 0 : 5;
}

LOCAL_CASE(host_sees_no_child) {
    assert_true(expect_exit(run_child(start_and_look_for_children, NULL), 0, HANG_MS));
}

static int start_ignoring_children(void *arg) {
    (void)arg;
    signal(SIGCHLD, SIG_IGN);
    return local_try(local_case_dir, LONG_MS, NULL) == HF_OK ? 0 : 2;
}

LOCAL_CASE(host_may_ignore_children) {
    assert_true(expect_exit(run_child(start_ignoring_children, NULL), 0, HANG_MS));
    local_server_pid(dir);
}

/* One that was only passing may have ended since it was seen. */
static bool has_mark_or_ended(void *arg) {
    const pid_t *pid = arg;
    return process_has_env(*pid, HFI_LOCAL_MARK) || !process_alive(*pid);
}

/* `holdfast run` relies on this: to a subreaper the server is a child, recognisable by its mark. */
static int start_as_subreaper(void *arg) {
    (void)arg;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (local_try(local_case_dir, LONG_MS, NULL) != HF_OK)
        return 2;
    pid_t pids[8];
    if (local_processes(local_case_dir, LOCAL_SERVER, pids, 8) != 1 ||
        process_parent(pids[0]) != getpid())
        return 3;
    size_t count = local_processes(local_case_dir, LOCAL_ANY, pids, 8);
    for (size_t i = 0; i < count; i++)
        if (!wait_until(has_mark_or_ended, &pids[i], HANG_MS))
            return 4;
    return count >= 2 && !process_has_env(getpid(), HFI_LOCAL_MARK) ? 0 : 5;
}

LOCAL_CASE(subreaper_recognises_the_server) {
    assert_true(expect_exit(run_child(start_as_subreaper, NULL), 0, HANG_MS));
    local_server_pid(dir); /* it outlives the subreaper, too */
}

/* ---- The terminal ---------------------------------------------------------------------------- */

struct terminal {
    int master;
    char path[64];
};

static int start_on_terminal(void *arg) {
    const struct terminal *terminal = arg;
    close(terminal->master);
    signal(SIGHUP, SIG_DFL); /* whatever started the test may ignore it */
    setsid();
    int fd = open(terminal->path, O_RDWR);
    if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) < 0)
        return 2;
    if (local_try(local_case_dir, LONG_MS, NULL) != HF_OK)
        return 3;
    for (;;)
        pause();
}

static bool has_server(void *arg) {
    return local_count(arg, LOCAL_SERVER) == 1 && local_count(arg, LOCAL_SHELL) >= 1;
}

LOCAL_CASE(server_survives_the_terminal) {
    struct terminal terminal = {.master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    assert_true(terminal.master >= 0);
    assert_int_equal(grantpt(terminal.master), 0);
    assert_int_equal(unlockpt(terminal.master), 0);
    assert_int_equal(ptsname_r(terminal.master, terminal.path, sizeof terminal.path), 0);
    pid_t host = run_child(start_on_terminal, &terminal);
    assert_true(wait_until(has_server, dir, HANG_MS));
    pid_t server = local_server_pid(dir), monitor = local_monitor_pid(dir);
    assert_int_equal(getsid(server), server);
    assert_int_equal(getsid(monitor), server);

    close(terminal.master); /* hang up: SIGHUP to all that belong to the terminal */
    assert_int_equal(wait_exit(host, HANG_MS), 128 + SIGHUP);
    local_ensure(dir, LONG_MS);
    assert_int_equal(local_server_pid(dir), server);
    assert_true(process_alive(monitor));
}

static int start_and_end(void *arg) {
    (void)arg;
    setpgid(0, 0);
    return local_try(local_case_dir, LONG_MS, NULL) == HF_OK ? 0 : 2;
}

LOCAL_CASE(server_survives_its_starter) {
    pid_t host = run_child(start_and_end, NULL);
    assert_true(expect_exit(host, 0, HANG_MS));
    pid_t server = local_server_pid(dir);
    assert_int_equal(kill(-host, SIGKILL), -1); /* nobody is left in the group */
    local_ensure(dir, LONG_MS);
    assert_int_equal(local_server_pid(dir), server);
}

RUN_CASES(local_setup, local_teardown)
