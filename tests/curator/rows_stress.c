/*
 * Java threads and C processes contend for one mutex, and some are killed: never two inside at
 * once, and all live ones continue.
 *
 * The critical section is a file that all have mapped (Stress.java has its layout). A worker that
 * is killed inside leaves its number there. The next client may find it, since the driver records
 * the death before the server can have released the lock.
 */
#include "suite.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { C_WORKERS = 3, JAVA_WORKERS = 3, KILL_ROUNDS = 1, SOAK_ROUNDS = 20, LEAST = 20 };

struct place {
    _Atomic int64_t inside, counter, meetings, stop, unused[12];
    _Atomic int64_t dead[48];
    _Atomic int64_t done[64];
};

static char path[256];
static struct place *place;

static void open_place(void) {
    char *dir = temp_dir();
    snprintf(path, sizeof path, "%s/place", dir);
    free(dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && ftruncate(fd, sizeof *place) == 0);
    place = mmap(NULL, sizeof *place, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(place, MAP_FAILED);
    close(fd);
}

static void be_inside(int64_t worker) {
    int64_t met = place->inside;
    if (met != 0 && place->dead[met] == 0)
        place->meetings++;
    place->inside = worker;
    int64_t counter = place->counter;
    linger(worker % 2);
    place->counter = counter + 1;
    if (place->inside != worker)
        place->meetings++;
    place->done[worker]++;
    place->inside = 0;
}

static int work(void *arg) {
    int64_t worker = *(int64_t *)arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    hf_lock *lock = NULL;
    options.watchdog_ms = worker <= C_WORKERS ? SESSION_MS : DOOMED_SESSION_MS;
    if (hf_open(zk_url(suite.zk), &options, &client) != HF_OK ||
        hf_lock_new(client, "stress", &lock) != HF_OK)
        return 1;
    while (place->stop == 0) {
        if (hf_lock_acquire(lock) != HF_OK)
            return 2;
        be_inside(worker);
        if (hf_lock_release(lock) != HF_OK)
            return 3;
    }
    hf_lock_free(lock);
    hf_close(client);
    return 0;
}

static pid_t start_c(int64_t worker) {
    return run_child(work, &worker);
}

static int start_java(struct remote *java, const char *client, int64_t worker) {
    java_call(java, "open %s mutex /stress stress-%d", client, (int)worker);
    return java_send(java, "stress stress-%d file=%s worker=%d thread=%d", (int)worker, path,
                     (int)worker, (int)worker + 1000);
}

struct progress {
    int64_t before[64];
    int workers, least;
};

static bool all_went_on(void *arg) {
    struct progress *progress = arg;
    bool all = true;
    for (int i = 1; i <= progress->workers; i++)
        all = all && place->done[i] >= progress->before[i] + progress->least;
    return all;
}

/* Each of the lasting workers has been inside some times more. */
static void wait_for_progress(int least) {
    struct progress progress = {.workers = C_WORKERS + JAVA_WORKERS, .least = least};
    for (int i = 0; i < 64; i++)
        progress.before[i] = place->done[i];
    assert_true(wait_until(all_went_on, &progress, HANG_MS));
}

/* One of each side comes, works, and is killed wherever it is. */
static void kill_one_of_each(int64_t worker) {
    pid_t c = start_c(worker);
    struct remote *java = java_new(DOOMED_SESSION_MS);
    start_java(java, "c", worker + 1);
    wait_for_progress(LEAST / 4);
    kill(c, SIGKILL);
    place->dead[worker] = 1;
    wait_exit(c, HANG_MS);
    java_kill(java);
    place->dead[worker + 1] = 1;
    java_free(java);
}

void mixed_stress_with_kills(void **state) {
    (void)state;
    pid_t children[C_WORKERS];
    int commands[JAVA_WORKERS];
    open_place();
    for (int i = 0; i < C_WORKERS; i++)
        children[i] = start_c(1 + i);
    for (int i = 0; i < JAVA_WORKERS; i++)
        commands[i] = start_java(suite.java, i % 2 == 0 ? "j1" : "j2", 1 + C_WORKERS + i);
    wait_for_progress(LEAST);
    int rounds = getenv("HF_SOAK") != NULL ? SOAK_ROUNDS : KILL_ROUNDS;
    for (int round = 0; round < rounds; round++) {
        kill_one_of_each(1 + C_WORKERS + JAVA_WORKERS + 2 * round);
        wait_for_progress(LEAST / 4);
    }
    place->stop = 1;
    for (int i = 0; i < C_WORKERS; i++)
        assert_true(expect_exit(children[i], 0, HANG_MS));
    for (int i = 0; i < JAVA_WORKERS; i++)
        assert_memory_equal(java_answer(suite.java, commands[i]), "ok ", 3);

    int64_t done = 0;
    for (int i = 0; i < 64; i++)
        done += place->done[i];
    print_message("%lld times inside\n", (long long)done);
    assert_int_equal(place->meetings, 0);
    /* One that was killed between its counting and its saying so counts once more. */
    assert_in_range(place->counter, done, done + 2 * rounds);
    munmap(place, sizeof *place);
}
