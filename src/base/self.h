/*
 * What the library knows about a thread: its owner number, its last error, whether it is inside a
 * callback. The only globals of the library are here: one counter of owner numbers and one thread
 * key.
 */
#ifndef HFI_BASE_SELF_H
#define HFI_BASE_SELF_H

#include "base/task.h"

#include <holdfast/holdfast.h>

#define HFI_FIRST_AUTOMATIC_OWNER ((hf_owner)1 << 32)

struct hfi_self {
    atomic_int refs;   /* the thread, operations, holds that it owns by default */
    atomic_bool ended; /* the thread is gone */
    hf_owner owner;
    hf_error last;
    const void *in_callback; /* the client whose callback this thread runs, or NULL */

    pthread_mutex_t mtx;
    struct hfi_task **watchers; /* posted to when the thread ends */
    size_t watchers_len, watchers_cap;
};

struct hfi_self *hfi_self(void); /* this thread's; NULL when out of memory */
void hfi_self_ref(struct hfi_self *self);
void hfi_self_unref(struct hfi_self *self);

/* Posts `HFI_SELF_ENDED` to `task` when the thread ends. Once per task is enough. HF_OK or
 * HF_ENOMEM. */
#define HFI_SELF_ENDED 0x80u
int hfi_self_watch(struct hfi_self *self, struct hfi_task *task);

hf_owner hfi_owner_next(void);
bool hfi_owner_valid(hf_owner owner); /* a caller's own number, or one that was handed out */

#endif
