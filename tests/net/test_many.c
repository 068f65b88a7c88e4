/*
 * A keeper with more connections than anybody has thought of.
 *
 * They lead to one real server, each by itself: all are made by the keeper, and all are driven by
 * it, since nobody attends.
 */
#include "net/voice.h"

#include <stdio.h>
#include <sys/resource.h>

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

static void connect_all(struct crowd *crowd) {
    for (int i = 0; i < MANY; i++)
        hfi_conn_want(crowd->conns[i], &crowd->wants[i], &crowd->task, EVENT_READY);
    for (int i = 0; i < MANY; i++) {
        while (!is_ready(crowd->conns[i]) && crowd->wants[i].err == HF_OK)
            nap(crowd);
        hfi_conn_unwant(crowd->conns[i], &crowd->wants[i]);
        assert_int_equal(crowd->wants[i].err, HF_OK);
    }
}

static void ask_all(struct crowd *crowd) {
    char command[64];
    for (int i = 0; i < MANY; i++) {
        int len = snprintf(command, sizeof command, "*2\r\n$4\r\nECHO\r\n$3\r\n%03d\r\n", i);
        assert_int_equal(hfi_conn_submit(crowd->conns[i], command, (size_t)len, &crowd->task,
                                         EVENT_REPLY, NULL, &crowd->reqs[i]),
                         HF_OK);
    }
    for (int i = 0; i < MANY; i++) {
        while (!atomic_load(&crowd->reqs[i]->complete))
            nap(crowd);
        assert_int_equal(crowd->reqs[i]->err, HF_OK);
        const redisReply *reply = crowd->reqs[i]->reply;
        snprintf(command, sizeof command, "%03d", i);
        assert_string_equal(reply->str, command);
        hfi_req_unref(crowd->reqs[i]);
    }
}

static void free_all(void *arg) {
    struct crowd *crowd = arg;
    for (int i = 0; i < MANY; i++)
        hfi_conn_free(crowd->conns[i]);
}

static void none_is_forgotten(void **state) {
    (void)state;
    static const enum hfi_seat seats[] = {HFI_SEAT_KEEPER, HFI_SEAT_CALLERS, HFI_SEAT_LISTENERS};
    static struct crowd crowd;
    struct line line = {.proxy = NULL};
    line_begin_at(&line, server_socket(scene_server())); /* one is there before, and stays */
    hfi_exec_init(&crowd.exec);
    hfi_task_init(&crowd.task, &crowd.exec, run, destroy);
    for (int i = 0; i < MANY; i++) {
        crowd.conns[i] = hfi_conn_new(&line.target, seats[i % 3], NULL, NULL, NULL);
        assert_non_null(crowd.conns[i]);
    }
    connect_all(&crowd);
    ask_all(&crowd);
    assert_line_works(&line);
    cmd_ok(scene_server(), "CLIENT KILL TYPE normal SKIPME yes"); /* all at once */
    for (int i = 0; i < MANY; i++)
        for (; is_ready(crowd.conns[i]); sleep_ms(1))
            hfi_conn_look(crowd.conns[i]); /* where nobody reads, nobody else would notice */
    connect_all(&crowd);
    ask_all(&crowd);

    hfi_keeper_stop(line.keeper, free_all, &crowd);
    hfi_conn_free(line.conn);
    hfi_keeper_free(line.keeper);
    hfi_task_retire(&crowd.task);
    hfi_exec_run(&crowd.exec);
    hfi_exec_destroy(&crowd.exec);
    hfi_task_unref(&crowd.task);
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
    };
    return cmocka_run_group_tests(tests, raise_limit, scene_stop_server);
}
