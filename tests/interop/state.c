/*
 * Dumps of the server's keys and of the messages that were published, for the state equality row.
 *
 * Called by the test's one thread. A dump is not atomic: the row takes it when nothing is under
 * way. Messages are collected by a connection that listens to every channel; a mark that we publish
 * ourselves and wait for shows that everything published before it has arrived.
 */
#include "state.h"

#include "support/wait.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Text that grows ------------------------------------------------------------------------- */

struct text {
    char *bytes;
    size_t len;
};

static void add(struct text *text, const char *bytes, size_t len) {
    char *grown = realloc(text->bytes, text->len + len + 1);
    if (grown == NULL)
        support_die("out of memory");
    memcpy(grown + text->len, bytes, len);
    text->bytes = grown;
    text->len += len;
    grown[text->len] = '\0';
}

static const struct alias *alias_of(const char *bytes, size_t len, const struct alias *aliases,
                                    size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t uuid_len = strlen(aliases[i].uuid);
        if (len > uuid_len && memcmp(bytes, aliases[i].uuid, uuid_len) == 0 &&
            bytes[uuid_len] == ':')
            return &aliases[i];
    }
    return NULL;
}

/* Adds with every "uuid:number" of an alias replaced by its name. */
static void add_aliased(struct text *text, const char *bytes, size_t len,
                        const struct alias *aliases, size_t count) {
    while (len > 0) {
        const struct alias *alias = alias_of(bytes, len, aliases, count);
        size_t used = 1;
        if (alias == NULL) {
            add(text, bytes, 1);
        } else {
            used = strlen(alias->uuid) + 1;
            while (used < len && isdigit((unsigned char)bytes[used]))
                used++;
            add(text, alias->name, strlen(alias->name));
        }
        bytes += used;
        len -= used;
    }
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b) {
    const redisReply *left = *(redisReply *const *)a;
    const redisReply *right = *(redisReply *const *)b;
    return strcmp(left->str, right->str);
}

/* The command that shows all of a value, by its type. Scores are times and not compared: that the
 * member is there is what counts. */
static const char *const readers[][2] = {
    {"hash", "HGETALL %b"}, {"string", "GET %b"},       {"list", "LRANGE %b 0 -1"},
    {"set", "SMEMBERS %b"}, {"zset", "ZRANGE %b 0 -1"},
};

static redisReply *read_value(struct server *server, const char *type, const redisReply *key) {
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (strcmp(readers[i][0], type) == 0)
            return cmd(server, readers[i][1], key->str, key->len);
    }
    support_die("a key of type %s", type);
}

char *state_dump(struct server *server, const struct alias *aliases, size_t count) {
    struct text text = {0};
    redisReply *keys = cmd(server, "KEYS *");
    add(&text, "", 0);
    if (keys->elements > 0)
        qsort(keys->element, keys->elements, sizeof *keys->element, by_name);
    for (size_t i = 0; i < keys->elements; i++) {
        const redisReply *key = keys->element[i];
        char *type = cmd_str(server, "TYPE %b", key->str, key->len);
        redisReply *value = read_value(server, type, key);
        add_aliased(&text, key->str, key->len, aliases, count);
        add(&text, " ", 1);
        add(&text, type, strlen(type));
        if (value->type == REDIS_REPLY_STRING) {
            add(&text, " ", 1);
            add_aliased(&text, value->str, value->len, aliases, count);
        }
        for (size_t j = 0; j < value->elements; j++) {
            add(&text, " ", 1);
            add_aliased(&text, value->element[j]->str, value->element[j]->len, aliases, count);
        }
        add(&text, "\n", 1);
        freeReplyObject(value);
        free(type);
    }
    freeReplyObject(keys);
    return text.bytes;
}

/* ---- Messages -------------------------------------------------------------------------------- */

struct messages {
    struct server *server;
    redisContext *listener;
    unsigned marks;
};

struct messages *messages_start(struct server *server) {
    struct messages *messages = calloc(1, sizeof *messages);
    if (messages == NULL)
        support_die("out of memory");
    messages->server = server;
    messages->listener = redisConnectUnix(server_socket(server));
    if (messages->listener == NULL || messages->listener->err != 0)
        support_die("cannot listen to the server");
    freeReplyObject(redisCommand(messages->listener, "PSUBSCRIBE *"));
    return messages;
}

char *messages_take(struct messages *messages) {
    struct text text = {0};
    char mark[32];
    snprintf(mark, sizeof mark, "%u", ++messages->marks);
    add(&text, "", 0);
    cmd_ok(messages->server, "PUBLISH interop:mark %s", mark);
    for (;;) {
        redisReply *reply;
        if (redisGetReply(messages->listener, (void **)&reply) != REDIS_OK)
            support_die("the server stopped sending messages");
        /* pmessage, pattern, channel, payload */
        const redisReply *channel = reply->element[2];
        const redisReply *payload = reply->element[3];
        bool done = strcmp(channel->str, "interop:mark") == 0 && strcmp(payload->str, mark) == 0;
        if (!done) {
            add(&text, channel->str, channel->len);
            add(&text, " ", 1);
            add(&text, payload->str, payload->len);
            add(&text, "\n", 1);
        }
        freeReplyObject(reply);
        if (done)
            return text.bytes;
    }
}

void messages_free(struct messages *messages) {
    if (messages == NULL)
        return;
    redisFree(messages->listener);
    free(messages);
}
