/*
 * Name listeners: events that the engine receives for a name, kept until the dispatcher delivers
 * them.
 *
 * Events come on any thread, with an engine mutex locked, and are only stored, in a ring that grows
 * up to HF_NOTIFY_MAX. Beyond that, or without memory, they are counted as missed. From then on none
 * is stored until the stored ones and the number missed have been delivered, so the order is right.
 * The subscription state of a server must not be missed: it is then delivered once more. The
 * listener's notice is queued on the dispatcher, once, while there is anything to deliver. Each run
 * of it is one callback, so other notices get their turn.
 *
 * References: the owner's, until hf_listener_free(), and the dispatcher's, while it has the notice
 * (`queued`). The engine subscription ends under the client's `handles_mtx`: in hf_listener_free(),
 * or in hf_close() when no call is in progress any more, whichever comes first. Lock order:
 * handles_mtx, then the engine's, then `mtx`.
 */
#include "api/listen.h"

#include "api/handle.h"
#include "engine/observe.h"
#include "joint/quorum/quorum_validity.h"
#include "task/thread.h"

#include <string.h>
#include <unistd.h>

#define RING_FIRST 8

struct kept {
    hf_notification_kind kind;
    int code;
    int64_t number, received_ms;
    size_t server;
    char *name; /* allocated, followed by a NUL; NULL: the listener's own */
    size_t name_len;
};

struct hf_listener {
    atomic_int refs;
    hf_client *client; /* referenced */
    hf_notification_fn callback;
    void *user;
    struct hfi_name_subscriber subscriber;
    size_t servers; /* how many report separately */
    struct hfi_notice notice;

    struct hfi_link link; /* in client->listeners; guarded by the client's handles_mtx */
    struct hfi_name_listener *name_listener; /* the same; NULL: unsubscribed */

    pthread_mutex_t mtx; /* guards below */
    pthread_cond_t cond; /* a callback has returned */
    struct kept *ring;
    size_t cap, first, len;
    int64_t missed; /* since the last stored event */
    /* subscription state of a server, if its event was missed; else 0 */
    struct kept state_missed[HFI_SERVERS_MAX];
    bool queued;
    bool delivering; /* the callback is running */
    bool over;       /* no more callbacks */

    size_t name_len;
    char name[];
};

static struct hf_listener *listener_of(struct hfi_notice *notice) {
    return HFI_CONTAINER(notice, struct hf_listener, notice);
}

/* The index of the i-th stored event. */
static size_t place_of(const hf_listener *listener, size_t i) {
    size_t place = listener->first + i;
    return place < listener->cap ? place : place - listener->cap;
}

static void unref(hf_listener *listener) {
    hf_client *client = listener->client;
    if (atomic_fetch_sub(&listener->refs, 1) != 1)
        return;
    pthread_cond_destroy(&listener->cond);
    pthread_mutex_destroy(&listener->mtx);
    for (size_t i = 0; i < listener->len; i++)
        hfi_free(&client->mem, listener->ring[place_of(listener, i)].name);
    hfi_free(&client->mem, listener->ring);
    hfi_free(&client->mem, listener);
    hfi_client_unref(client);
}

/* ---- Storing events ---- */

