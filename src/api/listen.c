/*
 * Listening to a name: news that the engine hears, kept until the dispatcher tells them.
 *
 * They come on any thread, under a mutex of the engine's, and are only kept, in a ring that grows up to HF_NEWS_MAX; beyond
 * that, or without memory, they are counted. From then on none is kept until all that were have been told, and how many are
 * missing after them, so that what is told is in order; whether the server is heard, which must not be missed, is then told
 * once more. The listener's notice is with the dispatcher while there is anything to tell, once, and each run of it is one
 * callback: so others have their turn.
 *
 * References: the owner's, until hf_listener_free(), and the dispatcher's, while it has the notice (`queued`). The engine
 * is let go of under the client's `handles_mtx`, by whoever comes first: hf_listener_free(), or hf_close() when no call is
 * inside any more. Lock order: handles_mtx, then the engine's, then `mtx`.
 */
#include "api/listen.h"

#include "api/handle.h"
#include "joint/votes.h"

#include <string.h>
#include <unistd.h>

#define RING_FIRST 8

struct kept {
    hf_news_kind kind;
    int code;
    int64_t number, heard_ms;
    size_t server;
};

struct hf_listener {
    atomic_int refs;
    hf_client *client; /* referenced */
    hf_news_fn callback;
    void *user;
    struct hfi_hearer hearer;
    struct hfi_notice notice;

    struct hfi_link link;        /* in client->listeners; guarded by the client's handles_mtx */
    struct hfi_hearing *hearing; /* the same; NULL: the engine has been let go of */

    pthread_mutex_t mtx; /* guards below */
    pthread_cond_t cond; /* a callback has returned */
    struct kept *ring;
    size_t cap, first, len;
    int64_t missed; /* since the last that is kept */
    struct kept
        standing[HFI_SERVERS_MAX]; /* whether a server is heard, if that was missed; else 0 */
    bool queued;
    bool telling; /* the callback is running */
    bool over;    /* nothing is told any more */

    size_t name_len;
    char name[];
};

static struct hf_listener *listener_of(struct hfi_notice *notice) {
    return HFI_CONTAINER(notice, struct hf_listener, notice);
}

static void unref(hf_listener *listener) {
    hf_client *client = listener->client;
    if (atomic_fetch_sub(&listener->refs, 1) != 1)
        return;
    pthread_cond_destroy(&listener->cond);
    pthread_mutex_destroy(&listener->mtx);
    hfi_free(&client->mem, listener->ring);
    hfi_free(&client->mem, listener);
    hfi_client_unref(client);
}

/* ---- Keeping ---- */

/* Of the i-th that is kept, or will be. */
static size_t place_of(const hf_listener *listener, size_t i) {
    size_t place = listener->first + i;
    return place < listener->cap ? place : place - listener->cap;
}

static bool has_room_locked(hf_listener *listener) {
    if (listener->len < listener->cap)
        return true;
    size_t cap = listener->cap > 0 ? 2 * listener->cap : RING_FIRST;
    struct kept *ring = NULL;
    if (cap <= HF_NEWS_MAX)
        ring = hfi_alloc(&listener->client->mem, cap * sizeof *ring);
    if (ring == NULL)
        return false;
    for (size_t i = 0; i < listener->len; i++)
        ring[i] = listener->ring[place_of(listener, i)];
    hfi_free(&listener->client->mem, listener->ring);
    listener->ring = ring;
    listener->cap = cap;
    listener->first = 0;
    return true;
}

static void keep_locked(hf_listener *listener, const struct hfi_tidings *tidings) {
    struct kept kept = {.kind = tidings->kind,
                        .code = tidings->code,
                        .number = tidings->number,
                        .heard_ms = hfi_now_ms(),
                        .server = tidings->server};
    bool stands = kept.kind == HF_NEWS_LISTENING || kept.kind == HF_NEWS_DEAF;
    bool fits = listener->missed == 0 && has_room_locked(listener);
    if (fits)
        listener->ring[place_of(listener, listener->len++)] = kept;
    else
        listener->missed++;
    if (stands && fits) /* what is kept in the ring is later than what was missed before */
        listener->standing[kept.server].kind = 0;
    else if (stands)
        listener->standing[kept.server] = kept;
}

