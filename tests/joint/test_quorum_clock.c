/* Servers whose clock is stepped, by a library that is preloaded into them (tests/support/clock). Leases run
 * by the time of day, and `not-after` is compared with it; the client's own times are of another clock. */
#include "joint/fleet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOUR_MS 3600000

static bool can_step;

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

static bool has_stepped(void *arg) {
    const struct wanted_time *wanted = arg;
    long long off_ms = server_ms(wanted->server) - wall_ms() - wanted->step_ms;
    return off_ms > -HOUR_MS / 2 && off_ms < HOUR_MS / 2;
}

static void step(struct server *server, int64_t step_ms) {
    struct wanted_time wanted = {server, step_ms};
    set_step(server, step_ms);
    assert_true(wait_until(has_stepped, &wanted, HANG_MS));
}

static int start(void **state) {
    setenv("LD_PRELOAD", HF_TEST_STEPPED_CLOCK, 1);
    fleet_start_servers(state);
    unsetenv("LD_PRELOAD");
    struct server *server = server_start(NULL); /* by the same process, and so with the same */
    struct wanted_time wanted = {server, HOUR_MS};
    set_step(server, HOUR_MS);
    can_step = wait_until(has_stepped, &wanted, 5000);
    server_free(server);
    return 0;
}

static void begin(struct fleet *f, struct fleet_events *events) {
    if (!can_step) {
        print_message("the clock of this server cannot be stepped: skipped\n");
        skip();
    }
    hf_options options = fleet_options();
    options.watchdog_ms = 9000;
    fleet_begin(f, &options);
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, events), HF_OK);
}

static void finish(struct fleet *f) {
    for (int i = 0; i < FLEET; i++)
        step(f->server[i], 0);
    fleet_end(f);
}

static void pair(struct fleet *f) {
    assert_int_equal(hf_lock_acquire_for(f->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
}

/* `not-after` of the next command is an hour too late, or an hour too early. */
static void stepped_while_free(void **state) {
    (void)state;
    struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    const int64_t steps_ms[] = {-HOUR_MS, 0, HOUR_MS, -HOUR_MS};
    for (size_t k = 0; k < sizeof steps_ms / sizeof steps_ms[0]; k++) {
        for (int i = 0; i < FLEET; i++)
            step(f.server[i], steps_ms[k]);
        pair(&f);
        pair(&f);
    }
    finish(&f);
}

/* It is over there at once, and nothing is lost: the others have it, and that one gets it again. */
static void one_ahead_while_held(void **state) {
    (void)state;
    struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    assert_true(fleet_wait_renewed(&f, 2, HANG_MS)); /* the last to join count in full by now */
    step(f.server[0], HOUR_MS);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(hf_lock_try(f.rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_true(fleet_wait_free(&f, HANG_MS));
    finish(&f);
}

/* Its lease there is an hour longer, which is nobody's loss while the holder lives. */
static void all_back_while_held(void **state) {
    (void)state;
    struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    for (int i = 0; i < FLEET; i++)
        step(f.server[i], -HOUR_MS);
    assert_int_equal(hf_lock_extend(f.lock, 9000), HF_OK);
    assert_int_equal(hf_lock_try(f.rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_true(fleet_wait_free(&f, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    pair(&f);
    finish(&f);
}

/* Beyond what can be promised (docs/guarantees.md), but the holder is told, and soon. */
static void a_majority_ahead_is_lost(void **state) {
    (void)state;
    struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    for (int i = 0; i < MAJORITY; i++)
        step(f.server[i], HOUR_MS);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f.lock), HF_ELOST);
    assert_int_equal(hf_lock_acquire_for(f.rival_lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(f.rival_lock), HF_OK);
    finish(&f);
}

/* By its clock it will be started in an hour: that says nothing about when it was. */
static void one_that_is_back_comes_of_age(void **state) {
    (void)state;
    struct fleet f;
    struct fleet_events events = {0};
    begin(&f, &events);
    for (int i = 0; i < FLEET; i++)
        step(f.server[i], -HOUR_MS);
    hf_client *client;
    hf_lock *lock;
    hf_options options = fleet_options();
    options.restart_guard_ms = 3000;
    assert_int_equal(hf_open(f.urls, &options, &client), HF_OK);
    assert_int_equal(hf_lock_new(client, FLEET_NAME, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire_for(lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    finish(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stepped_while_free),
        cmocka_unit_test(one_ahead_while_held),
        cmocka_unit_test(all_back_while_held),
        cmocka_unit_test(a_majority_ahead_is_lost),
        cmocka_unit_test(one_that_is_back_comes_of_age),
    };
    return cmocka_run_group_tests(tests, start, fleet_stop_servers);
}
