/*
 * Servers whose clocks differ. A replicated lease ends by the clock of the server that has it, and
 * scripts compare `not-after` with it. So each node is sent its own server's time, and a difference
 * that matters is logged. The sentinel is scripted, the servers are real.
 */
#include "route/scripted.h"

#include "route/scene.h"
#include "support/step.h"

#define OFF_MS 60000 /* a fifth of the lease */

static bool can_step;

static int start(void **state) {
    can_step = step_preload(HF_TEST_STEPPED_CLOCK);
    return scripted_start_servers(state);
}

struct warnings {
    atomic_int ahead, behind;
};

static void note(hf_log_level level, const char *message, void *user) {
    struct warnings *warnings = user;
    if (level == HF_LOG_WARN && strstr(message, "the clock of") != NULL)
        atomic_fetch_add(strstr(message, "ahead") != NULL ? &warnings->ahead : &warnings->behind,
                         1);
}

static void change(struct scripted *sentinel, hf_client *client, int i) {
    uint64_t switches = scene_stats(client).failovers;
    scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[i]), (int)switches + 2);
    freeReplyObject(cmd(scripted_servers[1 - i], "CLIENT KILL TYPE normal"));
    assert_true(scene_wait_switches(client, switches + 1));
}

static void pair(hf_lock *lock) {
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* Commands are timed by the clock of the node that gets them, so none is late there; the difference is reported, both
 * ways, and a small one is not. */
CASE(clocks_that_differ) {
    if (!can_step) {
        print_message("the clock of this server cannot be stepped: skipped\n");
        skip();
    }
    struct scripted *sentinel = scripted_start();
    struct warnings warnings = {0};
    hf_options options = scene_options();
    char url[256];
    options.log = note;
    options.log_user = &warnings;
    scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[0]), 1);
    snprintf(url, sizeof url, "redis-sentinel://" LOCALHOST ":%d/" SCRIPTED_NAME,
             scripted_port(sentinel));
    hf_client *client = made(hf_open, url, &options);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "clocks"),
            *fair = scene_lock(client, HF_FAIR, "line");
    pair(lock);
    change(sentinel, client, 1);
    pair(lock);
    assert_int_equal(atomic_load(&warnings.ahead) + atomic_load(&warnings.behind), 0);
    step_clock(scripted_servers[0], OFF_MS);
    change(sentinel, client, 0);
    assert_int_equal(atomic_load(&warnings.ahead), 1);
    pair(lock);
    pair(fair);
    change(sentinel, client, 1);
    assert_int_equal(atomic_load(&warnings.behind), 1);
    pair(lock);
    pair(fair);
    assert_int_equal(scene_stats(client).losses, 0);
    step_clock(scripted_servers[0], 0);
    hf_lock_free(lock);
    hf_lock_free(fair);
    hf_close(client);
    scripted_free(sentinel);
}

RUN_CASES(start, scripted_stop_servers)