static bool take_standing_locked(hf_listener *listener, struct kept *ret) {
    for (size_t i = 0; i < HFI_SERVERS_MAX; i++)
        if (listener->standing[i].kind != 0) {
            *ret = listener->standing[i];
            listener->standing[i].kind = 0;
            return true;
        }
    return false;
}

/* The next to tell. False: there is none. When it has been told that some were missed, the ring has only what came later than
 * these. */
static bool take_locked(hf_listener *listener, struct kept *ret) {
    if (listener->over)
        return false;
    if (listener->missed == 0 && take_standing_locked(listener, ret))
        return true;
    if (listener->len > 0) {
        *ret = listener->ring[listener->first];
        listener->first = place_of(listener, 1);
        listener->len--;
        return true;
    }
    if (listener->missed > 0) {
        *ret = (struct kept){
            .kind = HF_NEWS_MISSED, .number = listener->missed, .heard_ms = hfi_now_ms()};
        listener->missed = 0;
        return true;
    }
    return false;
}

static bool has_more_locked(const hf_listener *listener) {
    bool more = listener->len > 0 || listener->missed > 0;
    for (size_t i = 0; i < HFI_SERVERS_MAX; i++)
        more = more || listener->standing[i].kind != 0;
    return more && !listener->over;
}

static void hear(struct hfi_hearer *hearer, const struct hfi_tidings *tidings) {
    hf_listener *listener = HFI_CONTAINER(hearer, struct hf_listener, hearer);
    pthread_mutex_lock(&listener->mtx);
    if (!listener->over)
        keep_locked(listener, tidings);
    bool queue = !listener->over && !listener->queued;
    if (queue) {
        listener->queued = true;
        atomic_fetch_add(&listener->refs, 1);
    }
    pthread_mutex_unlock(&listener->mtx);
    if (queue)
        hfi_dispatch_notice(listener->client, &listener->notice);
}

/* ---- Telling ---- */

/* Gives the notice to the dispatcher if there is more to tell, and else the reference back. */
static void go_on(hf_listener *listener) {
    pthread_mutex_lock(&listener->mtx);
    listener->queued = has_more_locked(listener);
    bool more = listener->queued;
    pthread_mutex_unlock(&listener->mtx);
    if (more)
        hfi_dispatch_notice(listener->client, &listener->notice);
    else
        unref(listener);
}

static void call_back(hf_listener *listener, const struct kept *kept) {
    const struct hfi_engine *engine = listener->client->core.engine;
    const hf_news news = {
        .kind = kept->kind,
        .code = kept->code,
        .number = kept->number,
        .age_ms = hfi_now_ms() - kept->heard_ms,
        .name = listener->name,
        .name_len = listener->name_len,
        .server = kept->server,
        .servers =
            engine->ops->servers != NULL ? engine->ops->servers(listener->client->core.engine) : 1,
    };
    listener->callback(listener, &news, listener->user);
}

static void run(struct hfi_notice *notice) {
    hf_listener *listener = listener_of(notice);
    struct kept kept;
    pthread_mutex_lock(&listener->mtx);
    bool any = take_locked(listener, &kept);
    listener->telling = any;
    pthread_mutex_unlock(&listener->mtx);
    if (any) {
        call_back(listener, &kept);
        pthread_mutex_lock(&listener->mtx);
        listener->telling = false;
        pthread_cond_broadcast(&listener->cond);
        pthread_mutex_unlock(&listener->mtx);
    }
    go_on(listener);
}

/* ---- Life ---- */

static void let_go_locked(hf_listener *listener) {
    struct hfi_engine *engine = listener->client->core.engine;
    if (listener->hearing != NULL)
        engine->ops->unhear(engine, listener->hearing);
    listener->hearing = NULL;
    hfi_list_remove(&listener->link);
    pthread_mutex_lock(&listener->mtx);
    listener->over = true;
    pthread_mutex_unlock(&listener->mtx);
}

void hfi_listeners_end(hf_client *client) {
    pthread_mutex_lock(&client->handles_mtx);
    while (!hfi_list_empty(&client->listeners))
        let_go_locked(HFI_CONTAINER(client->listeners.next, struct hf_listener, link));
    pthread_mutex_unlock(&client->handles_mtx);
}

