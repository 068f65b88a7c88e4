/*
 * Telling handles about trouble with holds: descriptors at once, on whichever thread noticed;
 * callbacks on the dispatcher. A handle hears of every hold of its client on its name (of a
 * read/write lock: on its side; permits have their own). Handles come and go while callbacks run,
 * so the list is walked again from the start after each callback; a round number keeps a handle
 * from hearing of the same event twice.
 */
#include "api/handle.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Several kinds may share one hold, and it has the kind of the handle that came first. */
static bool is_about(const struct hfi_handle *handle, const struct hfi_kind *kind, const char *name,
                     size_t name_len) {
    return handle->name_len == name_len && memcmp(handle->name, name, name_len) == 0 &&
           strcmp(hfi_kind_part(handle->kind), hfi_kind_part(kind)) == 0;
}

static struct hfi_handle *handle_at(struct hfi_link *link) {
    return HFI_CONTAINER(link, struct hfi_handle, ear.link);
}

static bool wants_call(const struct hfi_on_lost *on_lost) {
    return on_lost->lock != NULL || on_lost->permit != NULL;
}

bool hfi_trouble(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                 hf_event_kind event) {
    hf_client *client = arg;
    bool wanted = false;
    pthread_mutex_lock(&client->handles_mtx);
    for (struct hfi_link *link = client->ears.next; link != &client->ears; link = link->next) {
        const struct hfi_ear *ear = &handle_at(link)->ear;
        if (!is_about(handle_at(link), kind, name, name_len))
            continue;
        wanted = wanted || wants_call(&ear->on_lost);
        uint64_t one = 1;
        if (event == HF_EVENT_LOST && ear->lost_fd >= 0 &&
            write(ear->lost_fd, &one, sizeof one) != (ssize_t)sizeof one)
            continue; /* full: readable already */
    }
    pthread_mutex_unlock(&client->handles_mtx);
    return wanted;
}

static struct hfi_handle *next_to_tell_locked(hf_client *client, const struct hfi_kind *kind,
                                              const char *name, size_t name_len, uint64_t round) {
    for (struct hfi_link *link = client->ears.next; link != &client->ears; link = link->next) {
        struct hfi_handle *handle = handle_at(link);
        if (wants_call(&handle->ear.on_lost) && handle->ear.told_round != round &&
            is_about(handle, kind, name, name_len))
            return handle;
    }
    return NULL;
}

void hfi_tell(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
              const char *owner, const hf_event *event) {
    hf_client *client = arg;
    struct hfi_handle *handle;
    pthread_mutex_lock(&client->handles_mtx);
    uint64_t round = ++client->telling_round;
    while ((handle = next_to_tell_locked(client, kind, name, name_len, round)) != NULL) {
        struct hfi_on_lost on_lost = handle->ear.on_lost;
        handle->ear.told_round = round;
        client->telling = handle;
        pthread_mutex_unlock(&client->handles_mtx);
        handle->type->tell(handle, &on_lost, owner, event);
        pthread_mutex_lock(&client->handles_mtx);
        client->telling = NULL;
        pthread_cond_broadcast(&client->handles_cond);
    }
    pthread_mutex_unlock(&client->handles_mtx);
}

static void wait_until_told_locked(struct hfi_handle *handle) {
    hf_client *client = handle->client;
    const struct hfi_self *self = hfi_self();
    if (self != NULL && self->in_callback == client)
        return; /* it may be our own callback that is running */
    while (client->telling == handle)
        pthread_cond_wait(&client->handles_cond, &client->handles_mtx);
}

static void list_locked(struct hfi_handle *handle) {
    if (hfi_linked(&handle->ear.link))
        return;
    /* what is being told now is not for a newcomer */
    handle->ear.told_round = handle->client->telling_round;
    hfi_list_push_back(&handle->client->ears, &handle->ear.link);
}

int hfi_ear_set(struct hfi_handle *handle, const struct hfi_on_lost *on_lost) {
    struct hfi_entry entry;
    if (handle == NULL)
        return hfi_invalid("no handle was given");
    hf_client *client = handle->client;
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    if (wants_call(on_lost))
        err = hfi_dispatcher_ensure(client);
    if (err == HF_OK) {
        pthread_mutex_lock(&client->handles_mtx);
        if (!wants_call(on_lost))
            wait_until_told_locked(handle);
        handle->ear.on_lost = *on_lost;
        list_locked(handle);
        pthread_mutex_unlock(&client->handles_mtx);
    }
    hfi_leave(client, &entry);
    return hfi_remember(err, NULL);
}

int hfi_ear_fd(struct hfi_handle *handle) {
    struct hfi_entry entry;
    if (handle == NULL)
        return hfi_invalid("no handle was given");
    hf_client *client = handle->client;
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    struct hfi_ear *ear = &handle->ear;
    pthread_mutex_lock(&client->handles_mtx);
    if (ear->lost_fd < 0) {
        ear->lost_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (ear->lost_fd >= 0)
            list_locked(handle);
    }
    int fd = ear->lost_fd;
    pthread_mutex_unlock(&client->handles_mtx);
    hfi_leave(client, &entry);
    return fd >= 0 ? fd : hfi_remember(HF_ESYS, NULL);
}

void hfi_ear_close_fd(struct hfi_handle *handle) {
    if (handle->ear.lost_fd >= 0)
        close(handle->ear.lost_fd);
}

void hfi_ear_end(struct hfi_handle *handle) {
    pthread_mutex_lock(&handle->client->handles_mtx);
    hfi_list_remove(&handle->ear.link);
    wait_until_told_locked(handle);
    pthread_mutex_unlock(&handle->client->handles_mtx);
    hfi_ear_close_fd(handle);
}
