/*
 * Tests of the proxy (tests/support/proxy.h): each fault it promises really happens, to the command
 * that it was meant for and to no other, and nothing happens while no fault is wanted.
 *
 * The client is hiredis, the server is real. What the server has run is asked on the server's own
 * socket, past the proxy.
 */
#include "support/case.h"
#include "support/proxy.h"
#include "support/server.h"
#include "support/wait.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#define WIRE_CASE(name) CASE_AROUND(name, set_up, tear_down)

enum { LIMIT_MS = 30000, SHORT_MS = 100 };

struct wire {
    struct server *s;
    struct proxy *p;
};

static int set_up(void **state) {
    struct wire *wire = calloc(1, sizeof *wire);
    wire->s = server_start(NULL);
    wire->p = proxy_start(server_socket(wire->s));
    signal(SIGPIPE, SIG_IGN); /* hiredis writes to connections that were cut */
    *state = wire;
    return 0;
}

static int tear_down(void **state) {
    struct wire *wire = *state;
    proxy_free(wire->p);
    server_free(wire->s);
    free(wire);
    return 0;
}

static redisContext *client(struct wire *wire) {
    redisContext *c = redisConnectUnix(proxy_socket(wire->p));
    assert_non_null(c);
    assert_int_equal(c->err, 0);
    return c;
}

static redisContext *tcp_client(struct wire *wire) {
    redisContext *c = redisConnect("127.0.0.1", proxy_port(wire->p));
    assert_non_null(c);
    assert_int_equal(c->err, 0);
    return c;
}

static long long ask_int(redisContext *c, const char *command) {
    own_reply *reply = redisCommand(c, command);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    return reply->integer;
}

static long long next_int(redisContext *c) {
    void *reply = NULL;
    assert_int_equal(redisGetReply(c, &reply), REDIS_OK);
    long long number = ((redisReply *)reply)->integer;
    freeReplyObject(reply);
    return number;
}

static void send_commands(redisContext *c) {
    int done = 0;
    while (!done)
        redisBufferWrite(c, &done);
}

/* The command gets no answer because the connection has ended. */
static void assert_cut(redisContext *c, const char *command) {
    assert_null(redisCommand(c, command));
    assert_true(c->err == REDIS_ERR_EOF || errno == ECONNRESET || errno == EPIPE);
}

/* The command gets no answer, but the connection is open. Only here is an answer not waited for:
 * one that is to come may take its time. */
static void assert_silent(redisContext *c, const char *command) {
    redisSetTimeout(c, (struct timeval){.tv_usec = SHORT_MS * 1000});
    errno = 0;
    assert_null(redisCommand(c, command));
    assert_int_equal(c->err, REDIS_ERR_IO);
    assert_int_equal(errno, EAGAIN);
}

/* ---- A plain wire ---------------------------------------------------------------------------- */

WIRE_CASE(passes_everything_unchanged) {
    struct wire *wire = *state;
    size_t size = 3 * 1024 * 1024;
    char *big = malloc(size);
    for (size_t i = 0; i < size; i++)
        big[i] = (char)(i * 7 + i / 251);

    redisContext *clients[] = {client(wire), tcp_client(wire)};
    for (size_t i = 0; i < 2; i++) {
        redisReply *reply = redisCommand(clients[i], "SET k %b", big, size);
        assert_string_equal(reply->str, "OK");
        freeReplyObject(reply);
        reply = redisCommand(clients[i], "GET k");
        assert_int_equal(reply->len, size);
        assert_memory_equal(reply->str, big, size);
        freeReplyObject(reply);
        reply = redisCommand(clients[i], "EVAL %s 0", "return {1,{2,{3,'x'},{}},false,'y'}");
        assert_int_equal(reply->elements, 4);
        freeReplyObject(reply);
        redisFree(clients[i]);
    }
    free(big);
    assert_int_equal(proxy_connections(wire->p), 2);
    assert_int_equal(proxy_open(wire->p), 0);
    assert_int_equal(proxy_seen(wire->p, "\r\nset\r\n"), 2);
    assert_int_equal(proxy_fired(wire->p), 0);
}

