/* Plays rows of a script's table and compares.
 *
 * Called by the table tests, from their one thread; a stage belongs to the test group that opened
 * it.
 *
 * Times are exact. The server's clock is read before the row's preparations and after the last
 * look, so a TTL has lost at most what passed between the two; one millisecond is added for the
 * rounding of each. Nothing here depends on how fast the machine is. */
#include "row.h"

#include "support/wait.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SCRIPTS_MAX = 16 };

struct full_stage {
    struct stage stage; /* first: the two are the same pointer */
    size_t scripts;
    struct {
        const char *name;
        char *sha;
    } script[SCRIPTS_MAX];
};

/* ---- The stage ------------------------------------------------------------------------------ */

struct stage *stage_open(const char *channel) {
    struct full_stage *full = zeroed(1, sizeof *full);
    full->stage.server = server_start(NULL);
    full->stage.listener = listener_start(full->stage.server, channel);
    return &full->stage;
}

void stage_close(struct stage *stage) {
    if (stage == NULL)
        return;
    struct full_stage *full = (struct full_stage *)stage;
    for (size_t i = 0; i < full->scripts; i++)
        free(full->script[i].sha);
    listener_stop(stage->listener);
    server_free(stage->server);
    free(full);
}

const char *stage_sha(struct stage *stage, const char *script) {
    struct full_stage *full = (struct full_stage *)stage;
    for (size_t i = 0; i < full->scripts; i++)
        if (strcmp(full->script[i].name, script) == 0)
            return full->script[i].sha;
    if (full->scripts == SCRIPTS_MAX)
        support_die("too many scripts");
    own_text *text = script_text(script);
    size_t i = full->scripts++;
    full->script[i].name = script;
    full->script[i].sha = script_load(stage->server, text);
    return full->script[i].sha;
}

/* ---- Comparing ------------------------------------------------------------------------------ */

bool differs(char why[WHY], const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why, WHY, format, args);
    va_end(args);
    return false;
}

bool ttl_fits(int64_t ttl_ms, int64_t set_ms, struct span span) {
    int64_t passed_ms = span.end_ms - span.begin_ms + 1;
    return ttl_ms <= set_ms + 1 && ttl_ms >= set_ms - passed_ms;
}

/* Appends a reply to a line, as tables write it. */
static void describe(const redisReply *reply, char *text, size_t room) {
    size_t used = strlen(text);
    if (reply->type == REDIS_REPLY_INTEGER)
        snprintf(text + used, room - used, "%s%lld", used > 0 ? " " : "", reply->integer);
    else if (reply->type == REDIS_REPLY_ARRAY)
        for (size_t i = 0; i < reply->elements; i++)
            describe(reply->element[i], text, room);
    else
        snprintf(text + used, room - used, "%s!%s", used > 0 ? " " : "",
                 reply->type == REDIS_REPLY_ERROR ? script_error(reply) : "no number");
}

bool reply_fits(const redisReply *reply, const char *expected, struct span span, char why[WHY]) {
    char got[512] = "";
    describe(reply, got, sizeof got);
    if (expected[0] == '!') {
        if (reply->type == REDIS_REPLY_ERROR && strncmp(got, expected, strlen(expected)) == 0)
            return true;
        return differs(why, "reply %s instead of %s", got, expected);
    }

    if (strncmp(expected, "done", 4) == 0) {
        bool fits = reply->type == REDIS_REPLY_INTEGER && reply->integer >= span.call_ms * 1000 &&
                    reply->integer < (span.end_ms + 1) * 1000;
        if (expected[4] == ' ')
            fits = fits && reply->integer % 1000 == strtoll(expected + 5, NULL, 10);
        return fits || differs(why, "reply %s instead of the time in us", got);
    }

    struct words wanted;
    words_cut(&wanted, expected);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != wanted.count + 1)
        return differs(why, "reply %s instead of %s and the time", got, expected);
    for (size_t i = 0; i < reply->elements; i++)
        if (reply->element[i]->type != REDIS_REPLY_INTEGER)
            return differs(why, "reply %s is not all integers", got);

    for (size_t i = 0; i < wanted.count; i++) {
        const char *word = wanted.item[i];
        bool fits = word[0] == '~'
                        ? ttl_fits(reply->element[i]->integer, strtoll(word + 1, NULL, 10), span)
                        : reply->element[i]->integer == strtoll(word, NULL, 10);
        if (!fits)
            return differs(why, "reply %s instead of %s and the time", got, expected);
    }
    int64_t now = reply->element[wanted.count]->integer;
    if (now < span.call_ms || now > span.end_ms)
        return differs(why, "reply %s closes with a wrong time", got);
    return true;
}

