/*
 * The notification that a listener got; see notification_log.h. Written by callbacks, read by the
 * test; one mutex guards all of it.
 */
#include "support/notification_log.h"

#include "support/wait.h"

#include <stdio.h>

#define KINDS (HF_NOTIFY_LOST + 1)
#define LISTENS_MS 60000

struct notification_log {
    pthread_mutex_t mtx;
    int counts[KINDS];
    struct notification_item last[KINDS];
};

struct notification_log *notification_log_new(void) {
    struct notification_log *notification_log = zeroed(1, sizeof *notification_log);
    pthread_mutex_init(&notification_log->mtx, NULL);
    return notification_log;
}

void notification_log_free(struct notification_log *notification_log) {
    if (notification_log == NULL)
        return;
    pthread_mutex_destroy(&notification_log->mtx);
    free(notification_log);
}

void notification_log_add(hf_listener *listener, const hf_notification *notification, void *user) {
    struct notification_log *notification_log = user;
    (void)listener;
    if (notification->kind < 1 || notification->kind >= KINDS)
        support_die("there are no such notification: %d", (int)notification->kind);
    pthread_mutex_lock(&notification_log->mtx);
    struct notification_item *last = &notification_log->last[notification->kind];
    *last = (struct notification_item){.code = notification->code,
                                       .number = notification->number,
                                       .server = notification->server,
                                       .servers = notification->servers};
    snprintf(last->name, sizeof last->name, "%s", notification->name);
    notification_log->counts[notification->kind]++;
    pthread_mutex_unlock(&notification_log->mtx);
}

int notification_log_count(struct notification_log *notification_log, hf_notification_kind kind) {
    pthread_mutex_lock(&notification_log->mtx);
    int count = notification_log->counts[kind];
    pthread_mutex_unlock(&notification_log->mtx);
    return count;
}

struct wanted {
    struct notification_log *notification_log;
    hf_notification_kind kind;
    int count;
};

static bool has_enough(void *arg) {
    const struct wanted *wanted = arg;
    return notification_log_count(wanted->notification_log, wanted->kind) >= wanted->count;
}

bool notification_log_wait(struct notification_log *notification_log, hf_notification_kind kind,
                           int count, int64_t limit_ms) {
    struct wanted wanted = {notification_log, kind, count};
    return wait_until(has_enough, &wanted, limit_ms);
}

struct notification_item notification_log_last(struct notification_log *notification_log,
                                               hf_notification_kind kind) {
    pthread_mutex_lock(&notification_log->mtx);
    struct notification_item last = notification_log->last[kind];
    pthread_mutex_unlock(&notification_log->mtx);
    return last;
}

struct subscriber subscriber_new(hf_client *client, const char *name) {
    struct subscriber subscriber = {.notification_log = notification_log_new()};
    int err = hf_listen(client, name, notification_log_add, subscriber.notification_log,
                        &subscriber.listener);
    if (err != HF_OK ||
        !notification_log_wait(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED, 1, LISTENS_MS))
        support_die("nobody listens to %s: %s", name, hf_error_name(err));
    return subscriber;
}

void subscriber_free(struct subscriber *subscriber) {
    hf_listener_free(subscriber->listener);
    notification_log_free(subscriber->notification_log);
}
