/* The scripts of the fair lock, row by row (fair_rows.c), and what a row cannot say: records that
 * expire, long queues of dead waiters, publishing that is refused, what Redisson's own scripts make
 * of our entries.
 *
 * The scripts get a fixed time instead of asking for it, so that deadlines, arrivals and messages
 * are exact; TTLs run on the server's clock, and lose what passed during a row. One thread, one
 * private server. */
#include "fair_rows.h"
#include "script.h"
#include "support/case.h"
#include "support/wait.h"

#include <inttypes.h>

#define TIME_MS INT64_C(1700000000000)
#define TIME_US (TIME_MS * 1000)
#define TEXT 1024

static const char *const script_names[] = {"acquire", "release", "give_up", "break", "hand_over"};
enum { SCRIPTS = sizeof script_names / sizeof *script_names };

static struct server *server;
static char *shas[SCRIPTS];

static int open_group(void **state) {
    (void)state;
    server = server_start(NULL);
    for (int i = 0; i < SCRIPTS; i++) {
        own_text *name = text_of("fair_%s", script_names[i]);
        shas[i] = script_load_timed(server, name, "{'1700000000', '0'}");
    }
    return 0;
}

static int close_group(void **state) {
    (void)state;
    for (int i = 0; i < SCRIPTS; i++)
        free(shas[i]);
    server_free(server);
    return 0;
}

static const char *sha_of(const char *script) {
    for (int i = 0; i < SCRIPTS; i++)
        if (strcmp(script_names[i], script) == 0)
            return shas[i];
    fail_msg("no script is called %s", script);
    return NULL;
}

/* ---- Words ---------------------------------------------------------------------------------- */

/* Writes the times that a text speaks of, and blanks for "_", but in channels. */
static void write_out(const char *text, char *out, size_t room) {
    bool is_channel = strstr(text, CHANNELS) != NULL;
    size_t used = 0;
    while (*text != '\0') {
        char sign = *text;
        if ((sign == '@' || sign == '#') && (text[1] == '+' || text[1] == '-')) {
            char *end;
            int64_t offset = strtoll(text + 1, &end, 10);
            used += (size_t)snprintf(out + used, room - used, "%" PRId64,
                                     (sign == '@' ? TIME_MS : TIME_US) + offset);
            text = end;
            continue;
        }
        out[used++] = *text == '_' && !is_channel ? ' ' : *text;
        text++;
    }
    assert_true(used < room);
    out[used] = '\0';
}

/* Writes times as offsets, the other way round. */
static void append_value(char *out, size_t room, const char *value) {
    char *copy = strdup(value), *save = NULL;
    for (char *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        size_t used = strlen(out);
        long long number = strtoll(word, NULL, 10);
        const char *blank = used > 0 && out[used - 1] != '=' && out[used - 1] != ':' ? " " : "";
        if (number > TIME_US / 2)
            snprintf(out + used, room - used, "%s#%+lld", blank, number - (long long)TIME_US);
        else if (number > TIME_MS / 2)
            snprintf(out + used, room - used, "%s@%+lld", blank, number - (long long)TIME_MS);
        else
            snprintf(out + used, room - used, "%s%s", blank, word);
    }
    free(copy);
}

struct argument_list {
    size_t len;
    char text[48][128];
};

static void split(const char *line, struct argument_list *list) {
    list->len = 0;
    while (*line != '\0') {
        size_t len = strcspn(line, " ");
        char word[128];
        if (len > 0) {
            snprintf(word, sizeof word, "%.*s", (int)len, line);
            write_out(word, list->text[list->len++], sizeof list->text[0]);
        }
        line += len + strspn(line + len, " ");
    }
}

static redisReply *send_words(redisContext *connection, const struct argument_list *list) {
    const char *argv[48];
    size_t lens[48];
    for (size_t i = 0; i < list->len; i++) {
        argv[i] = list->text[i];
        lens[i] = strlen(list->text[i]);
    }
    redisReply *reply = redisCommandArgv(connection, (int)list->len, argv, lens);
    assert_non_null(reply);
    return reply;
}

