/*
 * A handle, on a lock, a semaphore, permits or a latch: one struct; they differ in a small table
 * and in their verbs. Immutable between new and free, except for its loss listener and its name
 * statistics, so any thread may use it.
 */
#ifndef HFI_API_HANDLE_H
#define HFI_API_HANDLE_H

#include "api/client.h"

struct hfi_handle;

/* The handle's callback: one of the two, or none. */
struct hfi_on_lost {
    hf_event_fn lock;
    hf_permit_event_fn permit;
    void *user;
};

/* The part of a handle that receives loss notifications for holds on its name. Guarded by the
 * client's handles_mtx. */
struct hfi_loss_listener {
    struct hfi_link link; /* in client->loss_listeners */
    struct hfi_on_lost on_lost;
    int lost_fd;
    uint64_t notified_round;
};

/* What differs. */
struct hfi_handle_type {
    const char *needs; /* error text if there is no client, or no name */
    /* The table of the kind or object; NULL: not offered by the engine. Only locks use
     * `options`. */
    const struct hfi_kind *(*find)(struct hfi_engine *engine, const hf_lock_options *options);
    /* Calls the handle's callback; no mutex is held. The callback may free the handle. NULL: an
     * ownerless object cannot be lost. */
    void (*run_callback)(struct hfi_handle *handle, const struct hfi_on_lost *on_lost,
                         const char *owner, const hf_event *event);
};

struct hfi_handle {
    const struct hfi_handle_type *type;
    hf_client *client; /* referenced */
    const struct hfi_kind *kind;
    struct hfi_backoff spin; /* locks */
    struct hfi_parts *parts; /* referenced: the parts of a joint lock; else NULL */
    struct hfi_loss_listener loss_listener;
    struct hfi_name_stats_ref name_stats;
    size_t name_len;
    char *name; /* behind the struct, in the same allocation; a NUL follows it, and its stem */
};

/* The opaque types of the public header. */
struct hf_lock {
    struct hfi_handle handle;
};
struct hf_sem {
    struct hfi_handle handle;
};
struct hf_permits {
    struct hfi_handle handle;
};
struct hf_latch {
    struct hfi_handle handle;
};

/* Makes one. `options` NULL: the defaults. HF_OK, or an error that is remembered. */
int hfi_handle_new(hf_client *client, const struct hfi_handle_type *type, const void *name,
                   size_t name_len, const hf_lock_options *options, struct hfi_handle **ret_handle);
/* One with only the client, the name and the loss listener filled in. NULL: out of memory. */
struct hfi_handle *hfi_handle_allocate(hf_client *client, const void *name, size_t name_len);
/* NULL is fine. Waits until a running callback has returned, unless called inside one. In a forked
 * child the memory stays: a mutex may have been locked at the fork. */
void hfi_handle_free(struct hfi_handle *handle);
const char *hfi_handle_name(const struct hfi_handle *handle, size_t *ret_len);

/* HF_EINVAL with this text, remembered. */
int hfi_invalid(const char *why);

/* The arguments of an operation, all zero but for these. Each returns HF_OK, or an error that is
 * remembered; so the result can be passed to run and start below. */
int hfi_handle_args(struct hfi_handle *handle, const struct hfi_verb *verb,
                    struct hfi_op_args *args);
int hfi_object_op_args(struct hfi_handle *handle, enum hfi_object_op object_op, int64_t amount,
                       struct hfi_op_args *args);
/* Adds the options of a wait; NULL: the defaults. */
int hfi_wait_args(struct hfi_handle *handle, const struct hfi_verb *verb,
                  const hf_wait_options *given, struct hfi_op_args *args);
/* Refuses an invalid wait. */
int hfi_check_wait(int64_t wait_ms);

/* Runs it on this thread, unless `err` is set. The value of the result goes to *ret_value or
 * *ret_done, which may be NULL. */
int hfi_run_number(struct hfi_handle *handle, int err, struct hfi_op_args *args,
                   int64_t *ret_value);
int hfi_run_done(struct hfi_handle *handle, int err, struct hfi_op_args *args, bool *ret_done);
int hfi_run(struct hfi_handle *handle, int err, struct hfi_op_args *args);

/* Starts it. */
int hfi_start(struct hfi_handle *handle, int err, struct hfi_op_args *args, hf_op_fn callback,
              void *user, hf_op **ret_op);

/* ---- cohort.c ---- */

/* Whether the options of a lock, which may be invalid, have HF_COHORT. NULL: they have not. */
bool hfi_wants_cohort(const hf_lock_options *options);
/* Makes a handle with it. */
int hfi_cohort_handle_new(hf_client *client, const void *name, size_t name_len,
                          const hf_lock_options *options, struct hfi_handle **ret_handle);
bool hfi_handle_is_cohort(const struct hfi_handle *handle);
/* For operations that do not depend on the caller's owner: redirects them to the lock that the
 * server knows. Of a cohort that is its part. */
void hfi_ask_the_lock(struct hfi_op_args *args);

/* lock.c: calls the callback of any handle on a lock. */
void hfi_lock_run_callback(struct hfi_handle *handle, const struct hfi_on_lost *on_lost,
                           const char *owner, const hf_event *event);

/* ---- loss_notify.c ---- */

/* The core's hooks. */
bool hfi_loss_kind(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                   hf_event_kind event);
void hfi_loss_run_callbacks(void *arg, const struct hfi_kind *kind, const char *name,
                            size_t name_len, const char *owner, const hf_event *event);
/* Sets the handle's callback, or none: then it waits until a running one has returned. NULL for the
 * handle is an error. */
int hfi_loss_listener_set(struct hfi_handle *handle, const struct hfi_on_lost *on_lost);
/* Its descriptor, made on first use; or an error. */
int hfi_loss_listener_fd(struct hfi_handle *handle);
/* The handle ends. */
void hfi_loss_listener_end(struct hfi_handle *handle);
void hfi_loss_listener_close_fd(struct hfi_handle *handle); /* in a forked child, nothing else */

/* ---- permit_ids.c ---- */

#define HFI_PERMITS_COUNT_MAX 1000
#define HFI_PERMIT_TEXT_LEN (2 * HFI_ID_LEN)

/* An operation copies its ids, so they are needed only while it is made. A single id needs no
 * allocation. */
struct hfi_permit_ids {
    const struct hfi_mem *mem;
    unsigned char *bytes;
    unsigned char one[HFI_ID_LEN];
};

/* Both return HF_OK or an error that is remembered. hfi_permit_ids_free() follows in any case. */
int hfi_permit_ids_draw(hf_permits *permits, size_t len, struct hfi_permit_ids *ids);
int hfi_permit_ids_read(hf_permits *permits, const hf_permit_id *given, size_t len,
                        struct hfi_permit_ids *ids);
void hfi_permit_ids_free(struct hfi_permit_ids *ids);

#endif
