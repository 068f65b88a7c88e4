/*
 * What `run` and `hold` hold, for their users: the part that is the same for locks (held_lock.c) and slots
 * (held_slot.c), and what is said when it cannot be had.
 *
 * Everything runs on the thread that calls hf_dispatch(): the main thread of the holder, or of `hold`.
 */
#include "held.h"

#include <stdlib.h>
#include <string.h>

int held_acquire(struct held *held) {
    held->began_ms = now_ms();
    return held->kind->ops->acquire(held);
}

void held_cancel(struct held *held) {
    held->canceled = true;
    if (held->op != NULL)
        hf_op_cancel(held->op);
}

int held_release(struct held *held) {
    held->is_held = false;
    return held->kind->ops->release(held);
}

int64_t held_remaining_ms(const struct held *held) {
    return held->is_held ? held->kind->ops->remaining_ms(held) : 0;
}

void held_free(struct held *held) {
    if (held->kind != NULL)
        held->kind->ops->free(held);
}

int held_failed(const struct held *held, const hf_result *result, int busy_status) {
    char buffer[SHOWN_NAME_SIZE];
    if (result->code != HF_EBUSY && result->code != HF_ETIMEDOUT)
        return library_error(result->code, &result->error, "acquire", held->name);
    say(busy_status == 0 ? LEVEL_INFO : LEVEL_NOTICE, "'%s': %s", shown_name(held->name, buffer),
        result->code == HF_EBUSY ? held->kind->ops->busy : held->kind->ops->timed_out);
    return busy_status;
}

void held_explain(hf_client *client, const char *name) {
    static const struct {
        const char *kind, *advice;
    } all[] = {
        {"plain", "a lock that is no read/write lock: leave out --shared, --write and --slots"},
        {"fair", "a fair lock: use --fair"},
        {"read", "a read/write lock: use -s (--shared) or -W (--write)"},
        {"write", "a read/write lock: use -s (--shared) or -W (--write)"},
        {"permits", "a set of slots: use -N (--slots)"},
        {"counter", "a semaphore, a latch or a set of slots, and no lock"},
        {"other", "something that is no lock of any kind"},
    };
    char buffer[SHOWN_NAME_SIZE];
    hf_lock *lock = NULL;
    hf_lock_info *info = NULL;
    if (hf_lock_new(client, name, &lock) == HF_OK && hf_lock_inspect(lock, &info) == HF_OK) {
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            if (strcmp(info->kind, all[i].kind) == 0)
                say(LEVEL_ERROR, "'%s' is %s", shown_name(name, buffer), all[i].advice);
        }
        hf_lock_info_free(info);
    }
    hf_lock_free(lock);
}
