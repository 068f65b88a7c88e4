/*
 * The TLS end of our own; see front.h, the manual.
 *
 * One thread accepts, and one per connection moves bytes and acts. The front's mutex guards the list, the orders and
 * what has been done of them; an SSL object belongs to its connection's thread. An order is a number that grows; a
 * connection that has carried out order n has `acted` n.
 */
#include "support/front.h"

#include "support/sync.h"
#include "support/wait.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_LINKS = 64, ACT_LIMIT_MS = 60000, FLOOD_MAX = 600000, FLOOD_TIMEOUT_S = 20 };

enum order {
    ORDER_KEYS,
    ORDER_RENEGOTIATE,
    ORDER_TICKET,
    ORDER_SAY,
    ORDER_GOODBYE,
    ORDER_FLOOD,
    ORDER_CUT
};

struct front_link {
    struct front *front;
    pthread_t thread;
    int client, server, wake;
    unsigned acted;
    bool joined, ended;
};

struct front {
    struct sync sync;
    SSL_CTX *ctx;
    int listener, port;
    char *path;
    pthread_t thread;
    struct front_link *links[MAX_LINKS];
    size_t links_len, shaken;
    char asked_for[256];
    unsigned orders;
    enum order order;
    const char *text;
    bool stop;
};

/* Ends when nobody reads it for a while, or the other side hangs up. */
static void flood(SSL *ssl) {
    struct timeval timeout = {.tv_sec = FLOOD_TIMEOUT_S};
    setsockopt(SSL_get_fd(ssl), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    bool sent = true;
    for (int i = 0; i < FLOOD_MAX && sent; i++) {
        SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
        sent = SSL_do_handshake(ssl) == 1;
    }
    ERR_clear_error();
}

static void act(struct front *front, SSL *ssl) {
    switch (front->order) {
    case ORDER_KEYS:
        SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
        SSL_do_handshake(ssl);
        break;
    case ORDER_RENEGOTIATE:
        SSL_renegotiate(ssl);
        SSL_do_handshake(ssl);
        break;
    case ORDER_TICKET:
        SSL_new_session_ticket(ssl);
        SSL_do_handshake(ssl);
        break;
    case ORDER_SAY:
        SSL_write(ssl, front->text, (int)strlen(front->text));
        break;
    case ORDER_GOODBYE:
        SSL_shutdown(ssl);
        break;
    case ORDER_FLOOD:
        flood(ssl);
        break;
    case ORDER_CUT:
        SSL_new_session_ticket(ssl);
        SSL_do_handshake(ssl);
        shutdown(SSL_get_fd(ssl), SHUT_WR);
        break;
    }
}

static bool send_all(int fd, const char *bytes, size_t len) {
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        len -= (size_t)sent;
    }
    return true;
}

/* False: the connection is over. */
static bool from_client(struct front_link *link, SSL *ssl) {
    char chunk[16384];
    do {
        ERR_clear_error();
        int got = SSL_read(ssl, chunk, sizeof chunk);
        if (got <= 0)
            return SSL_get_error(ssl, got) == SSL_ERROR_WANT_READ;
        if (!send_all(link->server, chunk, (size_t)got))
            return false;
    } while (SSL_pending(ssl) > 0);
    return true;
}

static bool from_server(struct front_link *link, SSL *ssl) {
    char chunk[16384];
    ssize_t got = recv(link->server, chunk, sizeof chunk, 0);
    return got > 0 && SSL_write(ssl, chunk, (int)got) == got;
}

static void obey(struct front_link *link, SSL *ssl) {
    struct front *front = link->front;
    sync_lock(&front->sync);
    if (link->acted != front->orders)
        act(front, ssl);
    link->acted = front->orders;
    sync_changed(&front->sync);
    sync_unlock(&front->sync);
}

static void serve(struct front_link *link, SSL *ssl) {
    bool going = true;
    while (going) {
        struct pollfd fds[] = {{.fd = link->client, .events = POLLIN},
                               {.fd = link->server, .events = POLLIN},
                               {.fd = link->wake, .events = POLLIN}};
        poll(fds, 3, -1);
        if (fds[2].revents != 0) {
            uint64_t wakes;
            if (read(link->wake, &wakes, sizeof wakes) < 0)
                support_die("front: %s", strerror(errno));
            obey(link, ssl);
        }
        if (fds[0].revents != 0)
            going = from_client(link, ssl);
        if (going && fds[1].revents != 0)
            going = from_server(link, ssl);
        sync_lock(&link->front->sync);
        going = going && !link->front->stop;
        sync_unlock(&link->front->sync);
    }
}

static void *link_main(void *arg) {
    struct front_link *link = arg;
    struct front *front = link->front;
    SSL *ssl = SSL_new(front->ctx);
    SSL_set_fd(ssl, link->client);
    if (SSL_accept(ssl) == 1) {
        const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
        sync_lock(&front->sync);
        front->shaken++;
        snprintf(front->asked_for, sizeof front->asked_for, "%s", name != NULL ? name : "");
        link->acted = front->orders;
        link->joined = true;
        sync_unlock(&front->sync);
        serve(link, ssl);
    }
    SSL_free(ssl);
    ERR_clear_error();
    sync_lock(&front->sync);
    link->ended = true;
    shutdown(link->client, SHUT_RDWR);
    shutdown(link->server, SHUT_RDWR);
    sync_changed(&front->sync);
    sync_unlock(&front->sync);
    return NULL;
}

