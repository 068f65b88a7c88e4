/* A scriptable proxy between clients and a real server: it makes the network's faults.
 *
 *     struct proxy *p = proxy_start(server_socket(s));
 *     hf_open(proxy_url(p), NULL, &client);
 *     proxy_drop_replies_after(p, owner); // the next command with it runs, its reply is lost
 *     ...
 *     assert_true(proxy_wait_fired(p, 1, 10000));
 *     proxy_free(p);
 *
 * Include as "support/proxy.h". It listens on a Unix socket and a loopback port and runs in one
 * thread of the test program. Each client connection has one connection to the server.
 *
 * Commands. The client's stream is split into commands, and replies are counted, so that a rule
 * applies to exactly one command and its reply, also in a pipeline: replies to earlier commands
 * still arrive. A `matcher` is looked for, whatever its case, anywhere in the RESP bytes of one
 * command (up to the first 64 KiB of it). So "SUBSCRIBE" also finds UNSUBSCRIBE and SSUBSCRIBE;
 * "\r\nSUBSCRIBE\r\n" finds only SUBSCRIBE; an owner, key or sha1 finds the script call that
 * carries it; "" finds every command. Mind that the first EVALSHA of a script may be answered
 * NOSCRIPT: run it once before arming a rule on it.
 *
 * Rules (drop, mute, hold, stall, forge, answer) are armed for ONE command: the first that matches,
 * on any connection, uses the rule up. Arm it n times for n commands. When a command matches
 * several, the oldest is used. States (delay, black hole, trickle, refuse) last until they are
 * changed or healed.
 *
 * Controls take effect before they return: nothing that arrives later escapes them. Any thread may
 * call them, but no forked child. */
#ifndef HF_TEST_PROXY_H
#define HF_TEST_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proxy;

/* The server need not be up: a client that connects while it is down is cut at once. */
struct proxy *proxy_start(const char *server_unix_path);

/* The same for a server at a loopback port, and for what it speaks.
 *   RESP       as above
 *   ZOOKEEPER  frames; a reply is known by its request's number. A matcher is looked for in the
 *              request's name, its path and its bytes: "create2 /app/x/_c_", "multi", "connect"
 *   OPAQUE     bytes: for black holes, refusal and cuts only. A server that is down may come: its
 *              clients are not cut for a while */
enum proxy_wire { PROXY_RESP, PROXY_ZOOKEEPER, PROXY_OPAQUE };
struct proxy *proxy_start_tcp(int server_port, enum proxy_wire wire);

/* Cuts everything, held commands included. NULL is fine. */
void proxy_free(struct proxy *proxy);
#define own_proxy __attribute__((cleanup(own_proxy_free), unused)) struct proxy
static inline void own_proxy_free(struct proxy **proxy) {
    proxy_free(*proxy);
}

/* For a server with a password: the password is part of the proxy's urls from then on. */
void proxy_set_password(struct proxy *proxy, const char *password);

const char *proxy_url(
    const struct proxy *proxy); /* unix://[:password@]/path; of others than RESP as below */
const char *proxy_tcp_url(
    const struct proxy *proxy); /* redis://[:password@]127.0.0.1:port, or zk:// */
const char *proxy_socket(const struct proxy *proxy);
int proxy_port(const struct proxy *proxy);

/* ---- Replies lost after execution ------------------------------------------------------------ */

/* Lets the command through; when the server has answered it, throws the answer away and cuts the
 * client's connection. Fired when the answer came, so the server has run the command by then: an
 * answer of our scripts that the copy came too late (the machine paused, and nothing was done)
 * passes, and the rule is for the next copy. */
void proxy_drop_replies_after(struct proxy *proxy, const char *matcher);

/* The same, but the connection stays open and silent: the client's commands still reach the server,
 * no answer comes back, for the life of the connection. */
void proxy_mute_replies_after(struct proxy *proxy, const char *matcher);

/* ---- Late copies ----------------------------------------------------------------------------- */

/* Keeps the command, and all that followed it on its connection, back and cuts the client's
 * connection, once earlier commands have been answered. The connection to the server stays open for
 * proxy_release_held. */
void proxy_hold_request(struct proxy *proxy, const char *matcher);

/* The same, but the client's connection stays open; it gets its answers after the release. */
void proxy_stall_request(struct proxy *proxy, const char *matcher);