/* ---- What is there -------------------------------------------------------------------------- */

static void dump_pairs(const char *key, redisReply *reply, char *out, size_t room) {
    char lines[16][256];
    assert_true(reply->elements <= 32);
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        snprintf(lines[i / 2], sizeof lines[0], "%s=", reply->element[i]->str);
        append_value(lines[i / 2], sizeof lines[0], reply->element[i + 1]->str);
    }
    size_t len = reply->elements / 2;
    qsort(lines, len, sizeof lines[0], (int (*)(const void *, const void *))strcmp);
    snprintf(out + strlen(out), room - strlen(out), "%s%s{", out[0] != '\0' ? " " : "", key);
    for (size_t i = 0; i < len; i++)
        snprintf(out + strlen(out), room - strlen(out), "%s%s", i > 0 ? " " : "", lines[i]);
    snprintf(out + strlen(out), room - strlen(out), "}");
}

static void dump_key(const char *key, char *out, size_t room) {
    own_text *type = cmd_str(server, "TYPE %s", key);
    redisReply *reply = NULL;
    if (strcmp(type, "hash") == 0) {
        reply = cmd(server, "HGETALL %s", key);
        dump_pairs(key, reply, out, room);
    } else if (strcmp(type, "zset") == 0) {
        reply = cmd(server, "ZRANGE %s 0 -1 WITHSCORES", key);
        dump_pairs(key, reply, out, room);
    } else if (strcmp(type, "list") == 0) {
        reply = cmd(server, "LRANGE %s 0 -1", key);
        snprintf(out + strlen(out), room - strlen(out), "%s%s[", out[0] != '\0' ? " " : "", key);
        for (size_t i = 0; i < reply->elements; i++)
            snprintf(out + strlen(out), room - strlen(out), "%s%s", i > 0 ? " " : "",
                     reply->element[i]->str);
        snprintf(out + strlen(out), room - strlen(out), "]");
    } else if (strcmp(type, "none") != 0) {
        snprintf(out + strlen(out), room - strlen(out), "%s%s", out[0] != '\0' ? " " : "", key);
    }
    if (reply != NULL)
        freeReplyObject(reply);
}

