/*
 * The fixture of the local: tests; fixture.h is the manual.
 *
 * Runs in the test program and its children, on the main thread. Its state is the program's
 * temporary directory, in which all others are, and the janitor's pid. The janitor is forked before
 * there is any thread and waits for the end of a pipe whose other end only the test program has.
 *
 * Invariant: a process is only ever killed if its environment, as the kernel tells it, names a
 * directory that is inside this program's own temporary directory.
 */
#include "fixture.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "support/case.h"
#include "support/server.h"

#define ENTRY "HOLDFAST_LOCAL_DIR="

static char *root;
static int janitor_pipe = -1;
static pid_t janitor;

/* ---- Processes ------------------------------------------------------------------------------- */

static size_t read_proc(pid_t pid, const char *file, char *buffer, size_t size) {
    own_text *path = text_of("/proc/%d/%s", (int)pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, buffer, size - 1);
    if (fd >= 0)
        close(fd);
    buffer[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

/* The value of the environment entry that begins with `name`, or NULL. */
static const char *env_value(pid_t pid, const char *name, char *buffer, size_t size) {
    size_t len = read_proc(pid, "environ", buffer, size);
    for (size_t i = 0; i < len; i += strlen(buffer + i) + 1)
        if (strncmp(buffer + i, name, strlen(name)) == 0)
            return buffer + i + strlen(name);
    return NULL;
}

bool process_has_env(pid_t pid, const char *entry) {
    char buffer[65536];
    const char *value = env_value(pid, entry, buffer, sizeof buffer);
    return value != NULL && *value == '\0';
}

static bool is_part(pid_t pid, enum local_part part) {
    char comm[64];
    read_proc(pid, "comm", comm, sizeof comm);
    comm[strcspn(comm, "\n")] = '\0';
    if (part == LOCAL_SERVER)
        return strcmp(comm, "redis-server") == 0 || strcmp(comm, "valkey-server") == 0;
    return part == LOCAL_ANY || strcmp(comm, "sh") == 0;
}

/* Those whose directory is `dir`, or with `inside` is anywhere below it. */
static size_t find_processes(const char *dir, bool inside, enum local_part part, pid_t *pids,
                             size_t cap) {
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        support_die("opening /proc: %s", strerror(errno));
    size_t count = 0;
    char buffer[65536];
    for (struct dirent *entry; (entry = readdir(proc)) != NULL && count < cap;) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        pid_t pid = atoi(entry->d_name);
        const char *value = env_value(pid, ENTRY, buffer, sizeof buffer);
        if (value == NULL || !is_part(pid, part))
            continue;
        size_t len = strlen(dir);
        if (inside ? strncmp(value, dir, len) == 0 && value[len] == '/' : strcmp(value, dir) == 0)
            pids[count++] = pid;
    }
    closedir(proc);
    return count;
}

size_t local_processes(const char *dir, enum local_part part, pid_t *pids, size_t cap) {
    return find_processes(dir, false, part, pids, cap);
}

size_t local_count(const char *dir, enum local_part part) {
    pid_t pids[64];
    return local_processes(dir, part, pids, 64);
}

pid_t local_server_pid(const char *dir) {
    pid_t pids[8];
    assert_int_equal(local_processes(dir, LOCAL_SERVER, pids, 8), 1);
    return pids[0];
}

struct awaited_count {
    const char *dir;
    enum local_part part;
    size_t count;
};

static bool has_count(void *arg) {
    const struct awaited_count *awaited = arg;
    return local_count(awaited->dir, awaited->part) == awaited->count;
}

bool local_wait_count(const char *dir, enum local_part part, size_t count) {
    return wait_until(has_count, &(struct awaited_count){dir, part, count}, HANG_MS);
}

pid_t process_parent(pid_t pid) {
    char stat[512];
    int parent = 0;
    read_proc(pid, "stat", stat, sizeof stat);
    const char *after_name = strrchr(stat, ')');
    if (after_name != NULL)
        sscanf(after_name, ") %*c %d", &parent);
    return parent;
}

static bool is_one_of(pid_t pid, const pid_t *pids, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

static bool has_monitor(void *arg) {
    return local_count(arg, LOCAL_SHELL) > 0;
}

pid_t local_monitor_pid(const char *dir) {
    own_text *copy = text_of("%s", dir);
    assert_true(wait_until(has_monitor, copy, HANG_MS));
    pid_t pids[8];
    size_t count = local_processes(dir, LOCAL_SHELL, pids, 8);
    for (size_t i = 0; i < count; i++) /* the others are its own subshells */
        if (!is_one_of(process_parent(pids[i]), pids, count))
            return pids[i];
    support_die("all shells of %s are subshells", dir);
}

/* Kills until nothing is left; a starter may just be at work. */
static void kill_all(const char *dir, bool inside) {
    pid_t pids[64];
    size_t count;
    for (int round = 0; round < 5000; round++) {
        count = find_processes(dir, inside, LOCAL_ANY, pids, 64);
        if (count == 0)
            return;
        for (size_t i = 0; i < count; i++)
            kill(pids[i], SIGKILL);
        (void)wait_a_moment();
    }
    support_die("processes of %s do not go away", dir);
}

/* ---- Janitor and directories ----------------------------------------------------------------- */

static void janitor_main(int pipe_fd) {
    setsid(); /* whatever kills the test's group does not reach us */
    char byte;
    while (read(pipe_fd, &byte, 1) < 0 && errno == EINTR)
        continue;
    kill_all(root, true);
    _exit(0);
}

/* Another server than the installed one is found by the name that is looked for first. */
static void use_test_server(void) {
    const char *other = getenv("HF_TEST_SERVER");
    if (other == NULL || other[0] == '\0')
        return;
    char command[512], search[8192];
    snprintf(command, sizeof command,
             "cd '%s' && mkdir other && "
             "ln -s \"$(realpath -s \"$(command -v \"$HF_TEST_SERVER\")\")\" other/redis-server",
             root);
    snprintf(search, sizeof search, "%s/other:%s", root, getenv("PATH"));
    if (system(command) != 0 || setenv("PATH", search, 1) != 0)
        support_die("%s cannot be used", other);
}

int local_setup(void **state) {
    (void)state;
    root = temp_dir();
    use_test_server();
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        support_die("pipe: %s", strerror(errno));
    janitor = fork();
    if (janitor < 0)
        support_die("fork: %s", strerror(errno));
    if (janitor == 0) {
        close(ends[1]);
        janitor_main(ends[0]);
    }
    close(ends[0]);
    janitor_pipe = ends[1];
    return 0;
}

int local_teardown(void **state) {
    (void)state;
    if (write(janitor_pipe, "", 1) !=
        1) /* a child may still have a copy, so closing it is not enough */
        support_die("telling the janitor: %s", strerror(errno));
    close(janitor_pipe);
    int status = wait_exit(janitor, HANG_MS);
    temp_dir_remove(root);
    free(root);
    return status;
}

char *local_dir(void) {
    static int counter;
    return text_of("%s/%d", root, ++counter);
}

void local_stop(const char *dir) {
    kill_all(dir, false);
}

char *local_case_dir;

int local_case_begin(void **state) {
    (void)state;
    local_case_dir = local_dir();
    return 0;
}

int local_case_end(void **state) {
    (void)state;
    local_stop(local_case_dir);
    free(local_case_dir);
    return 0;
}

bool local_lock_free(const char *dir) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool got = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return got;
}

/* ---- Using it -------------------------------------------------------------------------------- */

int local_try(const char *dir, int64_t idle_ms, hf_error *error) {
    const struct hfi_local_options options = {.directory = dir, .idle_ms = idle_ms};
    struct hfi_addr addr;
    int err = hfi_local_ensure(&options, hfi_now_ms() + HANG_MS, &addr, error);
    if (err != HF_OK)
        return err;
    struct sockaddr_un un;
    memcpy(&un, &addr.sa, sizeof un);
    return strncmp(un.sun_path, dir, strlen(dir)) == 0 ? HF_OK : HF_EPROTO;
}

void local_ensure(const char *dir, int64_t idle_ms) {
    hf_error error = {0};
    int err = local_try(dir, idle_ms, &error);
    if (err != HF_OK)
        print_error("%s: %s\n", hf_error_name(err), error.text);
    assert_int_equal(err, HF_OK);
}

redisContext *local_connect(const char *dir) {
    own_text *path = text_of("%s/redis.sock", dir);
    redisContext *connection = redisConnectUnix(path);
    if (connection == NULL || connection->err == 0)
        return connection;
    redisFree(connection);
    return NULL;
}

bool answers(redisContext *connection, const char *expected, const char *format, ...) {
    va_list args;
    va_start(args, format);
    redisReply *reply = connection != NULL ? redisvCommand(connection, format, args) : NULL;
    va_end(args);
    char text[256] = "no reply";
    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER)
        snprintf(text, sizeof text, "%lld", reply->integer);
    else if (reply != NULL && reply->type == REDIS_REPLY_NIL)
        snprintf(text, sizeof text, "nil");
    else if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
        snprintf(text, sizeof text, "%s", reply->element[1]->str); /* CONFIG GET */
    else if (reply != NULL && reply->str != NULL)
        snprintf(text, sizeof text, "%s", reply->str);
    if (reply != NULL)
        freeReplyObject(reply);
    bool same = strcmp(text, expected) == 0;
    if (!same)
        print_error("%s: expected %s, got %s\n", format, expected, text);
    return same;
}
