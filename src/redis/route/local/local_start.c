/*
 * Starting the private server of `local:`: the programs, the script, and the processes in between.
 *
 * Called by local.c, on a lookup's thread of an application that may have many threads, signal
 * handlers, children and open files, and must not notice. Hence no fork(), no posix_spawn() and no
 * exec from here:
 *
 *   application --clone--> starter --clone--> sh, which starts the monitor and becomes redis-server
 *
 * Both are bare clones: no atfork handlers run. The starter has no exit signal, so neither a
 * SIGCHLD handler nor a wait for any child sees it; we reap it by pid with __WCLONE. They run with
 * all signals blocked, and only make system calls on data prepared before.
 *
 * Invariant: the starter opens the file description that carries the lock, and passes it to the
 * server. It is never open in the application, whose forks could keep it, and so the lock, for
 * longer than the server lives. The server's program starts after the monitor has closed its copy.
 * Only a starter that got the lock removes sockets, and it removes both before it starts the
 * server.
 *
 * Shutdown. The monitor is a process of its own, so that no application has to stay. It checks the
 * server every third of the idle time: no other connection, none since the last check, and no key
 * but fencing counters. After the fourth such check in a row it renames the socket, so that new
 * clients wait, and checks again. Then it sends in one write: EVALSHA of the same check, which
 * pushes to the list at SHUTDOWN_KEY if the server is still idle; BLPOP on that list; SHUTDOWN. A
 * server runs what it has read from one connection without running other clients' commands in
 * between, so check and shutdown are one step for all others. If the check fails, the BLPOP blocks,
 * and the SHUTDOWN behind it is dropped with the connection. So no server shuts down with a lock in
 * it, even if the monitor dies or another process renames the socket back.
 */
#include "redis/route/local/local_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "redis/route/local/local.h"

#define USUAL_PLACES "/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin"
#define LOCK_FD 9 /* the lock's descriptor in the shell and in the server */
#define CHECKS_PER_IDLE 3
#define SHUTDOWN_KEY "holdfast:leave" /* the key whose BLPOP lets SHUTDOWN run */

/* Returns -1 if this is not the server with process id ARGV[1], 0 if it is not idle, else the
 * number of connections received so far. With ARGV[2] > 0, any other number counts as not idle,
 * too. A third argument is the shutdown key, to which it then pushes. */
static const char check_lua[] =
    "local function info(section, field)\n"
    "  return tonumber(string.match(redis.call('info', section), field .. ':(%d+)'))\n"
    "end\n"
    "local expected, shutdown_key = tonumber(ARGV[2]), ARGV[3]\n"
    "if info('server', 'process_id') ~= tonumber(ARGV[1]) then return -1 end\n"
    "local connections = info('stats', 'total_connections_received')\n"
    "if info('clients', 'connected_clients') > 1 then return 0 end\n"
    "if expected > 0 and connections ~= expected then return 0 end\n"
    "for db in string.gmatch(redis.call('info', 'keyspace'), 'db(%d+):') do\n"
    "  redis.call('select', db)\n"
    "  local cursor = '0'\n"
    "  repeat\n"
    "    local page = redis.call('scan', cursor, 'count', 1000)\n"
    "    cursor = page[1]\n"
    "    for _, key in ipairs(page[2]) do\n"
    "      local counter = string.sub(key, 1, 20) == 'redisson_lock_token:'\n"
    "      if not counter and key ~= '" SHUTDOWN_KEY "' then return 0 end\n"
    "    end\n"
    "  until cursor == '0'\n"
    "end\n"
    "redis.call('select', 0)\n"
    "if shutdown_key then redis.call('rpush', shutdown_key, 1) end\n"
    "return connections\n";

/* Arguments: the server's program, the client's ("" if there is none), seconds between checks,
 * check_lua. The working directory is ours. $$ is the shell's pid, and so the server's. */
