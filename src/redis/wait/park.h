/* A parked acquire (park.c), and poll batches, which check the locks of parked acquires
 * (poll_batch.c). */
#ifndef HFI_REDIS_WAIT_PARK_H
#define HFI_REDIS_WAIT_PARK_H

#include "redis/pubsub/pubsub.h"

struct hfi_poll_entry;
struct hfi_poll_batch;
struct hfi_redis;
struct hfi_node;

/* There may be a hundred thousand of these, so fields are as narrow as possible. */
struct hfi_parked {
    struct hfi_waiter waiter;
    struct hfi_node *home; /* where it is subscribed, with a reference; NULL: nowhere */
    int64_t until_ms;
    int64_t ttl_ms, attempted_ms; /* as in struct hfi_call_state, up to `subscribed` */
    uint16_t sleeps, fruitless;
    bool woken, subscribed, other_event;

    /* Guarded by the poll batch's mutex, if `poll_batch` is set. */
    bool in_poll_batch;
    bool due; /* the last poll says that it should attempt */
    uint8_t poll_index;
    uint8_t polls_left;   /* polls before it attempts in any case */
    struct hfi_link link; /* in the list of those to be polled, in order */
    /* the poll that includes it now, at `poll_index`; NULL: none */
    struct hfi_poll_entry *poll_entry;
    struct hfi_call_status *call_status; /* of its call */
    /* valid as long as it is parked */
    const char *name;
    uint32_t name_len;
};

int hfi_poll_batch_new(struct hfi_redis *redis, struct hfi_poll_batch **ret);
/* On the keeper's thread. Nothing is sent any more. NULL is fine, also for free. */
void hfi_poll_batch_stop(struct hfi_poll_batch *poll_batch);
void hfi_poll_batch_free(struct hfi_poll_batch *poll_batch);

/* Adds it to the poll batch; HFI_EVENT_TIMER is posted when it should attempt. Its home,
 * call_status and name are set. Any thread. */
void hfi_poll_batch_add(struct hfi_poll_batch *poll_batch, struct hfi_parked *parked);
/* Removes it. */
void hfi_poll_batch_remove(struct hfi_poll_batch *poll_batch, struct hfi_parked *parked);

#endif
