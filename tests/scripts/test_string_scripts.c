/* The commands and scripts of the string lock, each alone, on a real server: every row of its
 * decisions, resends and late copies included. Rows of scripts are played as an ACL user that may
 * touch one key and one channel and run the few commands that the script needs. Rows of commands
 * that the server does not have are skipped.
 *
 * One thread, one server for the whole group; each row starts by emptying it. */
#include "group.h"
#include "support/case.h"
#include "support/wait.h"

#define STRING_CHANNEL "holdfast_string:{thelock}"
#define AFTER(text, ttl)                                                                           \
    { LOCK, "string " text, ttl }

/* ---- Scripts ---- */

static const struct grant grants[] = {
    {"string_renew", "~thelock", "", "time get pttl pexpire persist"},
    {"string_lease", "~thelock", "", "time get pttl pexpire"},
};
enum { GRANTS = sizeof grants / sizeof *grants };

#define HELD "SET thelock T PX 5000"
#define OTHER "SET thelock U PX 5000"
#define HASH "HSET thelock f 1"

static const struct row rows[] = {
    /* renewals: raised, never shortened, gone, another's, another type, too late */
    {"renew_raises", HELD, "string_renew", "thelock , 0 30000 T", "1",
     .after = {AFTER("T", 30000)}},
    {"renew_never_shortens", HELD, "string_renew", "thelock , 0 1000 T", "1",
     .after = {AFTER("T", 5000)}},
    {"renew_only_asks", HELD, "string_renew", "thelock , 0 1 T", "1", .after = {AFTER("T", 5000)}},
    {"renew_permanent_stays", "SET thelock T", "string_renew", "thelock , 0 30000 T", "1",
     .after = {AFTER("T", NO_TTL)}},
    {"renew_gone", NULL, "string_renew", "thelock , 0 30000 T", "0", .after = {ABSENT}},
    {"renew_of_another", OTHER, "string_renew", "thelock , 0 30000 T", "0",
     .after = {AFTER("U", 5000)}},
    {"renew_prefix_is_another", "SET thelock TT PX 5000", "string_renew", "thelock , 0 30000 T",
     "0", .after = {AFTER("TT", 5000)}},
    {"renew_wrong_type", HASH, "string_renew", "thelock , 0 30000 T", "-1",
     .after = {{LOCK, "f=1", NO_TTL}}},
    {"renew_no_lease", HELD, "string_renew", "thelock , 0 0 T", "!ERR",
     .after = {AFTER("T", 5000)}},
    {"renew_to_no_lease", HELD, "string_renew", "thelock , 0 -1 T", "1",
     .after = {AFTER("T", NO_TTL)}},
    {"renew_to_no_lease_again", "SET thelock T", "string_renew", "thelock , 0 -1 T", "1",
     .after = {AFTER("T", NO_TTL)}},
    {"renew_to_no_lease_written", "SET thelock T", "string_renew", "thelock , 0 -2 T", "1",
     .after = {AFTER("T", NO_TTL)}},
    {"renew_to_no_lease_of_another", OTHER, "string_renew", "thelock , 0 -1 T", "0",
     .after = {AFTER("U", 5000)}},
    {"renew_to_no_lease_gone", NULL, "string_renew", "thelock , 0 -2 T", "0", .after = {ABSENT}},
    {"renew_to_no_lease_wrong_type", HASH, "string_renew", "thelock , 0 -2 T", "-1",
     .after = {{LOCK, "f=1", NO_TTL}}},
    {"renew_to_no_lease_too_late", HELD, "string_renew", "thelock , @-10 -1 T", "",
     .after = {AFTER("T", 5000)}},
    {"renew_to_less_than_none", HELD, "string_renew", "thelock , 0 -3 T", "!ERR",
     .after = {AFTER("T", 5000)}},
    {"renew_too_late", HELD, "string_renew", "thelock , @-10 30000 T", "",
     .after = {AFTER("T", 5000)}},
    {"renew_in_time", HELD, "string_renew", "thelock , @+60000 30000 T", "1",
     .after = {AFTER("T", 30000)}},

    /* a lease is set, also shorter, or added to; not when it is not ours, or too late */
    {"lease_longer", HELD, "string_lease", "thelock , 0 30000 T set", "1 30000",
     .after = {AFTER("T", 30000)}},
    {"lease_shorter", HELD, "string_lease", "thelock , 0 1000 T set", "1 1000",
     .after = {AFTER("T", 1000)}},
    {"lease_of_a_permanent", "SET thelock T", "string_lease", "thelock , 0 1000 T set", "1 1000",
     .after = {AFTER("T", 1000)}},
    {"lease_added", HELD, "string_lease", "thelock , 0 30000 T add", "1 ~35000",
     .after = {AFTER("T", 35000)}, .resent = {AFTER("T", 65000)}},
    {"lease_added_to_a_permanent", "SET thelock T", "string_lease", "thelock , 0 1000 T add",
     "1 1000", .after = {AFTER("T", NO_TTL)}},
    {"lease_gone", NULL, "string_lease", "thelock , 0 30000 T set", "0 0", .after = {ABSENT}},
    {"lease_of_another", OTHER, "string_lease", "thelock , 0 30000 T add", "0 0",
     .after = {AFTER("U", 5000)}},
    {"lease_wrong_type", HASH, "string_lease", "thelock , 0 30000 T set", "-1 0",
     .after = {{LOCK, "f=1", NO_TTL}}},
    {"lease_none", HELD, "string_lease", "thelock , 0 0 T set", "!ERR",
     .after = {AFTER("T", 5000)}},
    {"lease_too_late", HELD, "string_lease", "thelock , @-10 1000 T set", "-3 0",
     .after = {AFTER("T", 5000)}},
    {"lease_in_time", HELD, "string_lease", "thelock , @+60000 1000 T set", "1 1000",
     .after = {AFTER("T", 1000)}},
};
enum { ROWS = sizeof rows / sizeof *rows };

