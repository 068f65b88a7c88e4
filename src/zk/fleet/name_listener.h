/* Name listeners: reports changes of a name (engine/observe.h). */
#ifndef HFI_ZK_FLEET_NAME_LISTENER_H
#define HFI_ZK_FLEET_NAME_LISTENER_H

#include "engine/observe.h"

struct hfi_zk;

/* As in struct hfi_observe_ops. */
int hfi_zk_subscribe(struct hfi_engine *engine, const char *name, size_t name_len,
                     struct hfi_name_subscriber *subscriber, struct hfi_name_listener **ret);

/* On the keeper's thread, before the session ends. */
void hfi_zk_name_listeners_stop(struct hfi_zk *zk);

#endif
