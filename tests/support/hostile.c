/*
 * A server that misbehaves, for tests of what the library does with it; see hostile.h, the manual.
 *
 * Started and freed by tests. One thread accepts; each connection has a thread that reads commands
 * and calls the test's answer, so an answer may block for as long as it likes. A connection's
 * socket belongs to its thread; hostile_free only shuts it down, under the mutex, to make that
 * thread leave, and then joins it.
 *
 * Invariants: peers are added by the accepting thread and freed by hostile_free only, after all
 * threads have been joined. `closing` is set before the shutdowns, so no peer is added behind them.
 */
#include "support/hostile.h"

#include "support/resp.h"
#include "support/sync.h"
#include "support/wait.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct hostile_peer {
    struct hostile_peer *next;
    struct hostile *hostile;
    int fd;
    pthread_t thread;
    size_t answered; /* its thread's */
    bool close_wanted;
};

struct hostile {
    char *dir, *path, *url;
    hostile_answer *answer;
    void *user;
    const struct hostile_reply *replies; /* of a script */
    size_t reply_count;
    int listener;
    pthread_t thread;

    struct sync sync; /* guards what follows */
    struct hostile_peer *peers;
    size_t connections, commands;
    bool closing;
};

/* ---- Sending --------------------------------------------------------------------------------- */

