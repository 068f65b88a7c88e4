/* The scripts of the plain lock and its kin, each alone, on a real server.
 *
 * Every row of plain_rows.c and fenced_rows.c is a test of its own, played as an ACL user that may touch one key and
 * one channel and run the few commands that the script needs; so a script that reaches for
 * anything else fails here. The tests after the rows show that these rights are not more than
 * needed, what a right that is missing does, and what the scripts do when the server is out of
 * memory.
 *
 * One thread, one server for the whole group; each row starts by emptying it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plain_rows.h"
#include "rights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Users ---------------------------------------------------------------------------------- */

static const struct grant grants[] = {
    {"plain_acquire", "~thelock", "", "time pttl hmget hset pexpire del"},
    {"plain_release", "~thelock", "&" CHANNEL,
     "time hmget exists pttl pexpire hset del publish spublish"},
    {"plain_force", "~thelock", "&" CHANNEL, "time hmget del publish spublish"},
    {"fenced_acquire", "~thelock ~thetoken", "", "time pttl hmget get incrby hset pexpire del"},
    {"renew", "~thelock ~second ~third", "", "time hexists pttl pexpire"},
};
enum { GRANTS = sizeof grants / sizeof *grants };

struct group {
    struct stage *stage;
    redisContext *user[GRANTS];
    bool sharded; /* the server knows SPUBLISH, Redis 7 */
};

static struct group group;

static const struct {
    const struct row *rows;
    const size_t *count;
} tables[] = {{plain_rows, &plain_row_count}, {fenced_rows, &fenced_row_count}};
enum { TABLES = sizeof tables / sizeof *tables };

static size_t grant_of(const char *script) {
    for (size_t i = 0; i < GRANTS; i++)
        if (strcmp(grants[i].script, script) == 0)
            return i;
    fail_msg("nothing is granted for %s", script);
    return 0;
}

static int open_group(void **state) {
    (void)state;
    group.stage = stage_open(NULL);
    group.sharded = server_knows(group.stage->server, "spublish");
    for (size_t i = 0; i < GRANTS; i++)
        group.user[i] = connect_new_user(group.stage, grants[i].script, &grants[i], NULL);
    return 0;
}

static int close_group(void **state) {
    (void)state;
    for (size_t i = 0; i < GRANTS; i++)
        redisFree(group.user[i]);
    stage_close(group.stage);
    return 0;
}

/* ---- The rows ------------------------------------------------------------------------------- */

static bool row_applies(const struct row *row) {
    return group.sharded || strstr(row->call, "spublish") == NULL;
}

static void play_row(void **state) {
    const struct row *row = *state;
    char why[512];
    if (!row_applies(row))
        skip();
    if (!row_plays(group.stage, group.user[grant_of(row->script)], row, why, sizeof why))
        fail_msg("%s %s: %s", row->script, row->call, why);
}

/* Plays a row that is no part of the tables, as a given user. */
static void assert_plays(redisContext *connection, const struct row *row) {
    char why[512];
    if (!row_plays(group.stage, connection, row, why, sizeof why))
        fail_msg("%s %s: %s", row->script, row->call, why);
}

/* ---- Rights --------------------------------------------------------------------------------- */

static bool all_rows_play(redisContext *connection, const char *script) {
    char why[512];
    for (size_t i = 0; i < TABLES; i++)
        for (const struct row *row = tables[i].rows; row < tables[i].rows + *tables[i].count; row++)
            if (strcmp(row->script, script) == 0 && row_applies(row) &&
                !row_plays(group.stage, connection, row, why, sizeof why))
                return false;
    return true;
}

/* Take any one command away, and some row of that script fails. */
static void no_command_is_granted_in_vain(void **state) {
    (void)state;
    for (size_t i = 0; i < GRANTS; i++) {
        struct words commands;
        words_cut(&commands, grants[i].commands);
        for (size_t j = 0; j < commands.count; j++) {
            if (!group.sharded && strcmp(commands.item[j], "spublish") == 0)
                continue;
            redisContext *user =
                connect_new_user(group.stage, "poorer", &grants[i], commands.item[j]);
            bool needless = all_rows_play(user, grants[i].script);
            redisFree(user);
            if (needless)
                fail_msg("%s does not need +%s", grants[i].script, commands.item[j]);
        }
    }
}

