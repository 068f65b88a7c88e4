/* The line at the server: what a waiter of a fair lock tells with each attempt (waiting_line.c), and
 * handing over to those who wait there (hand_over.c). All of it belongs to the call. */
#ifndef HFI_REDIS_LINE_H
#define HFI_REDIS_LINE_H

#include "redis/kind.h"

/* What an attempt tells of the waiter. */
struct hfi_line_words {
    bool waits;         /* it stands in line; else it tries once */
    int64_t confirm_ms; /* how long a grant may wait for it; 0: it would not hear of one */
    int64_t number;     /* by which the server knows it in line; 0: none yet */
    int64_t horizon_ms; /* not heard of for so long, it is dead */
};

/* For an attempt that is being written. */
struct hfi_line_words hfi_line_say(const struct hfi_call *call);

/* It may have an entry at the server, which has to be removed: from the first answer on, and until
 * then only if a copy went unanswered, which the exchange knows. */
bool hfi_line_is_queued(const struct hfi_call_state *state);

/* The name of the list of those who are in line for a lock of this name, as Redisson has it. Writes
 * it unless `to` is NULL, and returns its length. (fair.c) */
size_t hfi_fair_queue(const struct hfi_redis *redis, const struct hfi_call *call, char *to);

/* ---- hand_over.c ---- */

/* Ends a call that has handed over a lock, as hfi_call_finish() or, with words, hfi_call_fail() do.
 * If there is `more` to pass over in its line than one script may, it goes on with that first: as
 * long as the call may take, and whatever comes of it. */
void hfi_line_finish(struct hfi_call *call, int err, const char *words, bool more);
/* Does not go on. */
void hfi_line_stop(struct hfi_call *call);

/* For a script that is being written: whether it gets the key for who did not hear. */
void hfi_line_note_keys(const struct hfi_call *call, bool remembers);
/* A script was refused, because of that key as it seems. True: from now on it is left out, and the
 * script is worth another try. */
bool hfi_line_do_without(struct hfi_call *call);

#endif
