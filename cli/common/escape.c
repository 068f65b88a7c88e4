/* Makes untrusted text safe for a terminal. Names and server replies may contain terminal controls:
 * ASCII and C1 control characters, as single bytes or in UTF-8, and Unicode marks that reorder or
 * break a line. In messages each becomes a question mark, as does invalid UTF-8. In JSON they are
 * written as escapes.
 *
 * Stateless; callable from any thread. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

/* Decodes one UTF-8 character. Returns its length; 0 if it is invalid, overlong or a surrogate. */
static size_t decode(const char *text, size_t len, unsigned *ret) {
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)text[0];
    size_t size = first < 0x80             ? 1
                  : (first & 0xe0) == 0xc0 ? 2
                  : (first & 0xf0) == 0xe0 ? 3
                  : (first & 0xf8) == 0xf0 ? 4
                                           : 0;
    if (size == 0 || size > len)
        return 0;
    unsigned number = size == 1 ? first : first & (0x7fU >> size);
    for (size_t i = 1; i < size; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        number = number << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (number < least[size] || number > 0x10ffff || (number >= 0xd800 && number <= 0xdfff))
        return 0;
    *ret = number;
    return size;
}

static bool is_control(unsigned number) {
    return number < 0x20 || (number >= 0x7f && number <= 0x9f) ||
           (number >= 0x2028 && number <= 0x202e) || (number >= 0x2066 && number <= 0x2069);
}

void text_disarm(char *text) {
    size_t len = strlen(text), out = 0;
    for (size_t i = 0, size; i < len; i += size) {
        unsigned number;
        size = decode(text + i, len - i, &number);
        if (size == 0 || is_control(number)) {
            size = size == 0 ? 1 : size;
            text[out++] = '?';
        } else {
            memmove(text + out, text + i, size);
            out += size;
        }
    }
    text[out] = '\0';
}

const char *shown_name(const char *name, char buffer[SHOWN_NAME_SIZE]) {
    static const char more[] = "...";
    size_t room = SHOWN_NAME_SIZE - sizeof more, len = strnlen(name, room + 1);
    size_t shown = len > room ? room : len;
    while (len > room && shown > 0 && ((unsigned char)name[shown] & 0xc0) == 0x80)
        shown--; /* do not split a character */
    snprintf(buffer, SHOWN_NAME_SIZE, "%.*s%s", (int)shown, name, len > room ? more : "");
    text_disarm(buffer);
    return buffer;
}

void text_write_json(FILE *out, const char *line) {
    size_t len = strlen(line);
    for (size_t i = 0, size; i < len; i += size) {
        unsigned number;
        size = decode(line + i, len - i, &number);
        if (size > 0 && is_control(number)) {
            fprintf(out, "\\u%04x", number);
        } else {
            size = size == 0 ? 1 : size;
            fwrite(line + i, 1, size, out);
        }
    }
    putc('\n', out);
}
