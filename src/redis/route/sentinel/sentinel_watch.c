/*
 * Noticing a failover.
 *
 * The route subscribes to one sentinel at a time. The leader of a failover publishes
 * +promoted-slave as soon as there is a new primary, and +switch-master only after the other
 * replicas have followed it. The other sentinels publish +switch-master when they learn of it. Both
 * name the address, and the ROLE reply there decides. If that sentinel is lost, the route
 * subscribes to the next.
 *
 * While something is held, the route sends every second ROLE to the primary and PING to a silent
 * sentinel; a sentinel that stays silent is dropped for the next. Every ten seconds it starts a
 * search anyway.
 *
 * Runs on the keeper's thread, which owns all state here.
 */
#include "redis/route/addresses.h"
#include "redis/route/sentinel/sentinel_impl.h"

#include <stdlib.h>
#include <string.h>

#define TICK_MS 1000
#define CHECK_MS 10000
#define WORDS_MAX 8

/* ---- Messages ---- */

static const char subscribe[] = "*3\r\n$9\r\nSUBSCRIBE\r\n$14\r\n+switch-master\r\n"
                                "$15\r\n+promoted-slave\r\n";
static const char ping[] = "*1\r\n$4\r\nPING\r\n";

static size_t split(char *text, char *args[WORDS_MAX]) {
    size_t len = 0;
    char *rest = text, *word;
    while (len < WORDS_MAX && (word = strtok_r(rest, " ", &rest)) != NULL)
        args[len++] = word;
    return len;
}

/* "NAME OLD-HOST OLD-PORT HOST PORT" */
static bool read_switch(char *const *args, size_t len, const char *name, size_t *ret_host) {
    *ret_host = 3;
    return len == 5 && strcmp(args[0], name) == 0;
}

/* "slave HOST:PORT HOST PORT @ NAME OLD-HOST OLD-PORT" */
static bool read_promotion(char *const *args, size_t len, const char *name, size_t *ret_host) {
    *ret_host = 2;
    return len == 8 && strcmp(args[0], "slave") == 0 && strcmp(args[5], name) == 0;
}

static void on_announcement(struct hfi_sentinel *route, const char *channel, const char *text) {
    char copy[512], *args[WORDS_MAX];
    size_t host, size = strlen(text) + 1;
    if (size > sizeof copy)
        return;
    memcpy(copy, text, size);
    size_t len = split(copy, args);
    const char *name = hfi_sentinel_master(route);
    bool ours = strcmp(channel, "+switch-master") == 0 ? read_switch(args, len, name, &host)
                                                       : read_promotion(args, len, name, &host);
    long port = ours ? strtol(args[host + 1], NULL, 10) : 0;
    if (port <= 0 || port > UINT16_MAX || !hfi_is_host(args[host], strlen(args[host])))
        return;
    hfi_log(route->log, HF_LOG_INFO, NULL, "a sentinel says that %s is at %s:%ld", name, args[host],
            port);
    hfi_sentinel_hint(route, args[host], (uint16_t)port);
}

static bool is_string(const struct hfi_reply *reply) {
    return reply->type == HFI_REPLY_STRING && strlen(reply->str) == reply->len;
}

void hfi_sentinel_on_message(struct hfi_peer *peer, const struct hfi_reply *message) {
    struct hfi_sentinel *route = peer->route;
    if (route->stopped)
        return;
    atomic_store(&route->last_answer_ms, hfi_now_ms());
    if (message->type != HFI_REPLY_ARRAY || message->elements != 3 ||
        !is_string(message->element[0]) || !is_string(message->element[1]))
        return;
    const char *what = message->element[0]->str, *channel = message->element[1]->str;
    if (strcmp(what, "message") == 0 && is_string(message->element[2]))
        on_announcement(route, channel, message->element[2]->str);
    else if (strcmp(what, "subscribe") == 0 && strcmp(channel, "+promoted-slave") == 0)
        hfi_sentinel_search(route); /* for a failover before the subscription */
}

/* ---- The subscription ---- */

void hfi_sentinel_listen_at(struct hfi_sentinel *route) {
    struct hfi_peer *first = HFI_CONTAINER(route->peers.next, struct hfi_peer, link);
    if (route->stopped || route->pubsub_conn != NULL || !hfi_peer_open_pubsub(first))
        return;
    route->pubsub_conn = first;
    hfi_conn_keep_up(first->pubsub_conn, true);
}

/* Subscribes to the next sentinel; there may be only one. */
static void leave(struct hfi_peer *peer) {
    struct hfi_sentinel *route = peer->route;
    struct hfi_link *next = peer->link.next != &route->peers ? peer->link.next : route->peers.next;
    struct hfi_peer *other = HFI_CONTAINER(next, struct hfi_peer, link);
    if (other == peer || !hfi_peer_open_pubsub(other))
        return; /* it may reconnect */
    hfi_conn_keep_up(peer->pubsub_conn, false);
    route->pubsub_conn = other;
    hfi_conn_keep_up(other->pubsub_conn, true);
}

