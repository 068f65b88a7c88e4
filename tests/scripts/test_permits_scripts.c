/* The scripts of permits with leases, each alone, on a real server.
 *
 * Every row of permits_rows.c is a test of its own, played as an ACL user that may touch the
 * keys and the channel of one object and run the few commands that the script needs. The tests
 * after the rows show that these rights are not more than needed, what the scripts do with more
 * permits than Lua could pass around, and when the server is out of memory.
 *
 * A lease that the script has written ends between the row's begin and its last look, plus the
 * lease; one that was there before, to the millisecond. One thread, one server for the whole
 * group. */
#include "group.h"
#include "permits_rows.h"
#include "support/case.h"

#include <inttypes.h>

#define NEVER 922337203685477
#define ID_LEN 16

#define RECLAIMS "time get zcount zremrangebyrank incrby publish spublish "
#define KEYS "~" PERMITS " ~" TAKEN " ~elsewhere"
#define ON_CHANNEL "&" PERMITS_CHANNEL

static const struct grant grants[] = {
    {"permits_acquire", KEYS, ON_CHANNEL,
     RECLAIMS "zscore zadd zrem decrby pttl pexpire persist zrange"},
    {"permits_release", KEYS, ON_CHANNEL, RECLAIMS "zscore zrem"},
    {"permits_extend", KEYS, ON_CHANNEL, RECLAIMS "zscore zadd"},
    {"permits_lease", KEYS, ON_CHANNEL, RECLAIMS "zscore"},
    {"permits_count", KEYS, ON_CHANNEL, RECLAIMS "zcard"},
    {"permits_set", KEYS, ON_CHANNEL, "time get zcard set incrby publish spublish"},
    {"permits_expire", KEYS, "", "time get zcard pexpire"},
    {"permits_delete", KEYS, ON_CHANNEL, "time get zcard del publish"},
    {"permits_renew", KEYS, "", "time zscore zadd zremrangebyrank"},
};
enum { GRANTS = sizeof grants / sizeof *grants };

/* ---- Playing a row -------------------------------------------------------------------------- */

static void id_of(char letter, char id[ID_LEN + 1]) {
    memset(id, letter, ID_LEN);
    id[ID_LEN] = '\0';
}

/* What is there, read from a row. */
struct permits_state {
    char free[32]; /* "": there is no such key */
    size_t taken_len;
    char taken[8][32];                 /* as in a row */
    int64_t free_ttl_ms, taken_ttl_ms; /* 0: none */
};

static struct permits_state read_state(const char *text) {
    struct permits_state state = {.free_ttl_ms = 0};
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
    struct permits_state before = read_state(row->before);
    cmd_ok(stage->server, "FLUSHALL");
    if (before.free[0] != '\0')
        cmd_ok(stage->server, "SET " PERMITS " %s", before.free);
    for (size_t i = 0; i < before.taken_len; i++) {
        char id[ID_LEN + 1];
        const char *ends = before.taken[i] + 1;
        id_of(before.taken[i][0], id);
        int64_t score = *ends == '*' ? NEVER : begin_ms + strtoll(ends, NULL, 10);
        cmd_ok(stage->server, "ZADD " TAKEN " %lld %s", (long long)score, id);
    }
    if (before.free_ttl_ms != 0)
        cmd_ok(stage->server, "PEXPIRE " PERMITS " %lld", (long long)before.free_ttl_ms);
    if (before.taken_ttl_ms != 0)
        cmd_ok(stage->server, "PEXPIRE " TAKEN " %lld", (long long)before.taken_ttl_ms);
    if (row->commands != NULL) {
        struct words words;
        own_context *admin = connect_as(stage->server, NULL, NULL);
        words_cut(&words, row->commands);
        freeReplyObject(words_send(admin, &words));
    }
}

static bool time_fits(int64_t got_ms, int64_t set_ms, struct span span) {
    return got_ms >= span.begin_ms + set_ms && got_ms <= span.end_ms + set_ms;
}

