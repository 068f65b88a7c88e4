/*
 * One server and our connections to it.
 *
 * Called by exchanges, on any thread, to get the connection of a lane; by the route to make and end
 * a node. All connections but two are made with the node; each is opened when first wanted. The
 * target never changes, so picking needs no lock. Only the two that are made late do: the
 * dispatcher's and the ack connection.
 *
 * Which command connection a caller uses is decided in commands.c.
 */
#include "redis/route/node.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/driver/keeper.h"
#include "net/resp/resp.h"
#include "redis/route/commands.h"
#include "redis/route/local/local.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct hfi_node {
    atomic_uint refs; /* see node.h */
    const struct hfi_mem *mem;
    const struct hfi_node_hooks *hooks;
    void *arg;
    struct hfi_learnt learnt;
    struct hfi_target target;
    struct hfi_host host; /* `target` points to these two */
    struct hfi_resp_login login;
    char *name, *resolve_arg, *user, *password, *client_name; /* `target` points to these */
    struct hfi_tls_context *tls;                              /* and to this */
    bool in_network;

    struct hfi_commands commands;
    struct hfi_conn *control, *listener;
    atomic_bool stopped, retired;
    void (*on_failure)(void *arg, const struct hfi_node *node, int err, const hf_error *error);
    void *on_failure_arg;
    pthread_mutex_t mtx; /* guards the making of the next two, and `retired` */
    struct hfi_conn *_Atomic dispatch;
    struct hfi_conn *_Atomic acks;
    const struct hfi_ack_batch_ops *ack_batches; /* of `acks` */
};

static bool copy_text(const struct hfi_mem *mem, const char *text, char **ret) {
    if (text == NULL)
        return true;
    *ret = hfi_strdup(mem, text);
    return *ret != NULL;
}

static char *format_text(const struct hfi_mem *mem, const char *before, const char *text,
                         const char *after) {
    size_t size = strlen(before) + strlen(text) + strlen(after) + 1;
    char *joined = hfi_alloc(mem, size);
    if (joined != NULL)
        snprintf(joined, size, "%s%s%s", before, text, after);
    return joined;
}

/* The two texts of a host: "host port" for the resolver, and the usual form for people. */
static bool set_host(struct hfi_node *node, const struct hfi_url *url) {
    char port[8];
    bool colons = strchr(url->host, ':') != NULL;
    snprintf(port, sizeof port, " %u", (unsigned)url->port);
    node->resolve_arg = format_text(node->mem, "", url->host, port);
    snprintf(port, sizeof port, "%s:%u", colons ? "]" : "", (unsigned)url->port);
    node->name = format_text(node->mem, colons ? "[" : "", url->host, port);
    if (!hfi_addr_numeric(url->host, url->port, &node->host.address))
        node->host.resolve = hfi_resolve_host;
    return node->resolve_arg != NULL && node->name != NULL;
}

static int set_target(struct hfi_node *node, const struct hfi_url *url, hf_error *error) {
    bool enough = false;
    if (url->kind == HFI_URL_TCP) {
        enough = set_host(node, url);
        node->in_network = true;
    } else if (url->kind == HFI_URL_UNIX) {
        enough = copy_text(node->mem, url->path, &node->name);
        int err = hfi_addr_unix(url->path, &node->host.address);
        if (err != HF_OK)
            return hfi_fail(error, err, "the path of the socket is empty or too long");
    } else {
        const char *directory = url->path != NULL ? url->path : "";
        enough = copy_text(node->mem, directory, &node->resolve_arg);
        node->name = format_text(node->mem, "local:", directory, "");
        enough = enough && node->name != NULL;
        node->host.resolve = hfi_resolve_local;
        node->target.identified = true;
    }
    node->host.name = node->target.node = node->name;
    node->target.hosts = &node->host;
    node->target.hosts_len = 1;
    node->host.resolve_arg = node->resolve_arg;
    return enough ? HF_OK : hfi_fail(error, HF_ENOMEM, "out of memory");
}

