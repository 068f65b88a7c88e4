/* The scripts of the read/write lock, each alone, on a real server.
 *
 * Every row of readwrite_rows.c is a test of its own, played as an ACL user that may touch the lock,
 * the keys of its readers and one channel, and run the few commands that the script needs. The
 * tests after the rows show that these rights are not more than needed, what a right that is
 * missing does, what happens when the server is out of memory, and names with braces of their own.
 *
 * One thread, one server for the whole group; each row starts by emptying it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "readwrite_rows.h"
#include "rights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS "~thelock ~{thelock}:*"

static const struct grant grants[] = {
    {"read_acquire", KEYS, "&" RW_CHANNEL,
     "time hmget exists pttl del hdel hlen publish spublish set hset pexpire"},
    {"read_release", KEYS, "&" RW_CHANNEL,
     "time hmget exists del hdel hset hgetall pttl pexpire publish spublish"},
    {"read_renew", KEYS " ~second ~third", "", "time hmget pttl pexpire set"},
    {"write_acquire", KEYS, "", "time pttl hset pexpire hmget del"},
    {"write_release", KEYS, "&" RW_CHANNEL,
     "time hmget exists pttl pexpire hset hdel hgetall del publish spublish"},
    {"readwrite_force", KEYS, "&" RW_CHANNEL, "time hmget exists del publish spublish"},
};
enum { GRANTS = sizeof grants / sizeof *grants };

struct group {
    struct stage *stage;
    redisContext *user[GRANTS];
    bool sharded; /* the server knows SPUBLISH, Redis 7 */
};

static struct group group;

static size_t grant_of(const char *script) {
    for (size_t i = 0; i < GRANTS; i++)
        if (strcmp(grants[i].script, script) == 0)
            return i;
    fail_msg("nothing is granted for %s", script);
    return 0;
}

