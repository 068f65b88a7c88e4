/*
 * The driver's end of a JVM: two pipes, and a table of answers by command id.
 *
 * Nothing reads in the background: whoever asks for an answer reads lines until it has come and
 * files the others under their ids. So there is no thread here and no lock, and the test's own
 * thread owns it all. Commands are short and their answers too, so neither side can fill a pipe
 * while the other does not read.
 *
 * Invariants: ids count from 1; answers[id - 1] is NULL until the line has come and never changes
 * then.
 */
#include "java.h"

#include "support/wait.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

struct java {
    pid_t pid; /* 0 once it is reaped */
    int in;    /* our end of its standard input */
    int out;   /* our end of its standard output */
    int sent;
    char **answers; /* [sent] */
    char *partial;  /* what came after the last complete line */
    size_t partial_len;
};

/* Runs in the child: nothing but exec may follow a fork in a program with threads. */
static void exec_jvm(const char *classpath, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    /* Small and quick to start: it shares two cores with everything else that is being tested. */
    execlp("java", "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m",
           "-Xshare:auto", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", classpath,
           "holdfast.interop.Main", (char *)NULL);
    _exit(127);
}

struct java *java_start(const char *dir) {
    struct java *java = calloc(1, sizeof *java);
    int in[2];
    int out[2];
    char classpath[4096];
    int len = snprintf(classpath, sizeof classpath, "%s/interop.jar:%s/lib/*", dir, dir);
    if (java == NULL || len >= (int)sizeof classpath || pipe2(in, O_CLOEXEC) != 0 ||
        pipe2(out, O_CLOEXEC) != 0)
        support_die("cannot start a JVM: %s", strerror(errno));

    pid_t parent = getpid();
    java->pid = fork();
    if (java->pid < 0)
        support_die("cannot fork: %s", strerror(errno));
    if (java->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        exec_jvm(classpath, parent);
    }
    close(in[0]);
    close(out[1]);
    java->in = in[1];
    java->out = out[0];
    const char *answer = java_call(java, "ping");
    if (strcmp(answer, "ok") != 0)
        support_die("the JVM does not answer: %s", answer);
    return java;
}

static void reap(struct java *java) {
    if (java->pid != 0)
        wait_exit(java->pid, JAVA_LIMIT_MS);
    java->pid = 0;
}

void java_kill(struct java *java) {
    if (java->pid != 0)
        kill(java->pid, SIGKILL);
    reap(java);
}

void java_free(struct java *java) {
    if (java == NULL)
        return;
    close(java->in);
    reap(java);
    close(java->out);
    for (int i = 0; i < java->sent; i++)
        free(java->answers[i]);
    free(java->answers);
    free(java->partial);
    free(java);
}

static void write_all(int fd, const char *bytes, size_t len) {
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return; /* The JVM has gone: its answer will be missing, and that tells. */
        bytes += n;
        len -= (size_t)n;
    }
}

static int vsend(struct java *java, const char *format, va_list args) {
    char command[4096];
    char line[4200];
    int len = vsnprintf(command, sizeof command, format, args);
    if (len < 0 || len >= (int)sizeof command)
        support_die("a command for the JVM is too long");
    java->answers = realloc(java->answers, sizeof *java->answers * (size_t)(java->sent + 1));
    if (java->answers == NULL)
        support_die("out of memory");
    java->answers[java->sent++] = NULL;

    len = snprintf(line, sizeof line, "%d %s\n", java->sent, command);
    write_all(java->in, line, (size_t)len);
    return java->sent;
}

int java_send(struct java *java, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int id = vsend(java, format, args);
    va_end(args);
    return id;
}

/* Files one line "ID answer" under its id. */
static void file_answer(struct java *java, const char *line) {
    char *rest;
    long id = strtol(line, &rest, 10);
    if (id < 1 || id > java->sent || *rest != ' ' || java->answers[id - 1] != NULL)
        support_die("the JVM said: %s", line);
    java->answers[id - 1] = strdup(rest + 1);
}

/* Reads what is there and files its complete lines. False: the JVM has closed its output. */
static bool read_answers(struct java *java) {
    char bytes[4096];
    ssize_t n = read(java->out, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0)
        return false;
    java->partial = realloc(java->partial, java->partial_len + (size_t)n + 1);
    if (java->partial == NULL)
        support_die("out of memory");
    memcpy(java->partial + java->partial_len, bytes, (size_t)n);
    java->partial_len += (size_t)n;
    java->partial[java->partial_len] = '\0';

    char *line = java->partial;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        file_answer(java, line);
    }
    java->partial_len -= (size_t)(line - java->partial);
    memmove(java->partial, line, java->partial_len + 1);
    return true;
}

const char *java_answer_within(struct java *java, int id, int64_t limit_ms) {
    int64_t end = now_ms() + limit_ms;
    while (java->answers[id - 1] == NULL) {
        int64_t left = end - now_ms();
        struct pollfd fd = {.fd = java->out, .events = POLLIN};
        int ready = poll(&fd, 1, left > 0 ? (int)left : 0);
        if (ready == 0)
            return "hung";
        if (ready > 0 && !read_answers(java))
            return "gone";
    }
    return java->answers[id - 1];
}

const char *java_answer(struct java *java, int id) {
    return java_answer_within(java, id, JAVA_LIMIT_MS);
}

bool java_answered(struct java *java, int id) {
    java_answer_within(java, id, 0);
    return java->answers[id - 1] != NULL;
}

const char *java_call(struct java *java, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int id = vsend(java, format, args);
    va_end(args);
    return java_answer(java, id);
}

char *java_word(const char *text) {
    char *word = malloc(strlen(text) * 3 + 1);
    if (word == NULL)
        support_die("out of memory");
    char *to = word;
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (isalnum(c) || c == '-' || c == '_' || c == '.')
            *to++ = (char)c;
        else
            to += sprintf(to, "%%%02X", c);
    }
    *to = '\0';
    return word;
}
