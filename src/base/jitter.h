/* Jitter, to keep many clients out of step. Not for secrets or ids: those use getrandom(). */
#ifndef HFI_BASE_JITTER_H
#define HFI_BASE_JITTER_H

#include <stdint.h>

/* 31 random bits without a system call: from the clock and the address of `salt`, which differs
 * between processes and between the objects of one. Any thread. */
uint64_t hfi_jitter_bits(const void *salt);

#endif
