/* Tracking: the server reports changes of keys that are held, or that a waiter waits for (client-side
 * caching, `CLIENT TRACKING`), as messages on the pub/sub connection.
 *
 * Nothing is kept of it per connection or per key. A command that reads the keys to be reported has
 * two others in front of it, each time: one turns tracking on, with the pub/sub connection's id, and
 * one asks for the next command's keys to be remembered. The server reports a key once, then forgets
 * it; it forgets in silence if the connection that asked writes it. A connection that ends takes its
 * keys with it.
 *
 * A report is a hint, never a proof: of another database, an extension, a full table. */
#ifndef HFI_REDIS_PUBSUB_TRACK_H
#define HFI_REDIS_PUBSUB_TRACK_H

#include "redis/exchange/env.h"

#include "net/resp/wire/reply.h"

struct hfi_node;
struct hfi_tracker;

/* The commands in front of a read of keys to be tracked. */
#define HFI_TRACK_FRONTS 2

int hfi_tracker_new(struct hfi_redis *redis, struct hfi_node *node, struct hfi_tracker **ret);
/* On the keeper's thread, before the connection is closed. NULL is fine. */
void hfi_tracker_stop(struct hfi_tracker *tracker);
void hfi_tracker_free(struct hfi_tracker *tracker); /* NULL is fine */

/* The pub/sub connection came up, before anything else is sent on it, or was lost. On the keeper's
 * thread. */
void hfi_tracker_state(struct hfi_tracker *tracker, bool up);
/* A message of the pub/sub connection, on the thread that reads it. True: it was the tracker's. */
bool hfi_tracker_push(struct hfi_tracker *tracker, const struct hfi_reply *message);

/* ---- Any thread ---- */

/* The server may report something, now or when pub/sub is there. */
bool hfi_tracker_is_possible(const struct hfi_tracker *tracker);
/* The id of the pub/sub connection; 0: the server reports nothing now. */
int64_t hfi_tracker_target(const struct hfi_tracker *tracker);

/* Writes the command that turns tracking on; a read behind hfi_track_next() is then tracked. Each is
 * a whole command behind the open one, and leaves the next open. */
void hfi_track_on(struct hfi_command *command, int64_t target);
void hfi_track_next(struct hfi_command *command);
/* Whether the reply to the first turned it on. Remembers what the server refuses for good. */
bool hfi_tracker_is_on(struct hfi_tracker *tracker, int64_t target, const struct hfi_reply *reply);
/* Whether the reply to the second allowed it. */
bool hfi_tracker_is_next(struct hfi_tracker *tracker, const struct hfi_reply *reply);

/* As if the server had reported this name. */
void hfi_tracker_note(struct hfi_tracker *tracker, const char *name, size_t len);

#endif
