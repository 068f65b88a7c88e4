/*
 * A whole client against a server that says what the input says. It greets well, unless the input
 * wants otherwise, so that what comes behind the greeting is reached: locks, surveys, messages, maps
 * of clusters, what sentinels say, ZooKeeper's answers. Their headers are made here, so that they
 * fit. Time is fast (fast_clock.c), since much of what a client does with such answers is waiting.
 *
 * Input: 4 bytes (see struct plan), then answers, each behind its length. No answer left: the
 * connection ends. "@@@@@" in an answer becomes the server's port.
 */
#include "fuzz.h"

#include <holdfast/holdfast.h>

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEERS_MAX 32
#define CALLS 3
#define PORT_MARK "@@@@@"

enum { REDIS, SENTINEL, CLUSTER, ZOOKEEPER };

/* The first byte; each of the others is a call. */
struct plan {
    unsigned scheme : 2;
    unsigned raw_greeting : 1; /* the greeting is answered by the input, too */
    unsigned kind : 3;
    unsigned pushes : 1; /* behind the confirmation of a subscription comes an answer */
};

/* ---- The server: one thread; `mtx` guards it ---- */

struct peer {
    int fd; /* -1: none */
    redisReader *reader;
    unsigned char bytes[65536]; /* of ZooKeeper: a frame that has begun */
    size_t len;
    bool greeted;
};

static pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;
static struct peer peers[PEERS_MAX];
static int listener, port;
static char port_text[sizeof PORT_MARK];
static struct plan plan;
static uint8_t *answers; /* the input; the marks are replaced */
static const uint8_t *at;
static size_t left;

