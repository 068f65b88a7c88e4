/*
 * Servers that do not have a command, or have it under another name (`rename-command`, as managed servers do): U47.
 * What locks can do without is done without; what they cannot is told at once, as HF_ENOTSUP with the server's words.
 *
 * A server of its own for each command.
 */
#include "lock/world.h"

#include <stdio.h>
#include <string.h>

struct missing {
    const char *command;
    int acquired;          /* what an acquire says */
    int surveyed;          /* and a survey */
    unsigned not_surveyed; /* what that does without */
};

static struct missing all[] = {
    {"EVALSHA", HF_OK, HF_OK, 0},
    {"EVAL", HF_ENOTSUP, HF_OK, 0}, /* there is nothing to look at */
    {"SCRIPT", HF_OK, HF_OK, 0},
    {"HELLO", HF_OK, HF_OK, 0},
    {"CLIENT", HF_OK, HF_OK, HF_MISSING_CONNECTIONS},
    {"INFO", HF_OK, HF_OK, 0},
    {"WAIT", HF_OK, HF_OK, 0},
    {"SUBSCRIBE", HF_OK, HF_OK, HF_MISSING_ANSWERS},
    {"PUBLISH", HF_OK, HF_OK, HF_MISSING_ANSWERS},
    {"SSUBSCRIBE", HF_OK, HF_OK, 0},
    {"PUBSUB", HF_OK, HF_OK, 0},
    {"SCAN", HF_OK, HF_ENOTSUP, 0},
    {"PEXPIRE", HF_ENOTSUP, HF_OK, 0}, /* which only scripts use */
};
enum { ALL = sizeof all / sizeof *all };

/* An older one may not know it at all, and then there is nothing to take away. */
static bool server_knows(const char *command) {
    struct server *server = server_start(NULL);
    redisReply *reply = cmd(server, "COMMAND INFO %s", command);
    bool knows = reply->elements == 1 && reply->element[0]->type == REDIS_REPLY_ARRAY;
    freeReplyObject(reply);
    server_free(server);
    return knows;
}

static struct server *server_without(const char *command) {
    char line[64];
    const char *const config[] = {line, NULL};
    snprintf(line, sizeof line, "rename-command %s \"\"", command);
    return server_start(&(struct server_options){.config = config});
}

/* The server's words name the command, and nothing of what we sent. */
static void assert_told_of(const char *command, int code) {
    const char *words = hf_last_error()->text;
    if (code != HF_ENOTSUP)
        return;
    if (strcmp(command, "PEXPIRE") != 0) /* in a script they do not */
        assert_non_null(strstr(words, command));
    assert_null(strstr(words, "args"));
}

static void U47_a_command_that_is_not_there(void **state) {
    const struct missing *missing = *state;
    hf_client *client;
    hf_lock *lock;
    hf_fleet *fleet = NULL;
    if (!server_knows(missing->command))
        skip();
    struct server *server = server_without(missing->command);
    assert_int_equal(hf_open(server_url(server), NULL, &client), HF_OK);
    assert_int_equal(hf_lock_new(client, WORLD_NAME, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), missing->acquired);
    assert_told_of(missing->command, missing->acquired);
    if (missing->acquired == HF_OK) {
        assert_true(key_exists(server, WORLD_NAME));
        assert_int_equal(hf_lock_extend(lock, 60000), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_false(key_exists(server, WORLD_NAME));
    }
    assert_int_equal(hf_survey(client, NULL, &fleet), missing->surveyed);
    assert_told_of(missing->command, missing->surveyed);
    if (missing->surveyed == HF_OK)
        assert_int_equal(fleet->missing, missing->not_surveyed);
    hf_fleet_free(fleet);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    server_free(server);
}

int main(void) {
    struct CMUnitTest tests[ALL];
    for (size_t i = 0; i < ALL; i++)
        tests[i] = (struct CMUnitTest){.name = all[i].command,
                                       .test_func = U47_a_command_that_is_not_there,
                                       .initial_state = &all[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
