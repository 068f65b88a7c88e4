/*
 * Who waits for news of which node: paths and those who watch them.
 *
 * A watch is set here before the server is asked for one, so that no event can come too early. The
 * server forgets all of them with the connection, and each when it has fired.
 */
#ifndef HFI_ZK_WATCHES_H
#define HFI_ZK_WATCHES_H

#include "base/list.h"
#include "base/mem.h"
#include "base/task.h"
#include "zk/wire.h"

struct hfi_zk_watches;

/* What has happened to what is watched, as bits. */
enum {
    HFI_ZK_SEEN_DELETED = 1,
    HFI_ZK_SEEN_OTHER = 2, /* made, changed, or the like */
    HFI_ZK_SEEN_LOST = 4   /* the connection was lost: nobody would tell any more */
};

/* One who watches; all zero at first. Its task's thread has it. */
struct hfi_zk_watch {
    struct hfi_link link;
    struct hfi_zk_watched *watched; /* NULL: it watches nothing */
    struct hfi_task *task;
    unsigned event;
    atomic_uint seen;
    atomic_bool first; /* what it watches was found to be the first of its line */
};

int hfi_zk_watches_new(const struct hfi_mem *mem, struct hfi_zk_watches **ret); /* HF_ENOMEM */
void hfi_zk_watches_free(struct hfi_zk_watches *watches); /* NULL is fine; nobody watches */

/* From now on `event` is posted to `task` when something happens to the path that the two make.
 * HF_ENOMEM. */
int hfi_zk_watch(struct hfi_zk_watches *watches, struct hfi_zk_watch *watch, const char *parent,
                 size_t parent_len, const char *child, size_t child_len, struct hfi_task *task,
                 unsigned event);
const char *hfi_zk_watched_path(const struct hfi_zk_watch *watch);
/* No more; none is posted afterwards. One that watches nothing is fine. */
void hfi_zk_unwatch(struct hfi_zk_watches *watches, struct hfi_zk_watch *watch);
/* What was seen since it was asked last. */
unsigned hfi_zk_seen(struct hfi_zk_watch *watch);

/* Whoever watches this node of ours need not ask who else is before it. */
void hfi_zk_watched_is_first(struct hfi_zk_watches *watches, const char *path);

/* On the keeper's thread. */
void hfi_zk_watches_fire(struct hfi_zk_watches *watches, const struct hfi_zk_event *event);
void hfi_zk_watches_lost(struct hfi_zk_watches *watches);

#endif
