/* The log hook. Library code never prints; it calls the application's hook, if there is one. */
#ifndef HFI_BASE_LOG_H
#define HFI_BASE_LOG_H

#include <holdfast/holdfast.h>

struct hfi_log {
    hf_log_fn write;          /* either may be NULL; both: silent */
    hf_log_record_fn records; /* called instead, if there is one */
    void *user;
};

/* What a message is about; 0 and NULL: nothing of that kind. */
struct hfi_log_about {
    int code;
    const char *server; /* the node's text */
    const char *name;   /* a lock's or object's, as the caller knows it: without the prefix */
    size_t name_len;
};
#define HFI_ABOUT(...) (&(const struct hfi_log_about){__VA_ARGS__})

/* `about` may be NULL. */
void hfi_log(const struct hfi_log *log, hf_log_level level, const struct hfi_log_about *about,
             const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Whether anybody reads it. */
bool hfi_log_is_read(const struct hfi_log *log);

#endif
