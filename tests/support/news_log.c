/*
 * The news that a listener got; see news_log.h. Written by callbacks, read by the test; one mutex guards all of it.
 */
#include "support/news_log.h"

#include "support/wait.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define KINDS (HF_NEWS_BROKEN + 1)
#define LISTENS_MS 60000

struct news_log {
    pthread_mutex_t mtx;
    int counts[KINDS];
    struct news_item last[KINDS];
};

struct news_log *news_log_new(void) {
    struct news_log *news_log = calloc(1, sizeof *news_log);
    if (news_log == NULL)
        support_die("no memory for a test");
    pthread_mutex_init(&news_log->mtx, NULL);
    return news_log;
}

void news_log_free(struct news_log *news_log) {
    if (news_log == NULL)
        return;
    pthread_mutex_destroy(&news_log->mtx);
    free(news_log);
}

void news_log_add(hf_listener *listener, const hf_news *news, void *user) {
    struct news_log *news_log = user;
    (void)listener;
    if (news->kind < 1 || news->kind >= KINDS)
        support_die("there are no such news: %d", (int)news->kind);
    pthread_mutex_lock(&news_log->mtx);
    struct news_item *last = &news_log->last[news->kind];
    *last = (struct news_item){.code = news->code,
                               .number = news->number,
                               .server = news->server,
                               .servers = news->servers};
    snprintf(last->name, sizeof last->name, "%s", news->name);
    news_log->counts[news->kind]++;
    pthread_mutex_unlock(&news_log->mtx);
}

int news_log_count(struct news_log *news_log, hf_news_kind kind) {
    pthread_mutex_lock(&news_log->mtx);
    int count = news_log->counts[kind];
    pthread_mutex_unlock(&news_log->mtx);
    return count;
}

struct wanted {
    struct news_log *news_log;
    hf_news_kind kind;
    int count;
};

static bool has_enough(void *arg) {
    const struct wanted *wanted = arg;
    return news_log_count(wanted->news_log, wanted->kind) >= wanted->count;
}

bool news_log_wait(struct news_log *news_log, hf_news_kind kind, int count, int64_t limit_ms) {
    struct wanted wanted = {news_log, kind, count};
    return wait_until(has_enough, &wanted, limit_ms);
}

struct news_item news_log_last(struct news_log *news_log, hf_news_kind kind) {
    pthread_mutex_lock(&news_log->mtx);
    struct news_item last = news_log->last[kind];
    pthread_mutex_unlock(&news_log->mtx);
    return last;
}

struct subscriber subscriber_new(hf_client *client, const char *name) {
    struct subscriber subscriber = {.news_log = news_log_new()};
    int err = hf_listen(client, name, news_log_add, subscriber.news_log, &subscriber.listener);
    if (err != HF_OK || !news_log_wait(subscriber.news_log, HF_NEWS_LISTENING, 1, LISTENS_MS))
        support_die("nobody listens to %s: %s", name, hf_error_name(err));
    return subscriber;
}

void subscriber_free(struct subscriber *subscriber) {
    hf_listener_free(subscriber->listener);
    news_log_free(subscriber->news_log);
}
