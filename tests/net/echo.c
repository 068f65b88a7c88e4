/*
 * The protocol of echo.h and its server.
 *
 * The server's thread polls its socket and its connections; of `struct peer` everything belongs to
 * it. The test changes its manners through the atomics of the header, and asks for a cut through a
 * pipe.
 */
#include "net/echo.h"

#include "net/conn/conn.h"
#include "support/wait.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { HEAD = 4, FRAME_MAX = 65536, PEERS = 8 };

size_t echo_frame(char kind, const char *text, char *buffer, size_t size) {
    uint32_t len = (uint32_t)strlen(text) + 1, wire = htonl(len);
    if (HEAD + len > size)
        support_die("a frame of %u bytes is too long", len);
    memcpy(buffer, &wire, HEAD);
    buffer[HEAD] = kind;
    memcpy(buffer + HEAD + 1, text, len - 1);
    return HEAD + len;
}

/* ---- The protocol ---- */

struct reader {
    const struct hfi_mem *mem;
    size_t len;
    char bytes[2 * FRAME_MAX];
};

static void *reader_new(const struct hfi_mem *mem) {
    struct reader *reader = hfi_alloc(mem, sizeof *reader);
    if (reader != NULL) {
        reader->mem = mem;
        reader->len = 0;
    }
    return reader;
}

static void reader_free(void *reader) {
    hfi_free(((struct reader *)reader)->mem, reader);
}

static int feed(void *arg, const char *bytes, size_t len, hf_error *error) {
    struct reader *reader = arg;
    if (len > sizeof reader->bytes - reader->len)
        return hfi_fail(error, HF_EPROTO, "too much at once");
    memcpy(reader->bytes + reader->len, bytes, len);
    reader->len += len;
    return HF_OK;
}

static int next(void *arg, void **ret_message, hf_error *error) {
    struct reader *reader = arg;
    uint32_t len;
    *ret_message = NULL;
    if (reader->len < HEAD)
        return HF_OK;
    memcpy(&len, reader->bytes, HEAD);
    len = ntohl(len);
    if (len == 0 || len > FRAME_MAX)
        return hfi_fail(error, HF_EPROTO, "no frame has %u bytes", len);
    if (reader->len < HEAD + len)
        return HF_OK;
    struct echo_message *message = malloc(sizeof *message + len);
    if (message == NULL)
        return hfi_fail(error, HF_ENOMEM, "no memory for a frame");
    message->kind = reader->bytes[HEAD];
    message->len = len - 1;
    memcpy(message->text, reader->bytes + HEAD + 1, len - 1);
    message->text[len - 1] = '\0';
    reader->len -= HEAD + len;
    memmove(reader->bytes, reader->bytes + HEAD + len, reader->len);
    *ret_message = message;
    return HF_OK;
}

static bool is_push(const void *message) {
    return ((const struct echo_message *)message)->kind == '!';
}

struct greeting {
    struct hfi_conn *conn;
    bool asked; /* for the number */
    char last[64];
};

static bool say(struct hfi_conn *conn, const char *text) {
    char frame[64];
    return hfi_conn_send_greeting(conn, frame, echo_frame('g', text, frame, sizeof frame));
}

static int greet(struct hfi_conn *conn, void **ret_greeting, hf_error *error) {
    struct greeting *greeting = calloc(1, sizeof *greeting);
    if (greeting == NULL || !say(conn, hfi_conn_target(conn)->login)) {
        free(greeting);
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    }
    greeting->conn = conn;
    *ret_greeting = greeting;
    return HF_OK;
}

static int greeted(void *arg, const void *message, bool *ret_done, hf_error *error) {
    struct greeting *greeting = arg;
    const struct echo_message *answer = message;
    snprintf(greeting->last, sizeof greeting->last, "%s", answer->text);
    if (answer->kind == 'n')
        return hfi_fail(error, HF_EPERM, "%s", answer->text);
    if (greeting->asked)
        *ret_done = strcmp(answer->text, "welcome") == 0;
    else if (!say(greeting->conn, answer->text))
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    greeting->asked = true;
    return HF_OK;
}

static bool explain_end(const void *arg, hf_error *error) {
    const struct greeting *greeting = arg;
    if (strncmp(greeting->last, "bye", 3) != 0)
        return false;
    hfi_fail(error, HF_EUNREACH, "it said: %s", greeting->last);
    return true;
}

const struct hfi_protocol echo_protocol = {
    .reader_new = reader_new,
    .reader_free = reader_free,
    .feed = feed,
    .next = next,
    .message_free = free,
    .is_push = is_push,
    .greet = greet,
    .greeted = greeted,
    .explain_end = explain_end,
    .greeting_free = free,
    .ping = "\0\0\0\1p",
    .ping_len = 5,
};

/* ---- The server ---- */

struct peer {
    int fd; /* -1: nobody is here */
    int round;
    struct reader reader;
};

struct echo {
    struct echo_server server;
    pthread_t thread;
    int listener, pipe[2]; /* 'c': cut, 'q': quit */
    char dir[64], socket[96];
    struct peer peers[PEERS];
};

