/* The scripts of permits with leases, each alone, on a real server.
 *
 * Every row of permits_rows.c is a test of its own, played as an ACL user that may touch the keys and
 * the channel of one object and run the few commands that the script needs. The tests after the rows
 * show that these rights are not more than needed, what the scripts do with more permits than Lua could
 * pass around, and when the server is out of memory.
 *
 * A lease that the script has written ends between the row's begin and its last look, plus the lease; one
 * that was there before, to the millisecond. One thread, one server for the whole group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "permits_rows.h"
#include "script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASSWORD "x"
#define NEVER 922337203685477
#define ID_LEN 16

struct grant {
    const char *script; /* the user has the same name */
    const char *channels;
    const char *commands;
};

#define RECLAIMS "time get zcount zremrangebyrank incrby publish spublish "
#define ON_CHANNEL "&" PERMITS_CHANNEL

static const struct grant grants[] = {
    {"permits_acquire", ON_CHANNEL, RECLAIMS "zscore zadd zrem decrby pttl pexpire persist zrange"},
    {"permits_release", ON_CHANNEL, RECLAIMS "zscore zrem"},
    {"permits_extend", ON_CHANNEL, RECLAIMS "zscore zadd"},
    {"permits_lease", ON_CHANNEL, RECLAIMS "zscore"},
    {"permits_count", ON_CHANNEL, RECLAIMS "zcard"},
    {"permits_set", ON_CHANNEL, "time get zcard set incrby publish spublish"},
    {"permits_expire", "", "time get zcard pexpire"},
    {"permits_delete", "", "time get zcard del"},
    {"permits_renew", "", "time zscore zadd zremrangebyrank"},
};
enum { GRANTS = sizeof grants / sizeof *grants };

static struct {
    struct server *server;
    struct listener *listener;
    bool sharded; /* the server knows SPUBLISH, Redis 7 */
    char *sha[GRANTS];
    redisContext *user[GRANTS];
} group;

static size_t index_of(const char *script) {
    for (size_t i = 0; i < GRANTS; i++)
        if (strcmp(grants[i].script, script) == 0)
            return i;
    fail_msg("nothing is granted for %s", script);
    return 0;
}

static redisContext *connect_new_user(const char *name, const struct grant *grant,
                                      const char *without) {
    struct words call, part;
    words_cut(&call, "ACL SETUSER");
    words_add(&call, name);
    words_cut(&part,
              "reset resetchannels on >" PASSWORD " +evalsha ~" PERMITS " ~" TAKEN " ~elsewhere");
    for (size_t i = 0; i < part.count; i++)
        words_add(&call, part.item[i]);
    if (grant->channels[0] != '\0')
        words_add(&call, grant->channels);
    words_cut(&part, grant->commands);
    for (size_t i = 0; i < part.count; i++) {
        char right[64];
        snprintf(right, sizeof right, "+%s", part.item[i]);
        bool known = group.sharded || strcmp(part.item[i], "spublish") != 0;
        if (known && (without == NULL || strcmp(part.item[i], without) != 0))
            words_add(&call, right);
    }
    redisContext *admin = connect_as(group.server, NULL, NULL);
    redisReply *reply = words_send(admin, &call);
    if (reply->type != REDIS_REPLY_STATUS)
        fail_msg("ACL SETUSER %s: %s", name, reply->str);
    freeReplyObject(reply);
    redisFree(admin);
    return connect_as(group.server, name, PASSWORD);
}

static int open_group(void **state) {
    (void)state;
    group.server = server_start(NULL);
    group.listener = listener_start(group.server, PERMITS_CHANNEL);
    group.sharded = server_knows(group.server, "spublish");
    for (size_t i = 0; i < GRANTS; i++) {
        char *text = script_text(grants[i].script);
        group.sha[i] = script_load(group.server, text);
        free(text);
        group.user[i] = connect_new_user(grants[i].script, &grants[i], NULL);
    }
    return 0;
}

static int close_group(void **state) {
    (void)state;
    for (size_t i = 0; i < GRANTS; i++) {
        redisFree(group.user[i]);
        free(group.sha[i]);
    }
    listener_stop(group.listener);
    server_free(group.server);
    return 0;
}

/* ---- Playing a row -------------------------------------------------------------------------- */

/* The server's clock when the row began, and at the last look. */
struct span {
    int64_t begin_ms, end_ms;
};

