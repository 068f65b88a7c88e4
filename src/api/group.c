/*
 * Making a lock of some values of a group. From then on it is a lock like any other: lock.c.
 *
 * What the values are called at the server is the engine's business. Here they are only checked, on
 * the caller's thread.
 */
#include "api/client.h"

static bool are_values(const hf_bytes *values, size_t len) {
    if (values == NULL || len == 0 || len > HF_VALUES_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (values[i].bytes == NULL && values[i].len > 0)
            return false;
    return true;
}

static int make(hf_client *client, const void *group, size_t group_len, const hf_bytes *values,
                size_t values_len, hf_lock **ret_lock, hf_error *error) {
    struct hfi_engine *engine = client->core.engine;
    const struct hfi_kind *kind = engine->ops->group != NULL ? engine->ops->group(engine) : NULL;
    if (kind == NULL)
        return hfi_fail(error, HF_ENOTSUP, "groups of values are not offered here");
    char *name =
        hfi_alloc(&client->mem, kind->name_values(group, group_len, values, values_len, NULL));
    if (name == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    size_t name_len = kind->name_values(group, group_len, values, values_len, name);
    int err = hfi_lock_make(client, kind, name, name_len, ret_lock, error);
    hfi_free(&client->mem, name);
    return err;
}

int hf_lock_new_group(hf_client *client, const void *group, size_t group_len,
                      const hf_bytes *values, size_t values_len, hf_lock **ret_lock) {
    hf_error error;
    struct hfi_entry entry;
    hfi_error_clear(&error);
    if (client == NULL || group == NULL || group_len == 0 || ret_lock == NULL)
        return hfi_remember(
            hfi_fail(&error, HF_EINVAL, "a lock of values needs a client and a group"), &error);
    if (!are_values(values, values_len))
        return hfi_remember(
            hfi_fail(&error, HF_EINVAL, "a lock of values needs 1 to %d values", HF_VALUES_MAX),
            &error);
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    err = make(client, group, group_len, values, values_len, ret_lock, &error);
    hfi_leave(client, &entry);
    return hfi_remember(err, &error);
}
