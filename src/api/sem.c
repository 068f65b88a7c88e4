/*
 * The verbs of a semaphore: argument checks, then an operation. Nothing here uses the network
 * directly.
 */
#include "api/handle.h"

#include <string.h>

/* ---- The handle ---- */

static struct hfi_handle *handle_of(hf_sem *sem) {
    return sem != NULL ? &sem->handle : NULL;
}

static const struct hfi_kind *find(struct hfi_engine *engine, const hf_lock_options *options) {
    (void)options;
    return engine->ops->object(engine, HFI_SEMAPHORE);
}

static const struct hfi_handle_type type = {.needs = "a semaphore needs a client and a name",
                                            .find = find};

int hf_sem_new_bytes(hf_client *client, const void *name, size_t name_len, hf_sem **ret_sem) {
    struct hfi_handle *handle;
    if (ret_sem == NULL)
        return hfi_invalid("the pointer for the new handle is NULL");
    int err = hfi_handle_new(client, &type, name, name_len, NULL, &handle);
    if (err == HF_OK)
        *ret_sem = HFI_CONTAINER(handle, hf_sem, handle);
    return err;
}

int hf_sem_new(hf_client *client, const char *name, hf_sem **ret_sem) {
    return hf_sem_new_bytes(client, name, name != NULL ? strlen(name) : 0, ret_sem);
}

void hf_sem_free(hf_sem *sem) {
    hfi_handle_free(handle_of(sem));
}

const char *hf_sem_name(const hf_sem *sem, size_t *ret_len) {
    return hfi_handle_name(&sem->handle, ret_len);
}

/* ---- Arguments ---- */

static int check_permits(int64_t permits) {
    if (permits < 0 || permits > HF_PERMITS_MAX)
        return hfi_invalid("a number of permits must be 0 to 2147483647");
    return HF_OK;
}

static int set_args(hf_sem *sem, int64_t permits, int64_t ttl_ms, struct hfi_op_args *args) {
    int err = check_permits(permits);
    if (err == HF_OK && (ttl_ms < 0 || ttl_ms > HF_LEASE_MAX_MS))
        err = hfi_invalid("a TTL must be 1 ms to ten years, or 0 for none");
    if (err == HF_OK)
        err = hfi_object_op_args(handle_of(sem), HFI_OBJECT_SET, permits, args);
    if (err == HF_OK)
        args->ttl_ms = ttl_ms;
    return err;
}

static int acquire_args(hf_sem *sem, int64_t permits, const hf_wait_options *options,
                        struct hfi_op_args *args) {
    int err = check_permits(permits);
    if (err == HF_OK)
        err = hfi_wait_args(handle_of(sem), permits > 0 ? &hfi_verb_take : &hfi_verb_noop, options,
                            args);
    if (err == HF_OK)
        args->amount = permits;
    return err;
}

/* With 0 permits nothing is sent. */
static int put_args(hf_sem *sem, enum hfi_object_op object_op, int64_t permits,
                    struct hfi_op_args *args) {
    int err = check_permits(permits);
    if (err == HF_OK)
        err = hfi_object_op_args(handle_of(sem), object_op, permits, args);
    if (err == HF_OK && permits == 0)
        args->verb = &hfi_verb_noop;
    return err;
}

static int add_args(hf_sem *sem, int64_t delta, struct hfi_op_args *args) {
    if (delta < -HF_PERMITS_MAX || delta > HF_PERMITS_MAX)
        return hfi_invalid("a change must be -2147483647 to 2147483647 permits");
    return hfi_object_op_args(handle_of(sem), HFI_OBJECT_ADD, delta, args);
}

/* ---- Synchronous ---- */

int hf_sem_try_set(hf_sem *sem, int64_t permits, int64_t ttl_ms, bool *ret_set) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(sem), set_args(sem, permits, ttl_ms, &args), &args, ret_set);
}

