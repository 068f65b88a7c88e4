/*
 * The verbs of a lock: argument checks, then an operation. Nothing here uses the network or changes
 * a hold directly.
 */
#include "api/handle.h"
#include "api/versioned_struct.h"
#include "engine/server_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The handle ---- */

static struct hfi_handle *handle_of(hf_lock *lock) {
    return lock != NULL ? &lock->handle : NULL;
}

static const struct hfi_kind *find(struct hfi_engine *engine, const hf_lock_options *options) {
    return engine->ops->kind(engine, options->kind, options->flags);
}

void hfi_lock_run_callback(struct hfi_handle *handle, const struct hfi_on_lost *on_lost,
                           const char *owner, const hf_event *event) {
    (void)owner; /* the event has its number */
    on_lost->lock(HFI_CONTAINER(handle, hf_lock, handle), event, on_lost->user);
}

static const struct hfi_handle_type type = {.needs = "a lock needs a client and a name",
                                            .find = find,
                                            .run_callback = hfi_lock_run_callback};

int hf_lock_new_with(hf_client *client, const void *name, size_t name_len,
                     const hf_lock_options *options, hf_lock **ret_lock) {
    struct hfi_handle *handle;
    if (ret_lock == NULL)
        return hfi_invalid("the pointer for the new handle is NULL");
    int err = hfi_wants_cohort(options)
                  ? hfi_cohort_handle_new(client, name, name_len, options, &handle)
                  : hfi_handle_new(client, &type, name, name_len, options, &handle);
    if (err == HF_OK)
        *ret_lock = HFI_CONTAINER(handle, hf_lock, handle);
    return err;
}

int hf_lock_new_named(hf_client *client, const char *name, const hf_lock_options *options,
                      hf_lock **ret_lock) {
    return hf_lock_new_with(client, name, name != NULL ? strlen(name) : 0, options, ret_lock);
}

int hf_lock_new_bytes(hf_client *client, const void *name, size_t name_len, hf_lock **ret_lock) {
    return hf_lock_new_with(client, name, name_len, NULL, ret_lock);
}

int hf_lock_new(hf_client *client, const char *name, hf_lock **ret_lock) {
    return hf_lock_new_bytes(client, name, name != NULL ? strlen(name) : 0, ret_lock);
}

void hf_lock_free(hf_lock *lock) {
    hfi_handle_free(handle_of(lock));
}

const char *hf_lock_name(const hf_lock *lock, size_t *ret_len) {
    return hfi_handle_name(&lock->handle, ret_len);
}

int hf_lock_on_lost(hf_lock *lock, hf_event_fn callback, void *user) {
    const struct hfi_on_lost on_lost = {.lock = callback, .user = user};
    return hfi_loss_listener_set(handle_of(lock), &on_lost);
}

int hf_lock_lost_fd(hf_lock *lock) {
    return hfi_loss_listener_fd(handle_of(lock));
}

/* ---- Arguments ---- */

/* The common part of every operation on a lock. An owner of 0 is this thread. */
static int lock_args(hf_lock *lock, const struct hfi_verb *verb, hf_owner owner,
                     struct hfi_op_args *args) {
    int err = hfi_handle_args(handle_of(lock), verb, args);
    if (err != HF_OK)
        return err;
    args->owner = owner != 0 ? owner : hf_owner_self();
    if (args->owner == 0)
        return hfi_remember(HF_ENOMEM, NULL);
    if (!hfi_owner_valid(args->owner))
        return hfi_invalid("an owner must be 1 to 4294967295, or come from the library");
    return HF_OK;
}

/* Started operations belong to no thread. */
static int check_named(hf_owner owner) {
    if (owner == 0)
        return hfi_invalid("an operation needs the owner from the acquire's result");
    return HF_OK;
}

static int check_lease(int64_t lease_ms) {
    if (lease_ms < 0 || lease_ms > HF_LEASE_MAX_MS)
        return hfi_invalid("a lease must be 1 ms to ten years, or HF_WATCHDOG");
    return HF_OK;
}

