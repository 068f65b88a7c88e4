/* The options of a client, checked. */
#ifndef HFI_API_OPTIONS_H
#define HFI_API_OPTIONS_H

#include <holdfast/holdfast.h>

/* What was given, or the defaults, with what does not depend on the url checked. HF_EINVAL. */
int hfi_options_read(const hf_options *given, hf_options *options, hf_error *error);
/* Its times and numbers, when the url has had its say. HF_EINVAL. */
int hfi_options_check_numbers(const hf_options *o, hf_error *error);

#endif
