/*
 * The verbs of a count-down latch: argument checks, then an operation. Nothing here uses the
 * network directly.
 */
#include "api/handle.h"

#include <string.h>

#define COUNT_MAX (((int64_t)1 << 53) - 1) /* exact in Lua */

/* ---- The handle ---- */

static struct hfi_handle *handle_of(hf_latch *latch) {
    return latch != NULL ? &latch->handle : NULL;
}

static const struct hfi_kind *find(struct hfi_engine *engine, const hf_lock_options *options) {
    (void)options;
    return engine->ops->object(engine, HFI_LATCH);
}

static const struct hfi_handle_type type = {.needs = "a latch needs a client and a name",
                                            .find = find};

int hf_latch_new_bytes(hf_client *client, const void *name, size_t name_len, hf_latch **ret_latch) {
    struct hfi_handle *handle;
    if (ret_latch == NULL)
        return hfi_invalid("the pointer for the new handle is NULL");
    int err = hfi_handle_new(client, &type, name, name_len, NULL, &handle);
    if (err == HF_OK)
        *ret_latch = HFI_CONTAINER(handle, hf_latch, handle);
    return err;
}

int hf_latch_new(hf_client *client, const char *name, hf_latch **ret_latch) {
    return hf_latch_new_bytes(client, name, name != NULL ? strlen(name) : 0, ret_latch);
}

void hf_latch_free(hf_latch *latch) {
    hfi_handle_free(handle_of(latch));
}

const char *hf_latch_name(const hf_latch *latch, size_t *ret_len) {
    return hfi_handle_name(&latch->handle, ret_len);
}

/* ---- Arguments ---- */

/* A latch that Java has set to 0 can be neither counted down nor set again; here that is
 * refused. */
static int set_args(hf_latch *latch, int64_t count, struct hfi_op_args *args) {
    if (count < 1 || count > COUNT_MAX)
        return hfi_invalid("the count of a latch must be 1 to 2^53 - 1");
    return hfi_object_op_args(handle_of(latch), HFI_OBJECT_SET, count, args);
}

static int await_args(hf_latch *latch, const hf_wait_options *options, struct hfi_op_args *args) {
    return hfi_wait_args(handle_of(latch), &hfi_verb_await, options, args);
}

static int object_op_args(hf_latch *latch, enum hfi_object_op object_op, struct hfi_op_args *args) {
    return hfi_object_op_args(handle_of(latch), object_op, 0, args);
}

/* ---- Synchronous ---- */

int hf_latch_try_set(hf_latch *latch, int64_t count, bool *ret_set) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(latch), set_args(latch, count, &args), &args, ret_set);
}

int hf_latch_count_down(hf_latch *latch) {
    struct hfi_op_args args;
    return hfi_run(handle_of(latch), object_op_args(latch, HFI_OBJECT_COUNT_DOWN, &args), &args);
}

int hf_latch_await_with(hf_latch *latch, const hf_wait_options *options) {
    struct hfi_op_args args;
    return hfi_run(handle_of(latch), await_args(latch, options, &args), &args);
}

int hf_latch_await_for(hf_latch *latch, int64_t wait_ms) {
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    return hf_latch_await_with(latch, &options);
}

int hf_latch_await(hf_latch *latch) {
    return hf_latch_await_for(latch, HF_FOREVER);
}

int hf_latch_count(hf_latch *latch, int64_t *ret_count) {
    struct hfi_op_args args;
    return hfi_run_number(handle_of(latch), object_op_args(latch, HFI_OBJECT_AVAILABLE, &args),
                          &args, ret_count);
}

int hf_latch_delete(hf_latch *latch, bool *ret_deleted) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(latch), object_op_args(latch, HFI_OBJECT_DELETE, &args), &args,
                        ret_deleted);
}

/* ---- Asynchronous ---- */

int hf_latch_try_set_start(hf_latch *latch, int64_t count, hf_op_fn callback, void *user,
                           hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(latch), set_args(latch, count, &args), &args, callback, user,
                     ret_op);
}

int hf_latch_count_down_start(hf_latch *latch, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(latch), object_op_args(latch, HFI_OBJECT_COUNT_DOWN, &args), &args,
                     callback, user, ret_op);
}

int hf_latch_await_start(hf_latch *latch, const hf_wait_options *options, hf_op_fn callback,
                         void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(latch), await_args(latch, options, &args), &args, callback, user,
                     ret_op);
}

int hf_latch_count_start(hf_latch *latch, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(latch), object_op_args(latch, HFI_OBJECT_AVAILABLE, &args), &args,
                     callback, user, ret_op);
}

int hf_latch_delete_start(hf_latch *latch, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(latch), object_op_args(latch, HFI_OBJECT_DELETE, &args), &args,
                     callback, user, ret_op);
}
