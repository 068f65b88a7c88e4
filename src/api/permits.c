/*
 * The verbs of permits with leases: argument checks, then an operation. Ids are drawn before
 * anything is sent (permit_ids.c), so that an acquire can be repeated under the same ids. Nothing
 * here uses the network directly; holds are only read.
 */
#include "api/handle.h"
#include "api/versioned_struct.h"

#include <string.h>

/* ---- The handle ---- */

static struct hfi_handle *handle_of(hf_permits *permits) {
    return permits != NULL ? &permits->handle : NULL;
}

static const struct hfi_kind *find(struct hfi_engine *engine, const hf_lock_options *options) {
    (void)options;
    return engine->ops->object(engine, HFI_PERMITS);
}

static void run_callback(struct hfi_handle *handle, const struct hfi_on_lost *on_lost,
                         const char *owner, const hf_event *event) {
    on_lost->permit(HFI_CONTAINER(handle, hf_permits, handle), owner, event, on_lost->user);
}

static const struct hfi_handle_type type = {
    .needs = "permits need a client and a name", .find = find, .run_callback = run_callback};

int hf_permits_new_bytes(hf_client *client, const void *name, size_t name_len,
                         hf_permits **ret_permits) {
    struct hfi_handle *handle;
    if (ret_permits == NULL)
        return hfi_invalid("the pointer for the new handle is NULL");
    int err = hfi_handle_new(client, &type, name, name_len, NULL, &handle);
    if (err == HF_OK)
        *ret_permits = HFI_CONTAINER(handle, hf_permits, handle);
    return err;
}

int hf_permits_new(hf_client *client, const char *name, hf_permits **ret_permits) {
    return hf_permits_new_bytes(client, name, name != NULL ? strlen(name) : 0, ret_permits);
}

void hf_permits_free(hf_permits *permits) {
    hfi_handle_free(handle_of(permits));
}

const char *hf_permits_name(const hf_permits *permits, size_t *ret_len) {
    return hfi_handle_name(&permits->handle, ret_len);
}

int hf_permits_on_lost(hf_permits *permits, hf_permit_event_fn callback, void *user) {
    const struct hfi_on_lost on_lost = {.permit = callback, .user = user};
    return hfi_loss_listener_set(handle_of(permits), &on_lost);
}

int hf_permits_lost_fd(hf_permits *permits) {
    return hfi_loss_listener_fd(handle_of(permits));
}

/* ---- Arguments ---- */

static int set_args(hf_permits *permits, enum hfi_object_op object_op, int64_t number,
                    struct hfi_op_args *args) {
    if (number < 0 || number > HF_PERMITS_MAX)
        return hfi_invalid("a number of permits must be 0 to 2147483647");
    return hfi_object_op_args(handle_of(permits), object_op, number, args);
}

static int add_args(hf_permits *permits, int64_t delta, struct hfi_op_args *args) {
    if (delta < -HF_PERMITS_MAX || delta > HF_PERMITS_MAX)
        return hfi_invalid("a change must be -2147483647 to 2147483647 permits");
    return hfi_object_op_args(handle_of(permits), HFI_OBJECT_ADD, delta, args);
}

static int ask_args(hf_permits *permits, enum hfi_object_op object_op, struct hfi_op_args *args) {
    return hfi_object_op_args(handle_of(permits), object_op, 0, args);
}

static int expire_args(hf_permits *permits, int64_t ttl_ms, struct hfi_op_args *args) {
    if (ttl_ms < 1 || ttl_ms > HF_LEASE_MAX_MS)
        return hfi_invalid("a TTL must be 1 ms to ten years");
    int err = ask_args(permits, HFI_OBJECT_EXPIRE, args);
    if (err == HF_OK)
        args->ttl_ms = ttl_ms;
    return err;
}

