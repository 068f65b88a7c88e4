/* Waiting for a word of memory to change, without a mutex around it. Private to the process. */
#ifndef HFI_TASK_FUTEX_H
#define HFI_TASK_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Waits until the word is no longer `value`, it is woken, or the time is over. May return
 * spuriously. True: a signal handler has run. */
bool hfi_futex_wait(atomic_uint *word, unsigned value, int64_t until_ms);
/* Wakes at most `most` waiters. Does not read `word`, which may be freed. */
void hfi_futex_wake(atomic_uint *word, int most);

#endif
