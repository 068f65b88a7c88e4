/* The log hook. Library code never prints; it calls the application's hook, if there is one. */
#ifndef HFI_BASE_LOG_H
#define HFI_BASE_LOG_H

#include <holdfast/holdfast.h>

struct hfi_log {
    hf_log_fn write; /* NULL: silent */
    void *user;
};

void hfi_log(const struct hfi_log *log, hf_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
