/* A set of timers ordered by time: an intrusive pairing heap, so adding one cannot fail. Not
 * locked. */
#ifndef HFI_TASK_TIMER_H
#define HFI_TASK_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct hfi_timer {
    int64_t at_ms;
    struct hfi_timer *child, *next, *prev; /* prev: left sibling, or the parent of a first child */
    bool set;
};

struct hfi_timers {
    struct hfi_timer *root;
};

void hfi_timers_add(struct hfi_timers *timers, struct hfi_timer *timer, int64_t at_ms);
/* A timer that is not set is fine. */
void hfi_timers_remove(struct hfi_timers *timers, struct hfi_timer *timer);
struct hfi_timer *hfi_timers_first(const struct hfi_timers *timers); /* NULL: none */

#endif
