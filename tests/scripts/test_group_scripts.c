/* The scripts of a group of values, each alone, on a real server.
 *
 * Every row of group_rows.c is a test of its own, played as an ACL user that may touch one hash and
 * one channel, and run the few commands that the script needs. The tests after the rows show that
 * these rights are not more than needed, what happens with as many values as there may be, and when
 * the server is out of memory.
 *
 * A lease that the script has written ends between the row's begin and its last look, plus the
 * lease; one that was there before, to the millisecond. One thread, one server for the whole
 * group of tests. */
#include "group.h"
#include "group_rows.h"
#include "support/case.h"
#include "support/wait.h"

#include <inttypes.h>

#define KEYS "~" GROUP " ~elsewhere"
#define ON_CHANNEL "&" GROUP_CHANNEL
#define LOOKS "time hlen hmget hget "

static const struct grant grants[] = {
    {"group_acquire", KEYS, ON_CHANNEL, LOOKS "hdel pttl hset pexpire hkeys publish spublish"},
    {"group_release", KEYS, ON_CHANNEL, LOOKS "hdel pttl hset pexpire publish spublish"},
    {"group_renew", KEYS, "", LOOKS "hdel pttl hset pexpire"},
    {"group_break", KEYS, ON_CHANNEL, LOOKS "hdel publish spublish"},
    {"group_inspect", KEYS, "", LOOKS "pttl"},
};
enum { GRANTS = sizeof grants / sizeof *grants };

/* ---- Playing a row -------------------------------------------------------------------------- */

/* One word of a state, taken apart: field, owner, count, end. */
struct held {
    bool holds; /* it is the owner of the value; else it only left something there */
    char field[8], owner[32];
    long long count, ends_ms;
};

static struct held held_of(const char *word) {
    struct held held = {.holds = word[1] == '='};
    size_t owner_len = strcspn(word + 2, "*");
    char *end;
    held.field[0] = word[0];
    snprintf(held.owner, sizeof held.owner, "%.*s", (int)owner_len, word + 2);
    held.count = strtoll(word + 2 + owner_len + 1, &end, 10);
    held.ends_ms = strtoll(end, NULL, 10);
    return held;
}

static bool is_there(const char *state) {
    return strcmp(state, "absent") != 0;
}

static void put(const struct held *held, int64_t begin_ms) {
    if (held->holds)
        cmd_ok(stage->server, "HSET " GROUP " %s %s", held->field, held->owner);
    cmd_ok(stage->server, "HSET " GROUP " %s:%s:expire_time %lld %s:%s:lock_count %lld",
           held->field, held->owner, (long long)begin_ms + held->ends_ms, held->field, held->owner,
           held->count);
}

static void prepare(const struct group_row *row, int64_t begin_ms) {
    struct words words;
    cmd_ok(stage->server, "FLUSHALL");
    words_cut(&words, row->before);
    for (size_t i = 0; is_there(row->before) && i < words.count; i++) {
        const char *word = words.item[i];
        struct held held = word[0] != '/' ? held_of(word) : (struct held){.holds = false};
        if (word[0] != '/')
            put(&held, begin_ms);
        else if (strcmp(word, "/-1") != 0)
            cmd_ok(stage->server, "PEXPIRE " GROUP " %s", word + 1);
    }
    if (row->commands != NULL) {
        own_context *admin = connect_as(stage->server, NULL, NULL);
        words_cut(&words, row->commands);
        freeReplyObject(words_send(admin, &words));
    }
}

static bool text_fits(const char *wanted, char why[WHY], const char *field) {
    own_text *there = cmd_str(stage->server, "HGET " GROUP " %s", field);
    bool fits = there != NULL && strcmp(there, wanted) == 0;
    if (!fits)
        differs(why, "%s is %s instead of %s", field, there != NULL ? there : "missing", wanted);
    return fits;
}

static bool held_fits(const struct held *held, struct span span, char why[WHY]) {
    char field[64], count[24];
    if (held->holds && !text_fits(held->owner, why, held->field))
        return false;
    snprintf(field, sizeof field, "%s:%s:lock_count", held->field, held->owner);
    snprintf(count, sizeof count, "%lld", held->count);
    if (!text_fits(count, why, field))
        return false;
    char *ends =
        cmd_str(stage->server, "HGET " GROUP " %s:%s:expire_time", held->field, held->owner);
    long long at_ms = ends != NULL ? strtoll(ends, NULL, 10) : 0;
    free(ends);
    return (at_ms >= span.begin_ms + held->ends_ms && at_ms <= span.end_ms + held->ends_ms) ||
           differs(why, "%s of %s ends at %lld (begun %" PRId64 ") instead of %lld", held->field,
                   held->owner, at_ms, span.begin_ms, held->ends_ms);
}

