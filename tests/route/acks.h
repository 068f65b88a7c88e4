/* What the tests of acknowledgement share: a client on a primary with two replicas.
 *
 * Include as "route/acks.h". One set of servers for all tests of a program (acks_start); each finds it whole
 * and empty. What has to be confirmed has ten seconds for it, what must not be has a fraction of one: then
 * replicas are frozen, and a waiter for them waits in vain. Where one is frozen and the other has to
 * confirm, that one has half of it. */
#ifndef HF_TEST_ROUTE_ACKS_H
#define HF_TEST_ROUTE_ACKS_H

#include <holdfast/holdfast.h>

#include "route/trio.h"
#include "support/case.h"
#include "support/new_lock.h"
#include "support/wait.h"

#include <stdatomic.h>

#define ACKS_HANG_MS 60000
/* Options of urls, beside `acks`. */
#define PATIENT "&cmd_timeout_ms=30000&ack_timeout_ms=10000&watchdog_ms=300000"
#define HALF_IN_VAIN "&cmd_timeout_ms=30000&ack_timeout_ms=5000&watchdog_ms=300000"
#define BRIEF "&cmd_timeout_ms=30000&ack_timeout_ms=200&watchdog_ms=300000"

extern struct trio *acks_trio;

/* For cmocka's group functions. */
int acks_start(void **state);
int acks_stop(void **state);

/* A client with these options, when everything is whole and empty. */
hf_client *acks_begin(const char *options);
/* Another. */
hf_client *acks_open(const char *options);
hf_lock *acks_lock(hf_client *client, any_kind kind, const char *name);
hf_stats acks_stats(hf_client *client);

/* Waits until a name is free at the primary, or until there were so many failures of this kind. */
bool acks_wait_free(const char *name);
bool acks_wait_failures(hf_client *client, uint64_t at_least);

/* Started, for ever; the callback has nothing to do. */
hf_op *acks_acquire_start(hf_lock *lock, int64_t wait_ms);

#endif