static hf_listener *new_listener(hf_client *client, const void *name, size_t name_len,
                                 hf_news_fn callback, void *user) {
    hf_listener *listener = hfi_zalloc(&client->mem, sizeof *listener + name_len + 1);
    if (listener == NULL)
        return NULL;
    atomic_init(&listener->refs, 2);
    listener->queued = true; /* nothing is told before its owner knows it */
    listener->client = client;
    hfi_client_ref(client);
    listener->callback = callback;
    listener->user = user;
    listener->hearer.hear = hear;
    listener->notice.run = run;
    listener->name_len = name_len;
    memcpy(listener->name, name, name_len);
    pthread_mutex_init(&listener->mtx, NULL);
    pthread_cond_init(&listener->cond, NULL);
    return listener;
}

static int begin(hf_client *client, hf_listener *listener) {
    struct hfi_engine *engine = client->core.engine;
    pthread_mutex_lock(&client->handles_mtx);
    int err = engine->ops->hear(engine, listener->name, listener->name_len, &listener->hearer,
                                &listener->hearing);
    if (err == HF_OK)
        hfi_list_push_back(&client->listeners, &listener->link);
    pthread_mutex_unlock(&client->handles_mtx);
    return err;
}

/* Nobody will know it. But of several servers one may have spoken before another could not be listened to. */
static void never_was(hf_listener *listener) {
    pthread_mutex_lock(&listener->mtx);
    listener->over = true;
    pthread_mutex_unlock(&listener->mtx);
    unref(listener);
}

static int listen_to(hf_client *client, const void *name, size_t name_len, hf_news_fn callback,
                     void *user, hf_listener **ret_listener, hf_error *error) {
    struct hfi_engine *engine = client->core.engine;
    if (engine->ops->hear == NULL)
        return hfi_fail(error, HF_ENOTSUP, "these servers tell nothing");
    const struct hfi_kind *plain = engine->ops->kind(engine, HF_PLAIN, 0);
    int err = engine->ops->check_name(engine, plain, name, name_len, error);
    if (err == HF_OK && hfi_dispatcher_ensure(client) != HF_OK)
        err = hfi_fail(error, HF_ESYS, "no thread for callbacks");
    if (err != HF_OK)
        return err;
    hf_listener *listener = new_listener(client, name, name_len, callback, user);
    err = listener != NULL ? begin(client, listener) : HF_ENOMEM;
    if (err == HF_OK)
        *ret_listener = listener;
    else
        hfi_fail(error, err, "%s", hf_strerror(err));
    if (listener != NULL && err != HF_OK)
        never_was(listener);
    if (listener != NULL)
        go_on(listener);
    return err;
}

int hf_listen_bytes(hf_client *client, const void *name, size_t name_len, hf_news_fn callback,
                    void *user, hf_listener **ret_listener) {
    hf_error error;
    struct hfi_entry entry;
    if (client == NULL || name == NULL || name_len == 0 || callback == NULL || ret_listener == NULL)
        return hfi_invalid("listening needs a client, a name, a callback and a place for the "
                           "listener");
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    hfi_error_clear(&error);
    err = listen_to(client, name, name_len, callback, user, ret_listener, &error);
    hfi_leave(client, &entry);
    return hfi_remember(err, &error);
}

int hf_listen(hf_client *client, const char *name, hf_news_fn callback, void *user,
              hf_listener **ret_listener) {
    return hf_listen_bytes(client, name, name != NULL ? strlen(name) : 0, callback, user,
                           ret_listener);
}

void hf_listener_free(hf_listener *listener) {
    if (listener == NULL)
        return;
    hf_client *client = listener->client;
    if (client->core.pid != getpid())
        return; /* the memory is left: a mutex may have been held when the process forked */
    pthread_mutex_lock(&client->handles_mtx);
    let_go_locked(listener);
    pthread_mutex_unlock(&client->handles_mtx);
    const struct hfi_self *self = hfi_self();
    bool inside = self != NULL && self->in_callback == client;
    pthread_mutex_lock(&listener->mtx);
    while (listener->telling && !inside)
        pthread_cond_wait(&listener->cond, &listener->mtx);
    pthread_mutex_unlock(&listener->mtx);
    unref(listener);
}