static void assert_state(const struct fair_row *row, const char *when, const char *expected) {
    char state[TEXT] = "";
    static const char *const keys[] = {"f", "q", "z", "r", "u"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        dump_key(keys[i], state, sizeof state);
    if (strcmp(state, expected) != 0)
        fail_msg("%s, %s:\n is        %s\n should be %s", row->name, when, state, expected);
}

/* ---- Rows ----------------------------------------------------------------------------------- */

static void prepare(redisContext *connection, const char *commands) {
    cmd_ok(server, "FLUSHALL");
    while (commands != NULL && *commands != '\0') {
        char line[256];
        size_t len = strcspn(commands, ";");
        struct argument_list words;
        snprintf(line, sizeof line, "%.*s", (int)len, commands);
        split(line, &words);
        if (words.len > 0) {
            own_reply *reply = send_words(connection, &words);
            assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
        }
        commands += len + (commands[len] == ';');
    }
}

/* The row's first two arguments, how to publish, and the others. */
static redisReply *call_as_it_is(redisContext *connection, const char *script,
                                 const char *arguments) {
    struct argument_list given, words = {0};
    split(arguments, &given);
    const char *const head[] = {"EVALSHA", sha_of(script), "5", "f", "q", "z", "r", "u"};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        snprintf(words.text[words.len++], sizeof words.text[0], "%s", head[i]);
    for (size_t i = 0; i < given.len; i++) {
        if (i == 2)
            snprintf(words.text[words.len++], sizeof words.text[0], "publish");
        snprintf(words.text[words.len++], sizeof words.text[0], "%s", given.text[i]);
    }
    if (given.len == 2)
        snprintf(words.text[words.len++], sizeof words.text[0], "publish");
    return send_words(connection, &words);
}

/* The same, with the time alone written out. */
static redisReply *call(redisContext *connection, const char *script, const char *arguments) {
    return script_written_out(call_as_it_is(connection, script, arguments),
                              strcmp(script, "acquire") == 0 ? 1 : 0);
}

static void assert_reply(const struct fair_row *row, const redisReply *reply, int64_t passed_ms) {
    if (row->reply[0] == '!') {
        if (reply->type != REDIS_REPLY_ERROR ||
            strstr(script_error(reply), row->reply + 1) != script_error(reply))
            fail_msg("%s: no error %s", row->name, row->reply + 1);
        return;
    }
    if (strcmp(row->reply, "done") == 0) {
        if (reply->type != REDIS_REPLY_INTEGER || reply->integer / 1000 != TIME_MS)
            fail_msg("%s: no time alone", row->name);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY)
        fail_msg("%s: reply %s", row->name, reply->str != NULL ? reply->str : "?");
    struct argument_list expected;
    split(row->reply, &expected);
    if (reply->elements != expected.len + 1)
        fail_msg("%s: %zu numbers in reply", row->name, reply->elements);
    for (size_t i = 0; i < expected.len; i++) {
        long long got = reply->element[i]->integer;
        bool about = expected.text[i][0] == '~';
        long long wanted = strtoll(expected.text[i] + about, NULL, 10);
        bool fits = about ? got <= wanted && got >= wanted - passed_ms : got == wanted;
        if (!fits)
            fail_msg("%s: reply %lld instead of %s", row->name, got, expected.text[i]);
    }
    assert_int_equal(reply->element[expected.len]->integer, TIME_MS);
}

static void assert_ttl(const struct fair_row *row, int64_t start_ms) {
    long long ttl_ms = pttl(server, "f");
    int64_t passed_ms = now_ms() - start_ms + 2; /* read after the TTL, which runs down */
    if (row->ttl_ms > 0 && (ttl_ms > row->ttl_ms || ttl_ms < row->ttl_ms - passed_ms))
        fail_msg("%s: TTL %lld instead of %" PRId64, row->name, ttl_ms, row->ttl_ms);
    if (key_exists(server, "r") && row->reply[0] != '!' && strchr(row->after, 'r') != NULL &&
        row->script[0] == 'a' && strstr(row->after, "me=") != NULL && row->reply[0] == '0')
        assert_true(pttl(server, "r") > 0); /* records do not outlive clients that wrote them */
}

enum { LISTENERS_MAX = 4 };
struct subscribers {
    size_t len;
    struct listener *listener[LISTENERS_MAX];
    char owner[LISTENERS_MAX][32];
};

static void open_subscribers(struct subscribers *subscribers, const char *owners) {
    subscribers->len = 0;
    while (owners != NULL && *owners != '\0') {
        char channel[64];
        size_t len = strcspn(owners, " ");
        snprintf(subscribers->owner[subscribers->len], sizeof subscribers->owner[0], "%.*s",
                 (int)len, owners);
        snprintf(channel, sizeof channel, CHANNELS "%s", subscribers->owner[subscribers->len]);
        subscribers->listener[subscribers->len++] = listener_start(server, channel);
        owners += len + strspn(owners + len, " ");
    }
}

static void close_subscribers(struct subscribers *subscribers) {
    for (size_t i = 0; i < subscribers->len; i++)
        listener_stop(subscribers->listener[i]);
}

static void received_messages(struct subscribers *subscribers, char *out, size_t room) {
    out[0] = '\0';
    for (size_t i = 0; i < subscribers->len; i++) {
        const char *received = listener_received(subscribers->listener[i]);
        if (received[0] == '\0')
            continue;
        assert_null(strchr(received, ',')); /* once */
        snprintf(out + strlen(out), room - strlen(out), "%s%s:", out[0] != '\0' ? " " : "",
                 subscribers->owner[i]);
        append_value(out, room, strchr(received, ' ') + 1);
    }
}

/* What docs/scripts.md tells operators to grant for these scripts. */
static const char *const commands[] = {
    "hmget",   "hget",  "hset", "hdel", "hlen",    "hrandfield", "zscore", "zadd",
    "zrem",    "zcard", "llen", "lpos", "lindex",  "lrange",     "lpop",   "lrem",
    "linsert", "rpush", "pttl", "del",  "pexpire", "exists"};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* A user that has these rights, but for one. */
static redisContext *connect_user(const char *without) {
    char rights[TEXT] = "";
    for (int i = 0; i < COMMANDS; i++)
        if (without == NULL || strcmp(commands[i], without) != 0)
            snprintf(rights + strlen(rights), sizeof rights - strlen(rights), "+%s ", commands[i]);
    char line[TEXT + 128];
    snprintf(line, sizeof line,
             "ACL SETUSER app reset resetchannels on >secret ~f ~q ~z ~r ~u &" CHANNELS
             "* +evalsha +time +publish %s",
             rights);
    struct argument_list words;
    split(line, &words);
    redisContext *admin = connect_as(server, NULL, NULL);
    redisReply *reply = send_words(admin, &words);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    redisFree(admin);
    return connect_as(server, "app", "secret");
}

static void play(void **state) {
    const struct fair_row *row = *state;
    redisContext *admin = connect_as(server, NULL, NULL), *connection = connect_user(NULL);
    struct subscribers subscribers;
    char received[TEXT];
    int64_t start_ms = now_ms();
    prepare(admin, row->before);
    open_subscribers(&subscribers, row->listeners);
    redisReply *reply = call_as_it_is(connection, row->script, row->call);
    int64_t passed_ms = now_ms() - start_ms + 2;
    assert_reply(row, reply, passed_ms);
    freeReplyObject(reply);
    assert_state(row, "after", row->after);
    assert_ttl(row, start_ms);
    received_messages(&subscribers, received, sizeof received);
    if (strcmp(received, row->received != NULL ? row->received : "") != 0)
        fail_msg("%s: received '%s'", row->name, received);

    /* The same again, as after a lost reply. Who is not granted anything may be notified twice. */
    freeReplyObject(call(connection, row->script, row->call));
    assert_state(row, "after a resend", row->resent != NULL ? row->resent : row->after);
    received_messages(&subscribers, received, sizeof received);
    assert_null(strstr(received, "#"));
    close_subscribers(&subscribers);
    redisFree(connection);
    redisFree(admin);
}

/* ---- What a row cannot say ------------------------------------------------------------------ */

CASE(dead_waiters_go_a_hundred_at_a_time) {
    own_context *connection = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    for (int i = 0; i < 250; i++) {
        cmd_ok(server, "RPUSH q dead:%d", i);
        cmd_ok(server, "ZADD z 1 dead:%d", i);
    }
    cmd_ok(server, "HSET f you 1");
    const char *const first = "0 me 60000 3000 0 1 30000 0 300000";
    freeReplyObject(call(connection, "acquire", first)); /* who comes leaves that to who is there */
    assert_int_equal(cmd_int(server, "LLEN q"), 251);
    freeReplyObject(call(connection, "acquire", first));
    assert_int_equal(cmd_int(server, "LLEN q"), 151);
    freeReplyObject(call(connection, "acquire", first));
    assert_int_equal(cmd_int(server, "LLEN q"), 51);
    freeReplyObject(call(connection, "acquire", first));
    assert_int_equal(cmd_int(server, "LLEN q"), 1);
    assert_int_equal(cmd_int(server, "ZCARD z"), 1);
}

/* As many as one call may pass over, and more: it says so, and goes on when it is asked to. */
static void queue_many(bool are_java, int len) {
    for (int i = 0; i < len; i++) {
        cmd_ok(server, "RPUSH q dead:%d", i);
        cmd_ok(server, "ZADD z 1800000000000 dead:%d", i);
        if (!are_java)
            cmd_ok(server, "HSET r dead:%d %s", i, "3000 1 1800000000000");
    }
}

static long long answers(redisContext *connection, const char *script, const char *arguments,
                         int element) {
    own_reply *reply = call(connection, script, arguments);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    return reply->element[element]->integer;
}

CASE(a_hand_over_says_that_there_are_more) {
    OWN(close_subscribers) struct subscribers subscribers;
    static const struct {
        const char *script, *call, *before;
        int code, more;
    } calls[] = {
        {"release", "0 me 1 30000", "HSET f me 1", 1, 1},
        {"release", "0 me 1 30000", "", -1, 2}, /* the resend of it */
        {"give_up", "0 me 0", "HSET f me 1", 1, 1},
        {"give_up", "0 me 0", "", 0, 1},
        {"break", "0 me", "HSET f me 1", 1, 2}, /* 1 would be: and the holder was not notified */
        {"hand_over", "0 me", "", 1, 1},
    };
    own_context *connection = connect_as(server, NULL, NULL);
    open_subscribers(&subscribers, "a");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        prepare(connection, calls[i].before);
        queue_many(false, 250);
        cmd_ok(server, "RPUSH q a");
        cmd_ok(server, "ZADD z 1800000000000 a");
        cmd_ok(server, "HSET r a %s", "3000 1 1800000000000");
        redisReply *reply = call(connection, calls[i].script, calls[i].call);
        assert_int_equal(reply->element[0]->integer, calls[i].code);
        assert_int_equal(reply->element[1]->integer, calls[i].more);
        freeReplyObject(reply);
        assert_int_equal(cmd_int(server, "LLEN q"), 151);
        assert_int_equal(answers(connection, "hand_over", "0 me", 1), 1);
        assert_int_equal(cmd_int(server, "LLEN q"), 51);
        assert_int_equal(answers(connection, "hand_over", "0 me", 1), 0);
        assert_int_equal(cmd_int(server, "HGET f a"), 1);
        assert_false(key_exists(server, "q") || key_exists(server, "z") || key_exists(server, "r"));
    }
}

