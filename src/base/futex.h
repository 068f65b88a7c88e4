/* Waiting for a word of memory to change, without a mutex around it. Private to the process. */
#ifndef HFI_BASE_FUTEX_H
#define HFI_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Waits until the word is no longer `value`, somebody wakes it or the time is over; may also return
 * for no reason. */
void hfi_futex_wait(atomic_uint *word, unsigned value, int64_t until_ms);
/* Wakes so many of those who wait. Reads nothing of `word`, which may be gone. */
void hfi_futex_wake(atomic_uint *word, int most);

#endif
