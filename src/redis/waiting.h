/* How a call waits for what another has: one const table per manner, each in a file of its own.
 * acquire.c attempts and sleeps; the manner knows what is told, for how long to sleep, and what
 * ends a wait.
 *
 *   listen   a message tells of a release (waiting_listen.c)
 *   spin     nobody tells: attempts, ever further apart (waiting_spin.c)
 *   in line  the server keeps the order of those who wait, and may hand over (waiting_line.c)
 *   latch    many wait for a number to become zero, perhaps for a moment only (waiting_latch.c)
 *
 * All of it runs on the thread of the call's executor, which owns the state (u.acquire). */
#ifndef HFI_REDIS_WAITING_H
#define HFI_REDIS_WAITING_H

#include "base/backoff.h"
#include "redis/internal.h"

struct hfi_acquire_answer;

#define HFI_POLL_MAX_MS 10000 /* nobody sleeps for longer without asking */

/* Whether a message will tell of a release. */
enum hfi_told {
    HFI_TOLD_NOT,
    HFI_TOLD_SOON, /* the server was asked to, and has not confirmed it */
    HFI_TOLD
};

struct hfi_waiting {
    /* Before the first attempt. NULL: nothing to do. */
    void (*prepare)(struct hfi_call *call);

    /* The first time that another has it, or again after HFI_TOLD_NOT. SOON: for so long its
     * confirmation is awaited before the next attempt. */
    enum hfi_told (*begin)(struct hfi_call *call, int64_t *ret_patience_ms);

    /* An attempt was answered: another has it. Notes what else the answer says. True: the wait is
     * over all the same. NULL: it never is. */
    bool (*stood)(struct hfi_call *call, const struct hfi_acquire_answer *answer);

    /* How long to sleep until the next attempt if nothing happens. */
    int64_t (*nap_ms)(struct hfi_call *call);

    /* There was a message. True: it made us the owner, and the call has ended. NULL: a message is
     * only ever a reason for an attempt. */
    bool (*woken)(struct hfi_call *call);

    /* The call ends. NULL: nothing to do. */
    void (*left)(struct hfi_call *call);

    /* A waiter has an entry at the server, so whoever gives up has to leave the line by the kind's
     * `give_up`, which also undoes an acquire. Else a release undoes an acquire. */
    bool in_line;
    /* To acquire is only to look: there is nothing to undo, and it may be done twice. */
    bool only_looks;
};

extern const struct hfi_waiting hfi_waiting_listen, hfi_waiting_spin, hfi_waiting_in_line,
    hfi_waiting_latch;

extern const struct hfi_backoff hfi_spin_backoff; /* between the attempts of who spins */

/* ---- waiting_listen.c: what the manners that listen share ---- */

/* Joins the channel, and says whether and when that is confirmed. */
enum hfi_told hfi_listen_begin(struct hfi_call *call, int64_t *ret_patience_ms);
/* Joins it only if it is subscribed already. */
void hfi_listen_if_heard(struct hfi_call *call);
/* The longest sleep that makes sense, whatever is known of the holder's lease. */
int64_t hfi_listen_poll_ms(struct hfi_call *call);
int64_t hfi_listen_nap_ms(struct hfi_call *call);
void hfi_listen_left(struct hfi_call *call);

#endif
