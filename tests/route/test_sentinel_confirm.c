/*
 * A confirmation by sentinels in progress (`sentinel_confirm`): it is for one server, and ends with
 * the client. The sentinel is scripted, and a proxy holds its answers back; the servers are real.
 * The tests read from the route itself which confirmations are in progress, since nothing reports
 * them.
 */
#include "route/scripted.h"

#include "api/client.h"
#include "redis/exchange/env.h"
#include "redis/route/sentinel/sentinel_impl.h"
#include "route/scene.h"
#include "support/memory.h"
#include "support/proxy.h"

#define ASKED "GET-MASTER-ADDR-BY-NAME"

struct confirmed {
    struct scripted *sentinel;
    struct proxy *proxy; /* to the sentinel */
    struct memory memory;
    hf_client *client;
    struct hfi_sentinel *route; /* the client's */
    hf_lock *locks[2];          /* both held */
    struct scene_events events; /* of the first */
};

static void begin(struct confirmed *c, int64_t watchdog_ms) {
    hf_options options = scene_options();
    char url[256];
    memset(c, 0, sizeof *c);
    for (int i = 0; i < 2; i++)
        cmd_ok(scripted_servers[i], "FLUSHALL");
    c->sentinel = scripted_start();
    scripted_name(c->sentinel, LOCALHOST, server_port(scripted_servers[0]), 5);
    c->proxy = proxy_start(scripted_socket(c->sentinel));
    options.watchdog_ms = watchdog_ms;
    options.cmd_timeout_ms = HANG_MS;
    options.sentinel_confirm = 1;
    options.allocator = memory_allocator(&c->memory);
    snprintf(url, sizeof url, "redis-sentinel://" LOCALHOST ":%d/" SCRIPTED_NAME,
             proxy_port(c->proxy));
    assert_int_equal(hf_open(url, &options, &c->client), HF_OK);
    struct hfi_redis *redis = hfi_redis_of(c->client->core.engine);
    c->route = HFI_CONTAINER(redis->route, struct hfi_sentinel, base);
    c->locks[0] = scene_lock(c->client, HF_PLAIN, "first");
    c->locks[1] = scene_lock(c->client, HF_PLAIN, "second");
    assert_int_equal(hf_lock_on_lost(c->locks[0], scene_on_event, &c->events), HF_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(hf_lock_acquire(c->locks[i]), HF_OK);
}

static void end_client(struct confirmed *c) {
    for (int i = 0; i < 2; i++)
        hf_lock_free(c->locks[i]);
    hf_close(c->client);
}

static void end(struct confirmed *c) {
    assert_int_equal(atomic_load(&c->memory.live), 0);
    proxy_free(c->proxy);
    scripted_free(c->sentinel);
}

/* ---- Under way ---- */

static int count(const struct hfi_link *list) {
    int len = 0;
    for (const struct hfi_link *link = list->next; link != list; link = link->next)
        len++;
    return len;
}

static int under_way(struct confirmed *c) {
    pthread_mutex_lock(&c->route->mtx);
    int len = count(&c->route->confirming) + count(&c->route->awaiting_confirm);
    pthread_mutex_unlock(&c->route->mtx);
    return len;
}

static bool one_is_under_way(void *arg) {
    return under_way(arg) >= 1;
}

static bool two_are_under_way(void *arg) {
    return under_way(arg) >= 2;
}

/* An extension that its server has granted, and no sentinel has confirmed yet. */
static hf_op *extend(struct confirmed *c, int i) {
    hf_op *op;
    assert_int_equal(hf_lock_extend_start(c->locks[i], hf_owner_self(), LONG_MS, NULL, NULL, &op),
                     HF_OK);
    assert_true(wait_until(i == 0 ? one_is_under_way : two_are_under_way, c, HANG_MS));
    return op;
}

static int result_of(hf_op *op) {
    return joined(op, NULL);
}

/* The sentinel's answer to the first comes before it is asked for the second. */
CASE_IN(both_count_if_the_sentinel_names_their_server, struct confirmed, c, begin, end, LONG_MS) {
    proxy_stall_request(c->proxy, ASKED);
    hf_op *first = extend(c, 0), *second = extend(c, 1);
    assert_true(proxy_wait_held(c->proxy, HANG_MS));
    assert_true(proxy_release_held(c->proxy) > 0);
    assert_int_equal(result_of(first), HF_OK);
    assert_int_equal(result_of(second), HF_OK);
    end_client(c);
}

/* The sentinel names another server. It would confirm that one for the second, which is about the old one, too. */
CASE_IN(none_counts_if_the_sentinel_names_another_server, struct confirmed, c, begin, end,
        LONG_MS) {
    proxy_stall_request(c->proxy, ASKED);
    hf_op *ops[] = {extend(c, 0), extend(c, 1)};
    assert_true(proxy_wait_held(c->proxy, HANG_MS));
    scripted_name(c->sentinel, LOCALHOST, server_port(scripted_servers[1]), 6);
    assert_true(proxy_release_held(c->proxy) > 0);
    for (int i = 0; i < 2; i++) {
        hf_result result = HF_RESULT_INIT;
        assert_int_equal(hf_op_wait(ops[i], HANG_MS, &result), HF_EUNREACH);
        assert_string_equal(result.error.text, "the primary has changed");
        hf_op_free(ops[i]);
    }
    assert_true(scene_wait_losses(&c->events, 1)); /* the other server does not have it */
    end_client(c);
}

static void ignore(struct hfi_task *task, unsigned events) {
    (void)task, (void)events;
}

static void keep(struct hfi_task *task) {
    (void)task;
}

struct wish {
    struct confirmed *confirmed;
    struct hfi_want want;
};

static bool was_notified(void *arg) {
    struct wish *wish = arg;
    pthread_mutex_lock(&wish->confirmed->route->mtx);
    bool notified = !hfi_linked(&wish->want.link);
    pthread_mutex_unlock(&wish->confirmed->route->mtx);
    return notified;
}

/* The server has answered before the client left it, and the call goes on after that. */
CASE_IN(none_counts_for_a_server_that_was_left, struct confirmed, c, begin, end, LONG_MS) {
    struct hfi_node *left = atomic_load(&c->route->primary);
    hfi_node_ref(left);
    scripted_name(c->sentinel, LOCALHOST, server_port(scripted_servers[1]), 6);
    freeReplyObject(cmd(scripted_servers[0], "CLIENT KILL TYPE normal"));
    assert_true(scene_wait_switches(c->client, 1));

    struct hfi_route *route = &c->route->base;
    struct wish of_left = {.confirmed = c}, of_new = {.confirmed = c};
    struct hfi_task task;
    hfi_task_init(&task, c->route->exec, ignore, keep);
    route->ops->confirm(route, left, &of_left.want, &task, 1);
    route->ops->confirm(route, atomic_load(&c->route->primary), &of_new.want, &task, 1);
    assert_true(wait_until(was_notified, &of_left, HANG_MS));
    assert_true(wait_until(was_notified, &of_new, HANG_MS));
    assert_int_equal(of_left.want.err, HF_EUNREACH);
    assert_int_equal(of_new.want.err, HF_OK);
    hfi_node_unref(left);
    end_client(c);
    hfi_task_unref(&task);
}

/* ---- The end ---- */

/* Of an extension and of a renewal. Neither waits for the sentinel, nor stays behind. */
CASE_IN(it_ends_when_the_client_is_closed, struct confirmed, c, begin, end,
        6000) { /* renewed after 2 s */
    hf_op *op;
    proxy_stall_request(c->proxy, ASKED);
    assert_true(wait_until(one_is_under_way, c, HANG_MS)); /* of the renewal */
    assert_int_equal(hf_lock_extend_start(c->locks[1], hf_owner_self(), LONG_MS, NULL, NULL, &op),
                     HF_OK);
    assert_true(wait_until(two_are_under_way, c, HANG_MS));
    int64_t start_ms = now_ms();
    end_client(c);
    assert_true(now_ms() - start_ms < HANG_MS / 2);
    assert_int_equal(result_of(op), HF_ECLOSED);
}

/* ---- A fork ---- */

#if !defined(__SANITIZE_ADDRESS__) &&                                                              \
    !defined(__SANITIZE_THREAD__) /* no threads in a child there */

static int lock_by_itself(void *arg) {
    const struct confirmed *c = arg;
    hf_client *client;
    hf_lock *lock;
    if (hf_lock_extend(c->locks[0], LONG_MS) != HF_EFORKED)
        return 1;
    if (hf_open(server_url(scripted_servers[0]), NULL, &client) != HF_OK ||
        hf_lock_new(client, "child", &lock) != HF_OK)
        return 2;
    if (hf_lock_acquire(lock) != HF_OK || hf_lock_release(lock) != HF_OK)
        return 3;
    hf_lock_free(lock);
    hf_lock_free(c->locks[0]);
    hf_close(c->client);
    return hf_close(client) == HF_OK ? 0 : 4;
}

/* Mutexes are held by the thread that forks: for the child it is all the same who held them. */
CASE_IN(a_child_does_not_wait_for_it, struct confirmed, c, begin, end, LONG_MS) {
    proxy_stall_request(c->proxy, ASKED);
    hf_op *first = extend(c, 0), *second = extend(c, 1);
    pthread_mutex_lock(&c->route->mtx);
    pid_t pid = run_child(lock_by_itself, c);
    pthread_mutex_unlock(&c->route->mtx);
    assert_true(expect_exit(pid, 0, HANG_MS));
    assert_true(proxy_wait_held(c->proxy, HANG_MS));
    assert_true(proxy_release_held(c->proxy) > 0);
    assert_int_equal(result_of(first), HF_OK);
    assert_int_equal(result_of(second), HF_OK);
    end_client(c);
}

#endif

/* ---- Memory ---- */

/* Its n-th allocation fails, or a later one of the client's own threads. */
static int extend_without_memory(struct confirmed *c, long n) {
    size_t asked = scripted_asked(c->sentinel);
    atomic_store(&c->memory.fail_at, atomic_load(&c->memory.calls) + n);
    int err = hf_lock_extend(c->locks[0], LONG_MS);
    atomic_store(&c->memory.fail_at, 0);
    if (err == HF_OK)
        assert_true(scripted_asked(c->sentinel) > asked);
    else
        assert_true(err == HF_ENOMEM || err == HF_EUNREACH || err == HF_EINDOUBT);
    return err;
}

/* What fails does not count, and what counts was confirmed. */
CASE_IN(memory_runs_out, struct confirmed, c, begin, end, LONG_MS) {
    int failed = 0;
    assert_int_equal(hf_lock_extend(c->locks[0], LONG_MS), HF_OK);
    long before = atomic_load(&c->memory.calls);
    assert_int_equal(hf_lock_extend(c->locks[0], LONG_MS), HF_OK);
    long needed = atomic_load(&c->memory.calls) - before;
    assert_true(needed > 0);
    for (long n = 1; n <= needed + 2; n++) {
        failed += extend_without_memory(c, n) != HF_OK;
        assert_int_equal(hf_lock_extend(c->locks[0], LONG_MS), HF_OK);
    }
    assert_true(failed > 0);
    assert_int_equal(atomic_load(&c->events.losses), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(hf_lock_release(c->locks[i]), HF_OK);
    end_client(c);
}

RUN_CASES(scripted_start_servers, scripted_stop_servers)