static void put(const struct peer *peer, const void *bytes, size_t len) {
    (void)!send(peer->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void put_text(const struct peer *peer, const char *text) {
    put(peer, text, strlen(text));
}

static void drop(struct peer *peer) {
    close(peer->fd);
    peer->fd = -1;
    redisReaderFree(peer->reader);
    peer->reader = NULL;
}

static bool take(const uint8_t **ret_bytes, size_t *ret_len) {
    if (left == 0)
        return false;
    *ret_len = at[0] < left ? at[0] : left - 1;
    *ret_bytes = at + 1;
    at += 1 + *ret_len;
    left -= 1 + *ret_len;
    return true;
}

static void put_info(const struct peer *peer) {
    static const char *const modes[] = {"standalone", "sentinel", "cluster", ""};
    char body[256], text[320];
    int len = snprintf(body, sizeof body,
                       "# Server\r\nredis_version:7.0.15\r\nredis_mode:%s\r\n"
                       "uptime_in_seconds:100000\r\nmaxmemory:0\r\n",
                       modes[plan.scheme]);
    snprintf(text, sizeof text, "$%d\r\n%s\r\n", len, body);
    put_text(peer, text);
}

static void confirm(const struct peer *peer, const char *verb, const redisReply *command) {
    const uint8_t *bytes;
    size_t len;
    char text[512];
    for (size_t i = 1; i < command->elements; i++) {
        const char *channel = command->element[i]->str;
        int channel_len = (int)strnlen(channel, 200);
        snprintf(text, sizeof text, "*3\r\n$%zu\r\n%s\r\n$%d\r\n%.*s\r\n:%zu\r\n", strlen(verb),
                 verb, channel_len, channel_len, channel, i);
        put_text(peer, text);
    }
    if (plan.pushes && take(&bytes, &len))
        put(peer, bytes, len);
}

/* What a server says whatever happens. False: the input says it. */
static bool answer_well(const struct peer *peer, const redisReply *command) {
    static const struct {
        const char *verb, *answer;
    } fixed[] = {
        {"SELECT", "+OK\r\n"},
        {"AUTH", "+OK\r\n"},
        {"PING", "+PONG\r\n"},
        {"TIME", "*2\r\n$10\r\n1700000000\r\n$6\r\n123456\r\n"},
        {"ROLE", "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"},
    };
    if (plan.raw_greeting || command->elements < 1 ||
        command->element[0]->type != REDIS_REPLY_STRING)
        return false;
    const char *verb = command->element[0]->str;
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (strcasecmp(verb, fixed[i].verb) == 0) {
            put_text(peer, fixed[i].answer);
            return true;
        }
    if (strcasecmp(verb, "INFO") == 0)
        put_info(peer);
    else if (strcasecmp(verb, "SUBSCRIBE") == 0)
        confirm(peer, "subscribe", command);
    else if (strcasecmp(verb, "SSUBSCRIBE") == 0)
        confirm(peer, "ssubscribe", command);
    else if (strcasecmp(verb, "CLIENT") == 0 && command->elements <= 3)
        put_text(peer, "+OK\r\n");
    else
        return false;
    return true;
}

/* False: the connection is over. */
static bool answer_redis(const struct peer *peer) {
    void *command;
    while (redisReaderGetReply(peer->reader, &command) == REDIS_OK && command != NULL) {
        const uint8_t *bytes;
        size_t len;
        bool answered = answer_well(peer, command), more = answered || take(&bytes, &len);
        freeReplyObject(command);
        if (!more)
            return false;
        if (!answered)
            put(peer, bytes, len);
    }
    return true;
}

static bool answer_frame(struct peer *peer) {
    static const unsigned char hello[41] = {
        [3] = 37, [10] = 0x27, [11] = 0x10, [19] = 77, [23] = 16, [24] = 1};
    unsigned char frame[20 + 255] = {[15] = 9};
    const uint8_t *bytes;
    size_t len;
    if (!peer->greeted && !plan.raw_greeting) {
        peer->greeted = true;
        put(peer, hello, sizeof hello);
        return true;
    }
    if (!take(&bytes, &len))
        return false;
    uint32_t frame_len = htonl((uint32_t)(16 + len));
    memcpy(frame, &frame_len, 4);
    memcpy(frame + 4, peer->bytes + 4, 4); /* the request's number */
    memcpy(frame + 20, bytes, len);
    if (len > 1 && bytes[0] == 0x80) { /* an error */
        memset(frame + 16, 0xff, 3);
        frame[19] = bytes[1];
    }
    put(peer, frame, 20 + len);
    return true;
}

static bool answer_zk(struct peer *peer) {
    uint32_t len;
    while (peer->len >= 8) {
        memcpy(&len, peer->bytes, 4);
        len = ntohl(len);
        if (len > sizeof peer->bytes - 4 || len < 4)
            return false;
        if (peer->len < len + 4)
            return true;
        if (!answer_frame(peer))
            return false;
        peer->len -= len + 4;
        memmove(peer->bytes, peer->bytes + len + 4, peer->len);
    }
    return true;
}

static void serve_peer(struct peer *peer) {
    char *to = (char *)peer->bytes + peer->len;
    ssize_t len = recv(peer->fd, to, sizeof peer->bytes - peer->len, MSG_DONTWAIT);
    bool goes_on = len > 0;
    if (goes_on && plan.scheme == ZOOKEEPER) {
        peer->len += (size_t)len;
        goes_on = answer_zk(peer);
    } else if (goes_on) {
        redisReaderFeed(peer->reader, to, (size_t)len);
        goes_on = answer_redis(peer);
    }
    if (!goes_on)
        drop(peer);
}

static void accept_peer(void) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), i = 0, on = 1;
    while (i < PEERS_MAX && peers[i].fd >= 0)
        i++;
    if (fd < 0)
        return;
    if (i == PEERS_MAX) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    peers[i].fd = fd;
    peers[i].len = 0;
    peers[i].greeted = false;
    peers[i].reader = redisReaderCreate();
}

static void *serve(void *arg) {
    struct pollfd fds[PEERS_MAX + 1];
    (void)arg;
    for (;;) {
        fds[PEERS_MAX] = (struct pollfd){.fd = listener, .events = POLLIN};
        pthread_mutex_lock(&mtx);
        for (int i = 0; i < PEERS_MAX; i++)
            fds[i] = (struct pollfd){.fd = peers[i].fd, .events = POLLIN};
        pthread_mutex_unlock(&mtx);
        poll(fds, PEERS_MAX + 1, -1);
        pthread_mutex_lock(&mtx);
        for (int i = 0; i < PEERS_MAX; i++)
            if (fds[i].revents != 0 && peers[i].fd >= 0 && peers[i].fd == fds[i].fd)
                serve_peer(&peers[i]);
        if (fds[PEERS_MAX].revents != 0)
            accept_peer();
        pthread_mutex_unlock(&mtx);
    }
    return NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    pthread_t thread;
    (void)argc;
    (void)argv;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(bind(listener, (struct sockaddr *)&address, len) == 0);
    FUZZ_CHECK(listen(listener, 64) == 0);
    FUZZ_CHECK(getsockname(listener, (struct sockaddr *)&address, &len) == 0);
    port = ntohs(address.sin_port);
    snprintf(port_text, sizeof port_text, "%05u", (unsigned)port % 100000);
    for (int i = 0; i < PEERS_MAX; i++)
        peers[i].fd = -1;
    FUZZ_CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
    return 0;
}

