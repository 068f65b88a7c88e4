/*
 * The verbs of a lock: argument checks, then an operation. Nothing here touches the network or a
 * hold by itself.
 */
#include "api/handle.h"
#include "api/sized.h"
#include "engine/facts.h"

#include <stdlib.h>
#include <string.h>

/* ---- The handle ---- */

static struct hfi_handle *handle_of(hf_lock *lock) {
    return lock != NULL ? &lock->handle : NULL;
}

static const struct hfi_kind *find(struct hfi_engine *engine, const hf_lock_options *options) {
    return engine->ops->kind(engine, options->kind, options->flags);
}

void hfi_lock_tell(struct hfi_handle *handle, const struct hfi_on_lost *on_lost, const char *owner,
                   const hf_event *event) {
    (void)owner; /* the event has its number */
    on_lost->lock(HFI_CONTAINER(handle, hf_lock, handle), event, on_lost->user);
}

static const struct hfi_handle_type type = {
    .needs = "a lock needs a client and a name", .find = find, .tell = hfi_lock_tell};

int hf_lock_new_with(hf_client *client, const void *name, size_t name_len,
                     const hf_lock_options *options, hf_lock **ret_lock) {
    struct hfi_handle *handle;
    if (ret_lock == NULL)
        return hfi_invalid("no place for the handle");
    int err = hfi_wants_cohort(options)
                  ? hfi_cohort_handle_new(client, name, name_len, options, &handle)
                  : hfi_handle_new(client, &type, name, name_len, options, &handle);
    if (err == HF_OK)
        *ret_lock = HFI_CONTAINER(handle, hf_lock, handle);
    return err;
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
    return hfi_ear_set(handle_of(lock), &on_lost);
}

int hf_lock_lost_fd(hf_lock *lock) {
    return hfi_ear_fd(handle_of(lock));
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
        return hfi_invalid(
            "an owner of one's own is 1 to 4294967295; larger ones come from the library");
    return HF_OK;
}

/* Started operations belong to no thread. */
static int check_named(hf_owner owner) {
    if (owner == 0)
        return hfi_invalid("an operation needs an owner: that of the acquire's result");
    return HF_OK;
}

static int check_lease(int64_t lease_ms) {
    if (lease_ms < 0 || lease_ms > HF_LEASE_MAX_MS)
        return hfi_invalid("a lease is 1 ms to ten years, or HF_WATCHDOG");
    return HF_OK;
}

static int read_options(const hf_acquire_options *given, hf_acquire_options *options) {
    hf_error error;
    int err = hfi_sized_read(&hfi_sized_acquire_options, given, options, &error);
    if (err != HF_OK)
        return hfi_remember(err, &error);
    err = hfi_check_wait(options->wait_ms);
    if (err == HF_OK && (options->acks < HF_ACKS_OFF || options->acks > HF_ACKS_MAX))
        err = hfi_invalid("acks is 0, 1 to HF_ACKS_MAX, or one of HF_ACKS_...");
    return err != HF_OK ? err : check_lease(options->lease_ms);
}

static int acquire_args(hf_lock *lock, const hf_acquire_options *given, bool async,
                        struct hfi_op_args *args) {
    hf_acquire_options options = HF_ACQUIRE_INIT;
    int err = read_options(given, &options);
    if (err != HF_OK)
        return err;
    hf_owner owner = options.owner == 0 && async ? hfi_owner_next() : options.owner;
    err = lock_args(lock, &hfi_verb_acquire, owner, args);
    if (err != HF_OK)
        return err;
    args->wait_ms = options.wait_ms;
    args->lease_ms = options.lease_ms;
    args->cancel = options.cancel;
    args->acks = options.acks;
    args->spin = &lock->handle.spin;
    args->slight = async && options.owner == 0;
    if (!async && options.owner == 0)
        args->self = hfi_self();
    return HF_OK;
}

static int extend_args(hf_lock *lock, hf_owner owner, int64_t lease_ms, struct hfi_op_args *args) {
    int err = lease_ms == 0 ? hfi_invalid("an extension needs a lease") : check_lease(lease_ms);
    if (err == HF_OK)
        err = lock_args(lock, &hfi_verb_extend, owner, args);
    if (err == HF_OK)
        args->lease_ms = lease_ms;
    return err;
}

static int adopt_args(hf_lock *lock, const char *handle, int64_t lease_ms,
                      struct hfi_op_args *args) {
    hf_owner number;
    int err = check_lease(lease_ms);
    if (err == HF_OK && !hfi_owner_parse(handle, &number))
        err = hfi_invalid("that is no handle: it would be a uuid, a colon and a number");
    if (err != HF_OK || lock == NULL)
        return err != HF_OK ? err : hfi_invalid("no handle");
    bool foreign = hfi_owner_is_foreign(&lock->handle.client->core, handle);
    err = lock_args(lock, &hfi_verb_adopt, foreign ? hfi_owner_next() : number, args);
    args->handle = handle;
    args->lease_ms = lease_ms;
    return err;
}

