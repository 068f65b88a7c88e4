/* What it takes to make an engine, of whichever kind. */
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
    struct hfi_exec *dispatch; /* what hf_dispatch() runs; NULL without manual dispatch */
    const struct hfi_url *url; /* copied from, like the three texts */
    const char *client_name;   /* how the client introduces itself to servers */
    const char *under;         /* the owner for whose hold this process runs; "": none */
    const char *name_prefix;   /* NULL: none */
    int64_t cmd_timeout_ms, connect_timeout_ms, failover_timeout_ms;
    int64_t ping_ms;
    bool sleeps_at_once;    /* callers never look for an answer before they sleep */
    int64_t ack_timeout_ms; /* how long replicas have to confirm, */
    bool ack_disk;          /* that it is on disk */
    int64_t watchdog_ms;  /* the lease of most holds; scales how long silent waiters are believed */
    int64_t fair_wait_ms; /* as hf_options has it, like the next two */
    hf_map_fn map;
    void *map_user;
    /* counters of hf_stats */
    atomic_ullong *commands, *reconnects, *unknowns, *notify_failures, *switches, *redirects,
        *ack_failures;
};

#endif
