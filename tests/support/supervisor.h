/* The process that owns what a test program must not leave behind: servers and temporary
 * directories.
 *
 * It is for the rest of the test support; tests use server.h and wait.h. Each process that calls in
 * here has a supervisor of its own, started at the first call. Calls of several threads take turns. */
#ifndef HF_TEST_SUPERVISOR_H
#define HF_TEST_SUPERVISOR_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Starts a program as the supervisor's child, with stdout and stderr appended to `log`. `argv` ends
 * with NULL. A program that cannot be run is one that ends at once, with status 127. */
pid_t supervisor_spawn(const char *log, const char *const *argv);

/* True while a spawned process runs; false once it has ended, however. */
bool supervisor_running(pid_t pid);

/* Sends a signal to a spawned process. It cannot hit a stranger: pids are reaped by the supervisor
 * only. */
void supervisor_signal(pid_t pid, int signal_number);

/* Sends the signal, wakes the process if it is stopped, and returns when it has ended; after
 * `timeout_ms` it is killed. Fine when it has ended already. */
void supervisor_end(pid_t pid, int signal_number, int64_t timeout_ms);

/* Directories to be removed when the program ends, and one to be removed now. */
void supervisor_adopt_dir(const char *path);
void supervisor_remove_dir(const char *path);

#endif
