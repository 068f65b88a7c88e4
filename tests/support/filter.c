/*
 * One case of a test program: CMOCKA_TEST_FILTER in the environment, a pattern with * and ?.
 *
 * Nobody calls this; it runs before main. cmocka has such a filter, but no way to set it from
 * outside. The build links it into every test program by the name below.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

void hf_test_filter(void);

__attribute__((constructor)) void hf_test_filter(void) {
    const char *pattern = getenv("CMOCKA_TEST_FILTER");
    if (pattern != NULL && pattern[0] != '\0')
        cmocka_set_test_filter(pattern);
}
