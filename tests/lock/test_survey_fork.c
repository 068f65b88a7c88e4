/*
 * A fork while the keeper finds out what a thread is called (src/task/thread_record.c), for a
 * survey: what is known of a thread is not locked meanwhile, so that the thread goes on in the
 * child.
 *
 * The moment is made long by an open() of our own, which waits where a name is read.
 */
#include "support/world.h"

#include <fcntl.h>
#include <sys/syscall.h>

static atomic_bool stops; /* where a name is read */
static atomic_int reading;

static bool goes_on(void *unused) {
    (void)unused;
    return !atomic_load(&stops);
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
__attribute__((visibility("default"))) int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (atomic_load(&stops) && strstr(path, "/comm") != NULL) {
        atomic_fetch_add(&reading, 1);
        wait_until(goes_on, NULL, HANG_MS);
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static hf_options telling(void) {
    hf_options options = world_options();
    options.report_after_ms = 0;
    return options;
}

/* The same thread, in another process: it is known by what was known of it. */
static int child_locks(void *arg) {
    const struct world *w = arg;
    hf_options options = world_options();
    hf_client *client;
    hf_lock *lock;
    atomic_store(&stops, false);
    if (hf_open(server_url(w->server), &options, &client) != HF_OK ||
        hf_lock_new(client, "child's", &lock) != HF_OK)
        return 1;
    if (hf_lock_acquire(lock) != HF_OK || hf_lock_release(lock) != HF_OK)
        return 2;
    return 0;
}

static void *ask(void *client) {
    hf_fleet *fleet = NULL;
    if (hf_survey(client, NULL, &fleet) == HF_OK)
        hf_fleet_free(fleet);
    return NULL;
}

WORLD_CASE_WITH(the_thread_goes_on_in_the_child, telling()) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(wait_until(server_questions_are_received, w->server, HANG_MS));
    atomic_store(&stops, true);
    pthread_t thread = started(ask, w->rival);
    assert_true(world_wait_atomic(&reading, 1, HANG_MS));
    assert_true(expect_exit(run_child(child_locks, w), 0, HANG_MS));
    atomic_store(&stops, false);
    pthread_join(thread, NULL);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

RUN_CASES(world_start_server, world_stop_server)