__attribute__((format(printf, 2, 3))) static bool differs(char why[512], const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why, 512, format, args);
    va_end(args);
    return false;
}

static void id_of(char letter, char id[ID_LEN + 1]) {
    memset(id, letter, ID_LEN);
    id[ID_LEN] = '\0';
}

/* What is there, read from a row. */
struct state {
    char free[32]; /* "": there is no such key */
    size_t taken_len;
    char taken[8][32];                 /* as in a row */
    int64_t free_ttl_ms, taken_ttl_ms; /* 0: none */
};

static struct state read_state(const char *text) {
    struct state state = {.free_ttl_ms = 0};
    struct words words;
    words_cut(&words, text);
    size_t len = strcspn(words.item[0], "/");
    if (strcmp(words.item[0], "absent") != 0)
        snprintf(state.free, sizeof state.free, "%.*s", (int)len, words.item[0]);
    if (words.item[0][len] == '/')
        state.free_ttl_ms = strtoll(words.item[0] + len + 1, NULL, 10);
    for (size_t i = 2; i < words.count; i++)
        if (words.item[i][0] == '/')
            state.taken_ttl_ms = strtoll(words.item[i] + 1, NULL, 10);
        else
            snprintf(state.taken[state.taken_len++], sizeof state.taken[0], "%s", words.item[i]);
    return state;
}

static void prepare(const struct permits_row *row, int64_t begin_ms) {
    struct state before = read_state(row->before);
    cmd_ok(group.server, "FLUSHALL");
    if (before.free[0] != '\0')
        cmd_ok(group.server, "SET " PERMITS " %s", before.free);
    for (size_t i = 0; i < before.taken_len; i++) {
        char id[ID_LEN + 1];
        const char *ends = before.taken[i] + 1;
        id_of(before.taken[i][0], id);
        int64_t score = *ends == '*' ? NEVER : begin_ms + strtoll(ends, NULL, 10);
        cmd_ok(group.server, "ZADD " TAKEN " %lld %s", (long long)score, id);
    }
    if (before.free_ttl_ms != 0)
        cmd_ok(group.server, "PEXPIRE " PERMITS " %lld", (long long)before.free_ttl_ms);
    if (before.taken_ttl_ms != 0)
        cmd_ok(group.server, "PEXPIRE " TAKEN " %lld", (long long)before.taken_ttl_ms);
    if (row->commands != NULL) {
        struct words words;
        redisContext *admin = connect_as(group.server, NULL, NULL);
        words_cut(&words, row->commands);
        freeReplyObject(words_send(admin, &words));
        redisFree(admin);
    }
}

static bool time_fits(int64_t got_ms, int64_t set_ms, struct span span) {
    return got_ms >= span.begin_ms + set_ms && got_ms <= span.end_ms + set_ms;
}

/* A time that was `set_ms` at the row's begin or later, and has run down since. */
static bool rest_fits(int64_t got_ms, int64_t set_ms, struct span span) {
    return got_ms <= set_ms + 1 && got_ms >= set_ms - (span.end_ms - span.begin_ms) - 1;
}

static bool reply_fits(const redisReply *reply, const char *expected, struct span span,
                       char why[512]) {
    if (expected[0] == '!') {
        if (reply->type == REDIS_REPLY_ERROR &&
            strncmp(script_error(reply), expected + 1, strlen(expected) - 1) == 0)
            return true;
        return differs(why, "reply '%s' (type %d) instead of %s",
                       reply->str != NULL ? reply->str : "", reply->type, expected);
    }
    struct words wanted;
    words_cut(&wanted, expected);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != wanted.count + 1)
        return differs(why, "reply '%s' of %zu instead of '%s' and the time",
                       reply->str != NULL ? reply->str : "", reply->elements, expected);
    for (size_t i = 0; i < wanted.count; i++) {
        const char *word = wanted.item[i];
        int64_t got = reply->element[i]->integer;
        bool fits = reply->element[i]->type == REDIS_REPLY_INTEGER &&
                    (word[0] == '~' ? rest_fits(got, strtoll(word + 1, NULL, 10), span)
                                    : got == strtoll(word, NULL, 10));
        if (!fits)
            return differs(why, "reply has %" PRId64 " at %zu instead of '%s'", got, i, expected);
    }
    int64_t now_ms = reply->element[wanted.count]->integer;
    return (now_ms >= span.begin_ms && now_ms <= span.end_ms) ||
           differs(why, "the reply closes with a wrong time");
}

