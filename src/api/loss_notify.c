/*
 * Loss notification for handles: descriptors are signalled at once, on the thread that noticed;
 * callbacks run on the dispatcher. A handle is notified of every hold of its client on its name (of
 * a read/write lock: on its side; permits have their own). Handles come and go while callbacks run,
 * so the list is walked again from the start after each callback. A round number keeps a handle
 * from being notified of the same event twice.
 */
#include "api/handle.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Several kinds may share one hold, which has the kind of the handle that came first. */
static bool is_about(const struct hfi_handle *handle, const struct hfi_kind *kind, const char *name,
                     size_t name_len) {
    return handle->name_len == name_len && memcmp(handle->name, name, name_len) == 0 &&
           strcmp(hfi_kind_part(handle->kind), hfi_kind_part(kind)) == 0;
}

static struct hfi_handle *handle_at(struct hfi_link *link) {
    return HFI_CONTAINER(link, struct hfi_handle, loss_listener.link);
}

static bool wants_call(const struct hfi_on_lost *on_lost) {
    return on_lost->lock != NULL || on_lost->permit != NULL;
}

bool hfi_loss_kind(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                   hf_event_kind event) {
    hf_client *client = arg;
    bool wanted = false;
    pthread_mutex_lock(&client->handles_mtx);
    for (struct hfi_link *link = client->loss_listeners.next; link != &client->loss_listeners;
         link = link->next) {
        const struct hfi_loss_listener *loss_listener = &handle_at(link)->loss_listener;
        if (!is_about(handle_at(link), kind, name, name_len))
            continue;
        wanted = wanted || wants_call(&loss_listener->on_lost);
        uint64_t one = 1;
        if (event == HF_EVENT_LOST && loss_listener->lost_fd >= 0 &&
            write(loss_listener->lost_fd, &one, sizeof one) != (ssize_t)sizeof one)
            continue; /* full: readable already */
    }
    pthread_mutex_unlock(&client->handles_mtx);
    return wanted;
}

static struct hfi_handle *next_to_notify_locked(hf_client *client, const struct hfi_kind *kind,
                                                const char *name, size_t name_len, uint64_t round) {
    for (struct hfi_link *link = client->loss_listeners.next; link != &client->loss_listeners;
         link = link->next) {
        struct hfi_handle *handle = handle_at(link);
        if (wants_call(&handle->loss_listener.on_lost) &&
            handle->loss_listener.notified_round != round && is_about(handle, kind, name, name_len))
            return handle;
    }
    return NULL;
}

void hfi_loss_run_callbacks(void *arg, const struct hfi_kind *kind, const char *name,
                            size_t name_len, const char *owner, const hf_event *event) {
    hf_client *client = arg;
    struct hfi_handle *handle;
    pthread_mutex_lock(&client->handles_mtx);
    uint64_t round = ++client->notify_round;
    while ((handle = next_to_notify_locked(client, kind, name, name_len, round)) != NULL) {
        struct hfi_on_lost on_lost = handle->loss_listener.on_lost;
        handle->loss_listener.notified_round = round;
        client->notifying = handle;
        pthread_mutex_unlock(&client->handles_mtx);
        handle->type->run_callback(handle, &on_lost, owner, event);
        pthread_mutex_lock(&client->handles_mtx);
        client->notifying = NULL;
        pthread_cond_broadcast(&client->handles_cond);
    }
    pthread_mutex_unlock(&client->handles_mtx);
}

static void wait_until_notified_locked(struct hfi_handle *handle) {
    hf_client *client = handle->client;
    const struct hfi_thread_record *self = hfi_thread_record();
    if (self != NULL && self->in_callback == client)
        return; /* it may be our own callback that is running */
    while (client->notifying == handle)
        pthread_cond_wait(&client->handles_cond, &client->handles_mtx);
}

static void list_locked(struct hfi_handle *handle) {
    if (hfi_linked(&handle->loss_listener.link))
        return;
    /* a new listener does not get the event that is being delivered */
    handle->loss_listener.notified_round = handle->client->notify_round;
    hfi_list_push_back(&handle->client->loss_listeners, &handle->loss_listener.link);
}

int hfi_loss_listener_set(struct hfi_handle *handle, const struct hfi_on_lost *on_lost) {
    struct hfi_entry entry;
    if (handle == NULL)
        return hfi_invalid("the handle is NULL");
    hf_client *client = handle->client;
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    if (wants_call(on_lost))
        err = hfi_dispatcher_ensure(client);
    if (err == HF_OK) {
        pthread_mutex_lock(&client->handles_mtx);
        if (!wants_call(on_lost))
            wait_until_notified_locked(handle);
        handle->loss_listener.on_lost = *on_lost;
        list_locked(handle);
        pthread_mutex_unlock(&client->handles_mtx);
    }
    hfi_leave(client, &entry);
    return hfi_remember(err, NULL);
}

int hfi_loss_listener_fd(struct hfi_handle *handle) {
    struct hfi_entry entry;
    if (handle == NULL)
        return hfi_invalid("the handle is NULL");
    hf_client *client = handle->client;
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    struct hfi_loss_listener *loss_listener = &handle->loss_listener;
    pthread_mutex_lock(&client->handles_mtx);
    if (loss_listener->lost_fd < 0) {
        loss_listener->lost_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (loss_listener->lost_fd >= 0)
            list_locked(handle);
    }
    int fd = loss_listener->lost_fd;
    pthread_mutex_unlock(&client->handles_mtx);
    hfi_leave(client, &entry);
    return fd >= 0 ? fd : hfi_remember(HF_ESYS, NULL);
}

void hfi_loss_listener_close_fd(struct hfi_handle *handle) {
    if (handle->loss_listener.lost_fd >= 0)
        close(handle->loss_listener.lost_fd);
}

void hfi_loss_listener_end(struct hfi_handle *handle) {
    pthread_mutex_lock(&handle->client->handles_mtx);
    hfi_list_remove(&handle->loss_listener.link);
    wait_until_notified_locked(handle);
    pthread_mutex_unlock(&handle->client->handles_mtx);
    hfi_loss_listener_close_fd(handle);
}
