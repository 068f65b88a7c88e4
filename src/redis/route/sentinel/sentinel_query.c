/*
 * One sentinel: its connections, and a query with its replies.
 *
 * Called by the search, on the keeper's thread, which owns all state here. A query pipelines
 * GET-MASTER-ADDR-BY-NAME and MASTER (for the epoch); plus SENTINELS the first time, and REPLICAS
 * if acks need the count. MASTERS follows if the name is unknown. The search sees the replies when
 * all of them have come.
 */
#include "net/resp/wire/command.h"
#include "redis/route/addresses.h"
#include "redis/route/sentinel/sentinel_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEER_READY = 1, PEER_REPLY = 2 };

/* ---- Replies ---- */

static void fail(struct hfi_peer *peer, int err, const char *text) {
    hfi_error_clear(&peer->why);
    hfi_fail(&peer->why, err, "%s", text);
}

static const struct hfi_reply *answer_to(const struct hfi_req *req) {
    return req != NULL && atomic_load(&req->complete) && req->err == HF_OK ? req->reply : NULL;
}

/* No valid reply contains a NUL. */
static bool is_text(const struct hfi_reply *reply) {
    return (reply->type == HFI_REPLY_STRING || reply->type == HFI_REPLY_STATUS) &&
           strlen(reply->str) == reply->len;
}

/* The value of a field in a flat list of fields and values. NULL: there is none. */
static const char *value_of(const struct hfi_reply *list, const char *field) {
    if (list == NULL || list->type != HFI_REPLY_ARRAY)
        return NULL;
    for (size_t i = 0; i + 1 < list->elements; i += 2)
        if (is_text(list->element[i]) && is_text(list->element[i + 1]) &&
            strcmp(list->element[i]->str, field) == 0)
            return list->element[i + 1]->str;
    return NULL;
}

static uint16_t port_of(const char *text) {
    char *end;
    long port = text != NULL ? strtol(text, &end, 10) : 0;
    return port > 0 && port <= UINT16_MAX && *end == '\0' ? (uint16_t)port : 0;
}

static bool read_address(struct hfi_peer *peer, const struct hfi_reply *reply) {
    if (reply->type != HFI_REPLY_ARRAY || reply->elements != 2 || !is_text(reply->element[0]) ||
        !is_text(reply->element[1]))
        return false;
    size_t len = reply->element[0]->len;
    peer->said_port = port_of(reply->element[1]->str);
    if (len == 0 || len >= sizeof peer->said_host || peer->said_port == 0 ||
        !hfi_is_host(reply->element[0]->str, len))
        return false;
    memcpy(peer->said_host, reply->element[0]->str, len + 1);
    return true;
}

static void read_epoch(struct hfi_peer *peer) {
    const char *epoch = value_of(answer_to(peer->details), "config-epoch");
    peer->said_epoch = epoch != NULL ? strtoll(epoch, NULL, 10) : -1;
}

/* Adds the other sentinels of this primary, so that they are asked, too. */
static void read_others(struct hfi_peer *peer) {
    const struct hfi_reply *reply = answer_to(peer->others);
    if (reply == NULL || reply->type != HFI_REPLY_ARRAY)
        return;
    peer->route->peers_known = true;
    for (size_t i = 0; i < reply->elements; i++) {
        const char *host = value_of(reply->element[i], "ip");
        uint16_t port = port_of(value_of(reply->element[i], "port"));
        if (host != NULL && hfi_is_host(host, strlen(host)) && port != 0)
            hfi_peer_add(peer->route, host, port, NULL);
    }
}

static bool is_up(const struct hfi_reply *replica) {
    const char *flags = value_of(replica, "flags");
    return flags != NULL && strstr(flags, "_down") == NULL && strstr(flags, "disconnected") == NULL;
}

