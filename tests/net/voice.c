/*
 * One connection of src/net and the threads that speak on it, see voice.h.
 */
#include "net/voice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void voice_run(struct hfi_task *task, unsigned events) {
    HFI_CONTAINER(task, struct voice, task)->news |= events;
}

static void voice_destroy(struct hfi_task *task) {
    (void)task;
}

static void voice_late(struct hfi_alarm *alarm) {
    HFI_CONTAINER(alarm, struct voice, alarm)->news |= EVENT_LATE;
}

void voice_begin(struct voice *voice, struct line *line) {
    memset(voice, 0, sizeof *voice);
    voice->line = line;
    hfi_exec_init(&voice->exec);
    hfi_task_init(&voice->task, &voice->exec, voice_run, voice_destroy);
    voice->alarm.fire = voice_late;
}

void voice_end(struct voice *voice) {
    hfi_task_retire(&voice->task);
    hfi_exec_destroy(&voice->exec);
    hfi_task_unref(&voice->task);
}

/* ---- One connection ---- */

void connect_line(struct line *line) {
    struct voice voice;
    struct hfi_want want = {.err = HF_OK};
    voice_begin(&voice, line);
    hfi_conn_want(line->conn, &want, &voice.task, EVENT_READY);
    while ((voice.news & EVENT_READY) == 0)
        if (!hfi_exec_run(&voice.exec))
            hfi_exec_sleep(&voice.exec);
    hfi_conn_unwant(line->conn, &want);
    assert_int_equal(want.err, HF_OK);
    voice_end(&voice);
}

void line_begin_at(struct line *line, const char *socket) {
    hf_error error = {.code = HF_OK};
    assert_int_equal(hfi_keeper_new(&line->mem, &line->keeper, &error), HF_OK);
    line->login.client_name = "voices";
    line->target = (struct hfi_target){
        .mem = &line->mem,
        .log = &line->log,
        .keeper = line->keeper,
        .hosts = &line->host,
        .hosts_len = 1,
        .node = "the server",
        .protocol = &hfi_resp,
        .login = &line->login,
        .cmd_timeout_ms = 20000,
        .ping_ms = 60000,
    };
    assert_int_equal(hfi_addr_unix(socket, &line->host.address), HF_OK);
    line->conn = hfi_conn_new(&line->target, HFI_SEAT_CALLERS, NULL, NULL, NULL);
    assert_non_null(line->conn);
    assert_int_equal(hfi_keeper_start(line->keeper, &error), HF_OK);
    connect_line(line);
}

/* Through a proxy. */
void line_begin(struct line *line) {
    memset(line, 0, sizeof *line);
    line->proxy = proxy_start(server_socket(scene_server()));
    line_begin_at(line, proxy_socket(line->proxy));
}

static void free_conn(void *arg) {
    hfi_conn_free(((struct line *)arg)->conn);
}

void line_end(struct line *line) {
    hfi_keeper_stop(line->keeper, free_conn, line);
    hfi_keeper_free(line->keeper);
    proxy_free(line->proxy);
}

struct seat_view look(struct line *line) {
    struct hfi_conn *conn = line->conn;
    pthread_mutex_lock(&conn->mtx);
    struct seat_view view = {conn->driver, conn->in_flight, conn->attendants, 0};
    for (struct hfi_link *link = conn->followers.next; link != &conn->followers; link = link->next)
        view.followers++;
    pthread_mutex_unlock(&conn->mtx);
    return view;
}

struct wanted_seat {
    struct line *line;
    const struct hfi_exec *driver;
    size_t followers;
};

static bool is_seated(void *arg) {
    struct wanted_seat *wanted = arg;
    struct seat_view view = look(wanted->line);
    return view.driver == wanted->driver && view.followers == wanted->followers;
}

/* Waits until this voice drives (NULL: nobody does) and so many follow. */
void wait_seated(struct line *line, const struct voice *driver, size_t followers) {
    struct wanted_seat wanted = {line, driver != NULL ? &driver->exec : NULL, followers};
    assert_true(wait_until(is_seated, &wanted, HANG_MS));
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

static enum outcome hear(struct voice *voice, struct hfi_req *req, const char *text, size_t size) {
    if ((voice->news & EVENT_REPLY) == 0) {
        hfi_req_abandon(req);
        return (voice->news & EVENT_CANCEL) != 0 ? CANCELLED : LATE;
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
enum outcome speak(struct voice *voice, size_t size, int64_t wait_ms) {
    char *text = unique_text(size), *command = malloc(size + 64);
    if (command == NULL)
        support_die("no memory for a command");
    int head = snprintf(command, 64, "*2\r\n$4\r\nECHO\r\n$%zu\r\n", size);
    memcpy(command + head, text, size);
    memcpy(command + head + size, "\r\n", sizeof "\r\n");

    struct hfi_req *req = NULL;
    voice->news = 0;
    int err = hfi_conn_submit(voice->line->conn, command, (size_t)head + size + 2, &voice->task,
                              EVENT_REPLY, &voice->attendant, &req);
    free(command);
    enum outcome outcome = UNSENT;
    if (err == HF_OK) {
        hfi_alarm_set(&voice->exec, &voice->alarm, hfi_after_ms(hfi_now_ms(), wait_ms));
        while (voice->news == 0)
            if (!hfi_exec_run(&voice->exec))
                hfi_conn_attend(&voice->attendant, &voice->exec);
        hfi_alarm_clear(&voice->exec, &voice->alarm);
        outcome = hear(voice, req, text, size);
        voice->attendant.asked = NULL;
        hfi_exec_run(&voice->exec); /* what came in the last moment belongs to this call */
    }
    free(text);
    return outcome;
}

static void *speak_once(void *arg) {
    struct voice *voice = arg;
    int64_t start_ms = now_ms();
    voice->outcome = speak(voice, voice->size, voice->wait_ms);
    voice->took_ms = now_ms() - start_ms;
    atomic_store(&voice->done, true);
    return NULL;
}

static void start(struct voice *voice, size_t size, int64_t wait_ms) {
    voice->size = size;
    voice->wait_ms = wait_ms;
    assert_int_equal(pthread_create(&voice->thread, NULL, speak_once, voice), 0);
}

void start_voice(struct voice *voice, struct line *line, size_t size, int64_t wait_ms) {
    voice_begin(voice, line);
    start(voice, size, wait_ms);
}

void start_undisturbed_voice(struct voice *voice, struct line *line, size_t size, int64_t wait_ms) {
    voice_begin(voice, line);
    voice->exec.undisturbed = true;
    start(voice, size, wait_ms);
}

enum outcome join_voice(struct voice *voice) {
    scene_join_thread(voice->thread);
    voice_end(voice);
    return voice->outcome;
}

void cancel_voice(struct voice *voice) {
    hfi_task_post(&voice->task, EVENT_CANCEL);
}

void shorten_voice(struct voice *voice, int64_t wait_ms) {
    hfi_alarm_set(&voice->exec, &voice->alarm, hfi_after_ms(hfi_now_ms(), wait_ms));
}

/* Nothing is left over: the next caller gets its own reply, and the seat is empty afterwards. */
void assert_line_works(struct line *line) {
    struct voice voice;
    voice_begin(&voice, line);
    assert_int_equal(speak(&voice, 40, HANG_MS), ANSWERED);
    voice_end(&voice);
    wait_seated(line, NULL, 0);
    assert_int_equal(look(line).in_flight, 0);
    assert_int_equal(look(line).attendants, 0);
}
