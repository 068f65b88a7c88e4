/* Loading scripts, calling them and receiving what they publish.
 *
 * Used by the programs of this folder, from their one thread. Connections are made here with
 * hiredis rather than through the command helpers of the server fixture, because a script has to
 * be called as a user that may do nothing else, and because a subscribed connection can do nothing
 * else.
 *
 * Invariant: a listener's connection has no unread replies between two calls. A PING follows every
 * publish on it, and the server writes to one connection in order, so what comes before the answer
 * to the PING is all there is. */
#include "script.h"

#include "support/wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Scripts -------------------------------------------------------------------------------- */

static char *read_script(const char *folder, const char *name) {
    own_text *path = text_of("%s/%s.lua", folder, name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        support_die("cannot open %s", path);

    size_t room = 64 * 1024;
    char *text = calloc(1, room);
    size_t length = text == NULL ? 0 : fread(text, 1, room - 1, file);
    if (length == 0 || length == room - 1)
        support_die("cannot read %s, or it is too long", path);
    fclose(file);
    return text;
}

char *script_text(const char *name) {
    return read_script(HF_LUA_DIR, name);
}

/* The files are as they were in its sources: the first line names what the build put there. */
char *script_text_0_1(const char *name) {
    static const char include[] = "-- include: ";
    char *text = read_script(HF_SOURCE_DIR "/tests/scripts/v0_1", name);
    if (strncmp(text, include, strlen(include)) != 0)
        return text;
    char *end = strchr(text, '\n'), file[64];
    const char *named = text + strlen(include);
    snprintf(file, sizeof file, "%.*s", (int)(strcspn(named, ".")), named);
    own_text *front = script_text_0_1(file);
    size_t room = strlen(front) + strlen(end + 1) + 1;
    char *whole = malloc(room);
    if (whole == NULL)
        support_die("out of memory");
    snprintf(whole, room, "%s%s", front, end + 1);
    free(text);
    return whole;
}

char *script_changed(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    if (at == NULL || strstr(at + 1, from) != NULL)
        support_die("a script does not say exactly once: %s", from);
    size_t room = strlen(text) + strlen(to) + 1;
    char *changed = malloc(room);
    if (changed == NULL)
        support_die("out of memory");
    snprintf(changed, room, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return changed;
}

char *script_load(struct server *server, const char *text) {
    return cmd_str(server, "SCRIPT LOAD %s", text);
}

char *script_load_timed_text(struct server *server, const char *text, const char *time) {
    const char *question = strstr(text, "redis.call('time')") != NULL
                               ? "redis.call('time')" /* in 0.1 */
                               : "call('time')";
    own_text *changed = script_changed(text, question, time);
    return script_load(server, changed);
}

char *script_load_timed(struct server *server, const char *name, const char *time) {
    own_text *text = script_text(name);
    return script_load_timed_text(server, text, time);
}

redisContext *connect_as(struct server *server, const char *user, const char *password) {
    redisContext *connection = redisConnectUnix(server_socket(server));
    if (connection == NULL || connection->err != 0)
        support_die("cannot connect to %s", server_socket(server));
    if (user == NULL)
        return connection;

    own_reply *reply = redisCommand(connection, "AUTH %s %s", user, password);
    if (reply == NULL || reply->type != REDIS_REPLY_STATUS)
        support_die("AUTH %s: %s", user, reply == NULL ? connection->errstr : reply->str);
    return connection;
}

int64_t server_time_ms(struct server *server) {
    own_reply *reply = cmd(server, "TIME");
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
        support_die("TIME was not answered");
    int64_t time_ms = (int64_t)strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                      strtoll(reply->element[1]->str, NULL, 10) / 1000;
    return time_ms;
}

bool server_knows(struct server *server, const char *command) {
    own_reply *reply = cmd(server, "COMMAND INFO %s", command);
    bool known = reply != NULL && reply->elements == 1 &&
                 reply->element[0]->type == REDIS_REPLY_ARRAY && reply->element[0]->elements > 0;
    return known;
}

/* ---- Words ---------------------------------------------------------------------------------- */

void words_add(struct words *words, const char *word) {
    size_t used = 0;
    for (size_t i = 0; i < words->count; i++)
        used += strlen(words->item[i]) + 1;
    size_t length = strlen(word);
    if (words->count == sizeof words->item / sizeof *words->item ||
        used + length + 1 > sizeof words->text)
        support_die("too many words before %s", word);

    char *place = words->text + used;
    memcpy(place, word, length + 1);
    words->item[words->count++] = place;
}

void words_cut(struct words *words, const char *line) {
    words->count = 0;
    for (const char *p = line + strspn(line, " "); *p != '\0'; p += strspn(p, " ")) {
        char word[256];
        size_t length = strcspn(p, " ");
        if (length >= sizeof word)
            support_die("too long a word in: %s", line);
        memcpy(word, p, length);
        word[length] = '\0';
        words_add(words, word);
        p += length;
    }
}

redisReply *words_send(redisContext *connection, const struct words *words) {
    const char *argv[sizeof words->item / sizeof *words->item];
    for (size_t i = 0; i < words->count; i++)
        argv[i] = words->item[i];
    redisReply *reply = redisCommandArgv(connection, (int)words->count, argv, NULL);
    if (reply == NULL)
        support_die("no answer to %s: %s", words->item[0], connection->errstr);
    return reply;
}

redisReply *script_call(redisContext *connection, const char *sha, const char *keys_and_args,
                        int64_t base_ms) {
    struct words given, call;
    words_cut(&given, keys_and_args);
    size_t keys = 0;
    while (keys < given.count && strcmp(given.item[keys], ",") != 0)
        keys++;

    char number[32];
    snprintf(number, sizeof number, "%zu", keys);
    words_cut(&call, "EVALSHA");
    words_add(&call, sha);
    words_add(&call, number);
    for (size_t i = 0; i < given.count; i++) {
        const char *word = given.item[i];
        if (i == keys)
            continue;
        if (word[0] == '@') {
            int64_t time_ms = base_ms + strtoll(word + 1, NULL, 10);
            snprintf(number, sizeof number, "%" PRId64, time_ms);
            word = number;
        }
        words_add(&call, word);
    }
    return words_send(connection, &call);
}

static redisReply *integer_reply(long long integer) {
    redisReply *reply = zeroed(1, sizeof *reply);
    reply->type = REDIS_REPLY_INTEGER;
    reply->integer = integer;
    return reply;
}

redisReply *script_written_out(redisReply *reply, long long value) {
    if (reply->type != REDIS_REPLY_INTEGER)
        return reply;
    long long numbers[] = {1, value, reply->integer / 1000};
    reply->type = REDIS_REPLY_ARRAY;
    reply->integer = 0;
    reply->element = zeroed(3, sizeof(redisReply *));
    for (reply->elements = 0; reply->elements < 3; reply->elements++)
        reply->element[reply->elements] = integer_reply(numbers[reply->elements]);
    return reply;
}

/* "ERR Error running script (call to f_<sha>): @user_script:12: WRONGTYPE ...", and for what was
 * refused before it ran "... @user_script:12: @user_script: 12: -OOM ...". */
const char *script_error(const redisReply *reply) {
    static const char wrapping[] = "ERR Error running script", place[] = "@user_script:";
    const char *text = reply->str;
    if (strncmp(text, wrapping, strlen(wrapping)) != 0)
        return text;
    for (const char *next = text; (next = strstr(next, place)) != NULL; text = next) {
        next += strlen(place);
        next += strspn(next, " 0123456789:-");
    }
    return text;
}

/* ---- Listening ------------------------------------------------------------------------------ */

struct listener {
    redisContext *connection;
    char received[256];
};

static void listener_note(struct listener *listener, const char *command, const char *payload) {
    size_t used = strlen(listener->received);
    int wanted = snprintf(listener->received + used, sizeof listener->received - used, "%s%s %s",
                          used > 0 ? ", " : "", command, payload);
    if (wanted < 0 || (size_t)wanted >= sizeof listener->received - used)
        support_die("more messages than a test should make: %s", listener->received);
}

const char *listener_received(struct listener *listener) {
    listener->received[0] = '\0';
    redisAppendCommand(listener->connection, "PING");
    for (;;) {
        redisReply *reply = NULL;
        if (redisGetReply(listener->connection, (void **)&reply) != REDIS_OK)
            support_die("the listener lost its server: %s", listener->connection->errstr);
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
            support_die("the listener got something else than a message");

        const char *kind = reply->element[0]->str;
        bool done = strcmp(kind, "pong") == 0;
        if (strcmp(kind, "message") == 0)
            listener_note(listener, "publish", reply->element[2]->str);
        else if (strcmp(kind, "smessage") == 0)
            listener_note(listener, "spublish", reply->element[2]->str);
        freeReplyObject(reply);
        if (done)
            return listener->received;
    }
}

struct listener *listener_start(struct server *server, const char *channel) {
    struct listener *listener = zeroed(1, sizeof *listener);
    listener->connection = connect_as(server, NULL, NULL);
    redisAppendCommand(listener->connection, "SUBSCRIBE %s", channel);
    if (server_knows(server, "ssubscribe"))
        redisAppendCommand(listener->connection, "SSUBSCRIBE %s", channel);
    listener_received(listener); /* Reads the confirmations away: both are there before the PONG. */
    return listener;
}

void listener_stop(struct listener *listener) {
    if (listener == NULL)
        return;
    redisFree(listener->connection);
    free(listener);
}
