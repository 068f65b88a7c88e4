/*
 * The library's record of a thread. It is made at the thread's first call, and outlives the thread
 * while a hold refers to it.
 *
 * The thread-exit hook does little: it marks the record and posts to the watchdogs of the clients
 * where the thread holds a lock. They do the rest on their own threads.
 *
 * In a forked child the record of the forking thread is left alone: other threads of the parent may
 * have held its mutex, and the watchdogs', at the fork. The thread gets a new record there.
 */
#include "task/thread_record.h"

#include "task/thread.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_ullong next_owner = HFI_FIRST_AUTOMATIC_OWNER;
static pthread_key_t record_key;
static pthread_once_t record_once = PTHREAD_ONCE_INIT;
static bool record_key_ok;

static void thread_ended(void *arg) {
    struct hfi_thread_record *self = arg;
    int state = hfi_thread_cancel_disable();
    atomic_store(&self->ended, true);
    pthread_mutex_lock(&self->mtx);
    for (size_t i = 0; i < self->watchers_len; i++) {
        hfi_task_post(self->watchers[i], HFI_THREAD_ENDED);
        hfi_task_unref(self->watchers[i]);
    }
    self->watchers_len = 0;
    pthread_mutex_unlock(&self->mtx);
    hfi_thread_record_unref(self);
    hfi_thread_cancel_restore(state);
}

static void in_forked_child(void) {
    pthread_setspecific(record_key, NULL);
}

static void make_key(void) {
    record_key_ok = pthread_key_create(&record_key, thread_ended) == 0 &&
                    pthread_atfork(NULL, NULL, in_forked_child) == 0;
}

struct hfi_thread_record *hfi_thread_record(void) {
    pthread_once(&record_once, make_key);
    if (!record_key_ok)
        return NULL;
    struct hfi_thread_record *self = pthread_getspecific(record_key);
    if (self != NULL)
        return self;
    self = calloc(1, sizeof *self);
    if (self == NULL)
        return NULL;
    atomic_init(&self->refs, 1);
    pthread_mutex_init(&self->mtx, NULL);
    self->owner = hfi_owner_next();
    self->tid = gettid();
    if (pthread_setspecific(record_key, self) != 0) {
        hfi_thread_record_unref(self);
        return NULL;
    }
    return self;
}

void hfi_thread_record_ref(struct hfi_thread_record *self) {
    atomic_fetch_add_explicit(&self->refs, 1, memory_order_relaxed);
}

void hfi_thread_record_unref(struct hfi_thread_record *self) {
    if (self == NULL || atomic_fetch_sub_explicit(&self->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&self->mtx);
    free(self->watchers);
    free(self);
}

/* Drops watchers whose client has been closed. */
static void prune_locked(struct hfi_thread_record *self) {
    size_t kept = 0;
    for (size_t i = 0; i < self->watchers_len; i++) {
        struct hfi_task *task = self->watchers[i];
        pthread_mutex_lock(&task->mtx);
        bool alive = task->exec != NULL;
        pthread_mutex_unlock(&task->mtx);
        if (alive)
            self->watchers[kept++] = task;
        else
            hfi_task_unref(task);
    }
    self->watchers_len = kept;
}

int hfi_thread_record_watch(struct hfi_thread_record *self, struct hfi_task *task) {
    int err = HF_OK;
    pthread_mutex_lock(&self->mtx);
    for (size_t i = 0; i < self->watchers_len; i++)
        if (self->watchers[i] == task)
            goto out;
    prune_locked(self);
    if (self->watchers_len == self->watchers_cap) {
        size_t cap = self->watchers_cap + 4;
        struct hfi_task **grown = realloc(self->watchers, cap * sizeof(struct hfi_task *));
        if (grown == NULL) {
            err = HF_ENOMEM;
            goto out;
        }
        self->watchers = grown;
        self->watchers_cap = cap;
    }
    hfi_task_ref(task);
    self->watchers[self->watchers_len++] = task;
out:
    pthread_mutex_unlock(&self->mtx);
    return err;
}

/* ---- Names ---- */

static void read_name(const char *path, char name[HFI_THREAD_NAME_SIZE]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, name, HFI_THREAD_NAME_SIZE - 1) : 0;
    if (fd >= 0)
        close(fd);
    name[len > 0 ? len : 0] = '\0';
    name[strcspn(name, "\n")] = '\0';
}

static void ask_name(const struct hfi_thread_record *self, char name[HFI_THREAD_NAME_SIZE]) {
    char path[64], process[HFI_THREAD_NAME_SIZE];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)self->tid);
    read_name(path, name);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)getpid());
    read_name(path, process);
    if (strcmp(name, process) == 0)
        name[0] = '\0';
}

void hfi_thread_record_name(struct hfi_thread_record *self, int *may_ask,
                            char name[HFI_THREAD_NAME_SIZE]) {
    pthread_mutex_lock(&self->mtx);
    bool ask = !self->asked_name && !atomic_load(&self->ended) && *may_ask > 0;
    memcpy(name, self->name, HFI_THREAD_NAME_SIZE);
    pthread_mutex_unlock(&self->mtx);
    if (!ask)
        return;
    --*may_ask;
    ask_name(self, name); /* without the mutex: a thread that forks meanwhile may need it */
    pthread_mutex_lock(&self->mtx);
    memcpy(self->name, name, HFI_THREAD_NAME_SIZE);
    self->asked_name = true;
    pthread_mutex_unlock(&self->mtx);
}

hf_owner hfi_owner_next(void) {
    return atomic_fetch_add(&next_owner, 1);
}

bool hfi_owner_valid(hf_owner owner) {
    return owner > 0 && owner < atomic_load(&next_owner);
}

hf_owner hf_owner_new(void) {
    return hfi_owner_next();
}

hf_owner hf_owner_self(void) {
    const struct hfi_thread_record *self = hfi_thread_record();
    return self != NULL ? self->owner : 0;
}