static const char shell_script[] =
    "cli=$2 pause=$3 check=$4 shutdown_key=" SHUTDOWN_KEY "\n"
    "\n"
    "# probe SOCKET CONNECTIONS: prints the result of the check, nothing without an answer.\n"
    "probe() {\n"
    "    \"$cli\" -s \"$1\" --raw eval \"$check\" 0 $$ \"$2\" 2>/dev/null\n"
    "}\n"
    "\n"
    "leave() {\n"
    "    mv -f " LOCAL_SOCKET " " LOCAL_SOCKET_IDLE " || return\n"
    "    case $(probe " LOCAL_SOCKET_IDLE " $((seen + 1))) in\n"
    "    '' | -1 | 0 | *[!0-9]*) ;;\n"
    "    *)\n"
    "        sha=$(\"$cli\" -s " LOCAL_SOCKET_IDLE " --raw script load \"$check\")\n"
    "        printf '%s\\r\\n' \"DEL $shutdown_key\" \"EVALSHA $sha 0 $$ $((seen + 3)) $shutdown_key\" \\\n"
    "            \"BLPOP $shutdown_key 0\" 'SHUTDOWN NOSAVE' |\n"
    "            \"$cli\" -s " LOCAL_SOCKET_IDLE " --pipe --pipe-timeout 1 >/dev/null 2>&1\n"
    "        ;;\n"
    "    esac\n"
    "    mv -f " LOCAL_SOCKET_IDLE " " LOCAL_SOCKET " 2>/dev/null\n"
    "}\n"
    "\n"
    "# Whether our parent is still the server. Unlike a pid, a parent cannot be reused.\n"
    "lives() {\n"
    "    read -r stat </proc/self/stat && set -- $stat && [ \"$4\" = $$ ]\n"
    "}\n"
    "\n"
    "monitor() {\n"
    "    tries=0 seen=0 quiet=0 silent=0\n"
    "    until [ -S " LOCAL_SOCKET " ] || [ $tries = 50 ]; do # while the server starts\n"
    "        sleep 0.1 && lives || return\n"
    "        tries=$((tries + 1))\n"
    "    done\n"
    "    while sleep \"$pause\" || sleep 1 || return; lives; do\n"
    "        now=$(probe " LOCAL_SOCKET " 0)\n"
    "        status=$?\n"
    "        case $now in\n"
    "        -1) return ;; # another server is there, so ours is not\n"
    "        '') quiet=0 silent=$((silent + (status == 1))) ;; # 127: the client was removed\n"
    "        0 | *[!0-9]*) quiet=0 silent=0 ;;\n"
    "        $((seen + 1))) quiet=$((quiet + 1)) silent=0 seen=$now ;;\n"
    "        *) quiet=1 silent=0 seen=$now ;;\n"
    "        esac\n"
    "        if [ $quiet -gt 3 ]; then\n"
    "            leave\n"
    "            [ -n \"$(probe " LOCAL_SOCKET " 0)\" ] || return\n"
    "            quiet=0\n"
    "        fi\n"
    "        # The socket was removed, so no new client will ever find this server.\n"
    "        if [ $silent -gt 3 ] && lives; then\n"
    "            kill $$\n"
    "            return\n"
    "        fi\n"
    "    done\n"
    "}\n"
    "\n"
    "if [ -n \"$cli\" ]; then\n"
    "    # With one exec, or a plain redirection, dash would keep a copy of 9 for longer.\n"
    "    (exec 9<&- && exec 3<&- 4>&- && monitor) &\n"
    "    exec 4>&-\n"
    "    read -r nothing <&3 # a pipe: until the monitor has closed its 9 and then its 4\n"
    "else\n"
    "    echo 'holdfast: no redis-cli or valkey-cli: this server stays until it is stopped'\n"
    "fi\n"
    "exec 3<&- 4>&-\n"
    "exec \"$1\" --port 0 --unixsocket " LOCAL_SOCKET " --unixsocketperm 700 \\\n"
    "    --save '' --appendonly no --maxmemory 0 --maxmemory-policy noeviction \\\n"
    "    --daemonize no --set-proc-title no --dir .\n";

/* ---- Before the clone ------------------------------------------------------------------------ */

/* The path of an executable file `name` in one of the directories of `search`; NULL if there is
 * none or no memory. Relative directories are skipped: the current directory is no safe source of
 * programs. */
