/*
 * Very many connections: of one keeper, and in one epoll set.
 *
 * They lead to one real server, and the keeper makes all of them. It drives those of the first
 * test, which has no callers; the dispatcher drives those of the second.
 */
#include "net/caller.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>

enum { MANY = 150 };

struct connections {
    struct hfi_exec exec;
    struct hfi_task task;
    struct hfi_conn *conns[MANY];
    struct hfi_want wants[MANY];
    struct hfi_req *reqs[MANY];
};

static void run(struct hfi_task *task, unsigned events) {
    (void)task;
    (void)events;
}

static void destroy(struct hfi_task *task) {
    (void)task;
}

static void nap(struct connections *all) {
    if (!hfi_exec_run(&all->exec))
        hfi_exec_sleep(&all->exec);
}

static bool is_ready(struct hfi_conn *conn) {
    int64_t server_ms, received_ms;
    return hfi_conn_ready(conn, &server_ms, &received_ms);
}

static void connect_all(struct connections *all, int len) {
    for (int i = 0; i < len; i++)
        hfi_conn_want(all->conns[i], &all->wants[i], &all->task, EVENT_READY);
    int64_t until_ms = now_ms() + HANG_MS;
    for (int i = 0; i < len; i++) {
        for (; !is_ready(all->conns[i]) && now_ms() < until_ms; wait_a_moment())
            hfi_exec_run(&all->exec);
        hfi_conn_unwant(all->conns[i], &all->wants[i]);
        assert_int_equal(all->wants[i].err, HF_OK);
        assert_true(is_ready(all->conns[i]));
    }
}

static void ask_all(struct connections *all, int len) {
    char command[64];
    for (int i = 0; i < len; i++) {
        int size = snprintf(command, sizeof command, "*2\r\n$4\r\nECHO\r\n$3\r\n%03d\r\n", i);
        assert_int_equal(hfi_conn_submit(all->conns[i], command, (size_t)size, &all->task,
                                         EVENT_REPLY, NULL, &all->reqs[i]),
                         HF_OK);
    }
}

static void receive_all(struct connections *all, int len) {
    char text[16];
    for (int i = 0; i < len; i++) {
        while (!atomic_load(&all->reqs[i]->complete))
            nap(all);
        assert_int_equal(all->reqs[i]->err, HF_OK);
        const redisReply *reply = all->reqs[i]->reply;
        snprintf(text, sizeof text, "%03d", i);
        assert_string_equal(reply->str, text);
        hfi_req_unref(all->reqs[i]);
    }
}

static void connections_begin(struct connections *all) {
    memset(all, 0, sizeof *all);
    hfi_exec_init(&all->exec);
    hfi_task_init(&all->task, &all->exec, run, destroy);
}

static void free_all(void *arg) {
    struct connections *all = arg;
    for (int i = 0; i < MANY; i++)
        hfi_conn_free(all->conns[i]);
}

static void connections_end(struct connections *all, struct raw *raw) {
    hfi_keeper_stop(raw->keeper, free_all, all);
    hfi_conn_free(raw->conn);
    hfi_keeper_free(raw->keeper);
    hfi_task_retire(&all->task);
    hfi_exec_run(&all->exec);
    hfi_exec_destroy(&all->exec);
    hfi_task_unref(&all->task);
}

/* All end at once, and everybody has noticed. */
static void cut_all(struct connections *all, int len) {
    cmd_ok(scene_server(), "CLIENT KILL TYPE normal SKIPME yes");
    for (int i = 0; i < len; i++)
        for (; is_ready(all->conns[i]); wait_a_moment()) {
            short events;
            hfi_conn_check_alive(all->conns[i]); /* where nobody reads, nobody else would notice */
            hfi_conn_dispatch_fd(all->conns[i], &events);
        }
}

