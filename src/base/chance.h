/* Chance, for keeping many clients out of step. Not for anything that must not be guessed: ids are
 * drawn with getrandom(). */
#ifndef HFI_BASE_CHANCE_H
#define HFI_BASE_CHANCE_H

#include <stdint.h>

/* 31 random bits, without a system call: out of the clock, and of where `salt` is, which differs
 * between processes and between the objects of one. Any thread. */
uint64_t hfi_throw_dice(const void *salt);

#endif