static int read_options(const hf_permits_options *given, hf_permits_options *options) {
    hf_error error;
    int err = hfi_versioned_read(&hfi_versioned_permits_options, given, options, &error);
    if (err != HF_OK)
        return hfi_remember(err, &error);
    err = hfi_check_wait(options->wait_ms);
    if (err != HF_OK)
        return err;
    if (options->lease_ms < HF_NO_LEASE || options->lease_ms > HF_LEASE_MAX_MS)
        return hfi_invalid("a lease must be 1 ms to ten years, HF_WATCHDOG or HF_NO_LEASE");
    if (options->count < 1 || options->count > HFI_PERMITS_COUNT_MAX)
        return hfi_invalid("1 to 1000 permits can be acquired at once");
    return HF_OK;
}

static int acquire_args(hf_permits *permits, const hf_permits_options *given, hf_permit_id *ret_ids,
                        struct hfi_permit_ids *ids, struct hfi_op_args *args) {
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    int err = read_options(given, &options);
    if (err == HF_OK && ret_ids == NULL)
        err = hfi_invalid("the pointer for the permit ids is NULL");
    if (err == HF_OK)
        err = hfi_handle_args(handle_of(permits), &hfi_verb_permits_acquire, args);
    if (err == HF_OK)
        err = hfi_permit_ids_draw(permits, (size_t)options.count, ids);
    if (err == HF_OK) {
        args->wait_ms = options.wait_ms;
        args->lease_ms = options.lease_ms;
        args->cancel = options.cancel;
        args->check = options.check;
        args->check_user = options.check_user;
        args->ids = ids->bytes;
        args->ids_len = (size_t)options.count;
        args->ret_ids = ret_ids;
    }
    return err;
}

static int ids_args(hf_permits *permits, const struct hfi_verb *verb, enum hfi_object_op object_op,
                    const hf_permit_id *given, size_t len, struct hfi_permit_ids *ids,
                    struct hfi_op_args *args) {
    int err = hfi_permit_ids_read(permits, given, len, ids);
    if (err == HF_OK)
        err = ask_args(permits, object_op, args);
    if (err == HF_OK) {
        args->verb = verb;
        args->ids = ids->bytes;
        args->ids_len = len;
    }
    return err;
}

static int release_args(hf_permits *permits, const hf_permit_id *given, size_t len,
                        struct hfi_permit_ids *ids, struct hfi_op_args *args) {
    return ids_args(permits, &hfi_verb_permits_release, HFI_OBJECT_PUT, given, len, ids, args);
}

static int extend_args(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms,
                       struct hfi_permit_ids *ids, struct hfi_op_args *args) {
    if (lease_ms != HF_NO_LEASE && (lease_ms < 1 || lease_ms > HF_LEASE_MAX_MS))
        return hfi_invalid("an extension must be 1 ms to ten years, or HF_NO_LEASE");
    int err = ids_args(permits, &hfi_verb_permits_extend, HFI_OBJECT_EXTEND, id, 1, ids, args);
    if (err == HF_OK)
        args->lease_ms = lease_ms;
    return err;
}

static int lease_args(hf_permits *permits, const hf_permit_id *id, struct hfi_permit_ids *ids,
                      struct hfi_op_args *args) {
    return ids_args(permits, &hfi_verb_object_op, HFI_OBJECT_LEASE, id, 1, ids, args);
}

/* ---- Synchronous ---- */

int hf_permits_try_set(hf_permits *permits, int64_t number, bool *ret_set) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(permits), set_args(permits, HFI_OBJECT_SET, number, &args), &args,
                        ret_set);
}

int hf_permits_set(hf_permits *permits, int64_t number) {
    struct hfi_op_args args;
    return hfi_run(handle_of(permits), set_args(permits, HFI_OBJECT_RESET, number, &args), &args);
}

int hf_permits_add(hf_permits *permits, int64_t delta) {
    struct hfi_op_args args;
    return hfi_run(handle_of(permits), add_args(permits, delta, &args), &args);
}