static bool no_clients(void *arg) {
    return server_clients(arg) == 0;
}

WIRE_CASE(ends_reach_the_other_side) {
    struct wire *wire = *state;
    redisContext *c = client(wire);
    assert_int_equal(ask_int(c, "INCR n"), 1);
    assert_int_equal(server_clients(wire->s), 1);
    redisFree(c);
    assert_true(wait_until(no_clients, wire->s, LIMIT_MS));

    c = client(wire);
    assert_int_equal(ask_int(c, "INCR n"), 2);
    server_kill(wire->s);
    assert_cut(c, "INCR n");
    redisFree(c);
    c = client(wire); /* accepted by the proxy, which finds no server */
    assert_cut(c, "INCR n");
    redisFree(c);
    server_restart(wire->s);
    c = client(wire);
    assert_int_equal(ask_int(c, "INCR n"), 1);
    redisFree(c);
}

/* ---- Replies lost after execution ------------------------------------------------------------ */

WIRE_CASE(dropped_reply_was_executed) {
    struct wire *wire = *state;
    redisContext *c = client(wire), *other = client(wire);
    assert_int_equal(ask_int(c, "INCR n"), 1);
    proxy_drop_replies_after(wire->p, "iNCr");
    assert_cut(c, "INCR n");
    assert_int_equal(cmd_int(wire->s, "GET n"), 2);
    assert_int_equal(proxy_fired(wire->p), 1);

    /* The rule is used up, and other connections were left alone. */
    assert_int_equal(ask_int(other, "INCR n"), 3);
    redisFree(c);
    redisFree(other);
}

WIRE_CASE(drop_keeps_replies_before_it) {
    struct wire *wire = *state;
    redisContext *c = client(wire);
    proxy_drop_replies_after(wire->p, "INCRBY");
    redisAppendCommand(c, "INCR n");
    redisAppendCommand(c, "INCR n");
    redisAppendCommand(c, "INCRBY n 10");
    redisAppendCommand(c, "INCR n");
    assert_int_equal(next_int(c), 1);
    assert_int_equal(next_int(c), 2);
    void *reply;
    assert_int_equal(redisGetReply(c, &reply), REDIS_ERR);
    redisFree(c);
    /* What followed in the pipeline may or may not have run, as on a real wire. */
    assert_in_range(cmd_int(wire->s, "GET n"), 12, 13);
}

WIRE_CASE(drop_waits_for_the_server) {
    struct wire *wire = *state;
    redisContext *c = client(wire);
    proxy_drop_replies_after(wire->p, "INCR");
    server_freeze(wire->s);
    assert_silent(c, "INCR n"); /* not cut: the server has not run it */
    assert_int_equal(proxy_fired(wire->p), 0);
    redisFree(c); /* the client gives up first; the reply is still dropped when it comes */
    server_unfreeze(wire->s);
    assert_true(proxy_wait_fired(wire->p, 1, LIMIT_MS));
    assert_int_equal(cmd_int(wire->s, "GET n"), 1);
}