/* Waits until a command is held back by one of the two; false when the limit passed. */
bool proxy_wait_held(struct proxy *proxy, int64_t limit_ms);
size_t proxy_held(struct proxy *proxy); /* connections that are being held back now */

/* Delivers what is held back, on the connections to the server that it belongs to, and waits until
 * the server has answered all of it. Returns the number of commands delivered. -1 when the server
 * did not answer within 10 s or has closed one of the connections. */
int proxy_release_held(struct proxy *proxy);

/* ---- Answers of our own ---------------------------------------------------------------------- */

/* The command runs, and its reply is replaced by these bytes (garbage is fine). A connection that
 * has subscribed is cut instead. */
void proxy_forge_reply(struct proxy *proxy, const char *matcher, const void *bytes, size_t length);

/* The command does not reach the server; these bytes are the answer, in its place in the pipeline.
 * For errors that are hard to provoke: "-LOADING ...\r\n". A frame of ZooKeeper's gets the request's
 * number. */
void proxy_answer_instead(struct proxy *proxy, const char *matcher, const void *bytes,
                          size_t length);

/* ---- States of the network ------------------------------------------------------------------- */

/* Nothing passes in the given directions, on old and new connections; sets both, so (false, false)
 * ends it. As in a network that is partitioned, bytes are not lost: they arrive when it ends, and
 * so does the end of a connection. A caller that closed in good order meanwhile still has its last
 * commands delivered then (late copies); one that reset the connection has not. */
void proxy_blackhole(struct proxy *proxy, bool to_server, bool to_client);

/* The same in both directions, for those present connections that have sent a matching command,
 * e.g. "\r\nSUBSCRIBE\r\n". Returns how many there were. For their life, or until proxy_heal. */
size_t proxy_freeze_connections(struct proxy *proxy, const char *matcher);

/* Every matching command, and what follows on its connection, reaches the server that much later.
 * One delay at a time; 0 ms ends it. */
void proxy_delay(struct proxy *proxy, const char *matcher, int64_t delay_ms);

/* The server's bytes reach clients at most `bytes` at a time, and no more before the client has
 * taken those, or with TCP its kernel (looked at every millisecond). 0 ends it. */
void proxy_trickle(struct proxy *proxy, size_t bytes);

/* New connections lead to another server, as with a load balancer; present ones stay where they are. */
void proxy_lead_to(struct proxy *proxy, const char *server_unix_path);

/* New connections are refused (ECONNREFUSED); present ones stay. */
void proxy_refuse(struct proxy *proxy, bool refuse);

/* Cuts every connection, or those that have sent a matching command: a reset on TCP, an end on Unix
 * sockets. Returns how many. What is held back stays held. */
size_t proxy_cut_all(struct proxy *proxy);
size_t proxy_cut_connections(struct proxy *proxy, const char *matcher);

/* A plain wire again: ends black holes, freezes, delay, trickle and refusal, and disarms unused
 * rules. Muted connections stay mute and held commands stay held. */
void proxy_heal(struct proxy *proxy);

/* ---- What passed ----------------------------------------------------------------------------- */

size_t proxy_connections(struct proxy *proxy); /* accepted since the start */
size_t proxy_open(struct proxy *proxy);        /* clients connected now */

/* How many commands matched since the start. A command counts when it is complete and its turn has
 * come: forwarded, held or answered; not while a black hole or a delay keeps it. (The newest 32 MB
 * are known.) */
size_t proxy_seen(struct proxy *proxy, const char *matcher);
bool proxy_wait_seen(struct proxy *proxy, const char *matcher, size_t count, int64_t limit_ms);

/* The same without those that the server has answered with "too late": they did nothing. For what
 * must not be sent twice, whatever the machine does. */
size_t proxy_seen_in_time(struct proxy *proxy, const char *matcher);

/* Waits until all that clients have sent is answered, and the answers are at the clients' sockets; false
 * when the limit passed. Of subscriptions it knows nothing. */
bool proxy_wait_answered(struct proxy *proxy, int64_t limit_ms);

/* How many rules have done their work: the reply dropped, muted or forged, the command held or
 * answered. */
size_t proxy_fired(struct proxy *proxy);
bool proxy_wait_fired(struct proxy *proxy, size_t count, int64_t limit_ms);

#endif
