/*
 * More connections than anybody has thought of: of one keeper, and in one epoll set.
 *
 * They lead to one real server, each by itself, and all are made by the keeper. It drives those of
 * the first scene, since nobody attends; those of the second are the dispatcher's.
 */
#include "net/voice.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MANY = 150 };

struct crowd {
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

static void nap(struct crowd *crowd) {
    if (!hfi_exec_run(&crowd->exec))
        hfi_exec_sleep(&crowd->exec);
}

static bool is_ready(struct hfi_conn *conn) {
    int64_t server_ms, received_ms;
    return hfi_conn_ready(conn, &server_ms, &received_ms);
}

static void connect_all(struct crowd *crowd, int len) {
    for (int i = 0; i < len; i++)
        hfi_conn_want(crowd->conns[i], &crowd->wants[i], &crowd->task, EVENT_READY);
    int64_t until_ms = now_ms() + HANG_MS;
    for (int i = 0; i < len; i++) {
        for (; !is_ready(crowd->conns[i]) && now_ms() < until_ms; sleep_ms(1))
            hfi_exec_run(&crowd->exec);
        hfi_conn_unwant(crowd->conns[i], &crowd->wants[i]);
        assert_int_equal(crowd->wants[i].err, HF_OK);
        assert_true(is_ready(crowd->conns[i]));
    }
}

static void ask_all(struct crowd *crowd, int len) {
    char command[64];
    for (int i = 0; i < len; i++) {
        int size = snprintf(command, sizeof command, "*2\r\n$4\r\nECHO\r\n$3\r\n%03d\r\n", i);
        assert_int_equal(hfi_conn_submit(crowd->conns[i], command, (size_t)size, &crowd->task,
                                         EVENT_REPLY, NULL, &crowd->reqs[i]),
                         HF_OK);
    }
}

static void hear_all(struct crowd *crowd, int len) {
    char text[8];
    for (int i = 0; i < len; i++) {
        while (!atomic_load(&crowd->reqs[i]->complete))
            nap(crowd);
        assert_int_equal(crowd->reqs[i]->err, HF_OK);
        const redisReply *reply = crowd->reqs[i]->reply;
        snprintf(text, sizeof text, "%03d", i);
        assert_string_equal(reply->str, text);
        hfi_req_unref(crowd->reqs[i]);
    }
}

static void crowd_begin(struct crowd *crowd) {
    memset(crowd, 0, sizeof *crowd);
    hfi_exec_init(&crowd->exec);
    hfi_task_init(&crowd->task, &crowd->exec, run, destroy);
}

static void free_all(void *arg) {
    struct crowd *crowd = arg;
    for (int i = 0; i < MANY; i++)
        hfi_conn_free(crowd->conns[i]);
}

static void crowd_end(struct crowd *crowd, struct line *line) {
    hfi_keeper_stop(line->keeper, free_all, crowd);
    hfi_conn_free(line->conn);
    hfi_keeper_free(line->keeper);
    hfi_task_retire(&crowd->task);
    hfi_exec_run(&crowd->exec);
    hfi_exec_destroy(&crowd->exec);
    hfi_task_unref(&crowd->task);
}

/* All end at once, and everybody has noticed. */
static void cut_all(struct crowd *crowd, int len) {
    cmd_ok(scene_server(), "CLIENT KILL TYPE normal SKIPME yes");
    for (int i = 0; i < len; i++)
        for (; is_ready(crowd->conns[i]); sleep_ms(1)) {
            short events;
            hfi_conn_look(crowd->conns[i]); /* where nobody reads, nobody else would notice */
            hfi_conn_dispatch_fd(crowd->conns[i], &events);
        }
}

static void none_is_forgotten(void **state) {
    (void)state;
    static const enum hfi_seat seats[] = {HFI_SEAT_KEEPER, HFI_SEAT_CALLERS, HFI_SEAT_LISTENERS};
    static struct crowd crowd;
    struct line line = {.proxy = NULL};
    line_begin_at(&line, server_socket(scene_server())); /* one is there before, and stays */
    crowd_begin(&crowd);
    for (int i = 0; i < MANY; i++) {
        crowd.conns[i] = hfi_conn_new(&line.target, seats[i % 3], NULL, NULL, NULL);
        assert_non_null(crowd.conns[i]);
    }
    for (int i = 0; i < 2; i++) {
        connect_all(&crowd, MANY);
        ask_all(&crowd, MANY);
        hear_all(&crowd, MANY);
        cut_all(&crowd, MANY);
    }
    crowd_end(&crowd, &line);
}

/* The first that is up ends all others, wherever they are. */
static void end_others(void *arg, bool up) {
    struct crowd *crowd = arg;
    for (int i = 1; up && i < MANY; i++) {
        hfi_conn_free(crowd->conns[i]);
        crowd->conns[i] = NULL;
    }
}

static void one_may_end_others(void **state) {
    (void)state;
    static struct crowd crowd;
    struct line line = {.proxy = NULL};
    line_begin_at(&line, server_socket(scene_server()));
    crowd_begin(&crowd);
    for (int i = 0; i < MANY; i++) {
        crowd.conns[i] =
            hfi_conn_new(&line.target, HFI_SEAT_KEEPER, NULL, i == 0 ? end_others : NULL, &crowd);
        assert_non_null(crowd.conns[i]);
    }
    for (int i = 1; i < MANY; i++)
        hfi_conn_keep_up(crowd.conns[i], true);
    connect_all(&crowd, 1);
    ask_all(&crowd, 1);
    hear_all(&crowd, 1); /* its answer comes after the state was told */
    assert_line_works(&line);
    crowd_end(&crowd, &line);
}

/* Waits until the set says that there is something to read, and reads it wherever it is. */
static void dispatch(struct crowd *crowd, int len, int epoll_fd) {
    struct epoll_event event;
    assert_int_equal(epoll_wait(epoll_fd, &event, 1, HANG_MS), 1);
    for (int i = 0; i < len; i++) {
        struct pollfd fd = {.events = 0};
        fd.fd = hfi_conn_dispatch_fd(crowd->conns[i], &fd.events);
        if (poll(&fd, 1, 0) > 0)
            hfi_conn_service(crowd->conns[i], fd.revents);
    }
}

static bool all_complete(const struct crowd *crowd, int len) {
    for (int i = 0; i < len; i++)
        if (!atomic_load(&crowd->reqs[i]->complete))
            return false;
    return true;
}

static void several_in_one_epoll_set(void **state) {
    (void)state;
    enum { SEVERAL = 5 };
    static struct crowd crowd;
    struct line line = {.proxy = NULL};
    struct epoll_event event;
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    line_begin_at(&line, server_socket(scene_server()));
    crowd_begin(&crowd);
    line.target.dispatch = &crowd.exec;
    for (int i = 0; i < SEVERAL; i++)
        crowd.conns[i] = hfi_conn_new(&line.target, HFI_SEAT_DISPATCH, NULL, NULL, NULL);
    for (int round = 0; round < 3; round++) {
        connect_all(&crowd, SEVERAL);
        ask_all(&crowd, SEVERAL);
        for (int i = 0; i < SEVERAL; i++) {
            hfi_conn_flush(crowd.conns[i]);
            hfi_conn_enlist(crowd.conns[i], epoll_fd);
        }
        while (!all_complete(&crowd, SEVERAL))
            dispatch(&crowd, SEVERAL, epoll_fd);
        hear_all(&crowd, SEVERAL);
        assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 0);
        cut_all(&crowd, SEVERAL); /* and they have left the set, all of them */
        assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 0);
    }
    crowd_end(&crowd, &line);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_is_forgotten),
        cmocka_unit_test(one_may_end_others),
        cmocka_unit_test(several_in_one_epoll_set),
    };
    return cmocka_run_group_tests(tests, raise_limit, scene_stop_server);
}