static bool key_ttl_fits(const char *key, int64_t set_ms, struct span span, char why[WHY]) {
    int64_t ttl_ms = pttl(stage->server, key);
    span.end_ms = server_time_ms(stage->server); /* it has run down until now */
    bool fits = set_ms == 0 ? ttl_ms == -1 : ttl_fits(ttl_ms, set_ms, span);
    return fits ||
           differs(why, "%s has a TTL of %" PRId64 " instead of %" PRId64, key, ttl_ms, set_ms);
}

static bool taken_fits(const struct permits_state *wanted, struct span span, char why[WHY]) {
    own_reply *reply = cmd(stage->server, "ZRANGE " TAKEN " 0 -1 WITHSCORES");
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
    return fits;
}

static bool state_fits(const struct permits_row *row, const char *expected, struct span span,
                       char why[WHY]) {
    struct permits_state wanted = read_state(expected);
    int64_t keys = (wanted.free[0] != '\0') + (wanted.taken_len > 0) + (row->other_key != NULL);
    int64_t there = cmd_int(stage->server, "DBSIZE");
    if (row->other_key != NULL) {
        char *type = cmd_str(stage->server, "TYPE %s", row->other_key);
        bool same = strcmp(type, row->other_type) == 0;
        free(type);
        if (!same)
            return differs(why, "%s is no %s any more", row->other_key, row->other_type);
    }
    if (there != keys)
        return differs(why, "%" PRId64 " keys instead of %" PRId64, there, keys);
    if (wanted.free[0] != '\0') {
        char *value = cmd_str(stage->server, "GET " PERMITS);
        bool same = value != NULL && strcmp(value, wanted.free) == 0;
        if (!same)
            differs(why, "%s are free instead of %s", value != NULL ? value : "(none)",
                    wanted.free);
        free(value);
        if (!same || !key_ttl_fits(PERMITS, wanted.free_ttl_ms, span, why))
            return false;
    }
    return wanted.taken_len == 0 ||
           (taken_fits(&wanted, span, why) && key_ttl_fits(TAKEN, wanted.taken_ttl_ms, span, why));
}

static bool call_fits(redisContext *connection, const struct permits_row *row, const char *expected,
                      const char *wanted, struct span span, char why[WHY]) {
    span.call_ms = server_time_ms(stage->server);
    redisReply *reply =
        script_call(connection, stage_sha(stage, row->script), row->call, span.call_ms);
    span.end_ms = server_time_ms(stage->server);
    bool fits = reply_fits(reply, expected, span, why);
    freeReplyObject(reply);
    return fits && state_fits(row, wanted, span, why);
}

static bool permits_row_plays(redisContext *connection, const struct permits_row *row,
                              char why[WHY]) {
    struct span span = {.begin_ms = server_time_ms(stage->server)};
    prepare(row, span.begin_ms);
    listener_received(stage->listener);
    if (!call_fits(connection, row, row->reply, row->after, span, why))
        return false;
    if (!received_fits(stage->listener, row->received, why))
        return false;

    bool adds = row->resent != NULL;
    const char *reply = row->resent_reply != NULL ? row->resent_reply : row->reply;
    char detail[WHY];
    if (!call_fits(connection, row, reply, adds ? row->resent : row->after, span, detail))
        return differs(why, "sent again: %.400s", detail);
    const char *received = listener_received(stage->listener);
    return adds || received[0] == '\0' || differs(why, "sent again, it published '%s'", received);
}

static struct row_head head_of(size_t i) {
    const struct permits_row *row = &permits_rows[i];
    return (struct row_head){row->name, row->script, row->call};
}

static bool plays(redisContext *user, size_t i, char why[WHY]) {
    return permits_row_plays(user, &permits_rows[i], why);
}

/* ---- Rights --------------------------------------------------------------------------------- */

/* A user that may write ids but not pay for them leaves none. */
CASE(acquire_without_the_right_to_pay_leaves_nothing) {
    static const struct permits_row row = {"unpaid",
                                           "2",
                                           NULL,
                                           "permits_acquire",
                                           PERMITS " " TAKEN " , 0 30000 publish " PERMITS_CHANNEL
                                                   " " PERMIT_A,
                                           .reply = "!",
                                           .after = "2"};
    char why[WHY];
    own_context *user = connect_new_user(stage, "poorer", grant_of(row.script), "decrby");
    if (!permits_row_plays(user, &row, why))
        fail_msg("%s", why);
}

