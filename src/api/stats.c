/*
 * The statistics of a client, copied from the counters of its core. They change while they are read, so
 * each is right by itself. On the caller's thread.
 */
#include "api/client.h"
#include "api/sized.h"

static void read_times(const struct hfi_times *from, hf_times *to) {
    to->count = atomic_load(&from->count);
    to->sum_us = atomic_load(&from->sum_us);
    to->max_us = atomic_load(&from->max_us);
    for (size_t i = 0; i < 32; i++)
        to->buckets[i] = atomic_load(&from->buckets[i]);
}

int hf_client_stats(hf_client *client, hf_stats *ret_stats) {
    struct hfi_entry entry;
    hf_error error;
    if (ret_stats == NULL)
        return hfi_remember(HF_EINVAL, NULL);
    int err = hfi_sized_check(&hfi_sized_stats, ret_stats, &error);
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
                      .unknowns = atomic_load(&c->unknowns),
                      .notify_failures = atomic_load(&c->notify_failures),
                      .reconnects = atomic_load(&c->reconnects),
                      .commands = atomic_load(&c->commands),
                      .holds = atomic_load(&c->holds),
                      .switches = atomic_load(&c->switches),
                      .redirects = atomic_load(&c->redirects),
                      .ack_failures = atomic_load(&c->ack_failures)};
    read_times(&client->core.wait, &stats.wait);
    read_times(&client->core.hold, &stats.hold);
    hfi_sized_write(&hfi_sized_stats, &stats, ret_stats);
    hfi_leave(client, &entry);
    return HF_OK;
}
