/* ZooKeeper's error codes: the holdfast code and the remedy for each. */
#ifndef HFI_ZK_WIRE_ERRORS_H
#define HFI_ZK_WIRE_ERRORS_H

#include <holdfast/holdfast.h>

#include <stdint.h>

enum hfi_zk_error {
    HFI_ZK_TOO_LONG = INT32_MIN, /* not a server's: a reply over 4 MiB was skipped */
    HFI_ZK_OK = 0,
    /* in a refused multi: an operation after the failed one ("runtime inconsistency") */
    HFI_ZK_ROLLED_BACK = -2,
    HFI_ZK_CONNECTION_LOSS = -4,
    HFI_ZK_UNIMPLEMENTED = -6,
    HFI_ZK_OPERATION_TIMEOUT = -7,
    HFI_ZK_BAD_ARGUMENTS = -8,
    HFI_ZK_NEW_CONFIG_NO_QUORUM = -13,
    HFI_ZK_NO_NODE = -101,
    HFI_ZK_NO_AUTH = -102,
    HFI_ZK_BAD_VERSION = -103,
    HFI_ZK_NO_CHILDREN_FOR_EPHEMERALS = -108,
    HFI_ZK_NODE_EXISTS = -110,
    HFI_ZK_NOT_EMPTY = -111,
    HFI_ZK_SESSION_EXPIRED = -112,
    HFI_ZK_INVALID_ACL = -114,
    HFI_ZK_AUTH_FAILED = -115,
    HFI_ZK_SESSION_MOVED = -118,
    HFI_ZK_NOT_READ_ONLY = -119,
    HFI_ZK_EPHEMERAL_ON_LOCAL_SESSION = -120,
    HFI_ZK_SASL_REQUIRED = -124,
    HFI_ZK_QUOTA_EXCEEDED = -125,
    HFI_ZK_THROTTLED = -127
};

enum hfi_zk_remedy {
    HFI_ZK_REMEDY_NONE,      /* it is the final answer */
    HFI_ZK_REMEDY_ASKER,     /* its meaning depends on the request: the caller decides */
    HFI_ZK_REMEDY_WAIT,      /* transient: retry, if the caller has time */
    HFI_ZK_REMEDY_RECONNECT, /* reconnect with the same session, then find out what was done */
    HFI_ZK_REMEDY_SESSION,   /* the session is over: all its nodes are gone */
    HFI_ZK_REMEDY_DROP       /* nonsense: this connection is not to be trusted */
};

/* The holdfast code of an error (not 0). Writes the text to `error`, whose node is kept. */
int hfi_zk_error(int32_t err, hf_error *error, enum hfi_zk_remedy *ret_remedy);

#endif
