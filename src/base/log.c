/*
 * The log hook. Stateless; any thread. The hook may not call back into the library, so it is safe
 * to call it with a mutex held, though callers avoid that.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

bool hfi_log_is_read(const struct hfi_log *log) {
    return log != NULL && (log->write != NULL || log->records != NULL);
}

static void write_record(const struct hfi_log *log, hf_log_level level,
                         const struct hfi_log_about *about, const char *message) {
    const hf_log_record record = {.level = level,
                                  .message = message,
                                  .code = about->code,
                                  .server = about->server != NULL ? about->server : "",
                                  .name = about->name != NULL ? about->name : "",
                                  .name_len = about->name != NULL ? about->name_len : 0};
    log->records(&record, log->user);
}

void hfi_log(const struct hfi_log *log, hf_log_level level, const struct hfi_log_about *about,
             const char *format, ...) {
    if (!hfi_log_is_read(log))
        return;
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (log->records != NULL)
        write_record(log, level, about != NULL ? about : HFI_ABOUT(0), message);
    else
        log->write(level, message, log->user);
}
