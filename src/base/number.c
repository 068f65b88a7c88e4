/*
 * Numbers as text: in commands, every argument has its length in front, and many are numbers. Pure;
 * any thread.
 */
#include "base/number.h"

#include <string.h>

static const char pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
    "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
    "8081828384858687888990919293949596979899";

size_t hfi_number_write_any(char *to, int64_t number) {
    char digits[HFI_NUMBER_MAX];
    size_t at = sizeof digits;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    for (; rest >= 100; rest /= 100)
        memcpy(digits + (at -= 2), pairs + 2 * (rest % 100), 2);
    memcpy(digits + (at -= 2), pairs + 2 * rest, 2);
    at += rest < 10;
    if (number < 0)
        digits[--at] = '-';
    memcpy(to, digits + at, sizeof digits - at);
    return sizeof digits - at;
}
