/* Lua scripts on a real server, one call at a time: what the tests of this folder share.
 *
 * Faults of the fixture (a script that does not load, no connection) print why and abort; replies,
 * errors included, are the caller's to judge. */
#ifndef HF_TEST_SCRIPT_H
#define HF_TEST_SCRIPT_H

#include "support/server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text of a script as the build composed it, without its .lua; the caller frees. */
char *script_text(const char *name);
/* The same as version 0.1 of this library had it: its clients go on running it beside ours. */
char *script_text_0_1(const char *name);
/* The text with the one place where it says `from` saying `to`; the caller frees. */
char *script_changed(const char *text, const char *from, const char *to);

/* SCRIPT LOAD; the SHA-1 is the caller's to free. */
char *script_load(struct server *server, const char *text);

/* Loads a script by its name, with a Lua expression in place of the one question it asks for the
 * time. The SHA-1 is the caller's to free. */
char *script_load_timed(struct server *server, const char *name, const char *time);
char *script_load_timed_text(struct server *server, const char *text, const char *time);

/* A connection of its own, as the given ACL user, or as the default one when `user` is NULL. */
redisContext *connect_as(struct server *server, const char *user, const char *password);

/* The server's TIME in ms, as the scripts compute it. */
int64_t server_time_ms(struct server *server);

/* A command line cut at its spaces. Words are at most 255 bytes, and none contains a space. */
struct words {
    size_t count;
    const char *item[32];
    char text[1024];
};

void words_cut(struct words *words, const char *line);
void words_add(struct words *words, const char *word);
redisReply *words_send(redisContext *connection, const struct words *words);

/* EVALSHA with what redis-cli --eval takes: keys, a comma between spaces, arguments. An argument
 * "@+n" or "@-n" is the server's time `base_ms` plus or minus n. */
redisReply *script_call(redisContext *connection, const char *sha, const char *keys_and_args,
                        int64_t base_ms);

/* The time alone, in us, is how a script of a lock says {1, value, now}: written out so. All other
 * replies stay as they are. */
redisReply *script_written_out(redisReply *reply, long long value);

/* The text of an error reply, without what a server before 7.0 puts around an error that was raised
 * inside a script. */
const char *script_error(const redisReply *reply);

/* ---- Who receives what is published ------------------------------------------------------------ */

/* Listens on one channel, to PUBLISH and where the server knows it to SPUBLISH. */
struct listener;
struct listener *listener_start(struct server *server, const char *channel);

/* What arrived since the last call, as "publish 0" or "spublish 0", ", " between. Exact: whatever
 * the server published before this call is in it. Valid until the next call. */
const char *listener_received(struct listener *listener);
void listener_stop(struct listener *listener);

bool server_knows(struct server *server, const char *command);

#endif
