/*
 * Running an operation. Synchronous is asynchronous plus waiting: the same operation, begun on the
 * calling thread, with an executor on its stack; while it waits it does what the engine needs of it,
 * so no thread stands between it and its reply.
 */
#include "api/client.h"
#include "api/sized.h"
#include "net/keeper.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int hfi_remember(int err, const hf_error *error) {
    struct hfi_self *self = hfi_self();
    if (err == HF_OK || self == NULL)
        return err;
    if (error != NULL && error->code == err)
        self->last = *error;
    else
        hfi_error_clear(&self->last);
    if (self->last.text[0] == '\0')
        hfi_fail(&self->last, err, "%s", hf_strerror(err));
    self->last.code = err;
    return err;
}

/* What is about no lock in particular is about the server. On a client that cannot be closed
 * meanwhile. */
static const struct hfi_kind *kind_of(const hf_client *client, const struct hfi_op_args *args) {
    struct hfi_engine *engine = client->core.engine;
    return args->kind != NULL ? args->kind : engine->ops->server(engine);
}

static void attend(const hf_client *client, struct hf_op *op, struct hfi_guest *guest) {
    const struct hfi_call_ops *ops = op->kind->ops;
    if (ops->attend != NULL)
        ops->attend(op->call);
    else
        hfi_keeper_attend(client->keeper, guest);
}

int hfi_run_sync(hf_client *client, struct hfi_op_args *args, hf_result *ret) {
    struct hfi_entry entry;
    struct hfi_self *self = hfi_self();
    if (self == NULL)
        return HF_ENOMEM;
    if (self->in_callback != NULL)
        return hfi_remember(HF_EDEADLK, NULL);
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);

    struct hfi_exec exec;
    struct hfi_guest guest = {.exec = &exec};
    hfi_exec_init(&exec);
    exec.undisturbed = args->cancel == NULL;
    args->kind = kind_of(client, args);
    args->lane = HFI_LANE_CALLER;
    args->exec = &exec;
    struct hf_op *op = hfi_op_new(&client->core, args);
    if (op != NULL) {
        bool by_keeper = args->kind->ops->attend == NULL;
        if (by_keeper)
            hfi_keeper_sit(client->keeper, &guest);
        hfi_op_begin(op);
        while (!hfi_op_is_complete(op))
            if (!hfi_exec_run(&exec))
                attend(client, op, &guest);
        hfi_exec_run(&exec); /* what was still in the mailbox */
        if (by_keeper)
            hfi_keeper_stand_up(client->keeper, &guest);
        hfi_sized_write(&hfi_sized_result, &op->work->result, ret);
        err = hfi_remember(op->work->result.code, &op->work->result.error);
        hfi_task_unref(&op->task);
    } else {
        err = hfi_remember(HF_ENOMEM, NULL);
    }
    hfi_exec_destroy(&exec);
    hfi_leave(client, &entry);
    return err;
}

int hfi_start_async(hf_client *client, struct hfi_op_args *args, hf_op **ret_op) {
    struct hfi_entry entry;
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    struct hfi_dispatcher *dispatcher = &client->dispatcher;
    args->kind = kind_of(client, args);
    args->lane = dispatcher->manual ? HFI_LANE_DISPATCH : HFI_LANE_KEEPER;
    args->exec = dispatcher->manual ? &dispatcher->exec : hfi_keeper_exec(client->keeper);
    if (args->callback != NULL)
        err = hfi_dispatcher_ensure(client);
    struct hf_op *op = err == HF_OK ? hfi_op_new(&client->core, args) : NULL;
    if (err == HF_OK && op == NULL)
        err = HF_ENOMEM;
    if (err == HF_OK) {
        op->handle_given = ret_op != NULL;
        if (ret_op != NULL)
            *ret_op = op;
        hfi_task_post(&op->task, HFI_OP_BEGIN);
        if (ret_op == NULL)
            hfi_task_unref(&op->task);
    }
    hfi_leave(client, &entry);
    return hfi_remember(err, NULL);
}

void hf_op_cancel(hf_op *op) {
    if (op != NULL && getpid() == op->core->pid)
        hfi_task_post(&op->task, HFI_OP_CANCEL);
}

void hf_op_free(hf_op *op) {
    if (op != NULL && getpid() == op->core->pid)
        hfi_task_unref(&op->task);
}

int hf_op_wait(hf_op *op, int64_t wait_ms, hf_result *ret) {
    const struct hfi_self *self = hfi_self();
    if (op == NULL || wait_ms < HF_FOREVER)
        return hfi_remember(HF_EINVAL, NULL);
    if (getpid() != op->core->pid)
        return hfi_remember(HF_EFORKED, NULL);
    if (self != NULL && self->in_callback != NULL)
        return hfi_remember(HF_EDEADLK, NULL);
    hf_error error;
    hfi_error_clear(&error);
    int state, err = hfi_sized_check(&hfi_sized_result, ret, &error);
    if (err != HF_OK)
        return hfi_remember(err, &error);
    err = HF_EPENDING;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (hfi_op_await(op, hfi_after_ms(hfi_now_ms(), wait_ms))) {
        hf_result room;
        const hf_result *result = hfi_op_result(op, &room);
        err = result->code;
        error = result->error;
        hfi_sized_write(&hfi_sized_result, result, ret);
    }
    pthread_setcancelstate(state, NULL);
    return hfi_remember(err, &error);
}
