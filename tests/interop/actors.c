/*
 * The two actors of the state rows and of others: reads their commands, has Java or C do them, and puts
 * the answers of both into the same words.
 *
 * Used by the test's one thread. Java's actors are threads of clients j1 and j2 of the suite's JVM; C's
 * have a client each, and all their holds the same owner number. A wait in the background is one command
 * of the JVM that is not answered yet, or one operation; an actor has one at most.
 */
#include "actors.h"

#include "interop.h"

#include <stdio.h>
#include <string.h>

/* By a message: less than any waiter's own poll. */
#define WOKEN_MS BY_MESSAGE_MS

enum { SIDES = 2 }; /* of a read/write lock */

struct actor {
    bool java;
    int thread;      /* Java's */
    int waiting;     /* Java's command in the background, or 0 */
    bool has_waited; /* C's: it may still listen */
    const struct c_kind *kinds[SIDES];
    struct c_object objects[SIDES]; /* C's */
};

struct actors {
    struct actor all[ACTORS];
    const char *kind;
    char name[64];
    struct alias aliases[ACTORS + ACTORS_PERMITS];
    size_t permits; /* so many have been acquired */
    char answer[64];
};

/* ---- Making them ------------------------------------------------------------------------------- */

static const char *const side_names[SIDES] = {"read", "write"};
static const char *const java_clients[ACTORS] = {"j1", "j2"};

static bool has_sides(const struct actors *actors) {
    return strcmp(actors->kind, "readwrite") == 0;
}

static int side_index(const struct command *command) {
    return strcmp(command->side, "write") == 0 ? 1 : 0;
}

static void open_java(struct actors *actors, int i) {
    const char *client = java_clients[i];
    char handle[16];
    actors->all[i].thread = java_thread();
    for (int side = 0; side < (has_sides(actors) ? SIDES : 1); side++) {
        bool sides = has_sides(actors);
        snprintf(handle, sizeof handle, "%c%s%s", 'A' + i, sides ? "." : "",
                 sides ? side_names[side] : "");
        java_open(client, sides ? side_names[side] : actors->kind, actors->name, handle);
    }
    sscanf(java_call(suite.java, "ids %s", client), "ok %63s", actors->aliases[i].text);
}

static void open_c(struct actors *actors, int i) {
    hf_client *client = c_client(0);
    for (int side = 0; side < (has_sides(actors) ? SIDES : 1); side++) {
        const char *word = has_sides(actors) ? side_names[side] : actors->kind;
        struct c_object *object = &actors->all[i].objects[side];
        const struct c_kind *kind = c_kind_of_lock(word);
        if (kind == NULL)
            kind = c_kind_of_other(word);
        if (kind == NULL)
            support_die("no kind %s", word);
        *object = (struct c_object){.client = client, .name = actors->name};
        actors->all[i].kinds[side] = kind;
        assert_hf(HF_OK, kind->open(object, kind));
    }
    snprintf(actors->aliases[i].text, sizeof actors->aliases->text, "%s", hf_client_id(client));
}

struct actors *actors_new(const char *sides, const char *kind, const char *name) {
    struct actors *actors = zeroed(1, sizeof *actors);
    actors->kind = kind;
    snprintf(actors->name, sizeof actors->name, "%s", name);
    for (int i = 0; i < ACTORS; i++) {
        actors->all[i].java = sides[i] == 'J';
        snprintf(actors->aliases[i].word, sizeof actors->aliases->word, "%c", 'A' + i);
        (actors->all[i].java ? open_java : open_c)(actors, i);
    }
    return actors;
}

void actors_free(struct actors *actors) {
    if (actors == NULL)
        return;
    for (int i = 0; i < ACTORS; i++) {
        struct actor *actor = &actors->all[i];
        if (actor->java)
            continue;
        for (int side = 0; side < SIDES; side++) {
            if (actor->kinds[side] == NULL)
                continue;
            hf_op_free(actor->objects[side].waiting);
            actor->kinds[side]->close(&actor->objects[side]);
        }
        hf_close(actor->objects[0].client);
    }
    free(actors);
}

const struct alias *actors_aliases(const struct actors *actors, size_t *ret_count) {
    *ret_count = ACTORS + actors->permits;
    return actors->aliases;
}

/* ---- Reading commands -------------------------------------------------------------------------- */

