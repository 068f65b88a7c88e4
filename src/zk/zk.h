/* The ZooKeeper engine: locks as the nodes of Apache Curator's recipes. */
#ifndef HFI_ZK_ZK_H
#define HFI_ZK_ZK_H

#include "engine/config.h"

/* Makes an engine for config->url; nothing is sent yet. HF_EINVAL, HF_ENOMEM. */
int hfi_zk_new(const struct hfi_engine_config *config, struct hfi_engine **ret, hf_error *error);

#endif