static struct row_head head_of(size_t i) {
    return (struct row_head){rows[i].name, rows[i].script, rows[i].call};
}

static bool plays(redisContext *user, size_t i, char why[WHY]) {
    return row_plays(stage, user, &rows[i], why);
}

/* ---- Replies without the time: the other scripts, and commands ---- */

static const struct grant release_grant = {"string_release", "~thelock", "&" STRING_CHANNEL,
                                           "get del publish"};
static const struct grant break_grant = {"string_break", "~thelock",
                                         "&" STRING_CHANNEL " &holdfast_ask", "get del publish"};
static const struct grant acquire_grant = {"string_acquire", "~thelock", "",
                                           "get pttl pexpire set"};

/* A reply as text: numbers and strings with spaces between, "nil", "!CODE". */
static void put_reply(const redisReply *reply, char *text, size_t size) {
    size_t len = strlen(text);
    const char *gap = len > 0 ? " " : "";
    if (reply->type == REDIS_REPLY_INTEGER)
        snprintf(text + len, size - len, "%s%lld", gap, reply->integer);
    else if (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS)
        snprintf(text + len, size - len, "%s%s", gap, reply->str);
    else if (reply->type == REDIS_REPLY_NIL)
        snprintf(text + len, size - len, "%snil", gap);
    else if (reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "WRONGTYPE") != NULL)
        snprintf(text + len, size - len, "%s!WRONGTYPE",
                 gap); /* before 7.0 it is not the first word */
    else if (reply->type == REDIS_REPLY_ERROR)
        snprintf(text + len, size - len, "%s!%.*s", gap, (int)strcspn(reply->str, " "), reply->str);
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
        put_reply(reply->element[i], text, size);
}

/* What is there now: the value, or "". */
static void assert_there(const char *value, int64_t ttl_ms, const char *row) {
    redisReply *reply = cmd(stage->server, "GET thelock");
    const char *there = reply->type == REDIS_REPLY_STRING ? reply->str : "";
    if (strcmp(there, value) != 0)
        fail_msg("%s: left '%s' instead of '%s'", row, there, value);
    freeReplyObject(reply);
    long long left_ms = pttl(stage->server, LOCK);
    if (value[0] != '\0' && ttl_ms > 0 && (left_ms > ttl_ms || left_ms < ttl_ms - 4000))
        fail_msg("%s: lasts %lld ms instead of %lld", row, left_ms, (long long)ttl_ms);
    if (value[0] != '\0' && ttl_ms == NO_TTL)
        assert_int_equal(left_ms, -1);
}

