/* The Redis engine: locks on a Redis or Valkey server, wire compatible with Redisson. Made by
 * src/api, used through src/engine/engine.h. */
#ifndef HFI_REDIS_REDIS_H
#define HFI_REDIS_REDIS_H

#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"

struct hfi_conn;
struct hfi_keeper;
struct hfi_url;

struct hfi_redis_config {
    const struct hfi_mem *mem; /* these four outlive the engine */
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    struct hfi_exec *dispatch; /* what hf_dispatch() runs; NULL without manual dispatch */
    const struct hfi_url *url; /* copied from, like the two texts */
    const char *client_name;   /* CLIENT SETNAME */
    const char *name_prefix;   /* NULL: none */
    int64_t cmd_timeout_ms, connect_timeout_ms; /* */
    int64_t ping_ms;
    int64_t watchdog_ms;  /* the lease of most holds; scales how long silent waiters are believed */
    int64_t fair_wait_ms; /* as hf_options has it */
    atomic_ullong *commands, *reconnects, *unknowns, *notify_failures; /* counters of hf_stats */
};

/* Makes an engine; nothing is sent yet. HF_EINVAL, HF_ENOMEM. */
int hfi_redis_new(const struct hfi_redis_config *config, struct hfi_engine **ret, hf_error *error);

/* Ends everything in flight with HF_ECLOSED and closes the connections. On the keeper's thread,
 * as its last act, when no call of another thread is running any more: src/api has cancelled
 * them and seen them leave. A call of the keeper's lane that is left completes when its task
 * runs next. */
void hfi_redis_stop(struct hfi_engine *engine);

/* After stop, and after the keeper has ended. NULL is fine. */
void hfi_redis_free(struct hfi_engine *engine);

/* In a forked child: closes descriptors, touches nothing else. */
void hfi_redis_close_fds(struct hfi_engine *engine);

/* What a synchronous caller does while it waits for a call, on its own thread: returns when the
 * executor of the call's task has work. */
void hfi_redis_attend(struct hfi_call *call);

/* The connection that hf_dispatch() drives; made at the first call. NULL: out of memory, or
 * stopped. */
struct hfi_conn *hfi_redis_dispatch_conn(struct hfi_engine *engine);

#endif