static void read_replicas(struct hfi_peer *peer) {
    const struct hfi_reply *reply = answer_to(peer->replicas);
    peer->said_replicas = -1;
    if (reply == NULL || reply->type != HFI_REPLY_ARRAY)
        return;
    peer->said_replicas = 0;
    for (size_t i = 0; i < reply->elements; i++)
        peer->said_replicas += is_up(reply->element[i]);
}

/* It does not know the name: stores the names that it knows. */
static void read_names(struct hfi_peer *peer) {
    const struct hfi_reply *reply = answer_to(peer->names);
    char known[128] = "";
    size_t len = 0;
    for (size_t i = 0; reply != NULL && reply->type == HFI_REPLY_ARRAY && i < reply->elements;
         i++) {
        const char *name = value_of(reply->element[i], "name");
        if (name != NULL && len < sizeof known)
            len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", len > 0 ? ", " : "",
                                    name);
    }
    peer->knows_not = true;
    hfi_error_clear(&peer->why);
    hfi_fail(&peer->why, HF_EINVAL, "%s", "");
    hfi_error_quote(&peer->why, known, strlen(known));
}

/* ---- Queries ---- */

static bool say(struct hfi_peer *peer, const char *what, const char *name, struct hfi_req **req) {
    struct hfi_command command;
    hfi_command_init(&command, peer->route->mem);
    hfi_command_open(&command);
    hfi_command_text(&command, "SENTINEL");
    hfi_command_text(&command, what);
    if (name != NULL)
        hfi_command_text(&command, name);
    hfi_command_close(&command);
    bool sent = !command.failed && hfi_conn_submit(peer->ask, command.bytes, command.len,
                                                   &peer->task, PEER_REPLY, NULL, req) == HF_OK;
    hfi_command_clear(&command);
    return sent;
}

static void drop_one(const struct hfi_peer *peer, struct hfi_req **req) {
    if (*req != NULL && !peer->route->stopped && !atomic_load(&(*req)->complete))
        hfi_req_abandon(*req);
    else
        hfi_req_unref(*req);
    *req = NULL;
}

static void drop(struct hfi_peer *peer) {
    drop_one(peer, &peer->address);
    drop_one(peer, &peer->details);
    drop_one(peer, &peer->others);
    drop_one(peer, &peer->names);
    drop_one(peer, &peer->replicas);
}

static void done(struct hfi_peer *peer, enum hfi_peer_state state) {
    drop(peer);
    peer->state = state;
    if (peer->why.code == HF_OK)
        atomic_store(&peer->route->last_answer_ms, hfi_now_ms());
    hfi_sentinel_peer_done(peer->route, peer);
}

static void send_question(struct hfi_peer *peer) {
    struct hfi_sentinel *route = peer->route;
    const char *master = hfi_sentinel_master(route);
    bool sent = say(peer, "GET-MASTER-ADDR-BY-NAME", master, &peer->address) &&
                say(peer, "MASTER", master, &peer->details) &&
                (route->peers_known || say(peer, "SENTINELS", master, &peer->others)) &&
                (!atomic_load(&route->counts) || say(peer, "REPLICAS", master, &peer->replicas));
    peer->state = HFI_PEER_ASKED;
    if (sent)
        return;
    fail(peer, HF_EUNREACH, "the connection was lost");
    done(peer, HFI_PEER_FAILED);
}

static bool is_pending(const struct hfi_req *req) {
    return req != NULL && !atomic_load(&req->complete);
}

