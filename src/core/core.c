/*
 * The core of one client: making it, ending it, its statistics. The layer above owns the struct and
 * fills in the plain fields (memory, log, engine, keeper, hooks, times) before hfi_core_init().
 */
#include "core/core.h"

#include "base/number.h"
#include "core/op/op.h"

#include <string.h>

int hfi_core_init(struct hfi_core *core) {
    core->since_ms = hfi_now_ms();
    hfi_list_init(&core->due);
    hfi_expired_release_init(core);
    for (int i = 0; i < HFI_SHARDS; i++) {
        pthread_mutex_init(&core->shards[i].mtx, NULL);
        hfi_list_init(&core->shards[i].ops);
        hfi_list_init(&core->shards[i].lost);
    }
    hfi_aliases_init(core);
    hfi_listen_init(core);
    int err = hfi_watchdog_init(core);
    if (err == HF_OK)
        hfi_engine_events_init(core);
    return err;
}

void hfi_core_close_ops(struct hfi_core *core) {
    for (int i = 0; i < HFI_SHARDS; i++) {
        struct hfi_shard *shard = &core->shards[i];
        pthread_mutex_lock(&shard->mtx);
        for (struct hfi_link *link = shard->ops.next; link != &shard->ops; link = link->next)
            hfi_task_post(&HFI_CONTAINER(link, struct hf_op, shard_link)->task, HFI_OP_CLOSE);
        pthread_mutex_unlock(&shard->mtx);
    }
}

bool hfi_core_is_idle(struct hfi_core *core) {
    bool idle = atomic_load(&core->returns) == 0;
    for (int i = 0; i < HFI_SHARDS && idle; i++) {
        pthread_mutex_lock(&core->shards[i].mtx);
        idle = hfi_list_empty(&core->shards[i].ops);
        pthread_mutex_unlock(&core->shards[i].mtx);
    }
    return idle;
}

void hfi_core_clear(struct hfi_core *core) {
    const struct hfi_mem *mem = core->mem;
    hfi_watchdog_stop(core);
    hfi_expired_release_stop(core);
    hfi_alarm_clear(core->keeper, &core->listen_alarm);
    hfi_alarm_clear(core->keeper, &core->wait_alarm);
    for (int i = 0; i < HFI_SHARDS; i++) {
        struct hfi_shard *shard = &core->shards[i];
        struct hfi_hold *hold;
        while ((hold = hfi_hold_first_locked(shard)) != NULL) {
            hfi_watchdog_disarm_locked(hold);
            hfi_table_remove(mem, &shard->holds, &hold->keyed);
            hfi_stakes_drop_locked(hold);
            hfi_shares_let_run_out(hold);
            hfi_hold_unref(hold);
        }
        hfi_free(mem, shard->long_place);
        hfi_free(mem, atomic_exchange(&shard->spare_op, NULL));
        hfi_free(mem, atomic_exchange(&shard->spare_work, NULL));
        pthread_mutex_destroy(&shard->mtx);
    }
    hfi_aliases_clear(core);
}

bool hfi_owner_is_foreign(const struct hfi_core *core, const char *text) {
    return memcmp(text, core->id, sizeof core->id - 1) != 0;
}

size_t hfi_owner_text(struct hfi_core *core, hf_owner number, char *text) {
    size_t id_len = sizeof core->id - 1;
    if (atomic_load_explicit(&core->aliases.len, memory_order_relaxed) > 0) {
        size_t alias_len = hfi_alias_text(core, number, text);
        if (alias_len > 0)
            return alias_len;
    }
    memcpy(text, core->id, id_len);
    text[id_len] = ':';
    size_t len = id_len + 1 + hfi_number_write(text + id_len + 1, (int64_t)number);
    text[len] = '\0';
    return len;
}

void hfi_count(atomic_ullong *counter) {
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}