/* By the scripts' clock. By the server's own, which is not theirs here, the key stays: it has two seconds to live. */
static void let_all_javas_expire(int javas) {
    static const char *const script = "for i = 1, ARGV[1] - 1 do\n"
                                      "  redis.call('HSET', 'u', 'dead:' .. i, ARGV[2])\n"
                                      "end\n"
                                      "return redis.call('PERSIST', 'u')\n";
    assert_int_equal(
        cmd_int(server, "EVAL %s 1 u %d %lld", script, javas, (long long)TIME_MS - 2000), 1);
}

/* Nobody hears for so many Java clients: all of them are remembered, and their time runs out at
 * once. Then they go, in steps. */
CASE(a_crowd_of_silent_javas_is_waited_for_once) {
    enum { JAVAS = 350 };
    own_context *connection = connect_as(server, NULL, NULL);
    prepare(connection, "HSET f me 1");
    queue_many(true, JAVAS);
    assert_int_equal(answers(connection, "release", "0 me 1 30000", 1), 0);
    assert_int_equal(cmd_int(server, "HLEN u"), JAVAS - 1); /* the first has it in its deadline */
    assert_in_range(pttl(server, "u"), 2001, 4000);
    const char *const first = "0 me 60000 3000 0 1 30000 0 300000";
    assert_int_equal(answers(connection, "acquire", first, 5), 2001);
    assert_int_equal(cmd_int(server, "LLEN q"), JAVAS + 1);
    cmd_ok(server, "ZADD z %lld dead:0", (long long)TIME_MS); /* two seconds have passed */
    let_all_javas_expire(JAVAS);
    for (int left = JAVAS - 100; left > 0; left -= 100) {
        assert_int_equal(answers(connection, "acquire", first, 5), 1);
        assert_int_equal(cmd_int(server, "LLEN q"), left + 1);
    }
    assert_int_equal(answers(connection, "acquire", first, 0), 1);
    assert_int_equal(cmd_int(server, "DBSIZE"), 1); /* the lock */
}

