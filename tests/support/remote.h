/* A program of another process that is driven by line commands: a JVM with Redisson in it, or an
 * actor of an older version of the library.
 *
 *     struct remote *actor = remote_start(argv);
 *     int id = remote_send(actor, "acquire plain nightly owner=5");
 *     ...
 *     assert_string_equal(remote_answer(actor, id), "ok");
 *
 * It reads lines "ID command" and answers each by a line "ID answer", in any order; a command
 * `ping` is answered "ok". One thread at a time may use it. Answers stay valid until remote_free().
 * The program never outlives the test: it is expected to end when its input does, and dies with the
 * thread that started it. */
#ifndef HF_TEST_REMOTE_H
#define HF_TEST_REMOTE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct remote;

/* How long a command may take before it counts as hung. */
#define REMOTE_LIMIT_MS ((int64_t)60 * 1000)

/* `argv` ends with NULL; its first word is looked up in PATH. Returns when the program answers. */
struct remote *remote_start(const char *const *argv);

/* Ends it in good order (by closing its input) and frees everything. NULL is fine. */
void remote_free(struct remote *remote);

/* To stop it, for example; 0 once it is gone. */
pid_t remote_pid(const struct remote *remote);

/* SIGKILL; gone when this returns. Commands are not answered any more. */
void remote_kill(struct remote *remote);

/* Sends a command; returns the id that its answer will carry. */
int remote_send(struct remote *remote, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Waits for an answer; "hung" when none came in time, "gone" when the program has ended. */
const char *remote_answer(struct remote *remote, int id);
const char *remote_answer_within(struct remote *remote, int id, int64_t limit_ms);

/* Whether the answer has come by now. */
bool remote_answered(struct remote *remote, int id);

/* Sends and waits. */
const char *remote_call(struct remote *remote, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
