/*
 * A pub/sub connection and its listeners. See the header for what they are.
 *
 * Messages and states come on the threads of the connection (keeper or listener); `listeners` is all
 * they share with the test. Everything else of a listener belongs to its thread.
 */
#include "net/station.h"

#include <time.h>

/* ---- The station ---- */

static void tell(struct station *station, int number, unsigned event) {
    if (number >= 0 && number < LISTENERS && station->listeners[number] != NULL)
        hfi_task_post(&station->listeners[number]->task, event);
}

static void on_push(void *arg, const void *message) {
    struct station *station = arg;
    const redisReply *reply = message;
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    if (strcmp(reply->element[0]->str, "subscribe") == 0)
        atomic_fetch_add(&station->confirmed, 1);
    if (strcmp(reply->element[0]->str, "message") != 0)
        return;
    bool keeper = hfi_keeper_is_self(station->keeper);
    pthread_mutex_lock(&station->mtx);
    tell(station, atoi(reply->element[2]->str), EVENT_MESSAGE);
    pthread_mutex_unlock(&station->mtx);
    atomic_fetch_add(keeper ? &station->by_keeper : &station->by_callers, 1);
}

static void on_state(void *arg, bool up) {
    static const char subscribe[] = "*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\nnews\r\n";
    struct station *station = arg;
    if (up) {
        hfi_conn_send(station->conn, subscribe, sizeof subscribe - 1);
        return;
    }
    atomic_fetch_add(&station->losses, 1);
    pthread_mutex_lock(&station->mtx);
    for (int i = 0; i < LISTENERS; i++)
        tell(station, i, EVENT_LOST);
    pthread_mutex_unlock(&station->mtx);
}

struct expected {
    atomic_int *value;
    int at_least;
};

static bool has_reached(void *arg) {
    const struct expected *expected = arg;
    return atomic_load(expected->value) >= expected->at_least;
}

void station_wait_for(atomic_int *value, int at_least) {
    struct expected expected = {value, at_least};
    assert_true(wait_until(has_reached, &expected, HANG_MS));
}

void station_begin_with(struct station *station, int64_t cmd_timeout_ms, int64_t ping_interval_ms) {
    hf_error error = {.code = HF_OK};
    memset(station, 0, sizeof *station);
    pthread_mutex_init(&station->mtx, NULL);
    station->proxy = proxy_start(server_socket(scene_server()));
    assert_int_equal(hfi_keeper_new(&station->mem, &station->keeper, &error), HF_OK);
    station->login.client_name = "listeners";
    station->target = (struct hfi_target){
        .mem = &station->mem,
        .log = &station->log,
        .keeper = station->keeper,
        .hosts = &station->host,
        .hosts_len = 1,
        .node = "the server",
        .protocol = &hfi_resp,
        .login = &station->login,
        .cmd_timeout_ms = cmd_timeout_ms,
        .ping_interval_ms = ping_interval_ms,
    };
    assert_int_equal(hfi_addr_unix(proxy_socket(station->proxy), &station->host.address), HF_OK);
    station->conn =
        hfi_conn_new(&station->target, HFI_DRIVER_LISTENERS, on_push, on_state, station);
    assert_non_null(station->conn);
    assert_int_equal(hfi_keeper_start(station->keeper, &error), HF_OK);
    hfi_conn_keep_up(station->conn, true);
    station_wait_for(&station->confirmed, 1);
}

void station_begin(struct station *station) {
    station_begin_with(station, 20000, 60000);
}

static void free_conn(void *arg) {
    hfi_conn_free(((struct station *)arg)->conn);
}

void station_end(struct station *station) {
    hfi_keeper_stop(station->keeper, free_conn, station);
    hfi_keeper_free(station->keeper);
    proxy_free(station->proxy);
    pthread_mutex_destroy(&station->mtx);
}

void station_publish(int number) {
    assert_int_equal(cmd_int(scene_server(), "PUBLISH news %d", number), 1);
}

/* ---- The driver ---- */

static const struct hfi_exec *driver_of(struct station *station, size_t *ret_followers) {
    struct hfi_conn *conn = station->conn;
    pthread_mutex_lock(&conn->mtx);
    const struct hfi_exec *driver = conn->driver;
    *ret_followers = 0;
    for (struct hfi_link *link = conn->followers.next; link != &conn->followers; link = link->next)
        ++*ret_followers;
    pthread_mutex_unlock(&conn->mtx);
    return driver;
}

