/*
 * The Sentinel route.
 *
 * Made by the engine for redis-sentinel:// urls. Exchanges ask it for the node of a name, on any
 * thread. The keeper's thread finds and follows the primary, in the files that sentinel_impl.h
 * lists. Nothing is sent before a node is wanted.
 *
 * A failover is one step on the keeper's thread: there is no primary, the old node is retired (its
 * connections and requests end abortively), the new node is the primary, and the engine is
 * notified. So no later reply of the old one can count, however long it believes to be the primary.
 */
#include "redis/route/sentinel/sentinel_impl.h"
#include "redis/route/wants.h"

#define SWEEP_MS 500

static struct hfi_sentinel *route_of(struct hfi_route *base) {
    return HFI_CONTAINER(base, struct hfi_sentinel, base);
}

static struct hfi_peer *peer_of(struct hfi_link *link) {
    return HFI_CONTAINER(link, struct hfi_peer, link);
}

/* ---- The node of a name ---- */

static struct hfi_node *sentinel_node_for(struct hfi_route *base, const char *key, size_t len) {
    struct hfi_sentinel *route = route_of(base);
    (void)key;
    (void)len;
    pthread_mutex_lock(&route->mtx);
    struct hfi_node *node = atomic_load(&route->primary);
    if (node != NULL)
        hfi_node_ref(node);
    pthread_mutex_unlock(&route->mtx);
    return node;
}

static const struct hfi_node *sentinel_node(struct hfi_route *base, const char *key, size_t len) {
    (void)key;
    (void)len;
    return atomic_load(&route_of(base)->primary);
}

static void sentinel_each(struct hfi_route *base, void (*visit)(struct hfi_node *node, void *arg),
                          void *arg) {
    hfi_nodes_each(&route_of(base)->nodes, visit, arg);
}

static int64_t sentinel_last_answer_ms(struct hfi_route *base) {
    return atomic_load_explicit(&route_of(base)->last_answer_ms, memory_order_relaxed);
}

/* ---- Replica count ---- */

/* Nothing is sent for it before a node is wanted. */
static unsigned sentinel_replicas(struct hfi_route *base, const struct hfi_node *node) {
    struct hfi_sentinel *route = route_of(base);
    (void)node;
    if (!atomic_exchange(&route->counts, true) && atomic_load(&route->primary) != NULL)
        hfi_task_post(&route->task, HFI_SENTINEL_SEARCH);
    return atomic_load(&route->replicas);
}

static void sentinel_too_few(struct hfi_route *base) {
    struct hfi_sentinel *route = route_of(base);
    if (atomic_load(&route->counts))
        hfi_task_post(&route->task, HFI_SENTINEL_SEARCH);
}

/* ---- Wants ---- */

static void sentinel_want(struct hfi_route *base, const char *key, size_t len,
                          struct hfi_want *want, struct hfi_task *task, unsigned event) {
    struct hfi_sentinel *route = route_of(base);
    (void)key;
    (void)len;
    pthread_mutex_lock(&route->mtx);
    bool known = atomic_load(&route->primary) != NULL;
    hfi_wants_add(&route->wants, want, task, event, known);
    pthread_mutex_unlock(&route->mtx);
    if (!known)
        hfi_task_post(&route->task, HFI_SENTINEL_SEARCH);
}

static void sentinel_unwant(struct hfi_route *base, struct hfi_want *want) {
    struct hfi_sentinel *route = route_of(base);
    pthread_mutex_lock(&route->mtx);
    bool waited = hfi_wants_remove(want);
    pthread_mutex_unlock(&route->mtx);
    if (waited)
        hfi_task_unref(want->task);
}

/* A search in progress has already asked: the next one serves this want. */
static void sentinel_confirm(struct hfi_route *base, const struct hfi_node *node,
                             struct hfi_want *want, struct hfi_task *task, unsigned event) {
    struct hfi_sentinel *route = route_of(base);
    hf_error error;
    hfi_sentinel_changed(&error);
    pthread_mutex_lock(&route->mtx);
    bool is_left = node != atomic_load(&route->primary);
    hfi_wants_add(&route->awaiting_confirm, want, task, event, false);
    if (is_left)
        hfi_want_notify(want, error.code, &error);
    pthread_mutex_unlock(&route->mtx);
    if (!is_left)
        hfi_task_post(&route->task, HFI_SENTINEL_SEARCH);
}