int hfi_node_tls(const struct hfi_mem *mem, const struct hfi_url *url, const char *host,
                 struct hfi_tls_context **ret, hf_error *error) {
    struct hfi_tls_options options = {.ca_file = url->tls_ca_file,
                                      .ca_dir = url->tls_ca_dir,
                                      .cert_file = url->tls_cert_file,
                                      .key_file = url->tls_key_file,
                                      .server_name = url->tls_server_name,
                                      .min_version = url->tls_min_version,
                                      .insecure = url->tls_verify == HFI_VERIFY_NONE};
    return hfi_tls_context_new(mem, &options, host, ret, error);
}

static int prepare_tls(struct hfi_node *node, const struct hfi_node_config *config,
                       hf_error *error) {
    const struct hfi_url *url = config->url;
    const char *name = url->tls_server_name != NULL ? url->tls_server_name : url->host;
    if (!url->tls)
        return HF_OK;
    int err = config->tls != NULL ? hfi_tls_context_like(config->tls, name, &node->tls, error)
                                  : hfi_node_tls(node->mem, url, url->host, &node->tls, error);
    if (err != HF_OK)
        return err;
    node->host.tls = node->tls;
    if (url->tls_verify == HFI_VERIFY_NONE)
        hfi_log(config->log, HF_LOG_WARN, HFI_ABOUT(.server = node->name),
                "%s: TLS without verification: anyone may pose as the server", node->name);
    return HF_OK;
}

static int describe_us(struct hfi_node *node, const struct hfi_node_config *config,
                       hf_error *error) {
    if (!copy_text(node->mem, config->url->user, &node->user) ||
        !copy_text(node->mem, config->url->password, &node->password) ||
        !copy_text(node->mem, config->client_name, &node->client_name))
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    struct hfi_target *target = &node->target;
    target->mem = config->mem;
    target->log = config->log;
    target->keeper = config->keeper;
    target->dispatch = config->dispatch;
    target->protocol = &hfi_resp;
    target->login = &node->login;
    node->login.peer = config->primary ? HFI_PEER_PRIMARY : HFI_PEER_SERVER;
    node->login.user = node->user;
    node->login.password = node->password;
    node->login.db = config->url->db;
    node->login.client_name = node->client_name;
    target->cmd_timeout_ms = config->cmd_timeout_ms;
    target->ping_interval_ms = config->ping_interval_ms;
    target->sleeps_at_once = config->sleeps_at_once;
    target->commands = config->commands;
    target->reconnects = config->reconnects;
    return HF_OK;
}

/* ---- Events of the connections ---- */

static void on_push(void *arg, const void *message) {
    struct hfi_node *node = arg;
    node->hooks->push(node->arg, node, message);
}

static void on_pubsub_state(void *arg, bool up) {
    struct hfi_node *node = arg;
    node->hooks->pubsub_state(node->arg, node, up);
}

static void on_control_state(void *arg, bool up) {
    struct hfi_node *node = arg;
    node->hooks->control_state(node->arg, node, up);
}

static void on_target_failure(void *arg, int err, const hf_error *error) {
    struct hfi_node *node = arg;
    node->on_failure(node->on_failure_arg, node, err, error);
}

/* ---- Life cycle ---- */

