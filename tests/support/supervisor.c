/*
 * The supervisor: a process beside the test program that starts its servers and cleans up after it.
 *
 * Why a process: a server must not outlive its test even when that is killed with SIGKILL, and must
 * not die with the thread that happened to start it (which is when the kernel's parent-death signal
 * fires). The supervisor is single-threaded and detached, so a group or tree kill of the test does not
 * reach it. It watches the test program through a pidfd and through its end of a socket; when
 * either ends, it kills the servers, removes the directories and exits. If it is killed itself, the
 * parent-death signal kills its servers.
 *
 * Called by server.c and wait.c. The front half (supervisor_*) runs in the test program, on any thread,
 * and keeps one mutex around a request and its answer. The back half runs in the supervisor. It was
 * forked from a program that may have threads, so it uses async-signal-safe calls and static memory
 * only.
 *
 * Invariants: a pid in `children` was forked by the supervisor and not yet reaped, so it names that
 * process and no other. Every request is answered by exactly one int64_t.
 */
#include "support/supervisor.h"

#include "support/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CHILDREN = 256, MAX_ARGS = 32 };

enum supervisor_op { OP_SPAWN, OP_RUNNING, OP_SIGNAL, OP_END, OP_ADOPT_DIR, OP_REMOVE_DIR };

/* `text` holds strings with a NUL behind each: log and argv for OP_SPAWN, or a directory. */
struct supervisor_request {
    enum supervisor_op op;
    pid_t pid;
    int signal_number;
    int64_t timeout_ms;
    size_t text_length;
    char text[PATH_MAX];
};

/* ---- In the supervisor --------------------------------------------------------------------------- */

static pid_t children[MAX_CHILDREN];      /* 0: free */
static char dirs[MAX_CHILDREN][PATH_MAX]; /* "": free */

static bool reap(pid_t *child, int flags) {
    pid_t got;
    while ((got = waitpid(*child, NULL, flags)) < 0 && errno == EINTR)
        continue;
    if (got == 0)
        return false;
    *child = 0;
    return true;
}

static pid_t *find_child(pid_t pid) {
    for (size_t i = 0; i < MAX_CHILDREN; i++)
        if (children[i] == pid)
            return &children[i];
    return NULL;
}

static void become_program(struct supervisor_request *request, pid_t supervisor) {
    char *argv[MAX_ARGS + 1];
    size_t argc = 0;
    char *log = request->text;
    char *end = request->text + request->text_length;
    for (char *s = log + strlen(log) + 1; s < end && argc < MAX_ARGS; s += strlen(s) + 1)
        argv[argc++] = s;
    argv[argc] = NULL;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argv[0] == NULL || getppid() != supervisor)
        _exit(127);

    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out >= 0) {
        dup2(out, STDOUT_FILENO);
        dup2(out, STDERR_FILENO);
    }
    execvp(argv[0], argv);
    static const char complaint[] = "the program cannot be started\n";
    if (write(STDERR_FILENO, complaint, sizeof complaint - 1) < 0)
        _exit(127);
    _exit(127);
}

static int64_t spawn(struct supervisor_request *request) {
    pid_t *child = find_child(0);
    if (child == NULL)
        return -EMFILE;
    pid_t supervisor = getpid();
    pid_t pid = fork();
    if (pid == 0)
        become_program(request, supervisor);
    if (pid < 0)
        return -errno;
    *child = pid;
    return pid;
}

static void end_child(pid_t *child, int signal_number, int64_t timeout_ms) {
    kill(*child, signal_number);
    kill(*child, SIGCONT);
    int64_t limit_ms = now_ms() + timeout_ms;
    while (signal_number != SIGKILL && now_ms() < limit_ms) {
        if (reap(child, WNOHANG))
            return;
        (void)wait_a_moment();
    }
    kill(*child, SIGKILL);
    reap(child, 0);
}

static void remove_dir(char *dir) {
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", dir, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        reap(&pid, 0);
    dir[0] = '\0';
}

static int64_t adopt_dir(const char *path) {
    for (size_t i = 0; i < MAX_CHILDREN; i++) {
        if (dirs[i][0] == '\0') {
            strcpy(dirs[i], path); /* the request's text is no longer than this */
            return 0;
        }
    }
    return -EMFILE;
}

static int64_t forget_dir(const char *path) {
    for (size_t i = 0; i < MAX_CHILDREN; i++) {
        if (strcmp(dirs[i], path) == 0) {
            remove_dir(dirs[i]);
            return 0;
        }
    }
    return -ENOENT;
}

static int64_t serve(struct supervisor_request *request) {
    pid_t *child = request->pid > 0 ? find_child(request->pid) : NULL;
    switch (request->op) {
    case OP_SPAWN:
        return spawn(request);
    case OP_RUNNING:
        return child != NULL && !reap(child, WNOHANG);
    case OP_SIGNAL:
        return child != NULL && kill(*child, request->signal_number) == 0 ? 0 : -ESRCH;
    case OP_END:
        if (child != NULL)
            end_child(child, request->signal_number, request->timeout_ms);
        return 0;
    case OP_ADOPT_DIR:
        return adopt_dir(request->text);
    case OP_REMOVE_DIR:
        return forget_dir(request->text);
    }
    return -EINVAL;
}

