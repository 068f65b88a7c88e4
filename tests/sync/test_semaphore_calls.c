/*
 * The rules that each call of a semaphore keeps: arguments, keys of another type, forks, flushed
 * scripts, names on the wire, and the asynchronous forms. What the calls are for is in
 * test_semaphore.c.
 */
#include "sync/scene.h"

#include <stdio.h>

/* ---- The rules of every call ---- */

/* Nothing is sent meanwhile. */
struct silence {
    struct monitor *monitor; /* NULL: the proxy tells */
    size_t seen;
};

static size_t about_the_semaphore(struct scene *s) {
    return proxy_seen(s->proxy, "/" SEM_NAME);
}

static struct silence silence_begin(struct scene *s) {
    if (server_is_other(s->server))
        return (struct silence){.seen = about_the_semaphore(s)};
    return (struct silence){.monitor = monitor_start(s->server)};
}

static void silence_end(struct silence *silence, struct scene *s) {
    if (silence->monitor == NULL) {
        assert_int_equal(about_the_semaphore(s), silence->seen);
    } else {
        assert_int_equal(monitor_count(silence->monitor, "EVAL"), 0);
        monitor_stop(silence->monitor);
    }
}

static void arguments_are_checked(void **state) {
    (void)state;
    struct scene s;
    hf_sem *sem = NULL;
    hf_wait_options options = HF_WAIT_INIT;
    scene_begin(&s, NULL);
    struct silence silence = silence_begin(&s);
    assert_int_equal(hf_sem_new_bytes(NULL, "x", 1, &sem), HF_EINVAL);
    assert_int_equal(hf_sem_new_bytes(s.client, NULL, 1, &sem), HF_EINVAL);
    assert_int_equal(hf_sem_new_bytes(s.client, "x", 0, &sem), HF_EINVAL);
    assert_int_equal(hf_sem_new_bytes(s.client, "x", 1, NULL), HF_EINVAL);
    assert_null(sem);
    assert_int_equal(hf_sem_acquire(NULL, 1), HF_EINVAL);
    assert_int_equal(hf_sem_acquire(s.sem, -1), HF_EINVAL);
    assert_int_equal(hf_sem_acquire(s.sem, HF_PERMITS_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_sem_acquire_for(s.sem, 1, -2), HF_EINVAL);
    options.size = 3;
    assert_int_equal(hf_sem_acquire_with(s.sem, 1, &options), HF_EINVAL);
    assert_int_equal(hf_sem_release(NULL, 1), HF_EINVAL);
    assert_int_equal(hf_sem_release(s.sem, -1), HF_EINVAL);
    assert_int_equal(hf_sem_release(s.sem, HF_PERMITS_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_sem_release_if_exists(s.sem, -1, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_try_set(s.sem, -1, 0, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_try_set(s.sem, 1, -1, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_try_set(s.sem, 1, HF_LEASE_MAX_MS + 1, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_add(s.sem, -HF_PERMITS_MAX - 1), HF_EINVAL);
    assert_int_equal(hf_sem_add(s.sem, HF_PERMITS_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_sem_drain(NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_available(NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_delete(NULL, NULL), HF_EINVAL);
    hf_sem_free(NULL);
    assert_int_equal(hf_last_error()->code, HF_EINVAL);
    silence_end(&silence, &s);
    scene_end(&s);
}

static void of_no_permits_nothing_is_sent(void **state) {
    (void)state;
    struct scene s;
    bool released = true;
    hf_op *op = NULL;
    scene_begin(&s, NULL);
    struct silence silence = silence_begin(&s);
    assert_int_equal(hf_sem_acquire(s.sem, 0), HF_OK);
    assert_int_equal(hf_sem_try(s.sem, 0), HF_OK);
    assert_int_equal(hf_sem_release(s.sem, 0), HF_OK);
    assert_int_equal(hf_sem_release_if_exists(s.sem, 0, &released), HF_OK);
    assert_false(released);
    hf_result result = HF_RESULT_INIT;
    int err = hf_sem_release_if_exists_start(s.sem, 0, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &result), HF_OK);
    assert_int_equal(result.value, 0);
    err = hf_sem_acquire_start(s.sem, 0, NULL, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, NULL), HF_OK);
    silence_end(&silence, &s);
    assert_false(server_has(s.server, SEM_NAME));
    scene_end(&s);
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

static void U67_U68_what_is_something_else(void **state) {
    (void)state;
    struct scene s;
    hf_lock *lock = NULL;
    scene_begin(&s, NULL);
    if (!server_is_other(s.server)) {
        cmd_ok(s.server, "RPUSH " SEM_NAME " 1");
        every_call_refuses(s.sem, HF_EWRONGTYPE);
        assert_int_equal(cmd_int(s.server, "LLEN " SEM_NAME), 1);
        cmd_ok(s.server, "SET " SEM_NAME " many");
        every_call_refuses(s.sem, HF_EWRONGTYPE);
        cmd_ok(s.server, "DEL " SEM_NAME);
    }
    assert_int_equal(hf_lock_new(s.client, SEM_NAME, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    every_call_refuses(s.sem, HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    server_drop(s.server, SEM_NAME); /* the node that the lock was beneath */
    scene_set_permits(s.sem, 1);
    assert_int_equal(hf_lock_try(lock), HF_EWRONGTYPE);
    scene_assert_available(s.sem, 1);
    hf_lock_free(lock);
    scene_end(&s);
}

/* Permits with leases are seen while any are taken, and as long as something of them is left. */
static void U67_U68_permits_that_are_taken(void **state) {
    (void)state;
    struct scene s;
    hf_permits *permits = NULL;
    hf_permit_id id;
    bool done;
    server_redis_only(scene_server(), "their number and what is taken are two keys");
    scene_begin(&s, NULL);
    assert_int_equal(hf_permits_new_bytes(s.client, SEM_NAME, strlen(SEM_NAME), &permits), HF_OK);
    assert_int_equal(hf_permits_set(permits, 3), HF_OK);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    every_change_refuses(s.sem, HF_EWRONGTYPE);
    assert_non_null(strstr(hf_last_error()->text, "are taken under this name"));
    assert_int_equal(scene_number(SEM_NAME), 2);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    assert_int_equal(hf_sem_try(s.sem, 1), HF_OK); /* now they look like any number */

    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    cmd_ok(s.server, "DEL " SEM_NAME);
    every_change_refuses(s.sem, HF_EWRONGTYPE);
    assert_non_null(strstr(hf_last_error()->text, "delete them first"));
    assert_false(key_exists(s.server, SEM_NAME));
    assert_int_equal(hf_permits_delete(permits, &done), HF_OK);
    assert_true(done);
    scene_set_permits(s.sem, 1);
    hf_permits_free(permits);
    scene_end(&s);
}

/* Their permits would be in another slot, which a cluster does not allow to be looked at. */
static void names_with_odd_braces(void **state) {
    (void)state;
    static const struct {
        const char *name, *taken;
        bool seen;
    } names[] = {{"a{b}c", "a{b}c:timeout", true},   {"a}b{c}d", "a}b{c}d:timeout", true},
                 {"{{a}", "{{a}:timeout", true},     {"a}b", "{a}b}:timeout", false},
                 {"a{}b", "a{}b:timeout", false},    {"a{b", "a{b:timeout", false},
                 {"a{}{b}", "a{}{b}:timeout", false}};
    struct scene s;
    server_redis_only(scene_server(), "there are no slots");
    scene_begin(&s, NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hf_sem *sem;
        assert_int_equal(hf_sem_new_bytes(s.client, names[i].name, strlen(names[i].name), &sem),
                         HF_OK);
        scene_set_permits(sem, 1);
        cmd_ok(s.server, "ZADD %s 922337203685477 id", names[i].taken);
        assert_int_equal(hf_sem_try(sem, 1), names[i].seen ? HF_EWRONGTYPE : HF_OK);
        hf_sem_free(sem);
    }
    scene_end(&s);
}

static int child_of_fork(void *arg) {
    struct scene *s = arg;
    int64_t permits;
    hf_op *op;
    if (hf_sem_acquire(s->sem, 1) != HF_EFORKED || hf_sem_release(s->sem, 1) != HF_EFORKED ||
        hf_sem_available(s->sem, &permits) != HF_EFORKED ||
        hf_sem_acquire_start(s->sem, 1, NULL, NULL, NULL, &op) != HF_EFORKED)
        return 1;
    hf_sem_free(s->sem);
    hf_close(s->client);
    return 0;
}

static void a_forked_child_is_refused(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    scene_set_permits(s.sem, 1);
    assert_true(expect_exit(run_child(child_of_fork, &s), 0, HANG_MS));
    assert_int_equal(hf_sem_try(s.sem, 1), HF_OK);
    scene_end(&s);
}

static void U23_scripts_flushed_between_calls(void **state) {
    (void)state;
    struct scene s;
    int64_t permits = 0;
    bool deleted = false;
    server_redis_only(scene_server(), "there are no scripts");
    scene_begin(&s, NULL);
    FOR_EACH_FORM(form) {
        cmd_ok(s.server, "SCRIPT FLUSH");
        scene_set_permits(s.sem, 10);
        cmd_ok(s.server, "SCRIPT FLUSH");
        assert_int_equal(form->acquire(&s, 3, HF_FOREVER), HF_OK);
        cmd_ok(s.server, "SCRIPT FLUSH");
        assert_int_equal(form->release(&s, 1), HF_OK);
        cmd_ok(s.server, "SCRIPT FLUSH");
        assert_int_equal(hf_sem_drain(s.sem, &permits), HF_OK);
        assert_int_equal(permits, 8);
        cmd_ok(s.server, "SCRIPT FLUSH");
        assert_int_equal(hf_sem_delete(s.sem, &deleted), HF_OK);
        assert_true(deleted);
    }
    scene_end(&s);
}

/* ---- The wire ---- */

/* The names are Redisson's, with and without a prefix, with and without braces of the caller's
 * own. */
static void names_on_the_wire(void **state) {
    (void)state;
    static const struct {
        const char *prefix, *name, *key, *channel;
    } names[] = {{NULL, "a", "a", "redisson_sc:{a}"},
                 {NULL, "a{b}c", "a{b}c", "redisson_sc:a{b}c"},
                 {"app:", "a", "app:a", "redisson_sc:{app:a}"},
                 {"{app}:", "a", "{app}:a", "redisson_sc:{app}:a"}};
    struct server *server = scene_server();
    server_redis_only(server, "keys and channels");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hf_options options = scene_options();
        hf_client *client = NULL;
        hf_sem *sem = NULL;
        char publish[128];
        options.name_prefix = names[i].prefix;
        cmd_ok(server, "FLUSHALL");
        struct monitor *monitor = monitor_start(server);
        assert_int_equal(hf_open(server_url(server), &options, &client), HF_OK);
        assert_int_equal(hf_sem_new_bytes(client, names[i].name, strlen(names[i].name), &sem),
                         HF_OK);
        scene_set_permits(sem, 7);
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

static void every_operation_can_be_started(void **state) {
    (void)state;
    struct scene s;
    hf_op *op = NULL;
    hf_result r = HF_RESULT_INIT;
    scene_begin(&s, NULL);
#define START(start, wanted)                                                                       \
    do {                                                                                           \
        int started = start;                                                                       \
        assert_int_equal(scene_wait_op(started, op, &r), HF_OK);                                   \
        assert_int_equal(r.value, wanted);                                                         \
    } while (0)
    int64_t ttl_ms = server_is_other(s.server) ? 0 : 60000;
    START(hf_sem_try_set_start(s.sem, 10, ttl_ms, NULL, NULL, &op), 1);
    START(hf_sem_try_set_start(s.sem, 12, 0, NULL, NULL, &op), 0);
    int err = hf_sem_acquire_start(s.sem, 4, NULL, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &r), HF_OK);
    START(hf_sem_available_start(s.sem, NULL, NULL, &op), 6);
    err = hf_sem_release_start(s.sem, 1, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &r), HF_OK);
    START(hf_sem_release_if_exists_start(s.sem, 1, NULL, NULL, &op), 1);
    err = hf_sem_add_start(s.sem, -3, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &r), HF_OK);
    START(hf_sem_drain_start(s.sem, NULL, NULL, &op), 5);
    START(hf_sem_delete_start(s.sem, NULL, NULL, &op), 1);
    START(hf_sem_delete_start(s.sem, NULL, NULL, &op), 0);
    START(hf_sem_release_if_exists_start(s.sem, 1, NULL, NULL, &op), 0);
#undef START
    long long tickets = server_is_other(s.server) ? 0 : 1; /* of the acquire, for a while */
    assert_int_equal(server_things(s.server), tickets);
    assert_false(server_has(s.server, SEM_NAME));
    scene_end(&s);
}

static void count_callback(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    if (result->code == HF_OK)
        atomic_fetch_add((atomic_int *)user, 1);
}

static void with_manual_dispatch(void **state) {
    (void)state;
    enum { WAITERS = 5 };
    hf_options options = scene_options();
    options.flags = HF_MANUAL_DISPATCH;
    struct scene s;
    atomic_int done = 0;
    scene_begin(&s, NULL);
    hf_client *client = NULL;
    assert_int_equal(hf_open(server_url(s.server), &options, &client), HF_OK);
    hf_sem *sem = scene_sem(client);
    for (int i = 0; i < WAITERS; i++)
        assert_int_equal(hf_sem_acquire_start(sem, 1, NULL, count_callback, &done, NULL), HF_OK);
    assert_int_equal(hf_dispatch(client, 100), 0);
    scene_set_permits(s.rival_sem, WAITERS);
    int64_t start_ms = now_ms();
    while (atomic_load(&done) < WAITERS && now_ms() - start_ms < HANG_MS)
        assert_true(hf_dispatch(client, 100) >= 0);
    assert_int_equal(atomic_load(&done), WAITERS);
    assert_int_equal(scene_number(SEM_NAME), 0);
    hf_sem_free(sem);
    assert_int_equal(hf_close(client), HF_OK);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(of_no_permits_nothing_is_sent),
        cmocka_unit_test(U67_U68_what_is_something_else),
        cmocka_unit_test(U67_U68_permits_that_are_taken),
        cmocka_unit_test(names_with_odd_braces),
        cmocka_unit_test(a_forked_child_is_refused),
        cmocka_unit_test(U23_scripts_flushed_between_calls),
        cmocka_unit_test(names_on_the_wire),
        cmocka_unit_test(every_operation_can_be_started),
        cmocka_unit_test(with_manual_dispatch),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
