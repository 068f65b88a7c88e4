/* What every fuzzer defines. libFuzzer calls it, or replay.c. */
#ifndef HF_TEST_FUZZ_H
#define HF_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Optional: once, before the first input. */
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
#define FUZZ_INITIALIZE LLVMFuzzerInitialize

/* Asserts that stay, whatever the build. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fuzz_failed(#condition, __FILE__, __LINE__);                                           \
    } while (0)

#include <stdio.h>
#include <stdlib.h>

static inline void fuzz_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, condition);
    abort();
}

#endif
