/*
 * Servers that do not have a command, or have it under another name (`rename-command`, as managed servers do): U47.
 * What locks can do without is done without; what they cannot is reported at once, as HF_ENOTSUP with the server's
 * words.
 *
 * A server of its own for each command.
 */
#include "support/world.h"

struct missing {
    const char *command;
    int acquired;          /* what an acquire says */
    int surveyed;          /* and a survey */
    unsigned not_surveyed; /* what that does without */
};

static const struct missing all[] = {
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
/* An older one may not know it at all, and then there is nothing to take away. */
static bool server_knows(const char *command) {
    own_server *server = server_start(NULL);
    own_reply *reply = cmd(server, "COMMAND INFO %s", command);
    return reply->elements == 1 && reply->element[0]->type == REDIS_REPLY_ARRAY;
}

static struct server *server_without(const char *command) {
    char line[64];
    const char *const config[] = {line, NULL};
    snprintf(line, sizeof line, "rename-command %s \"\"", command);
    return server_start(&(struct server_options){.config = config});
}

/* The server's words name the command, and nothing of what we sent. */
static void assert_error_names(const char *command, int code) {
    const char *words = hf_last_error()->text;
    if (code != HF_ENOTSUP)
        return;
    if (strcmp(command, "PEXPIRE") != 0) /* in a script they do not */
        assert_non_null(strstr(words, command));
    assert_null(strstr(words, "args"));
}

ROW_CASES(U47_a_command_that_is_not_there, missing, all) {
    hf_fleet *fleet = NULL;
    if (!server_knows(missing->command))
        skip();
    struct server *server = server_without(missing->command);
    hf_client *client = made(hf_open, server_url(server), NULL);
    hf_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(lock), missing->acquired);
    assert_error_names(missing->command, missing->acquired);
    if (missing->acquired == HF_OK) {
        assert_true(key_exists(server, WORLD_NAME));
        assert_int_equal(hf_lock_extend(lock, 60000), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_false(key_exists(server, WORLD_NAME));
    }
    assert_int_equal(hf_survey(client, NULL, &fleet), missing->surveyed);
    assert_error_names(missing->command, missing->surveyed);
    if (missing->surveyed == HF_OK)
        assert_int_equal(fleet->missing, missing->not_surveyed);
    hf_fleet_free(fleet);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    server_free(server);
}

/* ---- No scripts at all ---- */

/* Two ways to have none. NULL: this server cannot. */
static struct server *server_with_no_commands(void) {
    static const char *const config[] = {"rename-command EVAL \"\"", "rename-command EVALSHA \"\"",
                                         NULL};
    return server_start(&(struct server_options){.config = config});
}

/* Valkey 9.1, whose Lua is a module: unloaded, or built without and never loaded. */
static bool unload_lua(struct server *server) {
    freeReplyObject(cmd(server, "MODULE UNLOAD lua"));
    own_reply *reply = cmd(server, "EVAL %s 0", "return 1");
    return reply->type == REDIS_REPLY_ERROR;
}

static struct server *server_with_no_module(void) {
    struct server *server = server_start(NULL);
    if (unload_lua(server))
        return server;
    server_free(server);
    return NULL;
}

struct scriptless {
    const char *what;
    struct server *(*start)(void);
    const char *words; /* the server's own */
};

static const struct scriptless ways[] = {
    {"no command", server_with_no_commands, "EVAL"},
    {"no module", server_with_no_module, "Could not find scripting engine"},
};

static void assert_no_scripting(const struct scriptless *row, int code) {
    const char *text = hf_last_error()->text;
    assert_int_equal(code, HF_ENOTSUP);
    assert_non_null(strstr(text, "the server runs no scripts"));
    assert_non_null(strstr(text, "Lua module is not loaded"));
    assert_non_null(strstr(text, row->words));
}

static void try_locks(const struct scriptless *row, hf_client *client) {
    static const any_kind kinds[] = {HF_PLAIN,
                                     HF_PLAIN | HF_NONREENTRANT,
                                     HF_PLAIN | HF_SPIN,
                                     HF_PLAIN | HF_FENCED,
                                     HF_FAIR,
                                     HF_FAIR | HF_NONREENTRANT,
                                     HF_READ,
                                     HF_WRITE,
                                     HF_PLAIN | HF_COHORT};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        own_lock *lock = made(new_lock, client, kinds[i], WORLD_NAME, strlen(WORLD_NAME));
        assert_no_scripting(row, hf_lock_acquire(lock)); /* without a limit: it does not wait */
        assert_no_scripting(row, hf_lock_try(lock));
    }
}