static int read_options(const hf_acquire_options *given, hf_acquire_options *options) {
    hf_error error;
    int err = hfi_versioned_read(&hfi_versioned_acquire_options, given, options, &error);
    if (err != HF_OK)
        return hfi_remember(err, &error);
    err = hfi_check_wait(options->wait_ms);
    if (err == HF_OK && options->string_token != NULL &&
        (options->string_token[0] == '\0' || strlen(options->string_token) > HF_STRING_TOKEN_MAX))
        err = hfi_invalid("a string token must have 1 to HF_STRING_TOKEN_MAX bytes");
    if (err == HF_OK && (options->acks < HF_ACKS_OFF || options->acks > HF_ACKS_MAX))
        err = hfi_invalid("acks must be 0, 1 to HF_ACKS_MAX, or one of HF_ACKS_...");
    return err != HF_OK || options->lease_ms == HF_NO_LEASE ? err : check_lease(options->lease_ms);
}

/* The caller's reference to the text is dropped by the functions that made the arguments. */
static int text_args(hf_lock *lock, const char *token, struct hfi_op_args *args) {
    if (!args->kind->takes_stamp)
        return hfi_invalid("only a string lock has a string token");
    args->text = hfi_stamp_text_new(&lock->handle.client->mem, token, strlen(token));
    return args->text != NULL ? HF_OK : hfi_remember(HF_ENOMEM, NULL);
}

static int acquire_args(hf_lock *lock, const hf_acquire_options *given, bool async,
                        struct hfi_op_args *args) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    int err = read_options(given, &options);
    if (err != HF_OK)
        return err;
    hf_owner owner = options.owner == 0 && async ? hfi_owner_next() : options.owner;
    err = lock_args(lock, &hfi_verb_acquire, owner, args);
    if (err == HF_OK && options.lease_ms == HF_NO_LEASE && !args->kind->takes_no_lease)
        err = hfi_invalid("HF_NO_LEASE is for string locks: not for other kinds, cohorts, quorums, "
                          "locks made of others, or in ZooKeeper");
    if (err != HF_OK)
        return err;
    args->wait_ms = options.wait_ms;
    args->lease_ms = options.lease_ms;
    args->cancel = options.cancel;
    args->check = options.check;
    args->check_user = options.check_user;
    args->acks = options.acks;
    args->spin = &lock->handle.spin;
    args->compact = async && options.owner == 0;
    if (!async && options.owner == 0)
        args->self = hfi_thread_record();
    return options.string_token != NULL ? text_args(lock, options.string_token, args) : HF_OK;
}

static int extend_args(hf_lock *lock, hf_owner owner, int64_t lease_ms, struct hfi_op_args *args) {
    int err = lease_ms == 0 ? hfi_invalid("an extension needs a lease of 1 ms to ten years")
                            : check_lease(lease_ms);
    if (err == HF_OK)
        err = lock_args(lock, &hfi_verb_extend, owner, args);
    if (err == HF_OK)
        args->lease_ms = lease_ms;
    return err;
}

static int extend_with_args(hf_lock *lock, const hf_extend_options *given, bool async,
                            struct hfi_op_args *args) {
    hf_extend_options options = HF_EXTEND_OPTIONS_INIT;
    hf_error error;
    if (given == NULL)
        return hfi_invalid("an extension needs a lease of 1 ms to ten years");
    int err = hfi_versioned_read(&hfi_versioned_extend_options, given, &options, &error);
    if (err != HF_OK)
        return hfi_remember(err, &error);
    if (options.mode < HF_EXTEND_RAISE || options.mode > HF_EXTEND_ADD)
        return hfi_invalid("an extension's mode must be one of HF_EXTEND_...");
    err = async ? check_named(options.owner) : HF_OK;
    if (err == HF_OK)
        err = extend_args(lock, options.owner, options.lease_ms, args);
    if (err == HF_OK)
        args->extend_mode = options.mode;
    return err;
}

/* A token of this client is its owner and the bits of its stamp. Any other stands for itself, under
 * an owner of its own. */
