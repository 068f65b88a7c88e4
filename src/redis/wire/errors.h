/* Error replies: their code for the caller, and the remedy. */
#ifndef HFI_REDIS_WIRE_ERRORS_H
#define HFI_REDIS_WIRE_ERRORS_H

#include "net/resp/wire/reply.h"

#include <holdfast/holdfast.h>

enum hfi_remedy {
    HFI_REMEDY_NONE,         /* none: the error is the result */
    HFI_REMEDY_SEND_BODY,    /* NOSCRIPT: send the whole script */
    HFI_REMEDY_WAIT,         /* the server is about to be ready; retry even for a single attempt */
    HFI_REMEDY_WAIT_PATIENT, /* transient: retry if the caller has time */
    HFI_REMEDY_WAIT_MOVE,    /* the same; in a cluster, a failover or migration may end it */
    HFI_REMEDY_ELSEWHERE /* the same, and it is no primary: another server may be the one to ask */
};

/* Returns the code of an error reply, and puts its text into `error` (whose node is kept). */
int hfi_error_of_reply(const struct hfi_reply *reply, hf_error *error, enum hfi_remedy *ret_remedy);

/* The server works, but denies this: the user lacks permission, or the command does not exist. */
static inline bool hfi_is_withheld(int err) {
    return err == HF_EPERM || err == HF_ENOTSUP;
}

#endif
