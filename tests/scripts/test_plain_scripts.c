/* The scripts of the plain lock and its kin, each alone, on a real server.
 *
 * Every row of plain_rows.c and fenced_rows.c is a test of its own, played as an ACL user that may
 * touch one key and one channel and run the few commands that the script needs; so a script that
 * reaches for anything else fails here. The tests after the rows show that these rights are not
 * more than needed, what a right that is missing does, and what the scripts do when the server is
 * out of memory.
 *
 * One thread, one server for the whole group; each row starts by emptying it. */
#include "group.h"
#include "plain_rows.h"
#include "support/case.h"
#include "support/wait.h"

#include <inttypes.h>

/* ---- Users ---------------------------------------------------------------------------------- */

static const struct grant grants[] = {
    {"plain_acquire", "~thelock", "", "time pttl hmget hset pexpire del"},
    {"plain_release", "~thelock", "&" CHANNEL,
     "time hmget exists pttl pexpire hset del publish spublish"},
    {"plain_break", "~thelock", "&" CHANNEL, "time hmget del publish spublish"},
    {"lease", "~thelock", "", "time hexists pttl pexpire"},
    {"fenced_acquire", "~thelock ~thetoken", "", "time pttl hmget get incrby hset pexpire del"},
    {"fenced_extend", "~thelock ~thetoken", "", "time hexists get incrby pttl pexpire"},
    {"renew", "~thelock ~second ~third", "", "time hexists pttl pexpire"},
    {"poll_batch", "~thelock ~second ~third", "", "time pttl"},
};
enum { GRANTS = sizeof grants / sizeof *grants };

/* ---- The rows ------------------------------------------------------------------------------- */

static const struct row *row_at(size_t i) {
    return i < plain_row_count ? &plain_rows[i] : &fenced_rows[i - plain_row_count];
}

static struct row_head head_of(size_t i) {
    return (struct row_head){row_at(i)->name, row_at(i)->script, row_at(i)->call};
}

static bool plays(redisContext *user, size_t i, char why[WHY]) {
    return row_plays(stage, user, row_at(i), why);
}

/* ---- Rights --------------------------------------------------------------------------------- */

