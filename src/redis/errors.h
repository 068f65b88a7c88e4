/* Error replies of the server: what they mean to a caller, and what helps. */
#ifndef HFI_REDIS_ERRORS_H
#define HFI_REDIS_ERRORS_H

#include <holdfast/holdfast.h>

#include <hiredis/hiredis.h>

enum hfi_remedy {
    HFI_REMEDY_NONE,         /* it is the answer */
    HFI_REMEDY_SEND_BODY,    /* the server does not know the script: send the whole of it */
    HFI_REMEDY_WAIT,         /* the server is about to be ready; even one attempt is worth a wait */
    HFI_REMEDY_WAIT_PATIENT, /* it may pass, if the caller has time */
    HFI_REMEDY_WAIT_MOVE,    /* the same; and in a cluster there is somebody to wait for */
    HFI_REMEDY_ELSEWHERE /* the same, and it is not a primary: another server may be the one to ask */
};

/* Returns the code of an error reply, and puts the server's words into `error` (its node is
 * kept). */
int hfi_error_of_reply(const redisReply *reply, hf_error *error, enum hfi_remedy *ret_remedy);

/* The server works, but this is not to be had from it: this user may not, or there is no such command. */
static inline bool hfi_is_withheld(int err) {
    return err == HF_EPERM || err == HF_ENOTSUP;
}

#endif