bool hostile_send(struct hostile_peer *peer, const void *bytes, size_t length) {
    const char *rest = bytes;
    while (length > 0) {
        ssize_t n = send(peer->fd, rest, length, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        rest += n;
        length -= (size_t)n;
    }
    return true;
}

bool hostile_send_text(struct hostile_peer *peer, const char *text) {
    return hostile_send(peer, text, strlen(text));
}

/* True once the client has taken all that was sent; false when it has gone instead. */
static bool wait_taken(struct hostile_peer *peer) {
    for (;;) {
        int untaken = 0;
        char byte;
        if (ioctl(peer->fd, SIOCOUTQ, &untaken) < 0 || untaken == 0)
            return true;
        if (recv(peer->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            return false;
        struct timespec pause = {.tv_nsec = 100000};
        nanosleep(&pause, NULL); /* a socket does not say when the other end has read all */
    }
}

bool hostile_send_slowly(struct hostile_peer *peer, const void *bytes, size_t length,
                         size_t piece) {
    const char *rest = bytes;
    while (length > 0) {
        size_t now = length < piece ? length : piece;
        if (!hostile_send(peer, rest, now) || !wait_taken(peer))
            return false;
        rest += now;
        length -= now;
    }
    return true;
}

void hostile_close(struct hostile_peer *peer) {
    peer->close_wanted = true;
}

bool hostile_is(const char *command, size_t length, const char *name) {
    return resp_command_is(command, length, name);
}

static void send_time(struct hostile_peer *peer) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    char seconds[24], micros[24], text[128];
    snprintf(seconds, sizeof seconds, "%lld", (long long)ts.tv_sec);
    snprintf(micros, sizeof micros, "%ld", ts.tv_nsec / 1000);
    snprintf(text, sizeof text, "*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(seconds), seconds,
             strlen(micros), micros);
    hostile_send_text(peer, text);
}

bool hostile_handshake(struct hostile_peer *peer, const char *command, size_t length) {
    static const struct {
        const char *name, *answer;
    } answers[] = {
        {"HELLO", "-ERR unknown command 'HELLO'\r\n"},
        {"AUTH", "+OK\r\n"},
        {"SELECT", "+OK\r\n"},
        {"CLIENT", "+OK\r\n"},
        {"PING", "+PONG\r\n"},
        {"INFO", "$55\r\n# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n\r\n"},
        {"SCRIPT", "$40\r\n0123456789abcdef0123456789abcdef01234567\r\n"},
    };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        if (hostile_is(command, length, answers[i].name)) {
            hostile_send_text(peer, answers[i].answer);
            return true;
        }
    }
    if (!hostile_is(command, length, "TIME"))
        return false;
    send_time(peer);
    return true;
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void answer_by_script(struct hostile_peer *peer) {
    const struct hostile *hostile = peer->hostile;
    if (peer->answered >= hostile->reply_count)
        return;
    const struct hostile_reply *reply = &hostile->replies[peer->answered];
    if (reply->bytes == NULL)
        hostile_close(peer);
    else if (reply->length > 0)
        hostile_send(peer, reply->bytes, reply->length);
    else
        hostile_send_text(peer, reply->bytes);
}

static void answer_one(struct hostile_peer *peer, const char *command, size_t length) {
    struct hostile *hostile = peer->hostile;
    if (hostile->answer != NULL)
        hostile->answer(peer, command, length, hostile->user);
    else
        answer_by_script(peer);
    peer->answered++;
    sync_lock(&hostile->sync);
    hostile->commands++;
    sync_changed(&hostile->sync);
    sync_unlock(&hostile->sync);
}

static void answer_all(struct hostile_peer *peer, struct bytes *input) {
    while (input->length > 0 && !peer->close_wanted) {
        size_t length = resp_command_length(input->data, input->length);
        if (length == 0)
            return;
        if (length == RESP_BROKEN)
            length = input->length;
        answer_one(peer, input->data, length);
        bytes_consume(input, length);
    }
}

static void *serve_peer(void *arg) {
    struct hostile_peer *peer = arg;
    struct bytes input = {0};
    while (!peer->close_wanted) {
        char chunk[16384];
        ssize_t n = recv(peer->fd, chunk, sizeof chunk, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        bytes_append(&input, chunk, (size_t)n);
        answer_all(peer, &input);
    }
    bytes_clear(&input);
    shutdown(peer->fd,
             SHUT_RDWR); /* closed later: hostile_free may be about to shut it down, too */
    return NULL;
}

/* False when the whole is being closed. */
static bool add_peer(struct hostile *hostile, int fd) {
    struct hostile_peer *peer = zeroed(1, sizeof *peer);
    sync_lock(&hostile->sync);
    bool open = !hostile->closing;
    if (open) {
        *peer = (struct hostile_peer){.next = hostile->peers, .hostile = hostile, .fd = fd};
        hostile->connections++;
        peer->thread = sync_thread(serve_peer, peer);
        hostile->peers = peer;
        sync_changed(&hostile->sync);
    }
    sync_unlock(&hostile->sync);
    if (!open) {
        free(peer);
        close(fd);
    }
    return open;
}

static void *accept_peers(void *arg) {
    struct hostile *hostile = arg;
    for (;;) {
        int fd = accept4(hostile->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0 && !add_peer(hostile, fd))
            return NULL;
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
            return NULL; /* shut down */
    }
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void open_listener(struct hostile *hostile) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, hostile->path, strlen(hostile->path) + 1);
    hostile->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (hostile->listener < 0 ||
        bind(hostile->listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(hostile->listener, 128) < 0)
        support_die("hostile server: cannot listen: %s", strerror(errno));
}

static struct hostile *start(struct hostile settings) {
    struct hostile *hostile = malloc(sizeof *hostile);
    if (hostile == NULL)
        support_die("out of memory");
    *hostile = settings;
    hostile->dir = temp_dir();
    hostile->path = text_of("%s/h", hostile->dir);
    hostile->url = text_of("unix://%s", hostile->path);
    open_listener(hostile);
    sync_init(&hostile->sync);
    hostile->thread = sync_thread(accept_peers, hostile);
    return hostile;
}

struct hostile *hostile_start(hostile_answer *answer, void *user) {
    return start((struct hostile){.answer = answer, .user = user});
}

struct hostile *hostile_start_script(const struct hostile_reply *replies, size_t count) {
    return start((struct hostile){.replies = replies, .reply_count = count});
}

void hostile_free(struct hostile *hostile) {
    if (hostile == NULL)
        return;
    sync_lock(&hostile->sync);
    hostile->closing = true;
    shutdown(hostile->listener, SHUT_RDWR);
    for (struct hostile_peer *peer = hostile->peers; peer != NULL; peer = peer->next)
        shutdown(peer->fd, SHUT_RDWR);
    sync_unlock(&hostile->sync);

    pthread_join(hostile->thread, NULL);
    while (hostile->peers != NULL) {
        struct hostile_peer *peer = hostile->peers;
        hostile->peers = peer->next;
        pthread_join(peer->thread, NULL);
        close(peer->fd);
        free(peer);
    }
    close(hostile->listener);
    temp_dir_remove(hostile->dir);
    sync_destroy(&hostile->sync);
    free(hostile->dir);
    free(hostile->path);
    free(hostile->url);
    free(hostile);
}

const char *hostile_url(const struct hostile *hostile) {
    return hostile->url;
}

const char *hostile_socket(const struct hostile *hostile) {
    return hostile->path;
}

/* ---- What came ------------------------------------------------------------------------------- */

size_t hostile_connections(struct hostile *hostile) {
    sync_lock(&hostile->sync);
    size_t connections = hostile->connections;
    sync_unlock(&hostile->sync);
    return connections;
}

size_t hostile_commands(struct hostile *hostile) {
    sync_lock(&hostile->sync);
    size_t commands = hostile->commands;
    sync_unlock(&hostile->sync);
    return commands;
}

bool hostile_wait_commands(struct hostile *hostile, size_t count, int64_t limit_ms) {
    int64_t end_ms = now_ms() + limit_ms;
    sync_lock(&hostile->sync);
    while (hostile->commands < count && sync_wait(&hostile->sync, end_ms))
        continue;
    bool enough = hostile->commands >= count;
    sync_unlock(&hostile->sync);
    return enough;
}