static bool ttl_fits(const char *key, int64_t set_ms, struct span span, char why[512]) {
    int64_t ttl_ms = pttl(group.server, key);
    span.end_ms = server_time_ms(group.server); /* it has run down until now */
    bool fits = set_ms == 0 ? ttl_ms == -1 : rest_fits(ttl_ms, set_ms, span);
    return fits ||
           differs(why, "%s has a TTL of %" PRId64 " instead of %" PRId64, key, ttl_ms, set_ms);
}

static bool taken_fits(const struct state *wanted, struct span span, char why[512]) {
    redisReply *reply = cmd(group.server, "ZRANGE " TAKEN " 0 -1 WITHSCORES");
    bool fits = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 * wanted->taken_len;
    if (!fits)
        differs(why, "%zu permits are taken instead of %zu", reply->elements / 2,
                wanted->taken_len);
    for (size_t i = 0; fits && i < wanted->taken_len; i++) {
        /* Those that end at the same time come in the order of their ids. */
        char id[ID_LEN + 1];
        const char *ends = wanted->taken[i] + 1;
        id_of(wanted->taken[i][0], id);
        const char *score = reply->element[2 * i + 1]->str;
        fits = strcmp(reply->element[2 * i]->str, id) == 0;
        fits = fits &&
               (*ends == '*' ? strcmp(score, "922337203685477") == 0
                             : time_fits(strtoll(score, NULL, 10), strtoll(ends, NULL, 10), span));
        if (!fits)
            differs(why, "%s until %s (begun %" PRId64 ") instead of %s",
                    reply->element[2 * i]->str, score, span.begin_ms, wanted->taken[i]);
    }
    freeReplyObject(reply);
    return fits;
}

static bool state_fits(const struct permits_row *row, const char *expected, struct span span,
                       char why[512]) {
    struct state wanted = read_state(expected);
    int64_t keys = (wanted.free[0] != '\0') + (wanted.taken_len > 0) + (row->other_key != NULL);
    int64_t there = cmd_int(group.server, "DBSIZE");
    if (row->other_key != NULL) {
        char *type = cmd_str(group.server, "TYPE %s", row->other_key);
        bool same = strcmp(type, row->other_type) == 0;
        free(type);
        if (!same)
            return differs(why, "%s is no %s any more", row->other_key, row->other_type);
    }
    if (there != keys)
        return differs(why, "%" PRId64 " keys instead of %" PRId64, there, keys);
    if (wanted.free[0] != '\0') {
        char *value = cmd_str(group.server, "GET " PERMITS);
        bool same = value != NULL && strcmp(value, wanted.free) == 0;
        if (!same)
            differs(why, "%s are free instead of %s", value != NULL ? value : "(none)",
                    wanted.free);
        free(value);
        if (!same || !ttl_fits(PERMITS, wanted.free_ttl_ms, span, why))
            return false;
    }
    return wanted.taken_len == 0 ||
           (taken_fits(&wanted, span, why) && ttl_fits(TAKEN, wanted.taken_ttl_ms, span, why));
}

static bool call_fits(redisContext *connection, const struct permits_row *row, const char *expected,
                      const char *wanted, struct span span, char why[512]) {
    redisReply *reply = script_call(connection, group.sha[index_of(row->script)], row->call,
                                    server_time_ms(group.server));
    span.end_ms = server_time_ms(group.server);
    bool fits = reply_fits(reply, expected, span, why);
    freeReplyObject(reply);
    return fits && state_fits(row, wanted, span, why);
}

static bool row_plays(redisContext *connection, const struct permits_row *row, char why[512]) {
    struct span span = {.begin_ms = server_time_ms(group.server)};
    prepare(row, span.begin_ms);
    listener_heard(group.listener);
    if (!call_fits(connection, row, row->reply, row->after, span, why))
        return false;
    const char *heard = listener_heard(group.listener);
    const char *expected = row->heard != NULL ? row->heard : "";
    if (strcmp(heard, expected) != 0)
        return differs(why, "heard '%s' instead of '%s'", heard, expected);

    bool adds = row->resent != NULL;
    const char *reply = row->resent_reply != NULL ? row->resent_reply : row->reply;
    char detail[512];
    if (!call_fits(connection, row, reply, adds ? row->resent : row->after, span, detail))
        return differs(why, "sent again: %.400s", detail);
    heard = listener_heard(group.listener);
    return adds || heard[0] == '\0' || differs(why, "sent again, it published '%s'", heard);
}

