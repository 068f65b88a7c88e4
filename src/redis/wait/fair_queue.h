/* The fair queue at the server: what each attempt of a waiter reports (wait_fair_queue.c), and the
 * sweep of dead waiters after a hand-over (fair_hand_over.c). All state belongs to the call. */
#ifndef HFI_REDIS_WAIT_FAIR_QUEUE_H
#define HFI_REDIS_WAIT_FAIR_QUEUE_H

#include "redis/kinds/kind.h"

/* What an attempt reports about its waiter. */
struct hfi_fair_waiter_report {
    bool waits;         /* it queues; else it tries once */
    int64_t confirm_ms; /* how long a grant may wait for it; 0: it is not subscribed */
    int64_t arrival;    /* its arrival number in the queue; 0: none yet */
    int64_t horizon_ms; /* silent for longer, the waiter counts as dead */
};

/* Called while an attempt is being written. */
struct hfi_fair_waiter_report hfi_fair_waiter_build_report(const struct hfi_call *call);

/* The waiter may have an entry at the server, which has to be removed. That is so from the first
 * reply on; before that only if a copy went unanswered, which the exchange knows. */
bool hfi_fair_waiter_is_queued(const struct hfi_call_state *state);

/* The key of the fair queue of this lock, a list, as in Redisson. Writes it unless `to` is NULL,
 * and returns its length. (fair.c) */
size_t hfi_fair_queue(const struct hfi_redis *redis, const struct hfi_call *call, char *to);

/* ---- fair_hand_over.c ---- */

/* Ends a call that has handed over a lock, as hfi_call_finish() or, with words, hfi_call_fail() do.
 * `more`: the queue has more dead waiters than one script sweeps. Then the sweep goes on first,
 * within the call's own time limit, and its result does not change the call's. */
void hfi_fair_waiter_finish(struct hfi_call *call, int err, const char *text, bool more);
/* Ends the sweep. */
void hfi_fair_waiter_stop(struct hfi_call *call);

/* Called while a script is being written: whether it gets the `unheard` key (fair.c). */
void hfi_fair_waiter_note_keys(const struct hfi_call *call, bool remembers);
/* Whether a script was refused, apparently because of the `unheard` key. If so, the node's scripts
 * leave the key out from now on, and the caller should try again. */
bool hfi_fair_waiter_do_without(struct hfi_call *call);

#endif
