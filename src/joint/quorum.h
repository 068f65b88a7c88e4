/*
 * A quorum: an engine whose server is a majority of several independent servers.
 *
 * It does its work by ordinary operations on its members: each has a core and an engine of its own. The
 * layer above makes those engines and the quorum, and gives the quorum to the core of the client's
 * locks as its engine.
 */
#ifndef HFI_JOINT_QUORUM_H
#define HFI_JOINT_QUORUM_H

#include "core/core.h"
#include "joint/votes.h"

struct hfi_quorum;

struct hfi_quorum_config {
    const struct hfi_mem *mem; /* these outlive the quorum */
    const struct hfi_log *log;
    struct hfi_exec *keeper;
    const char *id; /* the client's uuid; copied */
    pid_t pid;
    int64_t cmd_timeout_ms, connect_timeout_ms, watchdog_ms;
    int64_t report_after_ms;
    int64_t restart_guard_ms;
    /* An operation on a member begins or ceases to need the memory of the client. */
    void (*retain)(void *arg);
    void (*forget)(void *arg);
    void (*idle)(void *arg); /* as in struct hfi_core_hooks */
    void *arg;
};

/* HF_ENOMEM. It has no members yet. */
int hfi_quorum_new(const struct hfi_quorum_config *config, struct hfi_quorum **ret,
                   hf_error *error);
/* Adds a server; `engine` belongs to the quorum from then on, also on failure. HF_EINVAL: too many;
 * HF_ENOMEM. `node`: how errors call it; copied. */
int hfi_quorum_add(struct hfi_quorum *quorum, struct hfi_engine *engine, const char *node,
                   hf_error *error);
struct hfi_engine *hfi_quorum_engine(struct hfi_quorum *quorum);

/* ---- Ending it: by the thread that closes the client ---- */

/* No operation on a member is under way, settlements aside. */
bool hfi_quorum_is_idle(struct hfi_quorum *quorum);
/* From now on operations on members end with HF_ECLOSED, but for what is settled. */
void hfi_quorum_close_ops(struct hfi_quorum *quorum);
/* And nothing is settled any more, either. */
bool hfi_quorum_is_settled(struct hfi_quorum *quorum);
/* Even what is not settled ends now. */
void hfi_quorum_abandon(struct hfi_quorum *quorum);

#endif