/* What a cluster's clients listen to. */
CASE(sharded_channels_are_optional) {
    if (!server_knows(server, "spublish"))
        skip();
    own_context *connection = connect_as(server, NULL, NULL);
    struct listener *a = listener_start(server, CHANNELS "a");
    prepare(connection, "HSET f me 1; RPUSH q java a; ZADD z @+300000 java; ZADD z @+60000 a; "
                        "HSET r a 3000_#-90_@+60000");
    freeReplyObject(
        redisCommand(connection, "EVALSHA %s 5 f q z r u 0 me spublish", sha_of("release")));
    assert_string_equal(listener_received(a), "spublish 0");
    assert_int_equal(cmd_int(server, "ZSCORE z java"), TIME_MS + 2000);
    struct listener *java = listener_start(server, CHANNELS "java");
    prepare(connection, "HSET f me 1; RPUSH q java a; ZADD z @+300000 java; ZADD z @+60000 a; "
                        "HSET r a 3000_#-90_@+60000");
    freeReplyObject(
        redisCommand(connection, "EVALSHA %s 5 f q z r u 0 me spublish", sha_of("release")));
    assert_string_equal(listener_received(java), "spublish 0");
    assert_string_equal(listener_received(a), "");
    assert_int_equal(cmd_int(server, "ZSCORE z java"), TIME_MS + 300000);
    listener_stop(java);
    listener_stop(a);
}

