/* The kinds that are made of the plain lock's parts, as a table for tests, and a world whose locks
 * are of one of them.
 *
 * Included by test_kinds*.c alone. */
#ifndef HF_TEST_LOCK_KINDS_H
#define HF_TEST_LOCK_KINDS_H

#include "support/world.h"

#define COUNTER "redisson_lock_token:{" WORLD_NAME "}"

struct kind_case {
    const char *name;
    any_kind kind;
    bool reentrant, listens, token;
    const struct hfi_script *acquire; /* which the proxy looks for */
};

/* All but the plain lock. */
static const struct kind_case kin[] = {
    {"nonreentrant", HF_NONREENTRANT, false, true, false, &hfi_script_plain_acquire},
    {"spin", HF_SPIN, true, false, false, &hfi_script_plain_acquire},
    {"fenced", HF_FENCED, true, true, true, &hfi_script_fenced_acquire},
};
enum { KIN = sizeof kin / sizeof *kin };

static inline hf_lock *new_handle(hf_client *client, any_kind kind) {
    hf_lock *lock;
    assert_int_equal(new_lock(client, kind, WORLD_NAME, strlen(WORLD_NAME), &lock), HF_OK);
    return lock;
}

/* For tests that wait until an exchange has failed. */
static inline hf_options kind_impatient(void) {
    hf_options options = world_options();
    options.cmd_timeout_ms = WORLD_BRIEF_MS;
    options.connect_timeout_ms = 5000;
    return options;
}

/* As world_begin, with handles of the kind; its scripts are known to the server, and there is no
 * counter. */
static inline void kind_begin_on(struct world *w, struct server *server, any_kind kind,
                                 const hf_options *options) {
    world_begin_on(w, server, options);
    hf_lock_free(w->lock);
    hf_lock_free(w->rival_lock);
    w->lock = new_handle(w->client, kind);
    w->rival_lock = new_handle(w->rival, kind);
    world_warm_up(w->lock);
    server_empty(server);
}

static inline void kind_begin(struct world *w, any_kind kind, const hf_options *options) {
    kind_begin_on(w, world_server(), kind, options);
}
#define KIND_CASE(name, kind) CASE_IN(name, struct world, w, kind_begin, world_end, kind, NULL)

#endif