WIRE_CASE(muted_connection_still_reaches_the_server) {
    struct wire *wire = *state;
    redisContext *c = client(wire), *other = client(wire);
    proxy_mute_replies_after(wire->p, "first");
    assert_int_equal(ask_int(c, "INCR before"), 1);
    assert_silent(c, "INCR first");
    assert_true(proxy_wait_fired(wire->p, 1, LIMIT_MS));
    assert_int_equal(cmd_int(wire->s, "GET first"), 1);

    /* The socket is open and takes more commands; hiredis has given up, so write by hand. */
    static const char more[] = "*2\r\n$4\r\nINCR\r\n$6\r\nsecond\r\n";
    assert_int_equal(send(c->fd, more, sizeof more - 1, 0), sizeof more - 1);
    assert_true(proxy_wait_seen(wire->p, "second", 1, LIMIT_MS));
    assert_int_equal(ask_int(other, "INCR other"), 1);
    char byte;
    proxy_heal(wire->p);
    assert_int_equal(recv(c->fd, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    redisFree(c);
    redisFree(other);
}

static void run_script(redisContext *c, const char *body, size_t elements) {
    own_reply *reply = redisCommand(c, "EVAL %s 0", body);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->elements, elements);
}

/* A copy that came too late did nothing: its answer arrives, and the next copy's is lost. */
WIRE_CASE(too_late_is_not_the_one_to_lose) {
    struct wire *wire = *state;
    redisContext *c = client(wire);
    proxy_drop_replies_after(wire->p, "EVAL");
    run_script(c, "return {-3, 0, 1700000000000}", 3);
    run_script(c, "return {1700000000000}", 1); /* as a renewal says it */
    assert_int_equal(proxy_fired(wire->p), 0);
    assert_int_equal(proxy_seen(wire->p, "EVAL"), 2);
    assert_int_equal(proxy_seen_in_time(wire->p, "EVAL"), 0);
    assert_cut(c, "EVAL return{redis.call('INCR','n'),0,-3} 0");
    assert_int_equal(cmd_int(wire->s, "GET n"), 1);
    assert_int_equal(proxy_fired(wire->p), 1);
    assert_int_equal(proxy_seen_in_time(wire->p, "EVAL"), 1);
    redisFree(c);

    c = client(wire);
    proxy_mute_replies_after(wire->p, "EVAL");
    run_script(c, "return {-3, 0, 0, 1700000000000}", 4);
    assert_silent(c, "EVAL return{redis.call('INCR','n')} 0");
    assert_true(proxy_wait_fired(wire->p, 2, LIMIT_MS));
    assert_int_equal(cmd_int(wire->s, "GET n"), 2);
    redisFree(c);
}

/* Healed while the copy is on its way: nothing is lost then, and nothing after it. */
WIRE_CASE(too_late_after_healing_arms_nothing) {
    struct wire *wire = *state;
    own_context *c = client(wire);
    proxy_drop_replies_after(wire->p, "EVAL");
    server_freeze(wire->s);
    redisAppendCommand(c, "EVAL %s 0", "return {-3, 0, 1700000000000}");
    send_commands(c);
    assert_true(proxy_wait_seen(wire->p, "EVAL", 1, LIMIT_MS));
    proxy_heal(wire->p);
    server_unfreeze(wire->s);
    void *reply;
    assert_int_equal(redisGetReply(c, &reply), REDIS_OK);
    freeReplyObject(reply);
    run_script(c, "return {1, 0, 1700000000000}", 3);
    assert_int_equal(proxy_fired(wire->p), 0);
}

/* ---- Late copies ----------------------------------------------------------------------------- */

WIRE_CASE(held_request_arrives_late) {
    struct wire *wire = *state;
    redisContext *c = client(wire);
    assert_int_equal(ask_int(c, "INCR n"), 1);
    proxy_hold_request(wire->p, "late");
    assert_cut(c, "SET k late");
    redisFree(c);
    assert_true(proxy_wait_held(wire->p, LIMIT_MS));
    assert_int_equal(proxy_held(wire->p), 1);
    assert_false(key_exists(wire->s, "k"));

    /* Somebody else has moved on; then the copy arrives. */
    c = client(wire);
    freeReplyObject(redisCommand(c, "SET k newer"));
    redisFree(c);
    assert_int_equal(proxy_release_held(wire->p), 1);
    char *value = cmd_str(wire->s, "GET k");
    assert_string_equal(value, "late");
    free(value);
    assert_int_equal(proxy_held(wire->p), 0);
    assert_int_equal(proxy_seen(wire->p, "late"), 1);
    assert_true(wait_until(no_clients, wire->s, LIMIT_MS)); /* its connection is closed then */
}

WIRE_CASE(held_request_takes_its_followers_along) {
    struct wire *wire = *state;
    redisContext *c = client(wire);
    proxy_hold_request(wire->p, "second");
    static const char *const values[] = {"first", "second", "third"};
    for (int i = 0; i < 3; i++)
        redisAppendCommand(c, "RPUSH list %s", values[i]);
    assert_int_equal(next_int(c), 1);
    assert_true(proxy_wait_held(wire->p, LIMIT_MS));
    redisFree(c);
    assert_int_equal(cmd_int(wire->s, "LLEN list"), 1);
    assert_int_equal(proxy_release_held(wire->p), 2);
    own_text *last = cmd_str(wire->s, "LINDEX list 2");
    assert_string_equal(last, "third");
}

WIRE_CASE(held_request_does_not_outlive_the_server) {
    struct wire *wire = *state;
    redisContext *c = client(wire);
    proxy_hold_request(wire->p, "SET");
    assert_cut(c, "SET k 1");
    redisFree(c);
    assert_true(proxy_wait_held(wire->p, LIMIT_MS));
    server_restart(wire->s);
    assert_int_equal(proxy_release_held(wire->p), -1);
    assert_false(key_exists(wire->s, "k"));
    assert_false(proxy_wait_held(wire->p, 20));
}

struct call {
    redisContext *c;
    long long reply;
};

static void *call_incr(void *arg) {
    struct call *call = arg;
    call->reply = ask_int(call->c, "INCR n");
    return NULL;
}

WIRE_CASE(stalled_request_is_answered_after_release) {
    struct wire *wire = *state;
    struct call call = {.c = client(wire)};
    proxy_stall_request(wire->p, "INCR");
    pthread_t thread;
    pthread_create(&thread, NULL, call_incr, &call);
    assert_true(proxy_wait_held(wire->p, LIMIT_MS));
    assert_false(key_exists(wire->s, "n"));
    assert_int_equal(proxy_open(wire->p), 1);
    cmd_ok(wire->s, "SET n 10");
    assert_int_equal(proxy_release_held(wire->p), 1);
    pthread_join(thread, NULL);
    assert_int_equal(call.reply, 11);
    assert_int_equal(ask_int(call.c, "INCR n"), 12);
    redisFree(call.c);
}

/* ---- Answers of our own ---------------------------------------------------------------------- */

WIRE_CASE(forged_and_instead_answers_keep_their_place) {
    struct wire *wire = *state;
    own_context *c = client(wire);
    proxy_forge_reply(wire->p, "forged", ":99\r\n", 5);
    proxy_answer_instead(wire->p, "instead", "-LOADING later\r\n", 16);
    redisAppendCommand(c, "INCR n");
    redisAppendCommand(c, "INCR forged");
    redisAppendCommand(c, "INCR instead");
    redisAppendCommand(c, "INCR n");
    assert_int_equal(next_int(c), 1);
    assert_int_equal(next_int(c), 99);
    void *reply;
    assert_int_equal(redisGetReply(c, &reply), REDIS_OK);
    assert_string_equal(((redisReply *)reply)->str, "LOADING later");
    freeReplyObject(reply);
    assert_int_equal(next_int(c), 2);
    assert_int_equal(cmd_int(wire->s, "GET forged"), 1);
    assert_false(key_exists(wire->s, "instead"));
    assert_int_equal(proxy_fired(wire->p), 2);
    assert_int_equal(ask_int(c, "INCR instead"), 1); /* once only */
}

/* ---- Black holes ----------------------------------------------------------------------------- */

static bool key_has_come(void *arg) {
    return key_exists(arg, "k");
}

WIRE_CASE(hole_to_server_keeps_commands) {
    struct wire *wire = *state;
    redisContext *old = client(wire);
    assert_int_equal(ask_int(old, "INCR n"), 1);
    proxy_blackhole(wire->p, true, false);
    assert_silent(old, "SET k 1");
    redisContext *fresh = client(wire); /* a new connection meets the hole, too */
    assert_silent(fresh, "SET k 2");
    assert_false(key_exists(wire->s, "k"));
    assert_int_equal(proxy_seen(wire->p, "SET"), 0);

    /* Both were closed in good order, so what they sent arrives late. */
    redisFree(old);
    redisFree(fresh);
    proxy_blackhole(wire->p, false, false);
    assert_true(proxy_wait_seen(wire->p, "SET", 2, LIMIT_MS));
    assert_true(wait_until(key_has_come, wire->s, LIMIT_MS));
    assert_true(wait_until(no_clients, wire->s, LIMIT_MS));
}

WIRE_CASE(hole_to_server_loses_bytes_a_reset_took) {
    struct wire *wire = *state;
    redisContext *c = tcp_client(wire);
    assert_int_equal(ask_int(c, "INCR n"), 1);
    proxy_blackhole(wire->p, true, true);
    assert_silent(c, "INCR n");
    struct linger abortive = {.l_onoff = 1};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &abortive, sizeof abortive);
    redisFree(c);
    proxy_heal(wire->p);
    assert_true(wait_until(no_clients, wire->s, LIMIT_MS));
    assert_int_equal(cmd_int(wire->s, "GET n"), 1);
}

