/*
 * Tests of the ZooKeeper servers for tests (tests/support/zk.h) and of the proxy between a client and
 * one: each thing they promise really happens. The client is a few requests by hand.
 */
#include "support/case.h"
#include "support/proxy.h"
#include "support/wait.h"
#include "support/zk.h"
#include "support/zk_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { LIMIT_MS = 60000, CREATE = 1, EXISTS = 3 };

/* ---- A client by hand ------------------------------------------------------------------------ */

struct out {
    unsigned char data[256];
    size_t length;
};

static void put(struct out *out, const void *data, size_t length) {
    memcpy(out->data + out->length, data, length);
    out->length += length;
}

static void put_int(struct out *out, int32_t number) {
    uint32_t wire = htonl((uint32_t)number);
    put(out, &wire, sizeof wire);
}

static void put_text(struct out *out, const char *text) {
    put_int(out, (int32_t)strlen(text));
    put(out, text, strlen(text));
}

static void send_frame(int fd, const struct out *body) {
    struct out frame = {.length = 0};
    put_int(&frame, (int32_t)body->length);
    put(&frame, body->data, body->length);
    assert_int_equal(send(fd, frame.data, frame.length, MSG_NOSIGNAL), frame.length);
}

/* The third int of a reply is behind its zxid: the error. -1 when the connection has ended. */
static int read_frame(int fd, int32_t *ret_id, int32_t *ret_error) {
    uint32_t words[64];
    if (recv(fd, words, 4, MSG_WAITALL) != 4)
        return -1;
    size_t length = ntohl(words[0]);
    assert_true(length <= sizeof words);
    if (recv(fd, words, length, MSG_WAITALL) != (ssize_t)length)
        return -1;
    *ret_id = (int32_t)ntohl(words[0]);
    *ret_error = (int32_t)ntohl(words[3]);
    return 0;
}

static int open_session(int port) {
    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&inet, sizeof inet), 0);
    struct out hello = {.length = 0};
    static const char zeros[16];
    put_int(&hello, 0);
    put(&hello, zeros, 8); /* the last zxid that was seen */
    put_int(&hello, 4000);
    put(&hello, zeros, 8); /* no session yet */
    put_int(&hello, 16);
    put(&hello, zeros, 16);
    send_frame(fd, &hello);
    int32_t id, error;
    assert_int_equal(read_frame(fd, &id, &error), 0);
    return fd;
}

static void ask(int fd, int32_t id, int32_t kind, const char *path) {
    struct out out = {.length = 0};
    put_int(&out, id);
    put_int(&out, kind);
    put_text(&out, path);
    if (kind == CREATE) {
        put_text(&out, "data");
        put_int(&out, 1); /* one entry: all rights for anyone */
        put_int(&out, 31);
        put_text(&out, "world");
        put_text(&out, "anyone");
        put_int(&out, 0); /* persistent */
    } else {
        put(&out, "", 1); /* no watch */
    }
    send_frame(fd, &out);
}

static int32_t answer(int fd, int32_t id) {
    int32_t got = 0, error = 0;
    assert_int_equal(read_frame(fd, &got, &error), 0);
    assert_int_equal(got, id);
    return error;
}

static int32_t call(int fd, int32_t id, int32_t kind, const char *path) {
    ask(fd, id, kind, path);
    return answer(fd, id);
}

/* What a server itself says of a node. */
static int32_t look(const struct zk *zk, const char *path) {
    int fd = open_session(zk_port(zk));
    int32_t error = call(fd, 1, EXISTS, path);
    close(fd);
    return error;
}

/* ---- One server ------------------------------------------------------------------------------ */

CASE(a_server_has_a_life) {
    struct zk *zk = zk_start(NULL);
    char *ok = zk_word(zk, "ruok");
    assert_string_equal(ok, "imok");
    free(ok);

    int fd = open_session(zk_port(zk));
    assert_int_equal(call(fd, 1, CREATE, "/n"), 0);
    close(fd);
    assert_true(zk_number(zk, "zk_znode_count") > 1);

    zk_restart(zk);
    assert_int_equal(look(zk, "/n"), 0);
    zk_freeze(zk);
    assert_int_equal(process_state(zk_pid(zk)), 'T');
    zk_unfreeze(zk);
    assert_int_equal(look(zk, "/n"), 0);
    zk_restart_empty(zk);
    assert_int_equal(look(zk, "/n"), ZK_NO_NODE);

    zk_kill(zk);
    assert_null(zk_word(zk, "ruok"));
    zk_free(zk);
}

