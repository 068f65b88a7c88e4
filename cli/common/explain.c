/* Explains what kind of object has a name, when it is not the expected kind: says which, and names
 * the option or subcommand for it.
 *
 * Called by the subcommands on their main thread, after the library has refused a name. Asks the
 * server again, so the object may have changed since. Without an object or a reply it prints
 * nothing. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

void say_other(const char *name, const char *noun, const char *type) {
    char buffer[SHOWN_NAME_SIZE];
    /* A number is excluded: it could be a semaphore. */
    const char *more = strcmp(type, "string") == 0 ? " that is not a number" : "";
    say_of(LEVEL_ERROR, &(struct subject){.code = HF_EWRONGTYPE, .lock = name},
           "'%s' is not a %s, but a %s%s", shown_name(name, buffer), noun, type, more);
}

const char *found_text(hf_found kind) {
    static const char *const names[] = {
        [HF_FOUND_FREE] = "free",       [HF_FOUND_PLAIN] = "plain", [HF_FOUND_FAIR] = "fair",
        [HF_FOUND_READ] = "read",       [HF_FOUND_WRITE] = "write", [HF_FOUND_PERMITS] = "permits",
        [HF_FOUND_COUNTER] = "counter", [HF_FOUND_OTHER] = "other", [HF_FOUND_STRING] = "string",
    };
    return names[kind];
}

static void explain(const char *name, const char *noun, const struct explanation *all,
                    const hf_lock_info *info) {
    char buffer[SHOWN_NAME_SIZE];
    for (; all->words != NULL; all++) {
        if (info->kind == all->kind) {
            say_of(LEVEL_ERROR, &(struct subject){.code = HF_EWRONGTYPE, .lock = name},
                   "'%s' is %s", shown_name(name, buffer), all->words);
            return;
        }
    }
    if (info->kind == HF_FOUND_OTHER)
        say_other(name, noun, info->type_name);
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
