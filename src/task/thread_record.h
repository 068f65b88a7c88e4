/*
 * The library's record of a thread: its owner number, its last error, whether it is inside a
 * callback. The only globals of the library are here: the counter of owner numbers and the thread
 * key.
 */
#ifndef HFI_TASK_THREAD_RECORD_H
#define HFI_TASK_THREAD_RECORD_H

#include "task/task.h"

#include <holdfast/holdfast.h>

#include <sys/types.h>

#define HFI_FIRST_AUTOMATIC_OWNER ((hf_owner)1 << 32)

#define HFI_THREAD_NAME_SIZE 16

struct hfi_thread_record {
    atomic_int refs;   /* the thread, operations, holds it owns by default */
    atomic_bool ended; /* the thread is gone */
    hf_owner owner;
    hf_error last;
    const void *in_callback; /* the client whose callback this thread runs, a check, or NULL */
    pid_t tid;               /* the kernel's thread id */

    pthread_mutex_t mtx;
    bool asked_name; /* `name` was read; "": none of its own */
    char name[HFI_THREAD_NAME_SIZE];
    struct hfi_task **watchers; /* posted to when the thread ends */
    size_t watchers_len, watchers_cap;
};

struct hfi_thread_record *hfi_thread_record(void); /* this thread's; NULL when out of memory */
void hfi_thread_record_ref(struct hfi_thread_record *self);
void hfi_thread_record_unref(struct hfi_thread_record *self);

/* Posts `HFI_THREAD_ENDED` to `task` when the thread ends. Once per task is enough. HF_OK or
 * HF_ENOMEM. */
#define HFI_THREAD_ENDED 0x80u
int hfi_thread_record_watch(struct hfi_thread_record *self, struct hfi_task *task);

/* The thread's own name; "" if it is that of its process. The first time it is read from /proc,
 * if *may_ask > 0, which it then decrements: a budget of the caller. Any thread. */
void hfi_thread_record_name(struct hfi_thread_record *self, int *may_ask,
                            char name[HFI_THREAD_NAME_SIZE]);

hf_owner hfi_owner_next(void);
bool hfi_owner_valid(hf_owner owner); /* a caller's own number, or one that was handed out */

#endif
