/*
 * Telling handles about trouble with holds: descriptors at once, on whichever thread noticed;
 * callbacks on the dispatcher. A handle hears of every hold of its client on its name (of a
 * read/write lock: on its side; permits have their own). Handles come and go while callbacks run,
 * so the list is walked again from the start after each callback; a round number keeps a handle
 * from hearing of the same event twice.
 */
#include "api/client.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Several kinds may share one hold, and it has the kind of the handle that came first. */
static bool is_about(const struct hfi_ear *ear, const struct hfi_kind *kind, const char *name,
                     size_t name_len) {
    return ear->name_len == name_len && memcmp(ear->name, name, name_len) == 0 &&
           strcmp(hfi_kind_part(ear->kind), hfi_kind_part(kind)) == 0;
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
        const struct hfi_ear *ear = HFI_CONTAINER(link, struct hfi_ear, link);
        if (!is_about(ear, kind, name, name_len))
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

static struct hfi_ear *next_to_tell_locked(hf_client *client, const struct hfi_kind *kind,
                                           const char *name, size_t name_len, uint64_t round) {
    for (struct hfi_link *link = client->ears.next; link != &client->ears; link = link->next) {
        struct hfi_ear *ear = HFI_CONTAINER(link, struct hfi_ear, link);
        if (wants_call(&ear->on_lost) && ear->told_round != round &&
            is_about(ear, kind, name, name_len))
            return ear;
    }
    return NULL;
}

void hfi_tell(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
              const char *owner, const hf_event *event) {
    hf_client *client = arg;
    struct hfi_ear *ear;
    pthread_mutex_lock(&client->handles_mtx);
    uint64_t round = ++client->telling_round;
    while ((ear = next_to_tell_locked(client, kind, name, name_len, round)) != NULL) {
        struct hfi_on_lost on_lost = ear->on_lost;
        ear->told_round = round;
        client->telling = ear;
        pthread_mutex_unlock(&client->handles_mtx);
        ear->tell(ear, &on_lost, owner, event);
        pthread_mutex_lock(&client->handles_mtx);
        client->telling = NULL;
        pthread_cond_broadcast(&client->handles_cond);
    }
    pthread_mutex_unlock(&client->handles_mtx);
}

static void wait_until_told_locked(struct hfi_ear *ear) {
    hf_client *client = ear->client;
    const struct hfi_self *self = hfi_self();
    if (self != NULL && self->in_callback == client)
        return; /* it may be our own callback that is running */
    while (client->telling == ear)
        pthread_cond_wait(&client->handles_cond, &client->handles_mtx);
}

static void list_locked(struct hfi_ear *ear) {
    if (hfi_linked(&ear->link))
        return;
    /* what is being told now is not for a newcomer */
    ear->told_round = ear->client->telling_round;
    hfi_list_push_back(&ear->client->ears, &ear->link);
}

int hfi_ear_set(struct hfi_ear *ear, const struct hfi_on_lost *on_lost) {
    struct hfi_entry entry;
    hf_client *client = ear->client;
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    if (wants_call(on_lost))
        err = hfi_dispatcher_ensure(client);
    if (err == HF_OK) {
        pthread_mutex_lock(&client->handles_mtx);
        if (!wants_call(on_lost))
            wait_until_told_locked(ear);
        ear->on_lost = *on_lost;
        list_locked(ear);
        pthread_mutex_unlock(&client->handles_mtx);
    }
    hfi_leave(client, &entry);
    return hfi_remember(err, NULL);
}

void hfi_ear_end(struct hfi_ear *ear) {
    pthread_mutex_lock(&ear->client->handles_mtx);
    hfi_list_remove(&ear->link);
    wait_until_told_locked(ear);
    pthread_mutex_unlock(&ear->client->handles_mtx);
    if (ear->lost_fd >= 0)
        close(ear->lost_fd);
}

int hf_lock_on_lost(hf_lock *lock, hf_event_fn callback, void *user) {
    const struct hfi_on_lost on_lost = {.lock = callback, .user = user};
    return lock == NULL ? hfi_remember(HF_EINVAL, NULL) : hfi_ear_set(&lock->ear, &on_lost);
}

int hf_lock_lost_fd(hf_lock *lock) {
    struct hfi_entry entry;
    if (lock == NULL)
        return hfi_remember(HF_EINVAL, NULL);
    int err = hfi_enter(lock->client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    struct hfi_ear *ear = &lock->ear;
    pthread_mutex_lock(&lock->client->handles_mtx);
    if (ear->lost_fd < 0) {
        ear->lost_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (ear->lost_fd >= 0)
            list_locked(ear);
    }
    int fd = ear->lost_fd;
    pthread_mutex_unlock(&lock->client->handles_mtx);
    hfi_leave(lock->client, &entry);
    return fd >= 0 ? fd : hfi_remember(HF_ESYS, NULL);
}

void hf_lock_free(hf_lock *lock) {
    if (lock == NULL)
        return;
    hf_client *client = lock->client;
    if (client->core.pid != getpid()) {
        if (lock->ear.lost_fd >= 0)
            close(lock->ear.lost_fd);
        return; /* a mutex may have been held when the process forked: leave the memory */
    }
    hfi_ear_end(&lock->ear);
    hfi_free(&client->mem, lock);
    hfi_client_unref(client);
}
