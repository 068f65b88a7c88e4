/*
 * Making a lock on some values of a group. From then on it is a lock like any other: lock.c.
 *
 * The engine decides how the values are stored at the server. Here they are only checked, on the
 * caller's thread.
 */
#include "api/handle.h"

static const struct hfi_kind *find(struct hfi_engine *engine, const hf_lock_options *options) {
    (void)options;
    return engine->ops->group != NULL ? engine->ops->group(engine) : NULL;
}

static const struct hfi_handle_type type = {.needs = "a group lock needs a client and a group name",
                                            .find = find,
                                            .run_callback = hfi_lock_run_callback};

static bool are_values(const hf_bytes *values, size_t len) {
    if (values == NULL || len == 0 || len > HF_GROUP_VALUES_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (values[i].bytes == NULL && values[i].len > 0)
            return false;
    return true;
}

/* Writes the name of such a lock to memory of the client's. HF_OK, or an error that is
 * remembered. */
static int name_values(hf_client *client, const void *group, size_t group_len,
                       const hf_bytes *values, size_t values_len, char **ret_name,
                       size_t *ret_len) {
    struct hfi_entry entry;
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    const struct hfi_kind *kind = find(client->core.engine, NULL);
    char *name = NULL;
    if (kind == NULL)
        err = HF_ENOTSUP;
    else if ((name = hfi_alloc(&client->mem, kind->name_values(group, group_len, values, values_len,
                                                               NULL))) == NULL)
        err = HF_ENOMEM;
    if (err == HF_OK) {
        *ret_len = kind->name_values(group, group_len, values, values_len, name);
        *ret_name = name;
    }
    hfi_leave(client, &entry);
    return hfi_remember(err, NULL);
}

int hf_lock_new_group(hf_client *client, const void *group, size_t group_len,
                      const hf_bytes *values, size_t values_len, hf_lock **ret_lock) {
    struct hfi_handle *handle;
    char *name = NULL;
    size_t name_len = 0;
    if (client == NULL || group == NULL || group_len == 0)
        return hfi_invalid(type.needs);
    if (ret_lock == NULL)
        return hfi_invalid("the pointer for the new handle is NULL");
    if (!are_values(values, values_len))
        return hfi_invalid("a group lock needs 1 to 1000 values");
    int err = name_values(client, group, group_len, values, values_len, &name, &name_len);
    if (err != HF_OK)
        return err;
    err = hfi_handle_new(client, &type, name, name_len, NULL, &handle);
    hfi_free(&client->mem, name);
    if (err == HF_OK)
        *ret_lock = HFI_CONTAINER(handle, hf_lock, handle);
    return err;
}
