/*
 * What an actor that is C does with a lock of any kind: Java's verbs, by the public calls.
 *
 * Called by actors.c on the test's one thread. All holds have the owner C_OWNER, so that an
 * operation in the background and a call afterwards are the same owner.
 */
#include "actors.h"

#include <stdio.h>
#include <string.h>

static hf_acquire_options options_of(const struct command *command, int64_t wait_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.owner = C_OWNER;
    options.wait_ms = command->wait_ms != NOT_GIVEN ? command->wait_ms : wait_ms;
    if (command->lease_ms != NOT_GIVEN)
        options.lease_ms = command->lease_ms;
    return options;
}

static int c_lock_forever(struct c_object *object, const struct command *command, char *answer) {
    hf_acquire_options options = options_of(command, HF_FOREVER);
    (void)answer;
    return hf_lock_acquire_with(object->lock, &options, NULL);
}

static int c_try(struct c_object *object, const struct command *command, char *answer) {
    hf_acquire_options options = options_of(command, 0);
    (void)answer;
    return hf_lock_acquire_with(object->lock, &options, NULL);
}

static int c_wait(struct c_object *object, const struct command *command, char *answer) {
    hf_acquire_options options = options_of(command, HF_FOREVER);
    (void)answer;
    return hf_lock_acquire_start(object->lock, &options, NULL, NULL, &object->waiting);
}

static int c_unlock(struct c_object *object, const struct command *command, char *answer) {
    (void)command;
    (void)answer;
    return hf_lock_release_as(object->lock, C_OWNER);
}

static int answer_bool(int err, bool yes, char *answer) {
    strcpy(answer, yes ? "true" : "false");
    return err;
}

static int c_force(struct c_object *object, const struct command *command, char *answer) {
    bool yes = false;
    (void)command;
    int err = hf_lock_break(object->lock, &yes);
    return answer_bool(err, yes, answer);
}

static int c_is_locked(struct c_object *object, const struct command *command, char *answer) {
    bool yes = false;
    (void)command;
    int err = hf_lock_is_locked(object->lock, &yes);
    return answer_bool(err, yes, answer);
}

static int c_held_by(struct c_object *object, const struct command *command, char *answer) {
    bool yes = false;
    (void)command;
    int err = hf_lock_is_mine_as(object->lock, C_OWNER, &yes);
    return answer_bool(err, yes, answer);
}

static int c_count(struct c_object *object, const struct command *command, char *answer) {
    int64_t count = 0;
    (void)command;
    int err = hf_lock_hold_count_as(object->lock, C_OWNER, &count);
    snprintf(answer, 64, "%lld", (long long)count);
    return err;
}

static int open_lock(struct c_object *object, const struct c_kind *kind) {
    return new_lock(object->client, kind->lock_kind, object->name, strlen(object->name),
                    &object->lock);
}

static void close_lock(struct c_object *object) {
    hf_lock_free(object->lock);
}

static const struct c_verb_entry verbs[] = {
    {"lock", c_lock_forever}, {"try", c_try},     {"wait", c_wait},
    {"unlock", c_unlock},     {"force", c_force}, {"isLocked", c_is_locked},
    {"heldBy", c_held_by},    {"count", c_count}, {NULL, NULL},
};

#define LOCK_KIND(word, kind)                                                                      \
    { word, open_lock, close_lock, verbs, kind }

static const struct c_kind kinds[] = {
    LOCK_KIND("plain", HF_PLAIN), LOCK_KIND("nonreentrant", HF_NONREENTRANT),
    LOCK_KIND("spin", HF_SPIN),   LOCK_KIND("fenced", HF_FENCED),
    LOCK_KIND("fair", HF_FAIR),   LOCK_KIND("nonreentrantfair", HF_FAIR | HF_NONREENTRANT),
    LOCK_KIND("read", HF_READ),   LOCK_KIND("write", HF_WRITE),
};

const struct c_kind *c_kind_of_lock(const char *kind) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, kind) == 0)
            return &kinds[i];
    }
    return NULL;
}
