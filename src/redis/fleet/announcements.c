/*
 * Announced losses (announcements.h): what is to be announced, and the texts of others. The survey
 * responder of a node sends and receives them. The texts are guarded by `mtx`, which is taken under
 * the mutex of the registry of channels; the counts are atomic.
 */
#include "redis/fleet/announcements.h"

#include "base/clock.h"
#include "engine/findings.h"
#include "redis/fleet/survey_responder.h"
#include "redis/ops/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 1024
#define ID_LEN 36
#define ID_WITHIN 64 /* bytes of a text: the id comes first */

struct text {
    struct hfi_link link;
    char id[ID_LEN];
    int64_t at_ms; /* when it came */
    size_t len;
    char bytes[];
};

static const char *id_in(const char *bytes, size_t len) {
    static const char key[] = "\"id\":\"";
    const char *at = memmem(bytes, len < ID_WITHIN ? len : ID_WITHIN, key, strlen(key));
    if (at == NULL || (size_t)(bytes + len - at) < strlen(key) + ID_LEN)
        return NULL;
    return at + strlen(key);
}

static struct text *text_of(struct hfi_link *link) {
    return HFI_CONTAINER(link, struct text, link);
}

/* Of each client the last text counts; if there are too many, the oldest is dropped. */
static void add_locked(struct hfi_announcements *announcements, struct text *text) {
    struct hfi_link *old = announcements->texts.next;
    while (old != &announcements->texts && memcmp(text_of(old)->id, text->id, ID_LEN) != 0)
        old = old->next;
    if (old != &announcements->texts) {
        hfi_list_remove(old);
        free(text_of(old));
    } else if (announcements->texts_len == TEXTS_MAX) {
        free(text_of(hfi_list_pop_front(&announcements->texts)));
    } else {
        announcements->texts_len++;
    }
    hfi_list_push_back(&announcements->texts, &text->link);
}

void hfi_announcements_note(struct hfi_announcements *announcements, const char *bytes,
                            size_t len) {
    const char *id = id_in(bytes, len);
    struct text *text = id != NULL && len <= HFI_ANNOUNCE_BYTES ? malloc(sizeof *text + len) : NULL;
    if (text == NULL)
        return;
    memcpy(text->id, id, ID_LEN);
    text->at_ms = hfi_now_ms();
    text->len = len;
    memcpy(text->bytes, bytes, len);
    pthread_mutex_lock(&announcements->mtx);
    add_locked(announcements, text);
    pthread_mutex_unlock(&announcements->mtx);
}

bool hfi_announcements_copy(struct hfi_announcements *announcements,
                            struct hfi_findings *findings) {
    bool all = true;
    pthread_mutex_lock(&announcements->mtx);
    for (struct hfi_link *link = announcements->texts.next; link != &announcements->texts && all;
         link = link->next) {
        const struct text *text = text_of(link);
        struct hfi_found_answer *copy = malloc(sizeof *copy + text->len);
        all = copy != NULL;
        if (copy == NULL)
            break;
        copy->at_ms = text->at_ms;
        copy->len = text->len;
        memcpy(copy->text, text->bytes, text->len);
        hfi_list_push_back(&findings->announced, &copy->link);
    }
    pthread_mutex_unlock(&announcements->mtx);
    return all;
}

size_t hfi_announcements_channel(const struct hfi_redis *redis, char *to) {
    return (size_t)snprintf(to, to != NULL ? HFI_ANNOUNCE_CHANNEL_SIZE : 0,
                            HFI_ANNOUNCE_CHANNEL "%d", redis->db);
}

/* ---- Ours ---- */

static void wake_responder(struct hfi_node *node, void *arg) {
    (void)arg;
    hfi_survey_responder_wake(hfi_node_learnt(node)->answers);
}

static void wake_all(struct hfi_redis *redis) {
    redis->route->ops->each(redis->route, wake_responder, NULL);
}

void hfi_announce(struct hfi_engine *engine) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    atomic_fetch_add(&redis->announcements->due, 1);
    wake_all(redis);
}

bool hfi_is_announcing(struct hfi_engine *engine) {
    struct hfi_announcements *announcements = hfi_redis_of(engine)->announcements;
    return atomic_load(&announcements->due) != atomic_load(&announcements->done);
}

void hfi_subscribe_announcements(struct hfi_engine *engine) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    if (!atomic_exchange(&redis->announcements->wanted, true))
        wake_all(redis);
}

void hfi_announcements_retry(struct hfi_redis *redis) {
    if (redis->announcements->undelivered) {
        redis->announcements->undelivered = false;
        hfi_announce(&redis->base);
    }
}

/* ---- Life ---- */

struct hfi_announcements *hfi_announcements_new(const struct hfi_mem *mem) {
    struct hfi_announcements *announcements = hfi_zalloc(mem, sizeof *announcements);
    if (announcements == NULL)
        return NULL;
    hfi_list_init(&announcements->texts);
    pthread_mutex_init(&announcements->mtx, NULL);
    return announcements;
}

void hfi_announcements_free(const struct hfi_mem *mem, struct hfi_announcements *announcements) {
    if (announcements == NULL)
        return;
    for (struct hfi_link *next, *link = announcements->texts.next; link != &announcements->texts;
         link = next) {
        next = link->next;
        free(text_of(link));
    }
    pthread_mutex_destroy(&announcements->mtx);
    hfi_free(mem, announcements);
}