static int adopt_token_args(hf_lock *lock, const char *token, int64_t lease_ms,
                            struct hfi_op_args *args) {
    const struct hfi_core *core = &lock->handle.client->core;
    hf_owner number = 0;
    uint64_t bits = 0;
    if (token == NULL || token[0] == '\0' || strlen(token) > HF_STRING_TOKEN_MAX)
        return hfi_invalid("not a token: expected 1 to HF_STRING_TOKEN_MAX bytes");
    bool own = hfi_stamped_parse(token, &number, &bits) && !hfi_owner_is_foreign(core, token);
    int err = lock_args(lock, &hfi_verb_adopt, own ? number : hfi_owner_next(), args);
    if (err != HF_OK)
        return err;
    args->lease_ms = lease_ms;
    args->bits = bits;
    return own ? HF_OK : text_args(lock, token, args);
}

static int adopt_args(hf_lock *lock, const char *handle, int64_t lease_ms,
                      struct hfi_op_args *args) {
    hf_owner number;
    int err = check_lease(lease_ms);
    if (err == HF_OK && lock != NULL && lock->handle.kind->stamped)
        return adopt_token_args(lock, handle, lease_ms, args);
    if (err == HF_OK && !hfi_owner_parse(handle, &number))
        err = hfi_invalid("not a handle: expected a uuid, a colon and a number");
    if (err != HF_OK || lock == NULL)
        return err != HF_OK ? err : hfi_invalid("the handle is NULL");
    bool foreign = hfi_owner_is_foreign(&lock->handle.client->core, handle);
    err = lock_args(lock, &hfi_verb_adopt, foreign ? hfi_owner_next() : number, args);
    args->handle = handle;
    args->lease_ms = lease_ms;
    return err;
}

static int ask_args(hf_lock *lock, hf_owner owner, enum hfi_query query, struct hfi_op_args *args) {
    int err = lock_args(lock, &hfi_verb_query, owner, args);
    args->query = query;
    if (err == HF_OK && query != HFI_QUERY_COUNT)
        hfi_ask_the_lock(args);
    return err;
}

static int inspect_args(hf_lock *lock, hf_lock_info **ret_info, struct hfi_op_args *args) {
    if (ret_info == NULL)
        return hfi_invalid("the pointer for the answer is NULL");
    int err = lock_args(lock, &hfi_verb_inspect, 0, args);
    args->ret_info = ret_info;
    if (err == HF_OK)
        hfi_ask_the_lock(args);
    return err;
}

static int break_args(hf_lock *lock, struct hfi_op_args *args) {
    int err = lock_args(lock, &hfi_verb_break, 0, args);
    if (err == HF_OK)
        hfi_ask_the_lock(args);
    return err;
}

static int server_info_args(hf_lock *lock, hf_server_info **ret_info, struct hfi_op_args *args) {
    if (ret_info == NULL)
        return hfi_invalid("the pointer for the answer is NULL");
    int err = lock_args(lock, &hfi_verb_server_info, 0, args);
    args->ret_server_info = ret_info;
    if (err == HF_OK)
        hfi_ask_the_lock(args);
    return err;
}

/* ---- Synchronous ---- */

static int acquire(hf_lock *lock, const hf_acquire_options *options, hf_result *ret) {
    struct hfi_op_args args;
    int err = acquire_args(lock, options, false, &args);
    if (err != HF_OK)
        return err;
    err = hfi_run_sync(lock->handle.client, &args, ret);
    hfi_stamp_text_unref(args.text);
    return err;
}

int hf_lock_acquire_with(hf_lock *lock, const hf_acquire_options *options, hf_result *ret) {
    hf_error error;
    int err = hfi_versioned_check(&hfi_versioned_result, ret, &error);
    return err != HF_OK ? hfi_remember(err, &error) : acquire(lock, options, ret);
}

int hf_lock_acquire_for(hf_lock *lock, int64_t wait_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    return acquire(lock, &options, NULL);
}

int hf_lock_acquire(hf_lock *lock) {
    return acquire(lock, NULL, NULL);
}

int hf_lock_try(hf_lock *lock) {
    return hf_lock_acquire_for(lock, 0);
}

int hf_lock_release_as(hf_lock *lock, hf_owner owner) {
    struct hfi_op_args args;
    return hfi_run(handle_of(lock), lock_args(lock, &hfi_verb_release, owner, &args), &args);
}

