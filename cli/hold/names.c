/* The lock names of `run` and `hold`: one NAME, or with -m several, acquired all or none.
 *
 * Called while the command line is read, before other threads exist. The names point into argv. The
 * joined name stands for all of them in messages and in the command's environment. */
#include "hold/held.h"

#include <stdlib.h>
#include <string.h>

static int check(const struct names *names, const char *subcommand) {
    if (names->len > HF_MULTI_MAX)
        return usage_error(subcommand, "-m takes %d NAMEs at most", HF_MULTI_MAX);
    for (size_t i = 0; i < names->len; i++) {
        if (names->of[i][0] == '\0')
            return usage_error(subcommand, "a NAME is empty");
        if (names->of[i][0] == '-')
            return usage_error(subcommand, "options go before the NAMEs");
        for (size_t j = 0; j < i; j++)
            if (strcmp(names->of[i], names->of[j]) == 0)
                return usage_error(subcommand, "'%s' is given twice", names->of[i]);
    }
    return 0;
}

static char *join(char *const *words, size_t len) {
    size_t size = 1;
    for (size_t i = 0; i < len; i++)
        size += strlen(words[i]) + 1;
    char *joined = calloc(1, size), *end = joined;
    for (size_t i = 0; i < len && joined != NULL; i++) {
        if (i > 0)
            *end++ = ' ';
        end = stpcpy(end, words[i]);
    }
    return joined;
}

int names_take(struct names *names, const char *subcommand, char **words, size_t len) {
    names->of = words;
    names->len = len;
    int status = check(names, subcommand);
    if (status != 0)
        return status;
    names->joined = join(words, len);
    return names->joined != NULL ? 0 : STATUS_OS;
}

void names_free(struct names *names) {
    free(names->joined);
}
