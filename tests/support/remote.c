/*
 * The driver's end of a program that is driven by lines: two pipes, and a table of answers by id.
 *
 * Nothing reads in the background: a client that asks for an answer reads lines until it has come and
 * files the others under their ids. So there is no thread here and no lock, and the test's own
 * thread owns it all. Commands are short and their answers too, so neither side can fill a pipe
 * while the other does not read.
 *
 * Invariants: ids count from 1; answers[id - 1] is NULL until the line has come and never changes
 * then.
 */
#include "support/remote.h"

#include "support/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct remote {
    pid_t pid; /* 0 once it is reaped */
    int in;    /* our end of its standard input */
    int out;   /* our end of its standard output */
    int sent;
    char **answers; /* [sent] */
    char *partial;  /* what came after the last complete line */
    size_t partial_len;
};

/* Runs in the child: nothing but exec may follow a fork in a program with threads. */
static void exec_program(const char *const *argv, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

struct remote *remote_start(const char *const *argv) {
    struct remote *remote = calloc(1, sizeof *remote);
    int in[2];
    int out[2];
    if (remote == NULL || pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        support_die("cannot start %s: %s", argv[0], strerror(errno));

    pid_t parent = getpid();
    remote->pid = fork();
    if (remote->pid < 0)
        support_die("cannot fork: %s", strerror(errno));
    if (remote->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        exec_program(argv, parent);
    }
    close(in[0]);
    close(out[1]);
    remote->in = in[1];
    remote->out = out[0];
    const char *answer = remote_call(remote, "ping");
    if (strcmp(answer, "ok") != 0)
        support_die("%s does not answer: %s", argv[0], answer);
    return remote;
}

static void reap(struct remote *remote) {
    if (remote->pid != 0)
        wait_exit(remote->pid, REMOTE_LIMIT_MS);
    remote->pid = 0;
}

pid_t remote_pid(const struct remote *remote) {
    return remote->pid;
}

void remote_kill(struct remote *remote) {
    if (remote->pid != 0)
        kill(remote->pid, SIGKILL);
    reap(remote);
}

void remote_free(struct remote *remote) {
    if (remote == NULL)
        return;
    close(remote->in);
    reap(remote);
    close(remote->out);
    for (int i = 0; i < remote->sent; i++)
        free(remote->answers[i]);
    free(remote->answers);
    free(remote->partial);
    free(remote);
}

static void write_all(int fd, const char *bytes, size_t len) {
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return; /* It has gone: its answer will be missing, and that tells. */
        bytes += n;
        len -= (size_t)n;
    }
}

static int vsend(struct remote *remote, const char *format, va_list args) {
    char command[4096];
    char line[4200];
    int len = vsnprintf(command, sizeof command, format, args);
    if (len < 0 || len >= (int)sizeof command)
        support_die("a command is too long");
    remote->answers =
        realloc(remote->answers, sizeof *remote->answers * (size_t)(remote->sent + 1));
    if (remote->answers == NULL)
        support_die("out of memory");
    remote->answers[remote->sent++] = NULL;

    len = snprintf(line, sizeof line, "%d %s\n", remote->sent, command);
    write_all(remote->in, line, (size_t)len);
    return remote->sent;
}

int remote_send(struct remote *remote, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int id = vsend(remote, format, args);
    va_end(args);
    return id;
}

/* Files one line "ID answer" under its id. */
static void file_answer(struct remote *remote, const char *line) {
    char *rest;
    long id = strtol(line, &rest, 10);
    if (id < 1 || id > remote->sent || *rest != ' ' || remote->answers[id - 1] != NULL)
        support_die("it said: %s", line);
    remote->answers[id - 1] = strdup(rest + 1);
}

/* Reads what is there and files its complete lines. False: it has closed its output. */
static bool read_answers(struct remote *remote) {
    char bytes[4096];
    ssize_t n = read(remote->out, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0)
        return false;
    remote->partial = realloc(remote->partial, remote->partial_len + (size_t)n + 1);
    if (remote->partial == NULL)
        support_die("out of memory");
    memcpy(remote->partial + remote->partial_len, bytes, (size_t)n);
    remote->partial_len += (size_t)n;
    remote->partial[remote->partial_len] = '\0';

    char *line = remote->partial;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        file_answer(remote, line);
    }
    remote->partial_len -= (size_t)(line - remote->partial);
    memmove(remote->partial, line, remote->partial_len + 1);
    return true;
}

const char *remote_answer_within(struct remote *remote, int id, int64_t limit_ms) {
    int64_t end = now_ms() + limit_ms;
    while (remote->answers[id - 1] == NULL) {
        int64_t left = end - now_ms();
        struct pollfd fd = {.fd = remote->out, .events = POLLIN};
        int ready = poll(&fd, 1, left > 0 ? (int)left : 0);
        if (ready == 0)
            return "hung";
        if (ready > 0 && !read_answers(remote))
            return "gone";
    }
    return remote->answers[id - 1];
}

const char *remote_answer(struct remote *remote, int id) {
    return remote_answer_within(remote, id, REMOTE_LIMIT_MS);
}

bool remote_answered(struct remote *remote, int id) {
    remote_answer_within(remote, id, 0);
    return remote->answers[id - 1] != NULL;
}

const char *remote_call(struct remote *remote, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int id = vsend(remote, format, args);
    va_end(args);
    return remote_answer(remote, id);
}
