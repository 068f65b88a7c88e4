/*
 * Limits of the process: descriptors that run out, many clients, many opens and closes.
 *
 * The tests use up descriptors by lowering the process's own limit to the number in use. They
 * restore it before they assert anything, since the fixture needs descriptors too.
 */
#include "net/scene.h"
#include "support/case.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

/* The lowest free descriptor, so how many can be open without leaving a hole. */
static rlim_t next_fd(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    close(fd);
    return (rlim_t)fd;
}

static rlim_t limit_fds(rlim_t most) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

CASE(U65_no_descriptor_for_a_connection) {
    own_client *client = scene_open(server_url(scene_server()), NULL);
    own_lock *lock = scene_lock(client, "scarce");
    rlim_t before = limit_fds(next_fd());
    int once = hf_lock_try(lock);
    int sys_errno = hf_last_error()->sys_errno;
    int waited = hf_lock_acquire_for(lock, 200);
    limit_fds(before);
    assert_int_equal(once, HF_ESYS);
    assert_int_equal(sys_errno, EMFILE);
    assert_true(waited == HF_ESYS || waited == HF_EUNREACH);
    assert_int_equal(hf_lock_try(lock), HF_OK); /* and it is usable again */
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* The command connection is there, the one for pub/sub cannot be made: the wait polls. */
CASE(U65_no_descriptor_for_pubsub) {
    struct server *server = scene_server();
    own_client *rival = scene_open(server_url(server), NULL);
    own_client *client = scene_open(server_url(server), NULL);
    hf_lock *held = scene_lock(rival, "scarce"), *lock = scene_lock(client, "scarce");
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    assert_int_equal(hf_lock_try(lock), HF_EBUSY);
    assert_false(key_exists(server, "no such key")); /* the fixture is connected as well */
    struct scene_call call;
    rlim_t before = limit_fds(next_fd());
    scene_acquire(&call, lock, HF_FOREVER, NULL);
    bool early = !HOLDS_FOR(!atomic_load(&call.done), 200);
    int released = hf_lock_release(held);
    int entered = scene_join(&call);
    limit_fds(before);
    assert_false(early);
    assert_int_equal(released, HF_OK);
    assert_int_equal(entered, HF_OK);
    assert_true(call.took_ms < 10000); /* the longest sleep of a notified waiter */
    assert_int_equal(hf_lock_release_as(lock, call.options.owner), HF_OK);
    hf_lock_free(held);
    hf_lock_free(lock);
}

/* hf_open itself, at each number of descriptors that is too few. */
CASE(U65_no_descriptor_for_a_client) {
    static const unsigned flags[] = {0, HF_MANUAL_DISPATCH};
    for (size_t i = 0; i < 2; i++) {
        hf_options options = scene_options();
        options.flags = flags[i];
        size_t fds = scene_fds(), threads = scene_threads();
        int err = HF_ESYS, tries = 0;
        for (rlim_t spare = 0; err != HF_OK; spare++, tries++) {
            hf_client *client = NULL;
            assert_true(spare < 40);
            rlim_t before = limit_fds(next_fd() + spare);
            err = hf_open(server_url(scene_server()), &options, &client);
            limit_fds(before);
            assert_true(err == HF_OK || err == HF_ESYS || err == HF_ENOMEM);
            assert_true(err == HF_OK || client == NULL);
            assert_int_equal(hf_close(client), HF_OK);
            assert_int_equal(scene_fds(), fds);
            scene_wait_threads(threads);
        }
        assert_true(tries > 2);
    }
}

CASE(many_clients_in_one_process) {
    enum { CLIENTS = 60 };
    size_t fds = scene_fds(), threads = scene_threads();
    hf_client *clients[CLIENTS];
    hf_lock *locks[CLIENTS];
    struct scene_call calls[CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++) {
        clients[i] = scene_open(server_url(scene_server()), NULL);
        locks[i] = scene_lock(clients[i], "crowd");
    }
    assert_int_equal(hf_lock_acquire(locks[0]), HF_OK);
    for (size_t i = 1; i < CLIENTS; i++)
        assert_int_equal(hf_lock_try(locks[i]), HF_EBUSY); /* each has its own owner */
    for (size_t i = 1; i < CLIENTS; i++)
        scene_acquire(&calls[i], locks[i], HF_FOREVER, NULL);
    assert_int_equal(hf_lock_release(locks[0]), HF_OK);
    for (size_t left = CLIENTS - 1; left > 0;) { /* each gets it once */
        int64_t until_ms = now_ms() + HANG_MS;
        size_t i = 0;
        while (i == 0) {
            assert_true(now_ms() < until_ms);
            for (size_t k = 1; k < CLIENTS && i == 0; k++)
                i = locks[k] != NULL && atomic_load(&calls[k].done) ? k : 0;
            (void)wait_a_moment();
        }
        assert_int_equal(scene_join(&calls[i]), HF_OK);
        assert_int_equal(hf_lock_release_as(locks[i], calls[i].options.owner), HF_OK);
        hf_lock_free(locks[i]);
        locks[i] = NULL;
        left--;
    }
    hf_lock_free(locks[0]);
    for (size_t i = 0; i < CLIENTS; i++)
        assert_int_equal(hf_close(clients[i]), HF_OK);
    assert_int_equal(scene_fds(), fds);
    scene_wait_threads(threads);
}

static bool no_clients(void *arg) {
    return server_clients(arg) == 0;
}

CASE(open_and_close_leaks_nothing) {
    assert_true(wait_until(no_clients, scene_server(), HANG_MS));
    size_t fds = scene_fds(), threads = scene_threads();
    for (int i = 0; i < 1000; i++) {
        hf_options options = scene_options();
        options.flags = i % 3 == 0 ? HF_MANUAL_DISPATCH : 0;
        own_client *client = scene_open(server_url(scene_server()), &options);
        if (i % 4 == 1) {
            assert_int_equal(hf_ping(client), HF_OK);
        } else if (i % 4 == 2) { /* with something on its way */
            assert_int_equal(hf_ping_start(client, NULL, NULL, NULL), HF_OK);
        } else if (i % 4 == 3) {
            own_lock *lock = scene_lock(client, "brief");
            assert_int_equal(hf_lock_acquire(lock), HF_OK);
            assert_int_equal(hf_lock_release(lock), HF_OK);
        }
    }
    assert_int_equal(scene_fds(), fds);
    scene_wait_threads(threads);
    assert_true(wait_until(no_clients, scene_server(), HANG_MS));
}

RUN_CASES(scene_start_server, scene_stop_server)
