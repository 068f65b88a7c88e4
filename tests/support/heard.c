/*
 * What a listener was told; see heard.h. Written by callbacks, read by the test; one mutex guards all of it.
 */
#include "support/heard.h"

#include "support/wait.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define KINDS (HF_NEWS_CHANGED + 1)
#define LISTENS_MS 60000

struct heard {
    pthread_mutex_t mtx;
    int counts[KINDS];
    struct heard_news last[KINDS];
};

struct heard *heard_new(void) {
    struct heard *heard = calloc(1, sizeof *heard);
    if (heard == NULL)
        support_die("no memory for a test");
    pthread_mutex_init(&heard->mtx, NULL);
    return heard;
}

void heard_free(struct heard *heard) {
    if (heard == NULL)
        return;
    pthread_mutex_destroy(&heard->mtx);
    free(heard);
}

void heard_note(hf_listener *listener, const hf_news *news, void *user) {
    struct heard *heard = user;
    (void)listener;
    if (news->kind < 1 || news->kind >= KINDS)
        support_die("there are no such news: %d", (int)news->kind);
    pthread_mutex_lock(&heard->mtx);
    struct heard_news *last = &heard->last[news->kind];
    *last = (struct heard_news){.code = news->code,
                                .number = news->number,
                                .server = news->server,
                                .servers = news->servers};
    snprintf(last->name, sizeof last->name, "%s", news->name);
    heard->counts[news->kind]++;
    pthread_mutex_unlock(&heard->mtx);
}

int heard_count(struct heard *heard, hf_news_kind kind) {
    pthread_mutex_lock(&heard->mtx);
    int count = heard->counts[kind];
    pthread_mutex_unlock(&heard->mtx);
    return count;
}

struct wanted {
    struct heard *heard;
    hf_news_kind kind;
    int count;
};

static bool has_enough(void *arg) {
    const struct wanted *wanted = arg;
    return heard_count(wanted->heard, wanted->kind) >= wanted->count;
}

bool heard_wait(struct heard *heard, hf_news_kind kind, int count, int64_t limit_ms) {
    struct wanted wanted = {heard, kind, count};
    return wait_until(has_enough, &wanted, limit_ms);
}

struct heard_news heard_last(struct heard *heard, hf_news_kind kind) {
    pthread_mutex_lock(&heard->mtx);
    struct heard_news last = heard->last[kind];
    pthread_mutex_unlock(&heard->mtx);
    return last;
}

struct ear ear_new(hf_client *client, const char *name) {
    struct ear ear = {.heard = heard_new()};
    int err = hf_listen(client, name, heard_note, ear.heard, &ear.listener);
    if (err != HF_OK || !heard_wait(ear.heard, HF_NEWS_LISTENING, 1, LISTENS_MS))
        support_die("nobody listens to %s: %s", name, hf_error_name(err));
    return ear;
}

void ear_free(struct ear *ear) {
    hf_listener_free(ear->listener);
    heard_free(ear->heard);
}