WIRE_CASE(hole_to_client_keeps_replies) {
    struct wire *wire = *state;
    struct call call = {.c = client(wire)};
    proxy_blackhole(wire->p, false, true);
    pthread_t thread;
    pthread_create(&thread, NULL, call_incr, &call);
    assert_true(proxy_wait_seen(wire->p, "INCR", 1, LIMIT_MS));
    redisContext *hasty = client(wire);
    assert_silent(hasty, "SET k 1");
    assert_true(wait_until(key_has_come, wire->s, LIMIT_MS)); /* it ran */
    redisFree(hasty);
    proxy_heal(wire->p);
    pthread_join(thread, NULL);
    assert_int_equal(call.reply, 1);
    redisFree(call.c);
}

WIRE_CASE(freeze_and_cut_choose_by_sent_bytes) {
    struct wire *wire = *state;
    redisContext *a = client(wire), *b = client(wire);
    assert_int_equal(ask_int(a, "INCR alpha"), 1);
    assert_int_equal(ask_int(b, "INCR beta"), 1);
    assert_int_equal(proxy_freeze_connections(wire->p, "alpha"), 1);
    assert_silent(a, "INCR alpha");
    assert_int_equal(ask_int(b, "INCR beta"), 2);
    assert_int_equal(cmd_int(wire->s, "GET alpha"), 1);

    assert_int_equal(proxy_cut_connections(wire->p, "beta"), 1);
    assert_cut(b, "INCR beta");
    assert_int_equal(proxy_open(wire->p), 1);
    redisFree(a);
    redisFree(b);
}

