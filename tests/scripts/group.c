/* Runs a table of rows as a group of tests; see group.h.
 *
 * Called by the main() of the table tests, from their one thread. There is one group in a program,
 * with one server; the users and the scripts are made before the first test, and each row starts by
 * emptying the server. A row that needs a command the server does not know is skipped. */
#include "group.h"

#include "support/case.h"
#include "support/wait.h"

enum { GRANTS_MAX = 16 };

struct stage *stage;

static struct {
    const struct table *table;
    struct row_head *heads;
    redisContext *user[GRANTS_MAX];
    bool sharded; /* the server knows SPUBLISH, Redis 7 */
} group;

static int open_group(void **state) {
    (void)state;
    stage = stage_open(group.table->channel);
    group.sharded = server_knows(stage->server, "spublish");
    for (size_t i = 0; i < group.table->grant_count; i++) {
        const struct grant *grant = &group.table->grants[i];
        stage_sha(stage, grant->script);
        group.user[i] = connect_new_user(stage, grant->script, grant, NULL);
    }
    return 0;
}

static int close_group(void **state) {
    (void)state;
    for (size_t i = 0; i < group.table->grant_count; i++)
        redisFree(group.user[i]);
    stage_close(stage);
    return 0;
}

/* ---- The tests of a table ------------------------------------------------------------------- */

static bool row_applies(const struct row_head *head) {
    return group.sharded || strstr(head->call, "spublish") == NULL;
}

static void play_row(void **state) {
    const struct row_head *head = *state;
    char why[WHY];
    if (!row_applies(head))
        skip();
    if (!group.table->plays(user_of(head->script), (size_t)(head - group.heads), why))
        fail_msg("%s %s: %s", head->script, head->call, why);
}

static bool all_rows_play(redisContext *user, const char *script) {
    char why[WHY];
    for (size_t i = 0; i < group.table->row_count; i++)
        if (strcmp(group.heads[i].script, script) == 0 && row_applies(&group.heads[i]) &&
            !group.table->plays(user, i, why))
            return false;
    return true;
}

/* Take any one command away, and some row of that script fails. */
static void no_command_is_granted_in_vain(void **state) {
    (void)state;
    for (size_t i = 0; i < group.table->grant_count; i++) {
        const struct grant *grant = &group.table->grants[i];
        struct words commands;
        words_cut(&commands, grant->commands);
        for (size_t j = 0; j < commands.count; j++) {
            if (!group.sharded && strcmp(commands.item[j], "spublish") == 0)
                continue;
            redisContext *user = connect_new_user(stage, "poorer", grant, commands.item[j]);
            bool needless = all_rows_play(user, grant->script);
            redisFree(user);
            if (needless)
                fail_msg("%s does not need +%s", grant->script, commands.item[j]);
        }
    }
}

int group_run(const struct table *table) {
    size_t rows = table->row_count;
    group.table = table;
    group.heads = calloc(rows, sizeof *group.heads);
    if (group.heads == NULL || table->grant_count > GRANTS_MAX)
        support_die("no room for the table");
    for (size_t i = 0; i < rows; i++) {
        group.heads[i] = table->head(i);
        test_case_add(group.heads[i].name, play_row, &group.heads[i]);
    }
    test_case_add("no_command_is_granted_in_vain", no_command_is_granted_in_vain, NULL);
    int failed = test_cases_run(open_group, close_group);
    free(group.heads);
    return failed;
}

/* ---- For the other tests -------------------------------------------------------------------- */

static size_t index_of(const char *script) {
    for (size_t i = 0; i < group.table->grant_count; i++)
        if (strcmp(group.table->grants[i].script, script) == 0)
            return i;
    fail_msg("nothing is granted for %s", script);
    return 0;
}

const struct grant *grant_of(const char *script) {
    return &group.table->grants[index_of(script)];
}

redisContext *user_of(const char *script) {
    return group.user[index_of(script)];
}

void assert_plays(redisContext *user, const struct row *row) {
    char why[WHY];
    if (!row_plays(stage, user, row, why))
        fail_msg("%s %s: %s", row->script, row->call, why);
}

void assert_code(redisContext *user, const char *script, const char *call, const char *expected) {
    redisReply *reply = script_written_out(script_call(user, stage_sha(stage, script), call, 0), 0);
    char got[32] = "neither numbers nor an error";
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0)
        snprintf(got, sizeof got, "%lld", reply->element[0]->integer);
    else if (reply->type == REDIS_REPLY_ERROR)
        snprintf(got, sizeof got, "%.3s", script_error(reply));
    freeReplyObject(reply);
    if (strcmp(got, expected) != 0)
        fail_msg("%s %s: %s instead of %s", script, call, got, expected);
}

void use_up_memory(void) {
    cmd_ok(stage->server, "CONFIG SET maxmemory-policy noeviction");
    cmd_ok(stage->server, "CONFIG SET maxmemory 1");
    own_reply *reply = cmd(stage->server, "SET probe 1");
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    assert_memory_equal(reply->str, "OOM", 3);
}

void free_up_memory(void) {
    cmd_ok(stage->server, "CONFIG SET maxmemory 0");
}
