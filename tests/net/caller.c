/*
 * One connection of src/net and the threads that call on it, see caller.h.
 */
#include "net/caller.h"

static void voice_run(struct hfi_task *task, unsigned events) {
    HFI_CONTAINER(task, struct caller, task)->news |= events;
}

static void voice_destroy(struct hfi_task *task) {
    (void)task;
}

static void voice_late(struct hfi_alarm *alarm) {
    HFI_CONTAINER(alarm, struct caller, alarm)->news |= EVENT_LATE;
}

void caller_begin(struct caller *caller, struct raw *raw) {
    memset(caller, 0, sizeof *caller);
    caller->raw = raw;
    hfi_exec_init(&caller->exec);
    hfi_task_init(&caller->task, &caller->exec, voice_run, voice_destroy);
    caller->alarm.fire = voice_late;
}

void caller_end(struct caller *caller) {
    hfi_task_retire(&caller->task);
    hfi_exec_destroy(&caller->exec);
    hfi_task_unref(&caller->task);
}

/* ---- One connection ---- */

void raw_connect(struct raw *raw) {
    OWN(caller_end) struct caller caller;
    struct hfi_want want = {.err = HF_OK};
    caller_begin(&caller, raw);
    hfi_conn_want(raw->conn, &want, &caller.task, EVENT_READY);
    while ((caller.news & EVENT_READY) == 0)
        if (!hfi_exec_run(&caller.exec))
            hfi_exec_sleep(&caller.exec);
    hfi_conn_unwant(raw->conn, &want);
    assert_int_equal(want.err, HF_OK);
}

void raw_begin_at(struct raw *raw, const char *socket) {
    hf_error error = {.code = HF_OK};
    assert_int_equal(hfi_keeper_new(&raw->mem, &raw->keeper, &error), HF_OK);
    raw->login.client_name = "voices";
    raw->target = (struct hfi_target){
        .mem = &raw->mem,
        .log = &raw->log,
        .keeper = raw->keeper,
        .hosts = &raw->host,
        .hosts_len = 1,
        .node = "the server",
        .protocol = &hfi_resp,
        .login = &raw->login,
        .cmd_timeout_ms = 20000,
        .ping_interval_ms = 60000,
    };
    assert_int_equal(hfi_addr_unix(socket, &raw->host.address), HF_OK);
    raw->conn = hfi_conn_new(&raw->target, HFI_DRIVER_CALLERS, NULL, NULL, NULL);
    assert_non_null(raw->conn);
    assert_int_equal(hfi_keeper_start(raw->keeper, &error), HF_OK);
    raw_connect(raw);
}

/* Through a proxy. */
void raw_begin(struct raw *raw) {
    memset(raw, 0, sizeof *raw);
    raw->proxy = proxy_start(server_socket(scene_server()));
    raw_begin_at(raw, proxy_socket(raw->proxy));
}

static void free_conn(void *arg) {
    hfi_conn_free(((struct raw *)arg)->conn);
}

void raw_end(struct raw *raw) {
    hfi_keeper_stop(raw->keeper, free_conn, raw);
    hfi_keeper_free(raw->keeper);
    proxy_free(raw->proxy);
}

struct driver_view view_driver(struct raw *raw) {
    struct hfi_conn *conn = raw->conn;
    pthread_mutex_lock(&conn->mtx);
    struct driver_view view = {conn->driver, conn->in_flight, conn->sync_callers, 0};
    for (struct hfi_link *link = conn->followers.next; link != &conn->followers; link = link->next)
        view.followers++;
    pthread_mutex_unlock(&conn->mtx);
    return view;
}

struct wanted_driver {
    struct raw *raw;
    const struct hfi_exec *driver;
    size_t followers;
};

static bool is_driver(void *arg) {
    struct wanted_driver *wanted = arg;
    struct driver_view view = view_driver(wanted->raw);
    return view.driver == wanted->driver && view.followers == wanted->followers;
}

/* Waits until this caller drives (NULL: nobody does) and so many follow. */
void wait_driver(struct raw *raw, const struct caller *driver, size_t followers) {
    struct wanted_driver wanted = {raw, driver != NULL ? &driver->exec : NULL, followers};
    assert_true(wait_until(is_driver, &wanted, HANG_MS));
}

/* ---- Voices ---- */

static bool is_echo(const void *message, const char *text, size_t size) {
    const redisReply *reply = message;
    return reply->type == REDIS_REPLY_STRING && (size_t)reply->len == size &&
           memcmp(reply->str, text, size) == 0;
}