static int make_connections(struct hfi_node *node, hf_error *error) {
    struct hfi_target *target = &node->target;
    bool commands = hfi_commands_make(&node->commands, target);
    node->control = hfi_conn_new(target, HFI_DRIVER_KEEPER, NULL, on_control_state, node);
    node->listener = hfi_conn_new(target, HFI_DRIVER_LISTENERS, on_push, on_pubsub_state, node);
    if (!commands || node->control == NULL || node->listener == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory or file descriptors for a connection");
    return HF_OK;
}

int hfi_node_new(const struct hfi_node_config *config, struct hfi_node **ret, hf_error *error) {
    struct hfi_node *node = hfi_zalloc(config->mem, sizeof *node);
    if (node == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    atomic_init(&node->refs, 1);
    node->mem = config->mem;
    node->hooks = config->hooks;
    node->arg = config->arg;
    node->ack_batches = config->acks;
    pthread_mutex_init(&node->mtx, NULL);
    if (config->on_failure != NULL) {
        node->on_failure = config->on_failure;
        node->on_failure_arg = config->on_failure_arg;
        node->target.on_failure = on_target_failure;
        node->target.on_failure_arg = node;
    }

    int err = describe_us(node, config, error);
    if (err == HF_OK)
        err = set_target(node, config->url, error);
    if (err == HF_OK)
        err = prepare_tls(node, config, error);
    if (err == HF_OK)
        err = make_connections(node, error);
    if (err == HF_OK && node->hooks->made(node->arg, node) != HF_OK)
        err = hfi_fail(error, HF_ENOMEM, "out of memory");
    if (err != HF_OK) {
        hfi_node_stop(node);
        hfi_node_unref(node);
        return err;
    }
    *ret = node;
    return HF_OK;
}

#define CONNS_MAX (HFI_COMMANDS_MAX + 4)

/* The connections that exist; the node may be half made. */
static size_t list_connections(struct hfi_node *node, struct hfi_conn *ret[CONNS_MAX]) {
    struct hfi_conn *others[] = {node->control, node->listener, atomic_load(&node->dispatch),
                                 atomic_load(&node->acks)};
    size_t len = 0;
    for (size_t i = 0; i < HFI_COMMANDS_MAX; i++)
        if (node->commands.conns[i] != NULL)
            ret[len++] = node->commands.conns[i];
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i] != NULL)
            ret[len++] = others[i];
    return len;
}

static bool retire(struct hfi_node *node) {
    pthread_mutex_lock(&node->mtx);
    bool first = !atomic_exchange(&node->retired, true);
    pthread_mutex_unlock(&node->mtx);
    return first;
}

void hfi_node_retire(struct hfi_node *node) {
    if (!retire(node))
        return;
    node->hooks->stopping(node->arg, node);
    struct hfi_conn *conns[CONNS_MAX];
    for (size_t i = 0, len = list_connections(node, conns); i < len; i++)
        hfi_conn_retire(conns[i]);
}

bool hfi_node_is_retired(const struct hfi_node *node) {
    return atomic_load_explicit(&node->retired, memory_order_relaxed);
}

bool hfi_node_is_shared(const struct hfi_node *node) {
    return atomic_load_explicit(&node->refs, memory_order_acquire) > 1;
}

void hfi_node_hang_up(struct hfi_node *node) {
    struct hfi_conn *conns[CONNS_MAX];
    for (size_t i = 0, len = list_connections(node, conns); i < len; i++)
        hfi_conn_suspect(conns[i], HFI_NEVER);
}

void hfi_node_rest(struct hfi_node *node) {
    hfi_conn_keep_up(node->control, false);
    hfi_commands_rest(&node->commands);
    hfi_node_hang_up(node);
}

void hfi_node_insist_on_primary(struct hfi_node *node) {
    atomic_store(&node->login.peer, HFI_PEER_PRIMARY);
}

bool hfi_node_may_change(const struct hfi_node *node) {
    return node->in_network;
}

void hfi_node_stop(struct hfi_node *node) {
    if (atomic_exchange(&node->stopped, true))
        return;
    if (retire(node))
        node->hooks->stopping(node->arg, node);
    struct hfi_conn *conns[CONNS_MAX];
    size_t len = list_connections(node, conns);
    memset(node->commands.conns, 0, sizeof node->commands.conns);
    node->control = node->listener = NULL;
    atomic_store(&node->dispatch, NULL);
    atomic_store(&node->acks, NULL);
    for (size_t i = 0; i < len; i++)
        hfi_conn_free(conns[i]);
}

struct hfi_node *hfi_node_ref(struct hfi_node *node) {
    atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
    return node;
}

static void free_node(struct hfi_node *node) {
    assert(atomic_load(&node->stopped));
    node->hooks->freed(node->arg, node);
    if (node->password != NULL)
        explicit_bzero(node->password, strlen(node->password));
    hfi_free(node->mem, node->password);
    hfi_free(node->mem, node->user);
    hfi_free(node->mem, node->client_name);
    hfi_free(node->mem, node->resolve_arg);
    hfi_free(node->mem, node->name);
    hfi_tls_context_free(node->tls);
    pthread_mutex_destroy(&node->mtx);
    hfi_free(node->mem, node);
}

