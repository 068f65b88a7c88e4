/* Tickets: how the server can tell whether an acquire has run that must not run twice.
 *
 * The script that takes something leaves a number, the ticket, under a key of its own beside what it
 * took from, in one step with the taking. Whoever got no answer can then send the same again, or
 * have it undone: both look for the ticket. It does not stay for ever, so this can be done for
 * HFI_TICKET_MS after the first copy was sent; later, nobody can tell.
 *
 * A client has some pegs for tickets, each used by one acquire at a time: so there are no more
 * keys than acquires at a time, however many there are in a second. */
#ifndef HFI_REDIS_TICKET_H
#define HFI_REDIS_TICKET_H

#include "engine/engine.h"

#include <stdatomic.h>

#define HFI_TICKET_MS 60000   /* the key lasts longer, so that clocks may differ a little */
#define HFI_TICKET_PEG_MAX 96 /* bytes of a key's last part, with a NUL */

/* Of a client; any thread. */
struct hfi_tickets {
    atomic_ullong last; /* the number of the last one */
    atomic_ullong busy; /* a bit for each peg */
};

/* Draws one for an acquire, if its ticket can be in the same slot as its name. */
void hfi_ticket_draw(struct hfi_call *call);

static inline bool hfi_ticket_drawn(const struct hfi_call *call) {
    return call->ticket.number != 0;
}

/* The last part of the key where it is left: S(peg). */
void hfi_ticket_peg(const struct hfi_call *call, char peg[HFI_TICKET_PEG_MAX]);

/* It is not needed any more. `known`: no copy of its command can act any more, so that the peg is
 * free for another. */
void hfi_ticket_end(struct hfi_call *call, bool known);

/* An acquire was refused, perhaps because of its ticket. True: it has none now, and is worth another
 * try; if that is answered, tell hfi_ticket_refused(). */
bool hfi_ticket_do_without(struct hfi_call *call);
void hfi_ticket_refused(struct hfi_call *call);

#endif
