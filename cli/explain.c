/*
 * What a name is in use for, when that is not what was asked for: a sentence that says so, and
 * names the option or subcommand for it.
 *
 * Called by the subcommands after the library has refused a name, on their main thread. Asks the
 * server once more; what it finds may have changed since, and if it finds nothing, or no answer
 * comes, it says nothing.
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

void say_other(const char *name, const char *noun, const char *type) {
    char buffer[SHOWN_NAME_SIZE];
    /* A number is never of this kind: it could be a semaphore. */
    const char *more = strcmp(type, "string") == 0 ? " that is no number" : "";
    say(LEVEL_ERROR, "'%s' is no %s, but a %s%s", shown_name(name, buffer), noun, type, more);
}

const char *found_word(hf_found kind) {
    static const char *const words[] = {
        [HF_FOUND_FREE] = "free",       [HF_FOUND_PLAIN] = "plain", [HF_FOUND_FAIR] = "fair",
        [HF_FOUND_READ] = "read",       [HF_FOUND_WRITE] = "write", [HF_FOUND_PERMITS] = "permits",
        [HF_FOUND_COUNTER] = "counter", [HF_FOUND_OTHER] = "other",
    };
    return words[kind];
}

static void explain(const char *name, const char *noun, const struct explanation *all,
                    const hf_lock_info *info) {
    char buffer[SHOWN_NAME_SIZE];
    for (; all->words != NULL; all++) {
        if (info->kind == all->kind) {
            say(LEVEL_ERROR, "'%s' is %s", shown_name(name, buffer), all->words);
            return;
        }
    }
    if (info->kind == HF_FOUND_OTHER)
        say_other(name, noun, info->words);
}

void explain_name(hf_client *client, const char *name, const char *noun,
                  const struct explanation *all) {
    hf_lock *lock = NULL;
    hf_lock_info *info = NULL;
    if (hf_lock_new(client, name, &lock) == HF_OK && hf_lock_inspect(lock, &info) == HF_OK)
        explain(name, noun, all, info);
    hf_lock_info_free(info);
    hf_lock_free(lock);
}
