/* A server that misbehaves: the one server in these tests that is not real.
 *
 *     static void answer(struct hostile_peer *peer, const char *command, size_t length,
 *                        void *user) {
 *         if (!hostile_handshake(peer, command, length))
 *             hostile_send_text(peer, "$2147483647\r\n");
 *     }
 *     struct hostile *h = hostile_start(answer, NULL);
 *     hf_open(hostile_url(h), NULL, &client);
 *
 * Include as "support/hostile.h". It listens on a Unix socket and splits what comes into commands.
 * Each connection has a thread of its own, which calls `answer` for one command after the other, so
 * an answer may take its time or flood. What `user` points to is shared by those threads. When a
 * single odd reply in an otherwise sound session is enough, proxy_forge_reply does it with a real
 * server. */
#ifndef HF_TEST_HOSTILE_H
#define HF_TEST_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hostile;
struct hostile_peer;

/* `command` is one command's RESP bytes, not terminated. A stream that is no RESP arrives as it was
 * read. */
typedef void hostile_answer(struct hostile_peer *peer, const char *command, size_t length,
                            void *user);

struct hostile *hostile_start(hostile_answer *answer, void *user);

/* With a fixed script: on every connection the n-th command is answered with the n-th entry; later
 * ones get no answer. An entry whose bytes are NULL closes the connection. The entries must outlive
 * it. */
struct hostile_reply {
    const char *bytes;
    size_t length; /* 0: the length of the string */
};
struct hostile *hostile_start_script(const struct hostile_reply *replies, size_t count);

/* Closes everything and joins its threads. NULL is fine. */
void hostile_free(struct hostile *hostile);

const char *hostile_url(const struct hostile *hostile);    /* unix:///path */
const char *hostile_socket(const struct hostile *hostile); /* the path alone */

/* ---- Inside an answer ------------------------------------------------------------------------ */

/* These return false once the client has gone, so that a flood can end. They block while it does
 * not read. */
bool hostile_send(struct hostile_peer *peer, const void *bytes, size_t length);
bool hostile_send_text(struct hostile_peer *peer, const char *text);

/* `piece` bytes at a time, each when the client has taken the one before. */
bool hostile_send_slowly(struct hostile_peer *peer, const void *bytes, size_t length, size_t piece);

/* Ends the connection when the answer returns. */
void hostile_close(struct hostile_peer *peer);

/* Whether the command's name (first word) is this one, whatever the case. */
bool hostile_is(const char *command, size_t length, const char *name);

/* Answers what a client asks before its first real command (HELLO as an unknown command, AUTH,
 * SELECT, CLIENT, PING, INFO, TIME, SCRIPT) as an ordinary Redis 7 would, and returns true; false
 * for any other command. */
bool hostile_handshake(struct hostile_peer *peer, const char *command, size_t length);

/* ---- What came ------------------------------------------------------------------------------- */

size_t hostile_connections(struct hostile *hostile);
size_t hostile_commands(struct hostile *hostile); /* answered, the answer's function has returned */
bool hostile_wait_commands(struct hostile *hostile, size_t count, int64_t limit_ms);

#endif