void hfi_sentinel_pubsub_state(struct hfi_peer *peer, bool up) {
    struct hfi_sentinel *route = peer->route;
    if (route->stopped || route->pubsub_conn != peer)
        return;
    if (up) {
        hfi_conn_send(peer->pubsub_conn, subscribe, sizeof subscribe - 1);
        return;
    }
    leave(peer);
    hfi_sentinel_search(route);
}

static void check_pubsub_conn(struct hfi_sentinel *route) {
    struct hfi_peer *peer = route->pubsub_conn;
    int64_t now_ms = hfi_now_ms(), server_ms, received_ms;
    if (peer == NULL || !hfi_conn_ready(peer->pubsub_conn, &server_ms, &received_ms))
        return;
    int64_t last_answer_ms = atomic_load(&peer->target.last_answer_ms);
    if (now_ms - last_answer_ms >= route->cmd_timeout_ms)
        hfi_conn_suspect(peer->pubsub_conn, HFI_NEVER);
    else if (now_ms - last_answer_ms >= TICK_MS)
        hfi_conn_send(peer->pubsub_conn, ping, sizeof ping - 1);
}

/* ---- The primary's role ---- */

static void drop_role(struct hfi_sentinel *route) {
    if (route->role == NULL)
        return;
    if (route->stopped || atomic_load(&route->role->complete))
        hfi_req_unref(route->role);
    else
        hfi_req_abandon(route->role);
    hfi_node_unref(route->role_node);
    route->role = NULL;
    route->role_node = NULL;
}

/* Permanently, unlike BUSY. */
static bool is_forbidden(const char *args) {
    return strncmp(args, "NOPERM", 6) == 0 || strncmp(args, "ERR unknown command", 19) == 0;
}

void hfi_sentinel_on_role(struct hfi_sentinel *route) {
    if (route->role == NULL || !atomic_load(&route->role->complete))
        return;
    const struct hfi_reply *reply = route->role->err == HF_OK ? route->role->reply : NULL;
    bool replica = reply != NULL && reply->type == HFI_REPLY_ARRAY && reply->elements > 0 &&
                   is_string(reply->element[0]) && strcmp(reply->element[0]->str, "master") != 0;
    if (reply != NULL && reply->type == HFI_REPLY_ERROR && is_forbidden(reply->str))
        route->role_forbidden = true;
    if (replica) {
        hfi_node_hang_up(route->role_node);
        hfi_sentinel_search(route);
    }
    drop_role(route);
}

/* A second without a reply starts a search. */
static void ask_role(struct hfi_sentinel *route) {
    static const char role[] = "*1\r\n$4\r\nROLE\r\n";
    struct hfi_node *node = atomic_load(&route->primary);
    if (route->role != NULL) {
        hfi_sentinel_search(route);
        if (route->role_node == node)
            return;
        drop_role(route);
    }
    struct hfi_conn *control = node != NULL ? hfi_node_pick(node, HFI_LANE_KEEPER) : NULL;
    if (control == NULL)
        return;
    hfi_conn_keep_up(control, true);
    const char *args = route->role_forbidden ? ping : role; /* both have the same length */
    if (hfi_conn_submit(control, args, sizeof role - 1, &route->task, HFI_SENTINEL_ROLE, NULL,
                        &route->role) == HF_OK)
        route->role_node = hfi_node_ref(node);
}

/* ---- The periodic check ---- */

static void tick_fired(struct hfi_alarm *alarm) {
    struct hfi_sentinel *route = HFI_CONTAINER(alarm, struct hfi_sentinel, tick);
    int64_t now_ms = hfi_now_ms();
    if (!route->watching || route->stopped)
        return;
    ask_role(route);
    check_pubsub_conn(route);
    if (now_ms >= route->search_at_ms) {
        route->search_at_ms = now_ms + CHECK_MS;
        hfi_sentinel_search(route);
    }
    hfi_alarm_set(route->exec, &route->tick, now_ms + TICK_MS);
}

void hfi_sentinel_watch(struct hfi_sentinel *route, bool on) {
    if (route->watching == on || route->stopped)
        return;
    route->watching = on;
    route->search_at_ms = hfi_now_ms() + CHECK_MS;
    if (on)
        hfi_alarm_set(route->exec, &route->tick, hfi_now_ms());
    else
        hfi_alarm_clear(route->exec, &route->tick);
}

void hfi_sentinel_watch_init(struct hfi_sentinel *route) {
    route->tick.fire = tick_fired;
}

void hfi_sentinel_watch_stop(struct hfi_sentinel *route) {
    hfi_alarm_clear(route->exec, &route->tick);
    drop_role(route);
}
