/* Those who listen to names: hf_listen(). */
#ifndef HFI_API_LISTEN_H
#define HFI_API_LISTEN_H

#include "api/client.h"

/* Close, when no call is inside any more: nothing is heard or told from now on. */
void hfi_listeners_end(hf_client *client);

#endif
