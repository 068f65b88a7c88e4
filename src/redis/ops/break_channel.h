/* The pub/sub channel that all holdfast clients share. It carries notifications of broken holds,
 * and survey questions, which survey_responder.h handles.
 *
 * A break publishes `broken 1 <db> <key>`: version, database, and the key as it is on the server,
 * with its prefix and arbitrary bytes. Channels know neither databases nor prefixes, so the message
 * has both. Any client may publish there, so a message is a hint: holds on that key are verified.
 */
#ifndef HFI_REDIS_OPS_BREAK_CHANNEL_H
#define HFI_REDIS_OPS_BREAK_CHANNEL_H

#include "net/resp/wire/command.h"

#include <stdbool.h>
#include <stddef.h>

struct hfi_break_channel;
struct hfi_engine;
struct hfi_exchange;
struct hfi_node;
struct hfi_redis;

#define HFI_BREAK_CHANNEL "holdfast_ask"

/* For one server, which has its registry of channels. */
int hfi_break_channel_new(struct hfi_redis *redis, struct hfi_node *node,
                          struct hfi_break_channel **ret);
/* On the keeper's thread, before the connection is closed. NULL is fine. */
void hfi_break_channel_stop(struct hfi_break_channel *break_channel);
void hfi_break_channel_free(struct hfi_break_channel *break_channel); /* NULL is fine */

/* `listen` of struct hfi_observe_ops, for all servers of the engine. */
void hfi_break_channel_subscribe(struct hfi_engine *engine, bool on);

/* A new server is in use: subscribes there, too, if the engine does anywhere. On the keeper's
 * thread. */
void hfi_break_channel_join(struct hfi_redis *redis, struct hfi_node *node);

/* Something indicates that any hold at this server may be gone. Any thread. */
void hfi_break_channel_changed(struct hfi_break_channel *break_channel);

/* The name in a message that announces a break in our database, under our prefix; NULL: the message
 * is another one. */
const char *hfi_break_channel_name_in(const struct hfi_redis *redis, const char *message,
                                      size_t len, size_t *ret_len);

/* Writes the message of a break, but for the key, which follows; returns its length. */
size_t hfi_break_channel_head(const struct hfi_redis *redis, char *to, size_t size);
/* Adds the arguments with which a script publishes a break: the channel, and the part of the
 * message before the key. */
void hfi_break_channel_publish(const struct hfi_redis *redis, struct hfi_command *command);
/* The server refused to publish a break: logs the first time. */
void hfi_break_channel_refused(struct hfi_exchange *x);

#endif