static bool has_room_locked(hf_listener *listener) {
    if (listener->len < listener->cap)
        return true;
    size_t cap = listener->cap > 0 ? 2 * listener->cap : RING_FIRST;
    struct kept *ring = NULL;
    if (cap <= HF_NOTIFY_MAX)
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

/* False: there is no memory. */
static bool copy_name(const hf_listener *listener, const struct hfi_name_event *name_event,
                      struct kept *kept) {
    if (name_event->name == NULL)
        return true;
    kept->name = hfi_alloc(&listener->client->mem, name_event->name_len + 1);
    if (kept->name == NULL)
        return false;
    memcpy(kept->name, name_event->name, name_event->name_len);
    kept->name[name_event->name_len] = '\0';
    kept->name_len = name_event->name_len;
    return true;
}

static void keep_locked(hf_listener *listener, const struct hfi_name_event *name_event) {
    struct kept kept = {.kind = name_event->kind,
                        .code = name_event->code,
                        .number = name_event->number,
                        .received_ms = hfi_now_ms(),
                        .server = name_event->server};
    bool is_state = kept.kind == HF_NOTIFY_SUBSCRIBED || kept.kind == HF_NOTIFY_INTERRUPTED;
    bool fits = listener->missed == 0 && has_room_locked(listener) &&
                copy_name(listener, name_event, &kept);
    if (fits)
        listener->ring[place_of(listener, listener->len++)] = kept;
    else
        listener->missed++;
    if (is_state && fits) /* the event in the ring is later than the missed one */
        listener->state_missed[kept.server].kind = 0;
    else if (is_state)
        listener->state_missed[kept.server] = kept;
}

static bool take_state_locked(hf_listener *listener, struct kept *ret) {
    for (size_t i = 0; i < HFI_SERVERS_MAX; i++)
        if (listener->state_missed[i].kind != 0) {
            *ret = listener->state_missed[i];
            listener->state_missed[i].kind = 0;
            return true;
        }
    return false;
}

/* The next event to deliver. False: none. When the number missed has been delivered, the ring has
 * only later events. */
static bool take_locked(hf_listener *listener, struct kept *ret) {
    if (listener->over)
        return false;
    if (listener->missed == 0 && take_state_locked(listener, ret))
        return true;
    if (listener->len > 0) {
        *ret = listener->ring[listener->first];
        listener->first = place_of(listener, 1);
        listener->len--;
        return true;
    }
    if (listener->missed > 0) {
        *ret = (struct kept){
            .kind = HF_NOTIFY_MISSED, .number = listener->missed, .received_ms = hfi_now_ms()};
        listener->missed = 0;
        return true;
    }
    return false;
}

static bool has_more_locked(const hf_listener *listener) {
    bool more = listener->len > 0 || listener->missed > 0;
    for (size_t i = 0; i < HFI_SERVERS_MAX; i++)
        more = more || listener->state_missed[i].kind != 0;
    return more && !listener->over;
}

static void on_event(struct hfi_name_subscriber *subscriber,
                     const struct hfi_name_event *name_event) {
    hf_listener *listener = HFI_CONTAINER(subscriber, struct hf_listener, subscriber);
    pthread_mutex_lock(&listener->mtx);
    if (!listener->over)
        keep_locked(listener, name_event);
    bool queue = !listener->over && !listener->queued;
    if (queue) {
        listener->queued = true;
        atomic_fetch_add(&listener->refs, 1);
    }
    pthread_mutex_unlock(&listener->mtx);
    if (queue)
        hfi_dispatch_notice(listener->client, &listener->notice);
}

/* ---- Delivering them ---- */

/* Queues the notice again if there is more to deliver; else drops its reference. */
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
    const hf_notification notification = {
        .kind = kept->kind,
        .code = kept->code,
        .number = kept->number,
        .age_ms = hfi_now_ms() - kept->received_ms,
        .name = kept->name != NULL ? kept->name : listener->name,
        .name_len = kept->name != NULL ? kept->name_len : listener->name_len,
        .server = kept->server,
        .servers = listener->servers,
    };
    listener->callback(listener, &notification, listener->user);
}

static void run(struct hfi_notice *notice) {
    hf_listener *listener = listener_of(notice);
    struct kept kept;
    pthread_mutex_lock(&listener->mtx);
    bool any = take_locked(listener, &kept);
    listener->delivering = any;
    pthread_mutex_unlock(&listener->mtx);
    if (any) {
        call_back(listener, &kept);
        hfi_free(&listener->client->mem, kept.name);
        pthread_mutex_lock(&listener->mtx);
        listener->delivering = false;
        pthread_cond_broadcast(&listener->cond);
        pthread_mutex_unlock(&listener->mtx);
    }
    go_on(listener);
}

/* ---- Lifetime ---- */

static void detach_locked(hf_listener *listener) {
    if (listener->name_listener != NULL)
        listener->name_listener->unsubscribe(listener->name_listener);
    listener->name_listener = NULL;
    hfi_list_remove(&listener->link);
    pthread_mutex_lock(&listener->mtx);
    listener->over = true;
    pthread_mutex_unlock(&listener->mtx);
}

void hfi_listeners_end(hf_client *client) {
    pthread_mutex_lock(&client->handles_mtx);
    while (!hfi_list_empty(&client->listeners))
        detach_locked(HFI_CONTAINER(client->listeners.next, struct hf_listener, link));
    pthread_mutex_unlock(&client->handles_mtx);
}

