/* The channel on which holdfast clients speak to each other, and what is said there of broken
 * holds.
 *
 * A break publishes `broken 1 <db> <key>`: version, database, and the key as it is on the server,
 * with its prefix and whatever bytes it has. Channels know neither databases nor prefixes, hence
 * both are in it. Anybody may publish there, so it is a hint: holds on that key are verified. */
#ifndef HFI_REDIS_ASK_H
#define HFI_REDIS_ASK_H

#include "redis/command.h"

#include <stdbool.h>

struct hfi_ask;
struct hfi_engine;
struct hfi_redis;

#define HFI_ASK_CHANNEL "holdfast_ask"

int hfi_ask_new(struct hfi_redis *redis, struct hfi_ask **ret);
/* On the keeper's thread, before the connection goes. */
void hfi_ask_stop(struct hfi_ask *ask);
void hfi_ask_free(struct hfi_ask *ask); /* NULL is fine */

/* The engine's operation of this name. */
void hfi_ask_listen(struct hfi_engine *engine, bool on);

/* There is word that any hold may be gone. Any thread. */
void hfi_ask_changed(struct hfi_redis *redis);

/* Adds the arguments by which a script tells of a break: the channel, and what comes before the
 * key. */
void hfi_ask_say_broken(const struct hfi_redis *redis, struct hfi_command *command);
/* A break could not be told of: logs the first. */
void hfi_ask_refused(struct hfi_redis *redis);

#endif
