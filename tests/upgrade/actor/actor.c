/*
 * A process that uses the library on command: a member of a fleet with two versions.
 *
 * It is compiled against the library of this build, and against each older version with the header
 * of that version. So it uses only what all of them have; where a call has changed since, the actor
 * of 0.1 has ACTOR_OF_0_1 defined.
 *
 *     actor URL WATCHDOG_MS [BOOKS NUMBER]      (the last two for `storm`: see storm.c)
 *
 * Each line on standard input is a command, "ID VERB KIND NAME [option=value...] [permit-id...]",
 * answered by a line "ID ok [value]" or "ID err HF_E... words". Every command runs on a thread of
 * its own; what it acquires belongs to the number `owner=`. The process ends when its input does.
 */
#include "actor.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names that 0.1 did not have yet. */
#ifdef ACTOR_OF_0_1
typedef hf_kind any_kind;
#define FAIR_NONREENTRANT HF_FAIR_NONREENTRANT
#define new_lock hf_lock_new_kind
#define hf_lock_hold_count_as hf_lock_hold_count
#define hf_permits_new_bytes hf_permits_new
#define hf_sem_new_bytes hf_sem_new
#define hf_sem_try_set hf_sem_set
#define hf_latch_new_bytes hf_latch_new
#define hf_latch_try_set hf_latch_set
#else
#include "support/new_lock.h"
#define FAIR_NONREENTRANT (HF_FAIR | HF_NONREENTRANT)
#endif

enum { HANDLES = 128 };

static struct handle {
    char kind[24], name[64];
    void *object;
} handles[HANDLES];
static pthread_mutex_t handles_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t output_mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- Objects --------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    any_kind kind;
} lock_kinds[] = {{"plain", HF_PLAIN}, {"nonreentrant", HF_NONREENTRANT},
                  {"spin", HF_SPIN},   {"fenced", HF_FENCED},
                  {"fair", HF_FAIR},   {"nonreentrantfair", FAIR_NONREENTRANT},
                  {"read", HF_READ},   {"write", HF_WRITE}};

static bool is_lock(const char *kind) {
    for (size_t i = 0; i < sizeof lock_kinds / sizeof *lock_kinds; i++) {
        if (strcmp(kind, lock_kinds[i].word) == 0)
            return true;
    }
    return false;
}

static int make(hf_client *client, const char *kind, const char *name, void **ret) {
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof lock_kinds / sizeof *lock_kinds; i++) {
        if (strcmp(kind, lock_kinds[i].word) == 0)
            return new_lock(client, lock_kinds[i].kind, name, len, (hf_lock **)ret);
    }
    if (strcmp(kind, "permits") == 0)
        return hf_permits_new_bytes(client, name, len, (hf_permits **)ret);
    if (strcmp(kind, "semaphore") == 0)
        return hf_sem_new_bytes(client, name, len, (hf_sem **)ret);
    if (strcmp(kind, "latch") == 0)
        return hf_latch_new_bytes(client, name, len, (hf_latch **)ret);
    return HF_EINVAL;
}

int actor_object(hf_client *client, const char *kind, const char *name, void **ret) {
    int err = HF_ENOMEM;
    pthread_mutex_lock(&handles_mutex);
    for (struct handle *handle = handles; handle < handles + HANDLES; handle++) {
        if (handle->object == NULL) {
            err = make(client, kind, name, &handle->object);
            snprintf(handle->kind, sizeof handle->kind, "%s", kind);
            snprintf(handle->name, sizeof handle->name, "%s", name);
            *ret = handle->object;
            break;
        }
        if (strcmp(handle->kind, kind) == 0 && strcmp(handle->name, name) == 0) {
            err = HF_OK;
            *ret = handle->object;
            break;
        }
    }
    pthread_mutex_unlock(&handles_mutex);
    return err;
}

/* ---- Verbs ----------------------------------------------------------------------------------- */

static int do_lock(hf_lock *lock, const struct request *request, char *answer) {
    if (strcmp(request->verb, "acquire") == 0) {
        hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
        hf_result result = HF_RESULT_INIT;
        options.owner = (hf_owner)request->owner;
        options.wait_ms = request->wait_ms;
        options.lease_ms = request->lease_ms;
        int err = hf_lock_acquire_with(lock, &options, &result);
        if (result.token != 0)
            snprintf(answer, ANSWER_SIZE, "%lld", (long long)result.token);
        return err;
    }
    if (strcmp(request->verb, "release") == 0)
        return hf_lock_release_as(lock, (hf_owner)request->owner);
    if (strcmp(request->verb, "break") == 0) {
        bool broken = false;
        int err = hf_lock_break(lock, &broken);
        snprintf(answer, ANSWER_SIZE, "%s", broken ? "broken" : "free");
        return err;
    }
    if (strcmp(request->verb, "count") == 0) {
        int64_t count = 0;
        int err = hf_lock_hold_count_as(lock, (hf_owner)request->owner, &count);
        snprintf(answer, ANSWER_SIZE, "%lld", (long long)count);
        return err;
    }
    return HF_EINVAL;
}