struct step_row {
    const char *name, *before, *call, *reply, *again; /* `again`: the reply to the same once more */
    const char *value;                                /* afterwards, both times */
    int64_t ttl_ms;
};

static void prepare(const char *before) {
    cmd_ok(stage->server, "FLUSHALL");
    if (before != NULL)
        cmd_ok(stage->server, before);
}

static void expect_reply(redisReply *reply, const char *wanted, const char *row) {
    char text[256] = "";
    put_reply(reply, text, sizeof text);
    if (strcmp(text, wanted) != 0)
        fail_msg("%s: replied '%s' instead of '%s'", row, text, wanted);
    freeReplyObject(reply);
}

static void play_script(const struct grant *grant, const struct step_row *all, size_t len) {
    char *text = script_text(grant->script), *sha = script_load(stage->server, text);
    redisContext *user = connect_new_user(stage, grant->script, grant, NULL);
    for (size_t i = 0; i < len; i++) {
        prepare(all[i].before);
        int64_t base_ms = server_time_ms(stage->server);
        expect_reply(script_call(user, sha, all[i].call, base_ms), all[i].reply, all[i].name);
        assert_there(all[i].value, all[i].ttl_ms, all[i].name);
        expect_reply(script_call(user, sha, all[i].call, base_ms), all[i].again, all[i].name);
        assert_there(all[i].value, all[i].ttl_ms, all[i].name);
    }
    redisFree(user);
    free(sha);
    free(text);
}
#define PLAY_SCRIPT(grant, rows) play_script(grant, rows, sizeof(rows) / sizeof *(rows))

CASE(S40_release_script) {
    static const struct step_row all[] = {
        {"own", HELD, "thelock , T " STRING_CHANNEL, "0", "-1", "", 0},
        {"gone", NULL, "thelock , T " STRING_CHANNEL, "-1", "-1", "", 0},
        {"late_copy", OTHER, "thelock , T " STRING_CHANNEL, "-1", "-1", "U", 5000},
        {"not_notified", HELD, "thelock , T another", "-2", "-1", "", 0},
        {"sharded", HELD, "thelock , T " STRING_CHANNEL " no-such-command", "-2", "-1", "", 0},
        {"wrong_type", HASH, "thelock , T " STRING_CHANNEL, "!WRONGTYPE", "!WRONGTYPE", "", 0},
    };
    PLAY_SCRIPT(&release_grant, all);
}

CASE(S41_break_script) {
    static const struct step_row all[] = {
        {"own", HELD, "thelock , T publish " STRING_CHANNEL " holdfast_ask broken", "1 0", "0 0",
         "", 0},
        {"no_holders_notified", HELD, "thelock , T publish " STRING_CHANNEL, "1 0", "0 0", "", 0},
        {"another", OTHER, "thelock , T publish " STRING_CHANNEL " holdfast_ask broken", "0 0",
         "0 0", "U", 5000},
        {"holder_not_notified", HELD, "thelock , T publish " STRING_CHANNEL " elsewhere broken",
         "1 -1", "0 0", "", 0},
        {"not_notified", HELD, "thelock , T publish another holdfast_ask broken", "2 0", "0 0", "",
         0},
    };
    PLAY_SCRIPT(&break_grant, all);
}

/* With acks. A resend keeps what a renewal has raised since. */
CASE(S42_acquire_script) {
    static const struct step_row all[] = {
        {"free", NULL, "thelock , T @+30000 1", "1 0", "1 0", "T", 30000},
        {"resend", HELD, "thelock , T @+30000 1", "1 0", "1 0", "T", 5000},
        {"late_resend", "SET thelock T PX 90000", "thelock , T @-10 1", "1 0", "1 0", "T", 90000},
        {"permanent", "SET thelock T", "thelock , T @+30000 1", "1 0", "1 0", "T", NO_TTL},
        {"first_copy", "SET thelock T", "thelock , T @+30000 0", "0 -1 T", "0 -1 T", "T", NO_TTL},
        {"permanent_other", "SET thelock U", "thelock , T @+30000", "0 -1 U", "0 -1 U", "U",
         NO_TTL},
        {"late_copy", NULL, "thelock , T @-10", "1 0", "1 0", "", 0},
        {"wrong_type", HASH, "thelock , T @+30000", "!WRONGTYPE", "!WRONGTYPE", "", 0},
    };
    PLAY_SCRIPT(&acquire_grant, all);
}