void hfi_node_unref(struct hfi_node *node) {
    if (node != NULL && atomic_fetch_sub_explicit(&node->refs, 1, memory_order_acq_rel) == 1)
        free_node(node);
}

void hfi_node_close_fds(struct hfi_node *node) {
    struct hfi_conn *conns[CONNS_MAX];
    for (size_t i = 0, len = list_connections(node, conns); i < len; i++)
        hfi_conn_close_fds(conns[i]);
}

/* Makes the connection on its first use, since few clients need it. */
static struct hfi_conn *pick_late(struct hfi_node *node, struct hfi_conn *_Atomic *late,
                                  struct hfi_conn *(*make)(struct hfi_node *node)) {
    struct hfi_conn *conn = atomic_load_explicit(late, memory_order_acquire);
    if (conn != NULL)
        return conn;
    pthread_mutex_lock(&node->mtx);
    conn = atomic_load(late);
    if (conn == NULL) {
        conn = make(node);
        if (conn != NULL && atomic_load(&node->retired))
            hfi_conn_retire(conn);
        atomic_store_explicit(late, conn, memory_order_release);
    }
    pthread_mutex_unlock(&node->mtx);
    return conn;
}

static struct hfi_conn *make_dispatch(struct hfi_node *node) {
    return hfi_conn_new(&node->target, HFI_DRIVER_DISPATCH, NULL, NULL, NULL);
}

static struct hfi_conn *make_acks(struct hfi_node *node) {
    return hfi_conn_new_acked(&node->target, node->ack_batches, node->arg);
}

struct hfi_conn *hfi_node_acks(struct hfi_node *node) {
    if (atomic_load_explicit(&node->stopped, memory_order_relaxed))
        return NULL;
    return pick_late(node, &node->acks, make_acks);
}

struct hfi_conn *hfi_node_pick(struct hfi_node *node, enum hfi_lane lane) {
    if (atomic_load_explicit(&node->stopped, memory_order_relaxed))
        return NULL;
    if (lane == HFI_LANE_CALLER)
        return hfi_commands_pick(&node->commands);
    return lane == HFI_LANE_DISPATCH ? pick_late(node, &node->dispatch, make_dispatch)
                                     : node->control;
}

unsigned hfi_node_load(struct hfi_node *node) {
    struct hfi_conn *conns[CONNS_MAX], *acks = atomic_load(&node->acks);
    unsigned load = 0;
    for (size_t i = 0, len = list_connections(node, conns); i < len; i++)
        if (conns[i] != node->listener && conns[i] != acks)
            load += hfi_conn_load(conns[i]);
    return load;
}

bool hfi_node_confirms(struct hfi_node *node) {
    struct hfi_conn *acks = atomic_load(&node->acks);
    return acks != NULL && hfi_conn_load(acks) > 0;
}

bool hfi_node_was_replaced(struct hfi_node *node, bool *ret_control) {
    *ret_control = false;
    if (!node->target.identified || atomic_load(&node->stopped))
        return false;
    struct hfi_identity there = {0};
    hfi_local_identity(node->resolve_arg, &there);
    struct hfi_conn *conns[CONNS_MAX];
    bool replaced = false;
    for (size_t i = 0, len = list_connections(node, conns); i < len; i++) {
        bool left = hfi_conn_leave_unless(conns[i], &there);
        replaced = replaced || left;
        *ret_control = *ret_control || (left && conns[i] == node->control);
    }
    return replaced;
}

struct hfi_conn *hfi_node_listener(struct hfi_node *node) {
    return node->listener;
}

bool hfi_node_is_listened(struct hfi_node *node) {
    return node->listener != NULL && hfi_conn_is_kept_up(node->listener);
}

struct hfi_learnt *hfi_node_learnt(struct hfi_node *node) {
    return &node->learnt;
}

const char *hfi_node_name(const struct hfi_node *node) {
    return node->name;
}

int64_t hfi_node_last_answer_ms(const struct hfi_node *node) {
    return atomic_load_explicit(&node->target.last_answer_ms, memory_order_relaxed);
}

bool hfi_node_identity(const struct hfi_node *node, struct hfi_server *ret) {
    *ret = node->login.server;
    return ret->run_id[0] != '\0';
}
