/*
 * The yield quota of a channel: a part of the registry, for yield_to_waiters.c alone.
 *
 * Any thread, under the registry's mutex. A quota belongs to the channel, so to all of the client's
 * calls on it; one call takes the whole quota.
 */
#include "base/clock.h"
#include "redis/pubsub/pubsub_impl.h"

#define VAIN_MS 10       /* after a yield in vain, no quota is set for this long, */
#define VAIN_DOUBLINGS 2 /* doubled this many times at most */

/* While we held the lock, no other client released it: a message since the release was sent is our
 * own. */
static enum hfi_others set_yield_locked(struct hfi_channel *channel, int subscribers,
                                        int64_t sent_ms, int64_t yield_ms) {
    int64_t now_ms = hfi_now_ms();
    channel->yield_quota.others = 0;
    if (subscribers <= 1 || now_ms < channel->no_yield_ms)
        return HFI_OTHERS_NONE;
    int others = subscribers - 1;
    if (channel->yield_limit > 0 && channel->yield_limit < others)
        others = channel->yield_limit;
    channel->yield_quota = (struct hfi_yield){.others = (uint16_t)others,
                                              .own = channel->message_ms < sent_ms,
                                              .since_ms = now_ms,
                                              .yield_ms = (uint16_t)yield_ms};
    return HFI_OTHERS_FIRST;
}

enum hfi_others hfi_pubsub_set_yield(struct hfi_pubsub *pubsub, const char *name, size_t len,
                                     int subscribers, int64_t sent_ms, int64_t yield_ms) {
    enum hfi_others others = HFI_OTHERS_UNKNOWN;
    pthread_mutex_lock(&pubsub->mtx);
    struct hfi_channel *channel =
        pubsub->stopped ? NULL : hfi_pubsub_find_locked(pubsub, name, len);
    if (channel != NULL && channel->state == CHANNEL_SUBSCRIBED)
        others = set_yield_locked(channel, subscribers, sent_ms, yield_ms);
    pthread_mutex_unlock(&pubsub->mtx);
    return others;
}

bool hfi_pubsub_take_yield(struct hfi_waiter *waiter, struct hfi_yield *ret) {
    struct hfi_pubsub *pubsub = waiter->pubsub;
    pthread_mutex_lock(&pubsub->mtx);
    *ret = waiter->channel->yield_quota;
    waiter->channel->yield_quota.others = 0;
    pthread_mutex_unlock(&pubsub->mtx);
    return ret->others > 0;
}

void hfi_pubsub_yielded(struct hfi_waiter *waiter, bool used, int limit) {
    struct hfi_pubsub *pubsub = waiter->pubsub;
    struct hfi_channel *channel = waiter->channel;
    pthread_mutex_lock(&pubsub->mtx);
    channel->yield_limit = (uint16_t)limit;
    channel->no_yield_ms = used ? 0 : hfi_now_ms() + (VAIN_MS << channel->in_vain);
    if (used)
        channel->in_vain = 0;
    else if (channel->in_vain < VAIN_DOUBLINGS)
        channel->in_vain++;
    pthread_mutex_unlock(&pubsub->mtx);
}