static void read_option(struct command *command, const char *word) {
    const struct {
        const char *name;
        int64_t *value;
    } options[] = {{"lease=", &command->lease_ms},
                   {"wait=", &command->wait_ms},
                   {"permits=", &command->permits},
                   {"count=", &command->count},
                   {"ttl=", &command->ttl_ms}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        size_t len = strlen(options[i].name);
        if (strncmp(word, options[i].name, len) == 0) {
            *options[i].value = atoll(word + len);
            return;
        }
    }
    support_die("what is %s?", word);
}

/* False: it names a permit that nobody has acquired; a step before has gone wrong. */
static bool read_command(const struct actors *actors, const char *text, struct command *command) {
    char copy[256];
    *command = (struct command){.lease_ms = NOT_GIVEN,
                                .wait_ms = NOT_GIVEN,
                                .permits = 1,
                                .count = NOT_GIVEN,
                                .ttl_ms = NOT_GIVEN};
    snprintf(copy, sizeof copy, "%s", text);
    char *word = strtok(copy, " ");
    snprintf(command->verb, sizeof command->verb, "%s", word);
    word = strtok(NULL, " ");
    command->actor = word[0];
    if (word[1] == '.')
        snprintf(command->side, sizeof command->side, "%s", word + 2);
    while ((word = strtok(NULL, " ")) != NULL) {
        if (word[0] == 'P') {
            size_t number = (size_t)atoi(word + 1);
            if (number < 1 || number > actors->permits)
                return false;
            memcpy(command->ids[command->ids_len++].text, actors->aliases[ACTORS + number - 1].text,
                   33);
        } else {
            read_option(command, word);
        }
    }
    return true;
}

static bool is_lock(const struct actors *actors) {
    return strcmp(actors->kind, "semaphore") != 0 && strcmp(actors->kind, "permits") != 0 &&
           strcmp(actors->kind, "latch") != 0;
}

/* What an actor's attempts have in them: its client's uuid for a lock, where the other's renewals
 * would have the name as well; else that is all there is. */
static const char *needle_of(const struct actors *actors, char actor) {
    return is_lock(actors) ? actors->aliases[actor - 'A'].text : actors->name;
}

static void file_permit(struct actors *actors, const char *hex) {
    struct alias *alias = &actors->aliases[ACTORS + actors->permits];
    if (actors->permits == ACTORS_PERMITS)
        support_die("too many permits");
    snprintf(alias->text, sizeof alias->text, "%s", hex);
    snprintf(alias->word, sizeof alias->word, "P%zu", ++actors->permits);
}

/* ---- Java -------------------------------------------------------------------------------------- */

static bool acquires(const char *verb) {
    return strcmp(verb, "lock") == 0 || strcmp(verb, "try") == 0 || strcmp(verb, "acquire") == 0 ||
           strcmp(verb, "woken") == 0;
}

/* Files ids that were acquired; false: the answer is not ids. */
static bool file_ids(struct actors *actors, const char *answer) {
    own_text *copy = text_of("%s", answer);
    bool any = false;
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        if (strspn(word, "0123456789abcdef") != 32 || strlen(word) != 32)
            return any;
        file_permit(actors, word);
        any = true;
    }
    return any;
}

static void java_answer_into(struct actors *actors, const char *verb, const char *answer) {
    static const struct {
        const char *error, *word;
    } errors[] = {{"err IllegalMonitorStateException", "not owner"},
                  {"err IllegalArgumentException", "refused"}};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (strncmp(answer, errors[i].error, strlen(errors[i].error)) == 0) {
            bool nested = i == 0 && acquires(verb);
            snprintf(actors->answer, sizeof actors->answer, "%s",
                     nested ? "deadlock" : errors[i].word);
            return;
        }
    }
    bool permits = strcmp(actors->kind, "permits") == 0;
    const char *value = strncmp(answer, "ok ", 3) == 0 ? answer + 3 : answer;
    if (acquires(verb) && permits && strncmp(answer, "ok", 2) == 0)
        value = file_ids(actors, value) ? "held" : "busy";
    else if (acquires(verb) && (strcmp(value, "ok") == 0 || strcmp(value, "true") == 0))
        value = "held";
    else if (acquires(verb) && strcmp(value, "false") == 0)
        value = "busy";
    snprintf(actors->answer, sizeof actors->answer, "%s", value);
}

