/*
 * Cancel switches end waits from another thread. A switch lists the operations that wait under it;
 * firing posts to each. Its mutex is taken before a task's, never with a shard locked. An operation
 * leaves the list before it is published, so a switch may be freed as soon as no call uses it.
 *
 * In a forked child the parent's switches are left alone: the mutex may have been locked at the
 * fork.
 */
#include "core/op/op.h"

#include "base/error.h"
#include "task/thread.h"
#include "task/thread_record.h"

#include <stdlib.h>
#include <unistd.h>

struct hf_cancel {
    pid_t pid;
    pthread_mutex_t mtx;
    bool fired;
    struct hfi_link ops;
};

static int fail(int err) {
    struct hfi_thread_record *self = hfi_thread_record();
    if (self == NULL)
        return err;
    hfi_error_clear(&self->last);
    return hfi_fail(&self->last, err, "%s", hf_strerror(err));
}

int hf_cancel_new(hf_cancel **ret_cancel) {
    if (ret_cancel == NULL)
        return fail(HF_EINVAL);
    struct hf_cancel *cancel = calloc(1, sizeof *cancel);
    if (cancel == NULL)
        return fail(HF_ENOMEM);
    cancel->pid = getpid();
    pthread_mutex_init(&cancel->mtx, NULL);
    hfi_list_init(&cancel->ops);
    *ret_cancel = cancel;
    return HF_OK;
}

bool hfi_cancel_is_forked(const struct hf_cancel *cancel) {
    return cancel != NULL && cancel->pid != getpid();
}

void hf_cancel_fire(hf_cancel *cancel) {
    if (cancel == NULL || hfi_cancel_is_forked(cancel))
        return;
    int state = hfi_thread_cancel_disable();
    pthread_mutex_lock(&cancel->mtx);
    cancel->fired = true;
    for (struct hfi_link *link = cancel->ops.next; link != &cancel->ops; link = link->next)
        hfi_task_post(&HFI_CONTAINER(link, struct hf_op, cancel_link)->task, HFI_OP_CANCEL);
    pthread_mutex_unlock(&cancel->mtx);
    hfi_thread_cancel_restore(state);
}

void hf_cancel_reset(hf_cancel *cancel) {
    if (cancel == NULL || hfi_cancel_is_forked(cancel))
        return;
    pthread_mutex_lock(&cancel->mtx);
    cancel->fired = false;
    pthread_mutex_unlock(&cancel->mtx);
}

void hf_cancel_free(hf_cancel *cancel) {
    if (cancel == NULL || hfi_cancel_is_forked(cancel))
        return;
    pthread_mutex_destroy(&cancel->mtx);
    free(cancel);
}

void hfi_cancel_attach(struct hf_cancel *cancel, struct hf_op *op) {
    if (cancel == NULL)
        return;
    op->cancel = cancel;
    pthread_mutex_lock(&cancel->mtx);
    hfi_list_push_back(&cancel->ops, &op->cancel_link);
    op->cancelled_first = cancel->fired;
    pthread_mutex_unlock(&cancel->mtx);
}

void hfi_cancel_detach(struct hf_op *op) {
    struct hf_cancel *cancel = op->cancel;
    if (cancel == NULL)
        return;
    op->cancel = NULL;
    pthread_mutex_lock(&cancel->mtx);
    hfi_list_remove(&op->cancel_link);
    pthread_mutex_unlock(&cancel->mtx);
}
