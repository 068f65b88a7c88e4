/*
 * The rules that each call of a semaphore keeps: arguments, keys of another type, forks, flushed
 * scripts, names on the wire, and the asynchronous forms. What the calls are for is in
 * test_semaphore.c.
 */
#include "sync/objects.h"

/* ---- The rules of every call ---- */

/* Nothing is sent meanwhile. */
struct silence {
    struct monitor *monitor; /* NULL: the proxy tells */
    size_t seen;
};

static size_t about_the_semaphore(struct world *w) {
    return proxy_seen(w->proxy, "/" SEM_NAME);
}

static struct silence silence_begin(struct world *w) {
    if (server_is_other(w->server))
        return (struct silence){.seen = about_the_semaphore(w)};
    return (struct silence){.monitor = monitor_start(w->server)};
}

static void silence_end(struct silence *silence, struct world *w) {
    if (silence->monitor == NULL) {
        assert_int_equal(about_the_semaphore(w), silence->seen);
    } else {
        assert_int_equal(monitor_count(silence->monitor, "EVAL"), 0);
        monitor_stop(silence->monitor);
    }
}

OBJECTS_CASE(arguments_are_checked) {
    hf_sem *sem = NULL;
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    struct silence silence = silence_begin(w);
    assert_int_equal(hf_sem_new_bytes(NULL, "x", 1, &sem), HF_EINVAL);
    assert_int_equal(hf_sem_new_bytes(w->client, NULL, 1, &sem), HF_EINVAL);
    assert_int_equal(hf_sem_new_bytes(w->client, "x", 0, &sem), HF_EINVAL);
    assert_int_equal(hf_sem_new_bytes(w->client, "x", 1, NULL), HF_EINVAL);
    assert_null(sem);
    assert_int_equal(hf_sem_acquire(NULL, 1), HF_EINVAL);
    assert_int_equal(hf_sem_acquire(w->sem, -1), HF_EINVAL);
    assert_int_equal(hf_sem_acquire(w->sem, HF_PERMITS_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_sem_acquire_for(w->sem, 1, -2), HF_EINVAL);
    options.size = 3;
    assert_int_equal(hf_sem_acquire_with(w->sem, 1, &options), HF_EINVAL);
    assert_int_equal(hf_sem_release(NULL, 1), HF_EINVAL);
    assert_int_equal(hf_sem_release(w->sem, -1), HF_EINVAL);
    assert_int_equal(hf_sem_release(w->sem, HF_PERMITS_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_sem_release_if_exists(w->sem, -1, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_try_set(w->sem, -1, 0, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_try_set(w->sem, 1, -1, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_try_set(w->sem, 1, HF_LEASE_MAX_MS + 1, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_add(w->sem, -HF_PERMITS_MAX - 1), HF_EINVAL);
    assert_int_equal(hf_sem_add(w->sem, HF_PERMITS_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_sem_drain(NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_available(NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_delete(NULL, NULL), HF_EINVAL);
    hf_sem_free(NULL);
    assert_int_equal(hf_last_error()->code, HF_EINVAL);
    silence_end(&silence, w);
}

OBJECTS_CASE(of_no_permits_nothing_is_sent) {
    bool released = true;
    hf_op *op = NULL;
    struct silence silence = silence_begin(w);
    assert_int_equal(hf_sem_acquire(w->sem, 0), HF_OK);
    assert_int_equal(hf_sem_try(w->sem, 0), HF_OK);
    assert_int_equal(hf_sem_release(w->sem, 0), HF_OK);
    assert_int_equal(hf_sem_release_if_exists(w->sem, 0, &released), HF_OK);
    assert_false(released);
    hf_result result = HF_RESULT_INIT;
    int err = hf_sem_release_if_exists_start(w->sem, 0, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &result), HF_OK);
    assert_int_equal(result.value, 0);
    err = hf_sem_acquire_start(w->sem, 0, NULL, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, NULL), HF_OK);
    silence_end(&silence, w);
    assert_false(server_has(w->server, SEM_NAME));
}

static void every_change_refuses(hf_sem *sem, int expected) {
    int64_t permits;
    assert_int_equal(hf_sem_try_set(sem, 1, 0, NULL), expected);
    assert_int_equal(hf_sem_try(sem, 1), expected);
    assert_int_equal(hf_sem_acquire(sem, 1), expected);
    assert_int_equal(hf_sem_release(sem, 1), expected);
    assert_int_equal(hf_sem_release_if_exists(sem, 1, NULL), expected);
    assert_int_equal(hf_sem_add(sem, 1), expected);
    assert_int_equal(hf_sem_drain(sem, &permits), expected);
    assert_int_equal(hf_sem_delete(sem, NULL), expected);
}

static void every_call_refuses(hf_sem *sem, int expected) {
    int64_t permits;
    every_change_refuses(sem, expected);
    assert_int_equal(hf_sem_available(sem, &permits), expected);
}

OBJECTS_CASE(U67_U68_other_keys_are_refused) {
    own_lock *lock = NULL;
    if (!server_is_other(w->server)) {
        cmd_ok(w->server, "RPUSH " SEM_NAME " 1");
        every_call_refuses(w->sem, HF_EWRONGTYPE);
        assert_int_equal(cmd_int(w->server, "LLEN " SEM_NAME), 1);
        cmd_ok(w->server, "SET " SEM_NAME " many");
        every_call_refuses(w->sem, HF_EWRONGTYPE);
        cmd_ok(w->server, "DEL " SEM_NAME);
    }
    assert_int_equal(hf_lock_new(w->client, SEM_NAME, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    every_call_refuses(w->sem, HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    server_drop(w->server, SEM_NAME); /* the node that the lock was beneath */
    object_set_permits(w->sem, 1);
    assert_int_equal(hf_lock_try(lock), HF_EWRONGTYPE);
    object_assert_available(w->sem, 1);
}

/* Permits with leases are seen while any are taken, and as long as something of them is left. */
CASE(U67_U68_permits_that_are_taken) {
    OWN(world_end) struct world w;
    own_permits *permits = NULL;
    hf_permit_id id;
    bool done;
    server_redis_only(world_server(), "their number and what is taken are two keys");
    objects_begin(&w, NULL);
    assert_int_equal(hf_permits_new_bytes(w.client, SEM_NAME, strlen(SEM_NAME), &permits), HF_OK);
    assert_int_equal(hf_permits_set(permits, 3), HF_OK);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    every_change_refuses(w.sem, HF_EWRONGTYPE);
    assert_non_null(strstr(hf_last_error()->text, "are taken under this name"));
    assert_int_equal(object_number(SEM_NAME), 2);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    assert_int_equal(hf_sem_try(w.sem, 1), HF_OK); /* now they look like any number */

    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    cmd_ok(w.server, "DEL " SEM_NAME);
    every_change_refuses(w.sem, HF_EWRONGTYPE);
    assert_non_null(strstr(hf_last_error()->text, "delete them first"));
    assert_false(key_exists(w.server, SEM_NAME));
    assert_int_equal(hf_permits_delete(permits, &done), HF_OK);
    assert_true(done);
    object_set_permits(w.sem, 1);
}

/* Their permits would be in another slot, which a cluster does not allow to be looked at. */
CASE(names_with_odd_braces) {
    OWN(world_end) struct world w;
    static const struct {
        const char *name, *taken;
        bool seen;
    } names[] = {{"a{b}c", "a{b}c:timeout", true},   {"a}b{c}d", "a}b{c}d:timeout", true},
                 {"{{a}", "{{a}:timeout", true},     {"a}b", "{a}b}:timeout", false},
                 {"a{}b", "a{}b:timeout", false},    {"a{b", "a{b:timeout", false},
                 {"a{}{b}", "a{}{b}:timeout", false}};
    server_redis_only(world_server(), "there are no slots");
    objects_begin(&w, NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        own_sem *sem = made(hf_sem_new_bytes, w.client, names[i].name, strlen(names[i].name));
        object_set_permits(sem, 1);
        cmd_ok(w.server, "ZADD %s 922337203685477 id", names[i].taken);
        assert_int_equal(hf_sem_try(sem, 1), names[i].seen ? HF_EWRONGTYPE : HF_OK);
    }
}

static int child_of_fork(void *arg) {
    struct world *w = arg;
    int64_t permits;
    hf_op *op;
    if (hf_sem_acquire(w->sem, 1) != HF_EFORKED || hf_sem_release(w->sem, 1) != HF_EFORKED ||
        hf_sem_available(w->sem, &permits) != HF_EFORKED ||
        hf_sem_acquire_start(w->sem, 1, NULL, NULL, NULL, &op) != HF_EFORKED)
        return 1;
    hf_sem_free(w->sem);
    hf_close(w->client);
    return 0;
}

OBJECTS_CASE(a_forked_child_is_refused) {
    object_set_permits(w->sem, 1);
    assert_true(expect_exit(run_child(child_of_fork, w), 0, HANG_MS));
    assert_int_equal(hf_sem_try(w->sem, 1), HF_OK);
}

CASE(U23_scripts_flushed_between_calls) {
    OWN(world_end) struct world w;
    int64_t permits = 0;
    bool deleted = false;
    server_redis_only(world_server(), "there are no scripts");
    objects_begin(&w, NULL);
    FOR_EACH_FORM(form) {
        cmd_ok(w.server, "SCRIPT FLUSH");
        object_set_permits(w.sem, 10);
        cmd_ok(w.server, "SCRIPT FLUSH");
        assert_int_equal(form->acquire(&w, 3, HF_FOREVER), HF_OK);
        cmd_ok(w.server, "SCRIPT FLUSH");
        assert_int_equal(form->release(&w, 1), HF_OK);
        cmd_ok(w.server, "SCRIPT FLUSH");
        assert_int_equal(hf_sem_drain(w.sem, &permits), HF_OK);
        assert_int_equal(permits, 8);
        cmd_ok(w.server, "SCRIPT FLUSH");
        assert_int_equal(hf_sem_delete(w.sem, &deleted), HF_OK);
        assert_true(deleted);
    }
}

/* ---- The wire ---- */

/* The names are Redisson's, with and without a prefix, with and without braces of the caller's
 * own. */
CASE(names_on_the_wire) {
    static const struct {
        const char *prefix, *name, *key, *channel;
    } names[] = {{NULL, "a", "a", "redisson_sc:{a}"},
                 {NULL, "a{b}c", "a{b}c", "redisson_sc:a{b}c"},
                 {"app:", "a", "app:a", "redisson_sc:{app:a}"},
                 {"{app}:", "a", "{app}:a", "redisson_sc:{app}:a"}};
    struct server *server = world_server();
    server_redis_only(server, "keys and channels");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hf_options options = world_options();
        hf_client *client = NULL;
        hf_sem *sem = NULL;
        char publish[128];
        options.name_prefix = names[i].prefix;
        cmd_ok(server, "FLUSHALL");
        struct monitor *monitor = monitor_start(server);
        assert_int_equal(hf_open(server_url(server), &options, &client), HF_OK);
        assert_int_equal(hf_sem_new_bytes(client, names[i].name, strlen(names[i].name), &sem),
                         HF_OK);
        object_set_permits(sem, 7);
        assert_int_equal(cmd_int(server, "GET %s", names[i].key), 7);
        snprintf(publish, sizeof publish, "lua] \"publish\" \"%s\" \"7\"", names[i].channel);
        assert_int_equal(monitor_count(monitor, publish), 1);
        assert_int_equal(cmd_int(server, "DBSIZE"), 1);
        monitor_stop(monitor);
        hf_sem_free(sem);
        assert_int_equal(hf_close(client), HF_OK);
    }
}

/* ---- Asynchronous ---- */

OBJECTS_CASE(every_operation_can_be_started) {
    hf_op *op = NULL;
    hf_result r = HF_RESULT_INIT;
#define START(start, wanted)                                                                       \
    do {                                                                                           \
        int started = start;                                                                       \
        assert_int_equal(world_wait_op(started, op, &r), HF_OK);                                   \
        assert_int_equal(r.value, wanted);                                                         \
    } while (0)
    int64_t ttl_ms = server_is_other(w->server) ? 0 : 60000;
    START(hf_sem_try_set_start(w->sem, 10, ttl_ms, NULL, NULL, &op), 1);
    START(hf_sem_try_set_start(w->sem, 12, 0, NULL, NULL, &op), 0);
    int err = hf_sem_acquire_start(w->sem, 4, NULL, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &r), HF_OK);
    START(hf_sem_available_start(w->sem, NULL, NULL, &op), 6);
    err = hf_sem_release_start(w->sem, 1, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &r), HF_OK);
    START(hf_sem_release_if_exists_start(w->sem, 1, NULL, NULL, &op), 1);
    err = hf_sem_add_start(w->sem, -3, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &r), HF_OK);
    START(hf_sem_drain_start(w->sem, NULL, NULL, &op), 5);
    START(hf_sem_delete_start(w->sem, NULL, NULL, &op), 1);
    START(hf_sem_delete_start(w->sem, NULL, NULL, &op), 0);
    START(hf_sem_release_if_exists_start(w->sem, 1, NULL, NULL, &op), 0);
#undef START
    long long keys = server_is_other(w->server) ? 0 : 1; /* of the acquire, for a while */
    assert_int_equal(server_things(w->server), keys);
    assert_false(server_has(w->server, SEM_NAME));
}

static void count_callback(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    if (result->code == HF_OK)
        atomic_fetch_add((atomic_int *)user, 1);
}

OBJECTS_CASE(with_manual_dispatch) {
    enum { WAITERS = 5 };
    atomic_int done = 0;
    hf_options options = world_options();
    options.flags = HF_MANUAL_DISPATCH;
    own_client *client = NULL;
    assert_int_equal(hf_open(server_url(w->server), &options, &client), HF_OK);
    own_sem *sem = object_sem(client);
    for (int i = 0; i < WAITERS; i++)
        assert_int_equal(hf_sem_acquire_start(sem, 1, NULL, count_callback, &done, NULL), HF_OK);
    assert_int_equal(hf_dispatch(client, 100), 0);
    object_set_permits(w->rival_sem, WAITERS);
    int64_t start_ms = now_ms();
    while (atomic_load(&done) < WAITERS && now_ms() - start_ms < HANG_MS)
        assert_true(hf_dispatch(client, 100) >= 0);
    assert_int_equal(atomic_load(&done), WAITERS);
    assert_int_equal(object_number(SEM_NAME), 0);
}

RUN_CASES(world_start_server, world_stop_server)
