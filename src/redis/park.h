/* An acquire that only sleeps (park.c), and looks: how those who sleep for long find out that they
 * need not (looks.c). */
#ifndef HFI_REDIS_PARK_H
#define HFI_REDIS_PARK_H

#include "redis/pubsub.h"

struct hfi_look;
struct hfi_looks;
struct hfi_redis;
struct hfi_node;

/* There may be a hundred thousand of these, so what can be narrow is. */
struct hfi_parked {
    struct hfi_waiter waiter;
    struct hfi_node *home; /* where it listens, with a reference; NULL: nowhere */
    int64_t until_ms;
    int64_t ttl_ms, attempted_ms; /* as struct hfi_call_state has them, like naps to heard */
    uint16_t naps, fruitless;
    bool woken, heard, other_event;

    /* Guarded by the looks, if it `looks`. */
    bool looks;
    bool due; /* the last look says that it should attempt */
    uint8_t look_index;
    uint8_t looks_left;      /* before it attempts all the same */
    struct hfi_link link;    /* among those to be looked at, in their order */
    struct hfi_look *look;   /* in which it is right now, at `look_index`; NULL: in none */
    struct hfi_signs *signs; /* of its call */
    const char *name;        /* which stays as long as it is parked */
    uint32_t name_len;
};

int hfi_looks_new(struct hfi_redis *redis, struct hfi_looks **ret);
/* On the keeper's thread: nothing is sent any more. NULL is fine, and so it is for free. */
void hfi_looks_stop(struct hfi_looks *looks);
void hfi_looks_free(struct hfi_looks *looks);

/* From now on its lock is looked at, and HFI_EVENT_TIMER comes when it should attempt. Its home,
 * signs and name are set. Any thread. */
void hfi_looks_add(struct hfi_looks *looks, struct hfi_parked *parked);
/* Not any more. */
void hfi_looks_remove(struct hfi_looks *looks, struct hfi_parked *parked);

#endif