int hf_lock_release(hf_lock *lock) {
    return hf_lock_release_as(lock, 0);
}

int hf_lock_extend_as(hf_lock *lock, hf_owner owner, int64_t lease_ms) {
    struct hfi_op_args args;
    return hfi_run(handle_of(lock), extend_args(lock, owner, lease_ms, &args), &args);
}

int hf_lock_extend(hf_lock *lock, int64_t lease_ms) {
    return hf_lock_extend_as(lock, 0, lease_ms);
}

int hf_lock_extend_with(hf_lock *lock, const hf_extend_options *options, hf_result *ret) {
    struct hfi_op_args args;
    hf_error error;
    int err = hfi_versioned_check(&hfi_versioned_result, ret, &error);
    if (err != HF_OK)
        return hfi_remember(err, &error);
    err = extend_with_args(lock, options, false, &args);
    return err != HF_OK ? err : hfi_run_sync(lock->handle.client, &args, ret);
}

int hf_lock_adopt(hf_lock *lock, const char *handle, int64_t lease_ms, hf_result *ret) {
    struct hfi_op_args args;
    hf_error error;
    int err = hfi_versioned_check(&hfi_versioned_result, ret, &error);
    if (err != HF_OK)
        return hfi_remember(err, &error);
    err = adopt_args(lock, handle, lease_ms, &args);
    if (err != HF_OK)
        return err;
    err = hfi_run_sync(lock->handle.client, &args, ret);
    hfi_stamp_text_unref(args.text);
    return err;
}

int hf_lock_break(hf_lock *lock, bool *ret_broken) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(lock), break_args(lock, &args), &args, ret_broken);
}

static int ask(hf_lock *lock, hf_owner owner, enum hfi_query query, int64_t *ret_value) {
    struct hfi_op_args args;
    return hfi_run_number(handle_of(lock), ask_args(lock, owner, query, &args), &args, ret_value);
}

static int ask_bool(hf_lock *lock, hf_owner owner, enum hfi_query query, bool *ret) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(lock), ask_args(lock, owner, query, &args), &args, ret);
}

int hf_lock_is_locked(hf_lock *lock, bool *ret_locked) {
    return ask_bool(lock, 0, HFI_QUERY_LOCKED, ret_locked);
}

int hf_lock_is_mine_as(hf_lock *lock, hf_owner owner, bool *ret_mine) {
    return ask_bool(lock, owner, HFI_QUERY_COUNT, ret_mine);
}

int hf_lock_is_mine(hf_lock *lock, bool *ret_mine) {
    return hf_lock_is_mine_as(lock, 0, ret_mine);
}

int hf_lock_hold_count_as(hf_lock *lock, hf_owner owner, int64_t *ret_count) {
    return ask(lock, owner, HFI_QUERY_COUNT, ret_count);
}

int hf_lock_hold_count(hf_lock *lock, int64_t *ret_count) {
    return hf_lock_hold_count_as(lock, 0, ret_count);
}

int hf_lock_ttl_ms(hf_lock *lock, int64_t *ret_ttl_ms) {
    return ask(lock, 0, HFI_QUERY_TTL, ret_ttl_ms);
}

int hf_lock_inspect(hf_lock *lock, hf_lock_info **ret_info) {
    struct hfi_op_args args;
    return hfi_run(handle_of(lock), inspect_args(lock, ret_info, &args), &args);
}

int hf_lock_server_info(hf_lock *lock, hf_server_info **ret_info) {
    struct hfi_op_args args;
    return hfi_run(handle_of(lock), server_info_args(lock, ret_info, &args), &args);
}

void hf_server_info_free(hf_server_info *info) {
    hfi_server_info_free(info);
}

void hf_lock_info_free(hf_lock_info *info) {
    hfi_lock_info_free(info);
}

/* ---- From local state ---- */