static bool ttl_is(const char *word, struct span span, char why[WHY]) {
    int64_t wanted_ms = strtoll(word, NULL, 10), ttl_ms = pttl(stage->server, GROUP);
    span.end_ms = server_time_ms(stage->server); /* it has run down until now */
    bool fits = wanted_ms == -1 ? ttl_ms == -1 : ttl_fits(ttl_ms, wanted_ms, span);
    return fits || differs(why, "a TTL of %" PRId64 " instead of %s", ttl_ms, word);
}

static bool state_fits(const struct group_row *row, const char *wanted, struct span span,
                       char why[WHY]) {
    int64_t keys = cmd_int(stage->server, "DBSIZE"), fields = 0;
    bool there = is_there(wanted) || row->other_type != NULL;
    if (keys != there)
        return differs(why, "%" PRId64 " keys", keys);
    if (row->other_type != NULL) {
        char *type = cmd_str(stage->server, "TYPE " GROUP);
        bool same = strcmp(type, row->other_type) == 0;
        free(type);
        return same || differs(why, "it is no %s any more", row->other_type);
    }
    if (!there)
        return true;
    struct words words;
    words_cut(&words, wanted);
    for (size_t i = 0; i < words.count; i++) {
        const char *word = words.item[i];
        struct held held = word[0] != '/' ? held_of(word) : (struct held){.holds = false};
        if (word[0] == '/' ? !ttl_is(word + 1, span, why) : !held_fits(&held, span, why))
            return false;
        fields += word[0] == '/' ? 0 : 2 + held.holds;
    }
    int64_t len = cmd_int(stage->server, "HLEN " GROUP);
    return len == fields || differs(why, "%" PRId64 " fields instead of %" PRId64, len, fields);
}

static bool call_fits(redisContext *connection, const struct group_row *row, const char *expected,
                      const char *wanted, struct span span, char why[WHY]) {
    span.call_ms = server_time_ms(stage->server);
    redisReply *reply =
        script_call(connection, stage_sha(stage, row->script), row->call, span.call_ms);
    span.end_ms = server_time_ms(stage->server);
    bool fits = reply_fits(reply, expected, span, why);
    freeReplyObject(reply);
    return fits && state_fits(row, wanted, span, why);
}

static bool group_row_plays(redisContext *connection, const struct group_row *row, char why[WHY]) {
    struct span span = {.begin_ms = server_time_ms(stage->server)};
    const char *after = row->after != NULL ? row->after : row->before;
    prepare(row, span.begin_ms);
    listener_received(stage->listener);
    if (!call_fits(connection, row, row->reply, after, span, why))
        return false;
    if (!received_fits(stage->listener, row->received, why))
        return false;

    const char *reply = row->resent_reply != NULL ? row->resent_reply : row->reply;
    char detail[WHY];
    if (!call_fits(connection, row, reply, row->resent != NULL ? row->resent : after, span, detail))
        return differs(why, "sent again: %.400s", detail);
    const char *received = listener_received(stage->listener);
    return received[0] == '\0' || differs(why, "sent again, it published '%s'", received);
}

static struct row_head head_of(size_t i) {
    const struct group_row *row = &group_rows[i];
    return (struct row_head){row->name, row->script, row->call};
}

static bool plays(redisContext *user, size_t i, char why[WHY]) {
    return group_row_plays(user, &group_rows[i], why);
}

/* ---- Rights --------------------------------------------------------------------------------- */

static void assert_row_plays(redisContext *user, const struct group_row *row) {
    char why[WHY];
    if (!group_row_plays(user, row, why))
        fail_msg("%s: %s", row->name, why);
}

/* A user that may write fields, but not when they end, leaves none. */
CASE(acquire_without_the_right_to_a_lease_leaves_nothing) {
    static const struct group_row row = {"acquire",
                                         "absent",
                                         NULL,
                                         "group_acquire",
                                         GROUP " , 0 me 30000 0 publish " GROUP_CHANNEL " A B",
                                         .reply = "!"};
    own_context *user = connect_new_user(stage, "poorer", grant_of(row.script), "pexpire");
    assert_row_plays(user, &row);
}

