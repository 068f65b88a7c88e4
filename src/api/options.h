/* The options of a client, checked. */
#ifndef HFI_API_OPTIONS_H
#define HFI_API_OPTIONS_H

#include <holdfast/holdfast.h>

/* The given options, or the defaults; checks what does not depend on the url. HF_EINVAL. */
int hfi_options_read(const hf_options *given, hf_options *options, hf_error *error);
/* Checks times and numbers, after the url has been applied. HF_EINVAL. */
int hfi_options_check_numbers(const hf_options *o, hf_error *error);

#endif
