/*
 * One process of the quorum's benchmark, as bench/quorum/run starts it, for whatever is not another
 * library's:
 *
 *     hf_bench_quorum IMPL NAME WARM_MS HOLD_MS THINK_MS PORT...
 *
 * It warms up for WARM_MS with a name of its own, prints "ready" and reads a line: when to start and when
 * to end, in milliseconds since 1970. In between it acquires NAME, holds it, releases it and thinks. For
 * each acquire it prints when it was called, when it returned, when release was called and when that
 * returned, in microseconds since 1970. All workers do that, in whichever language, so one script can
 * judge all of them.
 *
 *     raw        the same scripts over bare sockets to all servers at once; back at a majority's answer
 *     holdfast   a quorum of all ports
 *     three      three plain locks in a row, on the first port
 *     all        the same three as one lock
 *
 * With `far FROM TO MS` it is a relay; see far.c.
 */
#include "bench/quorum/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int64_t wall_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* What there is to measure: the calls return when it is done. */
struct impl {
    const char *name;
    void (*open)(const struct plan *plan, const char *name);
    void (*acquire)(void);
    void (*release)(void);
    void (*close)(void);
};

/* ---- holdfast ---- */

static hf_client *client;
static hf_lock *locks[3];

static void open_quorum(const struct plan *plan, const char *name) {
    char urls[512] = "";
    for (size_t i = 0; i < plan->ports_len; i++) {
        size_t len = strlen(urls);
        snprintf(urls + len, sizeof urls - len, "%sredis://127.0.0.1:%d", i > 0 ? " " : "",
                 plan->ports[i]);
    }
    hf_options options = HF_OPTIONS_INIT;
    options.restart_guard_ms = 0; /* the servers have just been started */
    check(hf_open(urls, &options, &client), "hf_open");
    check(hf_lock_new(client, name, &locks[0]), "hf_lock_new");
}

static void close_client(void) {
    for (size_t i = 0; i < 3; i++)
        hf_lock_free(locks[i]);
    memset(locks, 0, sizeof locks);
    hf_close(client);
}

static void acquire_one(void) {
    check(hf_lock_acquire(locks[0]), "acquire");
}

static void release_one(void) {
    check(hf_lock_release(locks[0]), "release");
}

static void open_three(const struct plan *plan, const char *name) {
    struct plan first = *plan;
    first.ports_len = 1;
    open_quorum(&first, name);
    for (size_t i = 1; i < 3; i++) {
        char other[96];
        snprintf(other, sizeof other, "%s-%zu", name, i);
        check(hf_lock_new(client, other, &locks[i]), "hf_lock_new");
    }
}

static void acquire_three(void) {
    for (size_t i = 0; i < 3; i++)
        check(hf_lock_acquire(locks[i]), "acquire");
}

static void release_three(void) {
    for (size_t i = 3; i-- > 0;)
        check(hf_lock_release(locks[i]), "release");
}

static hf_lock *all;

static void open_all(const struct plan *plan, const char *name) {
    open_three(plan, name);
    check(hf_lock_new_multi(locks, 3, &all), "hf_lock_new_multi");
}

static void acquire_all(void) {
    check(hf_lock_acquire(all), "acquire");
}

static void release_all(void) {
    check(hf_lock_release(all), "release");
}

static void close_all(void) {
    hf_lock_free(all);
    close_client();
}

static const struct impl impls[] = {
    {"raw", raw_open, raw_acquire, raw_release, raw_close},
    {"holdfast", open_quorum, acquire_one, release_one, close_client},
    {"three", open_three, acquire_three, release_three, close_client},
    {"all", open_all, acquire_all, release_all, close_all},
};

/* ---- The plan ---- */

static void pause_ms(int64_t ms) {
    if (ms > 0)
        sleep_ms(ms);
}

static void warm_up(const struct impl *impl, const struct plan *plan) {
    char name[96];
    int64_t end_us = wall_us() + plan->warm_ms * 1000;
    snprintf(name, sizeof name, "%s-warm-%ld", plan->name, (long)getpid());
    impl->open(plan, name);
    do {
        impl->acquire();
        impl->release();
    } while (wall_us() < end_us);
    impl->close();
}

static void wait_for_start(struct plan *plan) {
    printf("ready\n");
    fflush(stdout);
    if (scanf("%" SCNd64 " %" SCNd64, &plan->start_ms, &plan->end_ms) != 2)
        die("no start signal on standard input");
    while (wall_us() < plan->start_ms * 1000)
        sleep_ms(1);
}

static void work(const struct impl *impl, struct plan *plan) {
    impl->open(plan, plan->name);
    wait_for_start(plan);
    for (;;) {
        int64_t began_us = wall_us();
        if (began_us >= plan->end_ms * 1000)
            break;
        impl->acquire();
        int64_t acquired_us = wall_us();
        pause_ms(plan->hold_ms);
        int64_t releasing_us = wall_us();
        impl->release();
        printf("%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", began_us, acquired_us,
               releasing_us, wall_us());
        pause_ms(plan->think_ms);
    }
    impl->close();
}

static const struct impl *find_impl(const char *name) {
    for (size_t i = 0; i < sizeof impls / sizeof impls[0]; i++)
        if (strcmp(impls[i].name, name) == 0)
            return &impls[i];
    die("unknown implementation '%s'", name);
}

int main(int argc, char **argv) {
    static char out[1 << 20];
    setvbuf(stdout, out, _IOFBF, sizeof out);
    if (argc == 5 && strcmp(argv[1], "far") == 0)
        relay(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    if (argc < 7 || argc - 6 > SERVERS_MAX)
        die("usage: hf_bench_quorum IMPL NAME WARM_MS HOLD_MS THINK_MS PORT...");
    struct plan plan = {.name = argv[2],
                        .warm_ms = atoll(argv[3]),
                        .hold_ms = atoll(argv[4]),
                        .think_ms = atoll(argv[5]),
                        .ports_len = (size_t)argc - 6};
    for (size_t i = 0; i < plan.ports_len; i++)
        plan.ports[i] = atoi(argv[6 + i]);
    const struct impl *impl = find_impl(argv[1]);
    warm_up(impl, &plan);
    work(impl, &plan);
    return 0;
}
