/*
 * The wants of a route: tasks that wait for a node (wants.h).
 *
 * Called by sentinel.c and cluster.c, on any thread, under the route's mutex. The list has a
 * reference to the task of each want. A want belongs to its task, so it may be freed as soon as the
 * event is posted.
 */
#include "redis/route/wants.h"

#include "base/list.h"

void hfi_wants_add(struct hfi_link *wants, struct hfi_want *want, struct hfi_task *task,
                   unsigned event, bool known) {
    want->task = task;
    want->event = event;
    want->err = HF_OK;
    want->hopeless = false;
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

void hfi_want_notify(struct hfi_want *want, int err, const hf_error *error) {
    struct hfi_task *task = want->task;
    hfi_list_remove(&want->link);
    want->err = err;
    if (error != NULL)
        want->error = *error;
    hfi_task_post(task, want->event);
    hfi_task_unref(task);
}

void hfi_wants_are_hopeless(struct hfi_link *wants, bool hopeless) {
    for (struct hfi_link *link = wants->next; link != wants; link = link->next)
        HFI_CONTAINER(link, struct hfi_want, link)->hopeless = hopeless;
}

void hfi_wants_notify_all(struct hfi_link *wants, int err, const hf_error *error) {
    while (!hfi_list_empty(wants))
        hfi_want_notify(HFI_CONTAINER(wants->next, struct hfi_want, link), err, error);
}
