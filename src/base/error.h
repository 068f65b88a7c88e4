/* Filling in hf_error: a code, the node, and a text for a person. Never put a password in one. */
#ifndef HFI_BASE_ERROR_H
#define HFI_BASE_ERROR_H

#include <holdfast/holdfast.h>

/* Each returns `code`, so that failing is one line: `return hfi_fail(error, HF_EINVAL, "...")`.
 * `error` may be NULL. `node` and `sys_errno` are kept if they were set before; hfi_error_clear()
 * resets. */
int hfi_fail(hf_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int hfi_fail_errno(hf_error *error, int code, int sys_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Clears only the first byte of the texts: they are always written as a whole. */
static inline void hfi_error_clear(hf_error *error) {
    error->code = error->sys_errno = 0;
    error->node[0] = error->text[0] = '\0';
}

/* The system's text for an errno, in `buffer` or in the C library. Never NULL. */
const char *hfi_errno_text(int sys_errno, char *buffer, size_t size);

/* Appends printable text of `len` bytes from the network, with control characters replaced. */
void hfi_error_quote(hf_error *error, const char *text, size_t len);

#endif