static int ask_args(hf_lock *lock, hf_owner owner, enum hfi_question question,
                    struct hfi_op_args *args) {
    int err = lock_args(lock, &hfi_verb_ask, owner, args);
    args->question = question;
    if (err == HF_OK && question != HFI_ASK_COUNT)
        hfi_ask_the_lock(args);
    return err;
}

static int inspect_args(hf_lock *lock, hf_lock_info **ret_info, struct hfi_op_args *args) {
    if (ret_info == NULL)
        return hfi_invalid("no place for the answer");
    int err = lock_args(lock, &hfi_verb_inspect, 0, args);
    args->ret_info = ret_info;
    if (err == HF_OK)
        hfi_ask_the_lock(args);
    return err;
}

static int break_args(hf_lock *lock, struct hfi_op_args *args) {
    int err = lock_args(lock, &hfi_verb_force, 0, args);
    if (err == HF_OK)
        hfi_ask_the_lock(args);
    return err;
}

static int facts_args(hf_lock *lock, hf_facts **ret_facts, struct hfi_op_args *args) {
    if (ret_facts == NULL)
        return hfi_invalid("no place for the answer");
    int err = lock_args(lock, &hfi_verb_facts, 0, args);
    args->ret_facts = ret_facts;
    if (err == HF_OK)
        hfi_ask_the_lock(args);
    return err;
}

/* ---- Synchronous ---- */

static int acquire(hf_lock *lock, const hf_acquire_options *options, hf_result *ret) {
    struct hfi_op_args args;
    int err = acquire_args(lock, options, false, &args);
    return err != HF_OK ? err : hfi_run_sync(lock->handle.client, &args, ret);
}

int hf_lock_acquire_with(hf_lock *lock, const hf_acquire_options *options, hf_result *ret) {
    hf_error error;
    int err = hfi_sized_check(&hfi_sized_result, ret, &error);
    return err != HF_OK ? hfi_remember(err, &error) : acquire(lock, options, ret);
}

int hf_lock_acquire_for(hf_lock *lock, int64_t wait_ms) {
    hf_acquire_options options = HF_ACQUIRE_INIT;
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

int hf_lock_adopt(hf_lock *lock, const char *handle, int64_t lease_ms, hf_result *ret) {
    struct hfi_op_args args;
    hf_error error;
    int err = hfi_sized_check(&hfi_sized_result, ret, &error);
    if (err != HF_OK)
        return hfi_remember(err, &error);
    err = adopt_args(lock, handle, lease_ms, &args);
    return err != HF_OK ? err : hfi_run_sync(lock->handle.client, &args, ret);
}

int hf_lock_break(hf_lock *lock, bool *ret_broken) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(lock), break_args(lock, &args), &args, ret_broken);
}

static int ask(hf_lock *lock, hf_owner owner, enum hfi_question question, int64_t *ret_value) {
    struct hfi_op_args args;
    return hfi_run_number(handle_of(lock), ask_args(lock, owner, question, &args), &args,
                          ret_value);
}

static int ask_bool(hf_lock *lock, hf_owner owner, enum hfi_question question, bool *ret) {
    struct hfi_op_args args;
    return hfi_run_done(handle_of(lock), ask_args(lock, owner, question, &args), &args, ret);
}

int hf_lock_is_locked(hf_lock *lock, bool *ret_locked) {
    return ask_bool(lock, 0, HFI_ASK_LOCKED, ret_locked);
}

int hf_lock_is_mine_as(hf_lock *lock, hf_owner owner, bool *ret_mine) {
    return ask_bool(lock, owner, HFI_ASK_COUNT, ret_mine);
}

int hf_lock_is_mine(hf_lock *lock, bool *ret_mine) {
    return hf_lock_is_mine_as(lock, 0, ret_mine);
}

int hf_lock_hold_count_as(hf_lock *lock, hf_owner owner, int64_t *ret_count) {
    return ask(lock, owner, HFI_ASK_COUNT, ret_count);
}

int hf_lock_hold_count(hf_lock *lock, int64_t *ret_count) {
    return hf_lock_hold_count_as(lock, 0, ret_count);
}

int hf_lock_ttl_ms(hf_lock *lock, int64_t *ret_ttl_ms) {
    return ask(lock, 0, HFI_ASK_TTL, ret_ttl_ms);
}