/* The command as Java takes it: with a thread, and with ids for P1, ... */
static void java_text(const struct actors *actors, const char *text, const struct command *command,
                      char ret_text[1024]) {
    const char *rest = strchr(strchr(text, ' ') + 1, ' ');
    int thread = actors->all[command->actor - 'A'].thread;
    bool sides = has_sides(actors);
    int len = snprintf(ret_text, 1024, "%s %c%s%s thread=%d", command->verb, command->actor,
                       sides ? "." : "", sides ? command->side : "", thread);
    for (size_t i = 0; i < command->ids_len; i++)
        len += snprintf(ret_text + len, 1024 - (size_t)len, " %s", command->ids[i].text);
    if (command->ids_len == 0)
        snprintf(ret_text + len, 1024 - (size_t)len, "%s", rest == NULL ? "" : rest);
    else if (command->lease_ms != NOT_GIVEN)
        snprintf(ret_text + len, 1024 - (size_t)len, " lease=%lld", (long long)command->lease_ms);
}

static void java_act(struct actors *actors, struct actor *actor, const char *text,
                     struct command *command) {
    char line[1024];
    if (strcmp(command->verb, "woken") == 0) {
        const char *answer = java_answer_within(suite.java, actor->waiting, WOKEN_MS);
        actor->waiting = 0;
        java_answer_into(actors, "woken", answer);
        return;
    }
    bool waits = strcmp(command->verb, "wait") == 0;
    if (waits) {
        const char *verb =
            strcmp(actors->kind, "latch") == 0 ? "await"
            : strcmp(actors->kind, "permits") == 0 || strcmp(actors->kind, "semaphore") == 0
                ? "acquire"
                : "lock";
        snprintf(command->verb, sizeof command->verb, "%s", verb);
    }
    java_text(actors, text, command, line);
    if (!waits) {
        java_answer_into(actors, command->verb, java_call(suite.java, "%s", line));
        return;
    }
    struct watched_wait *wait =
        java_watch(java_clients[command->actor - 'A'], needle_of(actors, command->actor));
    actor->waiting = java_send(suite.java, "%s", line);
    if (is_lock(actors))
        wait_until_java_asleep(wait, actor->thread);
    else
        wait_until_asleep(wait);
    snprintf(actors->answer, sizeof actors->answer, "ok");
}

/* ---- C ----------------------------------------------------------------------------------------- */

static const char *word_of_error(const char *verb, int err) {
    switch (err) {
    case HF_EBUSY:
    case HF_ETIMEDOUT:
        return "busy";
    case HF_EDEADLK:
        return "deadlock";
    case HF_EINVAL:
        return "refused";
    case HF_ENOTOWNER:
        return "not owner";
    case HF_ELOST:
        return acquires(verb) ? "lost" : "not owner"; /* Java has one word for both. */
    default:
        return hf_error_name(err);
    }
}

static c_verb *verb_of(const struct c_kind *kind, const char *name) {
    for (const struct c_verb_entry *entry = kind->verbs; entry->name != NULL; entry++) {
        if (strcmp(entry->name, name) == 0)
            return entry->run;
    }
    support_die("%s has no %s in C", kind->name, name);
}

static int c_woken(struct c_object *object) {
    int err = hf_op_wait(object->waiting, WOKEN_MS, NULL);
    hf_op_free(object->waiting);
    object->waiting = NULL;
    return err;
}

static void c_act(struct actors *actors, struct actor *actor, const struct command *command) {
    int side = side_index(command);
    struct c_object *object = &actor->objects[side];
    bool waits = strcmp(command->verb, "wait") == 0;
    bool woken = strcmp(command->verb, "woken") == 0;
    struct watched_wait *wait =
        waits ? c_watch(object->client, needle_of(actors, command->actor)) : NULL;
    strcpy(actors->answer, acquires(command->verb) ? "held" : "ok");
    int err = woken ? c_woken(object)
                    : verb_of(actor->kinds[side], command->verb)(object, command, actors->answer);
    if (err != HF_OK)
        snprintf(actors->answer, sizeof actors->answer, "%s", word_of_error(command->verb, err));
    if (waits && !actor->has_waited)
        wait_until_asleep(wait);
    else if (waits)
        wait_until_tried(wait);
    actor->has_waited = actor->has_waited || waits;
    if (!waits && err == HF_OK) {
        for (size_t i = 0; i < object->ids_len; i++)
            file_permit(actors, object->ids[i].text);
    }
    if (!waits)
        object->ids_len = 0;
}

const char *act(struct actors *actors, const char *text) {
    struct command command;
    if (!read_command(actors, text, &command)) {
        snprintf(actors->answer, sizeof actors->answer, "no such permit");
        return actors->answer;
    }
    struct actor *actor = &actors->all[command.actor - 'A'];
    if (actor->java)
        java_act(actors, actor, text, &command);
    else
        c_act(actors, actor, &command);
    return actors->answer;
}