CASE(U46_released_but_not_notified) {
    static const struct group_row rows[] = {
        {"release", "A=me*1+5000 /5000", NULL, "group_release",
         GROUP " , 0 me 30000 1 publish " GROUP_CHANNEL " A", .reply = "2 0", .after = "absent",
         .resent_reply = "-1 0"},
        {"break", "A=me*1+5000 /5000", NULL, "group_break",
         GROUP " , 0 publish " GROUP_CHANNEL " " GROUP_CHANNEL " broken: A me", .reply = "2 -1",
         .after = "absent", .resent_reply = "0 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grant mute = *grant_of(rows[i].script);
        mute.channels = "&redisson_lock__channel:{another}";
        own_context *user = connect_new_user(stage, "mute", &mute, NULL);
        assert_row_plays(user, &rows[i]);
    }
}

/* A batch that the user may not renew at all is an error, not keys of a wrong type. */
CASE(renew_reports_other_errors_as_errors) {
    static const struct group_row row = {"renew",       "A=me*1+5000 /5000",       NULL,
                                         "group_renew", GROUP " , 0 30000 me 1 A", .reply = "!"};
    own_context *user = connect_new_user(stage, "poorer", grant_of(row.script), "hlen");
    assert_row_plays(user, &row);
}

/* ---- Many ----------------------------------------------------------------------------------- */

enum { MANY = 1000, HEAD = 4 };

/* Calls a script with a thousand fields behind the given words; the answer's first number. */
static int64_t call_with_many(const char *script, const char *line) {
    static char fields[MANY][24];
    static const char *argv[HEAD + 16 + MANY];
    struct words words;
    size_t argc = 0;
    words_cut(&words, line);
    argv[argc++] = "EVALSHA";
    argv[argc++] = stage_sha(stage, script);
    argv[argc++] = "1";
    argv[argc++] = GROUP;
    for (size_t i = 0; i < words.count; i++)
        argv[argc++] = words.item[i];
    for (int i = 0; i < MANY; i++) {
        snprintf(fields[i], sizeof fields[i], "f%021d", i);
        argv[argc++] = fields[i];
    }
    own_reply *reply = redisCommandArgv(user_of(script), (int)argc, argv, NULL);
    if (reply->type != REDIS_REPLY_ARRAY)
        fail_msg("%s: %s", script, reply->str);
    return reply->element[0]->integer;
}

/* A thousand values, which is the most, in one call of each script; and taken over from an owner
 * whose lease has ended, with all that it left. */
CASE(a_thousand_values) {
    cmd_ok(stage->server, "FLUSHALL");
    assert_int_equal(call_with_many("group_acquire", "0 me 1 0 publish " GROUP_CHANNEL), 1);
    cmd_ok(stage->server, "DEL " GROUP);
    assert_int_equal(call_with_many("group_acquire", "0 me 60000 0 publish " GROUP_CHANNEL), 1);
    assert_int_equal(call_with_many("group_acquire", "0 me 60000 1 publish " GROUP_CHANNEL), 1);
    assert_int_equal(call_with_many("group_acquire", "0 you 60000 0 publish " GROUP_CHANNEL), 0);
    assert_int_equal(call_with_many("group_renew", "0 90000 me 1000"), 1);
    assert_int_equal(call_with_many("group_inspect", "0 me"), MANY);
    assert_int_equal(call_with_many("group_release", "0 me 60000 2 publish " GROUP_CHANNEL), 0);
    assert_int_equal(cmd_int(stage->server, "HLEN " GROUP), 3 * MANY);
    freeReplyObject(cmd(stage->server, "EVAL %s 1 " GROUP,
                        "for _, name in ipairs(redis.call('hkeys', KEYS[1])) do "
                        "if string.find(name, 'expire_time', 1, true) then "
                        "redis.call('hset', KEYS[1], name, 1) end end"));
    assert_int_equal(call_with_many("group_acquire", "0 you 60000 0 publish " GROUP_CHANNEL), 1);
    assert_int_equal(cmd_int(stage->server, "HLEN " GROUP), 3 * MANY);
    assert_int_equal(call_with_many("group_release", "0 you 60000 1 publish " GROUP_CHANNEL), 1);
    assert_int_equal(cmd_int(stage->server, "EXISTS " GROUP), 0);
    listener_received(stage->listener);
}

/* ---- Out of memory -------------------------------------------------------------------------- */

/* Nobody can take; what was taken can be kept and given back. */
CASE(U38_out_of_memory) {
    own_context *admin = connect_as(stage->server, NULL, NULL);
    static const struct group_row row = {
        "before", "A=me*2+50000 B=me*2+50000 /50000", NULL, "group_inspect", "", .reply = ""};
    prepare(&row, server_time_ms(stage->server));
    use_up_memory();
    assert_code(admin, "group_acquire", GROUP " , 0 you 30000 0 publish " GROUP_CHANNEL " C",
                "OOM");
    assert_code(admin, "group_acquire", GROUP " , 0 me 90000 2 publish " GROUP_CHANNEL " A B",
                "OOM");
    assert_code(admin, "group_renew", GROUP " , 0 90000 me 2 A B", "1");
    assert_code(admin, "group_release", GROUP " , 0 me 90000 2 publish " GROUP_CHANNEL " A B", "0");
    assert_code(admin, "group_release", GROUP " , 0 me 90000 1 publish " GROUP_CHANNEL " A B", "1");
    assert_int_equal(cmd_int(stage->server, "EXISTS " GROUP), 0);
    free_up_memory();
    listener_received(stage->listener);
}

/* ---- All of them ---------------------------------------------------------------------------- */

int main(void) {
    struct table table = {
        .channel = GROUP_CHANNEL,
        .grants = grants,
        .grant_count = GRANTS,
        .row_count = group_row_count,
        .head = head_of,
        .plays = plays,
    };
    return group_run(&table);
}
