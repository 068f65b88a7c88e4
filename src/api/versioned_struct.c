/*
 * Structs that carry their size. Called by every function that takes or fills one, on the caller's
 * thread; stateless.
 *
 * A size that was never set is refused, not guessed. A size larger than ours comes from a program
 * that was compiled with a newer header. It is accepted as long as the new fields are zero, as the
 * initialisers leave them. An output is checked before anything is done, so that no lock is
 * acquired whose result could not be returned.
 */
#include "api/versioned_struct.h"

#include "base/error.h"

#include <string.h>

/* No struct of ours will ever be so large: such a size was not set by an initialiser. */
#define SIZE_LIMIT 4096

#define VERSIONED(type, initialiser, first_late_field)                                             \
    { #type, #initialiser, sizeof(type), offsetof(type, first_late_field) }

const struct hfi_versioned hfi_versioned_options = VERSIONED(hf_options, HF_OPTIONS_INIT, flags);
const struct hfi_versioned hfi_versioned_lock_options =
    VERSIONED(hf_lock_options, HF_LOCK_OPTIONS_INIT, spin_first_ms);
const struct hfi_versioned hfi_versioned_acquire_options =
    VERSIONED(hf_acquire_options, HF_ACQUIRE_OPTIONS_INIT, cancel);
const struct hfi_versioned hfi_versioned_extend_options =
    VERSIONED(hf_extend_options, HF_EXTEND_OPTIONS_INIT, mode);
const struct hfi_versioned hfi_versioned_wait_options =
    VERSIONED(hf_wait_options, HF_WAIT_OPTIONS_INIT, cancel);
const struct hfi_versioned hfi_versioned_permits_options =
    VERSIONED(hf_permits_options, HF_PERMITS_OPTIONS_INIT, cancel);
const struct hfi_versioned hfi_versioned_result = VERSIONED(hf_result, HF_RESULT_INIT, owner);
const struct hfi_versioned hfi_versioned_survey_options =
    VERSIONED(hf_survey_options, HF_SURVEY_OPTIONS_INIT, limit_ms);
const struct hfi_versioned hfi_versioned_stats = VERSIONED(hf_stats, HF_STATS_INIT, contended);

static size_t size_of(const void *given) {
    return *(const size_t *)given;
}

static bool is_zero(const char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

int hfi_versioned_check(const struct hfi_versioned *as, const void *given, hf_error *error) {
    if (given == NULL || size_of(given) == as->size)
        return HF_OK;
    size_t size = size_of(given);
    hfi_error_clear(error); /* not before: every call comes through here */
    if (size < as->least || size > SIZE_LIMIT)
        return hfi_fail(error, HF_EINVAL, "%s.size is not set: use %s", as->name, as->init);
    if (size > as->size && !is_zero((const char *)given + as->size, size - as->size))
        return hfi_fail(error, HF_EINVAL,
                        "%s has a field set that this version of the library "
                        "does not know",
                        as->name);
    return HF_OK;
}

static size_t lesser_size(const struct hfi_versioned *as, const void *given) {
    return size_of(given) < as->size ? size_of(given) : as->size;
}

int hfi_versioned_read(const struct hfi_versioned *as, const void *given, void *own,
                       hf_error *error) {
    int err = hfi_versioned_check(as, given, error);
    if (err == HF_OK && given != NULL)
        memcpy(own, given, lesser_size(as, given));
    return err;
}

void hfi_versioned_write(const struct hfi_versioned *as, const void *own, void *ret) {
    if (ret == NULL)
        return;
    size_t size = lesser_size(as, ret);
    memcpy(ret, own, size);
    memcpy(ret, &size, sizeof size);
}
