/* Announced losses: what clients say of themselves when they lose a hold.
 *
 * Counters are per client and end with it, and a client often ends at a loss: nobody would count
 * it. So at each loss a client publishes its report, without holds and waits, on
 * HFI_ANNOUNCE_CHANNEL and its database. A client whose surveys want them (HF_WANT_HISTOGRAMS, HF_WANT_LOSSES)
 * subscribes there from its first such survey on, and keeps the last report of each client.
 *
 * Both sides are a part of the survey responder, which has a node's subscriptions and its exchange.
 * Any client may publish there: the texts are parsed as survey answers are. */
#ifndef HFI_REDIS_FLEET_ANNOUNCEMENTS_H
#define HFI_REDIS_FLEET_ANNOUNCEMENTS_H

#include "base/list.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct hfi_engine;
struct hfi_findings;
struct hfi_redis;

#define HFI_ANNOUNCE_CHANNEL "holdfast_tell:losses:"
#define HFI_ANNOUNCE_CHANNEL_SIZE (sizeof HFI_ANNOUNCE_CHANNEL + 16)
#define HFI_ANNOUNCE_BYTES 4096

struct hfi_announcements {
    /* Ours. Any thread: counts the losses to be announced. */
    atomic_uint due;
    atomic_uint done; /* of these: sent, or given up; written by the keeper */
    bool sending;     /* the keeper's, like the next */
    bool undelivered; /* one was given up: it is made good when a server is reached again */

    /* Those of others. */
    atomic_bool wanted; /* subscribe: a survey has wanted totals */
    pthread_mutex_t mtx;
    struct hfi_link texts; /* guarded by it, as the next; the newest at the end */
    size_t texts_len;
};

struct hfi_announcements *hfi_announcements_new(const struct hfi_mem *mem);
void hfi_announcements_free(const struct hfi_mem *mem, struct hfi_announcements *announcements);

/* Writes the channel of our database, unless `to` is NULL; returns its length. */
size_t hfi_announcements_channel(const struct hfi_redis *redis, char *to);
/* A text has come. Any thread. */
void hfi_announcements_note(struct hfi_announcements *announcements, const char *bytes, size_t len);
/* Copies all texts into the findings. False: out of memory. */
bool hfi_announcements_copy(struct hfi_announcements *announcements, struct hfi_findings *findings);

/* A server was reached: announces what could not be announced before. On the keeper's thread. */
void hfi_announcements_retry(struct hfi_redis *redis);

/* As in struct hfi_observe_ops. */
void hfi_announce(struct hfi_engine *engine);
bool hfi_is_announcing(struct hfi_engine *engine);
/* From now on subscribes to the losses of others. Any thread. */
void hfi_subscribe_announcements(struct hfi_engine *engine);

#endif
