/* The fleet view's door of the Redis engine (engine/observe.h). */
#ifndef HFI_REDIS_FLEET_OBSERVE_H
#define HFI_REDIS_FLEET_OBSERVE_H

#include "engine/observe.h"

extern const struct hfi_observe_ops hfi_redis_observe;

/* The observations: one file each. */
void hfi_inspect(struct hfi_call *call);
void hfi_server_info(struct hfi_call *call);
void hfi_survey(struct hfi_call *call);

#endif
