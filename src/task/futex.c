/*
 * Futexes, for threads that sleep in their executor and for those that wait for an operation to
 * complete. Any thread; no state.
 *
 * The C library has no function for it, and its timespec need not be the kernel's: on 32 bits its
 * time may have 64. So both are defined here. A kernel without the old system call, which some
 * architectures never had, takes 64 bits.
 */
#include "task/futex.h"

#include "base/clock.h"

#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WAIT_PRIVATE = 0 | 128, WAKE_PRIVATE = 1 | 128 };
#ifdef SYS_futex
enum { FUTEX = SYS_futex };
struct kernel_time {
    long sec, nsec;
};
#else
enum { FUTEX = SYS_futex_time64 };
struct kernel_time {
    int64_t sec, nsec;
};
#endif
#define WAIT_MAX_MS 86400000 /* fits everywhere */

bool hfi_futex_wait(atomic_uint *word, unsigned value, int64_t until_ms) {
    struct kernel_time left = {0, 0}, *timeout = NULL;
    if (until_ms != HFI_NEVER) {
        int64_t left_ms = until_ms - hfi_now_ms();
        if (left_ms <= 0)
            return false;
        if (left_ms > WAIT_MAX_MS)
            left_ms = WAIT_MAX_MS;
        left.sec = (long)(left_ms / 1000);
        left.nsec = (long)(left_ms % 1000) * 1000000;
        timeout = &left;
    }
    return syscall(FUTEX, word, WAIT_PRIVATE, value, timeout, NULL, 0) != 0 && errno == EINTR;
}

void hfi_futex_wake(atomic_uint *word, int most) {
    syscall(FUTEX, word, WAKE_PRIVATE, most, NULL, NULL, 0);
}
