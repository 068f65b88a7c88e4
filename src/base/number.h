/* Numbers as text, faster than by printf(). */
#ifndef HFI_BASE_NUMBER_H
#define HFI_BASE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#define HFI_NUMBER_MAX 24 /* a sign and the digits of an int64_t, with room to spare */

/* Writes a number in decimal, without a NUL; returns its length. */
size_t hfi_number_write(char *to, int64_t number);

#endif
