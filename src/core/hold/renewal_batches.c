/*
 * Renewals: holds that come due together are sent in batches, one node each, and the answers are
 * applied to the holds.
 *
 * The engine says with each proof when the next renewal is due. It counts from when the answered
 * command was sent, since the lease counts from there too. A failed renewal is retried soon, and
 * the sooner the less time is left, until the deadline. No error ends the renewals of a hold; only
 * its own end does.
 *
 * Everything here runs on the keeper's thread; a hold's state belongs to its shard. An entry in
 * `due` and an entry in a batch each keep the hold alive.
 */
#include "core/core.h"

#include <string.h>

struct batch {
    struct hfi_renewal renewal;
    struct hfi_core *core;
    int64_t sent_ms;
    struct hfi_hold *holds[HFI_RENEWAL_MAX];
    uint64_t generations[HFI_RENEWAL_MAX];
};

void hfi_renewals_add_locked(struct hfi_hold *hold) {
    hfi_hold_renewal_due_locked(hold);
    hfi_hold_ref(hold);
    hfi_list_push_back(&hold->core->due, &hold->due_link);
    hfi_task_post(hold->core->watchdog, HFI_WATCHDOG_GATHER);
}

/* ---- Answers ---- */

/* The server does not have it. True: it is lost, and the loss is new. */
static bool miss_locked(struct hfi_hold *hold, int answer, const char *why, int64_t now_ms) {
    if (hold->active != NULL) {
        /* The command in flight may just have released it: that command will find out, or the next
         * renewal. */
        hfi_hold_missed_locked(hold, now_ms);
        return false;
    }
    if (answer != 0)
        why = "its name is now used for something else";
    else if (why == NULL)
        why = "it is gone from the server (broken, deleted, or the server lost its data)";
    bool lost = hfi_hold_lose_locked(hold, why);
    if (answer == 0 && hold->kind->leaves_traces) {
        hfi_hold_leave_behind_locked(hold);
        hfi_expired_release_locked(hold);
    }
    return lost;
}

/* The server's answer for one hold in a batch, or none. A query is not acknowledged by replicas, so
 * it says too little to a hold that needs that. */
static void renewed(struct hfi_hold *hold, uint64_t generation, int err,
                    const struct hfi_renewal_item *item, const struct batch *batch) {
    const struct hfi_core_hooks *hooks = &hold->core->hooks;
    const char *gone = batch != NULL ? batch->renewal.gone : NULL;
    bool lost = false, proved = false, seen = false;
    int64_t now_ms = hfi_now_ms();
    pthread_mutex_lock(&hold->shard->mtx);
    if (hold->count > 0 && hold->generation == generation) {
        bool probed = hold->renewing == HFI_PROBING, found = err == HF_OK && item->answer == 1;
        proved = found && !probed;
        seen = found && hold->acks == 0 && hooks->found != NULL;
        if (found)
            hfi_hold_found_locked(hold, item->tracked);
        if (proved)
            hfi_hold_renewed_locked(hold, &item->proof);
        else if (err != HF_OK && probed)
            hfi_hold_not_probed_locked(hold, now_ms);
        else if (err != HF_OK)
            hfi_hold_renew_again_locked(hold, now_ms);
        else if (!found)
            lost = miss_locked(hold, item->answer, gone, now_ms);
    }
    hfi_hold_renewal_ended_locked(hold, err == HF_OK || err == HF_ENOREPLICA, now_ms);
    if (hold->count > 0 &&
        (hfi_hold_is_renewed(hold) || hold->verify_at_ms != 0 || hold->probe_at_ms != 0))
        hfi_watchdog_arm_locked(hold); /* also a possession that began meanwhile */
    hfi_hold_tidy_locked(hold);
    pthread_mutex_unlock(&hold->shard->mtx);
    if (seen)
        hooks->found(hooks->arg, hold, batch->sent_ms);
    if (proved)
        hfi_hold_changed(hold);
    if (lost)
        hfi_hold_report(hold, HFI_LOST);
    hfi_expired_release_begin(hold->core);
}

/* Notes whether renewals at this node fail now. Returns whether they did before. With more nodes
 * than there is room for, the oldest is forgotten. */
static bool note_failing(struct hfi_core *core, const void *node, bool fails) {
    const void **nodes = core->renewals_fail_at;
    size_t i = 0, *len = &core->renewals_fail_len;
    while (i < *len && nodes[i] != node)
        i++;
    bool failed = i < *len;
    if (failed == fails)
        return failed;
    if (!fails || *len == HFI_FAILED_NODES_MAX) {
        size_t gone = fails ? 0 : i;
        memmove(nodes + gone, nodes + gone + 1, (--*len - gone) * sizeof *nodes);
    }
    if (fails)
        nodes[(*len)++] = node;
    return failed;
}

/* Logged once, until a renewal at the same node succeeds. */
static void log_renewal(struct hfi_core *core, const struct hfi_renewal *renewal) {
    bool failed = renewal->error.code != HF_OK;
    if (renewal->error.code == HF_ECLOSED)
        return;
    bool logged = note_failing(core, renewal->node, failed);
    if (failed)
        hfi_log(core->log, logged ? HF_LOG_DEBUG : HF_LOG_WARN,
                HFI_ABOUT(.code = renewal->error.code, .server = renewal->error.node,
                          .name = renewal->len == 1 ? renewal->items[0].name : NULL,
                          .name_len = renewal->items[0].name_len),
                "renewal of %s%zu holds failed: %s", renewal->err == HF_OK ? "some of " : "",
                renewal->len, renewal->error.text);
}

