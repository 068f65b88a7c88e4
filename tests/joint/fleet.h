/* Five independent servers, each behind a proxy, and a quorum client on them: what the tests of quorums
 * start from.
 *
 *     struct fleet f;
 *     fleet_begin(&f, NULL);
 *     server_kill(f.server[3]);
 *     assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
 *     fleet_end(&f);
 *
 * Include as "joint/fleet.h". The servers serve all tests of a program; each test finds them up, empty
 * and behind healthy proxies. A second client (`rival`) goes to the servers directly, so that the
 * proxies' faults never touch it. The restart guard is off unless a test sets it. */
#ifndef HF_TEST_JOINT_FLEET_H
#define HF_TEST_JOINT_FLEET_H

#include <holdfast/holdfast.h>

#include "redis/wire/script.h"
#include "support/case.h"
#include "support/new_lock.h"
#include "support/proxy.h"
#include "support/server.h"
#include "support/wait.h"

#include <stdatomic.h>

#define FLEET 5
#define MAJORITY 3
#define FLEET_NAME "guarded"

#define FLEET_ACQUIRE hfi_script_plain_acquire.sha1
#define FLEET_RELEASE hfi_script_plain_release.sha1
#define FLEET_RENEW hfi_script_renew.sha1

struct fleet {
    struct server *server[FLEET];
    struct proxy *proxy[FLEET];
    char urls[2048];        /* through the proxies */
    char direct_urls[2048]; /* to the servers themselves */
    hf_client *client;
    hf_lock *lock;
    char owner[64]; /* this thread's field in the hashes */
    hf_client *rival;
    hf_lock *rival_lock;
};

/* For cmocka's group functions. */
int fleet_start_servers(void **state);
int fleet_stop_servers(void **state);

/* 5 s for an exchange, a lease of 60 s, no restart guard. */
hf_options fleet_options(void);
void fleet_begin(struct fleet *fleet, const hf_options *given);
void fleet_end(struct fleet *fleet);
#define FLEET_CASE(name) CASE_IN(name, struct fleet, f, fleet_begin, fleet_end, NULL)
#define FLEET_CASE_WITH(name, ...)                                                                 \
    CASE_WITH(name, struct fleet, f, fleet_begin, fleet_end, __VA_ARGS__)

/* On how many servers that are up somebody has the lock; or this owner. */
int fleet_locked(struct fleet *fleet);
int fleet_held(struct fleet *fleet, const char *owner);
bool fleet_wait_held(struct fleet *fleet, const char *owner, int servers, int64_t limit_ms);
bool fleet_wait_free(struct fleet *fleet, int64_t limit_ms);

/* Somebody else's lock on this server, for 60 s. */
void fleet_occupy(struct fleet *fleet, int server);
void fleet_vacate(struct fleet *fleet, int server);

hf_acquire_options fleet_wait_for(int64_t wait_ms, int64_t lease_ms);

/* Counts what a lock's callback gets. */
struct fleet_events {
    atomic_int warnings, losses;
};
void fleet_on_event(hf_lock *lock, const hf_event *event, void *arg);
bool fleet_wait_atomic(atomic_int *value, int at_least, int64_t limit_ms);

/* Waits until holds of the client have been renewed that many times more. After two of them what every
 * server had said before the first has been proved again. */
bool fleet_wait_renewed(struct fleet *fleet, uint64_t more, int64_t limit_ms);

/* An acquire on a thread of its own. */
struct fleet_caller {
    pthread_t thread;
    hf_lock *lock;
    hf_acquire_options options;
    int result;
    int64_t took_ms;
    atomic_bool done;
};
void fleet_call_acquire(struct fleet_caller *caller, hf_lock *lock, hf_acquire_options options);
int fleet_join(struct fleet_caller *caller);

#endif
