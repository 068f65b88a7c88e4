/*
 * The structs of the public header that begin with `size_t size`, so that they can grow: what a
 * caller gives may be older or newer than what this library was compiled with.
 */
#ifndef HFI_API_SIZED_H
#define HFI_API_SIZED_H

#include <holdfast/holdfast.h>

#include <stddef.h>

/* One such struct. */
struct hfi_sized {
    const char *name, *init; /* for messages */
    size_t size;             /* as this library knows it */
    size_t least;            /* less than this cannot have been meant */
};

extern const struct hfi_sized hfi_sized_options, hfi_sized_lock_options, hfi_sized_acquire_options,
    hfi_sized_wait_options, hfi_sized_permits_options, hfi_sized_result, hfi_sized_stats,
    hfi_sized_survey_options;

/* All take NULL for `given` or `ret`: the caller does not want to say, or to know. HF_OK or
 * HF_EINVAL, and then `error` has the words. */

/* In: copies what the caller has set over `own`, which has the defaults. */
int hfi_sized_read(const struct hfi_sized *as, const void *given, void *own, hf_error *error);
/* Out: before anything is done, whether what was given can be written. */
int hfi_sized_check(const struct hfi_sized *as, const void *given, hf_error *error);
/* Out: writes as much as the caller has room for, and how much that was. */
void hfi_sized_write(const struct hfi_sized *as, const void *own, void *ret);

#endif