static long long writes_so_far(void) {
    own_text *info = cmd_str(stage->server, "INFO persistence");
    const char *field = strstr(info, "rdb_changes_since_last_save:");
    assert_non_null(field);
    return strtoll(strchr(field, ':') + 1, NULL, 10);
}

/* A resend that finds its token writes, since WAIT confirms nothing but writes; a first copy that
 * finds another's does not. */
CASE(S42_a_resend_writes) {
    char *text = script_text(acquire_grant.script), *sha = script_load(stage->server, text);
    redisContext *user = connect_new_user(stage, acquire_grant.script, &acquire_grant, NULL);
    prepare("SET thelock T");
    long long before = writes_so_far();
    expect_reply(script_call(user, sha, "thelock , U @+30000 0", server_time_ms(stage->server)),
                 "0 -1 T", "another");
    assert_int_equal(writes_so_far(), before);
    prepare(HELD);
    before = writes_so_far();
    expect_reply(script_call(user, sha, "thelock , T @+30000 1", server_time_ms(stage->server)),
                 "1 0", "resend");
    assert_int_equal(writes_so_far(), before + 1);
    redisFree(user);
    free(sha);
    free(text);
}

/* ---- Commands ---- */

/* As a user that may touch the lock's key and run nothing but the command. */
static redisContext *command_user;

static redisReply *run_command(const char *line, int64_t base_ms) {
    struct words words, sent = {0};
    words_cut(&words, line);
    static char numbers[4][24];
    for (size_t i = 0; i < words.count; i++) {
        const char *word = words.item[i];
        if (word[0] == '@') {
            snprintf(numbers[i % 4], sizeof numbers[0], "%lld",
                     (long long)(base_ms + strtoll(word + 1, NULL, 10)));
            word = numbers[i % 4];
        }
        words_add(&sent, word);
    }
    return words_send(command_user, &sent);
}

static void become(const char *command) {
    const struct grant grant = {command, "~thelock", "", command};
    command_user = connect_new_user(stage, command, &grant, NULL);
}

/* Without the right nothing runs: so the rows are about this right and no other. */
static void end_being(const char *command, const char *line) {
    redisFree(command_user);
    const struct grant grant = {command, "~thelock", "", command};
    prepare(NULL);
    command_user = connect_new_user(stage, "nobody", &grant, command);
    expect_reply(run_command(line, server_time_ms(stage->server)), "!NOPERM", line);
    redisFree(command_user);
    command_user = NULL;
}

/* False: the server does not have it. */
static bool knows(const char *line) {
    prepare(NULL);
    command_user = connect_as(stage->server, NULL, NULL);
    own_reply *reply = run_command(line, server_time_ms(stage->server));
    redisFree(command_user);
    return reply->type != REDIS_REPLY_ERROR;
}

static void play_commands(const char *command, const struct step_row *all, size_t len) {
    become(command);
    for (size_t i = 0; i < len; i++) {
        prepare(all[i].before);
        int64_t base_ms = server_time_ms(stage->server);
        expect_reply(run_command(all[i].call, base_ms), all[i].reply, all[i].name);
        assert_there(all[i].value, all[i].ttl_ms, all[i].name);
        expect_reply(run_command(all[i].call, base_ms), all[i].again, all[i].name);
        assert_there(all[i].value, all[i].ttl_ms, all[i].name);
    }
    end_being(command, all[0].call);
}
#define PLAY_COMMANDS(command, rows) play_commands(command, rows, sizeof(rows) / sizeof *(rows))

