/* The Lua scripts, embedded at build time from the .lua files beside this one. */
#ifndef HFI_REDIS_SCRIPT_H
#define HFI_REDIS_SCRIPT_H

#include <stddef.h>

struct hfi_script {
    const char *name;
    const char *body;
    size_t len;
    const char *sha1; /* 40 hexadecimal digits */
};

#define HFI_SHA1_LEN 40

extern const struct hfi_script hfi_script_plain_acquire;
extern const struct hfi_script hfi_script_plain_release;
extern const struct hfi_script hfi_script_plain_force;
extern const struct hfi_script hfi_script_fenced_acquire;
extern const struct hfi_script hfi_script_renew;

#endif
