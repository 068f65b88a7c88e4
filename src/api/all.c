/*
 * Making a joint lock. From then on it is a lock like any other: lock.c.
 *
 * Here members are checked, sorted and copied, on the caller's thread; how they are held together
 * is in src/joint/multi/all.c. Its client is the first member's.
 */
#include "joint/multi/all.h"
#include "api/handle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TAIL_LEN 17 /* of its name: a zero byte, and 16 digits */

static const struct hfi_handle_type type = {.needs = "a multi-lock needs at least one member",
                                            .run_callback = hfi_lock_run_callback};

/* ---- Members ---- */

struct members {
    size_t len;
    struct hfi_part of[HF_MULTI_MAX];
};

static bool add(struct members *members, const struct hfi_part *part) {
    if (members->len == HF_MULTI_MAX)
        return false;
    members->of[members->len++] = *part;
    return true;
}

/* A member that is a joint lock itself counts as its members. */
static bool add_handle(struct members *members, const struct hfi_handle *handle) {
    const struct hfi_part one = {.core = &handle->client->core,
                                 .kind = handle->kind,
                                 .spin = handle->spin,
                                 .name = handle->name,
                                 .name_len = handle->name_len};
    if (handle->parts == NULL)
        return add(members, &one);
    for (size_t i = 0; i < handle->parts->len; i++)
        if (!add(members, &handle->parts->of[i]))
            return false;
    return true;
}

static int compare_bytes(const char *a, size_t a_len, const char *b, size_t b_len) {
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

/* Client, part, name: any order will do, as long as it is the same in the whole process. */
static int compare_members(const struct hfi_part *a, const struct hfi_part *b) {
    int order = strcmp(a->core->id, b->core->id);
    if (order == 0)
        order = strcmp(hfi_kind_part(a->kind), hfi_kind_part(b->kind));
    return order != 0 ? order : compare_bytes(a->name, a->name_len, b->name, b->name_len);
}

static void put_in_order(struct hfi_parts *parts) {
    for (size_t i = 0; i < parts->len; i++) {
        size_t at = i;
        for (; at > 0 && compare_members(&parts->of[parts->order[at - 1]], &parts->of[i]) > 0; at--)
            parts->order[at] = parts->order[at - 1];
        parts->order[at] = (unsigned char)i;
    }
}

/* An owner would block itself. */
static bool collide(const struct hfi_part *a, const struct hfi_part *b) {
    if (a->core != b->core)
        return false;
    if (a->kind == b->kind && a->kind->overlap != NULL)
        return a->kind->overlap(a->name, a->name_len, b->name, b->name_len);
    return compare_bytes(a->name, a->name_len, b->name, b->name_len) == 0;
}

static bool is_any_twice(const struct members *members) {
    for (size_t i = 0; i < members->len; i++)
        for (size_t j = 0; j < i; j++)
            if (collide(&members->of[i], &members->of[j]))
                return true;
    return false;
}

/* Its client is open, and belongs to this process. */
static int check_client(hf_lock *lock) {
    struct hfi_entry entry;
    int err = hfi_enter(lock->handle.client, &entry);
    if (err == HF_OK)
        hfi_leave(lock->handle.client, &entry);
    return hfi_remember(err, NULL);
}

/* The owner of the joint lock holds its members, but the owner of a cohort is the process. */
static int refuse_cohort(void) {
    hf_error error;
    hfi_error_clear(&error);
    return hfi_remember(hfi_fail(&error, HF_ENOTSUP, "a multi-lock cannot have HF_COHORT members"),
                        &error);
}

static int gather(hf_lock *const *locks, size_t len, struct members *members) {
    for (size_t i = 0; i < len; i++) {
        if (locks[i] == NULL)
            return hfi_invalid("one of the members is NULL");
        int err = check_client(locks[i]);
        if (err != HF_OK)
            return err;
        if (hfi_handle_is_cohort(&locks[i]->handle))
            return refuse_cohort();
        if (!add_handle(members, &locks[i]->handle))
            return hfi_invalid("a multi-lock can have at most 64 members");
    }
    if (is_any_twice(members))
        return hfi_invalid("a member is listed twice in a multi-lock");
    return HF_OK;
}

/* ---- Its name ---- */

static size_t stem_len(const struct hfi_part *part) {
    return hfi_kind_stem_len(part->kind, part->name, part->name_len);
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t len) {
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
    return hash;
}

/* Joint locks whose joined names look alike are not the same, nor are those of other clients. */
static uint64_t identity(const struct members *members) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < members->len; i++) {
        const struct hfi_part *part = &members->of[i];
        const char *side = hfi_kind_part(part->kind);
        hash = mix(hash, part->core->id, sizeof part->core->id);
        hash = mix(hash, side, strlen(side) + 1);
        hash = mix(hash, &part->name_len, sizeof part->name_len);
        hash = mix(hash, part->name, part->name_len);
    }
    return hash;
}

static size_t name_len(const struct members *members) {
    size_t len = TAIL_LEN;
    for (size_t i = 0; i < members->len; i++)
        len += (i > 0) + stem_len(&members->of[i]);
    return len;
}

/* Needs a byte more, for snprintf's NUL. */
static void write_name(const struct members *members, char *to) {
    for (size_t i = 0; i < members->len; i++) {
        size_t len = stem_len(&members->of[i]);
        if (i > 0)
            *to++ = ' ';
        memcpy(to, members->of[i].name, len);
        to += len;
    }
    *to++ = '\0';
    snprintf(to, TAIL_LEN, "%016" PRIx64, identity(members));
}

/* ---- The handle ---- */

static int make(hf_client *client, const struct members *members, struct hfi_handle **ret_handle) {
    size_t len = name_len(members);
    char *name = hfi_alloc(&client->mem, len + 1);
    if (name == NULL)
        return HF_ENOMEM;
    write_name(members, name);
    struct hfi_parts *parts = hfi_parts_new(&client->mem, members->of, members->len);
    struct hfi_handle *handle = NULL;
    if (parts != NULL)
        handle = hfi_handle_allocate(client, name, len);
    hfi_free(&client->mem, name);
    if (handle == NULL) {
        hfi_parts_unref(parts);
        return HF_ENOMEM;
    }
    handle->type = &type;
    handle->kind = &hfi_kind_all;
    handle->parts = parts;
    put_in_order(parts);
    *ret_handle = handle;
    return HF_OK;
}

int hf_lock_new_multi(hf_lock *const *locks, size_t len, hf_lock **ret_lock) {
    struct members members = {.len = 0};
    struct hfi_handle *handle;
    struct hfi_entry entry;
    if (locks == NULL || len == 0)
        return hfi_invalid(type.needs);
    if (ret_lock == NULL)
        return hfi_invalid("the pointer for the new handle is NULL");
    int err = gather(locks, len, &members);
    if (err != HF_OK)
        return err;
    hf_client *client = locks[0]->handle.client;
    err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return hfi_remember(err, NULL);
    err = make(client, &members, &handle);
    hfi_leave(client, &entry);
    if (err == HF_OK)
        *ret_lock = HFI_CONTAINER(handle, hf_lock, handle);
    return hfi_remember(err, NULL);
}
