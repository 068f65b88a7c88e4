/*
 * A ZooKeeper client by hand; see zk_client.h, the manual.
 *
 * It is no part of the library and shares nothing with it, so that a mistake there is not made here, too. Requests
 * are sent one by one and answered at once; there are no watches. Called by tests, each from one thread.
 */
#include "support/zk_client.h"

#include "support/resp.h"
#include "support/wait.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CREATE = 1,
    DELETE = 2,
    EXISTS = 3,
    GET = 4,
    SET = 5,
    SET_ACL = 7,
    SYNC = 9,
    CHILDREN = 8,
    CLOSE = -11,
    SESSION_MS = 10000,
    PASSWORD_LEN = 16,
    LIMIT_S = 20,
    STAT_OWNER = 4 * 8 + 3 * 4, /* where a stat says whose the node is */
};

struct zk_client {
    int port, fd; /* -1: not connected */
    int32_t id;
    int64_t session; /* another's that is taken over; 0: one of our own */
};

/* ---- Frames ---------------------------------------------------------------------------------- */

static void put_int(struct bytes *out, int32_t number) {
    uint32_t wire = htonl((uint32_t)number);
    bytes_append(out, &wire, sizeof wire);
}

static void put_buffer(struct bytes *out, const void *data, size_t length) {
    put_int(out, (int32_t)length);
    bytes_append(out, data, length);
}

static int32_t int_at(const struct bytes *in, size_t at) {
    uint32_t wire = 0;
    if (at + 4 <= in->length)
        memcpy(&wire, in->data + at, sizeof wire);
    return (int32_t)ntohl(wire);
}

static void hang_up(struct zk_client *client) {
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
}

static bool send_all(struct zk_client *client, const struct bytes *frames) {
    return send(client->fd, frames->data, frames->length, MSG_NOSIGNAL) == (ssize_t)frames->length;
}

static bool send_frame(struct zk_client *client, const struct bytes *body) {
    struct bytes frame = {0};
    put_buffer(&frame, body->data, body->length);
    bool sent = send_all(client, &frame);
    bytes_clear(&frame);
    return sent;
}

static bool read_frame(struct zk_client *client, struct bytes *into) {
    uint32_t wire;
    bytes_clear(into);
    if (recv(client->fd, &wire, 4, MSG_WAITALL) != 4)
        return false;
    size_t length = ntohl(wire);
    own_text *data = malloc(length + 1);
    if (data == NULL)
        support_die("out of memory");
    bool whole = recv(client->fd, data, length, MSG_WAITALL) == (ssize_t)length;
    if (whole)
        bytes_append(into, data, length);
    return whole;
}

static void put_long(struct bytes *out, int64_t number) {
    uint64_t wire = htobe64((uint64_t)number);
    bytes_append(out, &wire, sizeof wire);
}

/* A server knows a session's password again by making it again: out of Java's generator, whose seed is the session's
 * number and a constant (ZooKeeperServer.generatePasswd). 0: there is no session yet. */
static void make_password(int64_t session, unsigned char password[PASSWORD_LEN]) {
    const uint64_t factor = 0x5DEECE66D, mask = ((uint64_t)1 << 48) - 1;
    uint64_t seed = (((uint64_t)session ^ 0xB3415C00) ^ factor) & mask;
    uint32_t number = 0;
    memset(password, 0, PASSWORD_LEN);
    for (size_t i = 0; session != 0 && i < PASSWORD_LEN; i++, number >>= 8) {
        if (i % 4 == 0) {
            seed = (seed * factor + 0xB) & mask;
            number = (uint32_t)(seed >> 16);
        }
        password[i] = (unsigned char)number;
    }
}

static bool greet(struct zk_client *client) {
    unsigned char password[PASSWORD_LEN];
    struct bytes hello = {0}, frames = {0}, answer = {0};
    make_password(client->session, password);
    put_int(&hello, 0);
    put_long(&hello, 0); /* the last zxid that was seen */
    put_int(&hello, SESSION_MS);
    put_long(&hello, client->session);
    put_buffer(&hello, password, sizeof password);
    bytes_append(&hello, "", 1); /* not read-only */
    put_buffer(&frames, hello.data, hello.length);
    if (client->session != 0) { /* at once: whose it is comes back as soon as it is gone */
        bytes_clear(&hello);
        put_int(&hello, 1);
        put_int(&hello, CLOSE);
        put_buffer(&frames, hello.data, hello.length);
    }
    bool greeted = send_all(client, &frames) && read_frame(client, &answer);
    bytes_clear(&frames);
    bytes_clear(&hello);
    bytes_clear(&answer);
    return greeted;
}

