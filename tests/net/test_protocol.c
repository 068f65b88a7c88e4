/*
 * The same connection code under another protocol: nothing in src/net depends on RESP.
 *
 * The server is a thread of this program (echo.h). A caller attends as a synchronous call does, so
 * the driver, the keeper and the way back are those of the library.
 */
#include "net/echo.h"
#include "net/scene.h"

#include "base/clock.h"
#include "net/conn/conn_impl.h"
#include "net/driver/keeper.h"
#include "support/case.h"

enum { EVENT_REPLY = 1u, EVENT_READY = 2u, EVENT_LATE = 4u };

struct talk {
    struct hfi_mem mem;
    struct hfi_log log;
    struct hfi_keeper *keeper;
    struct hfi_host host;
    struct hfi_target target;
    struct hfi_conn *conn;
    struct echo_server *server;
    atomic_int ups, downs;
    /* The client's side, on the test's thread: */
    struct hfi_exec exec;
    struct hfi_sync_caller sync_caller;
    struct hfi_task task;
    unsigned news;
    char heard[4096]; /* what was pushed; written by the caller that reads */
};

static void talk_run(struct hfi_task *task, unsigned events) {
    HFI_CONTAINER(task, struct talk, task)->news |= events;
}

static void talk_destroy(struct hfi_task *task) {
    (void)task;
}

static void on_state(void *arg, bool up) {
    struct talk *talk = arg;
    atomic_fetch_add(up ? &talk->ups : &talk->downs, 1);
}

static void on_push(void *arg, const void *message) {
    struct talk *talk = arg;
    const struct echo_message *pushed = message;
    assert_int_equal(pushed->kind, '!');
    size_t len = strlen(talk->heard);
    snprintf(talk->heard + len, sizeof talk->heard - len, "!%s ", pushed->text);
}

static void talk_begin(struct talk *talk, hfi_push_fn push, int64_t cmd_timeout_ms,
                       int64_t ping_interval_ms) {
    static char hello[] = "hello";
    hf_error error = {.code = HF_OK};
    memset(talk, 0, sizeof *talk);
    talk->server = echo_start();
    assert_int_equal(hfi_keeper_new(&talk->mem, &talk->keeper, &error), HF_OK);
    talk->target = (struct hfi_target){.mem = &talk->mem,
                                       .log = &talk->log,
                                       .keeper = talk->keeper,
                                       .hosts = &talk->host,
                                       .hosts_len = 1,
                                       .node = "the echo",
                                       .protocol = &echo_protocol,
                                       .login = hello,
                                       .cmd_timeout_ms = cmd_timeout_ms,
                                       .ping_interval_ms = ping_interval_ms};
    assert_int_equal(hfi_addr_unix(echo_socket(talk->server), &talk->host.address), HF_OK);
    talk->conn = hfi_conn_new(&talk->target, HFI_DRIVER_CALLERS, push, on_state, talk);
    assert_non_null(talk->conn);
    assert_int_equal(hfi_keeper_start(talk->keeper, &error), HF_OK);
    hfi_exec_init(&talk->exec);
    hfi_task_init(&talk->task, &talk->exec, talk_run, talk_destroy);
}

static void free_conn(void *arg) {
    hfi_conn_free(((struct talk *)arg)->conn);
}

static void talk_end(struct talk *talk) {
    hfi_keeper_stop(talk->keeper, free_conn, talk);
    hfi_keeper_free(talk->keeper);
    hfi_task_retire(&talk->task);
    hfi_exec_run(&talk->exec);
    hfi_exec_destroy(&talk->exec);
    hfi_task_unref(&talk->task);
    echo_free(talk->server);
}

/* Waits as a synchronous call does. */
static void await(struct talk *talk, unsigned event) {
    while ((talk->news & event) == 0)
        if (!hfi_exec_run(&talk->exec))
            hfi_conn_drive(&talk->sync_caller, &talk->exec);
    talk->news &= ~event;
}

/* Returns what came of it, and the words. */
static int connect_talk(struct talk *talk, hf_error *ret_error) {
    struct hfi_want want = {.err = HF_OK};
    hfi_conn_want(talk->conn, &want, &talk->task, EVENT_READY);
    await(talk, EVENT_READY);
    hfi_conn_unwant(talk->conn, &want);
    *ret_error = want.error;
    return want.err;
}

static void assert_connects(struct talk *talk) {
    hf_error error;
    assert_int_equal(connect_talk(talk, &error), HF_OK);
}

static struct hfi_req *ask(struct talk *talk, const char *text) {
    char frame[256];
    struct hfi_req *req = NULL;
    size_t len = echo_frame('e', text, frame, sizeof frame);
    assert_int_equal(
        hfi_conn_submit(talk->conn, frame, len, &talk->task, EVENT_REPLY, &talk->sync_caller, &req),
        HF_OK);
    return req;
}

static void assert_answer(struct talk *talk, struct hfi_req *req, const char *text) {
    while (!atomic_load(&req->complete))
        await(talk, EVENT_REPLY);
    assert_int_equal(req->err, HF_OK);
    const struct echo_message *message = req->reply;
    assert_int_equal(message->kind, 'e');
    assert_string_equal(message->text, text);
    hfi_req_unref(req);
}

/* Something to run for the keeper, as soon as it has run. */
struct mill {
    struct hfi_task task;
    atomic_bool stop;
};

static void turn(struct hfi_task *task, unsigned events) {
    if (!atomic_load(&HFI_CONTAINER(task, struct mill, task)->stop))
        hfi_task_post(task, events);
}

