/* Servers whose time of day can be stepped; see step.h. The step is a number in a file of the server's directory. */
#include "support/step.h"

#include "support/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TRIED_MS = 3600000, LIMIT_MS = 60000, SOON_MS = 5000, OFF_MS = 1000 };

static long long server_ms(struct server *server) {
    return cmd_int(server, "EVAL %s 0",
                   "local t = redis.call('time') return t[1] * 1000 + math.floor(t[2] / 1000)");
}

static long long wall_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (long long)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The server maps the file when it is first there, so by then it has to be whole. */
static void set_step(struct server *server, int64_t step_ms) {
    char path[256], fresh[256];
    int64_t step_us = step_ms * 1000;
    snprintf(path, sizeof path, "%s/step", server_dir(server));
    snprintf(fresh, sizeof fresh, "%s/step.new", server_dir(server));
    bool is_new = access(path, F_OK) != 0;
    int fd = open(is_new ? fresh : path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || pwrite(fd, &step_us, sizeof step_us, 0) != (ssize_t)sizeof step_us ||
        (is_new && rename(fresh, path) != 0))
        support_die("%s: %s", path, strerror(errno));
    close(fd);
}

struct wanted_time {
    struct server *server;
    int64_t step_ms;
};

/* It was asked in between, and that takes no time, or it is asked again. */
static bool has_stepped(void *arg) {
    const struct wanted_time *wanted = arg;
    long long before_ms = wall_ms(), now_ms = server_ms(wanted->server) - wanted->step_ms;
    return now_ms >= before_ms - OFF_MS && now_ms <= before_ms + OFF_MS;
}

bool step_preload(const char *library) {
    setenv("LD_PRELOAD", library, 1);
    struct server *server =
        server_start(NULL); /* which starts the process that starts all others */
    unsetenv("LD_PRELOAD");
    struct wanted_time wanted = {server, TRIED_MS};
    set_step(server, TRIED_MS);
    bool can = wait_until(has_stepped, &wanted, SOON_MS);
    server_free(server);
    return can;
}

void step_clock(struct server *server, int64_t step_ms) {
    struct wanted_time wanted = {server, step_ms};
    set_step(server, step_ms);
    if (!wait_until(has_stepped, &wanted, LIMIT_MS))
        support_die("the clock of a server was not stepped");
}
