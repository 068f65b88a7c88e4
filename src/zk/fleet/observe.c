/*
 * The fleet view's door of the ZooKeeper engine: its table. Stateless. There is no `listen`, since
 * surveys and breaks need no client's answer here.
 */
#include "zk/fleet/observe.h"

#include "zk/fleet/name_listener.h"

const struct hfi_observe_ops hfi_zk_observe = {
    .read = {[HFI_OBSERVE_LOCK] = hfi_zk_inspect,
             [HFI_OBSERVE_SERVER] = hfi_zk_server_info,
             [HFI_OBSERVE_FLEET] = hfi_zk_survey},
    .subscribe = hfi_zk_subscribe,
};
