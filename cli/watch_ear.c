/*
 * What `holdfast watch` hears: messages become events at once, and reasons to look.
 *
 * On the main thread, inside hf_dispatch(). A message says that something was released, seldom by whom: that is whoever
 * was seen to hold it. What only a look can tell, numbers for instance, is left to the next, which is due then.
 *
 * Of a quorum each server speaks for itself, also when it gives back what was no majority: so there it is a reason to look,
 * and no more.
 */
#include "watch.h"

#include <inttypes.h>

static void stands(struct watch_ear *ear, const hf_news *news) {
    unsigned bit = 1u << news->server;
    ear->servers = news->servers;
    if (news->kind == HF_NEWS_LISTENING)
        ear->heard |= bit;
    else
        ear->heard &= ~bit;
    if (news->code == HF_EPERM && !ear->refused) {
        ear->refused = true;
        say(LEVEL_NOTICE, "the server does not tell what happens: what is brief is not seen");
    }
}

static void missed(struct watch_ear *ear, const hf_news *news) {
    char words[64];
    snprintf(words, sizeof words, "%" PRId64 " messages", news->number);
    watch_missed(ear->view, words);
}

static void on_news(hf_listener *listener, const hf_news *news, void *user) {
    struct watch_ear *ear = user;
    (void)listener;
    ear->stirred = true;
    if (news->kind == HF_NEWS_LISTENING || news->kind == HF_NEWS_DEAF)
        stands(ear, news);
    else if (!ear->view->begun || news->servers > 1)
        return;
    else if (news->kind == HF_NEWS_MISSED)
        missed(ear, news);
    else if (news->kind == HF_NEWS_RELEASED || news->kind == HF_NEWS_WRITE_RELEASED)
        watch_released(ear->view, false, news->age_ms);
    else if (news->kind == HF_NEWS_READ_RELEASED)
        watch_released(ear->view, true, news->age_ms);
    else if (news->kind == HF_NEWS_OPENED || news->kind == HF_NEWS_CLOSED)
        watch_latch(ear->view, news->kind == HF_NEWS_OPENED, news->age_ms);
}

int watch_ear_begin(struct watch_ear *ear, hf_client *client, const char *name,
                    struct watch_view *view) {
    *ear = (struct watch_ear){.view = view};
    return hf_listen(client, name, on_news, ear, &ear->listener);
}

void watch_ear_end(struct watch_ear *ear) {
    hf_listener_free(ear->listener);
    ear->listener = NULL;
}

bool watch_ear_hears(const struct watch_ear *ear) {
    size_t heard = 0;
    for (size_t i = 0; i < ear->servers; i++)
        heard += (ear->heard >> i) & 1u;
    return 2 * heard > ear->servers;
}