struct wanted_driver {
    struct station *station;
    const struct hfi_exec *driver;
    size_t followers;
};

static bool is_driver(void *arg) {
    const struct wanted_driver *wanted = arg;
    size_t followers;
    const struct hfi_exec *driver = driver_of(wanted->station, &followers);
    return driver == wanted->driver && followers == wanted->followers;
}

void station_wait_driver(struct station *station, const struct hfi_exec *driver, size_t followers) {
    struct wanted_driver wanted = {station, driver, followers};
    assert_true(wait_until(is_driver, &wanted, HANG_MS));
}

void station_wait_keeper(struct station *station, size_t followers) {
    station_wait_driver(station, hfi_keeper_exec(station->keeper), followers);
}

/* ---- Listeners ---- */

static void listener_run(struct hfi_task *task, unsigned events) {
    HFI_CONTAINER(task, struct listener, task)->news |= events;
}

static void listener_destroy(struct hfi_task *task) {
    (void)task;
}

static void listener_late(struct hfi_alarm *alarm) {
    HFI_CONTAINER(alarm, struct listener, alarm)->news |= EVENT_LATE;
}

void listener_set_receiver(struct listener *listener, struct listener *receiver) {
    struct station *station = listener->station;
    pthread_mutex_lock(&station->mtx);
    station->listeners[listener->number] = receiver;
    pthread_mutex_unlock(&station->mtx);
}

/* Waits as a synchronous call would. Its receiver is set before this. */
unsigned listener_listen(struct listener *listener, int64_t wait_ms) {
    listener->news = 0;
    hfi_conn_listen(listener->station->conn, &listener->sync_caller);
    hfi_alarm_set(&listener->exec, &listener->alarm, hfi_after_ms(hfi_now_ms(), wait_ms));
    while (listener->news == 0)
        if (!hfi_exec_run(&listener->exec))
            hfi_conn_drive(&listener->sync_caller, &listener->exec);
    hfi_alarm_clear(&listener->exec, &listener->alarm);
    hfi_conn_unlisten(listener->station->conn, &listener->sync_caller);
    return listener->news;
}

static void *listener_main(void *arg) {
    struct listener *listener = arg;
    int64_t start_ms = now_ms();
    listener_listen(listener, listener->wait_ms);
    listener->took_ms = now_ms() - start_ms;
    atomic_store(&listener->done, true);
    return NULL;
}

void listener_begin(struct listener *listener, struct station *station, int number) {
    memset(listener, 0, sizeof *listener);
    listener->station = station;
    listener->number = number;
    hfi_exec_init(&listener->exec);
    hfi_task_init(&listener->task, &listener->exec, listener_run, listener_destroy);
    listener->alarm.fire = listener_late;
    listener_set_receiver(listener, listener);
}

void listener_end(struct listener *listener) {
    listener_set_receiver(listener, NULL);
    hfi_task_retire(&listener->task);
    hfi_exec_destroy(&listener->exec);
    hfi_task_unref(&listener->task);
}

void listener_start(struct listener *listener, struct station *station, int number,
                    int64_t wait_ms) {
    listener_begin(listener, station, number);
    listener->wait_ms = wait_ms;
    assert_int_equal(pthread_create(&listener->thread, NULL, listener_main, listener), 0);
}

unsigned listener_join(struct listener *listener) {
    scene_join_thread(listener->thread);
    listener_end(listener);
    return listener->news;
}

void listener_cancel(struct listener *listener) {
    hfi_task_post(&listener->task, EVENT_CANCEL);
}

void listener_shorten(struct listener *listener, int64_t wait_ms) {
    hfi_alarm_set(&listener->exec, &listener->alarm, hfi_after_ms(hfi_now_ms(), wait_ms));
}

void listener_start_driver(struct listener *listener, struct station *station, int number,
                           int64_t wait_ms) {
    listener_start(listener, station, number, wait_ms);
    station_wait_driver(station, &listener->exec, 0);
}

void station_assert_works(struct station *station) {
    struct listener listener;
    listener_start_driver(&listener, station, 0, HANG_MS);
    station_publish(0);
    assert_int_equal(listener_join(&listener), EVENT_MESSAGE);
}