static void U45_key_pattern_too_narrow(void **state) {
    (void)state;
    static const struct row rows[] = {
        {"acquire", NULL, "plain_acquire", "thelock , 0 me 30000 0", "!NOPERM", .after = {ABSENT}},
        {"release", "HSET thelock me 1; PEXPIRE thelock 5000", "plain_release",
         "thelock , 0 me 30000 1 publish " CHANNEL, "!NOPERM", .after = {{LOCK, "me=1", 5000}}},
        {"force", "HSET thelock me 1; PEXPIRE thelock 5000", "plain_force",
         "thelock , 0 me publish " CHANNEL, "!NOPERM", .after = {{LOCK, "me=1", 5000}}},
        {"renew", "HSET thelock me 1; PEXPIRE thelock 5000", "renew", "thelock , 0 30000 me",
         "!NOPERM", .after = {{LOCK, "me=1", 5000}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grant elsewhere = grants[grant_of(rows[i].script)];
        elsewhere.keys = "~app:*";
        redisContext *user = connect_new_user(group.stage, "elsewhere", &elsewhere, NULL);
        assert_plays(user, &rows[i]);
        redisFree(user);
    }
}

/* No right to the channel, or no right to publish at all: the lock is free, and the reply says that
 * nobody was told. */
static void U46_released_but_nobody_told(void **state) {
    (void)state;
    static const struct row rows[] = {
        {"release", "HSET thelock me 1; PEXPIRE thelock 5000", "plain_release",
         "thelock , 0 me 30000 1 publish " CHANNEL, "2 0", .after = {ABSENT}},
        {"force", "HSET thelock me 1; PEXPIRE thelock 5000", "plain_force",
         "thelock , 0 me publish " CHANNEL, "2 0", .after = {ABSENT}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grant mute = grants[grant_of(rows[i].script)];
        mute.channels = "";
        redisContext *user = connect_new_user(group.stage, "mute", &mute, NULL);
        assert_plays(user, &rows[i]);
        redisFree(user);

        mute.channels = "&redisson_lock__channel:{another}";
        user = connect_new_user(group.stage, "mute", &mute, NULL);
        assert_plays(user, &rows[i]);
        redisFree(user);

        user = connect_new_user(group.stage, "mute", &grants[grant_of(rows[i].script)], "publish");
        assert_plays(user, &rows[i]);
        redisFree(user);
    }
}

/* A user that may write a lock but not set its lease leaves no lock for ever. */
static void acquire_without_the_right_to_expire_leaves_nothing(void **state) {
    (void)state;
    static const struct row row = {
        "acquire", NULL, "plain_acquire", "thelock , 0 me 30000 0", "!", .after = {ABSENT}};
    redisContext *user =
        connect_new_user(group.stage, "poorer", &grants[grant_of(row.script)], "pexpire");
    assert_plays(user, &row);
    redisFree(user);
}

/* A batch that the user may not renew at all is an error, not a set of locks of a wrong type. */
static void renew_reports_other_errors_as_errors(void **state) {
    (void)state;
    static const struct row row = {"renew", "HSET thelock me 1; PEXPIRE thelock 5000",
                                   "renew", "thelock , 0 30000 me",
                                   "!",     .after = {{LOCK, "me=1", 5000}}};
    redisContext *user =
        connect_new_user(group.stage, "poorer", &grants[grant_of(row.script)], "hexists");
    assert_plays(user, &row);
    redisFree(user);
}

/* ---- Time ----------------------------------------------------------------------------------- */

/* Not after means that the millisecond itself is still in time. Whether a call hits it is chance,
 * so calls are made until one does. */
static void not_after_includes_its_own_millisecond(void **state) {
    (void)state;
    struct server *server = group.stage->server;
    redisContext *user = group.user[grant_of("plain_acquire")];
    cmd_ok(server, "FLUSHALL");
    for (int tries = 0; tries < 100000; tries++) {
        int64_t time_ms = server_time_ms(server);
        redisReply *reply = script_call(user, stage_sha(group.stage, "plain_acquire"),
                                        "thelock , @+0 me 30000 0", time_ms);
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

/* The whole of C005: three acquires with a lease, two releases, and what the last one leaves. */
static void C005_partial_release_keeps_the_explicit_lease(void **state) {
    (void)state;
    static const char *const acquires[] = {"thelock , 0 me 10000 0", "thelock , 0 me 10000 1",
                                           "thelock , 0 me 10000 2"};
    static const char *const releases[] = {"thelock , 0 me 10000 3 publish " CHANNEL,
                                           "thelock , 0 me 10000 2 publish " CHANNEL};
    struct server *server = group.stage->server;
    cmd_ok(server, "FLUSHALL");
    for (size_t i = 0; i < 3; i++)
        freeReplyObject(script_call(group.user[grant_of("plain_acquire")],
                                    stage_sha(group.stage, "plain_acquire"), acquires[i], 0));
    assert_int_equal(cmd_int(server, "HGET thelock me"), 3);
    assert_int_equal(cmd_int(server, "PEXPIRE thelock 2000"), 1);

    int64_t begin_ms = server_time_ms(server);
    for (size_t i = 0; i < 2; i++)
        freeReplyObject(script_call(group.user[grant_of("plain_release")],
                                    stage_sha(group.stage, "plain_release"), releases[i], 0));
    assert_int_equal(cmd_int(server, "HGET thelock me"), 1);
    int64_t ttl_ms = pttl(server, LOCK);
    assert_true(ttl_ms <= 10001);
    assert_true(ttl_ms >= 10000 - (server_time_ms(server) - begin_ms) - 1);
}

/* ---- Tokens --------------------------------------------------------------------------------- */

static int64_t server_time_us(struct server *server) {
    redisReply *reply = cmd(server, "TIME");
    int64_t us = strtoll(reply->element[0]->str, NULL, 10) * 1000000 +
                 strtoll(reply->element[1]->str, NULL, 10);
    freeReplyObject(reply);
    return us;
}

static int64_t draw_token(const char *call) {
    redisReply *reply = script_call(group.user[grant_of("fenced_acquire")],
                                    stage_sha(group.stage, "fenced_acquire"), call, 0);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->elements, 4);
    assert_int_equal(reply->element[0]->integer, 1);
    int64_t token = reply->element[2]->integer;
    freeReplyObject(reply);
    return token;
}

/* A counter that is not there starts from the server's time in microseconds, to the digit, and so
 * ahead of all it has ever been; also while the lock is held. It never expires. */
static void U75_lost_counter_goes_on_from_the_time(void **state) {
    (void)state;
    struct server *server = group.stage->server;
    int64_t last = 0;
    cmd_ok(server, "FLUSHALL");
    for (int round = 0; round < 50; round++) {
        int64_t begin_us = server_time_us(server);
        int64_t first = draw_token("thelock thetoken , 0 me 30000 0");
        assert_true(first >= begin_us && first <= server_time_us(server));
        assert_true(first > last);
        assert_true(cmd_int(server, "GET thetoken") == first);
        assert_int_equal(pttl(server, "thetoken"), NO_TTL);
        assert_true(draw_token("thelock thetoken , 0 me 30000 1") == first + 1);
        last = first + 1;
        cmd_ok(server, "DEL thetoken");
        if (round % 2 == 0)
            cmd_ok(server, "DEL thelock");
        else
            cmd_ok(server, "HSET thelock me 1");
    }
}

/* ---- Out of memory -------------------------------------------------------------------------- */

static void assert_out_of_memory(struct server *server) {
    redisReply *reply = cmd(server, "SET probe 1");
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    assert_memory_equal(reply->str, "OOM", 3);
    freeReplyObject(reply);
}

/* The server holds more than it may and evicts nothing: whoever holds can give back and renew,
 * down to the last level; nobody can take, and nothing is left of the attempt. */
static void U38_out_of_memory(void **state) {
    (void)state;
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
        {"plain_force", "third , 0 me publish " CHANNEL, "1", NULL},
    };
    struct server *server = group.stage->server;
    redisContext *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "HSET thelock me 2");
    cmd_ok(server, "PEXPIRE thelock 40000");
    cmd_ok(server, "HSET third me 1");
    cmd_ok(server, "CONFIG SET maxmemory-policy noeviction");
    cmd_ok(server, "CONFIG SET maxmemory 1");
    listener_heard(group.stage->listener);

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_out_of_memory(server);
        redisReply *reply =
            script_call(user, stage_sha(group.stage, steps[i].script), steps[i].call, 0);
        char got[32];
        if (reply->type == REDIS_REPLY_ARRAY)
            snprintf(got, sizeof got, "%lld", reply->element[0]->integer);
        else
            snprintf(got, sizeof got, "%.3s", script_error(reply));
        assert_string_equal(got, steps[i].reply);
        freeReplyObject(reply);

        char *count = cmd_str(server, "HGET thelock me");
        if (steps[i].fields == NULL)
            assert_null(count);
        else
            assert_string_equal(count, steps[i].fields);
        free(count);
    }
    assert_int_equal(cmd_int(server, "DBSIZE"), 0);
    assert_string_equal(listener_heard(group.stage->listener), "publish 0, publish 0");
    cmd_ok(server, "CONFIG SET maxmemory 0");
    redisFree(user);
}

/* A server out of memory cannot refuse a nested release even when the lease needs no raising. */
static void U38_nested_release_with_a_longer_ttl(void **state) {
    (void)state;
    struct server *server = group.stage->server;
    redisContext *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "HSET thelock me 2");
    int64_t begin_ms = server_time_ms(server);
    cmd_ok(server, "PEXPIRE thelock 90000");
    cmd_ok(server, "CONFIG SET maxmemory-policy noeviction");
    cmd_ok(server, "CONFIG SET maxmemory 1");
    assert_out_of_memory(server);

    redisReply *reply = script_call(user, stage_sha(group.stage, "plain_release"),
                                    "thelock , 0 me 30000 2 publish " CHANNEL, 0);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->element[0]->integer, 0);
    freeReplyObject(reply);
    assert_int_equal(cmd_int(server, "HGET thelock me"), 1);
    int64_t ttl_ms = pttl(server, LOCK);
    assert_true(ttl_ms >= 90000 - (server_time_ms(server) - begin_ms) - 1);
    cmd_ok(server, "CONFIG SET maxmemory 0");
    redisFree(user);
}

