/* The survey responder: answers the questions of surveys (survey.c) with what this client holds and
 * waits for.
 *
 * A question is a message on HFI_BREAK_CHANNEL:
 *
 *     ask 1 <number> <most bytes> <wishes> <db> <length of prefix> <prefix><pattern>
 *
 * The number is the asker's, of 32 hexadecimal digits. There is a letter for each wish: h for
 * holds, w for waits, n for numbers, t for latencies by name. `-`, like any unknown letter, stands
 * for nothing. The answer is one JSON text on `holdfast_tell:<number>`, of at most so many bytes.
 * It has the names that begin with the asker's prefix and match the pattern (none: all do), without
 * the prefix.
 *
 * A client that would answer also subscribes to a channel of its own, `holdfast_tell:<db>:<its
 * uuid>`, on which nothing is published. By PUBSUB NUMSUB the asker finds out which clients should
 * have answered, and did not.
 *
 * Any client may ask. So at most ten questions a second are answered, further ones with
 * `tells_nothing`. An answer costs little if nobody subscribes to it. */
#ifndef HFI_REDIS_FLEET_SURVEY_RESPONDER_H
#define HFI_REDIS_FLEET_SURVEY_RESPONDER_H

#include "redis/exchange/env.h"

#include <stdbool.h>
#include <stddef.h>

struct hfi_survey_responder;
struct hfi_node;
struct hfi_redis;

#define HFI_ASK "ask 1 "
#define HFI_TELL_CHANNEL "holdfast_tell:"
#define HFI_ANSWER_MAX (1024 * 1024) /* no matter how much the question allows */

/* HF_WANT_... as letters, and a NUL. */
#define HFI_WISHES_SIZE 8
void hfi_wishes_write(unsigned wanted, char to[HFI_WISHES_SIZE]);

/* For questions that arrive by one server. */
int hfi_survey_responder_new(struct hfi_redis *redis, struct hfi_node *node,
                             struct hfi_survey_responder **ret);
/* On the keeper's thread, before the connection is closed. NULL is fine. */
void hfi_survey_responder_stop(struct hfi_survey_responder *answers);
void hfi_survey_responder_free(struct hfi_survey_responder *answers); /* NULL is fine */

/* Subscribes to the client's own channel, or unsubscribes. On the keeper's thread. */
void hfi_survey_responder_subscribe(struct hfi_survey_responder *answers, bool on);
/* The name of that channel, for the client with this uuid: 36 characters. */
#define HFI_HERE_SIZE (sizeof HFI_TELL_CHANNEL + 16 + 36)
size_t hfi_survey_responder_here(const struct hfi_redis *redis, const char *id,
                                 char to[HFI_HERE_SIZE]);

/* There may be a loss to announce, or announcements to subscribe to (announcements.h). Any
 * thread. */
void hfi_survey_responder_wake(struct hfi_survey_responder *answers);

/* A message has arrived; brief. Any thread. */
void hfi_survey_responder_on_message(struct hfi_survey_responder *answers, const char *message,
                                     size_t len);

#endif
