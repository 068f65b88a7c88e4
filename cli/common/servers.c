/* Several servers: more than one url, which the library treats as a quorum. Called by the
 * subcommands before other threads exist; stateless. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\r\n";

bool connection_has_several(const struct connection *connection) {
    const char *text = connection->target + strspn(connection->target, blanks);
    text += strcspn(text, blanks);
    return text[strspn(text, blanks)] != '\0';
}

int connection_refuse_several(const struct connection *connection, const char *subcommand,
                              const char *what) {
    if (!connection_has_several(connection))
        return 0;
    return usage_error(
        subcommand,
        "%s cannot be used with a quorum, which has plain, fenced and string locks only", what);
}

bool connection_next_server(const char **list, struct connection *one) {
    *list += strspn(*list, blanks);
    size_t len = strcspn(*list, blanks);
    if (len == 0)
        return false;
    one->target = strndup(*list, len);
    *list += len;
    return one->target != NULL;
}

/* Without scheme, user, password and options. */
void connection_shown_server(const struct connection *one, char *shown, size_t size) {
    const char *mark = strstr(one->target, "://");
    const char *text = mark != NULL ? mark + 3 : one->target;
    size_t len = strcspn(text, "?");
    const char *at = memrchr(text, '@', len);
    if (at != NULL) {
        len -= (size_t)(at + 1 - text);
        text = at + 1;
    }
    snprintf(shown, size, "%.*s", (int)len, text);
}

char *connection_add_server(const char *list, const char *url) {
    char *both = NULL;
    return asprintf(&both, "%s %s", list, url) < 0 ? NULL : both;
}
