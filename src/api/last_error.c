/*
 * hf_last_error(): the error of the last failed call of this thread. It is kept in the thread's
 * record (task/thread_record.h). hf_error_format() only reads it.
 */
#include "api/client.h"

#include "base/error.h"
#include "task/thread_record.h"

#include <stdio.h>
#include <string.h>

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

const char *hf_error_format(const hf_error *error, char *text, size_t size) {
    if (text == NULL || size == 0)
        return "";
    if (error == NULL)
        error = hf_last_error();
    const char *meaning = hf_strerror(error->code);
    bool more = error->text[0] != '\0' && strcmp(error->text, meaning) != 0;
    snprintf(text, size, "%s%s%s: %s%s%s", hf_error_name(error->code),
             error->node[0] != '\0' ? " at " : "", error->node, meaning, more ? ": " : "",
             more ? error->text : "");
    return text;
}
