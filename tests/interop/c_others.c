/*
 * What an actor that is C does with a semaphore, with permits that have leases, or with a latch:
 * Java's verbs, by the public calls.
 *
 * Called by actors.c on the test's one thread. Java's acquire without a lease gives a permit for
 * ever, and so does ours here.
 */
#include "actors.h"

#include <stdio.h>
#include <string.h>

static int answer_bool(int err, bool yes, char *answer) {
    strcpy(answer, yes ? "true" : "false");
    return err;
}

static int answer_number(int err, int64_t number, char *answer) {
    snprintf(answer, 64, "%lld", (long long)number);
    return err;
}

static int64_t given_or(int64_t given, int64_t otherwise) {
    return given != NOT_GIVEN ? given : otherwise;
}

static hf_wait_options wait_of(const struct command *command, int64_t wait_ms) {
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    options.wait_ms = given_or(command->wait_ms, wait_ms);
    return options;
}

#define VERB(name)                                                                                 \
    static int name(struct c_object *object, const struct command *command, char *answer)

/* ---- Semaphores ------------------------------------------------------------------------------ */

VERB(sem_set) {
    bool set = false;
    int err = hf_sem_try_set(object->sem, command->permits, given_or(command->ttl_ms, 0), &set);
    return answer_bool(err, set, answer);
}

VERB(sem_acquire) {
    hf_wait_options options = wait_of(command, HF_FOREVER);
    (void)answer;
    return hf_sem_acquire_with(object->sem, command->permits, &options);
}

VERB(sem_try) {
    hf_wait_options options = wait_of(command, 0);
    (void)answer;
    return hf_sem_acquire_with(object->sem, command->permits, &options);
}

VERB(sem_wait_start) {
    hf_wait_options options = wait_of(command, HF_FOREVER);
    (void)answer;
    return hf_sem_acquire_start(object->sem, command->permits, &options, NULL, NULL,
                                &object->waiting);
}

VERB(sem_release) {
    (void)answer;
    return hf_sem_release(object->sem, command->permits);
}

VERB(sem_release_if_exists) {
    bool released = false;
    int err = hf_sem_release_if_exists(object->sem, command->permits, &released);
    return answer_bool(err, released, answer);
}

VERB(sem_add) {
    (void)answer;
    return hf_sem_add(object->sem, command->permits);
}

VERB(sem_drain) {
    int64_t permits = 0;
    (void)command;
    int err = hf_sem_drain(object->sem, &permits);
    return answer_number(err, permits, answer);
}

VERB(sem_available) {
    int64_t permits = 0;
    (void)command;
    int err = hf_sem_available(object->sem, &permits);
    return answer_number(err, permits, answer);
}

VERB(sem_delete) {
    bool deleted = false;
    (void)command;
    int err = hf_sem_delete(object->sem, &deleted);
    return answer_bool(err, deleted, answer);
}

static int sem_open_named(struct c_object *object, const struct c_kind *kind) {
    (void)kind;
    return hf_sem_new_bytes(object->client, object->name, strlen(object->name), &object->sem);
}

static void sem_close_named(struct c_object *object) {
    hf_sem_free(object->sem);
}

/* ---- Permits with leases --------------------------------------------------------------------- */

static hf_permits_options permits_of(struct c_object *object, const struct command *command,
                                     int64_t wait_ms) {
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    options.count = command->permits;
    options.wait_ms = given_or(command->wait_ms, wait_ms);
    options.lease_ms = given_or(command->lease_ms, HF_NO_LEASE);
    object->ids_len = (size_t)command->permits;
    return options;
}

VERB(permits_try_set) {
    bool set = false;
    int err = hf_permits_try_set(object->permits, command->permits, &set);
    return answer_bool(err, set, answer);
}

VERB(permits_set) {
    (void)answer;
    return hf_permits_set(object->permits, command->permits);
}

VERB(permits_add) {
    (void)answer;
    return hf_permits_add(object->permits, command->permits);
}

VERB(permits_acquire) {
    hf_permits_options options = permits_of(object, command, HF_FOREVER);
    (void)answer;
    return hf_permits_acquire_with(object->permits, &options, object->ids);
}

VERB(permits_try) {
    hf_permits_options options = permits_of(object, command, 0);
    (void)answer;
    return hf_permits_acquire_with(object->permits, &options, object->ids);
}

VERB(permits_wait_start) {
    hf_permits_options options = permits_of(object, command, HF_FOREVER);
    (void)answer;
    return hf_permits_acquire_start(object->permits, &options, object->ids, NULL, NULL,
                                    &object->waiting);
}

