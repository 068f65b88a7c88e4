/* The scripts of semaphore and latch, each alone, on a real server.
 *
 * Every row is a test of its own: what is there, what is called, what comes of it. It is played as an ACL
 * user that may touch one key and one channel and run the few commands that the script needs. The tests
 * after the rows show that these rights are not more than needed, what a right to publish that is missing
 * does, and what happens when the server is out of memory. None of these scripts may run twice, so there
 * is nothing to show about that.
 *
 * One thread, one server for the whole group; each row starts by emptying it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASSWORD "x"
#define NO_TTL (-1)
#define TELL " publish thechannel"

struct row {
    const char *name;
    const char *before; /* one or two commands with "; " between; may be NULL */
    const char *script;
    const char *call;  /* as for script_call() */
    const char *reply; /* two integers, or "!CODE" for an error that starts with it */
    const char *after; /* the value of the key; its type if it is no string; NULL: no key */
    int64_t ttl_ms;    /* NO_TTL, or what it was set to */
    const char *heard; /* as listener_heard() tells it; NULL for nothing */
};

static const struct row rows[] = {
    /* ---- semaphore_set ---- */
    {"C144_set", NULL, "semaphore_set", "thekey , 0 10 0" TELL, "1 10", "10", NO_TTL, "publish 10"},
    {"C144_set_again", "SET thekey 10", "semaphore_set", "thekey , 0 15 0" TELL, "0 10", "10",
     NO_TTL, NULL},
    {"C144_set_with_ttl", NULL, "semaphore_set", "thekey , 0 1 60000" TELL, "1 1", "1", 60000,
     "publish 1"},
    {"set_again_keeps_the_ttl", "SET thekey 3 PX 50000", "semaphore_set", "thekey , 0 5 60000" TELL,
     "0 3", "3", 50000, NULL},
    {"set_to_none_tells_nobody", NULL, "semaphore_set", "thekey , 0 0 0" TELL, "1 0", "0", NO_TTL,
     NULL},
    {"set_again_over_none", "SET thekey 0", "semaphore_set", "thekey , 0 5 0" TELL, "0 0", "0",
     NO_TTL, NULL},
    {"set_again_over_a_negative", "SET thekey -5", "semaphore_set", "thekey , 0 5 0" TELL, "0 -5",
     "-5", NO_TTL, NULL},
    {"set_sharded", NULL, "semaphore_set", "thekey , 0 2147483647 0 spublish thechannel",
     "1 2147483647", "2147483647", NO_TTL, "spublish 2147483647"},
    {"set_in_time", NULL, "semaphore_set", "thekey , @+60000 1 0" TELL, "1 1", "1", NO_TTL,
     "publish 1"},
    {"set_too_late", NULL, "semaphore_set", "thekey , @-1 10 0" TELL, "-3 0", NULL, 0, NULL},
    {"U67_set_hash", "HSET thekey me 1", "semaphore_set", "thekey , 0 1 0" TELL, "!WRONGTYPE",
     "hash", NO_TTL, NULL},
    {"U67_set_text", "SET thekey many", "semaphore_set", "thekey , 0 1 0" TELL, "!WRONGTYPE the",
     "many", NO_TTL, NULL},
    {"U02_set_ttl_too_long", NULL, "semaphore_set", "thekey , 0 1 9223372036854775807" TELL,
     "!ERR invalid expire", NULL, 0, NULL},

    /* ---- semaphore_acquire ---- */
    {"acquire_without_a_semaphore", NULL, "semaphore_acquire", "thekey , 0 1", "0 0", NULL, 0,
     NULL},
    {"acquire_one", "SET thekey 10", "semaphore_acquire", "thekey , 0 1", "1 9", "9", NO_TTL, NULL},
    {"acquire_all", "SET thekey 10 PX 50000", "semaphore_acquire", "thekey , 0 10", "1 0", "0",
     50000, NULL},
    {"acquire_too_many", "SET thekey 2", "semaphore_acquire", "thekey , 0 3", "0 2", "2", NO_TTL,
     NULL},
    {"acquire_of_none", "SET thekey 0", "semaphore_acquire", "thekey , 0 1", "0 0", "0", NO_TTL,
     NULL},
    {"acquire_of_a_negative", "SET thekey -5", "semaphore_acquire", "thekey , 0 1", "0 -5", "-5",
     NO_TTL, NULL},
    {"C155_acquire_the_most", "SET thekey 2147483647", "semaphore_acquire", "thekey , 0 2147483647",
     "1 0", "0", NO_TTL, NULL},
    {"acquire_in_time", "SET thekey 1", "semaphore_acquire", "thekey , @+60000 1", "1 0", "0",
     NO_TTL, NULL},
    {"acquire_too_late", "SET thekey 10", "semaphore_acquire", "thekey , @-1 1", "-3 0", "10",
     NO_TTL, NULL},
    {"U67_acquire_list", "RPUSH thekey 1", "semaphore_acquire", "thekey , 0 1", "!WRONGTYPE",
     "list", NO_TTL, NULL},
    {"U67_acquire_text", "SET thekey many", "semaphore_acquire", "thekey , 0 1", "!WRONGTYPE the",
     "many", NO_TTL, NULL},
    {"U67_acquire_fraction", "SET thekey 1.5", "semaphore_acquire", "thekey , 0 1",
     "!WRONGTYPE the", "1.5", NO_TTL, NULL},

    /* ---- semaphore_change: release, add ---- */
    {"C150_release_without_a_semaphore", NULL, "semaphore_change", "thekey , 0 1 0" TELL, "1 1",
     "1", NO_TTL, "publish 1"},
    {"release_keeps_the_ttl", "SET thekey 2 PX 50000", "semaphore_change", "thekey , 0 3 0" TELL,
     "1 5", "5", 50000, "publish 5"},
    {"release_up_to_zero_tells_nobody", "SET thekey -3", "semaphore_change", "thekey , 0 3 0" TELL,
     "1 0", "0", NO_TTL, NULL},
    {"C153_release_if_exists", "SET thekey 9", "semaphore_change", "thekey , 0 1 1" TELL, "1 10",
     "10", NO_TTL, "publish 10"},
    {"C153_release_if_exists_without_one", NULL, "semaphore_change", "thekey , 0 1 1" TELL, "0 0",
     NULL, 0, NULL},
    {"U51_add_keeps_the_ttl", "SET thekey 5 PX 50000", "semaphore_change", "thekey , 0 3 0" TELL,
     "1 8", "8", 50000, "publish 8"},
    {"C146_add_a_negative", "SET thekey 0", "semaphore_change", "thekey , 0 -5 0" TELL, "1 -5",
     "-5", NO_TTL, NULL},
    {"add_a_negative_tells_nobody", "SET thekey 10", "semaphore_change", "thekey , 0 -5 0" TELL,
     "1 5", "5", NO_TTL, NULL},
    {"add_nothing", "SET thekey 10", "semaphore_change", "thekey , 0 0 0" TELL, "1 10", "10",
     NO_TTL, NULL},
    {"change_above_what_Java_counts", "SET thekey 2147483647", "semaphore_change",
     "thekey , 0 2147483647 0" TELL, "1 4294967294", "4294967294", NO_TTL, "publish 4294967294"},
    {"release_sharded", "SET thekey 1", "semaphore_change", "thekey , 0 1 0 spublish thechannel",
     "1 2", "2", NO_TTL, "spublish 2"},
    {"release_in_time", "SET thekey 1", "semaphore_change", "thekey , @+60000 1 0" TELL, "1 2", "2",
     NO_TTL, "publish 2"},
    {"release_too_late", "SET thekey 1", "semaphore_change", "thekey , @-1 1 0" TELL, "-3 0", "1",
     NO_TTL, NULL},
    {"U67_release_hash", "HSET thekey me 1", "semaphore_change", "thekey , 0 1 0" TELL,
     "!WRONGTYPE", "hash", NO_TTL, NULL},
    {"U67_release_text", "SET thekey many", "semaphore_change", "thekey , 0 1 1" TELL,
     "!WRONGTYPE the", "many", NO_TTL, NULL},

    /* ---- semaphore_drain ---- */
    {"C151_drain_without_a_semaphore", NULL, "semaphore_drain", "thekey , 0", "0 0", NULL, 0, NULL},
    {"C151_drain", "SET thekey 7", "semaphore_drain", "thekey , 0", "1 7", "0", NO_TTL, NULL},
    {"U51_drain_keeps_the_ttl", "SET thekey 7 PX 50000", "semaphore_drain", "thekey , @+60000",
     "1 7", "0", 50000, NULL},
    {"drain_a_negative", "SET thekey -5", "semaphore_drain", "thekey , 0", "1 -5", "0", NO_TTL,
     NULL},
    {"drain_too_late", "SET thekey 7", "semaphore_drain", "thekey , @-1", "-3 0", "7", NO_TTL,
     NULL},
    {"U67_drain_set", "SADD thekey 7", "semaphore_drain", "thekey , 0", "!WRONGTYPE", "set", NO_TTL,
     NULL},
    {"U67_drain_text", "SET thekey many", "semaphore_drain", "thekey , 0", "!WRONGTYPE the", "many",
     NO_TTL, NULL},

    /* ---- counter_delete ---- */
    {"delete_a_semaphore", "SET thekey 7", "counter_delete", "thekey , 0 - -", "1 0", NULL, 0,
     NULL},
    {"U79_delete_a_latch", "SET thekey 7", "counter_delete", "thekey , 0" TELL, "1 0", NULL, 0,
     "publish 0"},
    {"delete_a_latch_sharded", "SET thekey 7", "counter_delete", "thekey , 0 spublish thechannel",
     "1 0", NULL, 0, "spublish 0"},
    {"C193_delete_what_is_not_there", NULL, "counter_delete", "thekey , 0" TELL, "0 0", NULL, 0,
     NULL},
    {"delete_in_time", "SET thekey 7", "counter_delete", "thekey , @+60000 - -", "1 0", NULL, 0,
     NULL},
    {"delete_too_late", "SET thekey 7", "counter_delete", "thekey , @-1" TELL, "-3 0", "7", NO_TTL,
     NULL},
    {"U67_delete_hash", "HSET thekey me 1", "counter_delete", "thekey , 0" TELL, "!WRONGTYPE",
     "hash", NO_TTL, NULL},
    {"U67_delete_text", "SET thekey many", "counter_delete", "thekey , 0" TELL, "!WRONGTYPE what",
     "many", NO_TTL, NULL},

    /* ---- latch_set ---- */
    {"C194_latch_set", NULL, "latch_set", "thekey , 0 3" TELL, "1 3", "3", NO_TTL, "publish 1"},
    {"C194_latch_set_again", "SET thekey 1", "latch_set", "thekey , 0 2" TELL, "0 1", "1", NO_TTL,
     NULL},
    {"latch_set_over_a_zero", "SET thekey 0", "latch_set", "thekey , 0 2" TELL, "1 2", "2", NO_TTL,
     "publish 1"},
    {"latch_set_over_a_negative", "SET thekey -1", "latch_set", "thekey , 0 2" TELL, "1 2", "2",
     NO_TTL, "publish 1"},
    {"latch_set_to_zero", NULL, "latch_set", "thekey , 0 0" TELL, "!ERR the count", NULL, 0, NULL},
    {"latch_set_to_a_negative", NULL, "latch_set", "thekey , 0 -1" TELL, "!ERR the count", NULL, 0,
     NULL},
    {"latch_set_sharded", NULL, "latch_set", "thekey , @+60000 1 spublish thechannel", "1 1", "1",
     NO_TTL, "spublish 1"},
    {"latch_set_too_late", NULL, "latch_set", "thekey , @-1 3" TELL, "-3 0", NULL, 0, NULL},
    {"U67_latch_set_hash", "HSET thekey me 1", "latch_set", "thekey , 0 1" TELL, "!WRONGTYPE",
     "hash", NO_TTL, NULL},
    {"U67_latch_set_text", "SET thekey many", "latch_set", "thekey , 0 1" TELL, "!WRONGTYPE the",
     "many", NO_TTL, NULL},

    /* ---- latch_count_down ---- */
    {"C191_count_down_what_was_never_set", NULL, "latch_count_down", "thekey , 0" TELL, "0 0", NULL,
     0, NULL},
    {"count_down", "SET thekey 3", "latch_count_down", "thekey , 0" TELL, "1 2", "2", NO_TTL, NULL},
    {"C191_count_down_to_zero", "SET thekey 1", "latch_count_down", "thekey , 0" TELL, "1 0", NULL,
     0, "publish 0"},
    {"count_down_a_zero", "SET thekey 0", "latch_count_down", "thekey , 0" TELL, "0 0", NULL, 0,
     NULL},
    {"count_down_a_negative", "SET thekey -4", "latch_count_down", "thekey , 0" TELL, "0 0", NULL,
     0, NULL},
    {"count_down_keeps_a_ttl", "SET thekey 3 PX 50000", "latch_count_down", "thekey , 0" TELL,
     "1 2", "2", 50000, NULL},
    {"count_down_sharded", "SET thekey 1", "latch_count_down", "thekey , 0 spublish thechannel",
     "1 0", NULL, 0, "spublish 0"},
    {"count_down_in_time", "SET thekey 2", "latch_count_down", "thekey , @+60000" TELL, "1 1", "1",
     NO_TTL, NULL},
    {"count_down_too_late", "SET thekey 1", "latch_count_down", "thekey , @-1" TELL, "-3 0", "1",
     NO_TTL, NULL},
    {"U67_count_down_list", "RPUSH thekey 1", "latch_count_down", "thekey , 0" TELL, "!WRONGTYPE",
     "list", NO_TTL, NULL},
    {"U67_count_down_text", "SET thekey many", "latch_count_down", "thekey , 0" TELL,
     "!WRONGTYPE the", "many", NO_TTL, NULL},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- Users ---------------------------------------------------------------------------------- */

/* What the documentation tells operators to grant for each script, beside EVALSHA. */
struct grant {
    const char *script; /* the user has the same name */
    const char *channel;
    const char *commands;
};

static const struct grant grants[] = {
    {"semaphore_set", "&thechannel", "time get set publish spublish"},
    {"semaphore_acquire", NULL, "time get decrby"},
    {"semaphore_change", "&thechannel", "time get incrby publish spublish"},
    {"semaphore_drain", NULL, "time get set"},
    {"counter_delete", "&thechannel", "time get del publish spublish"},
    {"latch_set", "&thechannel", "time get set publish spublish"},
    {"latch_count_down", "&thechannel", "time get decr del publish spublish"},
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

/* Makes a user, but for the command `without`, which may be NULL. */
static redisContext *connect_new_user(const char *name, const struct grant *grant,
                                      const char *without) {
    struct words call, part;
    words_cut(&call, "ACL SETUSER");
    words_add(&call, name);
    words_cut(&part, "reset resetchannels on >" PASSWORD " +evalsha ~thekey");
    for (size_t i = 0; i < part.count; i++)
        words_add(&call, part.item[i]);
    if (grant->channel != NULL)
        words_add(&call, grant->channel);
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
    group.listener = listener_start(group.server, "thechannel");
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

/* ---- Playing -------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static bool differs(char why[512], const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why, 512, format, args);
    va_end(args);
    return false;
}

static void prepare(const char *commands) {
    char copy[256], *rest = copy;
    cmd_ok(group.server, "FLUSHALL");
    snprintf(copy, sizeof copy, "%s", commands != NULL ? commands : "");
    for (char *line; (line = strsep(&rest, ";")) != NULL;)
        if (line[0] != '\0')
            cmd_ok(group.server, line);
}

/* A dash stands for an argument without a byte. */
static redisReply *call_script(redisContext *user, const struct row *row, int64_t begin_ms) {
    const char *sha = group.sha[index_of(row->script)];
    if (strstr(row->call, " - -") == NULL)
        return script_call(user, sha, row->call, begin_ms);
    int64_t not_after = strstr(row->call, "@+60000") != NULL ? begin_ms + 60000 : 0;
    return redisCommand(user, "EVALSHA %s 1 thekey %lld %s %s", sha, (long long)not_after, "", "");
}

static bool reply_fits(const redisReply *reply, const struct row *row, int64_t begin_ms,
                       int64_t end_ms, char why[512]) {
    char got[256] = "no array of three integers";
    if (reply->type == REDIS_REPLY_ERROR) {
        snprintf(got, sizeof got, "!%s", script_error(reply));
        if (row->reply[0] == '!' && strncmp(got, row->reply, strlen(row->reply)) == 0)
            return true;
    } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3) {
        int64_t now = reply->element[2]->integer;
        snprintf(got, sizeof got, "%lld %lld", reply->element[0]->integer,
                 reply->element[1]->integer);
        if (strcmp(got, row->reply) == 0 && now >= begin_ms && now <= end_ms)
            return true;
    }
    return differs(why, "reply %s instead of %s and the time", got, row->reply);
}

/* The time on the server when the row began is all that a TTL can have lost since. */
static bool key_fits(const struct row *row, int64_t begin_ms, char why[512]) {
    char *type = cmd_str(group.server, "TYPE thekey");
    char *value = strcmp(type, "string") == 0 ? cmd_str(group.server, "GET thekey") : NULL;
    const char *there = value != NULL ? value : strcmp(type, "none") == 0 ? "" : type;
    const char *wanted = row->after != NULL ? row->after : "";
    int64_t ttl_ms = pttl(group.server, "thekey");
    int64_t passed_ms = server_time_ms(group.server) - begin_ms + 1;
    bool fits = strcmp(there, wanted) == 0 || differs(why, "'%s' instead of '%s'", there, wanted);
    if (fits && row->after != NULL && row->ttl_ms == NO_TTL && ttl_ms != NO_TTL)
        fits = differs(why, "a TTL of %" PRId64, ttl_ms);
    if (fits && row->after != NULL && row->ttl_ms > 0 &&
        (ttl_ms > row->ttl_ms || ttl_ms < row->ttl_ms - passed_ms))
        fits = differs(why, "a TTL of %" PRId64 " instead of %" PRId64, ttl_ms, row->ttl_ms);
    if (fits && cmd_int(group.server, "DBSIZE") != (row->after != NULL))
        fits = differs(why, "there are other keys");
    free(type);
    free(value);
    return fits;
}

static bool row_plays(redisContext *user, const struct row *row, char why[512]) {
    int64_t begin_ms = server_time_ms(group.server);
    prepare(row->before);
    listener_heard(group.listener);
    redisReply *reply = call_script(user, row, begin_ms);
    bool fits = reply_fits(reply, row, begin_ms, server_time_ms(group.server), why);
    freeReplyObject(reply);
    if (!fits || !key_fits(row, begin_ms, why))
        return false;
    const char *heard = listener_heard(group.listener);
    const char *expected = row->heard != NULL ? row->heard : "";
    return strcmp(heard, expected) == 0 ||
           differs(why, "heard '%s' instead of '%s'", heard, expected);
}

static bool row_applies(const struct row *row) {
    return group.sharded || strstr(row->call, "spublish") == NULL;
}

static void assert_plays(redisContext *user, const struct row *row) {
    char why[512];
    if (!row_plays(user, row, why))
        fail_msg("%s %s: %s", row->script, row->call, why);
}

static void play_row(void **state) {
    const struct row *row = *state;
    if (!row_applies(row))
        skip();
    assert_plays(group.user[index_of(row->script)], row);
}

/* ---- Rights --------------------------------------------------------------------------------- */

static bool all_rows_play(redisContext *user, const char *script) {
    char why[512];
    for (const struct row *row = rows; row < rows + ROWS; row++)
        if (strcmp(row->script, script) == 0 && row_applies(row) && !row_plays(user, row, why))
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
            redisContext *user = connect_new_user("poorer", &grants[i], commands.item[j]);
            bool needless = all_rows_play(user, grants[i].script);
            redisFree(user);
            if (needless)
                fail_msg("%s does not need +%s", grants[i].script, commands.item[j]);
        }
    }
}

