/*
 * The cluster route.
 *
 * Made by the engine for redis-cluster:// urls. Exchanges ask it for the node of a name, on any
 * thread. The keeper's thread maintains the slot map, in the files that cluster_impl.h lists.
 * Nothing is sent before a node is wanted.
 *
 * A node without the slot refuses the command with a redirect, so a stale map costs one redirect
 * and no more. A reply of a node whose slot has moved since is different: the node may not know yet
 * that it was deposed. So the exchange checks the slot's owner again when the reply has come.
 */
#include "redis/route/cluster/cluster_impl.h"
#include "redis/route/wants.h"

#include <string.h>

#define SWEEP_MS 500

static struct hfi_cluster *route_of(struct hfi_route *base) {
    return HFI_CONTAINER(base, struct hfi_cluster, base);
}

/* ---- The node of a name ---- */

static unsigned cluster_slot(struct hfi_route *base, const char *key, size_t len) {
    const struct hfi_cluster *route = route_of(base);
    return hfi_slot_of(route->prefix, route->prefix_len, key, len);
}

/* Any member with slots, preferably not in doubt; NULL: none is known. */
static struct hfi_member *any_member(struct hfi_cluster *route) {
    struct hfi_member *member;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        if (atomic_load(&member->slots) > 0 && !hfi_cluster_is_doubted(member))
            return member;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        if (atomic_load(&member->slots) > 0)
            return member;
    return NULL;
}

static struct hfi_member *member_for(struct hfi_cluster *route, unsigned slot) {
    if (slot == HFI_NO_SLOT)
        return any_member(route);
    return atomic_load(&route->members[atomic_load(&route->owner[slot])]);
}

static struct hfi_node *cluster_node_for(struct hfi_route *base, const char *key, size_t len) {
    struct hfi_cluster *route = route_of(base);
    unsigned slot = key != NULL ? cluster_slot(base, key, len) : HFI_NO_SLOT;
    struct hfi_node *node = NULL;
    bool awake = true;
    pthread_mutex_lock(&route->mtx);
    struct hfi_member *member = member_for(route, slot);
    if (member != NULL) {
        node = hfi_node_ref(atomic_load(&member->node));
        awake = atomic_load_explicit(&member->used, memory_order_relaxed);
        if (!awake)
            atomic_store(&member->used, true);
    }
    pthread_mutex_unlock(&route->mtx);
    if (!awake)
        hfi_task_post(&route->task, HFI_CLUSTER_USED);
    return node;
}

static const struct hfi_node *cluster_node(struct hfi_route *base, const char *key, size_t len) {
    if (key == NULL)
        return NULL;
    const struct hfi_member *member = member_for(route_of(base), cluster_slot(base, key, len));
    return member != NULL ? atomic_load(&member->node) : NULL;
}

static void cluster_each(struct hfi_route *base, void (*visit)(struct hfi_node *node, void *arg),
                         void *arg) {
    hfi_nodes_each(&route_of(base)->nodes, visit, arg);
}

static int64_t cluster_last_answer_ms(struct hfi_route *base) {
    return atomic_load_explicit(&route_of(base)->last_answer_ms, memory_order_relaxed);
}

/* ---- Replica count ---- */

/* For a member that no map has listed yet: the most that any other has. Too many cost an attempt;
 * too few would break the promise. */
static unsigned cluster_replicas(struct hfi_route *base, const struct hfi_node *node) {
    struct hfi_cluster *route = route_of(base);
    const struct hfi_member *member;
    unsigned replicas = HFI_REPLICAS_UNKNOWN, most = 0;
    pthread_mutex_lock(&route->mtx);
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;) {
        unsigned of_its = atomic_load(&member->replicas);
        if (of_its != HFI_REPLICAS_UNKNOWN && of_its > most)
            most = of_its;
        if (atomic_load(&member->node) == node)
            replicas = of_its;
    }
    pthread_mutex_unlock(&route->mtx);
    return replicas != HFI_REPLICAS_UNKNOWN ? replicas : most;
}

static void cluster_too_few(struct hfi_route *base) {
    hfi_task_post(&route_of(base)->task, HFI_CLUSTER_SEARCH);
}

/* ---- Wants ---- */