static char *find_in(const char *search, const char *name) {
    while (search != NULL && *search != '\0') {
        const char *end = strchrnul(search, ':');
        char *path = NULL;
        if (*search == '/' && asprintf(&path, "%.*s/%s", (int)(end - search), search, name) < 0)
            return NULL;
        if (path != NULL && access(path, X_OK) == 0)
            return path;
        free(path);
        search = *end == ':' ? end + 1 : end;
    }
    return NULL;
}

static char *find_program(const char *search, const char *first_name, const char *second_name) {
    char *path = find_in(search, first_name);
    return path != NULL ? path : find_in(search, second_name);
}

/* All that the new processes need, made while allocating is still allowed. */
struct plan {
    int dir_fd;
    unsigned descriptors_max;
    char *search, *server, *cli;
    char pause[32];
    char *env_path, *env_dir;
    const char *argv[9];
    const char *envp[5];
};

static void plan_clear(struct plan *plan) {
    free(plan->search);
    free(plan->server);
    free(plan->cli);
    free(plan->env_path);
    free(plan->env_dir);
}

static int plan_search(struct plan *plan, const char *wanted, hf_error *error) {
    const char *path = secure_getenv("PATH");
    if (path == NULL)
        path = "";
    plan->search = NULL;
    int written = wanted != NULL ? asprintf(&plan->search, "%s", wanted)
                                 : asprintf(&plan->search, "%s:" USUAL_PLACES, path);
    if (written < 0) {
        plan->search = NULL;
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    }

    plan->server = find_program(plan->search, "redis-server", "valkey-server");
    if (plan->server == NULL) {
        hfi_fail(error, HF_EUNREACH,
                 "local: needs redis-server, which is not in PATH or " USUAL_PLACES
                 "; install redis-server (or valkey-server), or give a server's url");
        error->sys_errno = ENOENT; /* as for a host that does not exist: waiting does not help */
        return HF_EUNREACH;
    }
    plan->cli = find_program(plan->search, "redis-cli", "valkey-cli");

    if (asprintf(&plan->env_path, "PATH=%s:" USUAL_PLACES ":/bin", path) < 0) {
        plan->env_path = NULL;
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    }
    return HF_OK;
}

static int plan_make(struct plan *plan, const struct local_start *start, hf_error *error) {
    plan->dir_fd = start->dir_fd;
    struct rlimit limit;
    bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < (1 << 20);
    plan->descriptors_max = known ? (unsigned)limit.rlim_cur : 1 << 20;

    int err = plan_search(plan, start->search, error);
    if (err != HF_OK)
        return err;
    if (asprintf(&plan->env_dir, "HOLDFAST_LOCAL_DIR=%s", start->directory) < 0) {
        plan->env_dir = NULL;
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    }
    int64_t pause_ms = start->idle_ms / CHECKS_PER_IDLE + 1;
    snprintf(plan->pause, sizeof plan->pause, "%lld.%03lld", (long long)(pause_ms / 1000),
             (long long)(pause_ms % 1000));

    const char *argv[] = {"sh",         "-c",
                          shell_script, "holdfast-local",
                          plan->server, plan->cli != NULL ? plan->cli : "",
                          plan->pause,  check_lua,
                          NULL};
    const char *envp[] = {plan->env_path, plan->env_dir, "LANG=C", HFI_LOCAL_MARK, NULL};
    memcpy(plan->argv, argv, sizeof argv);
    memcpy(plan->envp, envp, sizeof envp);
    return HF_OK;
}

/* ---- In the new processes: system calls only ------------------------------------------------- */

/* Sanitizer runtimes use locks that another thread may have held when we were cloned. */
#define BARE __attribute__((no_sanitize("address", "thread", "undefined")))

BARE static void bare_exit(int status) {
    for (;;)
        syscall(SYS_exit_group, status);
}

/* A copy of the descriptor above all those we are going to make. So no descriptor still needed is
 * overwritten, whatever numbers the application has left free. */
BARE static int bare_lift(int fd) {
    return fd < 0 ? fd : (int)syscall(SYS_fcntl, fd, F_DUPFD, LOCK_FD + 1);
}