/* A hold's deadline and token, copied with its shard locked. HF_ENOTOWNER: there is none. */
static int read_hold(hf_lock *lock, hf_owner owner, int64_t *ret_deadline_ms, int64_t *ret_token) {
    struct hfi_entry entry;
    int err = lock == NULL ? HF_EINVAL : hfi_enter(lock->handle.client, &entry);
    if (err != HF_OK)
        return err;
    const struct hfi_handle *handle = &lock->handle;
    struct hfi_core *core = &handle->client->core;
    struct hfi_shard *shard = hfi_core_shard(
        core, handle->name, hfi_kind_stem_len(handle->kind, handle->name, handle->name_len));
    pthread_mutex_lock(&shard->mtx);
    const struct hfi_hold *hold =
        hfi_hold_find_locked(core, shard, handle->kind, handle->name, handle->name_len,
                             owner != 0 ? owner : hf_owner_self());
    bool held = hold != NULL && hold->count > 0;
    if (held) {
        *ret_deadline_ms = hfi_hold_deadline_ms(hold);
        *ret_token = hold->token;
    }
    pthread_mutex_unlock(&shard->mtx);
    hfi_leave(handle->client, &entry);
    return held ? HF_OK : HF_ENOTOWNER;
}

int64_t hf_lock_remaining_ms_as(hf_lock *lock, hf_owner owner) {
    int64_t deadline_ms, token;
    if (read_hold(lock, owner, &deadline_ms, &token) != HF_OK)
        return 0;
    return hfi_left_ms(deadline_ms);
}

int64_t hf_lock_remaining_ms(hf_lock *lock) {
    return hf_lock_remaining_ms_as(lock, 0);
}

int hf_lock_token_as(hf_lock *lock, hf_owner owner, int64_t *ret_token) {
    int64_t deadline_ms, token;
    if (lock == NULL || ret_token == NULL)
        return hfi_invalid("the lock, or the pointer for the token, is NULL");
    if (!lock->handle.kind->token)
        return hfi_remember(HF_ENOTSUP, NULL);
    int err = read_hold(lock, owner, &deadline_ms, &token);
    if (err == HF_OK && token == 0)
        err = HF_ENOTOWNER; /* held, but never through a fenced handle */
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    *ret_token = token;
    return HF_OK;
}

int hf_lock_token(hf_lock *lock, int64_t *ret_token) {
    return hf_lock_token_as(lock, 0, ret_token);
}

/* Its handle, as the server has it. */
static int write_handle(const struct hfi_hold *hold, char *ret, size_t size) {
    const struct hfi_stamp stamp = hold->stamp;
    int len;
    if (stamp.text != NULL)
        len = snprintf(ret, size, "%.*s", (int)stamp.text->len, stamp.text->bytes);
    else if (stamp.bits != 0)
        len = snprintf(ret, size, "%.*s:%016llx", (int)hold->owner_len, hold->owner,
                       (unsigned long long)stamp.bits);
    else
        len = snprintf(ret, size, "%.*s", (int)hold->owner_len, hold->owner);
    return len >= 0 && (size_t)len < size ? HF_OK : HF_EINVAL;
}

