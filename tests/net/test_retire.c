/*
 * Connections that are retired: the caller that wants one, or has a request in flight, hears of it at once, in
 * whatever state it is, and it is never made again.
 */
#include "net/caller.h"

static struct server *server;

static void begin(struct raw *raw, struct hfi_host *host) {
    hf_error error = {.code = HF_OK};
    memset(raw, 0, sizeof *raw);
    assert_int_equal(hfi_keeper_new(&raw->mem, &raw->keeper, &error), HF_OK);
    *host = (struct hfi_host){.name = "the server"};
    assert_int_equal(hfi_addr_unix(server_socket(server), &host->address), HF_OK);
    raw->login.client_name = "retired";
    raw->target = (struct hfi_target){.mem = &raw->mem,
                                      .log = &raw->log,
                                      .keeper = raw->keeper,
                                      .hosts = host,
                                      .hosts_len = 1,
                                      .node = "the server",
                                      .protocol = &hfi_resp,
                                      .login = &raw->login,
                                      .cmd_timeout_ms = 20000,
                                      .ping_interval_ms = 60000};
    raw->conn = hfi_conn_new(&raw->target, HFI_DRIVER_CALLERS, NULL, NULL, NULL);
    assert_non_null(raw->conn);
    assert_int_equal(hfi_keeper_start(raw->keeper, &error), HF_OK);
}

/* Something to be done on the keeper's thread, in one go. */
struct job {
    struct hfi_task task;
    struct hfi_conn *conn;
    struct hfi_want *want;
    struct hfi_task *wanting;
    bool breaks;
    atomic_bool done;
};

static void run_job(struct hfi_task *task, unsigned events) {
    struct job *job = HFI_CONTAINER(task, struct job, task);
    (void)events;
    if (job->breaks)
        hfi_conn_suspect(job->conn, INT64_MAX);
    hfi_conn_want(job->conn, job->want, job->wanting, EVENT_READY);
    hfi_conn_retire(job->conn);
    atomic_store(&job->done, true);
}

static bool is_done(void *arg) {
    return atomic_load(&((struct job *)arg)->done);
}

static void nothing_to_free(struct hfi_task *task) {
    (void)task;
}

static void await(struct caller *caller) {
    while ((caller->news & EVENT_READY) == 0)
        if (!hfi_exec_run(&caller->exec))
            hfi_exec_sleep(&caller->exec);
    caller->news = 0;
}

static void retire_wanted(bool connected, bool breaks) {
    OWN(raw_end) struct raw raw;
    struct hfi_host host;
    struct caller caller;
    struct hfi_want want = {.err = HF_OK};
    begin(&raw, &host);
    if (connected)
        raw_connect(&raw);
    caller_begin(&caller, &raw);
    struct job job = {.conn = raw.conn, .want = &want, .wanting = &caller.task, .breaks = breaks};
    hfi_task_init(&job.task, hfi_keeper_exec(raw.keeper), run_job, nothing_to_free);
    hfi_task_post(&job.task, 1);
    await(&caller);
    assert_true(wait_until(is_done, &job, 60000));
    hfi_conn_unwant(raw.conn, &want);
    if (!connected || breaks)
        assert_int_equal(want.err, HF_EUNREACH);

    want = (struct hfi_want){.err = HF_OK}; /* and for ever */
    hfi_conn_want(raw.conn, &want, &caller.task, EVENT_READY);
    await(&caller);
    hfi_conn_unwant(raw.conn, &want);
    assert_int_equal(want.err, HF_EUNREACH);
    caller_end(&caller);
}

CASE(one_that_is_down) {
    retire_wanted(false, false);
}

CASE(one_that_is_ready) {
    retire_wanted(true, false);
}

CASE(one_that_is_about_to_be_lost) {
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

RUN_CASES(start, stop)
