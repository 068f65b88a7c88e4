/*
 * Commands as bytes.
 *
 * Used by greetings, by exchanges and by the pub/sub registry, on any thread; a command lives on the stack of the
 * function that sends it. The argument count comes first on the wire but is known last, so open
 * leaves HEAD_ROOM bytes for it, and close moves the arguments up to it.
 */
#include "net/resp/wire/command.h"

#include "base/number.h"

#include <assert.h>
#include <string.h>

#define HEAD_ROOM 16

void hfi_command_init(struct hfi_command *command, const struct hfi_mem *mem) {
    command->mem = mem;
    command->bytes = command->small;
    command->len = command->start = command->args = 0;
    command->cap = sizeof command->small;
    command->failed = false;
}

void hfi_command_clear(struct hfi_command *command) {
    if (command->bytes != command->small)
        hfi_free(command->mem, command->bytes);
    hfi_command_init(command, command->mem);
}

static bool grow(struct hfi_command *command, size_t more) {
    if (command->failed)
        return false;
    size_t cap = command->cap;
    while (cap - command->len < more)
        cap *= 2;
    bool small = command->bytes == command->small;
    char *grown = hfi_realloc(command->mem, small ? NULL : command->bytes, cap);
    if (grown == NULL) {
        command->failed = true;
        return false;
    }
    if (small)
        memcpy(grown, command->small, command->len);
    command->bytes = grown;
    command->cap = cap;
    return true;
}

/* Makes room for `more` bytes at the end. */
static inline bool reserve(struct hfi_command *command, size_t more) {
    return more <= command->cap - command->len || grow(command, more);
}

/* Writes `mark`, a number and CRLF. The room is there. */
static size_t write_line(char *to, char mark, size_t number) {
    to[0] = mark;
    size_t len = 1 + hfi_number_write(to + 1, (int64_t)number);
    to[len++] = '\r';
    to[len++] = '\n';
    return len;
}

void hfi_command_open(struct hfi_command *command) {
    command->start = command->len;
    command->args = 0;
    if (reserve(command, HEAD_ROOM))
        command->len += HEAD_ROOM;
}

void hfi_command_close(struct hfi_command *command) {
    if (command->failed)
        return;
    char head[HEAD_ROOM + HFI_NUMBER_MAX];
    size_t head_len = write_line(head, '*', command->args);
    assert(head_len <= HEAD_ROOM);
    char *start = command->bytes + command->start;
    memmove(start + head_len, start + HEAD_ROOM, command->len - command->start - HEAD_ROOM);
    memcpy(start, head, head_len);
    command->len -= HEAD_ROOM - head_len;
}

char *hfi_command_room(struct hfi_command *command, size_t len) {
    if (!reserve(command, len + HFI_NUMBER_MAX + 6))
        return NULL;
    command->len += write_line(command->bytes + command->len, '$', len);
    char *room = command->bytes + command->len;
    command->len += len;
    command->bytes[command->len++] = '\r';
    command->bytes[command->len++] = '\n';
    command->args++;
    return room;
}

void hfi_command_bytes(struct hfi_command *command, const void *bytes, size_t len) {
    char *room = hfi_command_room(command, len);
    if (room != NULL && len > 0)
        memcpy(room, bytes, len);
}

void hfi_command_text(struct hfi_command *command, const char *text) {
    hfi_command_bytes(command, text, strlen(text));
}

void hfi_command_number(struct hfi_command *command, int64_t number) {
    char digits[HFI_NUMBER_MAX];
    hfi_command_bytes(command, digits, hfi_number_write(digits, number));
}

void hfi_command_pair(struct hfi_command *command, const void *a, size_t a_len, const void *b,
                      size_t b_len) {
    char *room = hfi_command_room(command, a_len + b_len);
    if (room == NULL)
        return;
    if (a_len > 0)
        memcpy(room, a, a_len);
    if (b_len > 0)
        memcpy(room + a_len, b, b_len);
}
