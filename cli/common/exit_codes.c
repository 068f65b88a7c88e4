/* Which exit status an error of the library becomes. The statuses are listed in cli.h and in the
 * manual page; run/exit_status.c makes that of a command. Stateless. */
#include "cli.h"

enum status status_of_error(int code) {
    switch (code) {
    case HF_OK:
        return STATUS_OK;
    case HF_EBUSY:
    case HF_ETIMEDOUT:
        return STATUS_BUSY;
    case HF_ELOST:
        return STATUS_LOST;
    case HF_EWRONGTYPE:
        return STATUS_DATA;
    case HF_EPERM:
        return STATUS_DENIED;
    case HF_ENOTOWNER:
        return STATUS_NO;
    case HF_EINVAL:
        return STATUS_USAGE;
    case HF_ENOMEM:
    case HF_ESYS:
        return STATUS_OS;
    case HF_EUNREACH:
    case HF_ETLS:
    case HF_EINDOUBT:
    case HF_ENOQUORUM:
    case HF_ENOREPLICA:
    case HF_EUNAVAILABLE:
    case HF_EOOM:
    case HF_EPROTO:  /* The peer is not Redis. */
    case HF_ENOTSUP: /* The server is too old; the url was checked earlier. */
        return STATUS_UNAVAILABLE;
    default:
        return STATUS_INTERNAL;
    }
}
