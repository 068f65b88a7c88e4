/*
 * The verbs of a lock: argument checks, then an operation. Nothing here touches the network or a
 * hold by itself.
 */
#include "api/client.h"

#include <stdlib.h>
#include <string.h>

static void tell(struct hfi_ear *ear, const struct hfi_on_lost *on_lost, const char *owner,
                 const hf_event *event) {
    (void)owner; /* the event has its number */
    on_lost->lock(HFI_CONTAINER(ear, hf_lock, ear), event, on_lost->user);
}

int hfi_lock_make(hf_client *client, const struct hfi_kind *kind, const void *name, size_t name_len,
                  hf_lock **ret_lock, hf_error *error) {
    struct hfi_engine *engine = client->core.engine;
    int err = engine->ops->check_name(engine, kind, name, name_len, error);
    if (err != HF_OK)
        return err;
    hf_lock *lock = hfi_zalloc(&client->mem, sizeof *lock + name_len + 1);
    if (lock == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    lock->client = client;
    lock->kind = kind;
    lock->name_len = name_len;
    memcpy(lock->name, name, name_len);
    lock->ear = (struct hfi_ear){.client = client,
                                 .kind = kind,
                                 .name = lock->name,
                                 .name_len = name_len,
                                 .tell = tell,
                                 .lost_fd = -1};
    hfi_client_ref(client);
    *ret_lock = lock;
    return HF_OK;
}

int hf_lock_new_kind(hf_client *client, hf_kind kind, const void *name, size_t name_len,
                     hf_lock **ret_lock) {
    hf_error error;
    struct hfi_entry entry;
    hfi_error_clear(&error);
    if (client == NULL || name == NULL || name_len == 0 || ret_lock == NULL)
        return hfi_remember(hfi_fail(&error, HF_EINVAL, "a lock needs a client and a name"),
                            &error);
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    const struct hfi_engine_ops *ops = client->core.engine->ops;
    const struct hfi_kind *table = ops->kind(client->core.engine, kind);
    if (table == NULL)
        err = hfi_fail(&error, HF_ENOTSUP, "this kind of lock is not offered here");
    else
        err = hfi_lock_make(client, table, name, name_len, ret_lock, &error);
    hfi_leave(client, &entry);
    return hfi_remember(err, &error);
}

int hf_lock_new(hf_client *client, const char *name, hf_lock **ret_lock) {
    return hf_lock_new_kind(client, HF_PLAIN, name, name != NULL ? strlen(name) : 0, ret_lock);
}

const char *hf_lock_name(const hf_lock *lock, size_t *ret_len) {
    if (ret_len != NULL)
        *ret_len = hfi_kind_stem_len(lock->kind, lock->name, lock->name_len);
    return lock->name;
}

/* ---- Arguments ---- */

static int invalid(const char *why) {
    hf_error error;
    hfi_error_clear(&error);
    return hfi_remember(hfi_fail(&error, HF_EINVAL, "%s", why), &error);
}

/* The common part of every operation on a lock. An owner of 0 is this thread. */
static int lock_args(hf_lock *lock, const struct hfi_verb *verb, hf_owner owner,
                     struct hfi_op_args *args) {
    if (lock == NULL)
        return invalid("no lock was given");
    if (owner == 0)
        owner = hf_owner_self();
    if (owner == 0)
        return hfi_remember(HF_ENOMEM, NULL);
    if (!hfi_owner_valid(owner))
        return invalid(
            "an owner of one's own is 1 to 4294967295; larger ones come from the library");
    *args = (struct hfi_op_args){.verb = verb,
                                 .kind = lock->kind,
                                 .name = lock->name,
                                 .name_len = lock->name_len,
                                 .owner = owner};
    return HF_OK;
}

static int check_lease(int64_t lease_ms) {
    if (lease_ms < 0 || lease_ms > HF_LEASE_MAX_MS)
        return invalid("a lease is 1 ms to ten years, or HF_WATCHDOG");
    return HF_OK;
}

/* Reads the options into `args`, whatever version of the struct the caller was compiled with. */
static int acquire_args(hf_lock *lock, const hf_acquire_options *given, bool async,
                        struct hfi_op_args *args) {
    hf_acquire_options options = HF_ACQUIRE_INIT;
    if (given != NULL) {
        if (given->size < offsetof(hf_acquire_options, cancel) || given->size > 4096)
            return invalid("hf_acquire_options.size is not set: use HF_ACQUIRE_INIT");
        memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    }
    if (options.wait_ms < HF_FOREVER)
        return invalid("a wait is HF_FOREVER, 0, or a number of milliseconds");
    int err = check_lease(options.lease_ms);
    if (err != HF_OK)
        return err;
    hf_owner owner = options.owner == 0 && async ? hfi_owner_next() : options.owner;
    err = lock_args(lock, &hfi_verb_acquire, owner, args);
    if (err != HF_OK)
        return err;
    args->wait_ms = options.wait_ms;
    args->lease_ms = options.lease_ms;
    args->cancel = options.cancel;
    if (!async && options.owner == 0)
        args->self = hfi_self();
    return HF_OK;
}

static int extend_args(hf_lock *lock, hf_owner owner, int64_t lease_ms, struct hfi_op_args *args) {
    int err = lease_ms == 0 ? invalid("an extension needs a lease") : check_lease(lease_ms);
    if (err == HF_OK)
        err = lock_args(lock, &hfi_verb_extend, owner, args);
    if (err == HF_OK)
        args->lease_ms = lease_ms;
    return err;
}

static int ask_args(hf_lock *lock, hf_owner owner, enum hfi_question question,
                    struct hfi_op_args *args) {
    int err = lock_args(lock, &hfi_verb_ask, owner, args);
    args->question = question;
    return err;
}

/* ---- Synchronous ---- */

int hf_lock_acquire_with(hf_lock *lock, const hf_acquire_options *options, hf_result *ret) {
    struct hfi_op_args args;
    int err = acquire_args(lock, options, false, &args);
    return err != HF_OK ? err : hfi_run_sync(lock->client, &args, ret, NULL);
}

int hf_lock_acquire_for(hf_lock *lock, int64_t wait_ms) {
    hf_acquire_options options = HF_ACQUIRE_INIT;
    options.wait_ms = wait_ms;
    return hf_lock_acquire_with(lock, &options, NULL);
}

int hf_lock_acquire(hf_lock *lock) {
    return hf_lock_acquire_for(lock, HF_FOREVER);
}

int hf_lock_try(hf_lock *lock) {
    return hf_lock_acquire_for(lock, 0);
}

int hf_lock_release_as(hf_lock *lock, hf_owner owner) {
    struct hfi_op_args args;
    int err = lock_args(lock, &hfi_verb_release, owner, &args);
    return err != HF_OK ? err : hfi_run_sync(lock->client, &args, NULL, NULL);
}

int hf_lock_release(hf_lock *lock) {
    return hf_lock_release_as(lock, 0);
}

int hf_lock_extend_as(hf_lock *lock, hf_owner owner, int64_t lease_ms) {
    struct hfi_op_args args;
    int err = extend_args(lock, owner, lease_ms, &args);
    return err != HF_OK ? err : hfi_run_sync(lock->client, &args, NULL, NULL);
}

int hf_lock_extend(hf_lock *lock, int64_t lease_ms) {
    return hf_lock_extend_as(lock, 0, lease_ms);
}

int hf_lock_break(hf_lock *lock, bool *ret_broken) {
    struct hfi_op_args args;
    hf_result result = HF_RESULT_INIT;
    int err = lock_args(lock, &hfi_verb_force, 0, &args);
    if (err == HF_OK)
        err = hfi_run_sync(lock->client, &args, &result, NULL);
    if (err == HF_OK && ret_broken != NULL)
        *ret_broken = result.value == 1;
    return err;
}

static int ask(hf_lock *lock, hf_owner owner, enum hfi_question question, int64_t *ret_value) {
    struct hfi_op_args args;
    hf_result result = HF_RESULT_INIT;
    int err = ask_args(lock, owner, question, &args);
    if (err == HF_OK)
        err = hfi_run_sync(lock->client, &args, &result, NULL);
    if (err == HF_OK && ret_value != NULL)
        *ret_value = result.value;
    return err;
}

static int ask_bool(hf_lock *lock, hf_owner owner, enum hfi_question question, bool *ret) {
    int64_t value;
    int err = ask(lock, owner, question, &value);
    if (err == HF_OK && ret != NULL)
        *ret = value > 0;
    return err;
}

int hf_lock_is_locked(hf_lock *lock, bool *ret_locked) {
    return ask_bool(lock, 0, HFI_ASK_LOCKED, ret_locked);
}

int hf_lock_is_held_by(hf_lock *lock, hf_owner owner, bool *ret_held) {
    return ask_bool(lock, owner, HFI_ASK_COUNT, ret_held);
}

int hf_lock_is_mine(hf_lock *lock, bool *ret_mine) {
    return hf_lock_is_held_by(lock, 0, ret_mine);
}

int hf_lock_hold_count(hf_lock *lock, hf_owner owner, int64_t *ret_count) {
    return ask(lock, owner, HFI_ASK_COUNT, ret_count);
}

int hf_lock_ttl_ms(hf_lock *lock, int64_t *ret_ttl_ms) {
    return ask(lock, 0, HFI_ASK_TTL, ret_ttl_ms);
}

int hf_lock_inspect(hf_lock *lock, hf_lock_info **ret_info) {
    struct hfi_op_args args;
    if (ret_info == NULL)
        return invalid("no place for the answer");
    int err = lock_args(lock, &hfi_verb_inspect, 0, &args);
    return err != HF_OK ? err : hfi_run_sync(lock->client, &args, NULL, ret_info);
}

static void free_list(hf_holder *list, size_t len) {
    for (size_t i = 0; i < len; i++) {
        free(list[i].owner);
        free(list[i].connection);
    }
    free(list);
}

void hf_lock_info_free(hf_lock_info *info) {
    if (info == NULL)
        return;
    free_list(info->holders, info->holders_len);
    free_list(info->waiters, info->waiters_len);
    free(info);
}

/* ---- From memory ---- */

/* What a hold says of itself, copied under its shard. */
static bool look_at_hold(hf_lock *lock, hf_owner owner, int64_t *ret_deadline_ms,
                         int64_t *ret_token) {
    struct hfi_entry entry;
    if (lock == NULL || hfi_enter(lock->client, &entry) != HF_OK)
        return false;
    struct hfi_core *core = &lock->client->core;
    struct hfi_shard *shard =
        hfi_core_shard(core, lock->name, hfi_kind_stem_len(lock->kind, lock->name, lock->name_len));
    pthread_mutex_lock(&shard->mtx);
    const struct hfi_hold *hold = hfi_hold_find_locked(
        core, shard, lock->kind, lock->name, lock->name_len, owner != 0 ? owner : hf_owner_self());
    bool held = hold != NULL && hold->count > 0;
    if (held) {
        *ret_deadline_ms = hfi_hold_deadline_ms(hold);
        *ret_token = hold->token;
    }
    pthread_mutex_unlock(&shard->mtx);
    hfi_leave(lock->client, &entry);
    return held;
}

int64_t hf_lock_remaining_ms(hf_lock *lock, hf_owner owner) {
    int64_t deadline_ms, token;
    if (!look_at_hold(lock, owner, &deadline_ms, &token))
        return 0;
    return hfi_left_ms(deadline_ms);
}

int hf_lock_token(hf_lock *lock, hf_owner owner, int64_t *ret_token) {
    int64_t deadline_ms, token;
    if (lock == NULL || ret_token == NULL)
        return invalid("no lock, or no place for the token");
    if (!lock->kind->token)
        return hfi_remember(HF_ENOTSUP, NULL);
    if (!look_at_hold(lock, owner, &deadline_ms, &token) || token == 0)
        return hfi_remember(HF_ENOTOWNER, NULL); /* or held, but never through a fenced handle */
    *ret_token = token;
    return HF_OK;
}

/* ---- Asynchronous ---- */

static int start(hf_lock *lock, int err, struct hfi_op_args *args, hf_callback callback, void *user,
                 hf_op **ret_op) {
    if (err != HF_OK)
        return err;
    args->callback = callback;
    args->user = user;
    return hfi_start_async(lock->client, args, ret_op);
}

int hf_lock_acquire_start(hf_lock *lock, const hf_acquire_options *options, hf_callback callback,
                          void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return start(lock, acquire_args(lock, options, true, &args), &args, callback, user, ret_op);
}

int hf_lock_release_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                          hf_op **ret_op) {
    struct hfi_op_args args;
    return start(lock, lock_args(lock, &hfi_verb_release, owner, &args), &args, callback, user,
                 ret_op);
}

int hf_lock_extend_start(hf_lock *lock, hf_owner owner, int64_t lease_ms, hf_callback callback,
                         void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return start(lock, extend_args(lock, owner, lease_ms, &args), &args, callback, user, ret_op);
}

int hf_lock_break_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return start(lock, lock_args(lock, &hfi_verb_force, 0, &args), &args, callback, user, ret_op);
}

int hf_lock_is_locked_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return start(lock, ask_args(lock, 0, HFI_ASK_LOCKED, &args), &args, callback, user, ret_op);
}

int hf_lock_is_held_by_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                             hf_op **ret_op) {
    struct hfi_op_args args;
    int err = ask_args(lock, owner, HFI_ASK_COUNT, &args);
    args.yes_or_no = true;
    return start(lock, err, &args, callback, user, ret_op);
}

int hf_lock_hold_count_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                             hf_op **ret_op) {
    struct hfi_op_args args;
    return start(lock, ask_args(lock, owner, HFI_ASK_COUNT, &args), &args, callback, user, ret_op);
}

int hf_lock_ttl_ms_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return start(lock, ask_args(lock, 0, HFI_ASK_TTL, &args), &args, callback, user, ret_op);
}