static void notify_all(struct hfi_cluster *route, int err, const hf_error *error) {
    pthread_mutex_lock(&route->mtx);
    hfi_wants_notify_all(&route->wants, err, error);
    pthread_mutex_unlock(&route->mtx);
}

/* There is a map, but this slot has no owner in it. */
static void notify_uncovered_locked(struct hfi_want *want) {
    hf_error error;
    hfi_error_clear(&error);
    hfi_fail(&error, HF_EUNAVAILABLE, "no server of the cluster serves slot %u", want->what);
    hfi_want_notify(want, error.code, &error);
}

void hfi_cluster_notify_wants(struct hfi_cluster *route) {
    struct hfi_link *link, *next;
    pthread_mutex_lock(&route->mtx);
    for (link = route->wants.next; link != &route->wants; link = next) {
        struct hfi_want *want = HFI_CONTAINER(link, struct hfi_want, link);
        next = link->next;
        if (member_for(route, want->what) != NULL)
            hfi_want_notify(want, HF_OK, NULL);
        else if (!route->searching)
            notify_uncovered_locked(want);
    }
    pthread_mutex_unlock(&route->mtx);
}

/* No host's name can be resolved, so retries are useless. */
static bool is_hopeless(struct hfi_cluster *route) {
    const struct hfi_member *member;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        if (member->state != HFI_MEMBER_FAILED || !member->want.hopeless)
            return false;
    return true;
}

void hfi_cluster_report_failure(struct hfi_cluster *route, const hf_error *error) {
    bool hopeless = is_hopeless(route);
    hfi_log(route->log, route->failure_logged || hopeless ? HF_LOG_DEBUG : HF_LOG_WARN,
            HFI_ABOUT(.code = error->code, .server = error->node), "%s", error->text);
    route->failure_logged = true;
    pthread_mutex_lock(&route->mtx);
    hfi_wants_are_hopeless(&route->wants, hopeless);
    pthread_mutex_unlock(&route->mtx);
    notify_all(route, error->code, error);
}

static void cluster_want(struct hfi_route *base, const char *key, size_t len, struct hfi_want *want,
                         struct hfi_task *task, unsigned event) {
    struct hfi_cluster *route = route_of(base);
    want->what = key != NULL ? cluster_slot(base, key, len) : HFI_NO_SLOT;
    pthread_mutex_lock(&route->mtx);
    bool known = member_for(route, want->what) != NULL;
    hfi_wants_add(&route->wants, want, task, event, known);
    pthread_mutex_unlock(&route->mtx);
    if (!known)
        hfi_task_post(&route->task, HFI_CLUSTER_SEARCH);
}

static void cluster_unwant(struct hfi_route *base, struct hfi_want *want) {
    struct hfi_cluster *route = route_of(base);
    pthread_mutex_lock(&route->mtx);
    bool waited = hfi_wants_remove(want);
    pthread_mutex_unlock(&route->mtx);
    if (waited)
        hfi_task_unref(want->task);
}

/* ---- Events of the nodes ---- */

static struct hfi_redirects cluster_redirected(struct hfi_route *base, struct hfi_node *node,
                                               const struct hfi_redirect *redirect) {
    return hfi_cluster_redirect(route_of(base), node, redirect);
}

static void cluster_refused(struct hfi_route *base, struct hfi_node *node) {
    (void)node;
    hfi_task_post(&route_of(base)->task, HFI_CLUSTER_SEARCH);
}

static void on_node_failure(void *arg, const struct hfi_node *node, int err,
                            const hf_error *error) {
    struct hfi_cluster *route = arg;
    struct hfi_member *member = hfi_cluster_member_of(route, node);
    (void)err;
    (void)error;
    if (member == NULL || member->idle || atomic_load(&member->slots) == 0)
        return;
    hfi_cluster_doubt(route, member);
    hfi_task_post(&route->task, HFI_CLUSTER_SEARCH);
}

static void cluster_watch(struct hfi_route *base, bool on) {
    hfi_cluster_watch(route_of(base), on);
}

/* ---- Life cycle ---- */

static void sweep_fired(struct hfi_alarm *alarm) {
    struct hfi_cluster *route = HFI_CONTAINER(alarm, struct hfi_cluster, sweep);
    if (!route->stopped && hfi_nodes_sweep(&route->nodes))
        hfi_cluster_sweep_soon(route);
}

