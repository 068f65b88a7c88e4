/*
 * Result codes with the library's own words; see assert_hf.h. Called by tests, on the thread that made the call.
 */
#include "support/assert_hf.h"

#include <holdfast/holdfast.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void assert_hf_at(int expected, int actual, const char *file, int line) {
    if (expected == actual)
        return;
    print_error("expected %s, got %s (%s)\n", hf_error_name(expected), hf_error_name(actual),
                actual == HF_OK ? "" : hf_last_error()->text);
    _fail(file, line);
}
