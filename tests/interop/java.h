/* A JVM with real Redisson clients in it, driven by line commands (java/.../Main.java tells
 * which).
 *
 *     struct java *j = java_start(dir);
 *     java_call(j, "client c1 %s watchdog=3000", url);
 *     int id = java_send(j, "lock L thread=5");            // runs on its own thread over there
 *     ...
 *     assert_string_equal(java_answer(j, id), "ok");
 *
 * One thread at a time may use it. Answers stay valid until java_free(). A JVM never outlives
 * the test program: it ends when its input does, and dies with the thread that started it. */
#ifndef HF_TEST_INTEROP_JAVA_H
#define HF_TEST_INTEROP_JAVA_H

#include <stdbool.h>
#include <stdint.h>

struct java;

/* How long a command may take before it counts as hung. */
#define JAVA_LIMIT_MS ((int64_t)60 * 1000)

/* `dir` is where build.sh has put interop.jar and lib/. Returns when the JVM answers. */
struct java *java_start(const char *dir);

/* Ends the JVM in good order (by closing its input) and frees everything. NULL is fine. */
void java_free(struct java *java);

/* SIGKILL: its clients close nothing. Commands are not answered any more. */
void java_kill(struct java *java);

/* Sends a command; returns the id that its answer will carry. */
int java_send(struct java *java, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Waits for an answer: "ok", "ok VALUE", "err CLASS MESSAGE", or "hung" when none came in time. */
const char *java_answer(struct java *java, int id);
const char *java_answer_within(struct java *java, int id, int64_t limit_ms);

/* Whether the answer has come by now. */
bool java_answered(struct java *java, int id);

/* Sends and waits. */
const char *java_call(struct java *java, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Percent-encodes a name or url for use as one word of a command. The caller frees it. */
char *java_word(const char *text);

#endif
