/*
 * What the handles of semaphores, permits and latches have in common. Each is a struct that starts
 * with a hfi_handle.
 */
#ifndef HFI_API_THING_H
#define HFI_API_THING_H

#include "api/client.h"

struct hfi_handle {
    hf_client *client; /* referenced */
    const struct hfi_kind *kind;
    size_t name_len;
    char *name; /* behind the struct, in the same allocation */
};

/* Makes a handle of `size` bytes, zeroed behind its first member. Remembers the error. */
int hfi_handle_new(hf_client *client, enum hfi_thing thing, const void *name, size_t name_len,
                   size_t size, struct hfi_handle **ret_handle);
/* NULL is fine. In a forked child the memory stays. */
void hfi_handle_free(struct hfi_handle *handle);

/* HF_EINVAL with words, remembered. */
int hfi_invalid(const char *why);

/* The arguments of an operation, all zero but for these. All return HF_OK, or an error that is
 * remembered; so they can be handed on to run and start below. */
int hfi_handle_args(struct hfi_handle *handle, const struct hfi_verb *verb,
                    struct hfi_op_args *args);
int hfi_act_args(struct hfi_handle *handle, enum hfi_act act, int64_t amount,
                 struct hfi_op_args *args);
/* Adds the options of a wait, whatever version of the struct the caller was compiled with; NULL:
 * the defaults. */
int hfi_wait_args(struct hfi_handle *handle, const struct hfi_verb *verb,
                  const hf_wait_options *given, struct hfi_op_args *args);

/* Runs it on this thread, unless `err` says that the arguments were wrong. The value of the result
 * goes to *ret_value or *ret_done, which may be NULL. */
int hfi_run_number(struct hfi_handle *handle, int err, struct hfi_op_args *args,
                   int64_t *ret_value);
int hfi_run_done(struct hfi_handle *handle, int err, struct hfi_op_args *args, bool *ret_done);
int hfi_run(struct hfi_handle *handle, int err, struct hfi_op_args *args);

/* Starts it. */
int hfi_start(struct hfi_handle *handle, int err, struct hfi_op_args *args, hf_callback callback,
              void *user, hf_op **ret_op);

#endif
