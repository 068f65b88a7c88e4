/* The channel on which holdfast clients speak to each other, and what is said there of broken
 * holds; and questions, which are left to answer.h.
 *
 * A break publishes `broken 1 <db> <key>`: version, database, and the key as it is on the server,
 * with its prefix and whatever bytes it has. Channels know neither databases nor prefixes, hence
 * both are in it. Anybody may publish there, so it is a hint: holds on that key are verified. */
#ifndef HFI_REDIS_RUMOUR_H
#define HFI_REDIS_RUMOUR_H

#include "redis/command.h"

#include <stdbool.h>

struct hfi_rumours;
struct hfi_engine;
struct hfi_exchange;
struct hfi_node;
struct hfi_redis;

#define HFI_RUMOUR_CHANNEL "holdfast_ask"

/* What is said at one server, which has its registry of channels. */
int hfi_rumours_new(struct hfi_redis *redis, struct hfi_node *node, struct hfi_rumours **ret);
/* On the keeper's thread, before the connection goes. NULL is fine. */
void hfi_rumours_stop(struct hfi_rumours *rumours);
void hfi_rumours_free(struct hfi_rumours *rumours); /* NULL is fine */

/* The engine's operation of this name, for all its servers. */
void hfi_rumours_listen(struct hfi_engine *engine, bool on);

/* There is a server more: listens there, too, if it does anywhere. On the keeper's thread. */
void hfi_rumours_join(struct hfi_redis *redis, struct hfi_node *node);

/* There is word that any hold at this server may be gone. Any thread. */
void hfi_rumours_changed(struct hfi_rumours *rumours);

/* Adds the arguments by which a script tells of a break: the channel, and what comes before the
 * key. */
void hfi_rumours_say_broken(const struct hfi_redis *redis, struct hfi_command *command);
/* A break could not be told of: logs the first. */
void hfi_rumours_refused(struct hfi_exchange *x);

#endif