static hf_listener *new_listener(hf_client *client, const void *name, size_t name_len,
                                 hf_notification_fn callback, void *user) {
    hf_listener *listener = hfi_zalloc(&client->mem, sizeof *listener + name_len + 1);
    if (listener == NULL)
        return NULL;
    atomic_init(&listener->refs, 2);
    listener->queued = true; /* no callback before the owner has the listener */
    listener->client = client;
    hfi_client_ref(client);
    listener->callback = callback;
    listener->user = user;
    listener->subscriber.on_event = on_event;
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
    int err = engine->ops->observe->subscribe(engine, listener->name, listener->name_len,
                                              &listener->subscriber, &listener->name_listener);
    if (err == HF_OK) {
        listener->servers = listener->name_listener->servers;
        hfi_list_push_back(&client->listeners, &listener->link);
    }
    pthread_mutex_unlock(&client->handles_mtx);
    return err;
}

/* The listener is never returned. But one of several servers may have sent an event before
 * subscribing to another failed. */
static void never_was(hf_listener *listener) {
    pthread_mutex_lock(&listener->mtx);
    listener->over = true;
    pthread_mutex_unlock(&listener->mtx);
    unref(listener);
}

static int listen_to(hf_client *client, const void *name, size_t name_len,
                     hf_notification_fn callback, void *user, hf_listener **ret_listener,
                     hf_error *error) {
    struct hfi_engine *engine = client->core.engine;
    if (engine->ops->observe->subscribe == NULL)
        return hfi_fail(error, HF_ENOTSUP, "this kind of server does not support listening");
    const struct hfi_kind *plain = engine->ops->kind(engine, HF_PLAIN, 0);
    int err = HF_OK;
    if (name_len > 0)
        err = engine->ops->check_name(engine, plain, name, name_len, error);
    if (err == HF_OK && hfi_dispatcher_ensure(client) != HF_OK)
        err = hfi_fail(error, HF_ESYS, "cannot start the thread for callbacks");
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

/* A name_len of 0: breaks of all names. */
static int listen_entered(hf_client *client, const void *name, size_t name_len,
                          hf_notification_fn callback, void *user, hf_listener **ret_listener) {
    hf_error error;
    struct hfi_entry entry;
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    hfi_error_clear(&error);
    err = listen_to(client, name, name_len, callback, user, ret_listener, &error);
    hfi_leave(client, &entry);
    return hfi_remember(err, &error);
}

int hf_listen_bytes(hf_client *client, const void *name, size_t name_len,
                    hf_notification_fn callback, void *user, hf_listener **ret_listener) {
    if (client == NULL || name == NULL || name_len == 0 || callback == NULL || ret_listener == NULL)
        return hfi_invalid("hf_listen() needs a client, a name, a callback and a pointer for the "
                           "listener");
    return listen_entered(client, name, name_len, callback, user, ret_listener);
}

int hf_listen(hf_client *client, const char *name, hf_notification_fn callback, void *user,
              hf_listener **ret_listener) {
    return hf_listen_bytes(client, name, name != NULL ? strlen(name) : 0, callback, user,
                           ret_listener);
}

int hf_listen_breaks(hf_client *client, hf_notification_fn callback, void *user,
                     hf_listener **ret_listener) {
    if (client == NULL || callback == NULL || ret_listener == NULL)
        return hfi_invalid(
            "hf_listen_breaks() needs a client, a callback and a pointer for the listener");
    return listen_entered(client, "", 0, callback, user, ret_listener);
}

void hf_listener_free(hf_listener *listener) {
    if (listener == NULL)
        return;
    hf_client *client = listener->client;
    if (client->core.pid != getpid())
        return; /* the memory stays: a mutex may have been locked at the fork */
    int state = hfi_thread_cancel_disable();
    pthread_mutex_lock(&client->handles_mtx);
    detach_locked(listener);
    pthread_mutex_unlock(&client->handles_mtx);
    const struct hfi_thread_record *self = hfi_thread_record();
    bool inside = self != NULL && self->in_callback == client;
    pthread_mutex_lock(&listener->mtx);
    while (listener->delivering && !inside)
        pthread_cond_wait(&listener->cond, &listener->mtx);
    pthread_mutex_unlock(&listener->mtx);
    unref(listener);
    hfi_thread_cancel_restore(state);
}
