/*
 * Those who wait for a node; see wants.h.
 *
 * Called by sentinel.c and cluster.c, on any thread, under the mutex of the route. Whoever waits is a task with an event, and the
 * list has a reference to it. A want belongs to its task, so it may be gone as soon as that was told.
 */
#include "redis/route/wants.h"

#include "base/list.h"

void hfi_wants_add(struct hfi_link *wants, struct hfi_want *want, struct hfi_task *task,
                   unsigned event, bool known) {
    want->task = task;
    want->event = event;
    want->err = HF_OK;
    if (known) {
        hfi_task_post(task, event);
        return;
    }
    hfi_task_ref(task);
    hfi_list_push_back(wants, &want->link);
}

bool hfi_wants_remove(struct hfi_want *want) {
    bool linked = hfi_linked(&want->link);
    hfi_list_remove(&want->link);
    return linked;
}

void hfi_wants_tell(struct hfi_want *want, int err, const hf_error *error) {
    struct hfi_task *task = want->task;
    hfi_list_remove(&want->link);
    want->err = err;
    if (error != NULL)
        want->error = *error;
    hfi_task_post(task, want->event);
    hfi_task_unref(task);
}

void hfi_wants_tell_all(struct hfi_link *wants, int err, const hf_error *error) {
    while (!hfi_list_empty(wants))
        hfi_wants_tell(HFI_CONTAINER(wants->next, struct hfi_want, link), err, error);
}
