/* Parses options from the command line, driven by a table; environment.c has those of the environment.
 *
 * Not getopt_long: it accepts abbreviations, whose meaning changes when an option is added, and it
 * cannot say "this letter belongs in front of the subcommand". The usual forms are accepted: -n,
 * -nq, -w5, -w 5, --wait=5, --wait 5, and -- as the end. Parsing stops at the first operand, so a
 * command's own options are never taken for ours.
 *
 * Called before other threads or processes exist. Functions print an error before they return
 * it. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool takes_value(const struct option_spec *spec) {
    return spec->kind == OPTION_VALUE;
}

static const struct option_spec *find(const struct option_spec *specs, char letter,
                                      const char *name, size_t name_len) {
    for (const struct option_spec *spec = specs; spec->kind != OPTION_END; spec++) {
        if (name == NULL ? spec->letter == letter
                         : spec->name != NULL && strlen(spec->name) == name_len &&
                               strncmp(spec->name, name, name_len) == 0)
            return spec;
    }
    return NULL;
}

static int unknown(const struct option_spec *specs, const char *subcommand, char letter,
                   const char *name, size_t name_len, const char *shown) {
    if (subcommand != NULL && find(connection_options, letter, name, name_len) != NULL)
        return usage_error(subcommand, "%s is a connection option: put it before '%s'", shown,
                           subcommand);
    const char *meant = name != NULL ? option_meant(specs, name, name_len) : NULL;
    if (meant != NULL)
        return usage_error(subcommand, "unknown option %s: did you mean --%s?", shown, meant);
    return usage_error(subcommand, "unknown option %s", shown);
}

/* One argument that begins with two dashes. Advances *index if the value is the next argument. */
static int take_long(const struct option_spec *specs, const char *subcommand, int argc, char **argv,
                     int *index, option_fn take, void *user) {
    char *name = argv[*index] + 2;
    char *equals = strchr(name, '=');
    size_t len = equals != NULL ? (size_t)(equals - name) : strlen(name);
    char shown[64];
    snprintf(shown, sizeof shown, "--%.*s", (int)len, name);

    const struct option_spec *spec = find(specs, 0, name, len);
    if (spec == NULL)
        return unknown(specs, subcommand, 0, name, len, shown);
    char *value = equals != NULL ? equals + 1 : NULL;
    if (value != NULL && !takes_value(spec))
        return usage_error(subcommand, "%s takes no value", shown);
    if (value == NULL && takes_value(spec)) {
        if (*index + 1 >= argc)
            return usage_error(subcommand, "%s needs a value", shown);
        value = argv[++*index];
    }
    return take(user, spec->id, value, shown);
}

/* One argument of letters: flags, then perhaps an option whose value is the rest or the next
 * argument. */
static int take_letters(const struct option_spec *specs, const char *subcommand, int argc,
                        char **argv, int *index, option_fn take, void *user) {
    for (char *letter = argv[*index] + 1; *letter != '\0'; letter++) {
        char shown[] = {'-', *letter, '\0'};
        const struct option_spec *spec = find(specs, *letter, NULL, 0);
        if (spec == NULL)
            return unknown(specs, subcommand, *letter, NULL, 0, shown);
        if (!takes_value(spec)) {
            int status = take(user, spec->id, NULL, shown);
            if (status != 0)
                return status;
            continue;
        }

        char *value = letter + 1;
        if (*value == '\0') {
            if (*index + 1 >= argc)
                return usage_error(subcommand, "%s needs a value", shown);
            value = argv[++*index];
        }
        return take(user, spec->id, value, shown);
    }
    return 0;
}

int options_parse(const struct option_spec *specs, const char *subcommand, int argc, char **argv,
                  option_fn take, void *user) {
    int index = 1;
    for (; index < argc; index++) {
        const char *word = argv[index];
        if (word[0] != '-' || word[1] == '\0')
            break;
        if (strcmp(word, "--") == 0)
            return index + 1;
        int status = word[1] == '-'
                         ? take_long(specs, subcommand, argc, argv, &index, take, user)
                         : take_letters(specs, subcommand, argc, argv, &index, take, user);
        if (status != 0)
            return -status;
    }
    return index;
}

int either_take(struct either *either, const char *subcommand, int id, const char *shown,
                const char *why) {
    bool by_flag = shown[0] == '-', earlier_by_flag = either->shown[0] == '-';
    if (either->id != 0 && either->id != id && by_flag == earlier_by_flag)
        return usage_error(subcommand, "%s and %s exclude each other: %s", either->shown, shown,
                           why);
    either->id = id;
    snprintf(either->shown, sizeof either->shown, "%s", shown);
    return 0;
}

int take_wait(struct either *either, const char *subcommand, const char *value, const char *shown,
              int64_t *ret_ms) {
    enum { WAITS = 1, DOES_NOT_WAIT };
    int64_t ms = 0;
    if (value != NULL && !parse_duration(value, &ms))
        return duration_error(subcommand, shown, value);
    int status =
        either_take(either, subcommand, ms > 0 ? WAITS : DOES_NOT_WAIT, shown, "give one of them");
    if (status == 0)
        *ret_ms = ms;
    return status;
}
