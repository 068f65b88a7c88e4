/*
 * Waiting, children, shared memory and temporary directories for tests; see wait.h, the manual.
 *
 * Called by tests and by the rest of the test support, on any thread. There is no state of its own:
 * children belong to who forked them, directories to the supervisor (supervisor.c), and a barrier lives in
 * memory that its users share.
 *
 * Invariants: the barrier is two words and a futex, so no participant ever holds a lock that could
 * die with it. The clock is CLOCK_BOOTTIME everywhere.
 */
#include "support/wait.h"

#include "support/supervisor.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void support_die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "test support: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}

char *support_escape(const char *text, const char *prefix) {
    char *out = calloc(1, strlen(text) * (strlen(prefix) + 2) + 1);
    if (out == NULL)
        support_die("out of memory");
    char *end = out;
    for (const char *s = text; *s != '\0'; s++) {
        if (isalnum((unsigned char)*s))
            *end++ = *s;
        else
            end += sprintf(end, "%s%02x", prefix, (unsigned char)*s);
    }
    return out;
}

/* ---- Time ------------------------------------------------------------------------------------ */

int64_t now_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

char *text_of(const char *format, ...) {
    char *text;
    va_list args;
    va_start(args, format);
    int len = vasprintf(&text, format, args);
    va_end(args);
    if (len < 0)
        support_die("no memory for a text");
    return text;
}

pthread_t started(void *(*body)(void *), void *arg) {
    pthread_t thread;
    int err = pthread_create(&thread, NULL, body, arg);
    if (err != 0)
        support_die("no thread: %s", strerror(err));
    return thread;
}

void *zeroed(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL)
        support_die("no memory for %zu times %zu bytes", count, size);
    return memory;
}

void sleep_ms(int64_t duration_ms) {
    /* One more than asked, since now_ms() rounds down. */
    int64_t until_ms = now_ms() + duration_ms + (duration_ms > 0);
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};
    while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

void linger(int64_t duration_ms) {
    sleep_ms(duration_ms); /* as wait.h says */
}

bool wait_a_moment(void) {
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL); /* the one place that polls; what is waited for has no descriptor */
    return true;
}

bool wait_until(wait_condition *condition, void *arg, int64_t limit_ms) {
    return WAIT_FOR(condition(arg), limit_ms);
}

/* ---- Child processes ------------------------------------------------------------------------- */

pid_t run_child(child_body *body, void *arg) {
    fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        support_die("fork: %s", strerror(errno));
    if (pid > 0)
        return pid;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(125); /* it ended before the signal was set */
    int status = body(arg);
    fflush(NULL);
    _exit(status);
}

int child_waits_for_ever(void *unused) {
    (void)unused;
    while (pause() < 0)
        continue;
    return 0;
}

struct awaited_child {
    pid_t pid;
    int status;
};

static bool has_ended(void *arg) {
    struct awaited_child *child = arg;
    pid_t got = waitpid(child->pid, &child->status, WNOHANG);
    if (got < 0 && errno != EINTR)
        support_die("waiting for %d, which is no child: %s", (int)child->pid, strerror(errno));
    return got == child->pid;
}

int wait_exit(pid_t pid, int64_t limit_ms) {
    struct awaited_child child = {.pid = pid};
    if (!wait_until(has_ended, &child, limit_ms)) {
        kill_child(pid);
        return -1;
    }
    if (WIFSIGNALED(child.status))
        return 128 + WTERMSIG(child.status);
    return WEXITSTATUS(child.status);
}

bool expect_exit(pid_t pid, int status, int64_t limit_ms) {
    int got = wait_exit(pid, limit_ms);
    if (got == status)
        return true;
    if (got == -1)
        fprintf(stderr, "child %d was still running after %lld ms\n", (int)pid,
                (long long)limit_ms);
    else
        fprintf(stderr, "child %d ended with %d instead of %d\n", (int)pid, got, status);
    return false;
}

void kill_child(pid_t pid) {
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0) {
        if (errno != EINTR)
            support_die("killed %d, which is no child: %s", (int)pid, strerror(errno));
    }
}

char process_state(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return '\0';
    char line[512];
    size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = '\0';

    /* "pid (name) state ...", where the name may hold anything, parentheses included. */
    const char *after_name = strrchr(line, ')');
    return after_name != NULL && after_name[1] == ' ' ? after_name[2] : '\0';
}

bool process_alive(pid_t pid) {
    char state = process_state(pid);
    return state != '\0' && state != 'Z' && state != 'X';
}

static bool has_stopped(void *arg) {
    const pid_t *pid = arg;
    return process_state(*pid) == 'T';
}

void stop_process(pid_t pid) {
    if (kill(pid, SIGSTOP) < 0 || !wait_until(has_stopped, &pid, 30000))
        support_die("process %d cannot be stopped", (int)pid);
}

/* ---- Shared between processes ---------------------------------------------------------------- */

void *shared_new(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        support_die("mmap: %s", strerror(errno));
    return memory;
}

void shared_free(void *memory, size_t size) {
    if (memory != NULL)
        munmap(memory, size);
}

struct barrier {
    unsigned parties;
    atomic_uint arrived; /* in this round */
    atomic_uint round;   /* the futex */
};

struct barrier *barrier_new(unsigned parties) {
    struct barrier *barrier = shared_new(sizeof *barrier);
    barrier->parties = parties;
    return barrier;
}

bool barrier_wait(struct barrier *barrier, int64_t limit_ms) {
    int64_t end_ms = now_ms() + limit_ms;
    unsigned round = atomic_load(&barrier->round);
    if (atomic_fetch_add(&barrier->arrived, 1) + 1 == barrier->parties) {
        atomic_store(&barrier->arrived, 0); /* before the others are let into the next round */
        atomic_fetch_add(&barrier->round, 1);
        syscall(SYS_futex, &barrier->round, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        return true;
    }
    while (atomic_load(&barrier->round) == round) {
        int64_t left_ms = end_ms - now_ms();
        if (left_ms <= 0)
            return false;
        struct timespec left = {.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000};
        syscall(SYS_futex, &barrier->round, FUTEX_WAIT, round, &left, NULL, 0);
    }
    return true;
}

void barrier_free(struct barrier *barrier) {
    shared_free(barrier, sizeof *barrier);
}

/* ---- Temporary directories ------------------------------------------------------------------- */

char *temp_dir(void) {
    const char *parent = getenv("TMPDIR");
    /* A Unix socket's path has room for 107 characters; leave 32 of them for names inside. */
    if (parent == NULL || parent[0] != '/' || strlen(parent) > 60)
        parent = "/tmp";
    char *path = NULL;
    if (asprintf(&path, "%s/hf-test-XXXXXX", parent) < 0 || mkdtemp(path) == NULL)
        support_die("mkdtemp under %s: %s", parent, strerror(errno));
    supervisor_adopt_dir(path);
    return path;
}

void temp_dir_remove(const char *path) {
    supervisor_remove_dir(path);
}
