/*
 * Telling handles about trouble with holds: descriptors at once, on whichever thread noticed; callbacks on the
 * dispatcher. A handle hears of every hold of its client on its name. Handles come and go while callbacks run, so
 * the list is walked again from the start after each; a round number keeps a handle from hearing of one event twice.
 */
#include "api/client.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Whatever the kind: several kinds share one hold, and it has the kind of the handle that came first. */
static bool is_about(const hf_lock *lock, const char *name, size_t name_len) {
    return lock->name_len == name_len && memcmp(lock->name, name, name_len) == 0;
}

bool hfi_trouble(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                 hf_event_kind event) {
    hf_client *client = arg;
    (void)kind;
    bool wanted = false;
    pthread_mutex_lock(&client->handles_mtx);
    for (struct hfi_link *link = client->handles.next; link != &client->handles;
         link = link->next) {
        hf_lock *lock = HFI_CONTAINER(link, hf_lock, link);
        if (!is_about(lock, name, name_len))
            continue;
        wanted = wanted || lock->on_lost != NULL;
        uint64_t one = 1;
        if (event == HF_EVENT_LOST && lock->lost_fd >= 0 &&
            write(lock->lost_fd, &one, sizeof one) != (ssize_t)sizeof one)
            continue; /* full: readable already */
    }
    pthread_mutex_unlock(&client->handles_mtx);
    return wanted;
}

static hf_lock *next_to_tell_locked(hf_client *client, const char *name, size_t name_len,
                                    uint64_t round) {
    for (struct hfi_link *link = client->handles.next; link != &client->handles;
         link = link->next) {
        hf_lock *lock = HFI_CONTAINER(link, hf_lock, link);
        if (lock->on_lost != NULL && lock->told_round != round && is_about(lock, name, name_len))
            return lock;
    }
    return NULL;
}

void hfi_tell(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
              const hf_event *event) {
    hf_client *client = arg;
    hf_lock *lock;
    (void)kind;
    pthread_mutex_lock(&client->handles_mtx);
    uint64_t round = ++client->telling_round;
    while ((lock = next_to_tell_locked(client, name, name_len, round)) != NULL) {
        hf_event_fn callback = lock->on_lost;
        void *user = lock->user;
        lock->told_round = round;
        client->telling = lock;
        pthread_mutex_unlock(&client->handles_mtx);
        callback(lock, event, user); /* may free the handle */
        pthread_mutex_lock(&client->handles_mtx);
        client->telling = NULL;
        pthread_cond_broadcast(&client->handles_cond);
    }
    pthread_mutex_unlock(&client->handles_mtx);
}

static void wait_until_told_locked(hf_lock *lock) {
    hf_client *client = lock->client;
    const struct hfi_self *self = hfi_self();
    if (self != NULL && self->in_callback == client)
        return; /* it may be our own callback that is running */
    while (client->telling == lock)
        pthread_cond_wait(&client->handles_cond, &client->handles_mtx);
}

static void list_locked(hf_lock *lock) {
    if (hfi_linked(&lock->link))
        return;
    /* what is being told now is not for a newcomer */
    lock->told_round = lock->client->telling_round;
    hfi_list_push_back(&lock->client->handles, &lock->link);
}

int hf_lock_on_lost(hf_lock *lock, hf_event_fn callback, void *user) {
    struct hfi_entry entry;
    if (lock == NULL)
        return hfi_remember(HF_EINVAL, NULL);
    hf_client *client = lock->client;
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    if (callback != NULL)
        err = hfi_dispatcher_ensure(client);
    if (err == HF_OK) {
        pthread_mutex_lock(&client->handles_mtx);
        if (callback == NULL)
            wait_until_told_locked(lock);
        lock->on_lost = callback;
        lock->user = user;
        list_locked(lock);
        pthread_mutex_unlock(&client->handles_mtx);
    }
    hfi_leave(client, &entry);
    return hfi_remember(err, NULL);
}

int hf_lock_lost_fd(hf_lock *lock) {
    struct hfi_entry entry;
    if (lock == NULL)
        return hfi_remember(HF_EINVAL, NULL);
    int err = hfi_enter(lock->client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    pthread_mutex_lock(&lock->client->handles_mtx);
    if (lock->lost_fd < 0) {
        lock->lost_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (lock->lost_fd >= 0)
            list_locked(lock);
    }
    int fd = lock->lost_fd;
    pthread_mutex_unlock(&lock->client->handles_mtx);
    hfi_leave(lock->client, &entry);
    return fd >= 0 ? fd : hfi_remember(HF_ESYS, NULL);
}

void hf_lock_free(hf_lock *lock) {
    if (lock == NULL)
        return;
    hf_client *client = lock->client;
    if (client->core.pid != getpid()) {
        if (lock->lost_fd >= 0)
            close(lock->lost_fd);
        return; /* a mutex may have been held when the process forked: leave the memory */
    }
    pthread_mutex_lock(&client->handles_mtx);
    hfi_list_remove(&lock->link);
    wait_until_told_locked(lock);
    pthread_mutex_unlock(&client->handles_mtx);
    if (lock->lost_fd >= 0)
        close(lock->lost_fd);
    hfi_free(&client->mem, lock);
    hfi_client_unref(client);
}
