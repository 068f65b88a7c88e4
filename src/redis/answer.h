/* Answering those who ask the fleet (survey.c): what this client holds and waits for.
 *
 * A question is a message on HFI_RUMOUR_CHANNEL:
 *
 *     ask 1 <number> <most bytes> <db> <length of prefix> <prefix><pattern>
 *
 * with the asker's number of 32 hexadecimal digits. The answer is one JSON text on `holdfast_tell:<number>`, of at most
 * so many bytes, with the names that begin with the asker's prefix, without it, and match the pattern (none: all do).
 * Anybody may ask, so it is answered at most ten times a second, and costs little if nobody listens. */
#ifndef HFI_REDIS_ANSWER_H
#define HFI_REDIS_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

struct hfi_answers;
struct hfi_node;
struct hfi_redis;

#define HFI_ASK "ask 1 "
#define HFI_TELL_CHANNEL "holdfast_tell:"
#define HFI_ASK_NUMBER_LEN 32
#define HFI_ANSWER_MAX (1024 * 1024) /* whatever is asked for */

/* For questions that come by one server. */
int hfi_answers_new(struct hfi_redis *redis, struct hfi_node *node, struct hfi_answers **ret);
/* On the keeper's thread, before the connection goes. NULL is fine. */
void hfi_answers_stop(struct hfi_answers *answers);
void hfi_answers_free(struct hfi_answers *answers); /* NULL is fine */

/* A message came; brief. Any thread. */
void hfi_answers_hear(struct hfi_answers *answers, const char *message, size_t len);

#endif
