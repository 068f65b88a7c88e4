/* A JVM with real Redisson clients in it, driven by line commands (java/.../Main.java tells
 * which).
 *
 *     struct remote *j = java_start(dir);
 *     java_call(j, "client c1 %s watchdog=3000", url);
 *     int id = java_send(j, "lock L thread=5");            // runs on its own thread over there
 *     ...
 *     assert_string_equal(java_answer(j, id), "ok");
 *
 * It is a remote program (support/remote.h): see there for what each call does. Answers are "ok",
 * "ok VALUE", "err CLASS MESSAGE". */
#ifndef HF_TEST_INTEROP_JAVA_H
#define HF_TEST_INTEROP_JAVA_H

#include "support/remote.h"

/* The rows read better when they say whom they talk to. */
#define java_kill remote_kill
#define java_send remote_send
#define java_answer remote_answer
#define java_answer_within remote_answer_within
#define java_answered remote_answered
#define java_call remote_call
#define JAVA_LIMIT_MS REMOTE_LIMIT_MS

/* Runs build.sh, whose output tells why when it cannot. Returns 0 and where the jars are, or what the program is to
 * end with: 77 if this machine cannot. */
int java_build(const char **ret_dir);

/* `dir` is where build.sh has put interop.jar and lib/. The environment variable
 * HF_INTEROP_REDISSON names another version of Redisson than the one of lib/. */
struct remote *java_start(const char *dir);
void java_free(struct remote *java);

/* Ends every JVM that is still there, the hung ones too. */
void java_kill_all(void);

/* Percent-encodes a name or url for use as one word of a command. The caller frees it. */
char *java_word(const char *text);

#endif
