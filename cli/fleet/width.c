/* The width of a text on a terminal: some letters take two columns, combining marks none. The C
 * library knows in a UTF-8 locale, which is used whatever the user's locale is. Without one, every
 * character counts as one column. */
#include "fleet/fleet.h"

#include <locale.h>
#include <string.h>
#include <wchar.h>

/* Never freed: used until exit. */
static locale_t utf8_locale(void) {
    static locale_t utf8;
    static bool tried;
    if (!tried)
        utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    tried = true;
    return utf8;
}

/* The columns and bytes of the character at `text`. */
static int measure(const char *text, size_t *ret_len) {
    mbstate_t state = {0};
    wchar_t wide;
    size_t len = mbrtowc(&wide, text, strlen(text), &state);
    if (len == 0 || len > 4) { /* not UTF-8, or no such locale */
        *ret_len = 1;
        return ((unsigned char)*text & 0xc0) != 0x80;
    }
    *ret_len = len;
    int width = wcwidth(wide);
    return width >= 0 ? width : 1;
}

size_t text_fit(const char *text, int columns, int *ret_width) {
    locale_t utf8 = utf8_locale();
    locale_t before = utf8 != (locale_t)0 ? uselocale(utf8) : (locale_t)0;
    size_t at = 0, len;
    int width = 0;
    while (text[at] != '\0') {
        int more = measure(text + at, &len);
        if (width + more > columns)
            break;
        width += more;
        at += len;
    }
    if (utf8 != (locale_t)0)
        uselocale(before);
    *ret_width = width;
    return at;
}

int text_width(const char *text) {
    int width;
    text_fit(text, INT32_MAX, &width);
    return width;
}