/* What the server says from now on. */
static void say(const struct plan *next, const uint8_t *input, size_t len) {
    pthread_mutex_lock(&mtx);
    plan = *next;
    for (int i = 0; i < PEERS_MAX; i++)
        if (peers[i].fd >= 0)
            drop(&peers[i]);
    free(answers);
    answers = malloc(len + 1);
    FUZZ_CHECK(answers != NULL);
    if (len > 0)
        memcpy(answers, input, len);
    answers[len] = '\0';
    for (uint8_t *mark = answers;
         (mark = memmem(mark, (size_t)(answers + len - mark), PORT_MARK, 5)) != NULL;)
        memcpy(mark, port_text, 5);
    at = answers;
    left = len;
    pthread_mutex_unlock(&mtx);
}

/* ---- The client ---- */

static void take_survey(hf_client *client) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.limit_ms = 500;
    options.wanted |= HF_WANT_HISTOGRAMS;
    if (hf_survey(client, &options, &fleet) == HF_OK)
        hf_fleet_free(fleet);
}

static void use_permits(hf_client *client) {
    hf_permits *permits = NULL;
    int64_t number;
    if (hf_permits_new(client, "p", &permits) != HF_OK)
        return;
    hf_permits_available(permits, &number);
    hf_permits_free(permits);
}

static void inspect(hf_lock *lock) {
    hf_lock_info *info = NULL;
    if (hf_lock_inspect(lock, &info) == HF_OK)
        hf_lock_info_free(info);
}

static void call(hf_client *client, hf_lock *lock, int which) {
    bool flag;
    int64_t number;
    switch (which % 10) {
    case 0:
        hf_lock_try(lock);
        break;
    case 1:
        hf_lock_release(lock);
        break;
    case 2:
        hf_lock_extend(lock, 1000);
        break;
    case 3:
        hf_lock_break(lock, &flag);
        break;
    case 4:
        inspect(lock);
        break;
    case 5:
        hf_lock_hold_count(lock, &number);
        break;
    case 6:
        hf_lock_ttl_ms(lock, &number);
        break;
    case 7:
        hf_lock_acquire_for(lock, 300);
        break;
    case 8:
        take_survey(client);
        break;
    case 9:
        use_permits(client);
        break;
    }
}

static void use(hf_client *client, const uint8_t *calls) {
    static const struct {
        hf_kind kind;
        unsigned flags;
    } kinds[8] = {{HF_PLAIN, 0},         {HF_FAIR, 0},        {HF_READ, 0},   {HF_WRITE, 0},
                  {HF_PLAIN, HF_FENCED}, {HF_PLAIN, HF_SPIN}, {HF_STRING, 0}, {HF_PLAIN, 0}};
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    hf_lock *lock = NULL;
    options.kind = kinds[plan.kind].kind;
    options.flags = kinds[plan.kind].flags;
    if (hf_lock_new_with(client, "x", 1, &options, &lock) != HF_OK)
        return;
    for (int i = 0; i < CALLS; i++)
        call(client, lock, calls[i]);
    hf_lock_free(lock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const urls[] = {"redis://127.0.0.1:%d", "redis-sentinel://127.0.0.1:%d/m",
                                       "redis-cluster://127.0.0.1:%d", "zk://127.0.0.1:%d"};
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    char url[128];
    if (size < 1 + CALLS)
        return 0;
    const struct plan next = {.scheme = data[0] & 3,
                              .raw_greeting = data[0] >> 2 & 1,
                              .kind = data[0] >> 3 & 7,
                              .pushes = data[0] >> 6 & 1};
    say(&next, data + 1 + CALLS, size - 1 - CALLS);
    snprintf(url, sizeof url, urls[plan.scheme], port);
    options.cmd_timeout_ms = 200;
    options.connect_timeout_ms = 400;
    options.failover_timeout_ms = 600;
    options.watchdog_ms = 1000;
    options.report_after_ms = 0;
    if (hf_open(url, &options, &client) == HF_OK) {
        use(client, data + 1);
        hf_close(client);
    }
    say(&next, NULL, 0);
    return 0;
}