int hf_lock_inspect(hf_lock *lock, hf_lock_info **ret_info) {
    struct hfi_op_args args;
    return hfi_run(handle_of(lock), inspect_args(lock, ret_info, &args), &args);
}

int hf_lock_facts(hf_lock *lock, hf_facts **ret_facts) {
    struct hfi_op_args args;
    return hfi_run(handle_of(lock), facts_args(lock, ret_facts, &args), &args);
}

void hf_facts_free(hf_facts *facts) {
    hfi_facts_free(facts);
}

static void free_list(hf_holder **list, size_t len) {
    for (size_t i = 0; i < len; i++) {
        free(list[i]->owner);
        free(list[i]->connection);
        free(list[i]);
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
    if (lock == NULL || hfi_enter(lock->handle.client, &entry) != HF_OK)
        return false;
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
    return held;
}

int64_t hf_lock_remaining_ms_as(hf_lock *lock, hf_owner owner) {
    int64_t deadline_ms, token;
    if (!look_at_hold(lock, owner, &deadline_ms, &token))
        return 0;
    return hfi_left_ms(deadline_ms);
}

int64_t hf_lock_remaining_ms(hf_lock *lock) {
    return hf_lock_remaining_ms_as(lock, 0);
}

int hf_lock_token_as(hf_lock *lock, hf_owner owner, int64_t *ret_token) {
    int64_t deadline_ms, token;
    if (lock == NULL || ret_token == NULL)
        return hfi_invalid("no lock, or no place for the token");
    if (!lock->handle.kind->token)
        return hfi_remember(HF_ENOTSUP, NULL);
    if (!look_at_hold(lock, owner, &deadline_ms, &token) || token == 0)
        return hfi_remember(HF_ENOTOWNER, NULL); /* or held, but never through a fenced handle */
    *ret_token = token;
    return HF_OK;
}

int hf_lock_token(hf_lock *lock, int64_t *ret_token) {
    return hf_lock_token_as(lock, 0, ret_token);
}

/* ---- Asynchronous ---- */

int hf_lock_acquire_start(hf_lock *lock, const hf_acquire_options *options, hf_callback callback,
                          void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), acquire_args(lock, options, true, &args), &args, callback,
                     user, ret_op);
}

int hf_lock_release_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                          hf_op **ret_op) {
    struct hfi_op_args args;
    int err = check_named(owner);
    if (err == HF_OK)
        err = lock_args(lock, &hfi_verb_release, owner, &args);
    return hfi_start(handle_of(lock), err, &args, callback, user, ret_op);
}

int hf_lock_extend_start(hf_lock *lock, hf_owner owner, int64_t lease_ms, hf_callback callback,
                         void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    int err = check_named(owner);
    if (err == HF_OK)
        err = extend_args(lock, owner, lease_ms, &args);
    return hfi_start(handle_of(lock), err, &args, callback, user, ret_op);
}

int hf_lock_adopt_start(hf_lock *lock, const char *handle, int64_t lease_ms, hf_callback callback,
                        void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), adopt_args(lock, handle, lease_ms, &args), &args, callback,
                     user, ret_op);
}

int hf_lock_break_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), break_args(lock, &args), &args, callback, user, ret_op);
}

int hf_lock_is_locked_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), ask_args(lock, 0, HFI_ASK_LOCKED, &args), &args, callback,
                     user, ret_op);
}

/* How many times the owner holds it, or only whether it does. */
static int count_start(hf_lock *lock, hf_owner owner, bool yes_or_no, hf_callback callback,
                       void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    int err = check_named(owner);
    if (err == HF_OK)
        err = ask_args(lock, owner, HFI_ASK_COUNT, &args);
    args.yes_or_no = yes_or_no;
    return hfi_start(handle_of(lock), err, &args, callback, user, ret_op);
}

int hf_lock_is_mine_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                          hf_op **ret_op) {
    return count_start(lock, owner, true, callback, user, ret_op);
}

int hf_lock_hold_count_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                             hf_op **ret_op) {
    return count_start(lock, owner, false, callback, user, ret_op);
}

int hf_lock_ttl_ms_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), ask_args(lock, 0, HFI_ASK_TTL, &args), &args, callback, user,
                     ret_op);
}

int hf_lock_inspect_start(hf_lock *lock, hf_lock_info **ret_info, hf_callback callback, void *user,
                          hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), inspect_args(lock, ret_info, &args), &args, callback, user,
                     ret_op);
}

int hf_lock_facts_start(hf_lock *lock, hf_facts **ret_facts, hf_callback callback, void *user,
                        hf_op **ret_op) {
    struct hfi_op_args args;
    return hfi_start(handle_of(lock), facts_args(lock, ret_facts, &args), &args, callback, user,
                     ret_op);
}