static void answered(struct hfi_peer *peer) {
    if (is_pending(peer->address) || is_pending(peer->details) || is_pending(peer->others) ||
        is_pending(peer->names) || is_pending(peer->replicas))
        return;
    const struct hfi_reply *address = answer_to(peer->address);
    if (address == NULL) {
        peer->why = peer->address->error;
        peer->why.code = HF_EUNREACH;
        done(peer, HFI_PEER_FAILED);
        return;
    }
    if (address->type == HFI_REPLY_NIL && peer->names == NULL &&
        say(peer, "MASTERS", NULL, &peer->names))
        return;
    if (address->type == HFI_REPLY_NIL) {
        read_names(peer);
        atomic_store(&peer->route->last_answer_ms, hfi_now_ms());
        done(peer, HFI_PEER_FAILED);
        return;
    }
    if (address->type == HFI_REPLY_ERROR) {
        fail(peer, strncmp(address->str, "NO", 2) == 0 ? HF_EPERM : HF_EUNAVAILABLE,
             "the sentinel refused: ");
        hfi_error_quote(&peer->why, address->str, address->len);
        done(peer, HFI_PEER_FAILED);
        return;
    }
    if (!read_address(peer, address)) {
        fail(peer, HF_EPROTO, "the sentinel returned no address");
        done(peer, HFI_PEER_FAILED);
        return;
    }
    read_epoch(peer);
    read_others(peer);
    read_replicas(peer);
    done(peer, HFI_PEER_SAID);
}

static void connected(struct hfi_peer *peer) {
    if (hfi_linked(&peer->want.link))
        return;                              /* an event of an earlier search */
    hfi_conn_unwant(peer->ask, &peer->want); /* so that `err` is settled */
    if (peer->want.err == HF_OK) {
        send_question(peer);
        return;
    }
    peer->why = peer->want.error;
    peer->why.code = peer->want.err;
    done(peer, HFI_PEER_FAILED);
}

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_peer *peer = HFI_CONTAINER(task, struct hfi_peer, task);
    if (peer->route->stopped)
        return;
    if ((events & PEER_READY) != 0 && peer->state == HFI_PEER_CONNECTING)
        connected(peer);
    else if ((events & PEER_REPLY) != 0 && peer->state == HFI_PEER_ASKED)
        answered(peer);
}

void hfi_peer_ask(struct hfi_peer *peer) {
    hfi_error_clear(&peer->why);
    peer->tried = peer->confirms = peer->knows_not = false;
    peer->asked_ms = hfi_now_ms();
    peer->state = HFI_PEER_CONNECTING;
    hfi_conn_want(peer->ask, &peer->want, &peer->task, PEER_READY);
}

void hfi_peer_forget(struct hfi_peer *peer) {
    if (peer->state == HFI_PEER_CONNECTING)
        hfi_conn_unwant(peer->ask, &peer->want);
    if (peer->state == HFI_PEER_ASKED &&
        hfi_now_ms() - peer->asked_ms >= peer->route->cmd_timeout_ms)
        hfi_conn_suspect(peer->ask, peer->asked_ms);
    drop(peer);
    peer->state = HFI_PEER_UNASKED;
}

/* ---- Events of its connections ---- */

static void on_push(void *arg, const void *message) {
    hfi_sentinel_on_message(arg, message);
}

static void on_pubsub_state(void *arg, bool up) {
    hfi_sentinel_pubsub_state(arg, up);
}

static void on_peer_failure(void *arg, int err, const hf_error *error) {
    struct hfi_peer *peer = arg;
    (void)error;
    if (err != HF_OK && peer->route->pubsub_conn == peer)
        hfi_sentinel_pubsub_state(peer, false);
}

bool hfi_peer_open_pubsub(struct hfi_peer *peer) {
    if (peer->pubsub_conn == NULL)
        peer->pubsub_conn =
            hfi_conn_new(&peer->target, HFI_DRIVER_KEEPER, on_push, on_pubsub_state, peer);
    return peer->pubsub_conn != NULL;
}

/* ---- Life cycle ---- */

static void destroy(struct hfi_task *task) {
    struct hfi_peer *peer = HFI_CONTAINER(task, struct hfi_peer, task);
    const struct hfi_mem *mem = peer->target.mem;
    hfi_free(mem, peer->name);
    hfi_free(mem, peer->resolve_arg);
    hfi_tls_context_free(peer->tls);
    hfi_free(mem, peer);
}