static void send_frame(struct peer *peer, char kind, const char *text) {
    static char frame[FRAME_MAX + HEAD];
    size_t len = echo_frame(kind, text, frame, sizeof frame);
    for (size_t sent = 0; sent < len;) {
        ssize_t n = send(peer->fd, frame + sent, len - sent, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* it is gone, as reading will tell */
        sent += (size_t)n;
    }
}

static void leave(struct peer *peer) {
    close(peer->fd);
    peer->fd = -1;
}

static void answer_greeting(struct echo *echo, struct peer *peer,
                            const struct echo_message *message) {
    int refuse = atomic_load(&echo->server.refuse);
    if (refuse == 1)
        send_frame(peer, 'n', "not you");
    if (refuse == 2) {
        send_frame(peer, 'g', "bye, it is late");
        leave(peer);
    }
    if (refuse == 3)
        send(peer->fd, "\xff\xff\xff\xff", 4, MSG_NOSIGNAL);
    if (refuse != 0)
        return;
    bool right = strcmp(message->text, peer->round == 0 ? "hello" : "4711") == 0;
    const char *text = peer->round == 0 ? "4711" : "welcome";
    if (++peer->round == 2) /* counted before the other side can know */
        atomic_fetch_add(&echo->server.greetings, 1);
    send_frame(peer, right ? 'g' : 'n', text);
}

static void answer(struct echo *echo, struct peer *peer, const struct echo_message *message) {
    if (atomic_load(&echo->server.mute))
        return;
    if (message->kind == 'g') {
        answer_greeting(echo, peer, message);
        return;
    }
    bool pushes = atomic_load(&echo->server.pushes) && message->kind == 'e';
    if (pushes)
        send_frame(peer, '!', message->text);
    send_frame(peer, message->kind, message->text);
    if (pushes)
        send_frame(peer, '!', message->text);
    if (message->kind == 'p')
        atomic_fetch_add(&echo->server.pings, 1);
}

static void serve(struct echo *echo, struct peer *peer) {
    char chunk[4096];
    ssize_t got = recv(peer->fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (got <= 0 || feed(&peer->reader, chunk, (size_t)got, NULL) != HF_OK) {
        leave(peer);
        return;
    }
    void *message;
    while (peer->fd >= 0 && next(&peer->reader, &message, NULL) == HF_OK && message != NULL) {
        answer(echo, peer, message);
        free(message);
    }
}

static void welcome(struct echo *echo) {
    int fd = accept(echo->listener, NULL, NULL);
    for (size_t i = 0; fd >= 0 && i < PEERS; i++)
        if (echo->peers[i].fd < 0) {
            echo->peers[i].fd = fd;
            echo->peers[i].round = 0;
            echo->peers[i].reader.len = 0;
            return;
        }
    if (fd >= 0)
        close(fd);
}

static void *server_main(void *arg) {
    struct echo *echo = arg;
    for (;;) {
        struct pollfd fds[PEERS + 2] = {{.fd = echo->pipe[0], .events = POLLIN},
                                        {.fd = echo->listener, .events = POLLIN}};
        for (size_t i = 0; i < PEERS; i++)
            fds[i + 2] = (struct pollfd){.fd = echo->peers[i].fd, .events = POLLIN};
        poll(fds, PEERS + 2, -1);
        char order = ' ';
        if (fds[0].revents != 0 && read(echo->pipe[0], &order, 1) != 1)
            support_die("the echo server cannot be reached");
        for (size_t i = 0; i < PEERS; i++)
            if (echo->peers[i].fd >= 0 && order != ' ')
                leave(&echo->peers[i]);
            else if (echo->peers[i].fd >= 0 && fds[i + 2].revents != 0)
                serve(echo, &echo->peers[i]);
        if (order == 'q')
            return NULL;
        if (fds[1].revents != 0)
            welcome(echo);
    }
}

struct echo_server *echo_start(void) {
    struct echo *echo = zeroed(1, sizeof *echo);
    for (size_t i = 0; i < PEERS; i++)
        echo->peers[i].fd = -1;
    snprintf(echo->dir, sizeof echo->dir, "/tmp/hf_echo_XXXXXX");
    if (mkdtemp(echo->dir) == NULL)
        support_die("no directory for a socket");
    snprintf(echo->socket, sizeof echo->socket, "%s/socket", echo->dir);
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    memcpy(un.sun_path, echo->socket, strlen(echo->socket) + 1);
    echo->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (pipe(echo->pipe) != 0 || bind(echo->listener, (struct sockaddr *)&un, sizeof un) != 0 ||
        listen(echo->listener, PEERS) != 0 ||
        pthread_create(&echo->thread, NULL, server_main, echo) != 0)
        support_die("no echo server");
    return &echo->server;
}

static struct echo *echo_of(const struct echo_server *server) {
    return HFI_CONTAINER((uintptr_t)server, struct echo, server);
}

const char *echo_socket(const struct echo_server *server) {
    return echo_of(server)->socket;
}

static void order(const struct echo_server *server, char what) {
    if (write(echo_of(server)->pipe[1], &what, 1) != 1)
        support_die("the echo server cannot be reached");
}

void echo_cut(struct echo_server *server) {
    order(server, 'c');
}

void echo_free(struct echo_server *server) {
    struct echo *echo = echo_of(server);
    order(server, 'q');
    pthread_join(echo->thread, NULL);
    close(echo->listener);
    close(echo->pipe[0]);
    close(echo->pipe[1]);
    unlink(echo->socket);
    rmdir(echo->dir);
    free(echo);
}
