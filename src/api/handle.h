/*
 * A handle, on a lock, a semaphore, permits or a latch: they are one struct, and differ in a small
 * table and in their verbs. Does not change between new and free, but for its ear and its diary, so any
 * thread may use it.
 */
#ifndef HFI_API_HANDLE_H
#define HFI_API_HANDLE_H

#include "api/client.h"

struct hfi_handle;

/* What a handle's owner wants called: one of the two, or none. */
struct hfi_on_lost {
    hf_event_fn lock;
    hf_permit_event_fn permit;
    void *user;
};

/* The part of a handle that hears of trouble with the holds on its name. Guarded by the client's
 * handles_mtx. */
struct hfi_ear {
    struct hfi_link link; /* in client->ears */
    struct hfi_on_lost on_lost;
    int lost_fd;
    uint64_t told_round;
};

/* What differs. */
struct hfi_handle_type {
    const char *needs; /* what to say if there is no client, or no name */
    /* The table of what the handle is on; NULL: the engine does not offer it. `options` are those of
     * a lock, for which alone they matter. */
    const struct hfi_kind *(*find)(struct hfi_engine *engine, const hf_lock_options *options);
    /* Calls the handle's callback; no mutex is held. The callback may free the handle. NULL: what
     * nobody holds cannot be lost. */
    void (*tell)(struct hfi_handle *handle, const struct hfi_on_lost *on_lost, const char *owner,
                 const hf_event *event);
};

struct hfi_handle {
    const struct hfi_handle_type *type;
    hf_client *client; /* referenced */
    const struct hfi_kind *kind;
    struct hfi_backoff spin; /* locks */
    struct hfi_parts *parts; /* referenced: what a lock of several is made of; else NULL */
    struct hfi_ear ear;
    struct hfi_diary_slot diary;
    size_t name_len;
    char *name; /* behind the struct, in the same allocation; a NUL follows it, and its stem */
};

/* What the public header shows of it. */
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
/* One of which only the client, the name and the ear are filled in. NULL: out of memory. */
struct hfi_handle *hfi_handle_allocate(hf_client *client, const void *name, size_t name_len);
/* NULL is fine. Waits until a callback that is running has returned, unless it is inside one. In a
 * forked child the memory stays: a mutex may have been held when the process forked. */
void hfi_handle_free(struct hfi_handle *handle);
const char *hfi_handle_name(const struct hfi_handle *handle, size_t *ret_len);

/* HF_EINVAL with words, remembered. */
int hfi_invalid(const char *why);

/* The arguments of an operation, all zero but for these. All return HF_OK, or an error that is
 * remembered; so they can be handed on to run and start below. */
int hfi_handle_args(struct hfi_handle *handle, const struct hfi_verb *verb,
                    struct hfi_op_args *args);
int hfi_act_args(struct hfi_handle *handle, enum hfi_act act, int64_t amount,
                 struct hfi_op_args *args);
/* Adds the options of a wait; NULL: the defaults. */
int hfi_wait_args(struct hfi_handle *handle, const struct hfi_verb *verb,
                  const hf_wait_options *given, struct hfi_op_args *args);
/* Refuses a wait that is none. */
int hfi_check_wait(int64_t wait_ms);

/* Runs it on this thread, unless `err` says that the arguments were wrong. The value of the result
 * goes to *ret_value or *ret_done, which may be NULL. */
int hfi_run_number(struct hfi_handle *handle, int err, struct hfi_op_args *args,
                   int64_t *ret_value);
int hfi_run_done(struct hfi_handle *handle, int err, struct hfi_op_args *args, bool *ret_done);
int hfi_run(struct hfi_handle *handle, int err, struct hfi_op_args *args);

/* Starts it. */
int hfi_start(struct hfi_handle *handle, int err, struct hfi_op_args *args, hf_callback callback,
              void *user, hf_op **ret_op);

/* ---- cohort.c ---- */

/* Whether the options of a lock, which may be wrong, have HF_COHORT. NULL: they have not. */
bool hfi_wants_cohort(const hf_lock_options *options);
/* Makes a handle with it. */
int hfi_cohort_handle_new(hf_client *client, const void *name, size_t name_len,
                          const hf_lock_options *options, struct hfi_handle **ret_handle);
bool hfi_handle_is_cohort(const struct hfi_handle *handle);
/* What is asked of a lock whoever is inside: of a cohort's it is the one that the server knows. */
void hfi_ask_the_lock(struct hfi_op_args *args);

/* lock.c: what any handle on a lock tells. */
void hfi_lock_tell(struct hfi_handle *handle, const struct hfi_on_lost *on_lost, const char *owner,
                   const hf_event *event);

/* ---- ears.c ---- */

/* The core's hooks. */
bool hfi_trouble(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                 hf_event_kind event);
void hfi_tell(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
              const char *owner, const hf_event *event);
/* Sets the handle's callback, or none: then it waits until one that is running has returned. NULL
 * for the handle is an error. */
int hfi_ear_set(struct hfi_handle *handle, const struct hfi_on_lost *on_lost);
/* Its descriptor, made when it is first asked for; or an error. */
int hfi_ear_fd(struct hfi_handle *handle);
/* The handle ends. */
void hfi_ear_end(struct hfi_handle *handle);
void hfi_ear_close_fd(struct hfi_handle *handle); /* in a forked child, nothing else */

#endif
