/* Wait strategies: how an acquire waits while another owner holds the lock. One const table each,
 * in a file of its own. acquire.c attempts and sleeps; the strategy knows which messages come, how
 * long to sleep, and what ends a wait.
 *
 *   subscribe   a message announces a release (wait_subscribe.c)
 *   string      the same, but other libraries' releases are not announced (wait_string.c)
 *   spin        no messages: attempts with back-off (wait_spin.c)
 *   fair queue  the server keeps the order of waiters, and may hand over (wait_fair_queue.c)
 *   latch       many wait for a count to reach zero, perhaps for a moment only (wait_latch.c)
 *
 * All of it runs on the thread of the call's executor, which owns the state (u.acquire). */
#ifndef HFI_REDIS_WAIT_WAIT_STRATEGY_H
#define HFI_REDIS_WAIT_WAIT_STRATEGY_H

#include "base/backoff.h"
#include "redis/ops/call.h"

struct hfi_acquire_answer;

#define HFI_POLL_MAX_MS 10000 /* the longest sleep without an attempt or a poll */

/* Whether a message will announce a release. */
enum hfi_notified_when {
    HFI_NOTIFIED_NEVER,
    HFI_NOTIFIED_SOON, /* subscribed, but the server has not confirmed it */
    HFI_NOTIFIED
};

struct hfi_wait_strategy {
    /* Before the first attempt. NULL: nothing to do. */
    void (*prepare)(struct hfi_call *call);

    /* The first time that another owner has the lock, or again after HFI_NOTIFIED_NEVER. SOON: how
     * long to await the confirmation before the next attempt. */
    enum hfi_notified_when (*begin)(struct hfi_call *call, int64_t *ret_subscribe_timeout_ms);

    /* An attempt was answered: another owner has the lock. Notes what else the reply says. True:
     * the wait is over all the same. NULL: it never is. */
    bool (*on_busy)(struct hfi_call *call, const struct hfi_acquire_answer *answer);

    /* How long to sleep until the next attempt if nothing happens. */
    int64_t (*sleep_ms)(struct hfi_call *call);

    /* A message came. True: it made us the holder, and the call has ended. NULL: a message is only
     * ever a reason for an attempt. */
    bool (*woken)(struct hfi_call *call);

    /* The call ends. NULL: nothing to do. */
    void (*end)(struct hfi_call *call);

    /* A waiter has an entry in the fair queue. So a waiter that gives up must leave the queue by
     * the kind's `give_up`, which also undoes an acquire. Else a release undoes an acquire. */
    bool has_queue;
    /* An attempt only reads: there is nothing to undo, and it may run twice. */
    bool read_only;
};

extern const struct hfi_wait_strategy hfi_wait_subscribe, hfi_wait_spin, hfi_wait_fair_queue,
    hfi_wait_latch, hfi_wait_string;

extern const struct hfi_backoff hfi_spin_backoff; /* between attempts of the spin strategy */

/* ---- wait_subscribe.c: shared by the strategies that subscribe ---- */

/* Joins the channel, and says whether the subscription is confirmed or how long to wait for
 * that. */
enum hfi_notified_when hfi_listen_begin(struct hfi_call *call, int64_t *ret_subscribe_timeout_ms);
/* Joins the channel only if it is subscribed already. */
void hfi_listen_if_subscribed(struct hfi_call *call);
/* The longest useful sleep, not regarding the holder's lease. */
int64_t hfi_listen_poll_ms(struct hfi_call *call);
int64_t hfi_listen_sleep_ms(struct hfi_call *call);
void hfi_listen_end(struct hfi_call *call);

#endif
