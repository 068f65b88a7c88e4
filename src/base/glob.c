/*
 * Matching names with patterns (glob.h). Pure; any thread.
 *
 * On a mismatch only the last `*` is retried, one byte further on. So the time is at most the
 * product of both lengths, whatever the pattern.
 */
#include "base/glob.h"

/* Is `c` in the set after a '['? Leaves *at after its ']', or at the end. */
static bool is_in_set(const char *pattern, size_t len, size_t *at, unsigned char c) {
    bool inverted = *at < len && pattern[*at] == '^', found = false;
    for (*at += inverted; *at < len && pattern[*at] != ']'; (*at)++) {
        if (pattern[*at] == '\\' && *at + 1 < len)
            (*at)++;
        unsigned char low = (unsigned char)pattern[*at], high = low;
        if (*at + 2 < len && pattern[*at + 1] == '-') {
            *at += 2;
            high = (unsigned char)pattern[*at];
        }
        found = found || (low <= c && c <= high) || (high <= c && c <= low);
    }
    *at += *at < len;
    return found != inverted;
}

/* Does the next pattern element, which is no `*`, match `c`? Leaves *at after it. */
static bool matches_one(const char *pattern, size_t len, size_t *at, char c) {
    char next = pattern[(*at)++];
    if (next == '?')
        return true;
    if (next == '[')
        return is_in_set(pattern, len, at, (unsigned char)c);
    if (next == '\\' && *at < len)
        next = pattern[(*at)++];
    return next == c;
}

bool hfi_glob(const char *pattern, size_t pattern_len, const char *name, size_t name_len) {
    size_t at = 0, in = 0, star = pattern_len, star_in = 0;
    bool starred = false;
    if (pattern_len == 0)
        return true;
    while (in < name_len) {
        if (at < pattern_len && pattern[at] == '*') {
            starred = true;
            star = ++at;
            star_in = in;
        } else if (at < pattern_len && matches_one(pattern, pattern_len, &at, name[in])) {
            in++;
        } else if (starred) {
            at = star;
            in = ++star_in;
        } else {
            return false;
        }
    }
    while (at < pattern_len && pattern[at] == '*')
        at++;
    return at == pattern_len;
}
