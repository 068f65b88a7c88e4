/*
 * Dumps of the server's keys and of the messages that were published, for the state equality rows.
 *
 * Called by the test's one thread. A dump is not atomic: the row takes it when nothing is under
 * way. Messages are collected by a connection that listens to every channel; a mark that we publish
 * ourselves and wait for shows that everything published before it has arrived.
 */
#include "state.h"

#include "support/wait.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define UUID_LEN 36
#define PERMIT_LEN 32                   /* as hexadecimal digits */
#define NEVER_EXPIRES 922337203685477LL /* the score of a permit without a lease */

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

static bool is_owner_of(const struct alias *alias, const char *bytes, size_t len) {
    size_t uuid_len = strlen(alias->text);
    return uuid_len == UUID_LEN && len > uuid_len && memcmp(bytes, alias->text, uuid_len) == 0 &&
           bytes[uuid_len] == ':';
}

/* The alias at the start of these bytes, and how many of them it stands for. */
static const struct alias *alias_of(const char *bytes, size_t len, const struct alias *aliases,
                                    size_t count, size_t *ret_used) {
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(aliases[i].text);
        if (is_owner_of(&aliases[i], bytes, len)) {
            used++;
            while (used < len && isdigit((unsigned char)bytes[used]))
                used++;
        } else if (used != PERMIT_LEN || len < used || memcmp(bytes, aliases[i].text, used) != 0) {
            continue;
        }
        *ret_used = used;
        return &aliases[i];
    }
    return NULL;
}

/* Adds with every alias replaced by its word. */
static void add_aliased(struct text *text, const char *bytes, size_t len,
                        const struct alias *aliases, size_t count) {
    while (len > 0) {
        size_t used = 1;
        const struct alias *alias = alias_of(bytes, len, aliases, count, &used);
        if (alias == NULL)
            add(text, bytes, 1);
        else
            add(text, alias->word, strlen(alias->word));
        bytes += used;
        len -= used;
    }
}

/* The same for a value of the server's: 16 bytes that are no text are a permit. The caller
 * frees. */
static char *word_of(const redisReply *value, const struct alias *aliases, size_t count) {
    struct text text = {0};
    bool printable = true;
    add(&text, "", 0);
    for (size_t i = 0; i < value->len; i++)
        printable = printable && isprint((unsigned char)value->str[i]);
    if (printable || value->len != PERMIT_LEN / 2) {
        add_aliased(&text, value->str, value->len, aliases, count);
        return text.bytes;
    }
    char hex[PERMIT_LEN + 1];
    for (size_t i = 0; i < value->len; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned)(unsigned char)value->str[i]);
    add_aliased(&text, hex, PERMIT_LEN, aliases, count);
    return text.bytes;
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Puts the lines into order: that of the server is by what the aliases stand for, if at all. */
static void sort_lines(struct text *text) {
    size_t count = 0;
    char **lines = calloc(text->len + 1, sizeof *lines);
    char *copy = strdup(text->bytes);
    if (lines == NULL || copy == NULL)
        support_die("out of memory");
    for (char *line = strtok(copy, "\n"); line != NULL; line = strtok(NULL, "\n"))
        lines[count++] = line;
    qsort(lines, count, sizeof *lines, by_text);
    char *to = text->bytes;
    for (size_t i = 0; i < count; i++)
        to += sprintf(to, "%s\n", lines[i]);
    free(copy);
    free(lines);
}

/* The command that shows all of a value, by its type, and what one entry is. */
static const struct reader {
    const char *type;
    const char *command;
    size_t fields; /* of one entry */
    bool ordered;  /* the order is a part of the value */
} readers[] = {
    {"hash", "HGETALL %b", 2, false},     {"string", "GET %b", 1, true},
    {"list", "LRANGE %b 0 -1", 1, true},  {"set", "SMEMBERS %b", 1, false},
    {"zset", "ZRANGE %b 0 -1", 1, false},
};

/* NULL: the key has just gone. */
static const struct reader *reader_of(const char *type) {
    if (strcmp(type, "none") == 0)
        return NULL;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (strcmp(readers[i].type, type) == 0)
            return &readers[i];
    }
    support_die("a key of type %s", type);
}

/* Adds the entries of a value, each as " field..."; by their words where the server has no
 * order. */
