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

static void answer_script(struct hostile_peer *peer, struct fake_node *node) {
    char text[256];
    pthread_mutex_lock(&node->mtx);
    node->scripts++;
    if (node->times == 0)
        grant(text, sizeof text);
    else
        memcpy(text, node->said, sizeof text);
    if (node->times > 0)
        node->times--;
    pthread_mutex_unlock(&node->mtx);
    hostile_send_text(peer, text);
}

static void answer_map(struct hostile_peer *peer, struct fake_node *node) {
    char text[sizeof node->map];
    pthread_mutex_lock(&node->mtx);
    memcpy(text, node->map, sizeof text);
    pthread_mutex_unlock(&node->mtx);
    hostile_send_text(peer, text);
}

static void note_asking(struct hostile_peer *peer, struct fake_node *node) {
    pthread_mutex_lock(&node->mtx);
    node->askings++;
    pthread_mutex_unlock(&node->mtx);
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
    struct fake_node *node = zeroed(1, sizeof *node);
    pthread_mutex_init(&node->mtx, NULL);
    node->hostile = hostile_start(answer, node);
    node->proxy = proxy_start(hostile_socket(node->hostile));
    own_text *map = text_of("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
                            fake_node_port(node));
    fake_node_maps(node, map);
    return node;
}

void fake_node_free(struct fake_node *node) {
    if (node == NULL)
        return;
    proxy_free(node->proxy);
    hostile_free(node->hostile);
    pthread_mutex_destroy(&node->mtx);
    free(node);
}

int fake_node_port(const struct fake_node *node) {
    return proxy_port(node->proxy);
}

void fake_node_says(struct fake_node *node, int times, const char *bytes) {
    pthread_mutex_lock(&node->mtx);
    node->times = times;
    snprintf(node->said, sizeof node->said, "%s", bytes);
    pthread_mutex_unlock(&node->mtx);
}

void fake_node_sends(struct fake_node *node, int times, const char *word, int port) {
    own_text *text = text_of("-%s 1 127.0.0.1:%d\r\n", word, port);
    fake_node_says(node, times, text);
}

void fake_node_maps(struct fake_node *node, const char *bytes) {
    pthread_mutex_lock(&node->mtx);
    snprintf(node->map, sizeof node->map, "%s", bytes);
    pthread_mutex_unlock(&node->mtx);
}

static size_t read_count(struct fake_node *node, const size_t *count) {
    pthread_mutex_lock(&node->mtx);
    size_t now = *count;
    pthread_mutex_unlock(&node->mtx);
    return now;
}

size_t fake_node_scripts(struct fake_node *node) {
    return read_count(node, &node->scripts);
}

size_t fake_node_askings(struct fake_node *node) {
    return read_count(node, &node->askings);
}
