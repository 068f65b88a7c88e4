/* A JVM with the Java actor in it: real clients of Redisson or of Curator, driven by line commands
 * (tests/java; Main.java lists the commands).
 *
 *     int status = java_build(JAVA_REDISSON); // in main
 *     struct remote *j = java_start(JAVA_REDISSON);
 *     java_call(j, "client c1 %s watchdog=3000", url);
 *     int id = java_send(j, "lock L thread=5");            // runs on a thread of its own over there
 *     ...
 *     assert_string_equal(java_answer(j, id), "ok");
 *
 * Include as "support/java.h". It is a remote program: support/remote.h describes each call.
 * Answers are "ok", "ok VALUE", "err CLASS MESSAGE".
 *
 * Environment: HF_JAVA_DIR is where the jars are kept, instead of the build directory. HF_REDISSON_VERSION and
 * HF_CURATOR_VERSION name another version of a library than the pom's. */
#ifndef HF_TEST_JAVA_H
#define HF_TEST_JAVA_H

#include "support/remote.h"

/* A row reads better when it names the actor. */
#define java_kill remote_kill
#define java_send remote_send
#define java_answer remote_answer
#define java_answer_within remote_answer_within
#define java_answered remote_answered
#define java_call remote_call
#define JAVA_LIMIT_MS REMOTE_LIMIT_MS

/* The libraries, and what java_build() can be asked for instead: the classes of ZooKeeper's server alone. */
#define JAVA_REDISSON "redisson"
#define JAVA_CURATOR "curator"
#define JAVA_SERVER "server"

const char *java_dir(void);

/* Another version of the library than the pom's, as the environment names it; NULL: the pom's. */
const char *java_version(const char *library);

/* Runs build.sh, whose output says why when it cannot build. Returns 0, or the exit status for the program:
 * EXIT_SKIPPED (support/wait.h) if this machine cannot, else 1. */
int java_build(const char *library);

/* Starts a JVM; returns when it answers. */
struct remote *java_start(const char *library);
void java_free(struct remote *java);

/* Ends every JVM that is still there, the hung ones too. */
void java_kill_all(void);

/* Percent-encodes a name or url for use as one word of a command. The caller frees it. */
char *java_word(const char *text);

#endif