int hf_lock_handle(hf_lock *lock, hf_owner owner, char *ret, size_t size) {
    struct hfi_entry entry;
    if (lock == NULL || ret == NULL || size == 0)
        return hfi_invalid("the handle, or the memory for the answer, is NULL");
    int err = hfi_enter(lock->handle.client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    const struct hfi_handle *handle = &lock->handle;
    struct hfi_core *core = &handle->client->core;
    struct hfi_shard *shard = hfi_core_shard(
        core, handle->name, hfi_kind_stem_len(handle->kind, handle->name, handle->name_len));
    pthread_mutex_lock(&shard->mtx);
    const struct hfi_hold *hold =
        hfi_hold_find_locked(core, shard, handle->kind, handle->name, handle->name_len,
                             owner != 0 ? owner : hf_owner_self());
    err = HF_ENOTOWNER;
    if (hold != NULL && hold->count > 0 && !handle->kind->joint)
        err = write_handle(hold, ret, size);
    pthread_mutex_unlock(&shard->mtx);
    hfi_leave(handle->client, &entry);
    return err == HF_EINVAL ? hfi_invalid("the memory for the answer is too small")
                            : hfi_remember(err, NULL);
}

int hf_lock_forget_as(hf_lock *lock, hf_owner owner) {
    struct hfi_entry entry;
    hf_error error;
    hfi_error_clear(&error);
    int err = lock == NULL ? HF_EINVAL : hfi_enter(lock->handle.client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    const struct hfi_handle *handle = &lock->handle;
    err = hfi_forget(&handle->client->core, handle->kind, handle->name, handle->name_len,
                     owner != 0 ? owner : hf_owner_self(), &error);
    hfi_leave(handle->client, &entry);
    return hfi_remember(err, err == HF_ELOST ? &error : NULL);
}

int hf_lock_forget(hf_lock *lock) {
    return hf_lock_forget_as(lock, 0);
}

/* ---- Asynchronous ---- */

int hf_lock_acquire_start(hf_lock *lock, const hf_acquire_options *options, hf_op_fn callback,
                          void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    int err = acquire_args(lock, options, true, &args);
    if (err != HF_OK)
        return err;
    err = hfi_start(handle_of(lock), err, &args, callback, user, ret_op);
    hfi_stamp_text_unref(args.text);
    return err;
}

int hf_lock_release_start(hf_lock *lock, hf_owner owner, hf_op_fn callback, void *user,
                          hf_op **ret_op) {
    struct hfi_op_args args;
    int err = check_named(owner);
    if (err == HF_OK)
        err = lock_args(lock, &hfi_verb_release, owner, &args);
    return hfi_start(handle_of(lock), err, &args, callback, user, ret_op);
}

int hf_lock_extend_start(hf_lock *lock, hf_owner owner, int64_t lease_ms, hf_op_fn callback,
                         void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    int err = check_named(owner);
    if (err == HF_OK)
        err = extend_args(lock, owner, lease_ms, &args);
    return hfi_start(handle_of(lock), err, &args, callback, user, ret_op);
}

int hf_lock_extend_with_start(hf_lock *lock, const hf_extend_options *options, hf_op_fn callback,
                              void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), extend_with_args(lock, options, true, &args), &args, callback,
                     user, ret_op);
}

int hf_lock_adopt_start(hf_lock *lock, const char *handle, int64_t lease_ms, hf_op_fn callback,
                        void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    int err = adopt_args(lock, handle, lease_ms, &args);
    if (err != HF_OK)
        return err;
    err = hfi_start(handle_of(lock), err, &args, callback, user, ret_op);
    hfi_stamp_text_unref(args.text);
    return err;
}

int hf_lock_break_start(hf_lock *lock, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), break_args(lock, &args), &args, callback, user, ret_op);
}

int hf_lock_is_locked_start(hf_lock *lock, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), ask_args(lock, 0, HFI_QUERY_LOCKED, &args), &args, callback,
                     user, ret_op);
}

/* How many times the owner holds it, or only whether it does. */
static int count_start(hf_lock *lock, hf_owner owner, bool yes_or_no, hf_op_fn callback, void *user,
                       hf_op **ret_op) {
    struct hfi_op_args args;
    int err = check_named(owner);
    if (err == HF_OK)
        err = ask_args(lock, owner, HFI_QUERY_COUNT, &args);
    args.yes_or_no = yes_or_no;
    return hfi_start(handle_of(lock), err, &args, callback, user, ret_op);
}

int hf_lock_is_mine_start(hf_lock *lock, hf_owner owner, hf_op_fn callback, void *user,
                          hf_op **ret_op) {
    return count_start(lock, owner, true, callback, user, ret_op);
}

int hf_lock_hold_count_start(hf_lock *lock, hf_owner owner, hf_op_fn callback, void *user,
                             hf_op **ret_op) {
    return count_start(lock, owner, false, callback, user, ret_op);
}

int hf_lock_ttl_ms_start(hf_lock *lock, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), ask_args(lock, 0, HFI_QUERY_TTL, &args), &args, callback,
                     user, ret_op);
}

int hf_lock_inspect_start(hf_lock *lock, hf_lock_info **ret_info, hf_op_fn callback, void *user,
                          hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), inspect_args(lock, ret_info, &args), &args, callback, user,
                     ret_op);
}

int hf_lock_server_info_start(hf_lock *lock, hf_server_info **ret_info, hf_op_fn callback,
                              void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), server_info_args(lock, ret_info, &args), &args, callback,
                     user, ret_op);
}
