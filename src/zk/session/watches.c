/*
 * The table of watched paths.
 *
 * Calls set and remove watches on their own threads; the keeper's thread fires them. One mutex
 * guards everything. Events are posted under it, so none comes after hfi_zk_unwatch().
 */
#include "zk/session/watches.h"

#include "base/table.h"

#include <pthread.h>
#include <string.h>

struct hfi_zk_watched {
    struct hfi_keyed keyed;
    struct hfi_link watches;
    size_t len;
    char path[];
};

struct hfi_zk_watches {
    const struct hfi_mem *mem;
    pthread_mutex_t mtx;
    struct hfi_table table;
};

int hfi_zk_watches_new(const struct hfi_mem *mem, struct hfi_zk_watches **ret) {
    struct hfi_zk_watches *watches = hfi_zalloc(mem, sizeof *watches);
    if (watches == NULL)
        return HF_ENOMEM;
    watches->mem = mem;
    pthread_mutex_init(&watches->mtx, NULL);
    *ret = watches;
    return HF_OK;
}

void hfi_zk_watches_free(struct hfi_zk_watches *watches) {
    if (watches == NULL)
        return;
    pthread_mutex_destroy(&watches->mtx);
    hfi_free(watches->mem, watches);
}

static struct hfi_zk_watched *watched_of(struct hfi_keyed *keyed) {
    return keyed != NULL ? HFI_CONTAINER(keyed, struct hfi_zk_watched, keyed) : NULL;
}

static struct hfi_zk_watched *find_locked(struct hfi_zk_watches *watches, const char *path,
                                          size_t len) {
    return watched_of(hfi_table_find(&watches->table, path, len));
}

static struct hfi_zk_watched *new_watched(const struct hfi_mem *mem, const char *parent,
                                          size_t parent_len, const char *child, size_t child_len) {
    struct hfi_zk_watched *watched = hfi_zalloc(mem, sizeof *watched + parent_len + child_len + 1);
    if (watched == NULL)
        return NULL;
    hfi_list_init(&watched->watches);
    watched->len = parent_len + child_len;
    memcpy(watched->path, parent, parent_len);
    memcpy(watched->path + parent_len, child, child_len);
    return watched;
}

/* Returns the existing entry, or inserts this one; a duplicate is freed. */
static struct hfi_zk_watched *add_locked(struct hfi_zk_watches *watches,
                                         struct hfi_zk_watched *watched) {
    struct hfi_zk_watched *found = find_locked(watches, watched->path, watched->len);
    if (found != NULL) {
        hfi_free(watches->mem, watched);
        return found;
    }
    hfi_table_add(watches->mem, &watches->table, &watched->keyed, watched->path, watched->len);
    return watched;
}

int hfi_zk_watch(struct hfi_zk_watches *watches, struct hfi_zk_watch *watch, const char *parent,
                 size_t parent_len, const char *child, size_t child_len, struct hfi_task *task,
                 unsigned event) {
    struct hfi_zk_watched *watched =
        new_watched(watches->mem, parent, parent_len, child, child_len);
    if (watched == NULL)
        return HF_ENOMEM;
    hfi_zk_unwatch(watches, watch);
    pthread_mutex_lock(&watches->mtx);
    watched = add_locked(watches, watched);
    watch->watched = watched;
    watch->task = task;
    watch->event = event;
    atomic_store(&watch->seen, 0);
    atomic_store(&watch->first, false);
    hfi_list_push_back(&watched->watches, &watch->link);
    pthread_mutex_unlock(&watches->mtx);
    return HF_OK;
}

const char *hfi_zk_watched_path(const struct hfi_zk_watch *watch) {
    return watch->watched->path;
}

void hfi_zk_unwatch(struct hfi_zk_watches *watches, struct hfi_zk_watch *watch) {
    struct hfi_zk_watched *watched = watch->watched;
    if (watched == NULL)
        return;
    pthread_mutex_lock(&watches->mtx);
    hfi_list_remove(&watch->link);
    watch->watched = NULL;
    if (hfi_list_empty(&watched->watches)) {
        hfi_table_remove(watches->mem, &watches->table, &watched->keyed);
        hfi_free(watches->mem, watched);
    }
    pthread_mutex_unlock(&watches->mtx);
}

unsigned hfi_zk_seen(struct hfi_zk_watch *watch) {
    return atomic_exchange(&watch->seen, 0);
}

void hfi_zk_watched_is_first(struct hfi_zk_watches *watches, const char *path) {
    pthread_mutex_lock(&watches->mtx);
    struct hfi_zk_watched *watched = find_locked(watches, path, strlen(path));
    struct hfi_link *head = watched != NULL ? &watched->watches : NULL;
    for (struct hfi_link *link = head != NULL ? head->next : NULL; link != head; link = link->next)
        atomic_store(&HFI_CONTAINER(link, struct hfi_zk_watch, link)->first, true);
    pthread_mutex_unlock(&watches->mtx);
}

static void fire_locked(const struct hfi_zk_watched *watched, unsigned seen) {
    const struct hfi_link *head = &watched->watches;
    for (struct hfi_link *link = head->next; link != head; link = link->next) {
        struct hfi_zk_watch *watch = HFI_CONTAINER(link, struct hfi_zk_watch, link);
        atomic_fetch_or(&watch->seen, seen);
        hfi_task_post(watch->task, watch->event);
    }
}

void hfi_zk_watches_fire(struct hfi_zk_watches *watches, const struct hfi_zk_event *event) {
    unsigned seen = event->type == HFI_ZK_EVENT_DELETED ? HFI_ZK_SEEN_DELETED : HFI_ZK_SEEN_OTHER;
    pthread_mutex_lock(&watches->mtx);
    const struct hfi_zk_watched *watched = find_locked(watches, event->path.bytes, event->path.len);
    if (watched != NULL)
        fire_locked(watched, seen);
    pthread_mutex_unlock(&watches->mtx);
}

void hfi_zk_watches_lost(struct hfi_zk_watches *watches, unsigned seen) {
    pthread_mutex_lock(&watches->mtx);
    for (struct hfi_keyed *keyed = hfi_table_first(&watches->table); keyed != NULL;
         keyed = hfi_table_next(&watches->table, keyed))
        fire_locked(watched_of(keyed), seen);
    pthread_mutex_unlock(&watches->mtx);
}
