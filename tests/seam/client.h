/* The real core on the engine in memory, driven as src/api drives it. */
#ifndef HF_TEST_SEAM_CLIENT_H
#define HF_TEST_SEAM_CLIENT_H

#include "core/op/op.h"
#include "seam/memory.h"

#define CLIENT_EVENTS_MAX 64

struct client {
    struct hfi_core core;
    struct hfi_mem mem;
    struct hfi_log log;
    struct hfi_exec keeper;
    pthread_t thread;
    atomic_bool stop;
    struct memory *memory;
    atomic_int unfinished; /* operations whose memory is in use */
    atomic_uint changes;   /* as the core reported */

    pthread_mutex_t mtx; /* guards what was reported of losses and warnings */
    struct {
        hf_event_kind kind;
        char name[32];
        const char *reason;
        int64_t at_ms;
    } events[CLIENT_EVENTS_MAX];
    size_t events_len;
};

/* Proofs reach `session_ms`, and the watchdog's lease is as long. */
struct client *client_open(int64_t session_ms);
/* Ends what is unfinished; nothing may be left. */
void client_close(struct client *client);

struct request {
    const struct hfi_verb *verb;
    const struct hfi_kind *kind; /* NULL: memory_lock */
    const char *name;
    hf_owner owner; /* 0: 1 */
    int64_t wait_ms, lease_ms;
};
/* Runs it on this thread, as a synchronous call does. `ret` may be NULL. */
int client_run(struct client *client, const struct request *request, hf_result *ret);
/* Starts it on the keeper. `on_result` is called there. Unreference the task when done with it. */
struct hf_op *client_start(struct client *client, const struct request *request,
                           void (*on_result)(void *user, const hf_result *result), void *user);

int client_acquire(struct client *client, const char *name, int64_t lease_ms);
int client_release(struct client *client, const char *name, hf_result *ret);
/* Milliseconds until its deadline; 0: not held. */
int64_t client_left_ms(struct client *client, const char *name);
/* How often such an event was reported of this name; when and why it was last. */
unsigned client_reported(struct client *client, hf_event_kind kind, const char *name,
                         int64_t *ret_at_ms, const char **ret_reason);

#endif
