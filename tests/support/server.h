/* A private, real Redis (or Valkey) server for a test.
 *
 *     struct server *s = server_start(NULL);
 *     hf_open(server_url(s), NULL, &client);
 *     ...
 *     assert_true(key_exists(s, "mylock"));
 *     assert_int_equal(cmd_int(s, "HGET %s %s", "mylock", owner), 1);
 *     server_free(s);
 *
 * Include as "support/server.h". Each server has its own temporary directory and listens on a Unix
 * socket there, and on a free loopback port if asked to. Debug commands (DEBUG SLEEP) are allowed.
 * Environment: HF_TEST_ENGINE=zk lets server_url() lead to a ZooKeeper server that is started
 * beside it, for tests that are about locks and not about keys (tests/CMakeLists.txt names them).
 * HF_TEST_SERVER names another program than redis-server, e.g. valkey-server; the tests of the tool
 * and of local: read it, too.
 *
 * Servers are started, reaped and cleaned up after by a small process beside the test (supervisor.c),
 * so none survives the test program, whatever kills it, and no thread's end takes one along. Only
 * the process that called server_start may stop, kill, restart, freeze or free; a forked child may
 * use the url and the command helpers, the first time before it has threads. Any thread may call
 * anything but server_free.
 *
 * A fixture that breaks (the program cannot be started) prints why, with the server's log, and
 * aborts. */
#ifndef HF_TEST_SERVER_H
#define HF_TEST_SERVER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct server;

struct server_options {
    bool tcp;             /* listen on 127.0.0.1 as well, on a port nobody uses */
    bool tls;             /* that port speaks TLS; support/tls.h sets it */
    bool aof;             /* keep the data over kill and restart: every write is on disk at once */
    const char *password; /* requirepass; it is part of the urls and used by the helpers */
    const char *const *config; /* more lines, e.g. "maxmemory 10mb"; NULL at the end */
};

/* Starts a server and returns when it answers PING. Without options: a Unix socket, and no disk. */
struct server *server_start(const struct server_options *options);

/* Kills the server and removes its directory. NULL is fine. */
void server_free(struct server *server);

#define own_server __attribute__((cleanup(own_server_free), unused)) struct server
static inline void own_server_free(struct server **server) {
    server_free(*server);
}

/* ---- Where it is ----------------------------------------------------------------------------- */

/* HF_TEST_ENGINE: its url leads to another engine's server. NULL: that of one that is not started yet will. */
bool server_is_other(const struct server *server);
const char *server_url(const struct server *server);     /* unix://[:password@]/path */
const char *server_tcp_url(const struct server *server); /* redis[s]://[:password@]127.0.0.1:port */
const char *server_socket(const struct server *server);  /* the path alone */
const char *server_dir(const struct server *server);     /* with redis.conf and log in it */
int server_port(const struct server *server);            /* 0 without `tcp` */
pid_t server_pid(const struct server *server);           /* 0 while it is down */

/* A proxy before what server_url() leads to; include "support/proxy.h" to use it. */
struct proxy *server_proxy(const struct server *server);

/* ---- Its life -------------------------------------------------------------------------------- */

void server_kill(struct server *server);     /* SIGKILL; gone when this returns, or before */
void server_stop(struct server *server);     /* SIGTERM, an orderly end; gone when this returns */
void server_restart(struct server *server);  /* kill, then start at the same socket and port */
void server_freeze(struct server *server);   /* SIGSTOP: connections stay, nothing answers */
void server_unfreeze(struct server *server); /* SIGCONT */

/* server_restart in two halves, to look at a server that is still LOADING. */
void server_relaunch(struct server *server);
void server_wait_ready(struct server *server);

/* ---- Commands, on a connection of their own -------------------------------------------------- */

/* Formats as hiredis does (%s, %b with a size_t, %lld) and returns the reply, which the caller
 * frees with freeReplyObject; error replies are replies. NULL when the server cannot be reached or
 * did not answer for 30 s. Connects anew by itself after a restart or CLIENT KILL. Calls of several
 * threads take turns. */
redisReply *cmd(struct server *server, const char *format, ...);

/* The same for an integer, or a string that holds one; anything else prints it and aborts. */
long long cmd_int(struct server *server, const char *format, ...);

/* The same for a string or status, which the caller frees; NULL for nil. An error reply aborts. */
char *cmd_str(struct server *server, const char *format, ...);

/* Sends and expects anything but an error; the reply is thrown away. */
void cmd_ok(struct server *server, const char *format, ...);

bool key_exists(struct server *server, const char *key);
long long pttl(struct server *server, const char *key); /* ms; -1 no TTL, -2 no key */

/* Waits until the server's clock, by which its scripts judge what is too late, is so much later than now. */
void server_wait_clock(struct server *server, int64_t duration_ms);

/* Waits until the key's lease has been set anew four times: what is renewed by thirds of a lease
 * has outlived one by then. False if the key is gone before, or at the limit. */
bool server_wait_outlived(struct server *server, const char *key, int64_t limit_ms);

/* A hiredis connection of the caller's own, authenticated, with a time limit of 30 s; the caller
 * frees it with redisFree. NULL when the server cannot be reached. Mind that hiredis raises SIGPIPE
 * when it writes to a connection that is closed; the helpers above do not. */
redisContext *server_connect(struct server *server);

#define own_reply __attribute__((cleanup(own_reply_free), unused)) redisReply
static inline void own_reply_free(redisReply **reply) {
    freeReplyObject(*reply);
}
#define own_context __attribute__((cleanup(own_context_free), unused)) redisContext
static inline void own_context_free(redisContext **context) {
    redisFree(*context);
}

/* ---- What the server did --------------------------------------------------------------------- */

/* How many commands it has run since its start, without those of the helpers above. Commands that
 * scripts call are counted too; to count what clients sent, use server_calls of evalsha and
 * friends, or a monitor. */
long long server_commands(struct server *server);

/* How many calls of one command (lower case; subcommands as "client|setname") it has run, all
 * clients and scripts together, helpers included. */
long long server_calls(struct server *server, const char *command);

/* How many hear a channel; and whether anybody hears questions of surveys and of breaks, for wait_until(). */
long long server_subscribers(struct server *server, const char *channel);
bool server_questions_are_received(void *server);

/* How many clients are connected, those of this file (helpers, monitors, server_connect) aside. */
long long server_clients(struct server *server);

/* A real MONITOR connection. A line reads
 *     1700000000.123456 [0 unix:/path] "EVALSHA" "sha" "1" "mylock" ...
 * and for a command that a script ran, `[0 lua]` instead of the address. AUTH and HELLO are not
 * shown. */
struct monitor;

/* Everything that runs after this call is seen. */
struct monitor *monitor_start(struct server *server);

/* How many lines since the start (or the last clear) contain `text`, case and all. Exact:
 * everything that the server ran before this call is counted, and the fixture's own marks are not.
 * After the end of the server it tells what had arrived. */
size_t monitor_count(struct monitor *monitor, const char *text);

/* Waits until at least `count` lines contain `text`; false when the limit passed. */
bool monitor_wait(struct monitor *monitor, const char *text, size_t count, int64_t limit_ms);

void monitor_clear(struct monitor *monitor); /* forgets what the server ran up to now */
char *monitor_text(struct monitor *monitor); /* all lines, '\n' between; the caller frees */
void monitor_stop(struct monitor *monitor);  /* frees it, before its server. NULL is fine */
#define own_monitor __attribute__((cleanup(own_monitor_stop), unused)) struct monitor
static inline void own_monitor_stop(struct monitor **monitor) {
    monitor_stop(*monitor);
}

#endif