/* Java answers a truth for one, and for many how many they were. */
VERB(permits_try_release) {
    bool one = command->ids_len == 1;
    int err = one ? hf_permits_release(object->permits, &command->ids[0])
                  : hf_permits_release_many(object->permits, command->ids, command->ids_len);
    bool released = err == HF_OK;
    if (err == HF_ELOST || err == HF_ENOTOWNER)
        err = HF_OK;
    return one ? answer_bool(err, released, answer)
               : answer_number(err, released ? (int64_t)command->ids_len : 0, answer);
}

VERB(permits_update_lease) {
    int err = hf_permits_extend(object->permits, &command->ids[0], command->lease_ms);
    bool updated = err == HF_OK;
    return answer_bool(err == HF_ENOTOWNER ? HF_OK : err, updated, answer);
}

VERB(permits_available) {
    int64_t number = 0;
    (void)command;
    int err = hf_permits_available(object->permits, &number);
    return answer_number(err, number, answer);
}

VERB(permits_total) {
    int64_t number = 0;
    (void)command;
    int err = hf_permits_total(object->permits, &number);
    return answer_number(err, number, answer);
}

VERB(permits_taken) {
    int64_t number = 0;
    (void)command;
    int err = hf_permits_taken(object->permits, &number);
    return answer_number(err, number, answer);
}

VERB(permits_delete) {
    bool deleted = false;
    (void)command;
    int err = hf_permits_delete(object->permits, &deleted);
    return answer_bool(err, deleted, answer);
}

static int permits_open_named(struct c_object *object, const struct c_kind *kind) {
    (void)kind;
    return hf_permits_new_bytes(object->client, object->name, strlen(object->name),
                                &object->permits);
}

static void permits_close_named(struct c_object *object) {
    hf_permits_free(object->permits);
}

/* ---- Latches --------------------------------------------------------------------------------- */

VERB(latch_set) {
    bool set = false;
    int err = hf_latch_try_set(object->latch, command->count, &set);
    return answer_bool(err, set, answer);
}

VERB(latch_count_down) {
    (void)command;
    (void)answer;
    return hf_latch_count_down(object->latch);
}

VERB(latch_await) {
    hf_wait_options options = wait_of(command, HF_FOREVER);
    int err = hf_latch_await_with(object->latch, &options);
    bool open = err == HF_OK;
    return answer_bool(err == HF_EBUSY || err == HF_ETIMEDOUT ? HF_OK : err, open, answer);
}

VERB(latch_wait_start) {
    hf_wait_options options = wait_of(command, HF_FOREVER);
    (void)answer;
    return hf_latch_await_start(object->latch, &options, NULL, NULL, &object->waiting);
}

VERB(latch_count) {
    int64_t count = 0;
    (void)command;
    int err = hf_latch_count(object->latch, &count);
    return answer_number(err, count, answer);
}

VERB(latch_delete) {
    bool deleted = false;
    (void)command;
    int err = hf_latch_delete(object->latch, &deleted);
    return answer_bool(err, deleted, answer);
}

static int latch_open_named(struct c_object *object, const struct c_kind *kind) {
    (void)kind;
    return hf_latch_new_bytes(object->client, object->name, strlen(object->name), &object->latch);
}

static void latch_close_named(struct c_object *object) {
    hf_latch_free(object->latch);
}

/* ---- The tables ------------------------------------------------------------------------------ */

static const struct c_verb_entry sem_verbs[] = {
    {"setPermits", sem_set},
    {"acquire", sem_acquire},
    {"try", sem_try},
    {"wait", sem_wait_start},
    {"release", sem_release},
    {"releaseIfExists", sem_release_if_exists},
    {"add", sem_add},
    {"drain", sem_drain},
    {"available", sem_available},
    {"delete", sem_delete},
    {NULL, NULL},
};

static const struct c_verb_entry permits_verbs[] = {
    {"trySetPermits", permits_try_set},
    {"setPermits", permits_set},
    {"add", permits_add},
    {"acquire", permits_acquire},
    {"try", permits_try},
    {"wait", permits_wait_start},
    {"tryRelease", permits_try_release},
    {"updateLease", permits_update_lease},
    {"available", permits_available},
    {"permits", permits_total},
    {"acquired", permits_taken},
    {"delete", permits_delete},
    {NULL, NULL},
};

static const struct c_verb_entry latch_verbs[] = {
    {"setCount", latch_set},
    {"countDown", latch_count_down},
    {"await", latch_await},
    {"wait", latch_wait_start},
    {"count", latch_count},
    {"delete", latch_delete},
    {NULL, NULL},
};

static const struct c_kind kinds[] = {
    {.name = "semaphore", .open = sem_open_named, .close = sem_close_named, .verbs = sem_verbs},
    {.name = "permits",
     .open = permits_open_named,
     .close = permits_close_named,
     .verbs = permits_verbs},
    {.name = "latch", .open = latch_open_named, .close = latch_close_named, .verbs = latch_verbs},
};

const struct c_kind *c_kind_of_other(const char *kind) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, kind) == 0)
            return &kinds[i];
    }
    return NULL;
}
