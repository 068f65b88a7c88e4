/* Servers whose time of day can be stepped and slewed; see step.h. Both are numbers in a file of the server's
 * directory. */
#include "support/step.h"

#include "support/clock/stepped.h"
#include "support/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
static void set_clock(struct server *server, int64_t step_ms, int64_t slew_ppm) {
    char path[256], fresh[256];
    struct stepped_clock clock = {step_ms * 1000, wall_ms() * 1000, slew_ppm};
    snprintf(path, sizeof path, "%s/step", server_dir(server));
    snprintf(fresh, sizeof fresh, "%s/step.new", server_dir(server));
    bool is_new = access(path, F_OK) != 0;
    int fd = open(is_new ? fresh : path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || pwrite(fd, &clock, sizeof clock, 0) != (ssize_t)sizeof clock ||
        (is_new && rename(fresh, path) != 0))
        support_die("%s: %s", path, strerror(errno));
    close(fd);
}

/* The library looks for the file in the working directory, which the caller has for itself. */
void step_this(int64_t step_ms) {
    struct stepped_clock clock = {step_ms * 1000, 0, 0};
    bool is_new = access("step", F_OK) != 0;
    int fd = open(is_new ? "step.new" : "step", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || pwrite(fd, &clock, sizeof clock, 0) != (ssize_t)sizeof clock ||
        (is_new && rename("step.new", "step") != 0))
        support_die("the time of day cannot be stepped: %s", strerror(errno));
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
    set_clock(server, TRIED_MS, 0);
    bool can = wait_until(has_stepped, &wanted, SOON_MS);
    server_free(server);
    return can;
}

void step_clock(struct server *server, int64_t step_ms) {
    struct wanted_time wanted = {server, step_ms};
    set_clock(server, step_ms, 0);
    if (!wait_until(has_stepped, &wanted, LIMIT_MS))
        support_die("the clock of a server was not stepped");
}

/* How far its clock and the real one have come since the one was read. */
struct wanted_rate {
    struct server *server;
    int64_t slew_ppm;
    long long server_ms, wall_ms;
};

static bool is_slewed(void *arg) {
    const struct wanted_rate *wanted = arg;
    long long wall = wall_ms() - wanted->wall_ms,
              off = server_ms(wanted->server) - wanted->server_ms - wall;
    return off * wanted->slew_ppm > 0 || wanted->slew_ppm == 0;
}

void step_slew(struct server *server, int64_t slew_ppm) {
    set_clock(server, 0, slew_ppm);
    struct wanted_rate wanted = {server, slew_ppm, server_ms(server), wall_ms()};
    if (!wait_until(is_slewed, &wanted, LIMIT_MS))
        support_die("the clock of a server was not slewed");
}
