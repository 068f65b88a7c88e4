/*
 * A parent's connections while a forked child has copies of their descriptors.
 *
 * The child does nothing and knows nothing of them, as one that was forked for something else. The
 * kernel keeps a socket that only the parent has closed: open towards the server, and in every
 * epoll set that it was in. So whatever the parent closes must be ended and taken out by it.
 */
#include "net/scene.h"
#include "support/case.h"

#include <poll.h>

static const char *const *both_urls(void) {
    static const char *urls[3];
    urls[0] = server_url(scene_server());
    urls[1] = server_tcp_url(scene_server());
    return urls;
}

static void count_callback(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    assert_int_equal(result->code, HF_OK);
    ++*(int *)user;
}

static void ping_by_dispatch(hf_client *client) {
    int calls = 0;
    assert_int_equal(hf_ping_start(client, count_callback, &calls, NULL), HF_OK);
    while (calls == 0)
        assert_true(hf_dispatch(client, HANG_MS) >= 0);
    assert_int_equal(calls, 1);
}

/* Turns the application's loop until the descriptor is quiet. False: it did not become so. */
static bool comes_to_rest(hf_client *client) {
    int64_t end_ms = now_ms() + HANG_MS;
    struct pollfd fd = {.fd = hf_dispatch_fd(client), .events = POLLIN};
    while (now_ms() < end_ms) {
        if (poll(&fd, 1, 300) == 0)
            return true;
        assert_true(hf_dispatch(client, 0) >= 0);
    }
    return false;
}

CASE(the_dispatch_fd_rests_after_a_loss) {
    struct server *server = scene_server();
    for (const char *const *url = both_urls(); *url != NULL; url++) {
        hf_options options = scene_options();
        options.flags = HF_MANUAL_DISPATCH;
        own_client *client = scene_open(*url, &options);
        ping_by_dispatch(client);
        assert_true(comes_to_rest(client));
        long long ids[SCENE_CONNS];
        assert_int_equal(scene_conns(server, client, ids), 1);
        pid_t child = run_child(child_waits_for_ever, NULL);

        scene_kill(server, ids[0]);
        struct pollfd fd = {.fd = hf_dispatch_fd(client), .events = POLLIN};
        assert_int_equal(poll(&fd, 1, HANG_MS), 1); /* it reports the loss, once */
        assert_true(comes_to_rest(client));
        ping_by_dispatch(client);
        assert_true(comes_to_rest(client));

        kill_child(child);
    }
}

static bool nobody_is_connected(void *arg) {
    return server_clients(arg) == 0;
}

/* With a subscription, and with every kind of connection that there is. */
CASE(close_ends_the_connections) {
    struct server *server = scene_server();
    for (const char *const *url = both_urls(); *url != NULL; url++) {
        hf_client *rival = scene_open(*url, NULL);
        hf_lock *held = scene_lock(rival, "forked");
        assert_int_equal(hf_lock_acquire(held), HF_OK);
        hf_options options = scene_options();
        options.flags = HF_MANUAL_DISPATCH;
        hf_client *client = scene_open(*url, &options);
        hf_lock *lock = scene_lock(client, "forked");
        struct scene_call waiter;
        scene_acquire(&waiter, lock, HF_FOREVER, NULL);
        scene_wait_subscribed(server, "forked");
        ping_by_dispatch(client);
        long long ids[SCENE_CONNS];
        assert_true(scene_conns(server, client, ids) >= 3);
        pid_t child = run_child(child_waits_for_ever, NULL);

        assert_int_equal(hf_close(client), HF_OK);
        assert_int_equal(scene_join(&waiter), HF_ECLOSED);
        hf_lock_free(lock);
        assert_int_equal(hf_lock_release(held), HF_OK);
        hf_lock_free(held);
        assert_int_equal(hf_close(rival), HF_OK);
        assert_true(wait_until(nobody_is_connected, server, HANG_MS));
        kill_child(child);
    }
}

struct gone {
    const hf_client *client;
    long long id;
};

static bool is_gone(void *arg) {
    const struct gone *gone = arg;
    long long ids[SCENE_CONNS];
    size_t len = scene_conns(scene_server(), gone->client, ids);
    for (size_t i = 0; i < len; i++)
        if (ids[i] == gone->id)
            return false;
    return true;
}

static bool was_given_up(void *log) {
    return scene_log_contains(log, "the connection was lost");
}

/* One that is given up because nothing was answered, with a command on its way. */
CASE(a_connection_that_was_given_up_ends) {
    struct server *server = scene_server();
    for (const char *const *url = both_urls(); *url != NULL; url++) {
        hf_options options = scene_options();
        options.cmd_timeout_ms = ENDURING_MS; /* the first ping is answered within it */
        struct scene_log log;
        scene_log_start(&log, &options);
        hf_client *client = scene_open(*url, &options);
        assert_int_equal(hf_ping(client), HF_OK);
        long long ids[SCENE_CONNS];
        assert_int_equal(scene_conns(server, client, ids), 1);
        pid_t child = run_child(child_waits_for_ever, NULL);

        server_freeze(server);
        assert_int_equal(hf_ping(client), HF_EUNREACH);
        assert_true(wait_until(was_given_up, &log, HANG_MS)); /* a moment after the call, perhaps */
        server_unfreeze(server);
        struct gone gone = {client, ids[0]};
        assert_true(wait_until(is_gone, &gone, HANG_MS));
        kill_child(child);
        assert_int_equal(hf_close(client), HF_OK);
        scene_log_end(&log);
    }
}

RUN_CASES(scene_start_server, scene_stop_server)