int hf_permits_acquire_with(hf_permits *permits, const hf_permits_options *options,
                            hf_permit_id *ret_ids) {
    struct hfi_op_args args;
    struct hfi_permit_ids ids = {0};
    int err =
        hfi_run(handle_of(permits), acquire_args(permits, options, ret_ids, &ids, &args), &args);
    hfi_permit_ids_free(&ids);
    return err;
}

int hf_permits_acquire_for(hf_permits *permits, int64_t wait_ms, hf_permit_id *ret_id) {
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    return hf_permits_acquire_with(permits, &options, ret_id);
}

int hf_permits_acquire(hf_permits *permits, hf_permit_id *ret_id) {
    return hf_permits_acquire_for(permits, HF_FOREVER, ret_id);
}

int hf_permits_try(hf_permits *permits, hf_permit_id *ret_id) {
    return hf_permits_acquire_for(permits, 0, ret_id);
}

int hf_permits_release_many(hf_permits *permits, const hf_permit_id *given, size_t ids_len) {
    struct hfi_op_args args;
    struct hfi_permit_ids ids = {0};
    int err =
        hfi_run(handle_of(permits), release_args(permits, given, ids_len, &ids, &args), &args);
    hfi_permit_ids_free(&ids);
    return err;
}

int hf_permits_release(hf_permits *permits, const hf_permit_id *id) {
    return hf_permits_release_many(permits, id, 1);
}

int hf_permits_extend(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms) {
    struct hfi_op_args args;
    struct hfi_permit_ids ids = {0};
    int err = hfi_run(handle_of(permits), extend_args(permits, id, lease_ms, &ids, &args), &args);
    hfi_permit_ids_free(&ids);
    return err;
}

int hf_permits_ttl_ms(hf_permits *permits, const hf_permit_id *id, int64_t *ret_lease_ms) {
    struct hfi_op_args args;
    struct hfi_permit_ids ids = {0};
    int err = hfi_run_number(handle_of(permits), lease_args(permits, id, &ids, &args), &args,
                             ret_lease_ms);
    hfi_permit_ids_free(&ids);
    return err;
}

int64_t hf_permits_remaining_ms(hf_permits *permits, const hf_permit_id *id) {
    struct hfi_entry entry;
    if (permits == NULL || id == NULL ||
        strnlen(id->text, HFI_PERMIT_TEXT_LEN + 1) != HFI_PERMIT_TEXT_LEN ||
        hfi_enter(permits->handle.client, &entry) != HF_OK)
        return 0;
    const struct hfi_handle *handle = &permits->handle;
    struct hfi_core *core = &handle->client->core;
    struct hfi_shard *shard = hfi_core_shard(core, handle->name, handle->name_len);
    int64_t left_ms = 0;
    pthread_mutex_lock(&shard->mtx);
    const struct hfi_hold *hold =
        hfi_hold_of_locked(core, shard, handle->kind, handle->name, handle->name_len, id->text,
                           HFI_PERMIT_TEXT_LEN, false);
    if (hold != NULL && hold->count > 0)
        left_ms = hfi_left_ms(hfi_hold_deadline_ms(hold));
    pthread_mutex_unlock(&shard->mtx);
    hfi_leave(handle->client, &entry);
    return left_ms;
}

static int ask(hf_permits *permits, enum hfi_object_op object_op, int64_t *ret_number) {
    struct hfi_op_args args;
    return hfi_run_number(handle_of(permits), ask_args(permits, object_op, &args), &args,
                          ret_number);
}

int hf_permits_available(hf_permits *permits, int64_t *ret_number) {
    return ask(permits, HFI_OBJECT_AVAILABLE, ret_number);
}

int hf_permits_total(hf_permits *permits, int64_t *ret_number) {
    return ask(permits, HFI_OBJECT_TOTAL, ret_number);
}

int hf_permits_taken(hf_permits *permits, int64_t *ret_number) {
    return ask(permits, HFI_OBJECT_TAKEN, ret_number);
}