/* ---- Slow wires ------------------------------------------------------------------------------ */

WIRE_CASE(delay_keeps_order_and_spares_others) {
    struct wire *wire = *state;
    enum { DELAY_MS = 300 };
    redisContext *slow = client(wire), *quick = client(wire);
    proxy_delay(wire->p, "slow", DELAY_MS);
    int64_t start_ms = now_ms();
    freeReplyObject(redisCommand(slow, "SET slow 1"));
    assert_true(now_ms() - start_ms >= DELAY_MS);

    proxy_delay(wire->p, "slow", LIMIT_MS * 10);
    redisAppendCommand(slow, "INCR slow");
    redisAppendCommand(slow, "RPUSH order behind");
    send_commands(slow);
    assert_int_equal(ask_int(quick, "RPUSH order other"), 1);
    assert_int_equal(proxy_seen(wire->p, "\r\nINCR\r\n"), 0);
    proxy_heal(wire->p);
    assert_int_equal(next_int(slow), 2);
    /* It was behind the delayed one, and so behind the other. */
    assert_int_equal(next_int(slow), 2);
    redisFree(slow);
    redisFree(quick);
}

WIRE_CASE(trickle_gives_pieces) {
    struct wire *wire = *state;
    redisContext *clients[] = {client(wire), tcp_client(wire)};
    cmd_ok(wire->s, "SET k abcdefgh");
    static const char question[] = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    static const char answer[] = "$8\r\nabcdefgh\r\n";
    proxy_trickle(wire->p, 3);
    for (size_t i = 0; i < 2; i++) {
        char got[64];
        size_t length = 0;
        assert_int_equal(send(clients[i]->fd, question, sizeof question - 1, 0),
                         sizeof question - 1);
        while (length < sizeof answer - 1) {
            ssize_t n = recv(clients[i]->fd, got + length, sizeof got - length, 0);
            assert_in_range(n, 1,
                            i == 0 ? 3 : sizeof answer - 1); /* of TCP the kernel takes them */
            length += (size_t)n;
        }
        assert_memory_equal(got, answer, sizeof answer - 1);
    }
    proxy_heal(wire->p);
    freeReplyObject(redisCommand(clients[0], "PING"));
    redisFree(clients[0]);
    redisFree(clients[1]);
}

