/*
 * What we owe to others who listen on a channel: a part of the registry, for courtesy.c alone.
 *
 * Any thread, under the registry's mutex. What is owed belongs to the channel, so to all of the client's calls on it, and
 * whoever takes it has it alone.
 */
#include "base/clock.h"
#include "redis/pubsub_impl.h"

#define VAIN_MS 10       /* those who listened and did not come are owed nothing for so long, */
#define VAIN_DOUBLINGS 2 /* and so often twice as long as before */

/* While we had the lock nobody else released it: what came since the release was sent is our own message. */
static enum hfi_others owe_locked(struct hfi_channel *channel, int told, int64_t sent_ms,
                                  int64_t stand_ms) {
    int64_t now_ms = hfi_now_ms();
    channel->debt.others = 0;
    if (told <= 1 || now_ms < channel->no_debt_ms)
        return HFI_OTHERS_NONE;
    int others = told - 1;
    if (channel->debt_limit > 0 && channel->debt_limit < others)
        others = channel->debt_limit;
    channel->debt = (struct hfi_debt){.others = (uint16_t)others,
                                      .own = channel->message_ms < sent_ms,
                                      .since_ms = now_ms,
                                      .stand_ms = (uint16_t)stand_ms};
    return HFI_OTHERS_FIRST;
}

enum hfi_others hfi_pubsub_owe(struct hfi_pubsub *pubsub, const char *name, size_t len, int told,
                               int64_t sent_ms, int64_t stand_ms) {
    enum hfi_others others = HFI_OTHERS_UNKNOWN;
    pthread_mutex_lock(&pubsub->mtx);
    struct hfi_channel *channel =
        pubsub->stopped ? NULL : hfi_pubsub_find_locked(pubsub, name, len);
    if (channel != NULL && channel->state == CHANNEL_HEARD)
        others = owe_locked(channel, told, sent_ms, stand_ms);
    pthread_mutex_unlock(&pubsub->mtx);
    return others;
}

bool hfi_pubsub_take_debt(struct hfi_waiter *waiter, struct hfi_debt *ret) {
    struct hfi_pubsub *pubsub = waiter->pubsub;
    pthread_mutex_lock(&pubsub->mtx);
    *ret = waiter->channel->debt;
    waiter->channel->debt.others = 0;
    pthread_mutex_unlock(&pubsub->mtx);
    return ret->others > 0;
}

void hfi_pubsub_stood_back(struct hfi_waiter *waiter, bool used, int limit) {
    struct hfi_pubsub *pubsub = waiter->pubsub;
    struct hfi_channel *channel = waiter->channel;
    pthread_mutex_lock(&pubsub->mtx);
    channel->debt_limit = (uint16_t)limit;
    channel->no_debt_ms = used ? 0 : hfi_now_ms() + (VAIN_MS << channel->in_vain);
    if (used)
        channel->in_vain = 0;
    else if (channel->in_vain < VAIN_DOUBLINGS)
        channel->in_vain++;
    pthread_mutex_unlock(&pubsub->mtx);
}
