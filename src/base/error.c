/*
 * Error codes as text, and the details that go with them.
 *
 * Used by every layer. Nothing here keeps a pointer to an hf_error. Text from the network is only
 * added through hfi_error_quote(), which replaces control characters.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int code;
    const char *name, *text;
} errors[] = {{HF_OK, "HF_OK", "success"},
#define ERROR_ROW(name, number, text) {number, #name, text},
              HF_ERRORS(ERROR_ROW)
#undef ERROR_ROW
};

const char *hf_strerror(int err) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == err)
            return errors[i].text;
    return "not an error code of this library";
}

const char *hf_error_name(int err) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == err)
            return errors[i].name;
    return "HF_E?";
}

static void set_text(hf_error *error, int code, const char *format, va_list args) {
    error->code = code;
    vsnprintf(error->text, sizeof error->text, format, args);
}

int hfi_fail(hf_error *error, int code, const char *format, ...) {
    if (error == NULL)
        return code;
    va_list args;
    va_start(args, format);
    set_text(error, code, format, args);
    va_end(args);
    return code;
}

/* strerror_r() has two forms: GNU's returns the text, POSIX' leaves it in the buffer. */
static inline const char *text_gnu(const char *text, const char *buffer) {
    return text != NULL ? text : buffer;
}

static inline const char *text_posix(int failure, const char *buffer) {
    return failure == 0 ? buffer : "unknown error";
}

const char *hfi_errno_text(int sys_errno, char *buffer, size_t size) {
    buffer[0] = '\0';
    return _Generic(strerror_r(sys_errno, buffer, size), int
                    : text_posix, default
                    : text_gnu)(strerror_r(sys_errno, buffer, size), buffer);
}

int hfi_fail_errno(hf_error *error, int code, int sys_errno, const char *format, ...) {
    if (error == NULL)
        return code;
    va_list args;
    va_start(args, format);
    set_text(error, code, format, args);
    va_end(args);
    error->sys_errno = sys_errno;

    size_t used = strlen(error->text);
    char text[96];
    snprintf(error->text + used, sizeof error->text - used, ": %s",
             hfi_errno_text(sys_errno, text, sizeof text));
    return code;
}

void hfi_error_quote(hf_error *error, const char *text, size_t len) {
    size_t used = strlen(error->text);
    for (size_t i = 0; i < len && used + 1 < sizeof error->text; i++) {
        unsigned char byte = (unsigned char)text[i];
        error->text[used++] = (byte < 0x20 || byte == 0x7f) ? '?' : (char)byte;
    }
    error->text[used] = '\0';
}
