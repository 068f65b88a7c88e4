/*
 * Contention: n threads of one client, or n processes with a client each, want one lock; each
 * holder releases it at once. A plain lock's release notifies all processes; a fair one's hands
 * the lock to the first waiter.
 *
 * Measured is the hand-over: from the moment before a release is called to the moment after the
 * acquire of another owner has returned, on one clock. A holder leaves its time of release in
 * memory shared by all, written only by the holder of the lock; the next holder reads it.
 */
#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "bench-contended"
#define SAMPLES_MAX 200000

struct arena {
    _Atomic int64_t released_ns; /* when the holder before began to release */
    atomic_int last;             /* who that was; -1: nobody yet */
    atomic_bool measuring, stop;
    atomic_int ready;
    atomic_ullong pairs;
    _Atomic size_t len;
    double us[SAMPLES_MAX];
};

static struct arena *new_arena(void) {
    struct arena *arena =
        mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED)
        die("mmap: %s", strerror(errno));
    atomic_store(&arena->last, -1);
    return arena;
}

static void note_handover(struct arena *arena, int index, int64_t acquired_ns) {
    int last = atomic_load(&arena->last);
    if (!atomic_load(&arena->measuring) || last == index || last == -1)
        return;
    size_t at = atomic_fetch_add(&arena->len, 1);
    if (at < SAMPLES_MAX)
        arena->us[at] = (double)(acquired_ns - atomic_load(&arena->released_ns)) / 1e3;
}

static void take_turn(struct arena *arena, hf_lock *lock, int index) {
    check(hf_lock_acquire(lock), "acquire");
    note_handover(arena, index, now_ns());
    atomic_store(&arena->last, index);
    atomic_store(&arena->released_ns, now_ns());
    check(hf_lock_release(lock), "release");
    atomic_fetch_add(&arena->pairs, 1);
}

static hf_lock *new_lock(hf_client *client, hf_kind kind) {
    hf_lock *lock;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = kind;
    check(hf_lock_new_with(client, NAME, strlen(NAME), &options, &lock), "hf_lock_new_with");
    return lock;
}

static void finish(struct arena *arena, struct sample *ret) {
    size_t len = atomic_load(&arena->len);
    len = len < SAMPLES_MAX ? len : SAMPLES_MAX;
    ret->p50_us = percentile(arena->us, len, 50);
    ret->p99_us = percentile(arena->us, len, 99);
    munmap(arena, sizeof *arena);
}

/* ---- Threads ---- */

struct together {
    hf_client *client;
    struct arena *arena;
};

static void contend(struct worker *worker) {
    struct together *together = worker->shared;
    hf_lock *lock = new_lock(together->client, HF_PLAIN);
    worker_ready(worker);
    atomic_store(&together->arena->measuring, true);
    while (worker_goes_on(worker)) {
        take_turn(together->arena, lock, worker->index);
        worker_count(worker);
    }
    hf_lock_free(lock);
}

void run_contending_threads(const struct bench *bench, int n, struct sample *ret) {
    struct together together = {.arena = new_arena()};
    check(hf_open(bench->url, NULL, &together.client), "hf_open");
    run_workers(bench, n, contend, &together, ret);
    hf_close(together.client);
    finish(together.arena, ret);
}

/* ---- Processes ---- */

_Noreturn static void contend_alone(const struct bench *bench, hf_kind kind, struct arena *arena,
                                    int index) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    hf_client *client;
    check(hf_open(bench->url, NULL, &client), "hf_open");
    hf_lock *lock = new_lock(client, kind);
    check(hf_ping(client), "ping");
    atomic_fetch_add(&arena->ready, 1);
    while (!atomic_load(&arena->stop))
        take_turn(arena, lock, index);
    hf_lock_free(lock);
    hf_close(client);
    _exit(0);
}

static void end_children(const pid_t *children, int n) {
    for (int i = 0; i < n; i++) {
        int status;
        if (waitpid(children[i], &status, 0) < 0 || status != 0)
            die("a contending process failed");
    }
}

static void run_processes(const struct bench *bench, hf_kind kind, int n, struct sample *ret) {
    struct arena *arena = new_arena();
    pid_t *children = calloc((size_t)n, sizeof *children);
    if (children == NULL)
        die("out of memory");
    fflush(NULL);
    for (int i = 0; i < n; i++) {
        children[i] = fork();
        if (children[i] < 0)
            die("fork: %s", strerror(errno));
        if (children[i] == 0)
            contend_alone(bench, kind, arena, i);
    }
    while (atomic_load(&arena->ready) < n)
        sleep_ms(1);
    sleep_ms(bench->warm_ms);
    atomic_store(&arena->measuring, true);
    struct meter meter;
    meter_start(bench, &meter);
    unsigned long long before = atomic_load(&arena->pairs);
    sleep_ms(bench->run_ms);
    meter_stop(bench, &meter, atomic_load(&arena->pairs) - before, ret);
    ret->client_cpu_s = 0; /* it is the children's */
    atomic_store(&arena->stop, true);
    end_children(children, n);
    free(children);
    finish(arena, ret);
}

void run_contending_processes(const struct bench *bench, int n, struct sample *ret) {
    run_processes(bench, HF_PLAIN, n, ret);
}

void run_contending_fair(const struct bench *bench, int n, struct sample *ret) {
    run_processes(bench, HF_FAIR, n, ret);
}
