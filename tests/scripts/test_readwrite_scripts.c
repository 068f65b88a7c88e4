/* The scripts of the read/write lock, each alone, on a real server.
 *
 * Every row of readwrite_rows.c is a test of its own, played as an ACL user that may touch the
 * lock, the keys of its readers and one channel, and run the few commands that the script needs.
 * The tests after the rows show that these rights are not more than needed, what a right that is
 * missing does, what happens when the server is out of memory, and names with braces of their own.
 *
 * One thread, one server for the whole group; each row starts by emptying it. */
#include "group.h"
#include "readwrite_rows.h"
#include "support/case.h"
#include "support/wait.h"

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
    {"readwrite_break", KEYS, "&" RW_CHANNEL, "time hmget exists del publish spublish"},
};
enum { GRANTS = sizeof grants / sizeof *grants };

static struct row_head head_of(size_t i) {
    const struct row *row = &readwrite_rows[i];
    return (struct row_head){row->name, row->script, row->call};
}

static bool plays(redisContext *user, size_t i, char why[WHY]) {
    return row_plays(stage, user, &readwrite_rows[i], why);
}

/* ---- Rights --------------------------------------------------------------------------------- */

/* Rights to the lock alone are not enough for readers, whose keys lie beside it. */
CASE(U45_no_right_to_the_readers_keys) {
    static const struct row row = {
        "acquire",        NULL, "read_acquire", "thelock , 0 me 30000 0 publish " RW_CHANNEL, "!",
        .after = {ABSENT}};
    struct grant narrow = *grant_of(row.script);
    narrow.keys = "~thelock";
    own_context *user = connect_new_user(stage, "narrow", &narrow, NULL);
    assert_plays(user, &row);
}

CASE(U46_released_but_not_notified) {
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
         .after = {{LOCK, "me=1 mode=read", 4000}, {HOLD("me", 1), "string 1", 4000}}},
        {"break", "HSET thelock mode read me 1; PEXPIRE thelock 5000", "readwrite_break",
         "thelock , 0 me read publish " RW_CHANNEL, "2 0", .after = {ABSENT}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grant mute = *grant_of(rows[i].script);
        mute.channels = "&redisson_rwlock:{another}";
        own_context *user = connect_new_user(stage, "mute", &mute, NULL);
        assert_plays(user, &rows[i]);
    }
}

/* A user that may write a lock but not set its lease leaves no lock, and no key, for ever. */
CASE(acquire_without_the_right_to_expire_leaves_nothing) {
    static const struct row rows[] = {
        {"read", NULL, "read_acquire", "thelock , 0 me 30000 0 publish " RW_CHANNEL, "!",
         .after = {ABSENT, {HOLD("me", 1), NULL, 0}}},
        {"write", NULL, "write_acquire", "thelock , 0 me:write 30000 0", "!", .after = {ABSENT}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        own_context *user = connect_new_user(stage, "poorer", grant_of(rows[i].script), "pexpire");
        assert_plays(user, &rows[i]);
    }
}

/* ---- Out of memory -------------------------------------------------------------------------- */

/* The server holds more than it may and evicts nothing: the client that holds can give back and renew, down
 * to the last level; nobody can take, and nothing is left of the attempt. */
CASE(U38_out_of_memory) {
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
    struct server *server = stage->server;
    own_context *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "HSET thelock mode read me 2");
    cmd_ok(server, "PEXPIRE thelock 40000");
    cmd_ok(server, "SET " HOLD("me", 1) " 1 PX 40000");
    cmd_ok(server, "SET " HOLD("me", 2) " 1 PX 40000");
    cmd_ok(server, "HSET written mode write me:write 2");
    cmd_ok(server, "PEXPIRE written 90000");
    use_up_memory();
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_code(user, steps[i].script, steps[i].call, steps[i].reply);
        assert_int_equal(cmd_int(server, "DBSIZE"), steps[i].keys);
    }
    free_up_memory();
}

/* ---- Names and numbers ---------------------------------------------------------------------- */

/* A name with a brace, balanced or not, is its own tag. */
CASE(names_with_braces) {
    struct server *server = stage->server;
    own_context *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    assert_code(user, "read_acquire", "a{b}c , 0 U:7 30000 0 publish x", "1");
    assert_true(key_exists(server, "a{b}c:U:7:rwlock_timeout:1"));
    assert_code(user, "read_acquire", "a{b , 0 U:7 30000 0 publish x", "1");
    assert_true(key_exists(server, "a{b:U:7:rwlock_timeout:1"));
    assert_code(user, "read_acquire", "a}b , 0 U:7 30000 0 publish x", "1");
    assert_true(key_exists(server, "{a}b}:U:7:rwlock_timeout:1"));
    assert_int_equal(cmd_int(server, "DBSIZE"), 6);
    assert_code(user, "read_release", "a{b}c , 0 U:7 1 publish x", "1");
    assert_code(user, "read_release", "a{b , 0 U:7 1 publish x", "1");
    assert_code(user, "read_release", "a}b , 0 U:7 1 publish x", "1");
    assert_int_equal(cmd_int(server, "DBSIZE"), 0);
}

/* Ten thousand readers, half of them dead: one release looks at all of them and drops the dead. */
CASE(many_readers) {
    struct server *server = stage->server;
    own_context *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "EVAL %s 1 thelock",
           "redis.call('hset', KEYS[1], 'mode', 'read', 'me', 1) "
           "redis.call('set', '{thelock}:me:rwlock_timeout:1', 1, 'px', 90000) "
           "for i = 1, 10000 do redis.call('hset', KEYS[1], 'U:' .. i, 1) "
           "if i % 2 == 0 then "
           "redis.call('set', '{thelock}:U:' .. i .. ':rwlock_timeout:1', 1, 'px', 60000) end end "
           "redis.call('pexpire', KEYS[1], 90000)");
    assert_int_equal(cmd_int(server, "HLEN thelock"), 10002);
    assert_code(user, "read_release", "thelock , 0 me 1 publish x", "1");
    assert_int_equal(cmd_int(server, "HLEN thelock"), 5001);
    assert_true(pttl(server, LOCK) <= 60000);
    assert_code(user, "read_renew", "thelock , 0 90000 U:2", "1");
    assert_code(user, "read_renew", "thelock , 0 90000 U:3", "0");
}