static bool row_applies(const struct permits_row *row) {
    return group.sharded || strstr(row->call, "spublish") == NULL;
}

static void play_row(void **state) {
    const struct permits_row *row = *state;
    char why[512];
    if (!row_applies(row))
        skip();
    if (!row_plays(group.user[index_of(row->script)], row, why))
        fail_msg("%s %s: %s", row->script, row->call, why);
}

/* ---- Rights --------------------------------------------------------------------------------- */

static bool all_rows_play(redisContext *connection, const char *script) {
    char why[512];
    for (const struct permits_row *row = permits_rows; row < permits_rows + permits_row_count;
         row++)
        if (strcmp(row->script, script) == 0 && row_applies(row) &&
            !row_plays(connection, row, why))
            return false;
    return true;
}

static void no_command_is_granted_in_vain(void **state) {
    (void)state;
    for (size_t i = 0; i < GRANTS; i++) {
        struct words commands;
        words_cut(&commands, grants[i].commands);
        for (size_t j = 0; j < commands.count; j++) {
            if (!group.sharded && strcmp(commands.item[j], "spublish") == 0)
                continue;
            redisContext *user = connect_new_user("poorer", &grants[i], commands.item[j]);
            bool needless = all_rows_play(user, grants[i].script);
            redisFree(user);
            if (needless)
                fail_msg("%s does not need +%s", grants[i].script, commands.item[j]);
        }
    }
}

/* A user that may write ids but not pay for them leaves none. */
static void acquire_without_the_right_to_pay_leaves_nothing(void **state) {
    (void)state;
    static const struct permits_row row = {"unpaid",
                                           "2",
                                           NULL,
                                           "permits_acquire",
                                           PERMITS " " TAKEN " , 0 30000 publish " PERMITS_CHANNEL
                                                   " " PERMIT_A,
                                           .reply = "!",
                                           .after = "2"};
    char why[512];
    redisContext *user = connect_new_user("poorer", &grants[index_of(row.script)], "decrby");
    if (!row_plays(user, &row, why))
        fail_msg("%s", why);
    redisFree(user);
}

static void U46_released_but_nobody_told(void **state) {
    (void)state;
    static const struct permits_row rows[] = {
        {"release", "1 : a+5000", NULL, "permits_release",
         PERMITS " " TAKEN " , 0 any publish " PERMITS_CHANNEL " " PERMIT_A, .reply = "2 1",
         .after = "2", .resent_reply = "-1 1"},
        {"set", "absent", NULL, "permits_set",
         PERMITS " " TAKEN " , 0 total 5 publish " PERMITS_CHANNEL, .reply = "2 5", .after = "5",
         .resent_reply = "1 5"},
    };
    char why[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grant mute = grants[index_of(rows[i].script)];
        mute.channels = "&redisson_sc:{another}";
        redisContext *user = connect_new_user("mute", &mute, NULL);
        if (!row_plays(user, &rows[i], why))
            fail_msg("%s: %s", rows[i].name, why);
        redisFree(user);
    }
}

/* A batch that the user may not renew at all is an error, not a set of keys of a wrong type. */
static void renew_reports_other_errors_as_errors(void **state) {
    (void)state;
    static const struct permits_row row = {
        "renew",      "1 : a+5000",         NULL, "permits_renew", TAKEN " , 0 30000 " PERMIT_A,
        .reply = "!", .after = "1 : a+5000"};
    char why[512];
    redisContext *user = connect_new_user("poorer", &grants[index_of(row.script)], "zscore");
    if (!row_plays(user, &row, why))
        fail_msg("%s", why);
    redisFree(user);
}

/* ---- Many ----------------------------------------------------------------------------------- */

static redisReply *call(const char *script, const char *keys_and_args) {
    return script_call(group.user[index_of(script)], group.sha[index_of(script)], keys_and_args, 0);
}

static void assert_answers(const char *script, const char *keys_and_args, int64_t code,
                           int64_t value) {
    redisReply *reply = call(script, keys_and_args);
    if (reply->type != REDIS_REPLY_ARRAY)
        fail_msg("%s: %s", script, reply->str);
    assert_int_equal(reply->element[0]->integer, code);
    assert_int_equal(reply->element[1]->integer, value);
    if (strcmp(script, "permits_count") == 0) /* all that are taken here have ended */
        assert_int_equal(reply->element[2]->integer, 0);
    freeReplyObject(reply);
}

