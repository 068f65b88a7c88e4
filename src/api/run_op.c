/*
 * Running an operation. Synchronous is asynchronous plus waiting: the same operation, begun on the
 * calling thread, with an executor on its stack. While it waits it drives the engine's connection
 * or borrows the keeper's loop, so no thread stands between the caller and its reply.
 */
#include "api/handle.h"
#include "api/versioned_struct.h"
#include "net/driver/keeper.h"
#include "task/thread.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* An operation without a lock is on the server. The client cannot be closed meanwhile. */
static const struct hfi_kind *kind_of(const hf_client *client, const struct hfi_op_args *args) {
    struct hfi_engine *engine = client->core.engine;
    return args->kind != NULL ? args->kind : engine->ops->server(engine);
}

static void drive(const hf_client *client, struct hf_op *op, struct hfi_borrower *borrower) {
    const struct hfi_call_ops *ops = op->kind->ops;
    if (ops->drive != NULL)
        ops->drive(op->call);
    else
        hfi_keeper_run_borrowed(client->keeper, borrower);
}

/* ---- The caller's check (hf_check_fn) ---- */

/* Its alarm belongs to the executor of the call. It only notes that it has fired: the check runs
 * when this thread drives nothing. */
struct checker {
    struct hfi_alarm alarm;
    hf_check_fn check; /* NULL: there is none, or it has ended the wait */
    void *user;
    bool due;
};

static void check_is_due(struct hfi_alarm *alarm) {
    HFI_CONTAINER(alarm, struct checker, alarm)->due = true;
}

static void checker_begin(struct checker *checker, const struct hfi_op_args *args,
                          struct hfi_exec *exec) {
    *checker = (struct checker){
        .alarm = {.fire = check_is_due}, .check = args->check, .user = args->check_user};
    if (checker->check == NULL)
        return;
    exec->on_signal = &checker->alarm;
    hfi_alarm_set(exec, &checker->alarm, hfi_now_ms() + HF_CHECK_MS);
}

static void checker_end(struct checker *checker, struct hfi_exec *exec) {
    exec->on_signal = NULL;
    hfi_alarm_clear(exec, &checker->alarm);
}

/* It may run code of the application that calls us, for instance a signal handler of an
 * interpreter. */
static void run_check(struct checker *checker, struct hf_op *op, struct hfi_thread_record *self,
                      struct hfi_exec *exec) {
    checker->due = false;
    self->in_callback = checker; /* of no client: nothing that is removed may be running here */
    bool ends = checker->check(checker->user);
    self->in_callback = NULL;
    if (!ends) {
        hfi_alarm_set(exec, &checker->alarm, hfi_now_ms() + HF_CHECK_MS);
        return;
    }
    checker->check = NULL;
    checker_end(checker, exec);
    hfi_task_post(&op->task, HFI_OP_CANCEL);
}

static int enter_with(hf_client *client, const struct hfi_op_args *args, struct hfi_entry *entry) {
    return hfi_cancel_is_forked(args->cancel) ? HF_EFORKED : hfi_enter(client, entry);
}

int hfi_run_sync(hf_client *client, struct hfi_op_args *args, hf_result *ret) {
    struct hfi_entry entry;
    struct hfi_thread_record *self = hfi_thread_record();
    if (self == NULL)
        return HF_ENOMEM;
    if (self->in_callback != NULL)
        return hfi_remember(HF_EDEADLK, NULL);
    int err = enter_with(client, args, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);

    struct hfi_exec exec;
    struct hfi_borrower borrower = {.exec = &exec};
    struct checker checker;
    hfi_exec_init(&exec);
    exec.undisturbed = args->cancel == NULL;
    args->kind = kind_of(client, args);
    args->lane = HFI_LANE_CALLER;
    args->exec = &exec;
    struct hf_op *op = hfi_op_new(&client->core, args);
    if (op != NULL) {
        bool by_keeper = args->kind->ops->drive == NULL;
        if (by_keeper)
            hfi_keeper_borrow(client->keeper, &borrower);
        checker_begin(&checker, args, &exec);
        hfi_op_begin(op);
        /* at first there is a reply to wait for, and hardly ever an event */
        for (bool ran = false; !hfi_op_is_complete(op); ran = hfi_exec_run(&exec)) {
            if (!ran)
                drive(client, op, &borrower);
            if (checker.due && !hfi_op_is_complete(op)) {
                if (by_keeper) /* others may drive meanwhile, and signals come */
                    hfi_keeper_return(client->keeper, &borrower);
                run_check(&checker, op, self, &exec);
            }
        }
        checker_end(&checker, &exec);
        hfi_exec_run(&exec); /* events still in the mailbox */
        if (by_keeper)
            hfi_keeper_return(client->keeper, &borrower);
        hfi_versioned_write(&hfi_versioned_result, &op->work->result, ret);
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
    if (args->check != NULL)
        return hfi_invalid("a check is for synchronous calls; end an operation by hf_op_cancel()");
    int err = enter_with(client, args, &entry);
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
    if (op == NULL || getpid() != op->core->pid)
        return;
    int state = hfi_thread_cancel_disable();
    hfi_task_post(&op->task, HFI_OP_CANCEL);
    hfi_thread_cancel_restore(state);
}

void hf_op_free(hf_op *op) {
    if (op == NULL || getpid() != op->core->pid)
        return;
    int state = hfi_thread_cancel_disable();
    hfi_task_unref(&op->task);
    hfi_thread_cancel_restore(state);
}

bool hf_op_abandon(hf_op *op) {
    if (op == NULL || getpid() != op->core->pid)
        return true;
    int state = hfi_thread_cancel_disable();
    bool abandoned = hfi_op_abandon(op);
    hfi_task_unref(&op->task);
    hfi_thread_cancel_restore(state);
    return abandoned;
}

int hf_op_wait(hf_op *op, int64_t wait_ms, hf_result *ret) {
    const struct hfi_thread_record *self = hfi_thread_record();
    if (op == NULL || wait_ms < HF_FOREVER)
        return hfi_remember(HF_EINVAL, NULL);
    if (getpid() != op->core->pid)
        return hfi_remember(HF_EFORKED, NULL);
    if (self != NULL && self->in_callback != NULL)
        return hfi_remember(HF_EDEADLK, NULL);
    hf_error error;
    hfi_error_clear(&error);
    int err = hfi_versioned_check(&hfi_versioned_result, ret, &error);
    if (err != HF_OK)
        return hfi_remember(err, &error);
    err = HF_EPENDING;
    int state = hfi_thread_cancel_disable();
    if (hfi_op_await(op, hfi_after_ms(hfi_now_ms(), wait_ms))) {
        hf_result room;
        hfi_op_see(op);
        const hf_result *result = hfi_op_result(op, &room);
        err = result->code;
        error = result->error;
        hfi_versioned_write(&hfi_versioned_result, result, ret);
    }
    hfi_thread_cancel_restore(state);
    return hfi_remember(err, &error);
}