CASE(S43_acquire_command) {
    static const struct step_row all[] = {
        {"free", NULL, "SET thelock T NX GET PXAT @+30000", "nil", "T", "T", 30000},
        {"resend_does_not_lengthen", HELD, "SET thelock T NX GET PXAT @+30000", "T", "T", "T",
         5000},
        {"taken", OTHER, "SET thelock T NX GET PXAT @+30000", "U", "U", "U", 5000},
        {"late_copy_of_taken", OTHER, "SET thelock T NX GET PXAT @-10", "U", "U", "U", 5000},
        {"late_copy_answers_like_a_grant", NULL, "SET thelock T NX GET PXAT @-10", "nil", "nil", "",
         0},
        {"wrong_type", HASH, "SET thelock T NX GET PXAT @+30000", "!WRONGTYPE", "!WRONGTYPE", "",
         0},
    };
    if (!knows(all[0].call))
        skip();
    PLAY_COMMANDS("set", all);
}

/* Before 7.0: GET follows. */
CASE(S44_acquire_command_without_get) {
    static const struct step_row all[] = {
        {"free", NULL, "SET thelock T NX PXAT @+30000", "OK", "nil", "T", 30000},
        {"resend", HELD, "SET thelock T NX PXAT @+30000", "nil", "nil", "T", 5000},
        {"taken", OTHER, "SET thelock T NX PXAT @+30000", "nil", "nil", "U", 5000},
        {"late_copy", NULL, "SET thelock T NX PXAT @-10", "OK", "OK", "", 0},
        {"wrong_type", HASH, "SET thelock T NX PXAT @+30000", "nil", "nil", "", 0},
    };
    PLAY_COMMANDS("set", all);
}

CASE(S45_release_commands) {
    static const struct step_row by_delifeq[] = {
        {"own", HELD, "DELIFEQ thelock T", "1", "0", "", 0},
        {"gone", NULL, "DELIFEQ thelock T", "0", "0", "", 0},
        {"late_copy", OTHER, "DELIFEQ thelock T", "0", "0", "U", 5000},
        {"wrong_type", HASH, "DELIFEQ thelock T", "!WRONGTYPE", "!WRONGTYPE", "", 0},
    };
    static const struct step_row by_delex[] = {
        {"own", HELD, "DELEX thelock IFEQ T", "1", "0", "", 0},
        {"gone", NULL, "DELEX thelock IFEQ T", "0", "0", "", 0},
        {"late_copy", OTHER, "DELEX thelock IFEQ T", "0", "0", "U", 5000},
        {"wrong_type", HASH, "DELEX thelock IFEQ T", "!ERR", "!ERR", "", 0},
    };
    bool one = knows("DELIFEQ thelock T"), other = knows("DELEX thelock IFEQ T");
    if (one)
        PLAY_COMMANDS("delifeq", by_delifeq);
    if (other)
        PLAY_COMMANDS("delex", by_delex);
    if (!one && !other)
        skip();
}

/* A renewal never uses PXAT: a late copy would delete the hold. */
CASE(S46_renewal_command) {
    static const struct step_row all[] = {
        {"own", HELD, "SET thelock T IFEQ T PX 30000", "OK", "OK", "T", 30000},
        {"only_asks", HELD, "SET thelock T IFEQ T KEEPTTL", "OK", "OK", "T", 5000},
        {"permanent_asked", "SET thelock T", "SET thelock T IFEQ T KEEPTTL", "OK", "OK", "T",
         NO_TTL},
        {"gone", NULL, "SET thelock T IFEQ T PX 30000", "nil", "nil", "", 0},
        {"another", OTHER, "SET thelock T IFEQ T PX 30000", "nil", "nil", "U", 5000},
        {"why_not_pxat", HELD, "SET thelock T IFEQ T PXAT @-10", "OK", "nil", "", 0},
    };
    if (!knows(all[0].call))
        skip();
    PLAY_COMMANDS("set", all);
}

/* ---- All of them ---- */

int main(void) {
    struct table table = {.channel = CHANNEL,
                          .grants = grants,
                          .grant_count = GRANTS,
                          .row_count = ROWS,
                          .head = head_of,
                          .plays = plays};
    return group_run(&table);
}
