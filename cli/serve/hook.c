/* The command of `serve --on-event`: run by the shell for each event that needs attention, with the
 * event as a line of JSON on its standard input, and HOLDFAST_EVENT and HOLDFAST_NAME. Nothing of an
 * event becomes part of the command. Its environment has none of our settings, so no password.
 *
 * At most RUNNING_MAX run at once, and STARTS_MAX start in a burst, then one a second. Events that
 * wait behind QUEUE_MAX others are dropped, and counted in a message. A command that takes too
 * long is killed with its process group.
 *
 * Everything runs on the thread of loop.c. Other threads exist when it forks, so the child makes
 * only system calls. */
#include "serve/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define RUNNING_MAX 4
#define QUEUE_MAX 256
#define STARTS_MAX 16
#define START_EVERY_MS 1000

/* An event, until its command has ended. */
struct job {
    char word[32];
    char *name; /* "HOLDFAST_NAME=..."; NULL: none */
    char *line;
    pid_t pid; /* 0: it waits */
    int64_t limit_ms;
    bool killed;
};

struct hook {
    const char *command;
    int64_t limit_ms;
    sigset_t original_mask;
    int signals;        /* readable after a SIGCHLD */
    char **environment; /* has room for ours, at its end */
    size_t inherited;
    struct job queue[QUEUE_MAX], running[RUNNING_MAX];
    size_t queue_begin, queue_len;
    unsigned starts;   /* how many may start now */
    int64_t starts_ms; /* as of then */
    uint64_t dropped;  /* since the last message */
};

/* ---- Environment ----------------------------------------------------------------------------- */

/* Settings of ours and of clients like ours may contain passwords, also in urls. */
static bool may_inherit(const char *entry) {
    static const char *const ours[] = {"HOLDFAST_", "REDIS", "VALKEY"};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (strncmp(entry, ours[i], strlen(ours[i])) == 0)
            return false;
    return true;
}

static bool inherit(struct hook *hook) {
    size_t len = 0;
    while (environ[len] != NULL)
        len++;
    hook->environment = calloc(len + 3, sizeof *hook->environment);
    for (size_t i = 0; hook->environment != NULL && i < len; i++)
        if (may_inherit(environ[i]))
            hook->environment[hook->inherited++] = environ[i];
    return hook->environment != NULL;
}

struct hook *hook_new(const char *command, int64_t limit_ms) {
    struct hook *hook = calloc(1, sizeof *hook);
    sigset_t children;
    if (hook == NULL || !inherit(hook)) {
        free(hook);
        say(LEVEL_ERROR, "out of memory");
        return NULL;
    }
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &usual, NULL); /* ignored, it would leave no exit status */
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, &hook->original_mask);
    hook->command = command;
    hook->limit_ms = limit_ms;
    hook->starts = STARTS_MAX;
    hook->signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (hook->signals >= 0)
        return hook;
    say(LEVEL_ERROR, "cannot wait for signals: %s", strerror(errno));
    hook_free(hook);
    return NULL;
}

