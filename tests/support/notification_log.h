/* The notification that a listener (hf_listen()) got, for tests to wait for.
 *
 *     struct notification_log *log = notification_log_new();
 *     hf_listen(client, "name", notification_log_add, log, &listener);
 *     assert_true(notification_log_wait(log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
 *     ...
 *     hf_listener_free(listener);
 *     notification_log_free(log);
 *
 * Include as "support/notification_log.h". Any thread may call anything. */
#ifndef HF_TEST_NOTIFICATION_LOG_H
#define HF_TEST_NOTIFICATION_LOG_H

#include <holdfast/holdfast.h>

#include <stdbool.h>
#include <stdint.h>

struct notification_log;

struct notification_log *notification_log_new(void);
void notification_log_free(
    struct notification_log *notification_log); /* when its listener is freed; NULL is fine */

/* The callback; `user` is the struct. */
void notification_log_add(hf_listener *listener, const hf_notification *notification, void *user);

/* How many of a kind there were. */
int notification_log_count(struct notification_log *notification_log, hf_notification_kind kind);
/* Waits until there were so many, at least; false when the limit passed. */
bool notification_log_wait(struct notification_log *notification_log, hf_notification_kind kind,
                           int count, int64_t limit_ms);

/* Of the last one of a kind. */
struct notification_item {
    int code;
    int64_t number;
    size_t server, servers;
    char name[128];
};
struct notification_item notification_log_last(struct notification_log *notification_log,
                                               hf_notification_kind kind);

/* A listener with its notification. It listens when subscriber_new() returns; a test whose does not ends there. */
struct subscriber {
    struct notification_log *notification_log;
    hf_listener *listener;
};
struct subscriber subscriber_new(hf_client *client, const char *name);
void subscriber_free(struct subscriber *subscriber);

#endif
