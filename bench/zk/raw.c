/*
 * The mutex over the bare protocol, as little as it can be: what any client has to send, and nothing else. It knows
 * nothing of waiting, of lost connections or of time, and is there to be compared with.
 */
#include "bench/zk/worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CREATE2 = 15,
    DELETE = 2,
    CHILDREN2 = 12,
    CREATE = 1,
    CLOSE = -11,
    EPHEMERAL_SEQUENTIAL = 3
};

struct raw {
    int fd;
    int32_t id;
    char path[256], node[512];
    unsigned char out[2048], in[65536];
    size_t out_len, frame;
};

static void put(struct raw *raw, const void *data, size_t length) {
    memcpy(raw->out + raw->out_len, data, length);
    raw->out_len += length;
}

static void put_int(struct raw *raw, int32_t number) {
    uint32_t wire = htonl((uint32_t)number);
    put(raw, &wire, sizeof wire);
}

static void put_text(struct raw *raw, const char *text) {
    put_int(raw, (int32_t)strlen(text));
    put(raw, text, strlen(text));
}

static void begin(struct raw *raw, int32_t kind) {
    raw->frame = raw->out_len;
    put_int(raw, 0);
    put_int(raw, ++raw->id);
    put_int(raw, kind);
}

static void end(struct raw *raw) {
    uint32_t wire = htonl((uint32_t)(raw->out_len - raw->frame - 4));
    memcpy(raw->out + raw->frame, &wire, sizeof wire);
}

static void flush(struct raw *raw) {
    if (send(raw->fd, raw->out, raw->out_len, MSG_NOSIGNAL) != (ssize_t)raw->out_len)
        die("send: %s", strerror(errno));
    raw->out_len = 0;
}

static void read_frame(struct raw *raw) {
    uint32_t wire;
    if (recv(raw->fd, &wire, 4, MSG_WAITALL) != 4)
        die("ZooKeeper has closed the connection");
    size_t length = ntohl(wire);
    if (length > sizeof raw->in || recv(raw->fd, raw->in, length, MSG_WAITALL) != (ssize_t)length)
        die("an answer of %zu bytes", length);
}

static int32_t int_at(const struct raw *raw, size_t at) {
    uint32_t wire;
    memcpy(&wire, raw->in + at, sizeof wire);
    return (int32_t)ntohl(wire);
}

static void read_answer(struct raw *raw) {
    do
        read_frame(raw);
    while (int_at(raw, 0) < 0); /* of a ping, or an event */
}

static void put_create(struct raw *raw, int32_t kind, const char *path, int32_t mode) {
    begin(raw, kind);
    put_text(raw, path);
    put_text(raw, "raw");
    put_int(raw, 1);
    put_int(raw, 31);
    put_text(raw, "world");
    put_text(raw, "anyone");
    put_int(raw, mode);
    end(raw);
}

static void greet(struct raw *raw) {
    static const char zeros[16];
    put_int(raw, 45);
    put_int(raw, 0);
    put(raw, zeros, 8);
    put_int(raw, 10000);
    put(raw, zeros, 8);
    put_int(raw, 16);
    put(raw, zeros, 16);
    put(raw, zeros, 1);
    flush(raw);
    read_frame(raw);
}

struct raw *raw_open(int port, const char *path) {
    struct raw *raw = calloc(1, sizeof *raw);
    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (raw == NULL)
        die("out of memory");
    snprintf(raw->path, sizeof raw->path, "%s", path);
    raw->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(raw->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(raw->fd, (struct sockaddr *)&inet, sizeof inet) != 0)
        die("connect: %s", strerror(errno));
    greet(raw);
    put_create(raw, CREATE, path, 0); /* it may be there */
    flush(raw);
    read_answer(raw);
    return raw;
}

void raw_acquire(struct raw *raw) {
    char path[300];
    snprintf(path, sizeof path, "%s/_c_00000000-0000-4000-8000-000000000000-lock-", raw->path);
    put_create(raw, CREATE2, path, EPHEMERAL_SEQUENTIAL);
    begin(raw, CHILDREN2);
    put_text(raw, raw->path);
    put(raw, "", 1);
    end(raw);
    flush(raw);
    read_answer(raw);
    if (int_at(raw, 12) != 0)
        die("create: error %d", (int)int_at(raw, 12));
    int32_t length = int_at(raw, 16);
    if (length < 0 || (size_t)length >= sizeof raw->node)
        die("create: a path of %d bytes", (int)length);
    memcpy(raw->node, raw->in + 20, (size_t)length);
    raw->node[length] = '\0';
    read_answer(raw);
    if (int_at(raw, 16) != 1)
        die("there is somebody else");
}

void raw_release(struct raw *raw) {
    begin(raw, DELETE);
    put_text(raw, raw->node);
    put_int(raw, -1);
    end(raw);
    flush(raw);
    read_answer(raw);
    if (int_at(raw, 12) != 0)
        die("delete: error %d", (int)int_at(raw, 12));
}

void raw_close(struct raw *raw) {
    begin(raw, CLOSE);
    end(raw);
    flush(raw);
    read_answer(raw);
    close(raw->fd);
    free(raw);
}