/* Nobody may speak to a Java client, so nobody knows whether it would hear. */
CASE(refused_publish_is_no_evidence) {
    cmd_ok(server, "ACL SETUSER mute on >pw ~* +@all resetchannels");
    redisContext *connection = connect_as(server, "mute", "pw");
    prepare(connection, "HSET f me 1; RPUSH q java j2; ZADD z @+300000 java; ZADD z @+600000 j2");
    assert_int_equal(answers(connection, "release", "0 me 1 30000", 0), 2);
    assert_int_equal(cmd_int(server, "ZSCORE z java"), TIME_MS + 300000);
    assert_int_equal(cmd_int(server, "LLEN q"), 2);
    assert_false(key_exists(server, "u"));
    redisFree(connection);
    cmd_ok(server, "ACL DELUSER mute");
}

/* Records of waiters that a Java client has swept go by and by, and none of the living. */
static redisReply *call_with_many_records(redisContext *admin, redisContext *connection) {
    prepare(admin, "HSET f you 1; RPUSH q a; ZADD z @+60000 a; HSET r a 3000_#-90_@+60000");
    for (int i = 0; i < 40; i++)
        cmd_ok(server, "HSET r dead:%d %s", i, "3000 1 1");
    return call(connection, "acquire", "0 me 60000 3000 0 1 30000 0 300000");
}

CASE(records_of_the_dead_go) {
    own_context *connection = connect_as(server, NULL, NULL);
    freeReplyObject(call_with_many_records(connection, connection));
    assert_in_range(cmd_int(server, "HLEN r"), 34, 36); /* eight by chance, of whom two live */
    assert_int_equal(cmd_int(server, "HEXISTS r a"), 1);
}

/* In the words of a command that is refused itself, of Redis up to 7.0 for one inside a script, and
 * of later servers. */
static bool is_refused(redisReply *reply) {
    static const char *const words[] = {"NOPERM", "can't run", "ACL failure in script:"};
    bool refused = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        refused |= reply->type == REDIS_REPLY_ERROR && strstr(reply->str, words[i]) != NULL;
    freeReplyObject(reply);
    return refused;
}

