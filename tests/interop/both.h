/* C and Java on one name, where servers may change: for the programs beside the big suite.
 *
 *     both_start(url, "PUBSUB SHARDCHANNELS", server_of);
 *     struct both both = both_on("nightly", "plain", HF_PLAIN);
 *     both_c_takes(&both, HF_WATCHDOG);
 *     int waiting = both_java_waits(&both);
 *     ...
 *     both_end(&both);
 *     both_stop();
 */
#ifndef HF_TEST_INTEROP_BOTH_H
#define HF_TEST_INTEROP_BOTH_H

#include "support/case.h"
#include "support/java.h"
#include "support/new_lock.h"
#include "support/server.h"
#include "support/wait.h"

#include <holdfast/holdfast.h>

/* Long for a hand-over by message, and short against the TTL of every hold here and against any waiter's own
 * poll: a waiter that wakes within it was notified. */
#define BOTH_BY_MESSAGE_MS ((int64_t)5000)
/* A hold of ours that Java waits for across something that sends it no message: it is given this as
 * the remaining time. */
#define BOTH_WAIT_MS ((int64_t)12000)
#define BOTH_HANG_MS ((int64_t)90000)

/* Builds the Java program. 0, or what the test program is to end with. */
int both_build(void);

/* A client on each side. `channels` lists the channels of a server that match a pattern; `server_of` is who
 * serves a name now. False: Redisson does not connect. */
bool both_start(const char *url, const char *channels, struct server *(*server_of)(const char *));
void both_stop(void);

struct both {
    const char *name;
    hf_lock *lock;
    int thread; /* Java's; its handle has the name of the lock */
};

struct both both_on(const char *name, const char *java_kind, any_kind kind);
void both_end(struct both *both); /* nothing is left on the server */

/* The command, when Java sleeps: it has listened, and then tried in vain. */
int both_java_waits(struct both *both);
void both_assert_java_gets_it(struct both *both, int command, int64_t limit_ms);
void both_java_takes(const struct both *both);
/* Perhaps after errors that it throws while there is no primary. */
void both_java_unlocks(const struct both *both);

void both_c_takes(struct both *both, int64_t lease_ms);
/* Its lease may have ended before, if it was to be reported to Java. */
void both_c_releases(struct both *both);
/* The operation, when somebody listens for the lock at the server that serves it. */
hf_op *both_c_waits(struct both *both);
void both_wait_listened(const struct both *both);
void both_assert_c_still_waits(hf_op *op);
void both_assert_c_gets_it(struct both *both, hf_op *op, int64_t limit_ms); /* and releases it */

/* Each side waits for the other, in turn, and is woken by a message. */
void both_wake_each_other(const char *name, const char *java_kind, any_kind kind);

#define assert_java(answer, ...) assert_string_equal(java_call(both_java(), __VA_ARGS__), answer)
struct remote *both_java(void);

#endif
