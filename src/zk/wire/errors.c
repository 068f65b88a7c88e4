/*
 * ZooKeeper's error codes as holdfast codes.
 *
 * Called where a reply is read, on any thread; no state. The server sends a number only, so the
 * texts are here: its own name for the error, which users search for, and an explanation if the
 * name is not enough.
 */
#include "zk/wire/errors.h"

#include "base/error.h"

#include <stddef.h>

static const struct {
    enum hfi_zk_error err;
    int code;
    enum hfi_zk_remedy remedy;
    const char *text;
} errors[] = {
    {HFI_ZK_TOO_LONG, HF_EPROTO, HFI_ZK_REMEDY_ASKER,
     "too many nodes below this name: their list is over 4 MiB"},
    {HFI_ZK_ROLLED_BACK, HF_EPROTO, HFI_ZK_REMEDY_DROP, "RuntimeInconsistency"},
    {HFI_ZK_CONNECTION_LOSS, HF_EUNREACH, HFI_ZK_REMEDY_RECONNECT, "ConnectionLoss"},
    {HFI_ZK_UNIMPLEMENTED, HF_ENOTSUP, HFI_ZK_REMEDY_NONE,
     "Unimplemented: the server is too old; ZooKeeper 3.5 or newer is needed"},
    {HFI_ZK_OPERATION_TIMEOUT, HF_EUNREACH, HFI_ZK_REMEDY_RECONNECT, "OperationTimeout"},
    {HFI_ZK_BAD_ARGUMENTS, HF_EPROTO, HFI_ZK_REMEDY_DROP, "BadArguments"},
    {HFI_ZK_NEW_CONFIG_NO_QUORUM, HF_EUNAVAILABLE, HFI_ZK_REMEDY_WAIT, "NewConfigNoQuorum"},
    {HFI_ZK_NO_NODE, HF_ELOST, HFI_ZK_REMEDY_ASKER, "NoNode"},
    {HFI_ZK_NO_AUTH, HF_EPERM, HFI_ZK_REMEDY_NONE, "NoAuth: the node's access list forbids it"},
    {HFI_ZK_BAD_VERSION, HF_EUNAVAILABLE, HFI_ZK_REMEDY_ASKER, "BadVersion"},
    {HFI_ZK_NO_CHILDREN_FOR_EPHEMERALS, HF_EWRONGTYPE, HFI_ZK_REMEDY_NONE,
     "NoChildrenForEphemerals: part of the name is the node of another lock"},
    {HFI_ZK_NODE_EXISTS, HF_EUNAVAILABLE, HFI_ZK_REMEDY_ASKER, "NodeExists"},
    {HFI_ZK_NOT_EMPTY, HF_EWRONGTYPE, HFI_ZK_REMEDY_ASKER, "NotEmpty: the node has children"},
    {HFI_ZK_SESSION_EXPIRED, HF_ELOST, HFI_ZK_REMEDY_SESSION, "SessionExpired"},
    {HFI_ZK_INVALID_ACL, HF_EPERM, HFI_ZK_REMEDY_NONE, "InvalidACL"},
    {HFI_ZK_AUTH_FAILED, HF_EPERM, HFI_ZK_REMEDY_NONE, "AuthFailed"},
    {HFI_ZK_SESSION_MOVED, HF_EUNREACH, HFI_ZK_REMEDY_RECONNECT, "SessionMoved"},
    {HFI_ZK_NOT_READ_ONLY, HF_EUNAVAILABLE, HFI_ZK_REMEDY_WAIT,
     "NotReadOnly: the server has no quorum"},
    {HFI_ZK_EPHEMERAL_ON_LOCAL_SESSION, HF_EUNAVAILABLE, HFI_ZK_REMEDY_WAIT,
     "EphemeralOnLocalSession"},
    {HFI_ZK_SASL_REQUIRED, HF_EPERM, HFI_ZK_REMEDY_NONE,
     "SessionClosedRequireSaslAuth: the server requires SASL, which holdfast does not support"},
    {HFI_ZK_QUOTA_EXCEEDED, HF_EOOM, HFI_ZK_REMEDY_NONE, "QuotaExceeded"},
    {HFI_ZK_THROTTLED, HF_EUNAVAILABLE, HFI_ZK_REMEDY_WAIT, "ThrottledOp"},
};

int hfi_zk_error(int32_t err, hf_error *error, enum hfi_zk_remedy *ret_remedy) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].err != err)
            continue;
        *ret_remedy = errors[i].remedy;
        return hfi_fail(error, errors[i].code, "%s", errors[i].text);
    }
    *ret_remedy = HFI_ZK_REMEDY_DROP;
    return hfi_fail(error, HF_EPROTO, "unknown server error %d", (int)err);
}