void hfi_cluster_sweep_soon(struct hfi_cluster *route) {
    hfi_alarm_set(route->exec, &route->sweep, hfi_now_ms() + SWEEP_MS);
}

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_cluster *route = HFI_CONTAINER(task, struct hfi_cluster, task);
    if (route->stopped)
        return;
    if ((events & HFI_CLUSTER_USED) != 0)
        hfi_cluster_watch_used(route);
    if ((events & HFI_CLUSTER_MOVED) != 0)
        hfi_cluster_settle_map(route);
    if ((events & HFI_CLUSTER_ROLE) != 0)
        hfi_cluster_on_roles(route);
    hfi_cluster_search_run(route, events);
}

static void destroy(struct hfi_task *task) {
    struct hfi_cluster *route = HFI_CONTAINER(task, struct hfi_cluster, task);
    pthread_mutex_destroy(&route->mtx);
    hfi_free(route->mem, route);
}

static void cluster_stop(struct hfi_route *base) {
    struct hfi_cluster *route = route_of(base);
    if (route->stopped)
        return;
    route->stopped = true;
    hfi_nodes_stop(&route->nodes);
    hfi_cluster_search_stop(route);
    hfi_cluster_watch_stop(route);
    hfi_alarm_clear(route->exec, &route->sweep);
    notify_all(route, HF_ECLOSED, NULL);
}

static void cluster_free(struct hfi_route *base) {
    struct hfi_cluster *route = route_of(base);
    cluster_stop(base);
    hfi_cluster_free_map(route);
    hfi_nodes_clear(&route->nodes);
    hfi_task_unref(&route->task);
}

static void cluster_close_fds(struct hfi_route *base) {
    hfi_nodes_close_fds(&route_of(base)->nodes);
}

static const struct hfi_route_ops cluster_ops = {
    .node_for = cluster_node_for,
    .node = cluster_node,
    .each = cluster_each,
    .stop = cluster_stop,
    .free = cluster_free,
    .close_fds = cluster_close_fds,
    .replicas = cluster_replicas,
    .too_few = cluster_too_few,
    .want = cluster_want,
    .unwant = cluster_unwant,
    .refused = cluster_refused,
    .watch = cluster_watch,
    .last_answer_ms = cluster_last_answer_ms,
    .slot = cluster_slot,
    .redirected = cluster_redirected,
};

static int fill(struct hfi_cluster *route, const struct hfi_node_config *config, hf_error *error) {
    struct hfi_node_config node = *config;
    node.on_failure = on_node_failure;
    node.on_failure_arg = route;
    int err = hfi_nodes_init(&route->nodes, &node, config->url->hosts[0].host, error);
    if (err != HF_OK)
        return err;
    route->url = &route->nodes.url;
    for (size_t i = 0; i < route->url->hosts_len && err == HF_OK; i++)
        err = hfi_cluster_add_named(route, route->url->hosts[i].host, route->url->hosts[i].port,
                                    error);
    return err;
}

int hfi_cluster_new(const struct hfi_node_config *config, const char *prefix,
                    const struct hfi_cluster_hooks *hooks, struct hfi_route **ret,
                    hf_error *error) {
    struct hfi_cluster *route = hfi_zalloc(config->mem, sizeof *route);
    if (route == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    route->base.ops = &cluster_ops;
    route->mem = config->mem;
    route->log = config->log;
    route->exec = hfi_keeper_exec(config->keeper);
    route->cmd_timeout_ms = config->cmd_timeout_ms;
    route->hooks = *hooks;
    route->prefix = prefix;
    route->prefix_len = strlen(prefix);
    route->sweep.fire = sweep_fired;
    hfi_list_init(&route->wants);
    hfi_list_init(&route->candidates);
    pthread_mutex_init(&route->mtx, NULL);
    hfi_task_init(&route->task, route->exec, run, destroy);
    hfi_cluster_search_init(route);
    hfi_cluster_watch_init(route);
    int err = fill(route, config, error);
    if (err != HF_OK) {
        cluster_free(&route->base);
        return err;
    }
    *ret = &route->base;
    return HF_OK;
}
