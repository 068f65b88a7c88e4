/*
 * The statistics of a client, copied from the counters of its core. They change while they are
 * read, so each is right by itself, but not together. On the caller's thread.
 */
#include "api/client.h"
#include "api/versioned_struct.h"
#include "joint/quorum/quorum.h"

int hf_client_stats(hf_client *client, hf_stats *ret_stats) {
    struct hfi_entry entry;
    hf_error error;
    if (ret_stats == NULL)
        return hfi_remember(HF_EINVAL, NULL);
    int err = hfi_versioned_check(&hfi_versioned_stats, ret_stats, &error);
    if (err != HF_OK)
        return hfi_remember(err, &error);
    err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    const struct hfi_counters *c = &client->core.counters;
    hf_stats stats = {.acquired = atomic_load(&c->acquired),
                      .contended = atomic_load(&c->contended),
                      .timed_out = atomic_load(&c->timed_out),
                      .cancelled = atomic_load(&c->cancelled),
                      .released = atomic_load(&c->released),
                      .renewals = atomic_load(&c->renewals),
                      .renew_failures = atomic_load(&c->renew_failures),
                      .losses = atomic_load(&c->losses),
                      .in_doubt = atomic_load(&c->in_doubt),
                      .notify_failures = atomic_load(&c->notify_failures),
                      .reconnects = atomic_load(&c->reconnects),
                      .commands = atomic_load(&c->commands),
                      .holds = atomic_load(&c->holds),
                      .failovers = atomic_load(&c->failovers),
                      .redirects = atomic_load(&c->redirects),
                      .ack_failures = atomic_load(&c->ack_failures),
                      .tracked = atomic_load(&c->tracked),
                      .track_events = atomic_load(&c->track_events),
                      .track_false = atomic_load(&c->track_false)};
    if (client->quorum != NULL)
        stats.tracked = hfi_quorum_tracked(client->quorum, &stats.track_false);
    struct hfi_waits waits = hfi_survey_entry_waits(&client->core);
    stats.waits = waits.len;
    stats.oldest_wait_ms = waits.len > 0 ? (uint64_t)(hfi_now_ms() - waits.since_ms) : 0;
    hfi_times_read(&client->core.wait, &stats.wait);
    hfi_times_read(&client->core.hold, &stats.hold);
    hfi_times_read(&client->core.hand_over, &stats.hand_over);
    hfi_versioned_write(&hfi_versioned_stats, &stats, ret_stats);
    hfi_leave(client, &entry);
    return HF_OK;
}
