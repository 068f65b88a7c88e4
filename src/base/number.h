/* Numbers as text, faster than by printf(). */
#ifndef HFI_BASE_NUMBER_H
#define HFI_BASE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#define HFI_NUMBER_MAX 24 /* a sign and the digits of an int64_t, with room to spare */

size_t hfi_number_write_any(char *to, int64_t number);

/* Writes a number in decimal, without a NUL; returns its length. Most are counts, and lengths of
 * arguments: short. */
static inline size_t hfi_number_write(char *to, int64_t number) {
    if (number >= 0 && number < 10) {
        *to = (char)('0' + number);
        return 1;
    }
    if (number >= 10 && number < 100) {
        to[0] = (char)('0' + number / 10);
        to[1] = (char)('0' + number % 10);
        return 2;
    }
    return hfi_number_write_any(to, number);
}

#endif
