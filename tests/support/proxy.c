/*
 * The proxy's loop and its controls; see proxy.h, the manual.
 *
 * Controls are called by tests on any thread. The loop is one thread; it alone touches sockets. It
 * holds the mutex except while it polls, so a control that holds it sees the proxy at rest.
 *
 * Invariants: the loop works in passes: accept all, move on every connection what can be moved,
 * tell who waits. A control first waits for a pass, so that what has reached the proxy's sockets
 * before the call is accounted for, then makes its change, then waits for another pass, so that the
 * change has been carried out when it returns.
 */
#include "support/proxy.h"

#include "support/proxy_internal.h"
#include "support/wait.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { RELEASE_LIMIT_MS = 10000, MAX_POLLED = 8192, RETRY_MS = 20 };

/* ---- Listening ------------------------------------------------------------------------------- */

static void bind_or_die(int fd, const void *address, socklen_t size) {
    if (fd < 0 || bind(fd, address, size) < 0)
        support_die("proxy: cannot bind: %s", strerror(errno));
}

/* Binds both addresses, and accepts there or not: a connection to a bound socket that does not
 * listen is refused, and nobody else can take the address meanwhile. */
static void open_listeners(struct proxy *proxy, bool listening) {
    for (int i = 0; i < 2; i++)
        if (proxy->listeners[i] >= 0)
            close(proxy->listeners[i]);

    struct sockaddr_un local = {.sun_family = AF_UNIX};
    memcpy(local.sun_path, proxy->path, strlen(proxy->path) + 1);
    unlink(proxy->path);
    proxy->listeners[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bind_or_die(proxy->listeners[0], &local, sizeof local);

    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_port = htons((uint16_t)proxy->port)};
    inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    proxy->listeners[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(proxy->listeners[1], SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    bind_or_die(proxy->listeners[1], &inet, sizeof inet);
    socklen_t size = sizeof inet;
    getsockname(proxy->listeners[1], (struct sockaddr *)&inet, &size);
    proxy->port = ntohs(inet.sin_port);

    for (int i = 0; listening && i < 2; i++)
        if (listen(proxy->listeners[i], 128) < 0)
            support_die("proxy: cannot listen: %s", strerror(errno));
    proxy->listening = listening;
}

static void accept_all(struct proxy *proxy) {
    for (int i = 0; proxy->listening && i < 2; i++) {
        int fd;
        while ((fd = accept4(proxy->listeners[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
            struct link *link = link_open(proxy, fd, i == 1);
            link->next = proxy->links;
            proxy->links = link;
        }
    }
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void add_polled(struct pollfd *fds, nfds_t *count, int fd, short events) {
    if (fd < 0)
        return;
    if (*count == MAX_POLLED)
        support_die("proxy: too many connections");
    fds[(*count)++] = (struct pollfd){.fd = fd, .events = events};
}

/* Fills in what to poll for, and returns for how long: -1 without a limit. */
static int prepare_poll(const struct proxy *proxy, struct pollfd *fds, nfds_t *ret_count) {
    int64_t now = now_ms(), wait_ms = -1;
    *ret_count = 0;
    add_polled(fds, ret_count, proxy->wake, POLLIN);
    for (int i = 0; proxy->listening && i < 2; i++)
        add_polled(fds, ret_count, proxy->listeners[i], POLLIN);
    for (const struct link *link = proxy->links; link != NULL; link = link->next) {
        add_polled(fds, ret_count, link->client, link_client_events(proxy, link));
        add_polled(fds, ret_count, link->server, link_server_events(link));
        if (link_waits_for_taker(proxy, link))
            wait_ms = 1;
        if (link_waits_for_server(link) && wait_ms < 0)
            wait_ms = RETRY_MS;
        int64_t delay_left = link->delayed_until_ms - now;
        if (delay_left > 0 && (wait_ms < 0 || delay_left < wait_ms))
            wait_ms = delay_left;
    }
    return (int)wait_ms;
}

static void make_pass(struct proxy *proxy) {
    if (proxy->listening == proxy->refuse)
        open_listeners(proxy, !proxy->refuse);
    accept_all(proxy);
    for (struct link **at = &proxy->links; *at != NULL;) {
        struct link *link = *at;
        link_pump(proxy, link);
        if (link_is_done(link)) {
            *at = link->next;
            link_free(link);
        } else {
            at = &link->next;
        }
    }
    proxy->pass_done = proxy->pass_wanted;
    sync_changed(&proxy->sync);
}

static void *loop(void *arg) {
    struct proxy *proxy = arg;
    struct pollfd *fds = zeroed(MAX_POLLED, sizeof *fds);
    sync_lock(&proxy->sync);
    while (!proxy->stop) {
        make_pass(proxy);
        nfds_t count;
        int wait = prepare_poll(proxy, fds, &count);
        sync_unlock(&proxy->sync);
        poll(fds, count, wait);
        uint64_t wakes;
        if (read(proxy->wake, &wakes, sizeof wakes) < 0 && errno != EAGAIN)
            support_die("proxy: %s", strerror(errno));
        sync_lock(&proxy->sync);
    }
    sync_unlock(&proxy->sync);
    free(fds);
    return NULL;
}

/* ---- Control --------------------------------------------------------------------------------- */

static void wake(struct proxy *proxy) {
    if (write(proxy->wake, &(uint64_t){1}, sizeof(uint64_t)) < 0 && errno != EAGAIN)
        support_die("proxy: %s", strerror(errno));
}

static void await_pass(struct proxy *proxy) {
    uint64_t wanted = ++proxy->pass_wanted;
    wake(proxy);
    while (proxy->pass_done < wanted)
        sync_wait(&proxy->sync, now_ms() + 1000);
}

void proxy_begin(struct proxy *proxy) {
    sync_lock(&proxy->sync);
    await_pass(proxy);
}

/* Gives the mutex back, with the changes carried out. */
static void commit(struct proxy *proxy) {
    await_pass(proxy);
    sync_unlock(&proxy->sync);
}

static void arm(struct proxy *proxy, enum rule_kind kind, const char *matcher, const void *bytes,
                size_t length) {
    struct rule *rule = calloc(1, sizeof *rule);
    if (rule == NULL || (rule->matcher = strdup(matcher)) == NULL)
        support_die("out of memory");
    rule->kind = kind;
    bytes_append(&rule->bytes, bytes, length);

    proxy_begin(proxy);
    struct rule **end = &proxy->rules;
    while (*end != NULL)
        end = &(*end)->next;
    *end = rule;
    commit(proxy);
}

void proxy_drop_replies_after(struct proxy *proxy, const char *matcher) {
    arm(proxy, RULE_DROP, matcher, NULL, 0);
}

void proxy_mute_replies_after(struct proxy *proxy, const char *matcher) {
    arm(proxy, RULE_MUTE, matcher, NULL, 0);
}

void proxy_hold_request(struct proxy *proxy, const char *matcher) {
    arm(proxy, RULE_HOLD, matcher, NULL, 0);
}

void proxy_stall_request(struct proxy *proxy, const char *matcher) {
    arm(proxy, RULE_STALL, matcher, NULL, 0);
}

void proxy_forge_reply(struct proxy *proxy, const char *matcher, const void *bytes, size_t length) {
    arm(proxy, RULE_FORGE, matcher, bytes, length);
}

void proxy_answer_instead(struct proxy *proxy, const char *matcher, const void *bytes,
                          size_t length) {
    arm(proxy, RULE_ANSWER, matcher, bytes, length);
}

void proxy_blackhole(struct proxy *proxy, bool to_server, bool to_client) {
    proxy_begin(proxy);
    proxy->hole_to_server = to_server;
    proxy->hole_to_client = to_client;
    commit(proxy);
}

/* Marks the present connections that have sent a matching command, all with NULL. */
static size_t mark(struct proxy *proxy, const char *matcher, bool cut) {
    size_t marked = 0;
    proxy_begin(proxy);
    for (struct link *link = proxy->links; link != NULL; link = link->next) {
        if (link->client < 0)
            continue;
        if (matcher != NULL && !log_link_matches(&proxy->log, link->id, matcher))
            continue;
        if (cut)
            link->cut_wanted = true;
        else
            link->frozen = true;
        marked++;
    }
    commit(proxy);
    return marked;
}

size_t proxy_freeze_connections(struct proxy *proxy, const char *matcher) {
    return mark(proxy, matcher, false);
}

size_t proxy_cut_connections(struct proxy *proxy, const char *matcher) {
    return mark(proxy, matcher, true);
}

size_t proxy_cut_all(struct proxy *proxy) {
    return mark(proxy, NULL, true);
}

void proxy_delay(struct proxy *proxy, const char *matcher, int64_t delay_ms) {
    char *copy = strdup(matcher);
    if (copy == NULL)
        support_die("out of memory");
    proxy_begin(proxy);
    free(proxy->delay_matcher);
    proxy->delay_matcher = copy;
    proxy->delay_ms = delay_ms;
    commit(proxy);
}

void proxy_trickle(struct proxy *proxy, size_t bytes) {
    proxy_begin(proxy);
    proxy->trickle = bytes;
    commit(proxy);
}

void proxy_lead_to(struct proxy *proxy, const char *server_unix_path) {
    proxy_begin(proxy);
    free(proxy->server_path);
    proxy->server_path = strdup(server_unix_path);
    if (proxy->server_path == NULL)
        support_die("out of memory");
    commit(proxy);
}

void proxy_refuse(struct proxy *proxy, bool refuse) {
    proxy_begin(proxy);
    proxy->refuse = refuse;
    commit(proxy);
}

static void disarm(struct proxy *proxy) {
    while (proxy->rules != NULL) {
        struct rule *rule = proxy->rules;
        proxy->rules = rule->next;
        rule_free(rule);
    }
}

void proxy_heal(struct proxy *proxy) {
    proxy_begin(proxy);
    disarm(proxy);
    proxy->hole_to_server = proxy->hole_to_client = proxy->refuse = false;
    proxy->delay_ms = 0;
    proxy->trickle = 0;
    for (struct link *link = proxy->links; link != NULL; link = link->next) {
        link->frozen = false;
        link_disarm(link);
    }
    commit(proxy);
}

/* ---- Held commands --------------------------------------------------------------------------- */

static size_t count_held(const struct proxy *proxy) {
    size_t held = 0;
    for (const struct link *link = proxy->links; link != NULL; link = link->next)
        held += link->held;
    return held;
}

size_t proxy_held(struct proxy *proxy) {
    proxy_begin(proxy);
    size_t held = count_held(proxy);
    sync_unlock(&proxy->sync);
    return held;
}

bool proxy_wait_held(struct proxy *proxy, int64_t limit_ms) {
    int64_t end_ms = now_ms() + limit_ms;
    proxy_begin(proxy);
    while (count_held(proxy) == 0 && sync_wait(&proxy->sync, end_ms))
        continue;
    bool held = count_held(proxy) > 0;
    sync_unlock(&proxy->sync);
    return held;
}

static bool replies_are_late(const struct proxy *proxy) {
    bool late = false;
    for (const struct link *link = proxy->links; link != NULL; link = link->next)
        late = late || link->late_due > 0;
    return late;
}

int proxy_release_held(struct proxy *proxy) {
    int delivered = 0;
    int64_t end_ms = now_ms() + RELEASE_LIMIT_MS;
    proxy_begin(proxy);
    proxy->late_failed = false;
    for (struct link *link = proxy->links; link != NULL; link = link->next) {
        if (!link->held)
            continue;
        size_t commands = link_held_commands(proxy, link);
        link->held = false;
        if (link->server < 0)
            proxy->late_failed = true;
        else
            link->late_due = link->due_count + commands;
        delivered += (int)commands;
    }
    await_pass(proxy);
    while (replies_are_late(proxy) && sync_wait(&proxy->sync, end_ms))
        continue;
    bool failed = proxy->late_failed || replies_are_late(proxy);
    sync_unlock(&proxy->sync);
    return failed ? -1 : delivered;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void set_urls(struct proxy *proxy) {
    free(proxy->url);
    free(proxy->tcp_url);
    const char *before = proxy->password != NULL ? ":" : "";
    const char *password = proxy->password != NULL ? proxy->password : "";
    const char *behind = proxy->password != NULL ? "@" : "";
    if (asprintf(&proxy->url, "unix://%s%s%s%s", before, password, behind, proxy->path) < 0 ||
        asprintf(&proxy->tcp_url, "%s://%s%s%s127.0.0.1:%d", proxy->speech->scheme, before,
                 password, behind, proxy->port) < 0)
        support_die("out of memory");
}

void proxy_set_password(struct proxy *proxy, const char *password) {
    free(proxy->password);
    proxy->password = support_escape(password, "%");
    set_urls(proxy);
}

static struct proxy *start(struct proxy proxy_of) {
    struct proxy *proxy = malloc(sizeof *proxy);
    if (proxy == NULL)
        support_die("out of memory");
    *proxy = proxy_of;
    proxy->dir = temp_dir();
    proxy->path = text_of("%s/p", proxy->dir);
    proxy->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (proxy->wake < 0)
        support_die("eventfd: %s", strerror(errno));
    proxy->listeners[0] = proxy->listeners[1] = -1;
    open_listeners(proxy, true);
    set_urls(proxy);
    sync_init(&proxy->sync);
    proxy->thread = sync_thread(loop, proxy);
    return proxy;
}

struct proxy *proxy_start(const char *server_unix_path) {
    char *path = strdup(server_unix_path);
    if (path == NULL)
        support_die("out of memory");
    return start((struct proxy){.server_path = path, .speech = proxy_speech_of(PROXY_RESP)});
}

struct proxy *proxy_start_tcp(int server_port, enum proxy_wire wire) {
    return start((struct proxy){.server_port = server_port, .speech = proxy_speech_of(wire)});
}

void proxy_free(struct proxy *proxy) {
    if (proxy == NULL)
        return;
    sync_lock(&proxy->sync);
    proxy->stop = true;
    wake(proxy);
    sync_unlock(&proxy->sync);
    pthread_join(proxy->thread, NULL);

    while (proxy->links != NULL) {
        struct link *link = proxy->links;
        proxy->links = link->next;
        link_free(link);
    }
    disarm(proxy);
    log_clear(&proxy->log);
    for (int i = 0; i < 2; i++)
        close(proxy->listeners[i]);
    close(proxy->wake);
    temp_dir_remove(proxy->dir);
    sync_destroy(&proxy->sync);
    free(proxy->dir);
    free(proxy->path);
    free(proxy->server_path);
    free(proxy->password);
    free(proxy->url);
    free(proxy->tcp_url);
    free(proxy->delay_matcher);
    free(proxy);
}

const char *proxy_url(const struct proxy *proxy) {
    return proxy->speech == proxy_speech_of(PROXY_RESP) ? proxy->url : proxy->tcp_url;
}

const char *proxy_tcp_url(const struct proxy *proxy) {
    return proxy->tcp_url;
}

const char *proxy_socket(const struct proxy *proxy) {
    return proxy->path;
}

int proxy_port(const struct proxy *proxy) {
    return proxy->port;
}
