/* The fleet view's door of the ZooKeeper engine (engine/observe.h). */
#ifndef HFI_ZK_FLEET_OBSERVE_H
#define HFI_ZK_FLEET_OBSERVE_H

#include "engine/observe.h"

extern const struct hfi_observe_ops hfi_zk_observe;

/* The observations: one file each. */
void hfi_zk_inspect(struct hfi_call *call);
void hfi_zk_server_info(struct hfi_call *call);
void hfi_zk_survey(struct hfi_call *call);

#endif
