/* What a listener (hf_listen()) was told, for tests to wait for.
 *
 *     struct heard *h = heard_new();
 *     hf_listen(client, "name", heard_note, h, &listener);
 *     assert_true(heard_wait(h, HF_NEWS_LISTENING, 1, HANG_MS));
 *     ...
 *     hf_listener_free(listener);
 *     heard_free(h);
 *
 * Include as "support/heard.h". Any thread may call anything. */
#ifndef HF_TEST_HEARD_H
#define HF_TEST_HEARD_H

#include <holdfast/holdfast.h>

#include <stdbool.h>
#include <stdint.h>

struct heard;

struct heard *heard_new(void);
void heard_free(struct heard *heard); /* when its listener is freed; NULL is fine */

/* The callback; `user` is the struct. */
void heard_note(hf_listener *listener, const hf_news *news, void *user);

/* How many of a kind there were. */
int heard_count(struct heard *heard, hf_news_kind kind);
/* Waits until there were so many, at least; false when the limit passed. */
bool heard_wait(struct heard *heard, hf_news_kind kind, int count, int64_t limit_ms);

/* Of the last one of a kind. */
struct heard_news {
    int code;
    int64_t number;
    size_t server, servers;
    char name[128];
};
struct heard_news heard_last(struct heard *heard, hf_news_kind kind);

/* A listener with what it was told. It listens when ear_new() returns; a test whose does not ends there. */
struct ear {
    struct heard *heard;
    hf_listener *listener;
};
struct ear ear_new(hf_client *client, const char *name);
void ear_free(struct ear *ear);

#endif
