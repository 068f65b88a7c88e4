/* Waiting in line at the server, and handing over to those who do: what a waiter of a fair lock
 * tells the server with each attempt, how long it sleeps between attempts, and when a message alone
 * makes it the owner.
 *
 * Used by acquire.c for kinds whose waiters have a place there. All of it belongs to the call. */
#ifndef HFI_REDIS_LINE_H
#define HFI_REDIS_LINE_H

#include "redis/kind.h"

/* What an attempt tells of the waiter. */
struct hfi_line_words {
    bool waits;         /* it stands in line; else it tries once */
    int64_t confirm_ms; /* how long a grant may wait for it; 0: it would not hear of one */
    int64_t ticket;
    int64_t horizon_ms; /* not heard of for so long, it is dead */
};

/* Before the first attempt. */
void hfi_line_begin(struct hfi_call *call);

/* For an attempt that is being written. */
struct hfi_line_words hfi_line_say(const struct hfi_call *call);

/* An attempt was answered: not yet. From here on there is an entry at the server; until then only
 * if a copy went unanswered, which the exchange knows. */
void hfi_line_stand(struct hfi_call *call, const struct hfi_acquire_answer *answer);

/* How long to sleep at most, so that the server does not take us for dead and we notice when a
 * lease runs out. `poll_ms` is the limit for all other reasons. */
int64_t hfi_line_nap_ms(struct hfi_call_state *state, int64_t poll_ms);

/* There was a message. True: it was a grant that can be relied on, and the call has ended. */
bool hfi_line_enter(struct hfi_call *call);

/* The name of the list of those who are in line for a lock of this name, as Redisson has it. Writes
 * it unless `to` is NULL, and returns its length. (fair.c) */
size_t hfi_fair_queue(const struct hfi_redis *redis, const struct hfi_call *call, char *to);

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

/* It may have an entry at the server, which has to be removed. */
bool hfi_line_is_queued(const struct hfi_call_state *state);

#endif