void hfi_sentinel_changed(hf_error *ret) {
    hfi_error_clear(ret);
    hfi_fail(ret, HF_EUNREACH, "the primary has changed");
}

void hfi_sentinel_notify_confirming(struct hfi_sentinel *route, int err, const hf_error *error) {
    pthread_mutex_lock(&route->mtx);
    hfi_wants_notify_all(&route->confirming, err, error);
    pthread_mutex_unlock(&route->mtx);
}

/* No sentinel's name can be resolved, so retries are useless. */
static bool is_hopeless(struct hfi_sentinel *route) {
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next)
        if (peer_of(link)->state != HFI_PEER_FAILED || !peer_of(link)->want.hopeless)
            return false;
    return true;
}

void hfi_sentinel_report_failure(struct hfi_sentinel *route, int err, const hf_error *error) {
    if (atomic_load(&route->primary) != NULL)
        return; /* there are no wants */
    bool hopeless = is_hopeless(route);
    hfi_log(route->log, route->failure_logged || hopeless ? HF_LOG_DEBUG : HF_LOG_WARN,
            HFI_ABOUT(.code = err, .server = error->node), "%s", error->text);
    route->failure_logged = true;
    pthread_mutex_lock(&route->mtx);
    hfi_wants_are_hopeless(&route->wants, hopeless);
    hfi_wants_notify_all(&route->wants, err, error);
    pthread_mutex_unlock(&route->mtx);
}

/* ---- Failover ---- */

static void sweep_fired(struct hfi_alarm *alarm) {
    struct hfi_sentinel *route = HFI_CONTAINER(alarm, struct hfi_sentinel, sweep);
    if (!route->stopped && hfi_nodes_sweep(&route->nodes))
        hfi_sentinel_sweep_soon(route);
}

void hfi_sentinel_sweep_soon(struct hfi_sentinel *route) {
    hfi_alarm_set(route->exec, &route->sweep, hfi_now_ms() + SWEEP_MS);
}

void hfi_sentinel_publish(struct hfi_sentinel *route, struct hfi_node *node, int64_t epoch) {
    pthread_mutex_lock(&route->mtx);
    struct hfi_node *from = atomic_exchange(&route->primary, NULL);
    hfi_list_splice(&route->confirming, &route->awaiting_confirm); /* both are about `from` */
    pthread_mutex_unlock(&route->mtx);
    if (from != NULL)
        hfi_nodes_retire(&route->nodes, from);
    pthread_mutex_lock(&route->mtx);
    atomic_store(&route->primary, node);
    atomic_store(&route->base.found, true);
    hfi_wants_notify_all(&route->wants, HF_OK, NULL);
    pthread_mutex_unlock(&route->mtx);
    if (epoch > route->epoch)
        route->epoch = epoch;
    route->failure_logged = false;
    route->changed(route->changed_arg, from, node);
    hfi_node_unref(from);
    if (from != NULL)
        hfi_sentinel_sweep_soon(route);
}

/* ---- Reasons to search ---- */

static void on_primary_failure(void *arg, const struct hfi_node *node, int err,
                               const hf_error *error) {
    struct hfi_sentinel *route = arg;
    (void)err;
    (void)error;
    if (node == atomic_load(&route->primary))
        hfi_task_post(&route->task, HFI_SENTINEL_SEARCH);
}

static void sentinel_refused(struct hfi_route *base, struct hfi_node *node) {
    struct hfi_sentinel *route = route_of(base);
    if (node != atomic_load(&route->primary))
        return;
    hfi_node_hang_up(node);
    hfi_task_post(&route->task, HFI_SENTINEL_SEARCH);
}

static void sentinel_watch(struct hfi_route *base, bool on) {
    hfi_sentinel_watch(route_of(base), on);
}

/* ---- Life cycle ---- */

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_sentinel *route = HFI_CONTAINER(task, struct hfi_sentinel, task);
    if (route->stopped)
        return;
    if ((events & HFI_SENTINEL_ROLE) != 0)
        hfi_sentinel_on_role(route);
    hfi_sentinel_search_run(route, events);
}

static void destroy(struct hfi_task *task) {
    struct hfi_sentinel *route = HFI_CONTAINER(task, struct hfi_sentinel, task);
    pthread_mutex_destroy(&route->mtx);
    hfi_free(route->mem, route);
}