static void assert_works(struct talk *talk) {
    assert_answer(talk, ask(talk, "are you there?"), "are you there?");
}

static void wait_for(atomic_int *value, int at_least) {
    assert_true(WAIT_FOR(atomic_load(value) >= at_least, HANG_MS));
}

/* ---- The tests ---- */

CASE_IN(answers_come_in_order, struct talk, talk, talk_begin, talk_end, NULL, 20000, 60000) {
    struct hfi_req *reqs[200];
    char text[32];
    assert_connects(talk); /* after a greeting of two rounds */
    assert_int_equal(atomic_load(&talk->server->greetings), 1);
    for (int i = 0; i < 200; i++) {
        snprintf(text, sizeof text, "number %d", i);
        reqs[i] = ask(talk, text);
    }
    for (int i = 0; i < 200; i++) {
        snprintf(text, sizeof text, "number %d", i);
        assert_answer(talk, reqs[i], text);
    }
}

/* What nobody asked for comes between the answers, and takes none of their places. */
/* To connect is the keeper's work, and takes answers. */
CASE(a_busy_keeper_reads_all_the_same) {
    struct talk talk;
    struct mill mill = {.stop = false};
    talk_begin(&talk, NULL, 20000, 60000);
    hfi_task_init(&mill.task, hfi_keeper_exec(talk.keeper), turn, talk_destroy);
    hfi_task_post(&mill.task, EVENT_READY);
    assert_connects(&talk);
    assert_works(&talk);
    atomic_store(&mill.stop, true);
    talk_end(&talk);
    hfi_task_retire(&mill.task);
    hfi_task_unref(&mill.task);
}

CASE_IN(pushes_come_between_answers, struct talk, talk, talk_begin, talk_end, on_push, 20000,
        60000) {
    struct hfi_req *reqs[3];
    atomic_store(&talk->server->pushes, true);
    assert_connects(talk);
    reqs[0] = ask(talk, "a");
    reqs[1] = ask(talk, "b");
    reqs[2] = ask(talk, "c");
    assert_answer(talk, reqs[0], "a");
    assert_answer(talk, reqs[1], "b");
    assert_answer(talk, reqs[2], "c");
    assert_works(talk); /* what came before its answer has been read */
    assert_non_null(strstr(talk->heard, "!a !a !b !b !c !c "));
}

CASE(an_idle_connection_is_pinged) {
    struct talk talk;
    for (int pushes = 0; pushes < 2; pushes++) {
        talk_begin(&talk, pushes != 0 ? on_push : NULL, 2000, 20);
        assert_connects(&talk);
        wait_for(&talk.server->pings, 2); /* the second when the first is known to be answered */
        assert_works(&talk);              /* its answer is not taken for that to a ping */
        assert_int_equal(atomic_load(&talk.downs), 0);
        talk_end(&talk);
    }
}

CASE_IN(silence_after_a_ping_ends_it, struct talk, talk, talk_begin, talk_end, NULL, 1500, 20) {
    assert_connects(talk);
    atomic_store(&talk->server->mute, true);
    wait_for(&talk->downs, 1);
    atomic_store(&talk->server->mute, false);
    hf_error error;
    while (connect_talk(talk, &error) != HF_OK)
        continue; /* an attempt may have fallen into the silence */
    assert_works(talk);
}

CASE_IN(a_loss_is_reported_and_it_reconnects, struct talk, talk, talk_begin, talk_end, NULL, 20000,
        60000) {
    assert_connects(talk);
    assert_works(talk);
    atomic_store(&talk->server->mute, true);
    struct hfi_req *req = ask(talk, "in vain");
    echo_cut(talk->server);
    await(talk, EVENT_REPLY);
    assert_true(atomic_load(&req->complete));
    assert_int_equal(req->err, HF_EUNREACH);
    assert_null(req->reply);
    assert_string_equal(req->error.node, "the echo");
    hfi_req_unref(req);
    talk->sync_caller.asked = NULL;
    atomic_store(&talk->server->mute, false);
    assert_connects(talk);
    assert_works(talk);
    assert_int_equal(atomic_load(&talk->server->greetings), 2);
    wait_for(&talk->ups, 2);
    assert_int_equal(atomic_load(&talk->downs), 1);
}

CASE_IN(a_greeting_that_is_refused, struct talk, talk, talk_begin, talk_end, NULL, 20000, 60000) {
    static const struct {
        int err;
        const char *words;
    } expected[] = {{HF_EPERM, "not you"},
                    {HF_EUNREACH, "it said: bye, it is late"},
                    {HF_EPROTO, "no frame has 4294967295 bytes"}};
    for (int i = 0; i < 3; i++) {
        hf_error error;
        atomic_store(&talk->server->refuse, i + 1);
        assert_int_equal(connect_talk(talk, &error), expected[i].err);
        assert_string_equal(error.text, expected[i].words);
    }
    atomic_store(&talk->server->refuse, 0);
    assert_connects(talk);
    assert_works(talk);
}

CASE_IN(silence_in_the_greeting_ends_by_time, struct talk, talk, talk_begin, talk_end, NULL, 200,
        60000) {
    hf_error error;
    atomic_store(&talk->server->mute, true);
    int64_t start_ms = now_ms();
    assert_int_equal(connect_talk(talk, &error), HF_EUNREACH);
    assert_true(now_ms() - start_ms >= 200);
}

RUN_CASES(NULL, NULL)
