/* A sentinel that says what a test wants: a hostile server, for once a friendly one, behind a port; see
 * scripted.h. */
#include "route/scripted.h"

#include "support/hostile.h"
#include "support/proxy.h"
#include "support/server.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>

struct scripted {
    struct hostile *hostile;
    struct proxy *proxy; /* which has a port */
    pthread_mutex_t mtx; /* guards below */
    char host[64];
    int port, epoch;
    size_t asked;
};

static bool has(const char *command, size_t length, const char *word) {
    return memmem(command, length, word, strlen(word)) != NULL;
}

static size_t bulk(char *text, size_t size, const char *value) {
    return (size_t)snprintf(text, size, "$%zu\r\n%s\r\n", strlen(value), value);
}

static void say_address(struct hostile_peer *peer, struct scripted *s) {
    char port[16], text[256];
    pthread_mutex_lock(&s->mtx);
    s->asked++;
    snprintf(port, sizeof port, "%d", s->port);
    size_t len = (size_t)snprintf(text, sizeof text, s->host[0] != '\0' ? "*2\r\n" : "*-1\r\n");
    if (s->host[0] != '\0') {
        len += bulk(text + len, sizeof text - len, s->host);
        bulk(text + len, sizeof text - len, port);
    }
    pthread_mutex_unlock(&s->mtx);
    hostile_send_text(peer, text);
}

static void say_details(struct hostile_peer *peer, struct scripted *s) {
    char epoch[16], text[256];
    pthread_mutex_lock(&s->mtx);
    snprintf(epoch, sizeof epoch, "%d", s->epoch);
    size_t len = (size_t)snprintf(text, sizeof text, "*4\r\n");
    len += bulk(text + len, sizeof text - len, "name");
    len += bulk(text + len, sizeof text - len, SCRIPTED_NAME);
    len += bulk(text + len, sizeof text - len, s->epoch >= 0 ? "config-epoch" : "flags");
    bulk(text + len, sizeof text - len, epoch);
    pthread_mutex_unlock(&s->mtx);
    hostile_send_text(peer, text);
}

static void answer(struct hostile_peer *peer, const char *command, size_t length, void *user) {
    if (hostile_is(command, length, "INFO"))
        hostile_send_text(peer, "$45\r\nredis_version:7.0.15\r\nredis_mode:sentinel\r\n\r\n\r\n");
    else if (has(command, length, "GET-MASTER-ADDR-BY-NAME"))
        say_address(peer, user);
    else if (has(command, length, "\r\nMASTER\r\n"))
        say_details(peer, user);
    else if (hostile_is(command, length, "SENTINEL"))
        hostile_send_text(peer, "*0\r\n");
    else if (hostile_is(command, length, "SUBSCRIBE"))
        hostile_send_text(peer, "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n"
                                "*3\r\n$9\r\nsubscribe\r\n$15\r\n+promoted-slave\r\n:2\r\n");
    else
        hostile_handshake(peer, command, length);
}

struct scripted *scripted_start(void) {
    struct scripted *s = zeroed(1, sizeof *s);
    pthread_mutex_init(&s->mtx, NULL);
    s->hostile = hostile_start(answer, s);
    s->proxy = proxy_start(hostile_socket(s->hostile));
    return s;
}

void scripted_free(struct scripted *s) {
    if (s == NULL)
        return;
    proxy_free(s->proxy);
    hostile_free(s->hostile);
    pthread_mutex_destroy(&s->mtx);
    free(s);
}

int scripted_port(const struct scripted *s) {
    return proxy_port(s->proxy);
}

const char *scripted_socket(const struct scripted *s) {
    return hostile_socket(s->hostile);
}

void scripted_name(struct scripted *s, const char *host, int port, int epoch) {
    pthread_mutex_lock(&s->mtx);
    snprintf(s->host, sizeof s->host, "%s", host != NULL ? host : "");
    s->port = port;
    s->epoch = epoch;
    pthread_mutex_unlock(&s->mtx);
}

size_t scripted_asked(struct scripted *s) {
    pthread_mutex_lock(&s->mtx);
    size_t asked = s->asked;
    pthread_mutex_unlock(&s->mtx);
    return asked;
}

struct asked {
    struct scripted *s;
    size_t at_least;
};

static bool was_asked(void *arg) {
    const struct asked *asked = arg;
    return scripted_asked(asked->s) >= asked->at_least;
}

bool scripted_wait_asked(struct scripted *s, size_t at_least, int64_t limit_ms) {
    struct asked asked = {s, at_least};
    return wait_until(was_asked, &asked, limit_ms);
}

void scripted_hide(struct scripted *s, bool hidden) {
    proxy_refuse(s->proxy, hidden);
    if (hidden)
        proxy_cut_all(s->proxy);
}

struct server *scripted_servers[2];

int scripted_start_servers(void **state) {
    const struct server_options options = {.tcp = true};
    (void)state;
    for (int i = 0; i < 2; i++)
        scripted_servers[i] = server_start(&options);
    return 0;
}

int scripted_stop_servers(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++)
        server_free(scripted_servers[i]);
    return 0;
}
