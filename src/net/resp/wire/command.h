/* Commands as bytes: RESP arrays of bulk strings, written straight into one buffer through the
 * client's allocator. Small ones need no allocation. An argument may be built from pieces. */
#ifndef HFI_NET_RESP_WIRE_COMMAND_H
#define HFI_NET_RESP_WIRE_COMMAND_H

#include "base/mem.h"

struct hfi_command {
    const struct hfi_mem *mem;
    char *bytes; /* whole commands, one after the other */
    size_t len, cap;
    size_t start, args; /* the open command: where it starts, how many arguments it has */
    bool failed;        /* out of memory: the bytes are unusable */
    char small[640];
};

void hfi_command_init(struct hfi_command *command, const struct hfi_mem *mem);
void hfi_command_clear(struct hfi_command *command);

/* The arguments come between open and close, the command's name first. No call reports an error;
 * check `failed` at the end. */
void hfi_command_open(struct hfi_command *command);
void hfi_command_close(struct hfi_command *command);
void hfi_command_bytes(struct hfi_command *command, const void *bytes, size_t len);
void hfi_command_text(struct hfi_command *command, const char *text);
void hfi_command_number(struct hfi_command *command, int64_t number);

/* An argument of two pieces. */
void hfi_command_pair(struct hfi_command *command, const void *a, size_t a_len, const void *b,
                      size_t b_len);

/* An argument of `len` bytes, which the caller fills in before it adds anything else. NULL: out of
 * memory. */
char *hfi_command_room(struct hfi_command *command, size_t len);

#endif
