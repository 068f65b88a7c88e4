/* "Did you mean ...?": suggests a subcommand or option for an unknown word, by a single typing
 * error or by another tool's name for it.
 *
 * Called while the command line is read, before other threads exist; stateless. */
#include "cli.h"

#include <ctype.h>
#include <string.h>

static bool same_letter(char a, char b) {
    return toupper((unsigned char)a) == toupper((unsigned char)b);
}

bool one_typo_apart(const char *typed, size_t typed_len, const char *meant) {
    size_t meant_len = strlen(meant);
    while (typed_len > 0 && meant_len > 0 && same_letter(*typed, *meant)) {
        typed++, typed_len--;
        meant++, meant_len--;
    }
    while (typed_len > 0 && meant_len > 0 &&
           same_letter(typed[typed_len - 1], meant[meant_len - 1])) {
        typed_len--;
        meant_len--;
    }
    bool exchanged = typed_len == 2 && meant_len == 2 && same_letter(typed[0], meant[1]) &&
                     same_letter(typed[1], meant[0]);
    return (typed_len <= 1 && meant_len <= 1) || exchanged;
}

/* The subcommand for a word of flock(1), redis-cli(1), systemctl(1) and similar tools. */
static const char *synonym_of(const char *word) {
    static const struct {
        const char *word, *meant;
    } all[] = {
        {"lock", "run"},        {"flock", "run"},     {"exec", "run"},
        {"with", "run"},        {"list", "ls"},       {"locks", "ls"},
        {"ps", "ls"},           {"status", "show"},   {"info", "show"},
        {"inspect", "show"},    {"get", "show"},      {"who", "show"},
        {"break", "unlock"},    {"force", "unlock"},  {"renew", "extend"},
        {"refresh", "extend"},  {"leader", "elect"},  {"election", "elect"},
        {"lead", "elect"},      {"monitor", "watch"}, {"events", "watch"},
        {"tail", "watch"},      {"check", "doctor"},  {"diagnose", "doctor"},
        {"benchmark", "bench"}, {"semaphore", "sem"}, {"server", "serve"},
        {"metrics", "serve"},   {"web", "serve"},     {"countdown", "latch"},
        {"barrier", "latch"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcasecmp(word, all[i].word) == 0)
            return all[i].meant;
    }
    return NULL;
}

static const char *command_meant(const char *word) {
    const char *meant = synonym_of(word);
    const struct command *command;
    for (size_t i = 0; meant == NULL && (command = command_at(i)) != NULL; i++) {
        if (one_typo_apart(word, strlen(word), command->name))
            meant = command->name;
    }
    return meant;
}

int no_subcommand(const char *word) {
    const char *meant = command_meant(word);
    if (meant == NULL)
        return usage_error(NULL, "unknown subcommand '%s'", word);
    return usage_error(NULL, "unknown subcommand '%s': did you mean '%s'?", word, meant);
}

const char *option_meant(const struct option_spec *specs, const char *name, size_t name_len) {
    for (const struct option_spec *spec = specs; spec->kind != OPTION_END; spec++) {
        if (spec->name != NULL && one_typo_apart(name, name_len, spec->name))
            return spec->name;
    }
    return NULL;
}