/* No right to the channel: it is done, and the reply says that nobody was told. */
static void U46_done_but_nobody_told(void **state) {
    (void)state;
    static const struct row deaf[] = {
        {"set", NULL, "semaphore_set", "thekey , 0 3 0" TELL, "2 3", "3", NO_TTL, NULL},
        {"release", "SET thekey 1", "semaphore_change", "thekey , 0 3 0" TELL, "2 4", "4", NO_TTL,
         NULL},
        {"delete", "SET thekey 1", "counter_delete", "thekey , 0" TELL, "2 0", NULL, 0, NULL},
        {"latch", NULL, "latch_set", "thekey , 0 3" TELL, "2 3", "3", NO_TTL, NULL},
        {"open", "SET thekey 1", "latch_count_down", "thekey , 0" TELL, "2 0", NULL, 0, NULL},
    };
    for (size_t i = 0; i < sizeof deaf / sizeof *deaf; i++) {
        struct grant mute = grants[index_of(deaf[i].script)];
        mute.channel = NULL;
        redisContext *user = connect_new_user("mute", &mute, NULL);
        assert_plays(user, &deaf[i]);
        redisFree(user);
    }
}

/* ---- Out of memory -------------------------------------------------------------------------- */

/* Nothing is written, and the answer is a definite no; but what only deletes works: the last count down, and delete. */
static void U39_out_of_memory(void **state) {
    (void)state;
    static const struct row full[] = {
        {"set", NULL, "semaphore_set", "thekey , 0 3 0" TELL, "!OOM", NULL, 0, NULL},
        {"acquire", "SET thekey 3", "semaphore_acquire", "thekey , 0 1", "!OOM", "3", NO_TTL, NULL},
        {"release", "SET thekey 3", "semaphore_change", "thekey , 0 1 0" TELL, "!OOM", "3", NO_TTL,
         NULL},
        {"drain", "SET thekey 3", "semaphore_drain", "thekey , 0", "!OOM", "3", NO_TTL, NULL},
        {"latch", NULL, "latch_set", "thekey , 0 3" TELL, "!OOM", NULL, 0, NULL},
        {"down", "SET thekey 3", "latch_count_down", "thekey , 0" TELL, "!OOM", "3", NO_TTL, NULL},
        {"open", "SET thekey 1", "latch_count_down", "thekey , 0" TELL, "1 0", NULL, 0,
         "publish 0"},
        {"delete", "SET thekey 3", "counter_delete", "thekey , 0" TELL, "1 0", NULL, 0,
         "publish 0"},
    };
    redisContext *user = connect_as(group.server, NULL, NULL);
    cmd_ok(group.server, "CONFIG SET maxmemory-policy noeviction");
    for (size_t i = 0; i < sizeof full / sizeof *full; i++) {
        char why[512];
        int64_t begin_ms = server_time_ms(group.server);
        prepare(full[i].before);
        cmd_ok(group.server, "CONFIG SET maxmemory 1");
        listener_heard(group.listener);
        redisReply *reply = call_script(user, &full[i], begin_ms);
        bool fits = reply_fits(reply, &full[i], begin_ms, server_time_ms(group.server), why) &&
                    key_fits(&full[i], begin_ms, why);
        freeReplyObject(reply);
        cmd_ok(group.server, "CONFIG SET maxmemory 0");
        if (!fits)
            fail_msg("%s: %s", full[i].name, why);
        assert_string_equal(listener_heard(group.listener),
                            full[i].heard != NULL ? full[i].heard : "");
    }
    redisFree(user);
}

/* ---- All of them ---------------------------------------------------------------------------- */

int main(void) {
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(no_command_is_granted_in_vain),
        cmocka_unit_test(U46_done_but_nobody_told),
        cmocka_unit_test(U39_out_of_memory),
    };
    enum { OTHERS = sizeof others / sizeof *others };
    struct CMUnitTest tests[ROWS + OTHERS] = {{0}};
    for (size_t i = 0; i < ROWS; i++) {
        tests[i].name = rows[i].name;
        tests[i].test_func = play_row;
        tests[i].initial_state = (void *)(uintptr_t)&rows[i];
    }
    memcpy(tests + ROWS, others, sizeof others);
    return cmocka_run_group_tests(tests, open_group, close_group);
}
