/*
 * A target with several hosts: tried in turn, starting with any of them, each with its own lookup.
 *
 * The servers are real. A dead host has a path where no server listens; a silent one is frozen. The
 * first host is picked at random, so each test that must not depend on it is repeated many times.
 */
#include "net/caller.h"

enum { HOSTS = 3 };

struct world {
    struct raw raw;
    struct hfi_host hosts[HOSTS];
    char names[HOSTS][160];
};

static struct server *servers[HOSTS];

/* A lookup that finds a path. */
static int resolve(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs, size_t cap,
                   size_t *ret_count, hf_error *error) {
    (void)deadline_ms;
    (void)cap;
    if (strcmp(target, "nowhere") == 0)
        return hfi_fail(error, HF_EUNREACH, "there is no such host");
    *ret_count = 1;
    return hfi_addr_unix(target, &ret_addrs[0]);
}

/* Every second one has to be looked up. */
static void world_begin(struct world *world, const char *const *paths, size_t len,
                        int64_t cmd_timeout_ms) {
    hf_error error = {.code = HF_OK};
    struct raw *raw = &world->raw;
    memset(world, 0, sizeof *world);
    assert_int_equal(hfi_keeper_new(&raw->mem, &raw->keeper, &error), HF_OK);
    for (size_t i = 0; i < len; i++) {
        struct hfi_host *host = &world->hosts[i];
        snprintf(world->names[i], sizeof world->names[i], "host %zu", i);
        host->name = world->names[i];
        host->resolve = i % 2 == 1 ? resolve : NULL;
        host->resolve_arg = paths[i];
        assert_int_equal(hfi_addr_unix(paths[i], &host->address), HF_OK);
    }
    raw->login.client_name = "hosts";
    raw->target = (struct hfi_target){.mem = &raw->mem,
                                      .log = &raw->log,
                                      .keeper = raw->keeper,
                                      .hosts = world->hosts,
                                      .hosts_len = len,
                                      .node = "all of them",
                                      .protocol = &hfi_resp,
                                      .login = &raw->login,
                                      .cmd_timeout_ms = cmd_timeout_ms,
                                      .ping_interval_ms = 60000};
    raw->conn = hfi_conn_new(&raw->target, HFI_DRIVER_CALLERS, NULL, NULL, NULL);
    assert_non_null(raw->conn);
    assert_int_equal(hfi_keeper_start(raw->keeper, &error), HF_OK);
}

static void world_end(struct world *world) {
    raw_end(&world->raw);
}

static int try_to_connect(struct world *world, hf_error *ret_error) {
    struct caller caller;
    struct hfi_want want = {.err = HF_OK};
    caller_begin(&caller, &world->raw);
    hfi_conn_want(world->raw.conn, &want, &caller.task, EVENT_READY);
    while ((caller.news & EVENT_READY) == 0)
        if (!hfi_exec_run(&caller.exec))
            hfi_exec_sleep(&caller.exec);
    hfi_conn_unwant(world->raw.conn, &want);
    caller_end(&caller);
    *ret_error = want.error;
    return want.err;
}

/* One is dead, whichever it is, and it does not matter where the attempt begins. */
CASE(a_dead_host_is_passed_over) {
    const char *const forms[][2] = {{"/nowhere/to/be/found", server_socket(servers[0])},
                                    {server_socket(servers[0]), "/nowhere/to/be/found"},
                                    {server_socket(servers[0]), "nowhere"}};
    for (int i = 0; i < 24; i++) {
        struct world world;
        world_begin(&world, forms[i % 3], 2, 20000);
        raw_connect(&world.raw); /* at the first attempt */
        assert_raw_works(&world.raw);
        world_end(&world);
    }
}

CASE(any_may_be_the_first) {
    const char *paths[HOSTS];
    bool seen[HOSTS] = {false};
    for (size_t i = 0; i < HOSTS; i++)
        paths[i] = server_socket(servers[i]);
    for (int i = 0; i < 200 && !(seen[0] && seen[1] && seen[2]); i++) {
        struct world world;
        world_begin(&world, paths, HOSTS, 20000);
        raw_connect(&world.raw);
        seen[world.raw.conn->host] = true;
        world_end(&world);
    }
    assert_true(seen[0] && seen[1] && seen[2]); /* not so once in 10^35 */
}

/* The one in use dies, and there is another; then it comes back, and the other dies. */
CASE(the_one_in_use_dies) {
    OWN(world_end) struct world world;
    const char *const paths[] = {server_socket(servers[0]), server_socket(servers[1])};
    world_begin(&world, paths, 2, 20000);
    raw_connect(&world.raw);
    assert_raw_works(&world.raw);
    for (int i = 0; i < 4; i++) {
        size_t used = world.raw.conn->host;
        server_kill(servers[used]);
        hfi_conn_check_alive(world.raw.conn);
        raw_connect(&world.raw);
        assert_int_equal(world.raw.conn->host, 1 - used);
        assert_raw_works(&world.raw);
        server_restart(servers[used]);
    }
}

/* A host that accepts and says nothing takes its share of the time, and no more. */
CASE(a_silent_host_leaves_time_for_others) {
    const char *const paths[] = {server_socket(servers[0]), server_socket(servers[1])};
    server_freeze(servers[0]);
    for (int i = 0; i < 6; i++) {
        struct world world;
        world_begin(&world, paths, 2, 5000);
        raw_connect(&world.raw);
        assert_int_equal(world.raw.conn->host, 1);
        assert_raw_works(&world.raw);
        world_end(&world);
    }
    server_unfreeze(servers[0]);
}

CASE(all_dead_says_why_for_each) {
    OWN(world_end) struct world world;
    const char *const paths[] = {"/nowhere/to/be/found", "nowhere", "/nor/here"};
    hf_error error;
    world_begin(&world, paths, HOSTS, 20000);
    assert_int_equal(try_to_connect(&world, &error), HF_EUNREACH);
    assert_non_null(strstr(error.text, "host 0: cannot connect: No such file or directory"));
    assert_non_null(strstr(error.text, "host 1: there is no such host"));
    assert_non_null(strstr(error.text, "host 2: cannot connect: No such file or directory"));
    assert_string_equal(error.node, "all of them");
}

/* A refusal says more than that another host is not there. */
CASE(a_refusal_decides) {
    const struct server_options options = {.password = "secret"};
    own_server *strict = server_start(&options);
    const char *const paths[] = {server_socket(strict), "nowhere"};
    for (int i = 0; i < 12; i++) {
        struct world world;
        hf_error error;
        world_begin(&world, paths, 2, 20000);
        assert_int_equal(try_to_connect(&world, &error), HF_EPERM);
        assert_non_null(strstr(error.text, "host 0: the server refused: NOAUTH"));
        assert_non_null(strstr(error.text, "host 1: there is no such host"));
        world_end(&world);
    }
}

static int start_servers(void **state) {
    (void)state;
    for (size_t i = 0; i < HOSTS; i++)
        servers[i] = server_start(NULL);
    return 0;
}

static int stop_servers(void **state) {
    (void)state;
    for (size_t i = 0; i < HOSTS; i++)
        server_free(servers[i]);
    return 0;
}

RUN_CASES(start_servers, stop_servers)
