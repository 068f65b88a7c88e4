/* Numbers as text, beside what printf writes. */
#include "base/number.h"
#include "support/case.h"

#include <inttypes.h>
#include <stdlib.h>

static void check(int64_t number) {
    char ours[HFI_NUMBER_MAX + 1], theirs[HFI_NUMBER_MAX + 1];
    size_t len = hfi_number_write(ours, number);
    assert_in_range(len, 1, HFI_NUMBER_MAX);
    ours[len] = '\0';
    snprintf(theirs, sizeof theirs, "%" PRId64, number);
    assert_string_equal(ours, theirs);
}

CASE(numbers_of_every_length) {
    uint64_t power = 1;
    for (int digits = 1; digits <= 19; digits++, power *= 10)
        for (int away = -2; away <= 2; away++) {
            check((int64_t)power + away);
            check(-(int64_t)power - away);
        }
    check(INT64_MAX);
    check(INT64_MIN);
}

CASE(any_numbers) {
    unsigned short seed[3] = {1, 2, 3};
    for (int i = 0; i < 200000; i++) {
        uint64_t bits = (uint64_t)jrand48(seed) << 32 | (uint32_t)jrand48(seed);
        check((int64_t)bits >> nrand48(seed) % 64);
    }
}

RUN_CASES(NULL, NULL)