static void watch(int sock, int owner_pidfd, pid_t owner) {
    static struct supervisor_request request;
    struct pollfd fds[] = {{.fd = sock, .events = POLLIN}, {.fd = owner_pidfd, .events = POLLIN}};
    for (;;) {
        /* Without pidfds (old kernels) forked children of the owner may keep the socket open, so
         * ask. */
        if (poll(fds, 2, owner_pidfd < 0 ? 100 : -1) < 0 && errno != EINTR)
            return;
        if (owner_pidfd < 0 ? kill(owner, 0) < 0 && errno == ESRCH : fds[1].revents != 0)
            return;
        if (fds[0].revents == 0)
            continue;
        ssize_t n = recv(sock, &request, sizeof request, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        int64_t answer = serve(&request);
        if (send(sock, &answer, sizeof answer, MSG_NOSIGNAL) < 0)
            return;
    }
}

/* Nothing of the test program may stay open here: a copied descriptor would hide the end of a
 * connection. */
static void keep_only(int sock, int owner_pidfd) {
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    long limit = sysconf(_SC_OPEN_MAX);
    for (int fd = 3; fd < (limit < 0 || limit > 4096 ? 4096 : limit); fd++)
        if (fd != sock && fd != owner_pidfd)
            close(fd);
}

static void plain_signals(void) {
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL); /* SIGKILL, SIGSTOP and the C library's own refuse, and may */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void supervisor_main(int sock, int owner_pidfd, pid_t owner) {
    setsid();
    plain_signals();
    keep_only(sock, owner_pidfd);
    watch(sock, owner_pidfd, owner);

    for (size_t i = 0; i < MAX_CHILDREN; i++)
        if (children[i] != 0)
            end_child(&children[i], SIGKILL, 0);
    for (size_t i = 0; i < MAX_CHILDREN; i++)
        if (dirs[i][0] != '\0')
            remove_dir(dirs[i]);
    _exit(0);
}

/* ---- In the test program --------------------------------------------------------------------- */

static pthread_mutex_t front_mutex = PTHREAD_MUTEX_INITIALIZER;
static int front_sock = -1;
static pid_t front_owner; /* whose supervisor front_sock leads to; a forked child needs its own */

/* The program ends when its supervisor has cleaned up, so a run that is over has left nothing. */
static void await_supervisor(void) {
    if (front_sock < 0 || front_owner != getpid())
        return;
    shutdown(front_sock, SHUT_WR);
    char byte;
    while (recv(front_sock, &byte, 1, 0) < 0 && errno == EINTR)
        continue;
    close(front_sock);
    front_sock = -1;
}

static void start_supervisor(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        support_die("socketpair: %s", strerror(errno));
    pid_t owner = getpid();
    int owner_pidfd = (int)syscall(SYS_pidfd_open, owner, 0);

    /* Forked twice: the supervisor is nobody's child, so a test that counts its children does not meet
     * it. */
    pid_t middle = fork();
    if (middle == 0) {
        if (fork() == 0)
            supervisor_main(pair[1], owner_pidfd, owner);
        _exit(0);
    }
    if (middle < 0)
        support_die("fork: %s", strerror(errno));
    while (waitpid(middle, NULL, 0) < 0 && errno == EINTR)
        continue;

    close(pair[1]);
    if (owner_pidfd >= 0)
        close(owner_pidfd);
    if (front_sock < 0)
        atexit(await_supervisor);
    else
        close(front_sock); /* the parent's */
    front_sock = pair[0];
    front_owner = owner;
}

static int64_t ask(const struct supervisor_request *request) {
    pthread_mutex_lock(&front_mutex);
    if (front_owner != getpid())
        start_supervisor();
    int64_t answer;
    ssize_t n = send(front_sock, request, sizeof *request, MSG_NOSIGNAL);
    while (n >= 0 && (n = recv(front_sock, &answer, sizeof answer, 0)) < 0 && errno == EINTR)
        n = 0;
    pthread_mutex_unlock(&front_mutex);
    if (n != sizeof answer)
        support_die("the supervisor of this test program has gone");
    return answer;
}

static void add_text(struct supervisor_request *request, const char *text) {
    size_t size = strlen(text) + 1;
    if (request->text_length + size > sizeof request->text)
        support_die("too long for the supervisor: %s", text);
    memcpy(request->text + request->text_length, text, size);
    request->text_length += size;
}

pid_t supervisor_spawn(const char *log, const char *const *argv) {
    struct supervisor_request request = {.op = OP_SPAWN};
    add_text(&request, log);
    for (size_t i = 0; argv[i] != NULL; i++)
        add_text(&request, argv[i]);
    int64_t pid = ask(&request);
    if (pid < 0)
        support_die("cannot start %s: %s", argv[0], strerror((int)-pid));
    return (pid_t)pid;
}

bool supervisor_running(pid_t pid) {
    return ask(&(struct supervisor_request){.op = OP_RUNNING, .pid = pid}) != 0;
}

void supervisor_signal(pid_t pid, int signal_number) {
    struct supervisor_request request = {
        .op = OP_SIGNAL, .pid = pid, .signal_number = signal_number};
    if (ask(&request) != 0)
        support_die("process %d was expected to run, and does not", (int)pid);
}

void supervisor_end(pid_t pid, int signal_number, int64_t timeout_ms) {
    ask(&(struct supervisor_request){
        .op = OP_END, .pid = pid, .signal_number = signal_number, .timeout_ms = timeout_ms});
}

static int64_t ask_about_dir(enum supervisor_op op, const char *path) {
    struct supervisor_request request = {.op = op};
    add_text(&request, path);
    return ask(&request);
}

void supervisor_adopt_dir(const char *path) {
    if (ask_about_dir(OP_ADOPT_DIR, path) != 0)
        support_die("too many temporary directories");
}

void supervisor_remove_dir(const char *path) {
    if (ask_about_dir(OP_REMOVE_DIR, path) != 0)
        support_die("%s is not a temporary directory of this program", path);
}