/* ---- Connections ----------------------------------------------------------------------------- */

static int try_unix(struct wire *wire) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", proxy_socket(wire->p));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int err = connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? errno : 0;
    close(fd);
    return err;
}

static int try_tcp(struct wire *wire) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)proxy_port(wire->p))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int err = connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? errno : 0;
    close(fd);
    return err;
}

WIRE_CASE(refuses_new_connections_only) {
    struct wire *wire = *state;
    own_context *old = client(wire);
    for (int round = 0; round < 3; round++) {
        proxy_refuse(wire->p, true);
        assert_int_equal(try_unix(wire), ECONNREFUSED);
        assert_int_equal(try_tcp(wire), ECONNREFUSED);
        assert_int_equal(ask_int(old, "INCR n"), round + 1);
        proxy_refuse(wire->p, false);
        assert_int_equal(try_unix(wire), 0);
        assert_int_equal(try_tcp(wire), 0);
    }
}

WIRE_CASE(cut_all_cuts_all_at_once) {
    struct wire *wire = *state;
    redisContext *local = client(wire), *tcp = tcp_client(wire);
    assert_int_equal(ask_int(local, "INCR n"), 1);
    assert_int_equal(ask_int(tcp, "INCR n"), 2);
    own_context *unused = client(wire);
    pid_t child =
        run_child(child_waits_for_ever, NULL); /* holds copies of the proxy's descriptors */

    assert_int_equal(proxy_cut_all(wire->p), 3);
    char byte;
    assert_int_equal(recv(local->fd, &byte, 1, 0), 0);
    assert_int_equal(recv(unused->fd, &byte, 1, 0), 0);
    assert_int_equal(recv(tcp->fd, &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    assert_int_equal(proxy_open(wire->p), 0);
    assert_true(wait_until(no_clients, wire->s, LIMIT_MS));
    kill_child(child);
    redisFree(local);
    redisFree(tcp);
}

WIRE_CASE(cut_all_misses_no_connection) {
    struct wire *wire = *state;
    for (int round = 0; round < 200; round++) {
        redisContext *c = client(wire); /* perhaps not accepted yet */
        assert_int_equal(proxy_cut_all(wire->p), 1);
        redisFree(c);
        cmd_ok(wire->s,
               "PING"); /* the server has accepted and lost it, too, so its queue stays short */
    }
}

WIRE_CASE(waits_end_at_their_limit) {
    struct wire *wire = *state;
    int64_t start_ms = now_ms();
    assert_false(proxy_wait_seen(wire->p, "x", 1, 30));
    assert_false(proxy_wait_held(wire->p, 30));
    assert_false(proxy_wait_fired(wire->p, 1, 30));
    assert_true(now_ms() - start_ms >= 90);
    assert_int_equal(proxy_release_held(wire->p), 0);
    proxy_drop_replies_after(wire->p, "INCR");
    proxy_heal(wire->p); /* disarms it */
    own_context *c = client(wire);
    assert_int_equal(ask_int(c, "INCR n"), 1);
}

WIRE_CASE(password_is_in_the_urls) {
    struct wire *wire = *state;
    char url[256];
    snprintf(url, sizeof url, "unix://%s", proxy_socket(wire->p));
    assert_string_equal(proxy_url(wire->p), url);
    proxy_set_password(wire->p, "a@b");
    snprintf(url, sizeof url, "redis://:a%%40b@127.0.0.1:%d", proxy_port(wire->p));
    assert_string_equal(proxy_tcp_url(wire->p), url);
}

/* ---- Subscriptions --------------------------------------------------------------------------- */

static void assert_message(redisContext *c, const char *kind, const char *third) {
    void *any;
    assert_int_equal(redisGetReply(c, &any), REDIS_OK);
    own_reply *reply = any;
    assert_int_equal(reply->elements, 3);
    assert_string_equal(reply->element[0]->str, kind);
    if (third != NULL)
        assert_string_equal(reply->element[2]->str, third);
}

WIRE_CASE(messages_pass) {
    struct wire *wire = *state;
    own_context *c = client(wire);
    redisAppendCommand(c, "SUBSCRIBE one two");
    assert_message(c, "subscribe", NULL);
    assert_message(c, "subscribe", NULL);
    assert_int_equal(cmd_int(wire->s, "PUBLISH one hello"), 1);
    assert_message(c, "message", "hello");
    redisAppendCommand(c, "SUBSCRIBE three");
    assert_message(c, "subscribe", NULL);
    assert_int_equal(cmd_int(wire->s, "PUBLISH three again"), 1);
    assert_message(c, "message", "again");

    proxy_drop_replies_after(wire->p, "four");
    assert_cut(c, "SUBSCRIBE four");
    assert_true(proxy_wait_fired(wire->p, 1, LIMIT_MS));
}

/* They pile up in the proxy, and not one is lost or changed, nor its place. */
WIRE_CASE(a_flood_of_messages_passes_in_order) {
    struct wire *wire = *state;
    enum { MESSAGES = 20000 };
    own_context *c = client(wire);
    redisAppendCommand(c, "SUBSCRIBE one");
    assert_message(c, "subscribe", NULL);
    static const char publish[] =
        "for i = ARGV[1], ARGV[1] + 1999 do redis.call('publish', 'one', i) end";
    for (int half = 0; half < 2; half++) {
        proxy_blackhole(wire->p, false, half == 0);
        for (int i = half * MESSAGES / 2; i < (half + 1) * MESSAGES / 2; i += 2000)
            cmd_ok(wire->s, "EVAL %s 0 %d", publish, i);
    }
    for (int i = 0; i < MESSAGES; i++) {
        own_text *number = text_of("%d", i);
        assert_message(c, "message", number);
    }
}

WIRE_CASE(subscription_can_be_stalled) {
    struct wire *wire = *state;
    own_context *c = client(wire);
    proxy_stall_request(wire->p, "\r\nSUBSCRIBE\r\n");
    redisAppendCommand(c, "SUBSCRIBE one");
    send_commands(c);
    assert_true(proxy_wait_held(wire->p, LIMIT_MS));
    assert_int_equal(cmd_int(wire->s, "PUBLISH one unheard"), 0);
    assert_int_equal(proxy_release_held(wire->p), 1);
    assert_message(c, "subscribe", NULL);
    assert_int_equal(cmd_int(wire->s, "PUBLISH one heard"), 1);
    assert_message(c, "message", "heard");

    /* A half-open subscription: nothing arrives any more, and nothing tells. */
    assert_int_equal(proxy_freeze_connections(wire->p, "SUBSCRIBE"), 1);
    assert_int_equal(cmd_int(wire->s, "PUBLISH one lost"), 1);
    assert_silent(c, "PING");
}

RUN_CASES(NULL, NULL)
