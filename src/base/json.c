/*
 * Writing and reading JSON (json.h). Pure, but for the writer's memory; any thread, each with its
 * own struct.
 *
 * The reader accepts RFC 8259 and a little more: values that it skips need not be proper numbers or
 * words. Numbers that are no 64-bit integers are not read as numbers. Invalid UTF-8 is passed
 * through: check it before display.
 */
#include "base/json.h"

#include <stdio.h>
#include <string.h>

/* ---- UTF-8 ---- */

/* The length in bytes of the UTF-8 character at `at`; 0: invalid. */
static size_t utf8_len(const unsigned char *at, size_t left) {
    static const unsigned char least[] = {0, 0, 0, 0xa0, 0x90}, most[] = {0, 0, 0, 0x9f, 0x8f};
    size_t len = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (at[0] > 0xf4 || len == 0 || len > left)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 || at[0] == 0xf0) && at[1] < least[len])
        return 0; /* overlong */
    if ((at[0] == 0xed || at[0] == 0xf4) && at[1] > most[len])
        return 0; /* a surrogate, or above U+10FFFF */
    return len;
}

bool hfi_is_utf8(const char *text, size_t len) {
    for (size_t at = 0; at < len;) {
        size_t more = utf8_len((const unsigned char *)text + at, len - at);
        if (more == 0)
            return false;
        at += more;
    }
    return true;
}

/* ---- Writing ---- */

void hfi_json_begin(struct hfi_json *json, const struct hfi_mem *mem, size_t limit) {
    *json = (struct hfi_json){.mem = mem, .limit = limit};
}

static bool make_room(struct hfi_json *json, size_t more) {
    if (json->full || json->len + more > json->limit) {
        json->full = true;
        return false;
    }
    if (json->len + more <= json->cap)
        return true;
    size_t cap = json->cap * 2 > json->len + more ? json->cap * 2 : json->len + more + 512;
    char *text = hfi_realloc(json->mem, json->text, cap);
    if (text == NULL) {
        json->full = true;
        return false;
    }
    json->text = text;
    json->cap = cap;
    return true;
}

static void put(struct hfi_json *json, const char *bytes, size_t len) {
    if (!make_room(json, len))
        return;
    memcpy(json->text + json->len, bytes, len);
    json->len += len;
}

static void put_comma(struct hfi_json *json) {
    if (json->comma)
        put(json, ",", 1);
    json->comma = true;
}

void hfi_json_open(struct hfi_json *json, char bracket) {
    put_comma(json);
    put(json, &bracket, 1);
    json->comma = false;
}

void hfi_json_close(struct hfi_json *json, char bracket) {
    put(json, &bracket, 1);
    json->comma = true;
}

static void put_escape(struct hfi_json *json, unsigned char c) {
    char escape[8] = "";
    int len = snprintf(escape, sizeof escape, "\\u%04x", c);
    put(json, escape, (size_t)len);
}

static void put_string(struct hfi_json *json, const char *text, size_t len) {
    put(json, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            put(json, (char[]){'\\', (char)c}, 2);
        else if (c < ' ' || c == 0x7f)
            put_escape(json, c);
        else
            put(json, text + i, 1);
    }
    put(json, "\"", 1);
}

void hfi_json_text(struct hfi_json *json, const char *text, size_t len) {
    put_comma(json);
    put_string(json, text, len);
}

void hfi_json_key(struct hfi_json *json, const char *key) {
    hfi_json_text(json, key, strlen(key));
    put(json, ":", 1);
    json->comma = false;
}

void hfi_json_number(struct hfi_json *json, int64_t number) {
    char digits[24] = "";
    put_comma(json);
    int len = snprintf(digits, sizeof digits, "%lld", (long long)number);
    put(json, digits, (size_t)len);
}

void hfi_json_flag(struct hfi_json *json, bool on) {
    put_comma(json);
    put(json, on ? "true" : "false", on ? 4 : 5);
}

static void put_hex(struct hfi_json *json, const char *bytes, size_t len) {
    static const char digits[] = "0123456789abcdef";
    put_comma(json);
    put(json, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        put(json, (char[]){digits[c >> 4], digits[c & 15]}, 2);
    }
    put(json, "\"", 1);
}

void hfi_json_bytes(struct hfi_json *json, const char *key, const char *bytes, size_t len) {
    char hex_key[32];
    if (hfi_is_utf8(bytes, len)) {
        hfi_json_key(json, key);
        hfi_json_text(json, bytes, len);
        return;
    }
    snprintf(hex_key, sizeof hex_key, "%s_hex", key);
    hfi_json_key(json, hex_key);
    put_hex(json, bytes, len);
}

void hfi_json_pair(struct hfi_json *json, const char *key, int64_t number) {
    hfi_json_key(json, key);
    hfi_json_number(json, number);
}

struct hfi_json_mark hfi_json_mark(const struct hfi_json *json) {
    return (struct hfi_json_mark){.len = json->len, .comma = json->comma};
}

void hfi_json_back(struct hfi_json *json, struct hfi_json_mark mark) {
    json->len = mark.len;
    json->comma = mark.comma;
    json->full = false;
}

/* ---- Reading ---- */

void hfi_json_read(struct hfi_json_reader *reader, const char *text, size_t len) {
    *reader = (struct hfi_json_reader){.at = text, .end = text + len};
}

static bool is_one_of(char c, const char *some) {
    return c != '\0' && strchr(some, c) != NULL;
}

static bool mark_invalid(struct hfi_json_reader *reader) {
    reader->bad = true;
    reader->at = reader->end;
    return false;
}

