/*
 * The library's view of a thread. The record is made when the thread first calls in, and outlives
 * the thread for as long as a hold refers to it.
 *
 * The thread-exit hook does as little as it can: it marks the record and posts to the watchdogs of
 * the clients where the thread holds something; they do the rest on their own threads.
 */
#include "base/self.h"

#include "base/error.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_ullong next_owner = HFI_FIRST_AUTOMATIC_OWNER;
static pthread_key_t self_key;
static pthread_once_t self_once = PTHREAD_ONCE_INIT;
static bool self_key_ok;

static void thread_ended(void *arg) {
    struct hfi_self *self = arg;
    atomic_store(&self->ended, true);
    pthread_mutex_lock(&self->mtx);
    for (size_t i = 0; i < self->watchers_len; i++) {
        hfi_task_post(self->watchers[i], HFI_SELF_ENDED);
        hfi_task_unref(self->watchers[i]);
    }
    self->watchers_len = 0;
    pthread_mutex_unlock(&self->mtx);
    hfi_self_unref(self);
}

static void make_key(void) {
    self_key_ok = pthread_key_create(&self_key, thread_ended) == 0;
}

struct hfi_self *hfi_self(void) {
    pthread_once(&self_once, make_key);
    if (!self_key_ok)
        return NULL;
    struct hfi_self *self = pthread_getspecific(self_key);
    if (self != NULL)
        return self;
    self = calloc(1, sizeof *self);
    if (self == NULL)
        return NULL;
    atomic_init(&self->refs, 1);
    pthread_mutex_init(&self->mtx, NULL);
    self->owner = hfi_owner_next();
    self->pid = getpid();
    self->tid = gettid();
    if (pthread_setspecific(self_key, self) != 0) {
        hfi_self_unref(self);
        return NULL;
    }
    return self;
}

void hfi_self_ref(struct hfi_self *self) {
    atomic_fetch_add_explicit(&self->refs, 1, memory_order_relaxed);
}

void hfi_self_unref(struct hfi_self *self) {
    if (self == NULL || atomic_fetch_sub_explicit(&self->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&self->mtx);
    free(self->watchers);
    free(self);
}

/* Forgets watchers whose client has been closed. */
static void prune_locked(struct hfi_self *self) {
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

int hfi_self_watch(struct hfi_self *self, struct hfi_task *task) {
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

/* The thread that forked is the first of its child, whose record says what it was before. */
static void ask_name(const struct hfi_self *self, char name[HFI_THREAD_NAME_SIZE]) {
    char path[64], process[HFI_THREAD_NAME_SIZE];
    pid_t pid = getpid();
    snprintf(path, sizeof path, "/proc/self/task/%d/comm",
             (int)(self->pid == pid ? self->tid : pid));
    read_name(path, name);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)pid);
    read_name(path, process);
    if (strcmp(name, process) == 0)
        name[0] = '\0';
}

void hfi_self_name(struct hfi_self *self, int *may_ask, char name[HFI_THREAD_NAME_SIZE]) {
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
    const struct hfi_self *self = hfi_self();
    return self != NULL ? self->owner : 0;
}

const hf_error *hf_last_error(void) {
    static const hf_error no_memory = {.code = HF_ENOMEM, .text = "out of memory"};
    const struct hfi_self *self = hfi_self();
    return self != NULL ? &self->last : &no_memory;
}
