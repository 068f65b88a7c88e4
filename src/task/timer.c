/*
 * A pairing heap of timers.
 *
 * Ten thousand watchdog holds and as many waits may each have one. So adding is O(1), taking the
 * first O(log n) amortised, and nothing is allocated. The caller locks (an executor, under its
 * mutex).
 */
#include "task/timer.h"

#include <assert.h>
#include <stddef.h>

static struct hfi_timer *meld(struct hfi_timer *a, struct hfi_timer *b) {
    if (a == NULL)
        return b;
    if (b == NULL)
        return a;
    if (b->at_ms < a->at_ms) {
        struct hfi_timer *earlier = b;
        b = a;
        a = earlier;
    }
    b->prev = a;
    b->next = a->child;
    if (a->child != NULL)
        a->child->prev = b;
    a->child = b;
    a->prev = a->next = NULL;
    return a;
}

/* Melds a list of siblings in pairs from the left, then all pairs from the right. */
static struct hfi_timer *meld_siblings(struct hfi_timer *first) {
    struct hfi_timer *pairs = NULL; /* linked through `next`, the last pair first */
    while (first != NULL) {
        struct hfi_timer *a = first, *b = first->next;
        first = b != NULL ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b != NULL)
            b->next = b->prev = NULL;
        a = meld(a, b);
        a->next = pairs;
        pairs = a;
    }
    struct hfi_timer *root = NULL;
    while (pairs != NULL) {
        struct hfi_timer *next = pairs->next;
        pairs->next = NULL;
        root = meld(root, pairs);
        pairs = next;
    }
    return root;
}

void hfi_timers_add(struct hfi_timers *timers, struct hfi_timer *timer, int64_t at_ms) {
    assert(!timer->set);
    *timer = (struct hfi_timer){.at_ms = at_ms, .set = true};
    timers->root = meld(timers->root, timer);
}

void hfi_timers_remove(struct hfi_timers *timers, struct hfi_timer *timer) {
    if (!timer->set)
        return;
    struct hfi_timer *below = meld_siblings(timer->child);
    if (timer == timers->root) {
        timers->root = below;
    } else {
        if (timer->prev->child == timer)
            timer->prev->child = timer->next;
        else
            timer->prev->next = timer->next;
        if (timer->next != NULL)
            timer->next->prev = timer->prev;
        timers->root = meld(timers->root, below);
    }
    *timer = (struct hfi_timer){.at_ms = timer->at_ms};
}

struct hfi_timer *hfi_timers_first(const struct hfi_timers *timers) {
    return timers->root;
}
