/*
 * The watched paths, and the watches on each.
 *
 * A watch is registered here before the request that sets it on the server, so no event comes too
 * early. The server drops a watch when it fires, and all of them with the connection.
 */
#ifndef HFI_ZK_SESSION_WATCHES_H
#define HFI_ZK_SESSION_WATCHES_H

#include "base/list.h"
#include "base/mem.h"
#include "task/task.h"
#include "zk/wire/wire.h"

struct hfi_zk_watches;

/* What happened to the watched path, as bits. */
enum {
    HFI_ZK_SEEN_DELETED = 1,
    HFI_ZK_SEEN_OTHER = 2,  /* created, changed, or the like */
    HFI_ZK_SEEN_LOST = 4,   /* the connection was lost, and the watch with it */
    HFI_ZK_SEEN_RENEWED = 8 /* the connection is being replaced on purpose: set the watch again */
};

/* One watch; all zero at first. Owned by its task's thread. */
struct hfi_zk_watch {
    struct hfi_link link;
    struct hfi_zk_watched *watched; /* NULL: inactive */
    struct hfi_task *task;
    unsigned event;
    atomic_uint seen;
    atomic_bool first; /* the watched node was found to be the head of its queue */
};

int hfi_zk_watches_new(const struct hfi_mem *mem, struct hfi_zk_watches **ret); /* HF_ENOMEM */
void hfi_zk_watches_free(struct hfi_zk_watches *watches); /* NULL is fine; no watch is active */

/* From now on `event` is posted to `task` when something happens to the path parent + child.
 * HF_ENOMEM. */
int hfi_zk_watch(struct hfi_zk_watches *watches, struct hfi_zk_watch *watch, const char *parent,
                 size_t parent_len, const char *child, size_t child_len, struct hfi_task *task,
                 unsigned event);
const char *hfi_zk_watched_path(const struct hfi_zk_watch *watch);
/* Ends the watch; nothing is posted afterwards. An inactive watch is fine. */
void hfi_zk_unwatch(struct hfi_zk_watches *watches, struct hfi_zk_watch *watch);
/* The bits seen since the last call. */
unsigned hfi_zk_seen(struct hfi_zk_watch *watch);

/* This node of ours is the head of its queue: its watchers need not list the queue. */
void hfi_zk_watched_is_first(struct hfi_zk_watches *watches, const char *path);

/* On the keeper's thread. */
void hfi_zk_watches_fire(struct hfi_zk_watches *watches, const struct hfi_zk_event *event);
/* HFI_ZK_SEEN_LOST or HFI_ZK_SEEN_RENEWED */
void hfi_zk_watches_lost(struct hfi_zk_watches *watches, unsigned seen);

#endif