BARE static void bare_close_others(unsigned first, unsigned last, unsigned descriptors_max) {
    if (syscall(SYS_close_range, first, last, 0) == 0)
        return;
    for (unsigned fd = first; fd <= last && fd < descriptors_max; fd++) /* Linux before 5.9 */
        syscall(SYS_close, fd);
}

BARE static void bare_default_signals(void) {
    char nothing[128]; /* the kernel's sigaction and sigset_t; all zero is "default" and "none" */
    for (size_t i = 0; i < sizeof nothing; i++)
        ((volatile char *)nothing)[i] = 0;
    for (int number = 1; number < _NSIG; number++)
        syscall(SYS_rt_sigaction, number, nothing, NULL, _NSIG / 8);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, nothing, NULL, _NSIG / 8);
}

/* The second process: becomes the shell. */
BARE static void bare_become_shell(const struct plan *plan, int lock_fd) {
    syscall(SYS_setsid);
    syscall(SYS_umask, 077);
    if (syscall(SYS_fchdir, plan->dir_fd) < 0)
        bare_exit(126);

    lock_fd = bare_lift(lock_fd);
    int null_fd = bare_lift((int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0));
    int log_fd =
        bare_lift((int)syscall(SYS_openat, AT_FDCWD, LOCAL_LOG,
                               O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW, 0600));
    if (log_fd < 0)
        log_fd = null_fd;
    if (lock_fd < 0 || null_fd < 0 || syscall(SYS_dup3, null_fd, 0, 0) < 0 ||
        syscall(SYS_dup3, log_fd, 1, 0) < 0 || syscall(SYS_dup3, log_fd, 2, 0) < 0 ||
        syscall(SYS_dup3, lock_fd, LOCK_FD, 0) < 0)
        bare_exit(126);
    bare_close_others(3, LOCK_FD - 1, plan->descriptors_max);
    bare_close_others(LOCK_FD + 1, ~0u, plan->descriptors_max);
    int pipe_fds[2]; /* 3 and 4: all but 0, 1, 2 and the lock's are free */
    if (syscall(SYS_pipe2, pipe_fds, 0) < 0)
        bare_exit(126);

    bare_default_signals();
    syscall(SYS_execve, "/bin/sh", plan->argv, plan->envp);
    bare_exit(127);
}

/* The first process. Its status: 0 started; EWOULDBLOCK the lock is taken; else the errno. */
BARE static void bare_starter(const struct plan *plan) {
    int lock_fd =
        (int)syscall(SYS_openat, plan->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (lock_fd < 0 || syscall(SYS_flock, lock_fd, LOCK_EX | LOCK_NB) < 0)
        bare_exit(errno);
    syscall(SYS_unlinkat, plan->dir_fd, LOCAL_SOCKET_IDLE, 0);
    syscall(SYS_unlinkat, plan->dir_fd, LOCAL_SOCKET, 0);

    long pid = syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
    if (pid == 0)
        bare_become_shell(plan, lock_fd);
    bare_exit(pid < 0 ? errno : 0);
}

/* ---- After the clone ------------------------------------------------------------------------- */

static int run_starter(const struct plan *plan, int *ret_status) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    long pid = syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
    if (pid == 0)
        bare_starter(plan);
    int failure = pid < 0 ? errno : 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (pid < 0)
        return failure;

    int status;
    while (waitpid((pid_t)pid, &status, __WCLONE) < 0)
        if (errno != EINTR)
            return errno;
    *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
    return 0;
}

int hfi_local_start(const struct local_start *start, bool *ret_started, hf_error *error) {
    struct plan plan = {0};
    int err = plan_make(&plan, start, error);
    int status = 0;
    if (err == HF_OK) {
        int failure = run_starter(&plan, &status);
        if (failure == 0 && status != 0 && status != EWOULDBLOCK && status != EINTR)
            failure = status;
        if (failure != 0)
            err = hfi_fail_errno(error, HF_ESYS, failure, "cannot start the local: server");
    }
    plan_clear(&plan);
    if (err == HF_OK)
        *ret_started = status == 0;
    return err;
}