/* Without any one of them some row fails. */
CASE(every_right_is_needed) {
    redisContext *admin = connect_as(server, NULL, NULL);
    for (int i = 0; i < COMMANDS; i++) {
        own_context *connection = connect_user(commands[i]);
        bool refused = is_refused(call_with_many_records(admin, connection));
        for (size_t k = 0; k < fair_row_count && !refused; k++) {
            prepare(admin, fair_rows[k].before);
            refused = is_refused(call(connection, fair_rows[k].script, fair_rows[k].call));
        }
        if (!refused)
            fail_msg("%s is not needed", commands[i]);
    }
    redisFree(admin);
    cmd_ok(server, "ACL DELUSER app");
}

/* Nobody may be dropped from the queue because we may not speak. */
CASE(refused_publish_drops_no_waiter) {
    cmd_ok(server, "ACL SETUSER mute on >pw ~* +@all resetchannels");
    redisContext *connection = connect_as(server, "mute", "pw");
    static const struct {
        const char *script, *call, *before;
        int code;
    } calls[] = {
        {"release", "0 me 1 30000", "HSET f me 1; ", 2},
        {"give_up", "0 me 0", "HSET f me 1; ", 2},
        {"break", "0 me", "HSET f me 1; ", 2},
        {"acquire", "0 me 10000 0 0 0 30000 0 300000", "", 0},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        own_text *before =
            text_of("%sRPUSH q a; ZADD z @+60000 a; HSET r a 3000_#-90_@+60000", calls[i].before);
        prepare(connection, before);
        redisReply *reply = call(connection, calls[i].script, calls[i].call);
        assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
        assert_int_equal(reply->element[0]->integer, calls[i].code);
        freeReplyObject(reply);
        assert_false(key_exists(server, "f"));
        assert_int_equal(cmd_int(server, "LLEN q"), 1);
        assert_int_equal(cmd_int(server, "HLEN r"), 1);
    }
    redisFree(connection);
    cmd_ok(server, "ACL DELUSER mute");
}

/* Beyond the 64th there is no place, but a deadline all the same. */
CASE(far_behind) {
    own_context *connection = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "HSET f you 1");
    for (int i = 0; i < 100; i++) {
        cmd_ok(server, "RPUSH q w:%d", i);
        cmd_ok(server, "ZADD z 1800000000000 w:%d", i);
        if (i % 2 == 0)
            cmd_ok(server, "HSET r w:%d %s", i, "3000 1699999999000000 1800000000000");
    }
    for (int round = 0; round < 2; round++) {
        redisReply *reply = call(connection, "acquire", "0 me 60000 3000 0 1 30000 0 300000");
        assert_int_equal(reply->element[2]->integer, 0);
        freeReplyObject(reply);
        assert_int_equal(cmd_int(server, "LLEN q"), 101);
    }
    /* And one with an arrival number goes no further than that, either. */
    redisReply *reply = call(connection, "acquire", "0 old 60000 3000 #-9 1 30000 0 300000");
    freeReplyObject(reply);
    own_text *second = cmd_str(server, "LINDEX q 1"); /* w:1 is Java's */
    assert_string_equal(second, "old");
}

