/*
 * Numbers as text: in commands, every argument has its length in front, and many are numbers. Pure;
 * any thread.
 */
#include "base/number.h"

#include <stdbool.h>
#include <string.h>

static const char pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
    "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
    "8081828384858687888990919293949596979899";

/* How many digits a number has that is not 0: by its bits, and a comparison. */
static unsigned count_digits(uint64_t number) {
    static const uint64_t tens[] = {1u,
                                    10u,
                                    100u,
                                    1000u,
                                    10000u,
                                    100000u,
                                    1000000u,
                                    10000000u,
                                    100000000u,
                                    1000000000u,
                                    10000000000u,
                                    100000000000u,
                                    1000000000000u,
                                    10000000000000u,
                                    100000000000000u,
                                    1000000000000000u,
                                    10000000000000000u,
                                    100000000000000000u,
                                    1000000000000000000u,
                                    10000000000000000000u};
    unsigned bits = 64 - (unsigned)__builtin_clzll(number), least = bits * 1233 >> 12;
    return least + (number >= tens[least]);
}

size_t hfi_number_write_any(char *to, int64_t number) {
    bool negative = number < 0;
    uint64_t rest = negative ? 0 - (uint64_t)number : (uint64_t)number;
    size_t len = negative + count_digits(rest);
    char *at = to + len;
    for (; rest >= 10000; rest /= 10000) {
        unsigned four = (unsigned)(rest % 10000);
        at -= 4;
        memcpy(at, pairs + 2 * (four / 100), 2);
        memcpy(at + 2, pairs + 2 * (four % 100), 2);
    }
    unsigned first = (unsigned)rest;
    if (first >= 100) {
        at -= 2;
        memcpy(at, pairs + 2 * (first % 100), 2);
        first /= 100;
    }
    if (first >= 10)
        memcpy(at - 2, pairs + 2 * first, 2);
    else
        at[-1] = (char)('0' + first);
    if (negative)
        *to = '-';
    return len;
}