/* ---- All of them ---------------------------------------------------------------------------- */

int main(void) {
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(no_command_is_granted_in_vain),
        cmocka_unit_test(U45_key_pattern_too_narrow),
        cmocka_unit_test(U46_released_but_nobody_told),
        cmocka_unit_test(acquire_without_the_right_to_expire_leaves_nothing),
        cmocka_unit_test(renew_reports_other_errors_as_errors),
        cmocka_unit_test(not_after_includes_its_own_millisecond),
        cmocka_unit_test(C005_partial_release_keeps_the_explicit_lease),
        cmocka_unit_test(U75_lost_counter_goes_on_from_the_time),
        cmocka_unit_test(U38_out_of_memory),
        cmocka_unit_test(U38_nested_release_with_a_longer_ttl),
    };
    size_t other_count = sizeof others / sizeof *others;
    size_t count = 0;
    struct CMUnitTest *tests =
        calloc(plain_row_count + fenced_row_count + other_count, sizeof *tests);
    if (tests == NULL)
        return 1;
    for (size_t i = 0; i < TABLES; i++)
        for (size_t j = 0; j < *tables[i].count; j++, count++) {
            tests[count].name = tables[i].rows[j].name;
            tests[count].test_func = play_row;
            tests[count].initial_state = (void *)(uintptr_t)&tables[i].rows[j];
        }
    memcpy(tests + count, others, sizeof others);

    int failed = _cmocka_run_group_tests("plain_scripts", tests, count + other_count, open_group,
                                         close_group);
    free(tests);
    return failed;
}
