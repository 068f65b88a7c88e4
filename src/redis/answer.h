/* Answering those who ask the fleet (survey.c): what this client holds and waits for.
 *
 * A question is a message on HFI_RUMOUR_CHANNEL:
 *
 *     ask 1 <number> <most bytes> <wishes> <db> <length of prefix> <prefix><pattern>
 *
 * with the asker's number of 32 hexadecimal digits, and a letter for each wish: h for what is held, w for what is waited
 * for, n for numbers, t for how long it took by name; `-`, like any other that somebody does not know, stands for nothing. The answer is one JSON text on `holdfast_tell:<number>`, of at most
 * so many bytes, with the names that begin with the asker's prefix, without it, and match the pattern (none: all do).
 * Who would answer is subscribed to a channel of its own, too, `holdfast_tell:<db>:<its uuid>`, on which nothing is said:
 * so the asker can tell (PUBSUB NUMSUB) who should have answered, and did not.
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

/* HF_WANT_... as letters, and a NUL. */
#define HFI_WISHES_SIZE 8
void hfi_wishes_write(unsigned wanted, char to[HFI_WISHES_SIZE]);

/* For questions that come by one server. */
int hfi_answers_new(struct hfi_redis *redis, struct hfi_node *node, struct hfi_answers **ret);
/* On the keeper's thread, before the connection goes. NULL is fine. */
void hfi_answers_stop(struct hfi_answers *answers);
void hfi_answers_free(struct hfi_answers *answers); /* NULL is fine */

/* Shows that it hears questions from now on, or does no longer. On the keeper's thread. */
void hfi_answers_listen(struct hfi_answers *answers, bool on);
/* The channel that shows it, of the client with this uuid: 36 characters. */
#define HFI_HERE_SIZE (sizeof HFI_TELL_CHANNEL + 16 + 36)
size_t hfi_answers_here(const struct hfi_redis *redis, const char *id, char to[HFI_HERE_SIZE]);

/* A message came; brief. Any thread. */
void hfi_answers_hear(struct hfi_answers *answers, const char *message, size_t len);

#endif