static int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        support_die("front: %s: %s", path, strerror(errno));
    return fd;
}

static void *front_main(void *arg) {
    struct front *front = arg;
    int fd;
    while ((fd = accept4(front->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct front_link *link = calloc(1, sizeof *link);
        if (link == NULL || front->links_len == MAX_LINKS)
            support_die("front: too many connections");
        link->front = front;
        link->client = fd;
        link->server = connect_to(front->path);
        link->wake = eventfd(0, EFD_CLOEXEC);
        sync_lock(&front->sync);
        front->links[front->links_len++] = link;
        sync_unlock(&front->sync);
        link->thread = sync_thread(link_main, link);
    }
    return NULL;
}

struct front *front_start(const struct certificate *certificate, const char *server_unix_path,
                          bool old) {
    struct front *front = zeroed(1, sizeof *front);
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to a socket as to a file */
    sync_init(&front->sync);
    front->path = strdup(server_unix_path);
    front->ctx = SSL_CTX_new(TLS_server_method());
    int version = old ? TLS1_2_VERSION : TLS1_3_VERSION;
    if (front->ctx == NULL || SSL_CTX_set_min_proto_version(front->ctx, version) != 1 ||
        SSL_CTX_set_max_proto_version(front->ctx, version) != 1 ||
        SSL_CTX_use_certificate_file(front->ctx, certificate_file(certificate), SSL_FILETYPE_PEM) !=
            1 ||
        SSL_CTX_use_PrivateKey_file(front->ctx, certificate_key(certificate), SSL_FILETYPE_PEM) !=
            1)
        support_die("front: no context for TLS");
    SSL_CTX_clear_mode(front->ctx, SSL_MODE_AUTO_RETRY); /* a read that brings no data returns */

    struct sockaddr_in inet = {.sin_family = AF_INET};
    socklen_t size = sizeof inet;
    inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    front->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* A client shall not get rid of much when nobody reads: its kernel's buffer goes by the size of a segment. */
    setsockopt(front->listener, IPPROTO_TCP, TCP_MAXSEG, &(int){536}, sizeof(int));
    setsockopt(front->listener, SOL_SOCKET, SO_RCVBUF, &(int){16384}, sizeof(int));
    if (front->listener < 0 || bind(front->listener, (struct sockaddr *)&inet, size) != 0 ||
        listen(front->listener, 64) != 0 ||
        getsockname(front->listener, (struct sockaddr *)&inet, &size) != 0)
        support_die("front: %s", strerror(errno));
    front->port = ntohs(inet.sin_port);
    front->thread = sync_thread(front_main, front);
    return front;
}

void front_free(struct front *front) {
    if (front == NULL)
        return;
    shutdown(front->listener, SHUT_RDWR); /* accept() returns */
    pthread_join(front->thread, NULL);
    sync_lock(&front->sync);
    front->stop = true;
    for (size_t i = 0; i < front->links_len; i++)
        shutdown(front->links[i]->client, SHUT_RDWR);
    sync_unlock(&front->sync);
    for (size_t i = 0; i < front->links_len; i++) {
        struct front_link *link = front->links[i];
        pthread_join(link->thread, NULL);
        close(link->client);
        close(link->server);
        close(link->wake);
        free(link);
    }
    close(front->listener);
    SSL_CTX_free(front->ctx);
    sync_destroy(&front->sync);
    free(front->path);
    free(front);
}

int front_port(const struct front *front) {
    return front->port;
}

/* Locked. */
static bool all_have_acted(const struct front *front) {
    for (size_t i = 0; i < front->links_len; i++) {
        const struct front_link *link = front->links[i];
        if (link->joined && !link->ended && link->acted != front->orders)
            return false;
    }
    return true;
}

static void command(struct front *front, enum order order, const char *text) {
    int64_t end_ms = now_ms() + ACT_LIMIT_MS;
    uint64_t one = 1;
    sync_lock(&front->sync);
    front->order = order;
    front->text = text;
    front->orders++;
    for (size_t i = 0; i < front->links_len; i++)
        if (write(front->links[i]->wake, &one, sizeof one) < 0)
            support_die("front: %s", strerror(errno));
    while (!all_have_acted(front))
        if (!sync_wait(&front->sync, end_ms))
            support_die("front: a connection hangs");
    sync_unlock(&front->sync);
}

void front_update_keys(struct front *front) {
    command(front, ORDER_KEYS, NULL);
}

void front_renegotiate(struct front *front) {
    command(front, ORDER_RENEGOTIATE, NULL);
}

void front_send_tickets(struct front *front) {
    command(front, ORDER_TICKET, NULL);
}

void front_say(struct front *front, const char *text) {
    command(front, ORDER_SAY, text);
}

void front_say_goodbye(struct front *front) {
    command(front, ORDER_GOODBYE, NULL);
}

void front_flood(struct front *front) {
    command(front, ORDER_FLOOD, NULL);
}

void front_cut(struct front *front) {
    command(front, ORDER_CUT, NULL);
}

size_t front_connections(struct front *front) {
    sync_lock(&front->sync);
    size_t shaken = front->shaken;
    sync_unlock(&front->sync);
    return shaken;
}

void front_asked_for(struct front *front, char name[256]) {
    sync_lock(&front->sync);
    memcpy(name, front->asked_for, sizeof front->asked_for);
    sync_unlock(&front->sync);
}
