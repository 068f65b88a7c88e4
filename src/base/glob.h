/* Patterns for names, as Redis has them: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a character that is
 * to be taken for itself. Bytes, not characters. */
#ifndef HFI_BASE_GLOB_H
#define HFI_BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* No pattern at all is one that every name matches. */
bool hfi_glob(const char *pattern, size_t pattern_len, const char *name, size_t name_len);

#endif
