/* Makes the engine for a url. The one place that knows all engines that talk to servers. */
#ifndef HFI_SCHEME_SCHEME_H
#define HFI_SCHEME_SCHEME_H

#include "engine/config.h"

/* Nothing is sent yet. HF_EINVAL, HF_ENOMEM. */
int hfi_engine_new(const struct hfi_engine_config *config, struct hfi_engine **ret,
                   hf_error *error);

#endif