static void try_several(const struct scriptless *row, hf_client *client) {
    static const hf_bytes values[] = {{"a", 1}, {"b", 1}};
    hf_lock *members[2], *group;
    assert_int_equal(hf_lock_new_group(client, "group", 5, values, 2, &group), HF_OK);
    assert_no_scripting(row, hf_lock_acquire(group));
    hf_lock_free(group);
    assert_int_equal(hf_lock_new(client, "one", &members[0]), HF_OK);
    assert_int_equal(hf_lock_new(client, "two", &members[1]), HF_OK);
    hf_lock *all_of_them = made(hf_lock_new_multi, members, 2);
    assert_no_scripting(row, hf_lock_acquire(all_of_them));
    hf_lock_free(all_of_them);
    hf_lock_free(members[0]);
    hf_lock_free(members[1]);
}

static void try_objects(const struct scriptless *row, hf_client *client) {
    own_sem *sem;
    own_permits *permits;
    own_latch *latch;
    hf_permit_id id;
    bool set;
    assert_int_equal(hf_sem_new(client, "sem", &sem), HF_OK);
    assert_int_equal(hf_permits_new(client, "permits", &permits), HF_OK);
    assert_int_equal(hf_latch_new(client, "latch", &latch), HF_OK);
    assert_no_scripting(row, hf_sem_try_set(sem, 1, 0, &set));
    assert_no_scripting(row, hf_sem_acquire(sem, 1));
    assert_no_scripting(row, hf_permits_try_set(permits, 1, &set));
    assert_no_scripting(row, hf_permits_acquire(permits, &id));
    assert_no_scripting(row, hf_latch_try_set(latch, 1, &set));
    assert_no_scripting(row, hf_latch_count_down(latch));
}

ROW_CASES(U47_no_scripting_is_reported_by_a_quorum, scriptless, ways) {
    enum { SERVERS = 3 };
    struct server *servers[SERVERS];
    char urls[1024] = "";
    for (int i = 0; i < SERVERS; i++) {
        servers[i] = scriptless->start();
        if (servers[i] == NULL)
            skip();
        snprintf(urls + strlen(urls), sizeof urls - strlen(urls), "%s%s", i > 0 ? " " : "",
                 server_url(servers[i]));
    }
    hf_client *client = made(hf_open, urls, NULL);
    hf_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    assert_no_scripting(scriptless, hf_lock_try(lock));
    assert_no_scripting(scriptless, hf_lock_acquire(lock));
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    for (int i = 0; i < SERVERS; i++)
        server_free(servers[i]);
}

ROW_CASES(U47_no_scripting_is_reported_by_every_kind, scriptless, ways) {
    own_server *server = scriptless->start();
    if (server == NULL)
        skip();
    own_client *client = made(hf_open, server_url(server), NULL);
    try_locks(scriptless, client);
    try_several(scriptless, client);
    try_objects(scriptless, client);
    assert_int_equal(cmd_int(server, "DBSIZE"), 0);
}

/* ---- Scripts that go away ---- */

/* The module is unloaded under a hold: the holder's calls name the cause, and its deadline counts on. */
CASE(U47_scripting_that_goes_away_is_reported_to_the_holder) {
    static const struct scriptless *const row = &ways[1];
    hf_options options = HF_OPTIONS_INIT;
    struct world_events events = {0};
    struct server *server = server_start(NULL);
    options.watchdog_ms = ENDURING_MS;
    hf_client *client = made(hf_open, server_url(server), &options);
    hf_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    assert_int_equal(hf_lock_on_lost(lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    bool unloaded = unload_lua(server);
    if (unloaded) {
        assert_no_scripting(row, hf_lock_extend(lock, 60000));
        assert_no_scripting(row, hf_lock_acquire(lock)); /* nested */
        assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
        assert_int_equal(atomic_load(&events.warnings), 1);
        assert_int_equal(hf_lock_remaining_ms(lock), 0);
    }
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    server_free(server);
    if (!unloaded) /* Lua is no module of this server */
        skip();
}

RUN_CASES(NULL, NULL)
