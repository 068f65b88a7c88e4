/*
 * Drawing tickets, and the pegs where they are left.
 *
 * Called by acquire.c and call_life.c on the thread of the call's executor; what the calls of a client
 * share is atomic. Invariant: a peg is not given to another acquire while a copy of the last one's
 * command can still act, for that would wipe out the other's ticket. If that is not certain, the
 * peg stays taken for good. When all pegs are taken, a ticket gets one that nobody else will
 * use.
 */
#include "redis/ticket.h"

#include "redis/internal.h"

#include <stdio.h>
#include <string.h>

#define PEGS 64
#define NO_PEG PEGS

static int take_peg(struct hfi_tickets *tickets) {
    unsigned long long busy = atomic_load_explicit(&tickets->busy, memory_order_relaxed);
    while (~busy != 0) {
        int peg = __builtin_ctzll(~busy);
        if (atomic_compare_exchange_weak(&tickets->busy, &busy, busy | 1ull << peg))
            return peg;
    }
    return NO_PEG;
}

/* This user may not leave any at the server that it would go to. */
static bool are_refused(struct hfi_redis *redis, const struct hfi_call *call) {
    struct hfi_node *node = hfi_redis_aim(redis, call->name, call->name_len);
    bool refused = node != NULL &&
                   atomic_load_explicit(&hfi_node_learnt(node)->no_tickets, memory_order_relaxed);
    hfi_node_unref(node);
    return refused;
}

void hfi_ticket_draw(struct hfi_call *call) {
    struct hfi_redis *redis = hfi_redis_of(call->engine);
    struct hfi_tickets *tickets = &redis->tickets;
    call->ticket.number = 0;
    if (are_refused(redis, call) || !hfi_name_keeps_slot(&redis->names, call->name, call->name_len))
        return;
    call->ticket.peg = take_peg(tickets);
    call->ticket.number = 1 + atomic_fetch_add_explicit(&tickets->last, 1, memory_order_relaxed);
}

/* The owner is "uuid:number", and the uuid is the client's. */
void hfi_ticket_peg(const struct hfi_call *call, char peg[HFI_TICKET_PEG_MAX]) {
    const char *colon = memchr(call->owner, ':', call->owner_len);
    int uuid_len = (int)(colon != NULL ? (size_t)(colon - call->owner) : call->owner_len);
    bool shared = call->ticket.peg != NO_PEG;
    snprintf(peg, HFI_TICKET_PEG_MAX, "holdfast_took:%.*s:%s%llu", uuid_len, call->owner,
             shared ? "" : "only",
             shared ? (unsigned long long)call->ticket.peg
                    : (unsigned long long)call->ticket.number);
}

void hfi_ticket_end(struct hfi_call *call, bool known) {
    struct hfi_tickets *tickets = &hfi_redis_of(call->engine)->tickets;
    if (!hfi_ticket_drawn(call))
        return;
    if (known && call->ticket.peg != NO_PEG)
        atomic_fetch_and(&tickets->busy, ~(1ull << call->ticket.peg));
    call->ticket.number = 0;
}

bool hfi_ticket_do_without(struct hfi_call *call) {
    struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    if (!hfi_ticket_drawn(call) || x->err != HF_EPERM || x->unanswered)
        return false;
    hfi_ticket_end(call, true);
    x->once = true;
    return true;
}

void hfi_ticket_refused(struct hfi_call *call) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    if (!atomic_exchange(&hfi_node_learnt(x->node)->no_tickets, true))
        hfi_log(x->redis->log, HF_LOG_WARN,
                "this user may not use {name}:holdfast_took:* of a semaphore; without it, an "
                "acquire whose answer is lost is not repeated, and may stay taken");
}