CASE(none_is_forgotten) {
    static const enum hfi_driver_policy policies[] = {HFI_DRIVER_KEEPER, HFI_DRIVER_CALLERS,
                                                      HFI_DRIVER_LISTENERS};
    static struct connections all;
    struct raw raw = {.proxy = NULL};
    raw_begin_at(&raw, server_socket(scene_server())); /* one is there before, and stays */
    connections_begin(&all);
    for (int i = 0; i < MANY; i++) {
        all.conns[i] = hfi_conn_new(&raw.target, policies[i % 3], NULL, NULL, NULL);
        assert_non_null(all.conns[i]);
    }
    for (int i = 0; i < 2; i++) {
        connect_all(&all, MANY);
        ask_all(&all, MANY);
        receive_all(&all, MANY);
        cut_all(&all, MANY);
    }
    connections_end(&all, &raw);
}

/* The first that is up ends all others, wherever they are. */
static void end_others(void *arg, bool up) {
    struct connections *all = arg;
    for (int i = 1; up && i < MANY; i++) {
        hfi_conn_free(all->conns[i]);
        all->conns[i] = NULL;
    }
}

CASE(one_may_end_others) {
    static struct connections all;
    struct raw raw = {.proxy = NULL};
    raw_begin_at(&raw, server_socket(scene_server()));
    connections_begin(&all);
    for (int i = 0; i < MANY; i++) {
        all.conns[i] =
            hfi_conn_new(&raw.target, HFI_DRIVER_KEEPER, NULL, i == 0 ? end_others : NULL, &all);
        assert_non_null(all.conns[i]);
    }
    for (int i = 1; i < MANY; i++)
        hfi_conn_keep_up(all.conns[i], true);
    connect_all(&all, 1);
    ask_all(&all, 1);
    receive_all(&all, 1); /* its answer comes after the state was reported */
    assert_raw_works(&raw);
    connections_end(&all, &raw);
}

/* Waits until the set says that there is something to read, and reads it wherever it is. */
static void dispatch(struct connections *all, int len, int epoll_fd) {
    struct epoll_event event;
    assert_int_equal(epoll_wait(epoll_fd, &event, 1, HANG_MS), 1);
    for (int i = 0; i < len; i++) {
        struct pollfd fd = {.events = 0};
        fd.fd = hfi_conn_dispatch_fd(all->conns[i], &fd.events);
        if (poll(&fd, 1, 0) > 0)
            hfi_conn_on_ready(all->conns[i], fd.revents);
    }
}

static bool all_complete(const struct connections *all, int len) {
    for (int i = 0; i < len; i++)
        if (!atomic_load(&all->reqs[i]->complete))
            return false;
    return true;
}

CASE(several_in_one_epoll_set) {
    enum { SEVERAL = 5 };
    static struct connections all;
    struct raw raw = {.proxy = NULL};
    struct epoll_event event;
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    raw_begin_at(&raw, server_socket(scene_server()));
    connections_begin(&all);
    raw.target.dispatch = &all.exec;
    for (int i = 0; i < SEVERAL; i++)
        all.conns[i] = hfi_conn_new(&raw.target, HFI_DRIVER_DISPATCH, NULL, NULL, NULL);
    for (int round = 0; round < 3; round++) {
        connect_all(&all, SEVERAL);
        ask_all(&all, SEVERAL);
        for (int i = 0; i < SEVERAL; i++) {
            hfi_conn_flush(all.conns[i]);
            hfi_conn_enlist(all.conns[i], epoll_fd);
        }
        while (!all_complete(&all, SEVERAL))
            dispatch(&all, SEVERAL, epoll_fd);
        receive_all(&all, SEVERAL);
        assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 0);
        cut_all(&all, SEVERAL); /* and they have left the set, all of them */
        assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 0);
    }
    connections_end(&all, &raw);
    close(epoll_fd);
}

/* Each has a socket and an eventfd, and the server is another process. */
static int raise_limit(void **state) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 2048) {
        limit.rlim_cur = limit.rlim_max < 2048 ? limit.rlim_max : 2048;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    return scene_start_server(state);
}

RUN_CASES(raise_limit, scene_stop_server)
