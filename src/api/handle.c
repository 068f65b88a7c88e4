/*
 * A handle, on a lock, a semaphore, permits or a latch: making and freeing one, and running an
 * operation on it. Used by lock.c, sem.c, permits.c and latch.c, on the caller's thread; loss
 * notifications are in loss_notify.c.
 */
#include "api/handle.h"

#include "api/versioned_struct.h"
#include "task/thread.h"

#include <string.h>
#include <unistd.h>

int hfi_invalid(const char *why) {
    hf_error error;
    hfi_error_clear(&error);
    return hfi_remember(hfi_fail(&error, HF_EINVAL, "%s", why), &error);
}

/* ---- Lifetime ---- */

struct hfi_handle *hfi_handle_allocate(hf_client *client, const void *name, size_t name_len) {
    struct hfi_handle *handle = hfi_zalloc(&client->mem, sizeof *handle + name_len + 1);
    if (handle == NULL)
        return NULL;
    handle->client = client;
    handle->name = memcpy(handle + 1, name, name_len);
    handle->name_len = name_len;
    handle->loss_listener.lost_fd = -1;
    hfi_client_ref(client);
    return handle;
}

static int check_spin(const hf_lock_options *options, hf_error *error) {
    const int64_t day_ms = 24 * 3600 * 1000;
    if (options->spin_first_ms < 1 || options->spin_max_ms < options->spin_first_ms ||
        options->spin_max_ms > day_ms)
        return hfi_fail(error, HF_EINVAL,
                        "spin_first_ms must be 1 to spin_max_ms, and spin_max_ms one day at most");
    if (options->spin_factor < 1 || options->spin_factor > 1000)
        return hfi_fail(error, HF_EINVAL, "spin_factor must be 1 to 1000");
    return HF_OK;
}

static int make(hf_client *client, const struct hfi_handle_type *type, const void *name,
                size_t name_len, const hf_lock_options *given, struct hfi_handle **ret_handle,
                hf_error *error) {
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    int err = hfi_versioned_read(&hfi_versioned_lock_options, given, &options, error);
    if (err == HF_OK)
        err = check_spin(&options, error);
    if (err != HF_OK)
        return err;
    struct hfi_engine *engine = client->core.engine;
    const struct hfi_kind *kind = type->find(engine, &options);
    if (kind == NULL)
        return hfi_fail(error, HF_ENOTSUP, "this kind of lock is not available on this server");
    err = engine->ops->check_name(engine, kind, name, name_len, error);
    if (err != HF_OK)
        return err;
    struct hfi_handle *handle = hfi_handle_allocate(client, name, name_len);
    if (handle == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    handle->type = type;
    handle->kind = kind;
    handle->spin = (struct hfi_backoff){.first_ms = options.spin_first_ms,
                                        .max_ms = options.spin_max_ms,
                                        .factor = options.spin_factor};
    *ret_handle = handle;
    return HF_OK;
}

int hfi_handle_new(hf_client *client, const struct hfi_handle_type *type, const void *name,
                   size_t name_len, const hf_lock_options *options,
                   struct hfi_handle **ret_handle) {
    hf_error error;
    struct hfi_entry entry;
    if (client == NULL || name == NULL || name_len == 0)
        return hfi_invalid(type->needs);
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    hfi_error_clear(&error);
    err = make(client, type, name, name_len, options, ret_handle, &error);
    hfi_leave(client, &entry);
    return hfi_remember(err, &error);
}

static void end(struct hfi_handle *handle) {
    hf_client *client = handle->client;
    struct hfi_parts *parts = handle->parts;
    hfi_loss_listener_end(handle);
    hfi_name_stats_ref_clear(&handle->name_stats);
    hfi_free(&client->mem, handle);
    hfi_parts_unref(parts);
    hfi_client_unref(client);
}

void hfi_handle_free(struct hfi_handle *handle) {
    if (handle == NULL)
        return;
    int state = hfi_thread_cancel_disable();
    if (handle->client->core.pid == getpid())
        end(handle);
    else
        hfi_loss_listener_close_fd(handle);
    hfi_thread_cancel_restore(state);
}

const char *hfi_handle_name(const struct hfi_handle *handle, size_t *ret_len) {
    if (ret_len != NULL)
        *ret_len = hfi_kind_stem_len(handle->kind, handle->name, handle->name_len);
    return handle->name;
}

/* ---- Arguments ---- */

int hfi_handle_args(struct hfi_handle *handle, const struct hfi_verb *verb,
                    struct hfi_op_args *args) {
    if (handle == NULL)
        return hfi_invalid("the handle is NULL");
    *args = (struct hfi_op_args){.verb = verb,
                                 .kind = handle->kind,
                                 .name = handle->name,
                                 .name_len = handle->name_len,
                                 .parts = handle->parts,
                                 .name_stats = &handle->name_stats};
    return HF_OK;
}

int hfi_object_op_args(struct hfi_handle *handle, enum hfi_object_op object_op, int64_t amount,
                       struct hfi_op_args *args) {
    int err = hfi_handle_args(handle, &hfi_verb_object_op, args);
    if (err == HF_OK) {
        args->object_op = object_op;
        args->amount = amount;
    }
    return err;
}

int hfi_check_wait(int64_t wait_ms) {
    if (wait_ms < HF_FOREVER)
        return hfi_invalid("a wait must be HF_FOREVER, 0, or a number of milliseconds");
    return HF_OK;
}

int hfi_wait_args(struct hfi_handle *handle, const struct hfi_verb *verb,
                  const hf_wait_options *given, struct hfi_op_args *args) {
    hf_error error;
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    int err = hfi_remember(hfi_versioned_read(&hfi_versioned_wait_options, given, &options, &error),
                           &error);
    if (err == HF_OK)
        err = hfi_check_wait(options.wait_ms);
    if (err == HF_OK)
        err = hfi_handle_args(handle, verb, args);
    if (err == HF_OK) {
        args->wait_ms = options.wait_ms;
        args->cancel = options.cancel;
        args->check = options.check;
        args->check_user = options.check_user;
    }
    return err;
}

/* ---- Running ---- */

int hfi_run_number(struct hfi_handle *handle, int err, struct hfi_op_args *args,
                   int64_t *ret_value) {
    hf_result result = HF_RESULT_INIT;
    if (err == HF_OK)
        err = hfi_run_sync(handle->client, args, &result);
    if (err == HF_OK && ret_value != NULL)
        *ret_value = result.value;
    return err;
}

int hfi_run_done(struct hfi_handle *handle, int err, struct hfi_op_args *args, bool *ret_done) {
    int64_t value = 0;
    err = hfi_run_number(handle, err, args, &value);
    if (err == HF_OK && ret_done != NULL)
        *ret_done = value > 0;
    return err;
}

int hfi_run(struct hfi_handle *handle, int err, struct hfi_op_args *args) {
    return err != HF_OK ? err : hfi_run_sync(handle->client, args, NULL);
}

int hfi_start(struct hfi_handle *handle, int err, struct hfi_op_args *args, hf_op_fn callback,
              void *user, hf_op **ret_op) {
    if (err != HF_OK)
        return err;
    args->callback = callback;
    args->user = user;
    return hfi_start_async(handle->client, args, ret_op);
}
