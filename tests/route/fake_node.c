/* A server that says it is one of a cluster: a hostile one behind a port; see fake_node.h. */
#include "route/fake_node.h"

#include "support/hostile.h"
#include "support/proxy.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct fake_node {
    struct hostile *hostile;
    struct proxy *proxy; /* which has a port */
    pthread_mutex_t mtx; /* guards below */
    int times;
    char said[256], map[512];
    size_t scripts, askings;
};

static void grant(char *text, size_t size) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, size, "*3\r\n:1\r\n:1\r\n:%lld\r\n",
             (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

static void answer_script(struct hostile_peer *peer, struct fake_node *p) {
    char text[256];
    pthread_mutex_lock(&p->mtx);
    p->scripts++;
    if (p->times == 0)
        grant(text, sizeof text);
    else
        memcpy(text, p->said, sizeof text);
    if (p->times > 0)
        p->times--;
    pthread_mutex_unlock(&p->mtx);
    hostile_send_text(peer, text);
}

static void answer_map(struct hostile_peer *peer, struct fake_node *p) {
    char text[sizeof p->map];
    pthread_mutex_lock(&p->mtx);
    memcpy(text, p->map, sizeof text);
    pthread_mutex_unlock(&p->mtx);
    hostile_send_text(peer, text);
}

static void note_asking(struct hostile_peer *peer, struct fake_node *p) {
    pthread_mutex_lock(&p->mtx);
    p->askings++;
    pthread_mutex_unlock(&p->mtx);
    hostile_send_text(peer, "+OK\r\n");
}

static void answer(struct hostile_peer *peer, const char *command, size_t length, void *user) {
    if (hostile_is(command, length, "EVALSHA") || hostile_is(command, length, "EVAL"))
        answer_script(peer, user);
    else if (hostile_is(command, length, "CLUSTER"))
        answer_map(peer, user);
    else if (hostile_is(command, length, "ASKING"))
        note_asking(peer, user);
    else if (hostile_is(command, length, "PUBSUB"))
        hostile_send_text(peer, "*0\r\n");
    else if (hostile_is(command, length, "ROLE"))
        hostile_send_text(peer, "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    else
        hostile_handshake(peer, command, length);
}

struct fake_node *fake_node_start(void) {
    struct fake_node *p = zeroed(1, sizeof *p);
    pthread_mutex_init(&p->mtx, NULL);
    p->hostile = hostile_start(answer, p);
    p->proxy = proxy_start(hostile_socket(p->hostile));
    own_text *map =
        text_of("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", fake_node_port(p));
    fake_node_maps(p, map);
    return p;
}

void fake_node_free(struct fake_node *p) {
    if (p == NULL)
        return;
    proxy_free(p->proxy);
    hostile_free(p->hostile);
    pthread_mutex_destroy(&p->mtx);
    free(p);
}

int fake_node_port(const struct fake_node *p) {
    return proxy_port(p->proxy);
}

void fake_node_says(struct fake_node *p, int times, const char *bytes) {
    pthread_mutex_lock(&p->mtx);
    p->times = times;
    snprintf(p->said, sizeof p->said, "%s", bytes);
    pthread_mutex_unlock(&p->mtx);
}

void fake_node_sends(struct fake_node *p, int times, const char *word, int port) {
    own_text *text = text_of("-%s 1 127.0.0.1:%d\r\n", word, port);
    fake_node_says(p, times, text);
}

void fake_node_maps(struct fake_node *p, const char *bytes) {
    pthread_mutex_lock(&p->mtx);
    snprintf(p->map, sizeof p->map, "%s", bytes);
    pthread_mutex_unlock(&p->mtx);
}

static size_t read_count(struct fake_node *p, const size_t *count) {
    pthread_mutex_lock(&p->mtx);
    size_t now = *count;
    pthread_mutex_unlock(&p->mtx);
    return now;
}

size_t fake_node_scripts(struct fake_node *p) {
    return read_count(p, &p->scripts);
}

size_t fake_node_askings(struct fake_node *p) {
    return read_count(p, &p->askings);
}