static void batch_done(struct hfi_renewal *renewal) {
    struct batch *batch = HFI_CONTAINER(renewal, struct batch, renewal);
    struct hfi_core *core = batch->core;
    log_renewal(core, renewal);
    for (size_t i = 0; i < renewal->len; i++) {
        const struct hfi_renewal_item *item = &renewal->items[i];
        bool answered = item->answer >= 0 || item->answer == HF_EWRONGTYPE;
        int err = renewal->err != HF_OK || answered ? renewal->err : item->answer;
        renewed(batch->holds[i], batch->generations[i], err, item, batch);
        hfi_stamp_text_unref(item->stamp.text);
        hfi_hold_unref(batch->holds[i]);
    }
    hfi_free(core->mem, batch);
}

/* ---- Batching ---- */

/* The lease to renew with. 0: it was released since it came due, so it is not renewed; its
 * reference is dropped. */
static int64_t begin_renewal(struct hfi_hold *hold, int64_t deadline_ms, uint64_t *ret_generation,
                             struct hfi_stamp *ret_stamp) {
    pthread_mutex_lock(&hold->shard->mtx);
    int64_t lease_ms = hfi_hold_renewal_sent_locked(hold, deadline_ms);
    *ret_generation = hold->generation;
    *ret_stamp = hfi_hold_stamp(hold);
    if (lease_ms == 0)
        hfi_hold_tidy_locked(hold);
    pthread_mutex_unlock(&hold->shard->mtx);
    if (lease_ms == 0) {
        hfi_stamp_text_unref(ret_stamp->text);
        hfi_hold_unref(hold);
    }
    return lease_ms;
}

static void add_to_batch(struct batch *batch, struct hfi_hold *hold) {
    struct hfi_renewal *renewal = &batch->renewal;
    size_t i = renewal->len;
    struct hfi_stamp stamp;
    int64_t lease_ms = begin_renewal(hold, renewal->deadline_ms, &batch->generations[i], &stamp);
    if (lease_ms == 0)
        return;
    renewal->items[i] = (struct hfi_renewal_item){.kind = hold->kind,
                                                  .name = hold->name,
                                                  .name_len = hold->name_len,
                                                  .owner = hold->owner,
                                                  .owner_len = hold->owner_len,
                                                  .stamp = stamp,
                                                  .lease_ms = lease_ms,
                                                  .acks = hold->acks};
    batch->holds[i] = hold;
    renewal->len++;
}

static struct batch *new_batch(struct hfi_core *core, const void *node) {
    struct batch *batch = hfi_zalloc(core->mem, sizeof *batch);
    if (batch == NULL)
        return NULL;
    int64_t period_ms = core->watchdog_ms / 3;
    batch->core = core;
    batch->sent_ms = hfi_now_ms();
    batch->renewal.node = node;
    batch->renewal.deadline_ms =
        batch->sent_ms + (core->cmd_timeout_ms < period_ms ? core->cmd_timeout_ms : period_ms);
    batch->renewal.done = batch_done;
    return batch;
}

/* Fills it with the holds due at its node; the others stay, in order. */
static void fill_batch(struct hfi_core *core, struct batch *batch) {
    struct hfi_link *next, *due = &core->due;
    for (struct hfi_link *link = due->next; link != due; link = next) {
        struct hfi_hold *hold = HFI_CONTAINER(link, struct hfi_hold, due_link);
        next = link->next;
        if (batch->renewal.len == HFI_RENEWAL_MAX)
            return;
        if (hfi_node_of(core, hold) != batch->renewal.node)
            continue;
        hfi_list_remove(link);
        add_to_batch(batch, hold);
    }
}

/* No memory for a batch: the first hold is retried soon, since there is time until its deadline. */
static void put_off_one(struct hfi_core *core) {
    struct hfi_hold *hold =
        HFI_CONTAINER(hfi_list_pop_front(&core->due), struct hfi_hold, due_link);
    uint64_t generation;
    struct hfi_stamp stamp;
    if (begin_renewal(hold, 0, &generation, &stamp) == 0)
        return;
    renewed(hold, generation, HF_ENOMEM, NULL, NULL);
    hfi_stamp_text_unref(stamp.text);
    hfi_hold_unref(hold);
}

/* All batches begin at once, so a node that does not answer delays no other node's. */
void hfi_renewals_send(struct hfi_core *core) {
    while (!hfi_list_empty(&core->due)) {
        const struct hfi_hold *first = HFI_CONTAINER(core->due.next, struct hfi_hold, due_link);
        struct batch *batch = new_batch(core, hfi_node_of(core, first));
        if (batch == NULL) {
            put_off_one(core);
            continue;
        }
        fill_batch(core, batch);
        if (batch->renewal.len > 0)
            core->engine->ops->renew(core->engine, &batch->renewal);
        else
            hfi_free(core->mem, batch);
    }
}