CASE(U46_released_but_not_notified) {
    static const struct permits_row rows[] = {
        {"release", "1 : a+5000", NULL, "permits_release",
         PERMITS " " TAKEN " , 0 any publish " PERMITS_CHANNEL " " PERMIT_A, .reply = "2 1",
         .after = "2", .resent_reply = "-1 1"},
        {"set", "absent", NULL, "permits_set",
         PERMITS " " TAKEN " , 0 total 5 publish " PERMITS_CHANNEL, .reply = "2 5", .after = "5",
         .resent_reply = "1 5"},
    };
    char why[WHY];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grant mute = *grant_of(rows[i].script);
        mute.channels = "&redisson_sc:{another}";
        own_context *user = connect_new_user(stage, "mute", &mute, NULL);
        if (!permits_row_plays(user, &rows[i], why))
            fail_msg("%s: %s", rows[i].name, why);
    }
}

/* A batch that the user may not renew at all is an error, not a set of keys of a wrong type. */
CASE(renew_reports_other_errors_as_errors) {
    static const struct permits_row row = {
        "renew",      "1 : a+5000",         NULL, "permits_renew", TAKEN " , 0 30000 " PERMIT_A,
        .reply = "!", .after = "1 : a+5000"};
    char why[WHY];
    own_context *user = connect_new_user(stage, "poorer", grant_of(row.script), "zscore");
    if (!permits_row_plays(user, &row, why))
        fail_msg("%s", why);
}

/* ---- Many ----------------------------------------------------------------------------------- */

static redisReply *call(const char *script, const char *keys_and_args) {
    return script_call(user_of(script), stage_sha(stage, script), keys_and_args, 0);
}

static void assert_answers(const char *script, const char *keys_and_args, int64_t code,
                           int64_t value) {
    own_reply *reply = call(script, keys_and_args);
    if (reply->type != REDIS_REPLY_ARRAY)
        fail_msg("%s: %s", script, reply->str);
    assert_int_equal(reply->element[0]->integer, code);
    assert_int_equal(reply->element[1]->integer, value);
    if (strcmp(script, "permits_count") == 0) /* all that are taken here have ended */
        assert_int_equal(reply->element[2]->integer, 0);
}

/* So many permits whose leases ended long ago. */
static void take_ended(int number) {
    cmd_ok(stage->server, "FLUSHALL");
    cmd_ok(stage->server, "SET " PERMITS " 0");
    freeReplyObject(cmd(stage->server, "EVAL %s 1 " TAKEN " %d",
                        "for i = 1, ARGV[1] do redis.call('zadd', KEYS[1], i, "
                        "string.format('%016d', i)) end",
                        number));
    assert_int_equal(cmd_int(stage->server, "ZCARD " TAKEN), number);
}

static void assert_reclaimed(int number, int of) {
    assert_int_equal(cmd_int(stage->server, "ZCARD " TAKEN), of - number);
    assert_int_equal(cmd_int(stage->server, "GET " PERMITS), number);
}

/* Ten thousand permits have ended: every script works, takes back no more than 500 (or what it
 * needs), and counts right all the same. */
CASE(U50_ten_thousand_ended) {
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
    assert_int_equal(cmd_int(stage->server, "ZCARD " TAKEN), MANY - BOUND + 1);
    assert_int_equal(cmd_int(stage->server, "GET " PERMITS), BOUND - 1);
    assert_answers("permits_release",
                   PERMITS " " TAKEN " , 0 all publish " PERMITS_CHANNEL " " PERMIT_A, 1, 1);
    assert_reclaimed(2 * BOUND, MANY);
    listener_received(stage->listener);

    /* What has to be waited for lies behind them: then there is no wait. */
    take_ended(MANY);
    cmd_ok(stage->server, "SET " PERMITS " -2000");
    assert_answers("permits_acquire",
                   PERMITS " " TAKEN " , 0 30000 publish " PERMITS_CHANNEL " " PERMIT_A, 0, 0);
}

