/*
 * What the handles of semaphores, permits and latches have in common: making and freeing one, and
 * running an operation on it. Used by sem.c, permits.c and latch.c. A handle does not change
 * between new and free, so any thread may use it.
 */
#include "api/thing.h"

#include <string.h>
#include <unistd.h>

int hfi_invalid(const char *why) {
    hf_error error;
    hfi_error_clear(&error);
    return hfi_remember(hfi_fail(&error, HF_EINVAL, "%s", why), &error);
}

static struct hfi_handle *allocate(hf_client *client, const struct hfi_kind *kind, const void *name,
                                   size_t name_len, size_t size) {
    struct hfi_handle *handle = hfi_zalloc(&client->mem, size + name_len + 1);
    if (handle == NULL)
        return NULL;
    handle->client = client;
    handle->kind = kind;
    handle->name = memcpy((char *)handle + size, name, name_len);
    handle->name_len = name_len;
    hfi_client_ref(client);
    return handle;
}

int hfi_handle_new(hf_client *client, enum hfi_thing thing, const void *name, size_t name_len,
                   size_t size, struct hfi_handle **ret_handle) {
    hf_error error;
    struct hfi_entry entry;
    if (name == NULL || name_len == 0)
        return hfi_invalid("it needs a name");
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    hfi_error_clear(&error);
    const struct hfi_engine_ops *ops = client->core.engine->ops;
    const struct hfi_kind *kind = ops->thing(client->core.engine, thing);
    if (kind == NULL)
        err = hfi_fail(&error, HF_ENOTSUP, "this is not offered here");
    else
        err = ops->check_name(client->core.engine, kind, name, name_len, &error);
    if (err == HF_OK) {
        struct hfi_handle *handle = allocate(client, kind, name, name_len, size);
        if (handle != NULL)
            *ret_handle = handle;
        else
            err = hfi_fail(&error, HF_ENOMEM, "out of memory");
    }
    hfi_leave(client, &entry);
    return hfi_remember(err, &error);
}

void hfi_handle_free(struct hfi_handle *handle) {
    if (handle == NULL || handle->client->core.pid != getpid())
        return;
    hf_client *client = handle->client;
    hfi_free(&client->mem, handle);
    hfi_client_unref(client);
}

int hfi_handle_args(struct hfi_handle *handle, const struct hfi_verb *verb,
                    struct hfi_op_args *args) {
    if (handle == NULL)
        return hfi_invalid("no handle was given");
    *args = (struct hfi_op_args){
        .verb = verb, .kind = handle->kind, .name = handle->name, .name_len = handle->name_len};
    return HF_OK;
}

int hfi_act_args(struct hfi_handle *handle, enum hfi_act act, int64_t amount,
                 struct hfi_op_args *args) {
    int err = hfi_handle_args(handle, &hfi_verb_act, args);
    if (err == HF_OK) {
        args->act = act;
        args->amount = amount;
    }
    return err;
}

int hfi_wait_args(struct hfi_handle *handle, const struct hfi_verb *verb,
                  const hf_wait_options *given, struct hfi_op_args *args) {
    hf_wait_options options = HF_WAIT_INIT;
    if (given != NULL) {
        if (given->size < offsetof(hf_wait_options, cancel) || given->size > 4096)
            return hfi_invalid("hf_wait_options.size is not set: use HF_WAIT_INIT");
        memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    }
    if (options.wait_ms < HF_FOREVER)
        return hfi_invalid("a wait is HF_FOREVER, 0, or a number of milliseconds");
    int err = hfi_handle_args(handle, verb, args);
    if (err == HF_OK) {
        args->wait_ms = options.wait_ms;
        args->cancel = options.cancel;
    }
    return err;
}

int hfi_run_number(struct hfi_handle *handle, int err, struct hfi_op_args *args,
                   int64_t *ret_value) {
    hf_result result = HF_RESULT_INIT;
    if (err == HF_OK)
        err = hfi_run_sync(handle->client, args, &result, NULL);
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
    return hfi_run_number(handle, err, args, NULL);
}

int hfi_start(struct hfi_handle *handle, int err, struct hfi_op_args *args, hf_callback callback,
              void *user, hf_op **ret_op) {
    if (err != HF_OK)
        return err;
    args->callback = callback;
    args->user = user;
    return hfi_start_async(handle->client, args, ret_op);
}