static int open_group(void **state) {
    (void)state;
    group.stage = stage_open_on(NULL, RW_CHANNEL);
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

static void assert_plays(redisContext *connection, const struct row *row) {
    char why[512];
    if (!row_plays(group.stage, connection, row, why, sizeof why))
        fail_msg("%s %s: %s", row->script, row->call, why);
}

static void play_row(void **state) {
    const struct row *row = *state;
    if (!row_applies(row))
        skip();
    assert_plays(group.user[grant_of(row->script)], row);
}

/* ---- Rights --------------------------------------------------------------------------------- */

static bool all_rows_play(redisContext *connection, const char *script) {
    char why[512];
    for (const struct row *row = readwrite_rows; row < readwrite_rows + readwrite_row_count; row++)
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

/* Rights to the lock alone are not enough for readers, whose keys lie beside it. */
static void U45_no_right_to_the_readers_keys(void **state) {
    (void)state;
    static const struct row row = {
        "acquire",        NULL, "read_acquire", "thelock , 0 me 30000 0 publish " RW_CHANNEL, "!",
        .after = {ABSENT}};
    struct grant narrow = grants[grant_of(row.script)];
    narrow.keys = "~thelock";
    redisContext *user = connect_new_user(group.stage, "narrow", &narrow, NULL);
    assert_plays(user, &row);
    redisFree(user);
}

static void U46_released_but_nobody_told(void **state) {
    (void)state;
    static const struct row rows[] = {
        {"unread",
         "HSET thelock mode read me 1; PEXPIRE thelock 5000; SET " HOLD("me", 1) " 1 PX 5000",
         "read_release", "thelock , 0 me 1 publish " RW_CHANNEL, "2 0",
         .after = {ABSENT, {HOLD("me", 1), NULL, 0}}},
        {"unwrite", "HSET thelock mode write me:write 1; PEXPIRE thelock 5000", "write_release",
         "thelock , 0 me:write 30000 1 publish " RW_CHANNEL, "2 0", .after = {ABSENT}},
        {"downgrade",
         "HSET thelock mode write me:write 1 me 1; PEXPIRE thelock 5000; SET " HOLD("me",
                                                                                    1) " 1 PX 4000",
         "write_release", "thelock , 0 me:write 30000 1 publish " RW_CHANNEL, "2 0",
         .after = {{LOCK, "me=1 mode=read", 5000}, {HOLD("me", 1), "string 1", 4000}}},
        {"break", "HSET thelock mode read me 1; PEXPIRE thelock 5000", "readwrite_force",
         "thelock , 0 me read publish " RW_CHANNEL, "2 0", .after = {ABSENT}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grant mute = grants[grant_of(rows[i].script)];
        mute.channels = "&redisson_rwlock:{another}";
        redisContext *user = connect_new_user(group.stage, "mute", &mute, NULL);
        assert_plays(user, &rows[i]);
        redisFree(user);
    }
}

/* A user that may write a lock but not set its lease leaves no lock, and no key, for ever. */
static void acquire_without_the_right_to_expire_leaves_nothing(void **state) {
    (void)state;
    static const struct row rows[] = {
        {"read", NULL, "read_acquire", "thelock , 0 me 30000 0 publish " RW_CHANNEL, "!",
         .after = {ABSENT, {HOLD("me", 1), NULL, 0}}},
        {"write", NULL, "write_acquire", "thelock , 0 me:write 30000 0", "!", .after = {ABSENT}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        redisContext *user =
            connect_new_user(group.stage, "poorer", &grants[grant_of(rows[i].script)], "pexpire");
        assert_plays(user, &rows[i]);
        redisFree(user);
    }
}

/* ---- Out of memory -------------------------------------------------------------------------- */

/* The server holds more than it may and evicts nothing: whoever holds can give back and renew, down
 * to the last level; nobody can take, and nothing is left of the attempt. */
static void U38_out_of_memory(void **state) {
    (void)state;
    static const struct {
        const char *script;
        const char *call;
        const char *reply; /* how it starts */
        long long keys;    /* on the server then */
    } steps[] = {
        {"read_acquire", "thelock , 0 me 30000 2 publish x", "OOM", 4},
        {"read_acquire", "another , 0 me 30000 0 publish x", "OOM", 4},
        {"write_acquire", "another , 0 me:write 30000 0", "OOM", 4},
        {"write_acquire", "written , 0 me:write 30000 2", "OOM", 4},
        {"read_renew", "thelock , 0 60000 me", "1", 4},
        {"read_release", "thelock , 0 me 2 publish x", "0", 3},
        {"read_release", "thelock , 0 me 1 publish x", "1", 1},
        {"write_release", "written , 0 me:write 30000 2 publish x", "0", 1},
        {"write_release", "written , 0 me:write 30000 1 publish x", "1", 0},
    };
    struct server *server = group.stage->server;
    redisContext *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "HSET thelock mode read me 2");
    cmd_ok(server, "PEXPIRE thelock 40000");
    cmd_ok(server, "SET " HOLD("me", 1) " 1 PX 40000");
    cmd_ok(server, "SET " HOLD("me", 2) " 1 PX 40000");
    cmd_ok(server, "HSET written mode write me:write 2");
    cmd_ok(server, "PEXPIRE written 90000");
    for (size_t i = 0; i < GRANTS; i++)
        stage_sha(group.stage, grants[i].script);
    cmd_ok(server, "CONFIG SET maxmemory-policy noeviction");
    cmd_ok(server, "CONFIG SET maxmemory 1");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        redisReply *reply =
            script_call(user, stage_sha(group.stage, steps[i].script), steps[i].call, 0);
        char start[64];
        if (reply->type == REDIS_REPLY_ERROR)
            snprintf(start, sizeof start, "%.3s", script_error(reply));
        else
            snprintf(start, sizeof start, "%lld", reply->element[0]->integer);
        if (strcmp(start, steps[i].reply) != 0)
            fail_msg("%s %s: %s", steps[i].script, steps[i].call, start);
        freeReplyObject(reply);
        assert_int_equal(cmd_int(server, "DBSIZE"), steps[i].keys);
    }
    cmd_ok(server, "CONFIG SET maxmemory 0");
    redisFree(user);
}

/* ---- Names and numbers ---------------------------------------------------------------------- */

static long long code_of(redisContext *user, const char *script, const char *call) {
    redisReply *reply = script_call(user, stage_sha(group.stage, script), call, 0);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    long long code = reply->element[0]->integer;
    freeReplyObject(reply);
    return code;
}

/* A name with a brace, balanced or not, is its own tag. */
static void names_with_braces(void **state) {
    (void)state;
    struct server *server = group.stage->server;
    redisContext *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    assert_int_equal(code_of(user, "read_acquire", "a{b}c , 0 U:7 30000 0 publish x"), 1);
    assert_true(key_exists(server, "a{b}c:U:7:rwlock_timeout:1"));
    assert_int_equal(code_of(user, "read_acquire", "a{b , 0 U:7 30000 0 publish x"), 1);
    assert_true(key_exists(server, "a{b:U:7:rwlock_timeout:1"));
    assert_int_equal(code_of(user, "read_acquire", "a}b , 0 U:7 30000 0 publish x"), 1);
    assert_true(key_exists(server, "{a}b}:U:7:rwlock_timeout:1"));
    assert_int_equal(cmd_int(server, "DBSIZE"), 6);
    assert_int_equal(code_of(user, "read_release", "a{b}c , 0 U:7 1 publish x"), 1);
    assert_int_equal(code_of(user, "read_release", "a{b , 0 U:7 1 publish x"), 1);
    assert_int_equal(code_of(user, "read_release", "a}b , 0 U:7 1 publish x"), 1);
    assert_int_equal(cmd_int(server, "DBSIZE"), 0);
    redisFree(user);
}

/* Ten thousand readers, half of them dead: one release looks at all of them and drops the dead. */
static void many_readers(void **state) {
    (void)state;
    struct server *server = group.stage->server;
    redisContext *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "EVAL %s 1 thelock",
           "redis.call('hset', KEYS[1], 'mode', 'read', 'me', 1) "
           "redis.call('set', '{thelock}:me:rwlock_timeout:1', 1, 'px', 90000) "
           "for i = 1, 10000 do redis.call('hset', KEYS[1], 'U:' .. i, 1) "
           "if i % 2 == 0 then "
           "redis.call('set', '{thelock}:U:' .. i .. ':rwlock_timeout:1', 1, 'px', 60000) end end "
           "redis.call('pexpire', KEYS[1], 90000)");
    assert_int_equal(cmd_int(server, "HLEN thelock"), 10002);
    assert_int_equal(code_of(user, "read_release", "thelock , 0 me 1 publish x"), 1);
    assert_int_equal(cmd_int(server, "HLEN thelock"), 5001);
    assert_true(pttl(server, LOCK) <= 60000);
    assert_int_equal(code_of(user, "read_renew", "thelock , 0 90000 U:2"), 1);
    assert_int_equal(code_of(user, "read_renew", "thelock , 0 90000 U:3"), 0);
    redisFree(user);
}

/* ---- All of them ---------------------------------------------------------------------------- */

int main(void) {
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(no_command_is_granted_in_vain),
        cmocka_unit_test(U45_no_right_to_the_readers_keys),
        cmocka_unit_test(U46_released_but_nobody_told),
        cmocka_unit_test(acquire_without_the_right_to_expire_leaves_nothing),
        cmocka_unit_test(U38_out_of_memory),
        cmocka_unit_test(names_with_braces),
        cmocka_unit_test(many_readers),
    };
    size_t other_count = sizeof others / sizeof *others;
    struct CMUnitTest *tests = calloc(readwrite_row_count + other_count, sizeof *tests);
    if (tests == NULL)
        return 1;
    for (size_t i = 0; i < readwrite_row_count; i++) {
        tests[i].name = readwrite_rows[i].name;
        tests[i].test_func = play_row;
        tests[i].initial_state = (void *)(uintptr_t)&readwrite_rows[i];
    }
    memcpy(tests + readwrite_row_count, others, sizeof others);
    int failed = _cmocka_run_group_tests(
        "readwrite_scripts", tests, readwrite_row_count + other_count, open_group, close_group);
    free(tests);
    return failed;
}
