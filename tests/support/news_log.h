/* The news that a listener (hf_listen()) got, for tests to wait for.
 *
 *     struct heard *h = heard_new();
 *     hf_listen(client, "name", heard_note, h, &listener);
 *     assert_true(heard_wait(h, HF_NEWS_LISTENING, 1, HANG_MS));
 *     ...
 *     hf_listener_free(listener);
 *     heard_free(h);
 *
 * Include as "support/news_log.h". Any thread may call anything. */
#ifndef HF_TEST_NEWS_LOG_H
#define HF_TEST_NEWS_LOG_H

#include <holdfast/holdfast.h>

#include <stdbool.h>
#include <stdint.h>

struct news_log;

struct news_log *news_log_new(void);
void news_log_free(struct news_log *news_log); /* when its listener is freed; NULL is fine */

/* The callback; `user` is the struct. */
void news_log_add(hf_listener *listener, const hf_news *news, void *user);

/* How many of a kind there were. */
int news_log_count(struct news_log *news_log, hf_news_kind kind);
/* Waits until there were so many, at least; false when the limit passed. */
bool news_log_wait(struct news_log *news_log, hf_news_kind kind, int count, int64_t limit_ms);

/* Of the last one of a kind. */
struct news_item {
    int code;
    int64_t number;
    size_t server, servers;
    char name[128];
};
struct news_item news_log_last(struct news_log *news_log, hf_news_kind kind);

/* A listener with its news. It listens when subscriber_new() returns; a test whose does not ends there. */
struct subscriber {
    struct news_log *news_log;
    hf_listener *listener;
};
struct subscriber subscriber_new(hf_client *client, const char *name);
void subscriber_free(struct subscriber *subscriber);

#endif