/* A thousand at once, which is the most: taken in one call, paid for once, returned in one call. */
CASE(a_thousand_at_once) {
    enum { MANY = 1000, FIXED = 9 };
    static char ids[MANY][ID_LEN + 1];
    const char *argv[FIXED + MANY];
    const char *const head[FIXED] = {"EVALSHA",
                                     stage_sha(stage, "permits_acquire"),
                                     "2",
                                     PERMITS,
                                     TAKEN,
                                     "0",
                                     "30000",
                                     "publish",
                                     PERMITS_CHANNEL};
    memcpy(argv, head, sizeof head);
    for (int i = 0; i < MANY; i++) {
        snprintf(ids[i], sizeof ids[i], "%016d", i);
        argv[FIXED + i] = ids[i];
    }
    cmd_ok(stage->server, "FLUSHALL");
    cmd_ok(stage->server, "SET " PERMITS " 1500");
    for (int copy = 0; copy < 2; copy++) {
        redisReply *reply = redisCommandArgv(user_of("permits_acquire"), FIXED + MANY, argv, NULL);
        assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
        assert_int_equal(reply->element[0]->integer, 1);
        assert_int_equal(reply->element[1]->integer, MANY);
        freeReplyObject(reply);
        assert_int_equal(cmd_int(stage->server, "GET " PERMITS), 500);
        assert_int_equal(cmd_int(stage->server, "ZCARD " TAKEN), MANY);
    }
    argv[1] = stage_sha(stage, "permits_release");
    argv[6] = "all";
    redisReply *reply = redisCommandArgv(user_of("permits_release"), FIXED + MANY, argv, NULL);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->element[1]->integer, MANY);
    freeReplyObject(reply);
    assert_int_equal(cmd_int(stage->server, "GET " PERMITS), 1500);
    assert_int_equal(cmd_int(stage->server, "EXISTS " TAKEN), 0);
    listener_received(stage->listener);
}

/* ---- Out of memory -------------------------------------------------------------------------- */

/* Nobody can take; what was taken can be kept and given back, and what ended comes back. */
CASE(U38_out_of_memory) {
    own_context *admin = connect_as(stage->server, NULL, NULL);
    int64_t now_ms = server_time_ms(stage->server);
    cmd_ok(stage->server, "FLUSHALL");
    cmd_ok(stage->server, "SET " PERMITS " 1");
    cmd_ok(stage->server, "ZADD " TAKEN " %lld %s", (long long)now_ms + 60000, PERMIT_B);
    cmd_ok(stage->server, "ZADD " TAKEN " %lld %s", (long long)now_ms - 10, PERMIT_C);
    use_up_memory();

    assert_answers("permits_renew", TAKEN " " TAKEN " , 0 70000 " PERMIT_B " 80000 " PERMIT_B, 1,
                   1);
    assert_answers("permits_extend",
                   PERMITS " " TAKEN " , 0 90000 publish " PERMITS_CHANNEL " " PERMIT_B, 1, 0);
    assert_code(admin, "permits_release",
                PERMITS " " TAKEN " , 0 any publish " PERMITS_CHANNEL " " PERMIT_B, "1");
    assert_answers("permits_count", PERMITS " " TAKEN " , 0 publish " PERMITS_CHANNEL, 1, 3);
    assert_code(admin, "permits_acquire",
                PERMITS " " TAKEN " , 0 30000 publish " PERMITS_CHANNEL " " PERMIT_A, "OOM");
    assert_int_equal(cmd_int(stage->server, "GET " PERMITS), 3);
    assert_int_equal(cmd_int(stage->server, "EXISTS " TAKEN), 0);
    free_up_memory();
    listener_received(stage->listener);
}

/* ---- All of them ---------------------------------------------------------------------------- */

int main(void) {
    struct table table = {.channel = PERMITS_CHANNEL,
                          .grants = grants,
                          .grant_count = GRANTS,
                          .row_count = permits_row_count,
                          .head = head_of,
                          .plays = plays};
    return group_run(&table);
}