static bool connect_anew(struct zk_client *client) {
    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_port = htons((uint16_t)client->port)};
    inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct timeval limit = {.tv_sec = LIMIT_S};
    hang_up(client);
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->fd < 0)
        support_die("socket: %s", strerror(errno));
    setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    client->id = 0;
    return connect(client->fd, (struct sockaddr *)&inet, sizeof inet) == 0 && greet(client);
}

/* Sends a request and reads its answer, what is behind the answer's head; false when nothing came. */
static bool exchange(struct zk_client *client, int32_t kind, const struct bytes *body,
                     struct bytes *answer, int *ret_error) {
    struct bytes request = {0};
    int32_t id = ++client->id;
    put_int(&request, id);
    put_int(&request, kind);
    bytes_append(&request, body->data, body->length);
    bool done = client->fd >= 0 && send_frame(client, &request);
    bytes_clear(&request);
    while (done && (done = read_frame(client, answer)) && int_at(answer, 0) != id)
        continue;
    if (!done) {
        hang_up(client);
        return false;
    }
    *ret_error = int_at(answer, 12);
    bytes_consume(answer, 16);
    return true;
}

/* The same; a connection that has ended meanwhile, or a session, is made anew once. */
static int call(struct zk_client *client, int32_t kind, struct bytes *body, struct bytes *answer) {
    int error = ZK_UNREACHABLE;
    bool done = exchange(client, kind, body, answer, &error);
    if (!done && connect_anew(client))
        exchange(client, kind, body, answer, &error);
    bytes_clear(body);
    return error;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static struct bytes path_body(const char *path) {
    struct bytes body = {0};
    put_buffer(&body, path, strlen(path));
    return body;
}

static int sync_and(struct zk_client *client, int32_t kind, const char *path,
                    struct bytes *answer) {
    struct bytes body = path_body(path);
    int error = call(client, SYNC, &body, answer);
    if (error != 0)
        return error;
    body = path_body(path);
    bytes_append(&body, "", 1); /* no watch */
    return call(client, kind, &body, answer);
}

struct zk_client *zk_client_open(int port) {
    struct zk_client *client = zeroed(1, sizeof *client);
    client->port = port;
    client->fd = -1;
    return client;
}

void zk_client_close(struct zk_client *client) {
    if (client == NULL)
        return;
    struct bytes nothing = {0}, answer = {0};
    int error;
    if (client->fd >= 0)
        exchange(client, CLOSE, &nothing, &answer, &error);
    bytes_clear(&answer);
    hang_up(client);
    free(client);
}

void zk_close_session(int port, int64_t session) {
    struct zk_client *thief = zk_client_open(port);
    char byte;
    thief->session = session;
    if (connect_anew(thief))
        while (recv(thief->fd, &byte, 1, 0) > 0)
            continue; /* the server hangs up when it has done so */
    hang_up(thief);
    free(thief);
}

static int make(struct zk_client *client, const char *path, const void *data, size_t length,
                int mode) {
    struct bytes body = path_body(path), answer = {0};
    put_buffer(&body, data, length);
    put_int(&body, 1); /* one entry: all rights for anyone */
    put_int(&body, 31);
    put_buffer(&body, "world", 5);
    put_buffer(&body, "anyone", 6);
    put_int(&body, mode);
    int error = call(client, CREATE, &body, &answer);
    bytes_clear(&answer);
    return error;
}

int zk_make(struct zk_client *client, const char *path, const void *data, size_t length) {
    return make(client, path, data, length, 0);
}

int zk_make_ephemeral(struct zk_client *client, const char *path, const void *data, size_t length) {
    return make(client, path, data, length, 1);
}

int zk_put(struct zk_client *client, const char *path, const void *data, size_t length) {
    struct bytes body = path_body(path), answer = {0};
    put_buffer(&body, data, length);
    put_int(&body, -1);
    int error = call(client, SET, &body, &answer);
    bytes_clear(&answer);
    return error;
}

int zk_delete(struct zk_client *client, const char *path) {
    struct bytes body = path_body(path), answer = {0};
    put_int(&body, -1);
    int error = call(client, DELETE, &body, &answer);
    bytes_clear(&answer);
    return error;
}

int zk_forbid(struct zk_client *client, const char *path) {
    return zk_permit(client, path, 0);
}

int zk_permit(struct zk_client *client, const char *path, int rights) {
    struct bytes body = path_body(path), answer = {0};
    put_int(&body, 1); /* one entry: anyone may do that, and change it back */
    put_int(&body, 16 | rights);
    put_buffer(&body, "world", 5);
    put_buffer(&body, "anyone", 6);
    put_int(&body, -1);
    int error = call(client, SET_ACL, &body, &answer);
    bytes_clear(&answer);
    return error;
}

int zk_exists(struct zk_client *client, const char *path) {
    struct bytes answer = {0};
    int error = sync_and(client, EXISTS, path, &answer);
    bytes_clear(&answer);
    return error;
}

int64_t zk_owner(struct zk_client *client, const char *path) {
    struct bytes answer = {0};
    uint64_t owner = (uint64_t)-1;
    if (sync_and(client, EXISTS, path, &answer) == 0 && answer.length >= STAT_OWNER + 8) {
        memcpy(&owner, answer.data + STAT_OWNER, sizeof owner);
        owner = be64toh(owner);
    }
    bytes_clear(&answer);
    return (int64_t)owner;
}

char *zk_data(struct zk_client *client, const char *path, size_t *ret_length) {
    struct bytes answer = {0};
    char *data = NULL;
    if (sync_and(client, GET, path, &answer) == 0) {
        int32_t length = int_at(&answer, 0);
        size_t known = length > 0 && (size_t)length <= answer.length - 4 ? (size_t)length : 0;
        data = zeroed(1, known + 1);
        memcpy(data, answer.data + 4, known);
        if (ret_length != NULL)
            *ret_length = known;
    }
    bytes_clear(&answer);
    return data;
}

/* ---- Children -------------------------------------------------------------------------------- */

static long number_of(const char *name) {
    size_t length = strlen(name);
    return length > 10 ? strtol(name + length - 10, NULL, 10) : -1;
}

static int by_number(const void *a, const void *b) {
    const char *const *left = a, *const *right = b;
    long difference = number_of(*left) - number_of(*right);
    return difference != 0 ? (difference > 0) - (difference < 0) : strcmp(*left, *right);
}

static struct zk_children *read_children(const struct bytes *answer) {
    int32_t count = int_at(answer, 0);
    struct zk_children *children = zeroed(1, sizeof *children + (size_t)count * sizeof(char *));
    size_t at = 4;
    for (int32_t i = 0; i < count; i++) {
        size_t length = (size_t)int_at(answer, at);
        children->names[i] = zeroed(1, length + 1);
        memcpy(children->names[i], answer->data + at + 4, length);
        at += 4 + length;
    }
    children->count = (size_t)count;
    qsort(children->names, children->count, sizeof(char *), by_number);
    return children;
}

struct zk_children *zk_children(struct zk_client *client, const char *path) {
    struct bytes answer = {0};
    struct zk_children *children = NULL;
    if (sync_and(client, CHILDREN, path, &answer) == 0)
        children = read_children(&answer);
    bytes_clear(&answer);
    return children;
}

void zk_children_free(struct zk_children *children) {
    for (size_t i = 0; children != NULL && i < children->count; i++)
        free(children->names[i]);
    free(children);
}

int zk_count(struct zk_client *client, const char *path) {
    struct zk_children *children = zk_children(client, path);
    int count = children != NULL ? (int)children->count : -1;
    zk_children_free(children);
    return count;
}

struct expected {
    struct zk_client *client;
    const char *path;
    int count;
};

static bool has_so_many(void *arg) {
    struct expected *expected = arg;
    int count = zk_count(expected->client, expected->path);
    if (expected->count == 0)
        return count <= 0; /* the server may have deleted an empty container */
    return count == expected->count;
}

bool zk_wait_children(struct zk_client *client, const char *path, int count, int64_t limit_ms) {
    struct expected expected = {client, path, count};
    return wait_until(has_so_many, &expected, limit_ms);
}