int hf_permits_expire(hf_permits *permits, int64_t ttl_ms, bool *ret_existed) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(permits), expire_args(permits, ttl_ms, &args), &args,
                        ret_existed);
}

int hf_permits_delete(hf_permits *permits, bool *ret_deleted) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(permits), ask_args(permits, HFI_OBJECT_DELETE, &args), &args,
                        ret_deleted);
}

/* ---- Asynchronous ---- */

int hf_permits_try_set_start(hf_permits *permits, int64_t number, hf_op_fn callback, void *user,
                             hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(permits), set_args(permits, HFI_OBJECT_SET, number, &args), &args,
                     callback, user, ret_op);
}

int hf_permits_set_start(hf_permits *permits, int64_t number, hf_op_fn callback, void *user,
                         hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(permits), set_args(permits, HFI_OBJECT_RESET, number, &args), &args,
                     callback, user, ret_op);
}

int hf_permits_add_start(hf_permits *permits, int64_t delta, hf_op_fn callback, void *user,
                         hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(permits), add_args(permits, delta, &args), &args, callback, user,
                     ret_op);
}

int hf_permits_acquire_start(hf_permits *permits, const hf_permits_options *options,
                             hf_permit_id *ret_ids, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    struct hfi_permit_ids ids = {0};
    int err = hfi_start(handle_of(permits), acquire_args(permits, options, ret_ids, &ids, &args),
                        &args, callback, user, ret_op);
    hfi_permit_ids_free(&ids);
    return err;
}

int hf_permits_release_start(hf_permits *permits, const hf_permit_id *given, size_t ids_len,
                             hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    struct hfi_permit_ids ids = {0};
    int err = hfi_start(handle_of(permits), release_args(permits, given, ids_len, &ids, &args),
                        &args, callback, user, ret_op);
    hfi_permit_ids_free(&ids);
    return err;
}

int hf_permits_extend_start(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms,
                            hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    struct hfi_permit_ids ids = {0};
    int err = hfi_start(handle_of(permits), extend_args(permits, id, lease_ms, &ids, &args), &args,
                        callback, user, ret_op);
    hfi_permit_ids_free(&ids);
    return err;
}

int hf_permits_ttl_ms_start(hf_permits *permits, const hf_permit_id *id, hf_op_fn callback,
                            void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    struct hfi_permit_ids ids = {0};
    int err = hfi_start(handle_of(permits), lease_args(permits, id, &ids, &args), &args, callback,
                        user, ret_op);
    hfi_permit_ids_free(&ids);
    return err;
}

static int ask_start(hf_permits *permits, enum hfi_object_op object_op, hf_op_fn callback,
                     void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(permits), ask_args(permits, object_op, &args), &args, callback, user,
                     ret_op);
}

int hf_permits_available_start(hf_permits *permits, hf_op_fn callback, void *user, hf_op **ret_op) {
    return ask_start(permits, HFI_OBJECT_AVAILABLE, callback, user, ret_op);
}

int hf_permits_total_start(hf_permits *permits, hf_op_fn callback, void *user, hf_op **ret_op) {
    return ask_start(permits, HFI_OBJECT_TOTAL, callback, user, ret_op);
}

int hf_permits_taken_start(hf_permits *permits, hf_op_fn callback, void *user, hf_op **ret_op) {
    return ask_start(permits, HFI_OBJECT_TAKEN, callback, user, ret_op);
}

int hf_permits_expire_start(hf_permits *permits, int64_t ttl_ms, hf_op_fn callback, void *user,
                            hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(permits), expire_args(permits, ttl_ms, &args), &args, callback, user,
                     ret_op);
}

int hf_permits_delete_start(hf_permits *permits, hf_op_fn callback, void *user, hf_op **ret_op) {
    return ask_start(permits, HFI_OBJECT_DELETE, callback, user, ret_op);
}
