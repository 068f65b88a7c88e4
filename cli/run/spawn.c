/* The command's process: its environment, and the steps between fork and exec.
 *
 * Called by the holder, which is multithreaded by then. So the child makes only system calls, and
 * all memory is allocated before the fork. The child reports a failed exec through a close-on-exec
 * pipe; end of file means that exec succeeded. */
#include "run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436 /* missing in older C libraries; the kernel may still have it */
#endif

#define VARIABLES 5

static bool is_ours(const char *entry, const char *prefix) {
    static const char *const names[] = {"NAME=", "OWNER=", "TOKEN=", "KIND=", "DEADLINE="};
    size_t len = strlen(prefix);
    if (strncmp(entry, prefix, len) != 0)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strncmp(entry + len, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

void child_environment_free(char **envp) {
    for (char **entry = envp; entry != NULL && *entry != NULL; entry++)
        free(*entry);
    free(envp);
}

char **child_environment(const struct run *run, const char *owner, int64_t token) {
    const char *prefix = run->options->env_prefix;
    size_t len = 0, inherited = 0;
    while (environ[inherited] != NULL)
        inherited++;
    char **envp = calloc(inherited + VARIABLES + 1, sizeof *envp);
    if (envp == NULL)
        return NULL;

    bool whole = true;
    for (size_t i = 0; i < inherited && whole; i++) {
        /* An outer run's variables must not be taken for this lock's. */
        if (!is_ours(environ[i], prefix))
            whole = (envp[len++] = strdup(environ[i])) != NULL;
    }
    whole = whole && asprintf(&envp[len++], "%sNAME=%s", prefix, run->options->name) >= 0 &&
            asprintf(&envp[len++], "%sOWNER=%s", prefix, owner) >= 0 &&
            asprintf(&envp[len++], "%sKIND=%s", prefix, run->options->kind->name) >= 0 &&
            asprintf(&envp[len++], "%sDEADLINE=%" PRId64, prefix,
                     atomic_load(&run->shared->deadline_ms)) >= 0 &&
            (token == 0 || asprintf(&envp[len++], "%sTOKEN=%" PRId64, prefix, token) >= 0);
    if (whole)
        return envp;
    envp[len - 1] = NULL; /* asprintf leaves it undefined on failure */
    child_environment_free(envp);
    return NULL;
}

static int settle_group(const struct run *run, bool give_terminal) {
    if (setpgid(0, run->own_group ? 0 : run->guard_group) != 0)
        return -1;
    if (run->own_group)
        atomic_store(&run->shared->group, getpgrp());
    if (give_terminal && terminal_is_ours(&run->terminal))
        terminal_give(&run->terminal, getpgrp());
    return 0;
}

static int settle_descriptors(const struct run_options *options, int *report) {
    if (options->no_stdin) {
        int null = open("/dev/null", O_RDONLY);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0)
            return -1;
        if (null != STDIN_FILENO)
            close(null);
    }
    if (!options->close_fds)
        return 0;
    if (*report != 3 && dup3(*report, 3, O_CLOEXEC) < 0)
        return -1;
    *report = 3;
    return (int)syscall(SYS_close_range, 4, ~0U, 0);
}

static void settle_signals(const struct run *run) {
    if (run->ignored_children) {
        struct sigaction ignore = {.sa_handler = SIG_IGN};
        sigaction(SIGCHLD, &ignore, NULL);
    }
    sigprocmask(SIG_SETMASK, &run->original_mask, NULL);
}

/* Execs the command, or reports why not. Only system calls from here on. */
static _Noreturn void become_command(const struct run *run, char *const envp[], bool give_terminal,
                                     pid_t holder, int report) {
    const struct run_options *options = run->options;
    if (options->on_lost == ON_LOST_KILL) {
        /* If guard and holder are killed at once, the kernel kills the command. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != holder)
            _exit(STATUS_INTERNAL);
    }
    /* The child stores its own pid, so it never runs while its pid is unknown to the guard. */
    atomic_store(&run->shared->command, getpid());
    if (settle_group(run, give_terminal) == 0 && settle_descriptors(options, &report) == 0) {
        settle_signals(run);
        execvpe(options->argv[0], options->argv, envp);
    }
    int reason = errno;
    terminal_take(&run->terminal, getpgrp(), false);
    while (write(report, &reason, sizeof reason) < 0 && errno == EINTR) {
    }
    _exit(STATUS_NOT_RUNNABLE);
}

pid_t child_start(const struct run *run, char *const envp[], bool give_terminal) {
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0)
        return -errno;
    pid_t holder = getpid();
    pid_t child = fork();
    if (child < 0) {
        int reason = errno;
        close(report[0]);
        close(report[1]);
        return -reason;
    }
    if (child == 0)
        become_command(run, envp, give_terminal, holder, report[1]);

    close(report[1]);
    int reason = 0;
    ssize_t n;
    while ((n = read(report[0], &reason, sizeof reason)) < 0 && errno == EINTR) {
    }
    close(report[0]);
    return n == (ssize_t)sizeof reason ? -reason : child;
}