/* A text of `size` bytes that nobody else sends. */
static char *unique_text(size_t size) {
    static atomic_ullong counter;
    char *text = malloc(size + 32);
    if (text == NULL)
        support_die("no memory for a text");
    int len = snprintf(text, 32, "%020llu:", atomic_fetch_add(&counter, 1));
    if ((size_t)len < size)
        memset(text + len, 'x', size - (size_t)len);
    return text;
}

static enum outcome hear(struct caller *caller, struct hfi_req *req, const char *text,
                         size_t size) {
    if ((caller->news & EVENT_REPLY) == 0) {
        hfi_req_abandon(req);
        return (caller->news & EVENT_CANCEL) != 0 ? CANCELLED : LATE;
    }
    enum outcome outcome = LOST;
    if (!req->complete)
        outcome = WRONG;
    else if (req->err == HF_OK)
        outcome = is_echo(req->reply, text, size) ? ANSWERED : WRONG;
    hfi_req_unref(req);
    return outcome;
}

/* Sends, and waits as a synchronous call would. */
enum outcome send_and_wait(struct caller *caller, size_t size, int64_t wait_ms) {
    char *text = unique_text(size), *command = malloc(size + 64);
    if (command == NULL)
        support_die("no memory for a command");
    int head = snprintf(command, 64, "*2\r\n$4\r\nECHO\r\n$%zu\r\n", size);
    memcpy(command + head, text, size);
    memcpy(command + head + size, "\r\n", sizeof "\r\n");

    struct hfi_req *req = NULL;
    caller->news = 0;
    int err = hfi_conn_submit(caller->raw->conn, command, (size_t)head + size + 2, &caller->task,
                              EVENT_REPLY, &caller->sync_caller, &req);
    free(command);
    enum outcome outcome = UNSENT;
    if (err == HF_OK) {
        hfi_alarm_set(&caller->exec, &caller->alarm, hfi_after_ms(hfi_now_ms(), wait_ms));
        while (caller->news == 0)
            if (!hfi_exec_run(&caller->exec))
                hfi_conn_drive(&caller->sync_caller, &caller->exec);
        hfi_alarm_clear(&caller->exec, &caller->alarm);
        outcome = hear(caller, req, text, size);
        caller->sync_caller.asked = NULL;
        hfi_exec_run(&caller->exec); /* what came in the last moment belongs to this call */
    }
    free(text);
    return outcome;
}

static void *speak_once(void *arg) {
    struct caller *caller = arg;
    int64_t start_ms = now_ms();
    caller->outcome = send_and_wait(caller, caller->size, caller->wait_ms);
    caller->took_ms = now_ms() - start_ms;
    atomic_store(&caller->done, true);
    return NULL;
}

static void start(struct caller *caller, size_t size, int64_t wait_ms) {
    caller->size = size;
    caller->wait_ms = wait_ms;
    assert_int_equal(pthread_create(&caller->thread, NULL, speak_once, caller), 0);
}

void start_caller(struct caller *caller, struct raw *raw, size_t size, int64_t wait_ms) {
    caller_begin(caller, raw);
    start(caller, size, wait_ms);
}

void start_undisturbed_caller(struct caller *caller, struct raw *raw, size_t size,
                              int64_t wait_ms) {
    caller_begin(caller, raw);
    caller->exec.undisturbed = true;
    start(caller, size, wait_ms);
}

enum outcome join_caller(struct caller *caller) {
    scene_join_thread(caller->thread);
    caller_end(caller);
    return caller->outcome;
}

void cancel_caller(struct caller *caller) {
    hfi_task_post(&caller->task, EVENT_CANCEL);
}

void shorten_caller(struct caller *caller, int64_t wait_ms) {
    hfi_alarm_set(&caller->exec, &caller->alarm, hfi_after_ms(hfi_now_ms(), wait_ms));
}

/* Nothing is left over: the next caller gets its own reply, and there is no driver afterwards. */
void assert_raw_works(struct raw *raw) {
    struct caller caller;
    caller_begin(&caller, raw);
    assert_int_equal(send_and_wait(&caller, 40, HANG_MS), ANSWERED);
    caller_end(&caller);
    wait_driver(raw, NULL, 0);
    assert_int_equal(view_driver(raw).in_flight, 0);
    assert_int_equal(view_driver(raw).sync_callers, 0);
}