static void add_entries(struct text *text, const struct reader *reader, const redisReply *value,
                        const struct alias *aliases, size_t count) {
    size_t entries = value->elements / reader->fields;
    char **lines = zeroed(entries + 1, sizeof *lines);
    for (size_t i = 0; i < entries; i++) {
        struct text line = {0};
        add(&line, "", 0);
        for (size_t j = 0; j < reader->fields; j++) {
            own_text *word = word_of(value->element[i * reader->fields + j], aliases, count);
            add(&line, " ", 1);
            add(&line, word, strlen(word));
        }
        lines[i] = line.bytes;
    }
    if (!reader->ordered && entries > 0)
        qsort(lines, entries, sizeof *lines, by_text);
    for (size_t i = 0; i < entries; i++) {
        add(text, lines[i], strlen(lines[i]));
        free(lines[i]);
    }
    free(lines);
}

static void add_key(struct text *text, struct server *server, const redisReply *key,
                    const struct alias *aliases, size_t count) {
    own_text *type = cmd_str(server, "TYPE %b", key->str, key->len);
    const struct reader *reader = reader_of(type);
    redisReply *value = reader == NULL ? NULL : cmd(server, reader->command, key->str, key->len);
    if (value != NULL) {
        add_aliased(text, key->str, key->len, aliases, count);
        add(text, " ", 1);
        add(text, type, strlen(type));
        if (value->type == REDIS_REPLY_STRING) {
            own_text *word = word_of(value, aliases, count);
            add(text, " ", 1);
            add(text, word, strlen(word));
        }
        add_entries(text, reader, value, aliases, count);
        add(text, "\n", 1);
        freeReplyObject(value);
    }
}

char *state_dump(struct server *server, const struct alias *aliases, size_t count) {
    struct text text = {0};
    redisReply *keys = cmd(server, "KEYS *");
    add(&text, "", 0);
    for (size_t i = 0; i < keys->elements; i++)
        add_key(&text, server, keys->element[i], aliases, count);
    freeReplyObject(keys);
    sort_lines(&text);
    return text.bytes;
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static long long server_now_ms(struct server *server) {
    own_reply *now = cmd(server, "TIME");
    return atoll(now->element[0]->str) * 1000 + atoll(now->element[1]->str) / 1000;
}

static void add_end(struct text *text, long long left_ms, bool never) {
    own_text *end = text_of(never ? " never\n" : " %lld\n", left_ms);
    add(text, end, strlen(end));
}

static void add_scores(struct text *text, struct server *server, const redisReply *key,
                       const struct alias *aliases, size_t count) {
    own_reply *members = cmd(server, "ZRANGE %b 0 -1 WITHSCORES", key->str, key->len);
    long long now = server_now_ms(server);
    for (size_t i = 0; i + 1 < members->elements; i += 2) {
        own_text *word = word_of(members->element[i], aliases, count);
        long long score = atoll(members->element[i + 1]->str);
        add_aliased(text, key->str, key->len, aliases, count);
        add(text, " ", 1);
        add(text, word, strlen(word));
        add_end(text, score - now, score == NEVER_EXPIRES);
    }
}

char *state_ends(struct server *server, const struct alias *aliases, size_t count) {
    struct text text = {0};
    redisReply *keys = cmd(server, "KEYS *");
    add(&text, "", 0);
    for (size_t i = 0; i < keys->elements; i++) {
        const redisReply *key = keys->element[i];
        long long ttl_ms = cmd_int(server, "PTTL %b", key->str, key->len);
        own_text *type = cmd_str(server, "TYPE %b", key->str, key->len);
        add_aliased(&text, key->str, key->len, aliases, count);
        add_end(&text, ttl_ms, ttl_ms == -1);
        if (strcmp(type, "zset") == 0)
            add_scores(&text, server, key, aliases, count);
    }
    freeReplyObject(keys);
    sort_lines(&text);
    return text.bytes;
}

/* ---- Messages -------------------------------------------------------------------------------- */

struct messages {
    struct server *server;
    redisContext *listener;
    unsigned marks;
};

struct messages *messages_start(struct server *server) {
    struct messages *messages = zeroed(1, sizeof *messages);
    messages->server = server;
    messages->listener = redisConnectUnix(server_socket(server));
    if (messages->listener == NULL || messages->listener->err != 0)
        support_die("cannot listen to the server");
    freeReplyObject(redisCommand(messages->listener, "PSUBSCRIBE *"));
    return messages;
}

char *messages_take(struct messages *messages, const struct alias *aliases, size_t count) {
    struct text text = {0};
    own_text *mark = text_of("%u", ++messages->marks);
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
            add_aliased(&text, channel->str, channel->len, aliases, count);
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