CASE(its_tree_can_be_seen_and_changed) {
    struct zk *zk = zk_start(NULL);
    struct zk_client *eyes = zk_client_open(zk_port(zk));
    assert_int_equal(zk_count(eyes, "/n"), -1);
    assert_int_equal(zk_make(eyes, "/n", "one", 3), 0);
    assert_int_equal(zk_make(eyes, "/n", "", 0), ZK_NODE_EXISTS);
    assert_int_equal(zk_make(eyes, "/n/b-0000000001", "", 0), 0);
    assert_int_equal(zk_make(eyes, "/n/a-0000000002", "", 0), 0);
    struct zk_children *children = zk_children(eyes, "/n");
    assert_int_equal(children->count, 2);
    assert_string_equal(children->names[0], "b-0000000001");
    assert_string_equal(children->names[1], "a-0000000002");
    zk_children_free(children);
    assert_int_equal(zk_put(eyes, "/n", "other", 5), 0);
    size_t length;
    char *data = zk_data(eyes, "/n", &length);
    assert_int_equal(length, 5);
    assert_string_equal(data, "other");
    free(data);
    assert_int_equal(zk_owner(eyes, "/n"), 0);

    zk_restart(zk);
    assert_int_equal(zk_delete(eyes, "/n/b-0000000001"), 0);
    assert_true(zk_wait_children(eyes, "/n", 1, LIMIT_MS));
    assert_int_equal(zk_exists(eyes, "/n/b-0000000001"), ZK_NO_NODE);
    zk_client_close(eyes);
    zk_free(zk);
}

CASE(the_proxy_loses_one_reply) {
    struct zk *zk = zk_start(NULL);
    struct proxy *proxy = proxy_start_tcp(zk_port(zk), PROXY_ZOOKEEPER);
    int fd = open_session(proxy_port(proxy));
    proxy_drop_replies_after(proxy, "create /lost");
    ask(fd, 1, CREATE, "/kept");
    ask(fd, 2, CREATE, "/lost");
    assert_int_equal(answer(fd, 1), 0);
    int32_t id, error;
    assert_int_equal(read_frame(fd, &id, &error), -1);
    assert_true(proxy_wait_fired(proxy, 1, LIMIT_MS));
    assert_int_equal(look(zk, "/lost"), 0);
    close(fd);

    fd = open_session(proxy_port(proxy));
    proxy_hold_request(proxy, "create /never");
    ask(fd, 1, CREATE, "/never");
    assert_int_equal(read_frame(fd, &id, &error), -1);
    assert_int_equal(look(zk, "/never"), ZK_NO_NODE);
    assert_int_equal(proxy_seen(proxy, "connect"), 2);
    assert_int_equal(proxy_seen(proxy, "create /"), 3);
    close(fd);
    proxy_free(proxy);
    zk_free(zk);
}

/* ---- Three ----------------------------------------------------------------------------------- */

static bool has_followers(void *arg) {
    return zk_number(arg, "zk_synced_followers") == ZK_MEMBERS - 1;
}

CASE(a_follower_that_is_cut_off_still_answers) {
    struct zk_options options = {.tick_ms = 500, .sync_limit = 4};
    struct zk_ensemble *ensemble = zk_ensemble_start(&options);
    int leader = zk_wait_whole(ensemble);
    int follower = (leader + 1) % ZK_MEMBERS;
    int fd = open_session(zk_port(zk_member(ensemble, follower)));
    assert_int_equal(call(fd, 1, CREATE, "/n"), 0);

    zk_cut(ensemble, follower);
    assert_int_equal(call(fd, 2, EXISTS, "/n"), 0);
    /* In the end each side notices: the follower lets its clients go. */
    int32_t id, error;
    assert_int_equal(read_frame(fd, &id, &error), -1);
    close(fd);

    zk_join(ensemble, follower);
    leader = zk_wait_whole(ensemble);
    assert_true(wait_until(has_followers, zk_member(ensemble, leader), LIMIT_MS));

    zk_kill(zk_member(ensemble, leader));
    int next = zk_wait_leader(ensemble);
    assert_int_not_equal(next, leader);
    assert_int_equal(look(zk_member(ensemble, next), "/n"), 0);
    zk_ensemble_free(ensemble);
}

int main(void) {
    zk_need();
    return test_cases_run(NULL, NULL);
}
