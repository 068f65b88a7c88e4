/* The names of keys and channels on the wire, as Redisson makes them (P() and S() of its contract).
 *
 * N is the name after the client's prefix. P(x) is "x:N" if N contains a '{', else "x:{N}"; S(x) is
 * "N:x", else "{N}:x". So all keys and channels of one lock are in one slot of a cluster. */
#ifndef HFI_REDIS_WIRE_NAMES_H
#define HFI_REDIS_WIRE_NAMES_H

#include "net/resp/wire/command.h"

struct hfi_names {
    const char *prefix; /* in front of every name; "" is none */
    size_t prefix_len;
};

#define HFI_NAME_MAX 65535

/* Adds N as an argument. */
void hfi_name_key(const struct hfi_names *names, const char *name, size_t len,
                  struct hfi_command *command);

/* N contains a '{'. */
bool hfi_name_has_brace(const struct hfi_names *names, const char *name, size_t len);

/* Writes P(what) to `to` unless it is NULL; returns its length. */
size_t hfi_name_prefixed(const struct hfi_names *names, const char *what, const char *name,
                         size_t len, char *to);

/* The same for S(what). */
size_t hfi_name_suffixed(const struct hfi_names *names, const char *what, const char *name,
                         size_t len, char *to);

/* N and S(what) are in one slot of a cluster. Not so if the braces of N do not form a non-empty
 * pair. */
bool hfi_name_keeps_slot(const struct hfi_names *names, const char *name, size_t len);

/* Adds S(what) as an argument: a key beside the name's own. */
void hfi_name_beside(const struct hfi_names *names, const char *what, const char *name, size_t len,
                     struct hfi_command *command);
/* Adds S("timeout") as an argument: the key of the leased permits that are taken. */
void hfi_name_taken_permits(const struct hfi_names *names, const char *name, size_t len,
                            struct hfi_command *command);

#endif
