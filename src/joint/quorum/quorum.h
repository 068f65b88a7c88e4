/*
 * A quorum: an engine whose "server" is a majority of several independent servers.
 *
 * It works by ordinary operations on its members, each of which has a core and an engine of its
 * own. The layer above creates those engines and the quorum, and gives the quorum as its engine to
 * the core of the client's locks.
 */
#ifndef HFI_JOINT_QUORUM_QUORUM_H
#define HFI_JOINT_QUORUM_QUORUM_H

#include "core/core.h"
#include "joint/quorum/quorum_validity.h"

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
    int64_t clock_drift_ppm;
    /* An operation on a member begins or stops needing the client's memory. */
    void (*retain)(void *arg);
    void (*forget)(void *arg);
    void (*idle)(void *arg); /* as in struct hfi_core_hooks */
    void *arg;
};

/* HF_ENOMEM. It has no members yet. */
int hfi_quorum_new(const struct hfi_quorum_config *config, struct hfi_quorum **ret,
                   hf_error *error);
/* Adds a server. The quorum owns `engine` from then on, also on failure. HF_EINVAL: too many;
 * HF_ENOMEM. `node`: its name in errors; copied. */
int hfi_quorum_add(struct hfi_quorum *quorum, struct hfi_engine *engine, const char *node,
                   hf_error *error);
struct hfi_engine *hfi_quorum_engine(struct hfi_quorum *quorum);
/* Holds of which a server reports changes, at all servers, and reports after which one was still
 * there: parts of hf_stats. Any thread. */
uint64_t hfi_quorum_tracked(const struct hfi_quorum *quorum, uint64_t *ret_false);

/* ---- Shutdown: on the thread that closes the client ---- */

/* No operation on a member is in progress, settlements aside. */
bool hfi_quorum_is_idle(struct hfi_quorum *quorum);
/* From now on operations on members end with HF_ECLOSED, except settlements. */
void hfi_quorum_close_ops(struct hfi_quorum *quorum);
/* No settlement is in progress, either. */
bool hfi_quorum_is_settled(struct hfi_quorum *quorum);
/* Ends settlements, too. */
void hfi_quorum_abandon(struct hfi_quorum *quorum);

#endif
