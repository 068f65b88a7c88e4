/*
 * Error codes as words, and the details that go with them.
 *
 * Used by every layer. An hf_error is owned by whoever declared it; nothing here keeps a pointer to
 * one. Text from the network is only ever added through hfi_error_quote(), which cannot be made to
 * print control characters.
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
    return "no error of this library";
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

/* strerror_r() has two forms: GNU's returns the words, POSIX' leaves them in the buffer. */
static inline const char *words_gnu(const char *words, const char *buffer) {
    return words != NULL ? words : buffer;
}

static inline const char *words_posix(int failure, const char *buffer) {
    return failure == 0 ? buffer : "unknown error";
}

const char *hfi_errno_words(int sys_errno, char *buffer, size_t size) {
    buffer[0] = '\0';
    return _Generic(strerror_r(sys_errno, buffer, size), int
                    : words_posix, default
                    : words_gnu)(strerror_r(sys_errno, buffer, size), buffer);
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
    char words[96];
    snprintf(error->text + used, sizeof error->text - used, ": %s",
             hfi_errno_words(sys_errno, words, sizeof words));
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
