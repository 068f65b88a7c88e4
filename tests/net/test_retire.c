/*
 * Connections that are retired: whoever wants one, or has a request in flight, hears of it at once, in
 * whatever state it is, and it is never made again.
 */
#include "net/voice.h"

#include <string.h>

static struct server *server;

static void begin(struct line *line, struct hfi_host *host) {
    hf_error error = {.code = HF_OK};
    memset(line, 0, sizeof *line);
    assert_int_equal(hfi_keeper_new(&line->mem, &line->keeper, &error), HF_OK);
    *host = (struct hfi_host){.name = "the server"};
    assert_int_equal(hfi_addr_unix(server_socket(server), &host->address), HF_OK);
    line->login.client_name = "retired";
    line->target = (struct hfi_target){.mem = &line->mem,
                                       .log = &line->log,
                                       .keeper = line->keeper,
                                       .hosts = host,
                                       .hosts_len = 1,
                                       .node = "the server",
                                       .protocol = &hfi_resp,
                                       .login = &line->login,
                                       .cmd_timeout_ms = 20000,
                                       .ping_ms = 60000};
    line->conn = hfi_conn_new(&line->target, HFI_SEAT_CALLERS, NULL, NULL, NULL);
    assert_non_null(line->conn);
    assert_int_equal(hfi_keeper_start(line->keeper, &error), HF_OK);
}

/* Something to be done on the keeper's thread, in one go. */
struct errand {
    struct hfi_task task;
    struct hfi_conn *conn;
    struct hfi_want *want;
    struct hfi_task *wanting;
    bool breaks;
    atomic_bool done;
};

static void run_errand(struct hfi_task *task, unsigned events) {
    struct errand *errand = HFI_CONTAINER(task, struct errand, task);
    (void)events;
    if (errand->breaks)
        hfi_conn_suspect(errand->conn, INT64_MAX);
    hfi_conn_want(errand->conn, errand->want, errand->wanting, EVENT_READY);
    hfi_conn_retire(errand->conn);
    atomic_store(&errand->done, true);
}

static bool is_done(void *arg) {
    return atomic_load(&((struct errand *)arg)->done);
}

static void nothing_to_free(struct hfi_task *task) {
    (void)task;
}

static void await(struct voice *voice) {
    while ((voice->news & EVENT_READY) == 0)
        if (!hfi_exec_run(&voice->exec))
            hfi_exec_sleep(&voice->exec);
    voice->news = 0;
}

static void retire_wanted(bool connected, bool breaks) {
    struct line line;
    struct hfi_host host;
    struct voice voice;
    struct hfi_want want = {.err = HF_OK};
    begin(&line, &host);
    if (connected)
        connect_line(&line);
    voice_begin(&voice, &line);
    struct errand errand = {
        .conn = line.conn, .want = &want, .wanting = &voice.task, .breaks = breaks};
    hfi_task_init(&errand.task, hfi_keeper_exec(line.keeper), run_errand, nothing_to_free);
    hfi_task_post(&errand.task, 1);
    await(&voice);
    assert_true(wait_until(is_done, &errand, 60000));
    hfi_conn_unwant(line.conn, &want);
    if (!connected || breaks)
        assert_int_equal(want.err, HF_EUNREACH);

    want = (struct hfi_want){.err = HF_OK}; /* and for ever */
    hfi_conn_want(line.conn, &want, &voice.task, EVENT_READY);
    await(&voice);
    hfi_conn_unwant(line.conn, &want);
    assert_int_equal(want.err, HF_EUNREACH);
    voice_end(&voice);
    line_end(&line);
}

static void one_that_is_down(void **state) {
    (void)state;
    retire_wanted(false, false);
}

static void one_that_is_ready(void **state) {
    (void)state;
    retire_wanted(true, false);
}

static void one_that_is_about_to_be_lost(void **state) {
    (void)state;
    retire_wanted(true, true);
}

static int start(void **state) {
    (void)state;
    server = server_start(NULL);
    return 0;
}

static int stop(void **state) {
    (void)state;
    server_free(server);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_down),
        cmocka_unit_test(one_that_is_ready),
        cmocka_unit_test(one_that_is_about_to_be_lost),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
