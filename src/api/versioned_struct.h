/*
 * The structs of the public header that begin with `size_t size`, so that they can grow. A caller's
 * struct may be older or newer than the one that this library was compiled with.
 */
#ifndef HFI_API_VERSIONED_STRUCT_H
#define HFI_API_VERSIONED_STRUCT_H

#include <holdfast/holdfast.h>

#include <stddef.h>

/* One such struct. */
struct hfi_versioned {
    const char *name, *init; /* for messages */
    size_t size;             /* as this library knows it */
    size_t least;            /* a smaller size is invalid */
};

extern const struct hfi_versioned hfi_versioned_options, hfi_versioned_lock_options,
    hfi_versioned_acquire_options, hfi_versioned_wait_options, hfi_versioned_permits_options,
    hfi_versioned_result, hfi_versioned_extend_options, hfi_versioned_stats,
    hfi_versioned_survey_options;

/* All accept NULL for `given` or `ret`: the caller uses the defaults, or does not want the output.
 * HF_OK, or HF_EINVAL with the text in `error`. */

/* In: copies what the caller has set over `own`, which has the defaults. */
int hfi_versioned_read(const struct hfi_versioned *as, const void *given, void *own,
                       hf_error *error);
/* Out: before anything is done, checks whether `given` can be written. */
int hfi_versioned_check(const struct hfi_versioned *as, const void *given, hf_error *error);
/* Out: writes as much as the caller has room for, and sets its size. */
void hfi_versioned_write(const struct hfi_versioned *as, const void *own, void *ret);

#endif
