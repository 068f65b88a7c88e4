/*
 * The names of keys and channels.
 *
 * Called by the kinds while a command is written, on any thread; no state. Whether braces are added
 * depends only on the presence of a '{', balanced or not, as in Redisson.
 */
#include "redis/wire/names.h"

#include <string.h>

void hfi_name_key(const struct hfi_names *names, const char *name, size_t len,
                  struct hfi_command *command) {
    hfi_command_pair(command, names->prefix, names->prefix_len, name, len);
}

bool hfi_name_has_brace(const struct hfi_names *names, const char *name, size_t len) {
    return memchr(names->prefix, '{', names->prefix_len) != NULL || memchr(name, '{', len) != NULL;
}

static char *put(char *to, const char *bytes, size_t len) {
    memcpy(to, bytes, len);
    return to + len;
}

/* Writes N, in braces if it has none of its own. */
static char *put_braced(const struct hfi_names *names, const char *name, size_t len, bool braces,
                        char *to) {
    if (braces)
        *to++ = '{';
    to = put(to, names->prefix, names->prefix_len);
    to = put(to, name, len);
    if (braces)
        *to++ = '}';
    return to;
}

size_t hfi_name_prefixed(const struct hfi_names *names, const char *what, const char *name,
                         size_t len, char *to) {
    size_t what_len = strlen(what);
    bool braces = !hfi_name_has_brace(names, name, len);
    if (to != NULL) {
        to = put(to, what, what_len);
        *to++ = ':';
        put_braced(names, name, len, braces, to);
    }
    return what_len + 1 + names->prefix_len + len + (braces ? 2 : 0);
}

size_t hfi_name_suffixed(const struct hfi_names *names, const char *what, const char *name,
                         size_t len, char *to) {
    size_t what_len = strlen(what);
    bool braces = !hfi_name_has_brace(names, name, len);
    if (to != NULL) {
        to = put_braced(names, name, len, braces, to);
        *to++ = ':';
        put(to, what, what_len);
    }
    return what_len + 1 + names->prefix_len + len + (braces ? 2 : 0);
}

bool hfi_name_keeps_slot(const struct hfi_names *names, const char *name, size_t len) {
    bool opened = false, closed = false;
    size_t inside = 0; /* the first pair of braces */
    for (size_t i = 0; i < names->prefix_len + len; i++) {
        char c = i < names->prefix_len ? names->prefix[i] : name[i - names->prefix_len];
        if (opened && c == '}')
            return inside > 0;
        inside += opened;
        opened = opened || c == '{';
        closed = closed || c == '}';
    }
    return !opened && !closed;
}

void hfi_name_beside(const struct hfi_names *names, const char *what, const char *name, size_t len,
                     struct hfi_command *command) {
    char *room = hfi_command_room(command, hfi_name_suffixed(names, what, name, len, NULL));
    if (room != NULL)
        hfi_name_suffixed(names, what, name, len, room);
}

void hfi_name_taken_permits(const struct hfi_names *names, const char *name, size_t len,
                            struct hfi_command *command) {
    hfi_name_beside(names, "timeout", name, len, command);
}