static int do_permits(hf_permits *permits, const struct request *request, char *answer) {
    int64_t number = 0;
    if (strcmp(request->verb, "set") == 0)
        return hf_permits_set(permits, request->count);
    if (strcmp(request->verb, "acquire") == 0) {
        hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
        hf_permit_id ids[IDS] = {{{0}}};
        options.count = request->count;
        options.wait_ms = request->wait_ms;
        options.lease_ms = request->lease_ms;
        int err = hf_permits_acquire_with(permits, &options, ids);
        for (int64_t i = 0, at = 0; err == HF_OK && i < request->count; i++)
            at +=
                snprintf(answer + at, ANSWER_SIZE - (size_t)at, i == 0 ? "%s" : " %s", ids[i].text);
        return err;
    }
    if (strcmp(request->verb, "release") == 0 && request->ids_len == 1)
        return hf_permits_release(permits, request->ids);
    if (strcmp(request->verb, "release") == 0)
        return hf_permits_release_many(permits, request->ids, request->ids_len);
    if (strcmp(request->verb, "available") == 0) {
        int err = hf_permits_available(permits, &number);
        snprintf(answer, ANSWER_SIZE, "%lld", (long long)number);
        return err;
    }
    return strcmp(request->verb, "delete") == 0 ? hf_permits_delete(permits, NULL) : HF_EINVAL;
}

static int do_semaphore(hf_sem *sem, const struct request *request, char *answer) {
    int64_t number = 0;
    if (strcmp(request->verb, "set") == 0)
        return hf_sem_try_set(sem, request->count, 0, NULL);
    if (strcmp(request->verb, "acquire") == 0)
        return hf_sem_acquire_for(sem, request->count, request->wait_ms);
    if (strcmp(request->verb, "release") == 0)
        return hf_sem_release(sem, request->count);
    if (strcmp(request->verb, "available") == 0) {
        int err = hf_sem_available(sem, &number);
        snprintf(answer, ANSWER_SIZE, "%lld", (long long)number);
        return err;
    }
    return strcmp(request->verb, "delete") == 0 ? hf_sem_delete(sem, NULL) : HF_EINVAL;
}

static int do_latch(hf_latch *latch, const struct request *request, char *answer) {
    (void)answer;
    if (strcmp(request->verb, "set") == 0)
        return hf_latch_try_set(latch, request->count, NULL);
    if (strcmp(request->verb, "down") == 0)
        return hf_latch_count_down(latch);
    return strcmp(request->verb, "acquire") == 0 ? hf_latch_await_for(latch, request->wait_ms)
                                                 : HF_EINVAL;
}

static int run(const struct request *request, char *answer) {
    void *object;
    if (strcmp(request->verb, "ping") == 0)
        return hf_ping(request->client);
    if (strcmp(request->verb, "version") == 0) {
        snprintf(answer, ANSWER_SIZE, "%s", hf_version());
        return HF_OK;
    }
    if (strcmp(request->verb, "storm") == 0)
        return actor_storm(request, answer);
    int err = actor_object(request->client, request->kind, request->name, &object);
    if (err != HF_OK)
        return err;
    if (is_lock(request->kind))
        return do_lock(object, request, answer);
    if (strcmp(request->kind, "permits") == 0)
        return do_permits(object, request, answer);
    if (strcmp(request->kind, "semaphore") == 0)
        return do_semaphore(object, request, answer);
    return do_latch(object, request, answer);
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static void *answer_thread(void *arg) {
    struct request *request = arg;
    char answer[ANSWER_SIZE] = "";
    int err = run(request, answer);
    pthread_mutex_lock(&output_mutex);
    if (err != HF_OK)
        printf("%d err %s %s\n", request->id, hf_error_name(err), hf_last_error()->text);
    else
        printf("%d ok%s%s\n", request->id, answer[0] != '\0' ? " " : "", answer);
    fflush(stdout);
    pthread_mutex_unlock(&output_mutex);
    free(request);
    return NULL;
}

static bool read_option(struct request *request, const char *word) {
    const struct {
        const char *name;
        int64_t *value;
    } options[] = {{"owner=", &request->owner},
                   {"wait=", &request->wait_ms},
                   {"lease=", &request->lease_ms},
                   {"count=", &request->count}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        size_t len = strlen(options[i].name);
        if (strncmp(word, options[i].name, len) == 0) {
            *options[i].value = atoll(word + len);
            return true;
        }
    }
    return false;
}

static struct request *parse(char *line) {
    struct request *request = calloc(1, sizeof *request);
    if (request == NULL)
        abort();
    request->owner = 1;
    request->wait_ms = HF_FOREVER;
    request->lease_ms = HF_WATCHDOG;
    request->count = 1;
    int place = 0;
    for (char *word = strtok(line, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        if (read_option(request, word))
            continue;
        place++;
        if (place == 1)
            request->id = atoi(word);
        else if (place == 2)
            snprintf(request->verb, sizeof request->verb, "%s", word);
        else if (place == 3)
            snprintf(request->kind, sizeof request->kind, "%s", word);
        else if (place == 4)
            snprintf(request->name, sizeof request->name, "%s", word);
        else if (request->ids_len < IDS)
            snprintf(request->ids[request->ids_len++].text, sizeof request->ids->text, "%s", word);
    }
    return request;
}

int main(int argc, char **argv) {
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    char line[1024];
    if (argc != 3 && argc != 5)
        return 2;
    options.watchdog_ms = atoll(argv[2]);
    if (hf_open(argv[1], &options, &client) != HF_OK ||
        (argc == 5 && !actor_books(argv[3], atoi(argv[4])))) {
        fprintf(stderr, "actor: %s\n", hf_last_error()->text);
        return 1;
    }
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    while (fgets(line, sizeof line, stdin) != NULL) {
        pthread_t thread;
        struct request *request = parse(line);
        request->client = client;
        if (pthread_create(&thread, &detached, answer_thread, request) != 0)
            return 1;
    }
    _exit(0); /* Commands may still wait; nobody reads their answers. */
}
