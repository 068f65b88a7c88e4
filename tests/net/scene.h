/* What the tests of the connection share: clients, calls on threads of their own, and what the
 * server and the system know of our connections.
 *
 * Include as "net/scene.h". Each test makes its own client; most share one server per program. */
#ifndef HF_TEST_NET_SCENE_H
#define HF_TEST_NET_SCENE_H

#include <holdfast/holdfast.h>

#include "support/case.h"
#include "support/new_lock.h"
#include "support/proxy.h"
#include "support/server.h"
#include "support/sync.h"
#include "support/wait.h"

#include <stdatomic.h>

/* For cmocka's group functions: one server for all tests of a program, at a socket and a port. */
int scene_start_server(void **state);
int scene_stop_server(void **state);
struct server *scene_server(void);

/* 5 s for an exchange, enough for a busy machine, 10 s to reach a server, leases of a minute. */
hf_options scene_options(void);
hf_client *scene_open(const char *url, const hf_options *options); /* NULL: scene_options() */
hf_lock *scene_lock(hf_client *client, const char *name);
hf_stats scene_stats(hf_client *client);
void scene_owner(const hf_client *client, hf_owner owner, char text[64]);

/* ---- Calls on threads of their own ---------------------------------------------------------- */

struct scene_call {
    pthread_t thread;
    hf_lock *lock;
    hf_acquire_options options;
    int result;
    hf_error error;
    int64_t took_ms;
    atomic_bool done;
};

void scene_acquire(struct scene_call *call, hf_lock *lock, int64_t wait_ms, hf_cancel *cancel);
/* Joins, and fails when the thread does not end within HANG_MS. */
int scene_join(struct scene_call *call);
void scene_join_thread(pthread_t thread); /* one that must have ended within HANG_MS */

/* Waits until the server has seen a subscriber of the lock's channel. */
void scene_wait_subscribed(struct server *server, const char *name);

/* A ping through the asynchronous form, so on the control connection. */
int scene_ping_async(hf_client *client);

/* ---- Connections ---------------------------------------------------------------------------- */

#define SCENE_CONNS 16

/* The ids of the client's connections on the server, in the order they were made. */
size_t scene_conns(struct server *server, const hf_client *client, long long ids[SCENE_CONNS]);

/* The id of the one connection that is not among `known`; fails when there is not exactly one. */
long long scene_new_conn(struct server *server, const hf_client *client, const long long *known,
                         size_t known_len);
void scene_kill(struct server *server, long long id);

/* ---- Logs ----------------------------------------------------------------------------------- */

struct scene_log {
    struct sync sync;
    char *text;
    size_t length;
};

void scene_log_start(struct scene_log *log, hf_options *options);
bool scene_log_contains(struct scene_log *log, const char *words);
void scene_log_end(struct scene_log *log);

/* ---- The process ---------------------------------------------------------------------------- */

size_t scene_fds(void);
size_t scene_threads(void);
/* Until there are no more than that: one that was joined is seen for a moment longer. */
void scene_wait_threads(size_t most);
size_t scene_rss(void); /* bytes */

/* By so much the process may grow, whatever a server sends. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCENE_GROWTH_LIMIT ((size_t)1 << 30) /* shadows and quarantines grow on their own account */
#else
#define SCENE_GROWTH_LIMIT ((size_t)96 << 20)
#endif

/* For so long nobody uses any connection: after a while they are checked before they are used
 * again, by the clock alone. */
void scene_stay_idle(int64_t duration_ms);

#endif
