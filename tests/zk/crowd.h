/* One ZooKeeper server for a program, two clients of it that meet there, and what the server knows of them.
 *
 * A wait that is to go on is one whose node is seen at the server; one that is to end is waited for,
 * with the test's own limit. Include as "zk/crowd.h". */
#ifndef HF_TEST_ZK_CROWD_H
#define HF_TEST_ZK_CROWD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/wait.h"
#include "support/zk.h"
#include "support/zk_client.h"

#include <holdfast/holdfast.h>

#define HANG_MS 60000
#define SURVIVES_MS 30000 /* a session that nothing ends on a busy machine, under a sanitizer too */

struct crowd {
    hf_client *ours, *theirs;
};

/* For cmocka_run_group_tests(). */
int crowd_start_server(void **state);
int crowd_stop_server(void **state);
struct zk *crowd_server(void);

hf_client *crowd_client(void);
void crowd_begin(struct crowd *crowd);
void crowd_end(struct crowd *crowd);

hf_lock *crowd_lock(hf_client *client, const char *name, hf_kind kind);

/* Begins to acquire for that owner, with the watchdog; join it with crowd_join(). */
hf_op *crowd_acquire(hf_lock *lock, hf_owner owner);
/* Waits for the end of an operation, frees it and returns its result. */
int crowd_join(hf_op *op);
bool crowd_is_done(hf_op *op);

/* Runs the tool that is tested beside the library, `holdfast COMMAND NAME`, and returns its exit status. */
int crowd_tool(const char *command, const char *name);

/* Waits until the server has `count` ephemeral nodes whose path contains `text`. */
void crowd_await_nodes(const char *text, int count);
/* The same for paths that are watched. */
void crowd_await_watches(const char *text, int count);
/* Waits until there is nothing beneath the path. The server deletes a container that has been empty for a
 * while, so there may be no such node either. */
void crowd_await_empty(struct zk_client *eyes, const char *path);

#endif
