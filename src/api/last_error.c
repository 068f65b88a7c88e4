/*
 * hf_last_error(): the error of the last failed call of this thread. It is kept in the thread's
 * record (task/thread_record.h).
 */
#include "api/client.h"

#include "base/error.h"
#include "task/thread_record.h"

int hfi_remember(int err, const hf_error *error) {
    struct hfi_thread_record *self = hfi_thread_record();
    if (err == HF_OK || self == NULL)
        return err;
    if (error != NULL && error->code == err)
        self->last = *error;
    else
        hfi_error_clear(&self->last);
    if (self->last.text[0] == '\0')
        hfi_fail(&self->last, err, "%s", hf_strerror(err));
    self->last.code = err;
    return err;
}

const hf_error *hf_last_error(void) {
    static const hf_error no_memory = {.code = HF_ENOMEM, .text = "out of memory"};
    const struct hfi_thread_record *self = hfi_thread_record();
    return self != NULL ? &self->last : &no_memory;
}