static void sentinel_stop(struct hfi_route *base) {
    struct hfi_sentinel *route = route_of(base);
    if (route->stopped)
        return;
    route->stopped = true;
    hfi_nodes_stop(&route->nodes);
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next)
        hfi_peer_stop(peer_of(link));
    hfi_sentinel_search_stop(route);
    hfi_sentinel_watch_stop(route);
    hfi_alarm_clear(route->exec, &route->sweep);
    pthread_mutex_lock(&route->mtx);
    hfi_wants_notify_all(&route->wants, HF_ECLOSED, NULL);
    hfi_wants_notify_all(&route->awaiting_confirm, HF_ECLOSED, NULL);
    hfi_wants_notify_all(&route->confirming, HF_ECLOSED, NULL);
    pthread_mutex_unlock(&route->mtx);
}

static void sentinel_free(struct hfi_route *base) {
    struct hfi_sentinel *route = route_of(base);
    struct hfi_link *link;
    sentinel_stop(base);
    while ((link = hfi_list_pop_front(&route->peers)) != NULL)
        hfi_task_unref(&peer_of(link)->task);
    hfi_node_unref(atomic_exchange(&route->primary, NULL));
    hfi_nodes_clear(&route->nodes);
    hfi_tls_context_free(route->tls);
    hfi_task_unref(&route->task);
}

static void sentinel_close_fds(struct hfi_route *base) {
    struct hfi_sentinel *route = route_of(base);
    hfi_nodes_close_fds(&route->nodes);
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next)
        hfi_peer_close_fds(peer_of(link));
}

static const struct hfi_route_ops sentinel_ops = {
    .node_for = sentinel_node_for,
    .node = sentinel_node,
    .each = sentinel_each,
    .stop = sentinel_stop,
    .free = sentinel_free,
    .close_fds = sentinel_close_fds,
    .replicas = sentinel_replicas,
    .too_few = sentinel_too_few,
    .want = sentinel_want,
    .unwant = sentinel_unwant,
    .refused = sentinel_refused,
    .watch = sentinel_watch,
    .confirm = sentinel_confirm,
    .last_answer_ms = sentinel_last_answer_ms,
};

/* The sentinels use TLS if the url says so for them, or else for the servers. */
static int prepare_tls(struct hfi_sentinel *route, hf_error *error) {
    struct hfi_url url = *route->url; /* borrows */
    bool tls = url.sentinel_tls == HFI_SWITCH_DEFAULT ? url.tls : url.sentinel_tls == HFI_SWITCH_ON;
    url.tls_server_name = url.sentinel_tls_server_name;
    return tls ? hfi_node_tls(route->mem, &url, url.hosts[0].host, &route->tls, error) : HF_OK;
}

static int fill(struct hfi_sentinel *route, const struct hfi_node_config *config, hf_error *error) {
    struct hfi_node_config node = *config;
    node.primary = true;
    node.on_failure = on_primary_failure;
    node.on_failure_arg = route;
    int err = hfi_nodes_init(&route->nodes, &node, config->url->hosts[0].host, error);
    if (err != HF_OK)
        return err;
    route->url = &route->nodes.url;
    err = prepare_tls(route, error);
    for (size_t i = 0; i < route->url->hosts_len && err == HF_OK; i++)
        err = hfi_peer_add(route, route->url->hosts[i].host, route->url->hosts[i].port, error);
    return err;
}

int hfi_sentinel_new(const struct hfi_node_config *config, hfi_changed_fn changed, void *arg,
                     struct hfi_route **ret, hf_error *error) {
    struct hfi_sentinel *route = hfi_zalloc(config->mem, sizeof *route);
    if (route == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    route->base.ops = &sentinel_ops;
    route->mem = config->mem;
    route->log = config->log;
    route->keeper = config->keeper;
    route->exec = hfi_keeper_exec(config->keeper);
    route->cmd_timeout_ms = config->cmd_timeout_ms;
    route->changed = changed;
    route->changed_arg = arg;
    route->epoch = -1;
    route->sweep.fire = sweep_fired;
    hfi_list_init(&route->wants);
    hfi_list_init(&route->awaiting_confirm);
    hfi_list_init(&route->confirming);
    hfi_list_init(&route->peers);
    pthread_mutex_init(&route->mtx, NULL);
    hfi_task_init(&route->task, route->exec, run, destroy);
    hfi_sentinel_search_init(route);
    hfi_sentinel_watch_init(route);
    int err = fill(route, config, error);
    if (err != HF_OK) {
        sentinel_free(&route->base);
        return err;
    }
    *ret = &route->base;
    return HF_OK;
}