/* So many permits whose leases ended long ago. */
static void take_ended(int number) {
    cmd_ok(group.server, "FLUSHALL");
    cmd_ok(group.server, "SET " PERMITS " 0");
    freeReplyObject(cmd(group.server, "EVAL %s 1 " TAKEN " %d",
                        "for i = 1, ARGV[1] do redis.call('zadd', KEYS[1], i, "
                        "string.format('%016d', i)) end",
                        number));
    assert_int_equal(cmd_int(group.server, "ZCARD " TAKEN), number);
}

static void assert_reclaimed(int number, int of) {
    assert_int_equal(cmd_int(group.server, "ZCARD " TAKEN), of - number);
    assert_int_equal(cmd_int(group.server, "GET " PERMITS), number);
}

/* Ten thousand permits have ended: every script works, takes back no more than 500 (or what it needs),
 * and counts right all the same. */
static void U50_ten_thousand_ended(void **state) {
    (void)state;
    enum { MANY = 10000, BOUND = 500 };
    static const char one_id[] = PERMITS " " TAKEN " , 0 publish " PERMITS_CHANNEL " " PERMIT_A;

    take_ended(MANY);
    assert_answers("permits_count", PERMITS " " TAKEN " , 0 publish " PERMITS_CHANNEL, 1, MANY);
    assert_reclaimed(BOUND, MANY);
    assert_answers("permits_count", PERMITS " " TAKEN " , 0 publish " PERMITS_CHANNEL, 1, MANY);
    assert_reclaimed(2 * BOUND, MANY);

    take_ended(MANY);
    assert_answers("permits_lease", one_id, 0, 0);
    assert_reclaimed(BOUND, MANY);

    take_ended(MANY);
    assert_answers("permits_extend",
                   PERMITS " " TAKEN " , 0 30000 publish " PERMITS_CHANNEL " " PERMIT_A, 0, 0);
    assert_reclaimed(BOUND, MANY);

    /* One that ended and is not taken back yet has ended all the same. */
    take_ended(MANY);
    assert_answers("permits_extend",
                   PERMITS " " TAKEN " , 0 30000 publish " PERMITS_CHANNEL " 0000000000009999", 0,
                   0);
    assert_answers("permits_lease",
                   PERMITS " " TAKEN " , 0 publish " PERMITS_CHANNEL " 0000000000009999", 0, 0);

    take_ended(MANY);
    assert_answers("permits_acquire",
                   PERMITS " " TAKEN " , 0 30000 publish " PERMITS_CHANNEL " " PERMIT_A, 1, 1);
    assert_int_equal(cmd_int(group.server, "ZCARD " TAKEN), MANY - BOUND + 1);
    assert_int_equal(cmd_int(group.server, "GET " PERMITS), BOUND - 1);
    assert_answers("permits_release",
                   PERMITS " " TAKEN " , 0 all publish " PERMITS_CHANNEL " " PERMIT_A, 1, 1);
    assert_reclaimed(2 * BOUND, MANY);
    listener_heard(group.listener);

    /* What has to be waited for lies behind them: then there is no wait. */
    take_ended(MANY);
    cmd_ok(group.server, "SET " PERMITS " -2000");
    assert_answers("permits_acquire",
                   PERMITS " " TAKEN " , 0 30000 publish " PERMITS_CHANNEL " " PERMIT_A, 0, 0);
}