/* C056 to C059: what Redisson's own scripts make of a queue that ours wait in too. */
static const char java_acquire[] =
    "while true do local h = redis.call('lindex', KEYS[2], 0) if not h then break end "
    "local s = redis.call('zscore', KEYS[3], h) "
    "if s and tonumber(s) <= tonumber(ARGV[4]) then redis.call('zrem', KEYS[3], h) "
    "redis.call('lpop', KEYS[2]) else break end end "
    "if redis.call('exists', KEYS[1]) == 0 and (redis.call('exists', KEYS[2]) == 0 or "
    "redis.call('lindex', KEYS[2], 0) == ARGV[2]) then redis.call('lpop', KEYS[2]) "
    "redis.call('zrem', KEYS[3], ARGV[2]) "
    "for _, m in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do "
    "redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), m) end "
    "redis.call('hset', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return -9 end "
    "if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then redis.call('hincrby', KEYS[1], ARGV[2], 1)"
    " redis.call('pexpire', KEYS[1], ARGV[1]) return -9 end "
    "if redis.call('zscore', KEYS[3], ARGV[2]) then "
    "return math.max(0, redis.call('pttl', KEYS[1])) end "
    "local last, ttl = redis.call('lindex', KEYS[2], -1), redis.call('pttl', KEYS[1]) "
    "local s = last and last ~= ARGV[2] and redis.call('zscore', KEYS[3], last) "
    "if s then ttl = tonumber(s) - tonumber(ARGV[4]) end "
    "if redis.call('zadd', KEYS[3], string.format('%.0f', ttl + tonumber(ARGV[3]) + "
    "tonumber(ARGV[4])), ARGV[2]) == 1 then redis.call('rpush', KEYS[2], ARGV[2]) end return ttl";

static long long java(const char *owner, int64_t now) {
    return cmd_int(server, "EVAL %s 3 f q z 30000 %s 300000 %lld", java_acquire, owner,
                   (long long)now);
}

CASE(C056_java_behind_ours_gets_its_deadline) {
    own_context *connection = connect_as(server, NULL, NULL);
    prepare(connection, "HSET f you 1; PEXPIRE f 30000");
    freeReplyObject(call(connection, "acquire", "0 me 60000 3000 0 1 30000 0 300000"));
    assert_int_equal(java("java", TIME_MS), 60000); /* our horizon in front of it */
    assert_int_equal(cmd_int(server, "ZSCORE z java"), TIME_MS + 360000);
    long long ttl_ms = java("java", TIME_MS); /* polls */
    assert_in_range(ttl_ms, 20000, 30000);
    /* We come in by a grant and leave: the deadline is still later than Redisson would give it. */
    cmd_ok(server, "DEL f");
    freeReplyObject(call(connection, "acquire", "0 me 60000 3000 0 1 30000 0 300000"));
    assert_int_equal(cmd_int(server, "HGET f me"), 1);
    assert_int_equal(cmd_int(server, "ZSCORE z java"), TIME_MS + 360000);
    redisReply *reply = call(connection, "release", "0 me 1 30000");
    freeReplyObject(reply);
    assert_int_equal(java("java", TIME_MS + 1), -9); /* it was notified, comes, and has it */
}

/* A Java client in front takes its wait off our deadline when it leaves: we had added it. */
CASE(C058_java_in_front_takes_its_wait_off_ours) {
    own_context *connection = connect_as(server, NULL, NULL);
    prepare(connection, "HSET f you 1; PEXPIRE f 30000");
    java("java", TIME_MS);
    freeReplyObject(call(connection, "acquire", "0 me 60000 3000 0 1 30000 0 300000"));
    cmd_ok(server, "DEL f");
    assert_int_equal(java("java", TIME_MS + 1), -9);
    assert_true(cmd_int(server, "ZSCORE z me") >= TIME_MS + 30000); /* and is not swept by that */
    assert_int_equal(cmd_int(server, "LLEN q"), 1);
}

/* C059: those in front have vanished; after their deadlines the third gets it. */
CASE(C059_abandoned_places) {
    own_context *connection = connect_as(server, NULL, NULL);
    prepare(connection, "RPUSH q j1 j2; ZADD z @-20 j1; ZADD z @-10 j2");
    redisReply *reply = call(connection, "acquire", "0 me 60000 3000 0 1 30000 0 300000");
    assert_int_equal(reply->element[0]->integer, 1);
    freeReplyObject(reply);
    assert_int_equal(cmd_int(server, "DBSIZE"), 1);
}

int main(void) {
    for (size_t i = 0; i < fair_row_count; i++)
        test_case_add(fair_rows[i].name, play, (void *)(uintptr_t)&fair_rows[i]);
    return test_cases_run(open_group, close_group);
}