static char *format(const struct hfi_mem *mem, const char *pattern, const char *host,
                    uint16_t port) {
    size_t size = strlen(host) + 16;
    char *text = hfi_alloc(mem, size);
    if (text != NULL)
        snprintf(text, size, pattern, host, (unsigned)port);
    return text;
}

static int set_target(struct hfi_peer *peer, const char *host, uint16_t port, hf_error *error) {
    struct hfi_sentinel *route = peer->route;
    const char *expected = route->url->sentinel_tls_server_name;
    peer->name = format(route->mem, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host, port);
    peer->resolve_arg = format(route->mem, "%s %u", host, port);
    if (peer->name == NULL || peer->resolve_arg == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    peer->host.name = peer->target.node = peer->name;
    peer->host.resolve_arg = peer->resolve_arg;
    if (!hfi_addr_numeric(host, port, &peer->host.address))
        peer->host.resolve = hfi_resolve_host;
    if (route->tls == NULL)
        return HF_OK;
    int err =
        hfi_tls_context_like(route->tls, expected != NULL ? expected : host, &peer->tls, error);
    peer->host.tls = peer->tls;
    return err;
}

static void describe(struct hfi_peer *peer) {
    const struct hfi_sentinel *route = peer->route;
    const struct hfi_node_config *config = &route->nodes.config;
    peer->login = (struct hfi_resp_login){.peer = HFI_PEER_SENTINEL,
                                          .user = route->url->sentinel_user,
                                          .password = route->url->sentinel_password,
                                          .client_name = config->client_name};
    peer->target.mem = route->mem;
    peer->target.log = route->log;
    peer->target.keeper = route->keeper;
    peer->target.hosts = &peer->host;
    peer->target.hosts_len = 1;
    peer->target.protocol = &hfi_resp_sentinel;
    peer->target.login = &peer->login;
    peer->target.cmd_timeout_ms = config->cmd_timeout_ms;
    peer->target.ping_interval_ms = config->ping_interval_ms;
    peer->target.on_failure = on_peer_failure;
    peer->target.on_failure_arg = peer;
}

static bool is_known(const struct hfi_sentinel *route, const char *name) {
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next)
        if (strcmp(HFI_CONTAINER(link, struct hfi_peer, link)->name, name) == 0)
            return true;
    return false;
}

int hfi_peer_add(struct hfi_sentinel *route, const char *host, uint16_t port, hf_error *error) {
    struct hfi_address address = {.host = host, .port = port};
    hfi_address_map(&route->nodes.config, &address);
    struct hfi_peer *peer = hfi_zalloc(route->mem, sizeof *peer);
    if (peer == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    peer->route = route;
    hfi_task_init(&peer->task, route->exec, run, destroy);
    describe(peer);
    int err = set_target(peer, address.host, address.port, error);
    bool needed = err == HF_OK && route->peers_len < HFI_PEERS_MAX && !is_known(route, peer->name);
    if (needed) {
        peer->ask = hfi_conn_new(&peer->target, HFI_DRIVER_KEEPER, NULL, NULL, NULL);
        if (peer->ask == NULL)
            err = hfi_fail(error, HF_ENOMEM, "out of memory or file descriptors for a connection");
    }
    if (!needed || err != HF_OK) {
        hfi_task_unref(&peer->task);
        return err;
    }
    hfi_list_push_back(&route->peers, &peer->link);
    route->peers_len++;
    return HF_OK;
}

void hfi_peer_stop(struct hfi_peer *peer) {
    hfi_conn_free(peer->ask);
    hfi_conn_free(peer->pubsub_conn);
    peer->ask = peer->pubsub_conn = NULL;
    drop(peer);
}

void hfi_peer_close_fds(struct hfi_peer *peer) {
    hfi_conn_close_fds(peer->ask);
    hfi_conn_close_fds(peer->pubsub_conn);
}
