/*
 * Making a lock that threads of one process pass on among themselves (HF_COHORT). From then on it
 * is a lock like any other: lock.c.
 *
 * Here the options are checked, and the cohort of the name is found, on the caller's thread; the
 * cohort itself is src/joint/cohort/cohort.c.
 */
#include "joint/cohort/cohort.h"
#include "api/handle.h"
#include "api/versioned_struct.h"

#define PASSES_MAX 1000000
#define MS_MAX 60000

static const struct hfi_handle_type type = {.needs = "a lock needs a client and a name",
                                            .run_callback = hfi_lock_run_callback};

bool hfi_wants_cohort(const hf_lock_options *options) {
    hf_lock_options own = HF_LOCK_OPTIONS_INIT;
    hf_error error;
    return hfi_versioned_read(&hfi_versioned_lock_options, options, &own, &error) == HF_OK &&
           (own.flags & HF_COHORT) != 0;
}

static int check(const hf_lock_options *options, hf_error *error) {
    if (options->flags & HF_FENCED)
        return hfi_fail(error, HF_ENOTSUP,
                        "HF_COHORT cannot be combined with HF_FENCED: passing the lock on within "
                        "the process draws no token");
    if (options->kind != HF_PLAIN && options->kind != HF_FAIR && options->kind != HF_STRING)
        return hfi_fail(error, HF_ENOTSUP, "HF_COHORT needs HF_PLAIN, HF_FAIR or HF_STRING");
    if (options->flags & ~(HF_COHORT | HF_NONREENTRANT))
        return hfi_fail(error, HF_ENOTSUP, "HF_COHORT can be combined with HF_NONREENTRANT only");
    if (options->cohort_passes < 1 || options->cohort_passes > PASSES_MAX)
        return hfi_fail(error, HF_EINVAL, "cohort_passes must be 1 to %d", PASSES_MAX);
    if (options->cohort_ms < 1 || options->cohort_ms > MS_MAX)
        return hfi_fail(error, HF_EINVAL, "cohort_ms must be 1 to %d", MS_MAX);
    return HF_OK;
}

static const struct hfi_kind *kind_of(const hf_lock_options *options) {
    bool once = (options->flags & HF_NONREENTRANT) != 0;
    if (options->kind == HF_FAIR)
        return once ? &hfi_kind_cohort_fair_once : &hfi_kind_cohort_fair;
    if (options->kind == HF_STRING)
        return once ? &hfi_kind_cohort_string_once : &hfi_kind_cohort_string;
    return once ? &hfi_kind_cohort_once : &hfi_kind_cohort;
}

/* The lock itself, as the server knows it: the cohort decides whether an owner nests. */
static int find_part(hf_client *client, const hf_lock_options *options, struct hfi_part *part,
                     hf_error *error) {
    struct hfi_engine *engine = client->core.engine;
    part->kind = engine->ops->kind(engine, options->kind, 0);
    if (part->kind == NULL)
        return hfi_fail(error, HF_ENOTSUP, "this kind of lock is not available on this server");
    return engine->ops->check_name(engine, part->kind, part->name, part->name_len, error);
}

static int make(hf_client *client, const struct hfi_part *part, const hf_lock_options *options,
                struct hfi_handle **ret_handle) {
    const struct hfi_cohort_limits limits = {options->cohort_passes, options->cohort_ms};
    /* with a queue the server lets other clients in by itself */
    bool yields = part->kind->queues || part->kind->ends_with_session;
    struct hfi_parts *parts = hfi_cohort_get(&client->cohorts, part, yields, &limits);
    if (parts == NULL)
        return HF_ENOMEM;
    struct hfi_handle *handle = hfi_handle_allocate(client, part->name, part->name_len);
    if (handle == NULL) {
        hfi_parts_unref(parts);
        return HF_ENOMEM;
    }
    handle->type = &type;
    handle->kind = kind_of(options);
    handle->parts = parts;
    *ret_handle = handle;
    return HF_OK;
}

int hfi_cohort_handle_new(hf_client *client, const void *name, size_t name_len,
                          const hf_lock_options *options, struct hfi_handle **ret_handle) {
    hf_lock_options own = HF_LOCK_OPTIONS_INIT;
    hf_error error;
    struct hfi_entry entry;
    if (client == NULL || name == NULL || name_len == 0)
        return hfi_invalid(type.needs);
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    hfi_error_clear(&error);
    struct hfi_part part = {.core = &client->core, .name = name, .name_len = name_len};
    err = hfi_versioned_read(&hfi_versioned_lock_options, options, &own, &error);
    if (err == HF_OK)
        err = check(&own, &error);
    if (err == HF_OK)
        err = find_part(client, &own, &part, &error);
    if (err == HF_OK)
        err = make(client, &part, &own, ret_handle);
    hfi_leave(client, &entry);
    return hfi_remember(err, &error);
}

bool hfi_handle_is_cohort(const struct hfi_handle *handle) {
    return handle->parts != NULL && handle->parts->cohort != NULL;
}

void hfi_ask_the_lock(struct hfi_op_args *args) {
    struct hfi_parts *parts = args->parts;
    if (parts == NULL || parts->cohort == NULL)
        return;
    args->kind = parts->of[0].kind;
    args->owner = parts->cohort->owner;
    args->parts = NULL;
}
