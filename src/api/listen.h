/* Name listeners: hf_listen(). */
#ifndef HFI_API_LISTEN_H
#define HFI_API_LISTEN_H

#include "api/client.h"

/* Close, when no call is in progress any more: no events are received or delivered from now on. */
void hfi_listeners_end(hf_client *client);

#endif