/* Each count could be one, but all of them together are more than a server should look at. */
CASE(more_levels_than_can_be_inspected) {
    struct server *server = stage->server;
    own_context *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "EVAL %s 1 thelock",
           "redis.call('hset', KEYS[1], 'mode', 'read', 'me', 1) "
           "redis.call('set', '{thelock}:me:rwlock_timeout:1', 1, 'px', 90000) "
           "for i = 1, 11 do redis.call('hset', KEYS[1], 'U:' .. i, 99999) end");
    assert_code(user, "read_release", "thelock , 0 me 1 publish x", "WRO");
    assert_int_equal(cmd_int(server, "HLEN thelock"), 13);
    assert_true(key_exists(server, "{thelock}:me:rwlock_timeout:1"));
}

/* The same for a renewal of many locks, each of whose counts could be one: it changes nothing, and
 * each lock is renewed by itself. */
CASE(more_levels_than_can_be_renewed_at_once) {
    struct server *server = stage->server;
    own_text *renew = script_text("read_renew");
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "HSET thelock mode read me 99999");
    cmd_ok(server, "PEXPIRE thelock 60000");
    cmd_ok(server, "SET {thelock}:me:rwlock_timeout:1 1 PX 60000");
    redisReply *reply = cmd(server,
                            "EVAL %s 11 thelock thelock thelock thelock thelock thelock thelock "
                            "thelock thelock thelock thelock 0 90000 me 90000 me 90000 me 90000 me "
                            "90000 me 90000 me 90000 me 90000 me 90000 me 90000 me 90000 me",
                            renew);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    assert_non_null(strstr(script_error(reply), "read too often"));
    freeReplyObject(reply);
    assert_int_equal(cmd_int(server, "DBSIZE"), 2);
    assert_true(pttl(server, LOCK) <= 60000);
    reply = cmd(server, "EVAL %s 1 thelock 0 90000 me", renew);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->element[0]->integer, 1);
    freeReplyObject(reply);
    assert_true(pttl(server, LOCK) > 60000);
}

/* Keys that no reader could have made are left to expire. */
CASE(levels_without_end) {
    struct server *server = stage->server;
    own_context *user = connect_as(server, NULL, NULL);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "EVAL %s 1 thelock",
           "for i = 1, 100010 do redis.call('set', '{thelock}:me:rwlock_timeout:' .. i, 1) end");
    assert_code(user, "read_release", "thelock , 0 me 1 publish x", "-1");
    assert_int_equal(cmd_int(server, "DBSIZE"), 11);
}

/* How many commands the server has run since the last CONFIG RESETSTAT, those in scripts too. */
static long long commands_run(void) {
    own_reply *reply = cmd(stage->server, "INFO commandstats");
    long long sum = 0;
    const char *calls = reply->str;
    while ((calls = strstr(calls, ":calls=")) != NULL) {
        calls += strlen(":calls=");
        sum += atoll(calls);
    }
    return sum;
}

static void read_to_depth(redisContext *user, const char *reader, int depth) {
    char call[128];
    for (int count = 0; count < depth; count++) {
        snprintf(call, sizeof call, "thelock , 0 %s 30000 %d publish x", reader, count);
        assert_code(user, "read_acquire", call, "1");
    }
}

/* What one more level, and giving it back, cost a reader among others, all of that depth. */
static void count_at_depth(redisContext *user, int depth, long long *ret_acquire,
                           long long *ret_release) {
    char acquire[128], release[128];
    snprintf(acquire, sizeof acquire, "thelock , 0 me 30000 %d publish x", depth);
    snprintf(release, sizeof release, "thelock , 0 me %d publish x", depth + 1);
    cmd_ok(stage->server, "FLUSHALL");
    read_to_depth(user, "you", depth);
    read_to_depth(user, "me", depth);
    cmd_ok(stage->server, "CONFIG RESETSTAT");
    assert_code(user, "read_acquire", acquire, "1");
    *ret_acquire = commands_run();
    cmd_ok(stage->server, "CONFIG RESETSTAT");
    assert_code(user, "read_release", release, "0");
    *ret_release = commands_run();
}

/* A level more or less costs the server the same, however many there are already; but for the two
 * commands that raise leases, which are not needed within the millisecond. */
CASE(nested_reads_cost_the_same_at_any_depth) {
    long long acquire, release, deep_acquire, deep_release;
    own_context *user = connect_as(stage->server, NULL, NULL);
    count_at_depth(user, 10, &acquire, &release);
    count_at_depth(user, 1000, &deep_acquire, &deep_release);
    printf("commands of an acquire and a release, 10 deep: %lld, %lld; 1000 deep: %lld, %lld\n",
           acquire, release, deep_acquire, deep_release);
    assert_in_range(deep_acquire, 1, acquire + 2);
    assert_in_range(deep_release, 1, release + 2);
}

/* ---- All of them ---------------------------------------------------------------------------- */

int main(void) {
    struct table table = {.channel = RW_CHANNEL,
                          .grants = grants,
                          .grant_count = GRANTS,
                          .row_count = readwrite_row_count,
                          .head = head_of,
                          .plays = plays};
    return group_run(&table);
}
