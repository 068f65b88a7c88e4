/* The configuration of an engine, common to all engines. */
#ifndef HFI_ENGINE_CONFIG_H
#define HFI_ENGINE_CONFIG_H

#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"

struct hfi_keeper;
struct hfi_url;

struct hfi_engine_config {
    const struct hfi_mem *mem; /* these four outlive the engine */
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    struct hfi_exec *dispatch; /* run by hf_dispatch(); NULL without manual dispatch */
    const struct hfi_url *url; /* copied from, like the three strings */
    const char *client_name;   /* the client's name towards servers */
    const char *under;         /* the owner for whose hold this process runs; "": none */
    const char *name_prefix;   /* NULL: none */
    int64_t cmd_timeout_ms, connect_timeout_ms, failover_timeout_ms;
    int64_t ping_interval_ms;
    bool tracks;             /* the server may be asked to report changes of locks */
    bool sleeps_at_once;     /* no spinning: callers sleep at once when they wait for a reply */
    int64_t ack_timeout_ms;  /* how long replicas have to ack */
    bool ack_disk;           /* acks mean: it is on disk */
    int64_t clock_drift_ppm; /* as in hf_options */
    bool sentinel_confirm;   /* a renewal counts only if sentinels confirm the primary */
    /* the lease of most holds; scales how long a silent waiter keeps its place */
    int64_t watchdog_ms;
    int64_t fair_wait_ms; /* as in hf_options, like the next two */
    hf_address_map_fn address_map;
    void *address_map_user;
    /* counters of hf_stats */
    atomic_ullong *commands, *reconnects, *in_doubt, *notify_failures, *failovers, *redirects,
        *ack_failures, *track_events;
};

#endif
