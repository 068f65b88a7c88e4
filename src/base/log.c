/*
 * The log hook. Stateless; any thread. The hook may not call back into the library, so it is safe
 * to call it with a mutex held, though callers avoid that.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void hfi_log(const struct hfi_log *log, hf_log_level level, const char *format, ...) {
    if (log == NULL || log->write == NULL)
        return;
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    log->write(level, message, log->user);
}
