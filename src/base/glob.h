/* Glob patterns for names, as in Redis: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a literal
 * character. Bytes, not characters. */
#ifndef HFI_BASE_GLOB_H
#define HFI_BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* An empty pattern matches every name. */
bool hfi_glob(const char *pattern, size_t pattern_len, const char *name, size_t name_len);

#endif
