/* Waiting, children, shared memory and temporary directories for tests.
 *
 * Include as "support/wait.h". Every limit is a hang limit: give at least ten times what is
 * expected. Nothing here needs cmocka. When the fixture itself breaks (no memory, no fork) it
 * prints why and aborts the program, so callers need not check. */
#ifndef HF_TEST_WAIT_H
#define HF_TEST_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

/* Prints a sentence to stderr and aborts. For faults of the fixture, not of what is tested. */
void support_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* What a test program ends with that this machine cannot run: ctest counts it as skipped. */
#define EXIT_SKIPPED 77

/* A copy in which every byte that is no letter or digit is `prefix` and two hex digits: "%" for
 * urls, "\\x" for redis.conf. The caller frees it. */
char *support_escape(const char *text, const char *prefix);

/* `own_text *text = ...`: what a variable of such a type points to is freed at the end of its
 * block, in the reverse order of the variables, unless an assertion failed. So are own_lock,
 * own_client, own_server and others, beside what they free. */
#define own_text __attribute__((cleanup(own_text_free), unused)) char
static inline void own_text_free(char **text) {
    free(*text);
}

/* Both abort when there is no memory. The caller frees them. */
char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *zeroed(size_t count, size_t size); /* zeroed */

/* ---- Time ------------------------------------------------------------------------------------ */

/* CLOCK_BOOTTIME in milliseconds: the clock that leases are compared with. */
/* NOLINTNEXTLINE(readability-redundant-declaration): cli.h has one, too */
int64_t now_ms(void);

/* How long a hold with this lease is trusted, unless `clock_drift_ppm` is set. */
static inline int64_t trusted_ms(int64_t lease_ms) {
    return lease_ms - (lease_ms + 99) / 100;
}

/* Sleeps exactly that long or a little longer, signals or not. Only where nothing can be waited
 * for, with a comment that says why; else there are wait_until(), WAIT_FOR() and HOLDS_FOR(). */
void sleep_ms(int64_t duration_ms);

/* A stress test: a client works for a while, or the next disturbance comes. The test picks the
 * time, often at random, so there is no event to wait for. */
void linger(int64_t duration_ms);

/* How long a test waits before it calls something hung: no test takes a tenth of it on an idle machine. */
#define HANG_MS 60000

/* A watchdog for holds that must not be lost: a renewal may be two thirds of it late, and no pause
 * of a busy machine is that long. What has a shorter lease may be lost by right, so only what is
 * meant to be lost has one. */
#define ENDURING_MS 4500

/* Asks `condition` every millisecond. True as soon as it is; false when `limit_ms` passed without
 * it. */
typedef bool wait_condition(void *arg);
bool wait_until(wait_condition *condition, void *arg, int64_t limit_ms);

/* The same for an expression, which is evaluated anew each time:
 *     assert_true(WAIT_FOR(server_clients(s) == 2, HANG_MS)); */
#define WAIT_FOR(condition, limit_ms)                                                                    \
    __extension__({                                                                                      \
        int64_t wait_end_ms = now_ms() + (limit_ms);                                                     \
        bool wait_last, wait_met;                                                                        \
        do {                                                                                             \
            /* Asked once more after the limit: a machine that slept must not fail what has happened. */ \
            wait_last = now_ms() >= wait_end_ms;                                                         \
            wait_met = (condition);                                                                      \
        } while (!wait_met && !wait_last && wait_a_moment());                                            \
        wait_met;                                                                                        \
    })
bool wait_a_moment(void); /* a millisecond, between two looks at a condition; true */

/* For what must not happen, where no event bounds it: whether the expression, looked at all the
 * time, holds for so long. */
#define HOLDS_FOR(condition, duration_ms) (!WAIT_FOR(!(condition), duration_ms))

/* ---- Child processes ------------------------------------------------------------------------- */

/* Forks a child that runs `body(arg)` and ends with its result as exit status, without atexit
 * handlers and leak checks. It dies by SIGKILL when the THREAD that called run_child ends, so call
 * it from one that stays (the main one). In the child, never use cmocka's assertions (they would
 * jump into the parent's copy of the test runner): return a number that says what was wrong. */
typedef int child_body(void *arg);
pid_t run_child(child_body *body, void *arg);

int child_waits_for_ever(void *unused); /* a body: it ends by a signal */

/* Waits for a child and returns how it ended, as a shell tells it: the exit status, or 128 + the
 * signal. When the limit passes it kills and reaps the child and returns -1. */
int wait_exit(pid_t pid, int64_t limit_ms);

/* True when the child ended with `status` (as above) within the limit; else prints what happened
 * instead. */
bool expect_exit(pid_t pid, int status, int64_t limit_ms);

/* SIGKILL and reap. For a child that is expected to be alive. */
void kill_child(pid_t pid);

/* The letter that /proc tells of a process: 'R', 'S', 'T' for stopped, 'Z' for ended but not yet
 * reaped. '\0' when there is no such process. */
char process_state(pid_t pid);

/* False once no such process exists. One that has ended and was not reaped yet counts as gone. */
bool process_alive(pid_t pid);

/* Sends SIGSTOP and returns when the process has stopped; kill(pid, SIGCONT) lets it go on. */
void stop_process(pid_t pid);

/* A thread; the case fails, or rather ends, if there is none to be had. */
pthread_t started(void *(*body)(void *), void *arg);

/* ---- Shared between processes ---------------------------------------------------------------- */

/* Zeroed memory that children forked later share. Use atomics in it. */
void *shared_new(size_t size);
void shared_free(void *memory, size_t size);

/* A meeting point for a fixed number of threads and processes, made before they are. Usable any
 * number of times. No participant holds anything, so one that is killed can only make the others
 * reach their limit. */
struct barrier;
struct barrier *barrier_new(unsigned parties);

/* False when not everybody came in time; the barrier is of no more use then. */
bool barrier_wait(struct barrier *barrier, int64_t limit_ms);
void barrier_free(struct barrier *barrier); /* when nobody waits any more; NULL is fine */
#define own_barrier __attribute__((cleanup(own_barrier_free), unused)) struct barrier
static inline void own_barrier_free(struct barrier **barrier) {
    barrier_free(*barrier);
}

/* ---- Temporary directories ------------------------------------------------------------------- */

/* A new private directory (0700), with a short path. The caller frees the string. It is removed
 * with all it holds by temp_dir_remove(), or when the program ends, however it ends. */
char *temp_dir(void);
void temp_dir_remove(const char *path);

#endif