int hook_fd(const struct hook *hook) {
    return hook != NULL ? hook->signals : -1;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

static void job_clear(struct job *job) {
    free(job->name);
    free(job->line);
    *job = (struct job){0};
}

void hook_free(struct hook *hook) {
    if (hook == NULL)
        return;
    for (size_t i = 0; i < RUNNING_MAX; i++) {
        if (hook->running[i].pid > 0)
            kill(-hook->running[i].pid, SIGTERM);
        job_clear(&hook->running[i]);
    }
    for (size_t i = 0; i < QUEUE_MAX; i++)
        job_clear(&hook->queue[i]);
    if (hook->signals >= 0)
        close(hook->signals);
    free(hook->environment);
    free(hook);
}

/* A deadlock is one event for each lock in it: only the first has a count. */
static bool needs_attention(const struct history_event *event) {
    if (strcmp(event->event, "deadlock") == 0)
        return event->count > 0;
    return strcmp(event->event, "lost") == 0 || strcmp(event->event, "broken") == 0 ||
           strcmp(event->event, "long_wait") == 0;
}

/* NULL: the event has no name that an environment can have, or out of memory. */
static char *name_variable(const struct history_event *event) {
    char *text = NULL;
    if (event->name == NULL || memchr(event->name, '\0', event->name_len) != NULL ||
        event->name_len > HISTORY_NAME_MAX)
        return NULL;
    if (asprintf(&text, "HOLDFAST_NAME=%.*s", (int)event->name_len, event->name) < 0)
        return NULL;
    return text;
}

void hook_push(struct hook *hook, const struct history_event *event, const char *line) {
    if (hook == NULL || !needs_attention(event))
        return;
    char *copy = hook->queue_len < QUEUE_MAX ? strdup(line) : NULL;
    if (copy == NULL) {
        if (hook->dropped++ == 0)
            say(LEVEL_ERROR, "--on-event is too slow: events are dropped");
        return;
    }
    struct job *job = &hook->queue[(hook->queue_begin + hook->queue_len++) % QUEUE_MAX];
    *job = (struct job){.line = copy, .name = name_variable(event)};
    snprintf(job->word, sizeof job->word, "HOLDFAST_EVENT=%s", event->event);
}

/* ---- Starting -------------------------------------------------------------------------------- */

/* The line as a file without a name: the command may read it late, or not at all. */
static int input_of(const struct job *job) {
    int fd = memfd_create("event", MFD_CLOEXEC);
    size_t len = strlen(job->line);
    if (fd < 0)
        return -1;
    if (write(fd, job->line, len) == (ssize_t)len && write(fd, "\n", 1) == 1 &&
        lseek(fd, 0, SEEK_SET) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Only system calls from here on. */
static _Noreturn void become_command(const struct hook *hook, char *const argv[], pid_t parent,
                                     int input) {
    struct sigaction usual = {.sa_handler = SIG_DFL};
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || setpgid(0, 0) != 0 || dup2(input, STDIN_FILENO) < 0 ||
        dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        _exit(STATUS_NOT_RUNNABLE);
    syscall(SYS_close_range, 3, ~0U, 0);
    sigaction(SIGPIPE, &usual, NULL);
    sigaction(SIGTTIN, &usual, NULL);
    sigprocmask(SIG_SETMASK, &hook->original_mask, NULL);
    execve(_PATH_BSHELL, argv, hook->environment);
    _exit(STATUS_NOT_RUNNABLE);
}

/* False: it cannot be started. */
static bool start(struct hook *hook, struct job *job) {
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)hook->command, NULL};
    int input = input_of(job);
    hook->environment[hook->inherited] = job->word;
    hook->environment[hook->inherited + 1] = job->name;
    pid_t parent = getpid();
    job->pid = input >= 0 ? fork() : -1;
    if (job->pid == 0)
        become_command(hook, argv, parent, input);
    int reason = errno;
    if (input >= 0)
        close(input);
    if (job->pid > 0) {
        setpgid(job->pid, job->pid); /* also here: the child may do it only after we kill it */
        job->limit_ms = now_ms() + hook->limit_ms;
        return true;
    }
    say(LEVEL_ERROR, "cannot run --on-event: %s", strerror(reason));
    return false;
}

static bool may_start(struct hook *hook, int64_t now) {
    int64_t more = (now - hook->starts_ms) / START_EVERY_MS;
    if (more > 0) {
        hook->starts_ms = now;
        hook->starts =
            more > STARTS_MAX - hook->starts ? STARTS_MAX : hook->starts + (unsigned)more;
    }
    return hook->starts > 0;
}

static struct job *free_place(struct hook *hook) {
    for (size_t i = 0; i < RUNNING_MAX; i++)
        if (hook->running[i].pid == 0)
            return &hook->running[i];
    return NULL;
}

static void start_next(struct hook *hook, struct job *place) {
    struct job *first = &hook->queue[hook->queue_begin];
    *place = *first;
    *first = (struct job){0};
    hook->queue_begin = (hook->queue_begin + 1) % QUEUE_MAX;
    hook->starts--;
    if (!start(hook, place))
        job_clear(place);
    if (--hook->queue_len == 0 && hook->dropped > 0) {
        say(LEVEL_ERROR, "--on-event: %llu events were dropped", (unsigned long long)hook->dropped);
        hook->dropped = 0;
    }
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static void say_how_it_ended(const struct job *job, int status) {
    const char *word = strchr(job->word, '=') + 1;
    const struct subject subject = {.lock = job->name != NULL ? strchr(job->name, '=') + 1 : NULL};
    if (job->killed)
        say_of(LEVEL_ERROR, &subject, "--on-event, event %s: killed, as it took too long", word);
    else if (WIFSIGNALED(status))
        say_of(LEVEL_ERROR, &subject, "--on-event, event %s: ended by signal %d", word,
               WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        say_of(LEVEL_ERROR, &subject, "--on-event, event %s: exit status %d", word,
               WEXITSTATUS(status));
}

static void end_if_over(struct job *job, int64_t now) {
    int status = 0;
    if (job->pid == 0)
        return;
    if (waitpid(job->pid, &status, WNOHANG) != 0) {
        say_how_it_ended(job, status);
        job_clear(job);
    } else if (!job->killed && now >= job->limit_ms) {
        job->killed = true;
        kill(-job->pid, SIGKILL);
    }
}

/* How long until a command exceeds its limit; -1: none runs. */
static int64_t limit_left_ms(const struct hook *hook, int64_t now) {
    int64_t least = -1;
    for (size_t i = 0; i < RUNNING_MAX; i++) {
        const struct job *job = &hook->running[i];
        int64_t left = job->limit_ms > now ? job->limit_ms - now : 0;
        if (job->pid != 0 && !job->killed && (least < 0 || left < least))
            least = left;
    }
    return least;
}

int hook_run(struct hook *hook) {
    struct signalfd_siginfo info;
    struct job *place;
    if (hook == NULL)
        return -1;
    int64_t now = now_ms();
    while (read(hook->signals, &info, sizeof info) == (ssize_t)sizeof info) {
    }
    for (size_t i = 0; i < RUNNING_MAX; i++)
        end_if_over(&hook->running[i], now);
    while (hook->queue_len > 0 && (place = free_place(hook)) != NULL && may_start(hook, now))
        start_next(hook, place);
    int64_t left = limit_left_ms(hook, now);
    bool waits_for_start = hook->queue_len > 0 && free_place(hook) != NULL;
    return (int)(waits_for_start && (left < 0 || left > START_EVERY_MS) ? START_EVERY_MS : left);
}
