/* The Redis engine: locks on a Redis or Valkey server, wire compatible with Redisson. */
#ifndef HFI_REDIS_REDIS_H
#define HFI_REDIS_REDIS_H

#include "engine/config.h"

/* Nothing is sent yet. HF_EINVAL, HF_ENOMEM. */
int hfi_redis_new(const struct hfi_engine_config *config, struct hfi_engine **ret, hf_error *error);

#endif