/* The next character that is not whitespace; 0: the end. */
static char peek(struct hfi_json_reader *reader) {
    while (reader->at < reader->end && is_one_of(*reader->at, " \t\r\n"))
        reader->at++;
    return reader->at < reader->end ? *reader->at : '\0';
}

static bool takes(struct hfi_json_reader *reader, char c) {
    if (peek(reader) != c || reader->at == reader->end)
        return false;
    reader->at++;
    return true;
}

bool hfi_json_enter(struct hfi_json_reader *reader, char bracket) {
    if (reader->bad || reader->depth >= HFI_JSON_DEPTH || !takes(reader, bracket))
        return false;
    reader->depth++;
    reader->first = true;
    return true;
}

bool hfi_json_next(struct hfi_json_reader *reader) {
    if (reader->bad)
        return false;
    if (takes(reader, '}') || takes(reader, ']')) {
        if (reader->depth == 0)
            return mark_invalid(reader);
        reader->depth--;
        reader->first = false;
        return false;
    }
    if (!reader->first && !takes(reader, ','))
        return mark_invalid(reader);
    reader->first = false;
    return peek(reader) != '\0' ? true : mark_invalid(reader);
}

bool hfi_json_next_key(struct hfi_json_reader *reader, char *key, size_t size) {
    size_t len;
    if (!hfi_json_next(reader))
        return false;
    if (!hfi_json_read_text(reader, key, size, &len) || !takes(reader, ':'))
        return mark_invalid(reader);
    return true;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The four hex digits after \u. */
static bool read_code(struct hfi_json_reader *reader, unsigned *ret) {
    if (reader->end - reader->at < 4)
        return false;
    *ret = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(*reader->at++);
        if (digit < 0)
            return false;
        *ret = *ret * 16 + (unsigned)digit;
    }
    return true;
}

/* Encodes as UTF-8; returns how many bytes. Surrogates, which we do not write, become a question
 * mark. */
static size_t encode(unsigned code, char *to) {
    if (code >= 0xd800 && code < 0xe000)
        code = '?';
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    to[0] = (char)(0xe0 | code >> 12);
    to[1] = (char)(0x80 | (code >> 6 & 0x3f));
    to[2] = (char)(0x80 | (code & 0x3f));
    return 3;
}

/* One character of a text, perhaps escaped, to `to`; returns how many bytes, 0: invalid. */
static size_t read_character(struct hfi_json_reader *reader, char *to) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    unsigned code;
    to[0] = *reader->at++;
    if (to[0] != '\\')
        return (unsigned char)to[0] >= ' ';
    if (reader->at == reader->end)
        return 0;
    char escape = *reader->at++;
    if (escape == 'u')
        return read_code(reader, &code) ? encode(code, to) : 0;
    const char *found = escape != '\0' ? strchr(escapes, escape) : NULL;
    if (found == NULL)
        return 0;
    to[0] = meant[found - escapes];
    return 1;
}

bool hfi_json_read_text(struct hfi_json_reader *reader, char *text, size_t size, size_t *ret_len) {
    size_t len = 0;
    if (peek(reader) != '"') {
        hfi_json_skip(reader);
        return false;
    }
    reader->at++;
    while (reader->at < reader->end && *reader->at != '"') {
        char bytes[4];
        size_t more = read_character(reader, bytes);
        if (more == 0)
            return mark_invalid(reader);
        if (len + more < size) {
            memcpy(text + len, bytes, more);
            len += more;
        } else {
            size = len + 1; /* stop at the first character that does not fit */
        }
    }
    if (reader->at == reader->end)
        return mark_invalid(reader);
    reader->at++;
    text[len] = '\0';
    *ret_len = len;
    return true;
}

/* Digits from `at` on; returns the position after them. NULL: there are none, or too many. */
static const char *read_digits(const char *at, const char *end, int64_t *ret) {
    const char *from = at;
    *ret = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(*ret, 10, ret) || __builtin_add_overflow(*ret, *at - '0', ret))
            return NULL;
    return at > from ? at : NULL;
}

bool hfi_json_read_number(struct hfi_json_reader *reader, int64_t *ret) {
    int64_t number;
    bool minus = peek(reader) == '-';
    const char *behind = read_digits(reader->at + minus, reader->end, &number);
    if (behind == NULL || (behind < reader->end && is_one_of(*behind, ".eE"))) {
        hfi_json_skip(reader);
        return false;
    }
    reader->at = behind;
    *ret = minus ? -number : number;
    return true;
}

/* A number, true, false or null. */
static void skip_word(struct hfi_json_reader *reader) {
    const char *from = reader->at;
    while (reader->at < reader->end && !is_one_of(*reader->at, ",]}\" \t\r\n:[{"))
        reader->at++;
    if (reader->at == from)
        mark_invalid(reader);
}

void hfi_json_skip(struct hfi_json_reader *reader) {
    char key[2];
    size_t len;
    unsigned depth = reader->depth;
    do {
        char c = peek(reader);
        if (c == '"') {
            hfi_json_read_text(reader, key, sizeof key, &len);
        } else if (c == '{' || c == '[') {
            if (!hfi_json_enter(reader, c))
                mark_invalid(reader);
        } else if (c == '}' || c == ']' || c == ',' || c == ':') {
            if (reader->depth <= depth) {
                mark_invalid(reader);
            } else {
                reader->at++;
                reader->depth -= c == '}' || c == ']';
            }
        } else {
            skip_word(reader);
        }
    } while (!reader->bad && reader->depth > depth);
    reader->first = false;
}

bool hfi_json_is_over(struct hfi_json_reader *reader) {
    return !reader->bad && reader->depth == 0 && peek(reader) == '\0' && reader->at == reader->end;
}