int hf_sem_acquire_with(hf_sem *sem, int64_t permits, const hf_wait_options *options) {
    struct hfi_op_args args;
    return hfi_run(handle_of(sem), acquire_args(sem, permits, options, &args), &args);
}

int hf_sem_acquire_for(hf_sem *sem, int64_t permits, int64_t wait_ms) {
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    return hf_sem_acquire_with(sem, permits, &options);
}

int hf_sem_acquire(hf_sem *sem, int64_t permits) {
    return hf_sem_acquire_for(sem, permits, HF_FOREVER);
}

int hf_sem_try(hf_sem *sem, int64_t permits) {
    return hf_sem_acquire_for(sem, permits, 0);
}

int hf_sem_release(hf_sem *sem, int64_t permits) {
    struct hfi_op_args args;
    return hfi_run(handle_of(sem), put_args(sem, HFI_OBJECT_PUT, permits, &args), &args);
}

int hf_sem_release_if_exists(hf_sem *sem, int64_t permits, bool *ret_released) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(sem), put_args(sem, HFI_OBJECT_PUT_IF_EXISTS, permits, &args),
                        &args, ret_released);
}

int hf_sem_add(hf_sem *sem, int64_t delta) {
    struct hfi_op_args args;
    return hfi_run(handle_of(sem), add_args(sem, delta, &args), &args);
}

int hf_sem_drain(hf_sem *sem, int64_t *ret_permits) {
    struct hfi_op_args args;
    return hfi_run_number(handle_of(sem),
                          hfi_object_op_args(handle_of(sem), HFI_OBJECT_DRAIN, 0, &args), &args,
                          ret_permits);
}

int hf_sem_available(hf_sem *sem, int64_t *ret_permits) {
    struct hfi_op_args args;
    return hfi_run_number(handle_of(sem),
                          hfi_object_op_args(handle_of(sem), HFI_OBJECT_AVAILABLE, 0, &args), &args,
                          ret_permits);
}

int hf_sem_delete(hf_sem *sem, bool *ret_deleted) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(sem),
                        hfi_object_op_args(handle_of(sem), HFI_OBJECT_DELETE, 0, &args), &args,
                        ret_deleted);
}

/* ---- Asynchronous ---- */

int hf_sem_try_set_start(hf_sem *sem, int64_t permits, int64_t ttl_ms, hf_op_fn callback,
                         void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(sem), set_args(sem, permits, ttl_ms, &args), &args, callback, user,
                     ret_op);
}

int hf_sem_acquire_start(hf_sem *sem, int64_t permits, const hf_wait_options *options,
                         hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(sem), acquire_args(sem, permits, options, &args), &args, callback,
                     user, ret_op);
}

int hf_sem_release_start(hf_sem *sem, int64_t permits, hf_op_fn callback, void *user,
                         hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(sem), put_args(sem, HFI_OBJECT_PUT, permits, &args), &args, callback,
                     user, ret_op);
}

int hf_sem_release_if_exists_start(hf_sem *sem, int64_t permits, hf_op_fn callback, void *user,
                                   hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(sem), put_args(sem, HFI_OBJECT_PUT_IF_EXISTS, permits, &args), &args,
                     callback, user, ret_op);
}

int hf_sem_add_start(hf_sem *sem, int64_t delta, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(sem), add_args(sem, delta, &args), &args, callback, user, ret_op);
}

int hf_sem_drain_start(hf_sem *sem, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(sem), hfi_object_op_args(handle_of(sem), HFI_OBJECT_DRAIN, 0, &args),
                     &args, callback, user, ret_op);
}

int hf_sem_available_start(hf_sem *sem, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(sem),
                     hfi_object_op_args(handle_of(sem), HFI_OBJECT_AVAILABLE, 0, &args), &args,
                     callback, user, ret_op);
}

int hf_sem_delete_start(hf_sem *sem, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(sem),
                     hfi_object_op_args(handle_of(sem), HFI_OBJECT_DELETE, 0, &args), &args,
                     callback, user, ret_op);
}
