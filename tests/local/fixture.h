/* What the tests of local: need: directories, a look at the processes that belong to one,
 * connections.
 *
 * Servers of local: are nobody's children and outlive the client that started them, so the test program has
 * a janitor: a process that waits until the program has ended, however, and then kills what still
 * names one of its directories in its environment. */
#ifndef HF_TEST_LOCAL_FIXTURE_H
#define HF_TEST_LOCAL_FIXTURE_H

#include <hiredis/hiredis.h>

#include "redis/route/local/local.h"
#include "support/wait.h"

/* cmocka's group set-up and tear-down: the janitor, and the place for directories. */
int local_setup(void **state);
int local_teardown(void **state);

/* The path of a directory that does not exist yet; the caller frees it. */
char *local_dir(void);

/* A case with such a directory, `dir`; what belongs to it is killed afterwards, even if the case failed. */
extern char *local_case_dir;
int local_case_begin(void **state);
int local_case_end(void **state);
#define LOCAL_CASE(name)                                                                           \
    static void name##_in(char *dir);                                                              \
    CASE_AROUND(name, local_case_begin, local_case_end) {                                          \
        name##_in(local_case_dir);                                                                 \
    }                                                                                              \
    static void name##_in(char *dir __attribute__((unused)))

/* Kills all processes that belong to the directory and waits until they are gone. */
void local_stop(const char *dir);

/* ---- Processes ---- */

/* Running processes with HOLDFAST_LOCAL_DIR=`dir` in their environment. */
enum local_part { LOCAL_SERVER, LOCAL_SHELL, LOCAL_ANY };
size_t local_processes(const char *dir, enum local_part part, pid_t *pids, size_t cap);
size_t local_count(const char *dir, enum local_part part);
pid_t local_server_pid(const char *dir);  /* fails the test unless there is exactly one */
pid_t local_monitor_pid(const char *dir); /* the same for its monitor; waits until there is one */
bool local_wait_count(const char *dir, enum local_part part, size_t count);
bool process_has_env(pid_t pid, const char *entry);
pid_t process_parent(pid_t pid); /* 0: it is gone */

/* True if nobody holds the lock on the directory. Does not need cmocka, so children may ask. */
bool local_lock_free(const char *dir);

/* ---- Using it ---- */

/* hfi_local_ensure() with the usual limit; fails the test on an error. */
void local_ensure(const char *dir, int64_t idle_ms);
int local_try(const char *dir, int64_t idle_ms, hf_error *error); /* the same, returning it */

/* A connection to the server's socket, or NULL; and a command whose answer is compared as text. */
redisContext *local_connect(const char *dir);
bool answers(redisContext *connection, const char *expected, const char *format, ...);

#endif