bool received_fits(struct listener *listener, const char *expected, char why[WHY]) {
    const char *received = listener_received(listener);
    if (expected == NULL)
        expected = "";
    return strcmp(received, expected) == 0 ||
           differs(why, "received '%s' instead of '%s'", received, expected);
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

/* The value of a key as struct state writes it; empty for a key that is not there. */
static void look_at(struct server *server, const char *key, char *value, size_t room) {
    own_text *type = cmd_str(server, "TYPE %s", key);
    value[0] = '\0';
    if (strcmp(type, "string") == 0) {
        char *text = cmd_str(server, "GET %s", key);
        snprintf(value, room, "string %s", text);
        free(text);
    } else if (strcmp(type, "hash") == 0) {
        char fields[8][128];
        redisReply *reply = cmd(server, "HGETALL %s", key);
        size_t count = reply->elements / 2;
        if (count > sizeof fields / sizeof *fields)
            support_die("too many fields in %s", key);
        for (size_t i = 0; i < count; i++)
            snprintf(fields[i], sizeof fields[i], "%s=%s", reply->element[2 * i]->str,
                     reply->element[2 * i + 1]->str);
        freeReplyObject(reply);
        qsort(fields, count, sizeof *fields, by_text);
        for (size_t i = 0; i < count; i++)
            snprintf(value + strlen(value), room - strlen(value), "%s%.*s", i > 0 ? " " : "",
                     (int)sizeof fields[i] - 1, fields[i]);
    } else if (strcmp(type, "none") != 0) {
        snprintf(value, room, "%s", type);
    }
}

static bool state_fits(struct server *server, const struct state *state, struct span span,
                       char why[WHY]) {
    char value[512];
    look_at(server, state->key, value, sizeof value);
    const char *expected = state->value != NULL ? state->value : "";
    if (strcmp(value, expected) != 0)
        return differs(why, "%s is '%s' instead of '%s'", state->key, value, expected);
    if (state->value == NULL)
        return true;

    int64_t ttl_ms = pttl(server, state->key);
    span.end_ms = server_time_ms(server);
    bool fits = state->ttl_ms == NO_TTL ? ttl_ms == NO_TTL : ttl_fits(ttl_ms, state->ttl_ms, span);
    if (!fits)
        return differs(why, "%s has a TTL of %" PRId64 " instead of %" PRId64, state->key, ttl_ms,
                       state->ttl_ms);
    return true;
}

/* ---- Playing -------------------------------------------------------------------------------- */

static void prepare(struct stage *stage, const char *commands) {
    own_context *connection = connect_as(stage->server, NULL, NULL);
    struct words words;
    words_cut(&words, "FLUSHALL");
    freeReplyObject(words_send(connection, &words));

    while (commands != NULL && *commands != '\0') {
        char line[256];
        size_t length = strcspn(commands, ";");
        if (length >= sizeof line)
            support_die("too long a line: %s", commands);
        memcpy(line, commands, length);
        line[length] = '\0';
        words_cut(&words, line);
        redisReply *reply = words_send(connection, &words);
        if (reply->type == REDIS_REPLY_ERROR)
            support_die("%s: %s", line, reply->str);
        freeReplyObject(reply);
        commands += length + (commands[length] == ';');
    }
}

/* Looks at the keys the row names, and that there are no others. */
static bool all_fits(struct stage *stage, const struct state wanted[ROW_KEYS], struct span span,
                     char why[WHY]) {
    int64_t keys = 0;
    for (size_t i = 0; i < ROW_KEYS; i++) {
        const struct state *state = &wanted[i];
        if (state->key != NULL && !state_fits(stage->server, state, span, why))
            return false;
        keys += state->key != NULL && state->value != NULL;
    }
    int64_t there = cmd_int(stage->server, "DBSIZE");
    if (there != keys)
        return differs(why, "%" PRId64 " keys instead of %" PRId64, there, keys);
    return true;
}

/* The same call again, as after a lost reply, whatever it answers: nothing may change any more but
 * what the row says. */
static bool resend_is_harmless(struct stage *stage, redisContext *connection, const struct row *row,
                               struct span span, char why[WHY]) {
    char detail[WHY];
    freeReplyObject(
        script_call(connection, stage_sha(stage, row->script), row->call, span.call_ms));
    const struct state *wanted = row->resent[0].key != NULL ? row->resent : row->after;
    if (!all_fits(stage, wanted, span, detail))
        return differs(why, "after a resend %s", detail);
    return received_fits(stage->listener, row->received_again, detail) ||
           differs(why, "after a resend %s", detail);
}

bool row_plays(struct stage *stage, redisContext *connection, const struct row *row,
               char why[WHY]) {
    struct span span = {.begin_ms = server_time_ms(stage->server)};
    prepare(stage, row->before);
    listener_received(stage->listener);

    span.call_ms = server_time_ms(stage->server);
    redisReply *reply =
        script_call(connection, stage_sha(stage, row->script), row->call, span.call_ms);
    span.end_ms = server_time_ms(stage->server);
    bool fits = reply_fits(reply, row->reply, span, why);
    freeReplyObject(reply);
    if (!fits || !all_fits(stage, row->after, span, why))
        return false;

    return received_fits(stage->listener, row->received, why) &&
           resend_is_harmless(stage, connection, row, span, why);
}
