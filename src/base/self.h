/*
 * What the library knows about a thread: its owner number, its last error, whether it is inside a
 * callback. The only globals of the library are here: one counter of owner numbers and one thread
 * key.
 */
#ifndef HFI_BASE_SELF_H
#define HFI_BASE_SELF_H

#include "base/task.h"

#include <holdfast/holdfast.h>

#include <sys/types.h>

#define HFI_FIRST_AUTOMATIC_OWNER ((hf_owner)1 << 32)

#define HFI_THREAD_NAME_SIZE 16

struct hfi_self {
    atomic_int refs;   /* the thread, operations, holds that it owns by default */
    atomic_bool ended; /* the thread is gone */
    hf_owner owner;
    hf_error last;
    const void *in_callback; /* the client whose callback this thread runs, or NULL */
    pid_t pid, tid;          /* as the kernel knows it, where the record was made */

    pthread_mutex_t mtx;
    bool asked_name; /* and this is it; "": none of its own */
    char name[HFI_THREAD_NAME_SIZE];
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

/* The name that was given to the thread, if it is another than its process's; else "". Asks the kernel the first time, and
 * only if *may_ask says that there is time for it: then that is one less. Any thread. */
void hfi_self_name(struct hfi_self *self, int *may_ask, char name[HFI_THREAD_NAME_SIZE]);

hf_owner hfi_owner_next(void);
bool hfi_owner_valid(hf_owner owner); /* a caller's own number, or one that was handed out */

#endif