/* A thousand at once, which is the most: taken in one call, paid for once, returned in one call. */
static void a_thousand_at_once(void **state) {
    (void)state;
    enum { MANY = 1000, FIXED = 9 };
    static char ids[MANY][ID_LEN + 1];
    const char *argv[FIXED + MANY];
    size_t acquire = index_of("permits_acquire"), release = index_of("permits_release");
    const char *const head[FIXED] = {
        "EVALSHA", group.sha[acquire], "2", PERMITS, TAKEN, "0", "30000",
        "publish", PERMITS_CHANNEL};
    memcpy(argv, head, sizeof head);
    for (int i = 0; i < MANY; i++) {
        snprintf(ids[i], sizeof ids[i], "%016d", i);
        argv[FIXED + i] = ids[i];
    }
    cmd_ok(group.server, "FLUSHALL");
    cmd_ok(group.server, "SET " PERMITS " 1500");
    for (int copy = 0; copy < 2; copy++) {
        redisReply *reply = redisCommandArgv(group.user[acquire], FIXED + MANY, argv, NULL);
        assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
        assert_int_equal(reply->element[0]->integer, 1);
        assert_int_equal(reply->element[1]->integer, MANY);
        freeReplyObject(reply);
        assert_int_equal(cmd_int(group.server, "GET " PERMITS), 500);
        assert_int_equal(cmd_int(group.server, "ZCARD " TAKEN), MANY);
    }
    argv[1] = group.sha[release];
    argv[6] = "all";
    redisReply *reply = redisCommandArgv(group.user[release], FIXED + MANY, argv, NULL);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->element[1]->integer, MANY);
    freeReplyObject(reply);
    assert_int_equal(cmd_int(group.server, "GET " PERMITS), 1500);
    assert_int_equal(cmd_int(group.server, "EXISTS " TAKEN), 0);
    listener_heard(group.listener);
}

/* ---- Out of memory -------------------------------------------------------------------------- */

/* Nobody can take; what was taken can be kept and given back, and what ended comes back. */
static void U38_out_of_memory(void **state) {
    (void)state;
    redisContext *admin = connect_as(group.server, NULL, NULL);
    int64_t now_ms = server_time_ms(group.server);
    cmd_ok(group.server, "FLUSHALL");
    cmd_ok(group.server, "SET " PERMITS " 1");
    cmd_ok(group.server, "ZADD " TAKEN " %lld %s", (long long)(now_ms + 60000), PERMIT_B);
    cmd_ok(group.server, "ZADD " TAKEN " %lld %s", (long long)(now_ms - 10), PERMIT_C);
    cmd_ok(group.server, "CONFIG SET maxmemory-policy noeviction");
    cmd_ok(group.server, "CONFIG SET maxmemory 1");

    assert_answers("permits_renew", TAKEN " " TAKEN " , 0 70000 " PERMIT_B " 80000 " PERMIT_B, 1,
                   1);
    assert_answers("permits_extend",
                   PERMITS " " TAKEN " , 0 90000 publish " PERMITS_CHANNEL " " PERMIT_B, 1, 0);
    redisReply *reply =
        script_call(admin, group.sha[index_of("permits_release")],
                    PERMITS " " TAKEN " , 0 any publish " PERMITS_CHANNEL " " PERMIT_B, 0);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->element[0]->integer, 1);
    freeReplyObject(reply);
    assert_answers("permits_count", PERMITS " " TAKEN " , 0 publish " PERMITS_CHANNEL, 1, 3);
    reply = script_call(admin, group.sha[index_of("permits_acquire")],
                        PERMITS " " TAKEN " , 0 30000 publish " PERMITS_CHANNEL " " PERMIT_A, 0);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    assert_memory_equal(script_error(reply), "OOM", 3);
    freeReplyObject(reply);
    assert_int_equal(cmd_int(group.server, "GET " PERMITS), 3);
    assert_int_equal(cmd_int(group.server, "EXISTS " TAKEN), 0);
    cmd_ok(group.server, "CONFIG SET maxmemory 0");
    listener_heard(group.listener);
    redisFree(admin);
}

/* ---- All of them ---------------------------------------------------------------------------- */

int main(void) {
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(no_command_is_granted_in_vain),
        cmocka_unit_test(acquire_without_the_right_to_pay_leaves_nothing),
        cmocka_unit_test(U46_released_but_nobody_told),
        cmocka_unit_test(renew_reports_other_errors_as_errors),
        cmocka_unit_test(U50_ten_thousand_ended),
        cmocka_unit_test(a_thousand_at_once),
        cmocka_unit_test(U38_out_of_memory),
    };
    size_t other_count = sizeof others / sizeof *others;
    struct CMUnitTest *tests = calloc(permits_row_count + other_count, sizeof *tests);
    if (tests == NULL)
        return 1;
    for (size_t i = 0; i < permits_row_count; i++) {
        tests[i].name = permits_rows[i].name;
        tests[i].test_func = play_row;
        tests[i].initial_state = (void *)(uintptr_t)&permits_rows[i];
    }
    memcpy(tests + permits_row_count, others, sizeof others);
    int failed = _cmocka_run_group_tests("permits_scripts", tests, permits_row_count + other_count,
                                         open_group, close_group);
    free(tests);
    return failed;
}
