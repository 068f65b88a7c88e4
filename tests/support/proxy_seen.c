/*
 * What has passed through a proxy, for tests to count and to wait for; see proxy.h, the manual.
 *
 * Called by tests on any thread. Everything is looked at with the proxy at rest (proxy_begin), so a
 * count is exact up to what had reached its sockets by the time of the call.
 */
#include "support/proxy_internal.h"
#include "support/wait.h"

size_t proxy_connections(struct proxy *proxy) {
    proxy_begin(proxy);
    size_t accepted = proxy->accepted;
    sync_unlock(&proxy->sync);
    return accepted;
}

size_t proxy_open(struct proxy *proxy) {
    size_t open = 0;
    proxy_begin(proxy);
    for (const struct link *link = proxy->links; link != NULL; link = link->next)
        open += link->client >= 0;
    sync_unlock(&proxy->sync);
    return open;
}

size_t proxy_seen(struct proxy *proxy, const char *matcher) {
    size_t next = 0;
    proxy_begin(proxy);
    size_t seen = log_count(&proxy->log, matcher, &next);
    sync_unlock(&proxy->sync);
    return seen;
}

size_t proxy_seen_in_time(struct proxy *proxy, const char *matcher) {
    size_t next = 0;
    proxy_begin(proxy);
    size_t late = log_count_too_late(&proxy->log, matcher);
    size_t seen = log_count(&proxy->log, matcher, &next);
    sync_unlock(&proxy->sync);
    return seen - late;
}

bool proxy_wait_seen(struct proxy *proxy, const char *matcher, size_t count, int64_t limit_ms) {
    int64_t end_ms = now_ms() + limit_ms;
    size_t next = 0;
    proxy_begin(proxy);
    size_t seen = log_count(&proxy->log, matcher, &next);
    while (seen < count && sync_wait(&proxy->sync, end_ms))
        seen += log_count(&proxy->log, matcher, &next);
    sync_unlock(&proxy->sync);
    return seen >= count;
}

static bool is_all_answered(const struct proxy *proxy) {
    bool unanswered = false;
    for (const struct link *link = proxy->links; link != NULL; link = link->next)
        unanswered = unanswered || link->due_count > 0 || link->from_client.length > 0 ||
                     link->to_server.length > 0 || link->from_server.length > 0 ||
                     link->to_client.length > 0;
    return !unanswered;
}

bool proxy_wait_answered(struct proxy *proxy, int64_t limit_ms) {
    int64_t end_ms = now_ms() + limit_ms;
    proxy_begin(proxy);
    while (!is_all_answered(proxy) && sync_wait(&proxy->sync, end_ms))
        continue;
    bool answered = is_all_answered(proxy);
    sync_unlock(&proxy->sync);
    return answered;
}

size_t proxy_fired(struct proxy *proxy) {
    proxy_begin(proxy);
    size_t fired = proxy->fired;
    sync_unlock(&proxy->sync);
    return fired;
}

bool proxy_wait_fired(struct proxy *proxy, size_t count, int64_t limit_ms) {
    int64_t end_ms = now_ms() + limit_ms;
    proxy_begin(proxy);
    while (proxy->fired < count && sync_wait(&proxy->sync, end_ms))
        continue;
    bool enough = proxy->fired >= count;
    sync_unlock(&proxy->sync);
    return enough;
}