CASE(U45_key_pattern_too_narrow) {
    static const struct row rows[] = {
        {"acquire", NULL, "plain_acquire", "thelock , 0 me 30000 0", "!NOPERM", .after = {ABSENT}},
        {"release", "HSET thelock me 1; PEXPIRE thelock 5000", "plain_release",
         "thelock , 0 me 30000 1 publish " CHANNEL, "!NOPERM", .after = {{LOCK, "me=1", 5000}}},
        {"break", "HSET thelock me 1; PEXPIRE thelock 5000", "plain_break",
         "thelock , 0 me publish " CHANNEL, "!NOPERM", .after = {{LOCK, "me=1", 5000}}},
        {"renew", "HSET thelock me 1; PEXPIRE thelock 5000", "renew", "thelock , 0 30000 me",
         "!NOPERM", .after = {{LOCK, "me=1", 5000}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grant elsewhere = *grant_of(rows[i].script);
        elsewhere.keys = "~app:*";
        own_context *user = connect_new_user(stage, "elsewhere", &elsewhere, NULL);
        assert_plays(user, &rows[i]);
    }
}

/* No right to the channel, or no right to publish at all: the lock is free, and the reply says that
 * nobody was notified. */
CASE(U46_released_but_not_notified) {
    static const struct row rows[] = {
        {"release", "HSET thelock me 1; PEXPIRE thelock 5000", "plain_release",
         "thelock , 0 me 30000 1 publish " CHANNEL, "2 0", .after = {ABSENT}},
        {"break", "HSET thelock me 1; PEXPIRE thelock 5000", "plain_break",
         "thelock , 0 me publish " CHANNEL, "2 0", .after = {ABSENT}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grant mute = *grant_of(rows[i].script);
        mute.channels = "";
        redisContext *user = connect_new_user(stage, "mute", &mute, NULL);
        assert_plays(user, &rows[i]);
        redisFree(user);

        mute.channels = "&redisson_lock__channel:{another}";
        user = connect_new_user(stage, "mute", &mute, NULL);
        assert_plays(user, &rows[i]);
        redisFree(user);

        user = connect_new_user(stage, "mute", grant_of(rows[i].script), "publish");
        assert_plays(user, &rows[i]);
        redisFree(user);
    }
}

/* The same for who leaves out what is usual. */
CASE(U46_released_with_defaults_but_not_notified) {
    static const struct row row = {"release",       "HSET thelock me 1; PEXPIRE thelock 5000",
                                   "plain_release", "thelock , 0 me",
                                   "2 0",           .after = {ABSENT}};
    own_context *user = connect_new_user(stage, "mute", grant_of(row.script), "publish");
    assert_plays(user, &row);
}

/* A user that may write a lock but not set its lease leaves no lock for ever. */
CASE(acquire_without_the_right_to_expire_leaves_nothing) {
    static const struct row row = {
        "acquire", NULL, "plain_acquire", "thelock , 0 me 30000 0", "!", .after = {ABSENT}};
    own_context *user = connect_new_user(stage, "poorer", grant_of(row.script), "pexpire");
    assert_plays(user, &row);
}

/* A batch that the user may not renew at all is an error, not a set of locks of a wrong type. */
CASE(renew_reports_other_errors_as_errors) {
    static const struct row row = {"renew", "HSET thelock me 1; PEXPIRE thelock 5000",
                                   "renew", "thelock , 0 30000 me",
                                   "!",     .after = {{LOCK, "me=1", 5000}}};
    own_context *user = connect_new_user(stage, "poorer", grant_of(row.script), "hexists");
    assert_plays(user, &row);
}

/* ---- Time ----------------------------------------------------------------------------------- */

/* Not after means that the millisecond itself is still in time. Whether a call hits it is chance,
 * so calls are made until one does. */
CASE(not_after_includes_its_own_millisecond) {
    struct server *server = stage->server;
    redisContext *user = user_of("plain_acquire");
    cmd_ok(server, "FLUSHALL");
    for (int tries = 0; tries < 100000; tries++) {
        int64_t time_ms = server_time_ms(server);
        redisReply *reply = script_written_out(
            script_call(user, stage_sha(stage, "plain_acquire"), "thelock , @+0 me", time_ms), 1);
        assert_int_equal(reply->elements, 3);
        bool late = reply->element[0]->integer == -3;
        bool hit = reply->element[2]->integer == time_ms;
        freeReplyObject(reply);
        assert_true(late == !hit);
        if (hit)
            return;
    }
    fail_msg("no call reached the server within the millisecond");
}

/* A server without a clock of its own begins in 1970: the time alone could be taken for any number. */
CASE(before_2001_nothing_is_answered_by_the_time_alone) {
    static const char *const scripts[] = {"plain_acquire", "plain_release"};
    struct server *server = stage->server;
    own_context *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        own_text *sha = script_load_timed(server, scripts[i], "{'5', '7001'}");
        own_reply *reply = script_call(user, sha, "thelock , 0 me", 0);
        assert_int_equal(reply->elements, 3);
        assert_int_equal(reply->element[0]->integer, 1);
        assert_int_equal(reply->element[2]->integer, 5007);
    }
}

/* The whole of C005: three acquires with a lease, two releases, and what the last one leaves. */
CASE(C005_partial_release_keeps_the_explicit_lease) {
    static const char *const acquires[] = {"thelock , 0 me 10000 0", "thelock , 0 me 10000 1",
                                           "thelock , 0 me 10000 2"};
    static const char *const releases[] = {"thelock , 0 me 10000 3 publish " CHANNEL,
                                           "thelock , 0 me 10000 2 publish " CHANNEL};
    struct server *server = stage->server;
    cmd_ok(server, "FLUSHALL");
    for (size_t i = 0; i < 3; i++)
        freeReplyObject(script_call(user_of("plain_acquire"), stage_sha(stage, "plain_acquire"),
                                    acquires[i], 0));
    assert_int_equal(cmd_int(server, "HGET thelock me"), 3);
    assert_int_equal(cmd_int(server, "PEXPIRE thelock 9000"), 1);

    int64_t begin_ms = server_time_ms(server);
    for (size_t i = 0; i < 2; i++)
        freeReplyObject(script_call(user_of("plain_release"), stage_sha(stage, "plain_release"),
                                    releases[i], 0));
    assert_int_equal(cmd_int(server, "HGET thelock me"), 1);
    int64_t ttl_ms = pttl(server, LOCK);
    assert_true(ttl_ms <= 10001);
    assert_true(ttl_ms >= 10000 - (server_time_ms(server) - begin_ms) - 1);
}

/* ---- Tokens --------------------------------------------------------------------------------- */

static int64_t server_time_us(struct server *server) {
    own_reply *reply = cmd(server, "TIME");
    int64_t us = strtoll(reply->element[0]->str, NULL, 10) * 1000000 +
                 strtoll(reply->element[1]->str, NULL, 10);
    return us;
}

static int64_t draw_token(const char *call) {
    redisReply *reply =
        script_call(user_of("fenced_acquire"), stage_sha(stage, "fenced_acquire"), call, 0);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->elements, 4);
    assert_int_equal(reply->element[0]->integer, 1);
    int64_t token = reply->element[2]->integer;
    freeReplyObject(reply);
    return token;
}

/* A counter that is not there, or behind, goes on from the server's time in microseconds, to the digit,
 * and so ahead of all it has ever been; also while the lock is held. It never expires. */
CASE(U75_lost_counter_continues_from_the_time) {
    struct server *server = stage->server;
    int64_t last = 0;
    cmd_ok(server, "FLUSHALL");
    for (int round = 0; round < 50; round++) {
        int64_t begin_us = server_time_us(server);
        int64_t first = draw_token("thelock thetoken , 0 me 30000 0");
        assert_true(first >= begin_us && first <= server_time_us(server));
        assert_true(first > last);
        assert_true(cmd_int(server, "GET thetoken") == first);
        assert_int_equal(pttl(server, "thetoken"), NO_TTL);
        last = draw_token("thelock thetoken , 0 me 30000 1");
        assert_true(last > first && last <= server_time_us(server));
        cmd_ok(server, round % 3 == 0 ? "DEL thetoken" : "SET thetoken 5");
        if (round % 2 == 0)
            cmd_ok(server, "DEL thelock");
        else
            cmd_ok(server, "HSET thelock me 1");
    }
}

/* ---- Out of memory -------------------------------------------------------------------------- */

/* The server holds more than it may and evicts nothing: the client that holds can give back and renew,
 * down to the last level; nobody can take, and nothing is left of the attempt. */
CASE(U38_out_of_memory) {
    static const struct {
        const char *script;
        const char *call;
        const char *reply; /* how it starts */
        const char *fields;
    } steps[] = {
        {"plain_acquire", "thelock , 0 me 30000 2", "OOM", "2"},
        {"plain_acquire", "second , 0 me 30000 0", "OOM", "2"},
        {"fenced_acquire", "thelock thetoken , 0 me 30000 2", "OOM", "2"},
        {"fenced_acquire", "second thetoken , 0 me 30000 0", "OOM", "2"},
        {"renew", "thelock , 0 60000 me", "1", "2"},
        {"plain_release", "thelock , 0 me 30000 2 publish " CHANNEL, "0", "1"},
        {"plain_release", "thelock , 0 me 30000 1 publish " CHANNEL, "1", NULL},
        {"plain_break", "third , 0 me publish " CHANNEL, "1", NULL},
    };
    struct server *server = stage->server;
    own_context *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "HSET thelock me 2");
    cmd_ok(server, "PEXPIRE thelock 40000");
    cmd_ok(server, "HSET third me 1");
    use_up_memory();
    listener_received(stage->listener);

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_code(user, steps[i].script, steps[i].call, steps[i].reply);

        own_text *count = cmd_str(server, "HGET thelock me");
        if (steps[i].fields == NULL)
            assert_null(count);
        else
            assert_string_equal(count, steps[i].fields);
    }
    assert_int_equal(cmd_int(server, "DBSIZE"), 0);
    assert_string_equal(listener_received(stage->listener), "publish 0, publish 0");
    free_up_memory();
}

/* A server out of memory cannot refuse a nested release even when the lease needs no raising. */
CASE(U38_nested_release_with_a_longer_ttl) {
    struct server *server = stage->server;
    own_context *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "HSET thelock me 2");
    int64_t begin_ms = server_time_ms(server);
    cmd_ok(server, "PEXPIRE thelock 90000");
    use_up_memory();

    assert_code(user, "plain_release", "thelock , 0 me 30000 2 publish " CHANNEL, "0");
    assert_int_equal(cmd_int(server, "HGET thelock me"), 1);
    int64_t ttl_ms = pttl(server, LOCK);
    assert_true(ttl_ms >= 90000 - (server_time_ms(server) - begin_ms) - 1);
    free_up_memory();
}

/* ---- All of them ---------------------------------------------------------------------------- */

int main(void) {
    struct table table = {.channel = CHANNEL,
                          .grants = grants,
                          .grant_count = GRANTS,
                          .row_count = plain_row_count + fenced_row_count,
                          .head = head_of,
                          .plays = plays};
    return group_run(&table);
}
