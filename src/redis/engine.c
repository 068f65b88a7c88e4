/*
 * The Redis engine: its table of operations, and its life.
 *
 * Made by src/scheme; used by src/core and src/api through its tables. The engine joins a route
 * (connections), a registry of channels and the kinds; calls and renewals in progress belong to
 * their tasks. `renewals` and what the connections tell are the keeper's; the rest does not change
 * between new and stop.
 */
#include "redis/redis.h"

#include "base/clock.h"
#include "base/error.h"
#include "redis/hear.h"
#include "redis/internal.h"
#include "redis/kind.h"
#include "redis/park.h"
#include "redis/route/cluster.h"
#include "redis/route/sentinel.h"
#include "redis/route/single.h"

#include <poll.h>
#include <string.h>

/* ---- Kinds and names ---- */

static const struct {
    hf_kind kind;
    unsigned flags;
    const struct hfi_kind *table;
} kinds[] = {
    {HF_PLAIN, 0, &hfi_kind_plain},      {HF_PLAIN, HF_NONREENTRANT, &hfi_kind_nonreentrant},
    {HF_PLAIN, HF_SPIN, &hfi_kind_spin}, {HF_PLAIN, HF_FENCED, &hfi_kind_fenced},
    {HF_FAIR, 0, &hfi_kind_fair},        {HF_FAIR, HF_NONREENTRANT, &hfi_kind_fair_nonreentrant},
    {HF_READ, 0, &hfi_kind_read},        {HF_WRITE, 0, &hfi_kind_write},
};

static const struct hfi_kind *find_kind(struct hfi_engine *engine, hf_kind kind, unsigned flags) {
    (void)engine;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].kind == kind && kinds[i].flags == flags)
            return kinds[i].table;
    return NULL;
}

static const struct hfi_kind *find_group(struct hfi_engine *engine) {
    (void)engine;
    return &hfi_kind_group;
}

static const struct hfi_kind *const things[] = {
    [HFI_SEMAPHORE] = &hfi_thing_semaphore,
    [HFI_PERMITS] = &hfi_thing_permits,
    [HFI_LATCH] = &hfi_thing_latch,
};

static const struct hfi_kind *find_thing(struct hfi_engine *engine, enum hfi_thing thing) {
    (void)engine;
    size_t index = (size_t)thing;
    return index < sizeof things / sizeof things[0] ? things[index] : NULL;
}

static const struct hfi_kind *find_server(struct hfi_engine *engine) {
    static const struct hfi_call_ops ops = {
        .call_size = sizeof(struct hfi_call_state),
        .ask = hfi_ask,
        .survey = hfi_survey,
        .step = hfi_call_step,
        .cancel = hfi_call_cancel,
        .attend = hfi_call_attend,
    };
    static const struct hfi_kind server = {.name = "server", .ops = &ops};
    (void)engine;
    return &server;
}

/* In a cluster, all that belongs to a name must be in its slot. The channel of a latch has braces around
 * the name in any case. */
static int check_slot(const struct hfi_redis *redis, const struct hfi_kind *kind, const char *name,
                      size_t len, hf_error *error) {
    const struct hfi_names *names = &redis->names;
    if (!hfi_route_has_slots(redis->route))
        return HF_OK;
    bool braces =
        memchr(names->prefix, '{', names->prefix_len) != NULL || memchr(name, '{', len) != NULL;
    if (hfi_name_keeps_slot(names, name, len) && !(braces && kind == &hfi_thing_latch))
        return HF_OK;
    return hfi_fail(error, HF_EINVAL,
                    braces && kind == &hfi_thing_latch
                        ? "the name of a latch in a cluster must not have braces"
                        : "in a cluster, braces in a name must be a pair with something between");
}

static int check_name(struct hfi_engine *engine, const struct hfi_kind *kind, const char *name,
                      size_t len, hf_error *error) {
    len = hfi_kind_stem_len(kind, name, len);
    if (len == 0)
        return hfi_fail(error, HF_EINVAL, "the name of a lock must not be empty");
    size_t prefix_len = hfi_redis_of(engine)->names.prefix_len;
    if (len > HFI_NAME_MAX)
        return hfi_fail(error, HF_EINVAL, "the name of a lock is longer than %d bytes",
                        HFI_NAME_MAX);
    if (len + prefix_len > HFI_NAME_MAX)
        return hfi_fail(error, HF_EINVAL,
                        "the name of a lock, with name_prefix in front, is longer than %d bytes",
                        HFI_NAME_MAX);
    return check_slot(hfi_redis_of(engine), kind, name, len, error);
}

/* What a ticket can tell of has no lease; what has neither is attended to for as long as the client
 * lives. */
static int64_t settle_until_ms(struct hfi_engine *engine, const struct hfi_kind *kind,
                               int64_t lease_ms) {
    const struct hfi_redis *redis = hfi_redis_of(engine);
    const struct hfi_redis_kind *redis_kind = hfi_redis_kind_of(kind);
    int64_t lasts_ms = redis_kind->draws_tickets ? HFI_TICKET_MS : lease_ms;
    if (redis_kind->waiting != NULL && redis_kind->waiting->in_line) /* a place lasts, too */
        lasts_ms = hfi_max_ms(lasts_ms, redis->fair_horizon_ms);
    return hfi_after_ms(hfi_after_ms(hfi_now_ms(), lasts_ms), redis->cmd_timeout_ms);
}

static const void *node_of(struct hfi_engine *engine, const struct hfi_kind *kind, const char *name,
                           size_t name_len) {
    struct hfi_route *route = hfi_redis_of(engine)->route;
    return route->ops->node(route, name, hfi_kind_stem_len(kind, name, name_len));
}

/* ---- What the nodes tell ---- */

static int node_made(void *arg, struct hfi_node *node) {
    struct hfi_redis *redis = arg;
    struct hfi_learnt *learnt = hfi_node_learnt(node);
    int err = hfi_pubsub_new(redis->mem, redis->log, redis->keeper, hfi_node_listener(node),
                             &learnt->pubsub);
    if (err == HF_OK)
        err = hfi_answers_new(redis, node, &learnt->answers);
    return err == HF_OK ? hfi_rumours_new(redis, node, &learnt->rumours) : err;
}

static void node_stopping(void *arg, struct hfi_node *node) {
    struct hfi_learnt *learnt = hfi_node_learnt(node);
    (void)arg;
    hfi_rumours_stop(learnt->rumours);
    hfi_answers_stop(learnt->answers);
    hfi_pubsub_stop(learnt->pubsub);
}

static void node_freed(void *arg, struct hfi_node *node) {
    struct hfi_learnt *learnt = hfi_node_learnt(node);
    (void)arg;
    hfi_rumours_free(learnt->rumours);
    hfi_answers_free(learnt->answers);
    hfi_pubsub_free(learnt->pubsub);
}

/* That a slot is not its own any more is often the first that is heard of a failover. */
static void on_push(void *arg, struct hfi_node *node, const void *message) {
    struct hfi_route *route = ((struct hfi_redis *)arg)->route;
    if (hfi_pubsub_push(hfi_node_learnt(node)->pubsub, message))
        route->ops->refused(route, node);
}

static void on_pubsub_state(void *arg, struct hfi_node *node, bool up) {
    struct hfi_redis *redis = arg;
    const struct hfi_news *news = redis->news;
    hfi_pubsub_state(hfi_node_learnt(node)->pubsub, up);
    if (up && hfi_redis_is_another(redis, node) && news != NULL)
        news->doubted(news->arg, &(struct hfi_scope){.node = node});
}

/* Where a server can be replaced, it can also come back without what it had: that is a doubt. */
static void on_control_state(void *arg, struct hfi_node *node, bool up) {
    struct hfi_redis *redis = arg;
    const struct hfi_news *news = redis->news;
    bool *was_up = &hfi_node_learnt(node)->control_was_up;
    bool another = up && hfi_redis_is_another(redis, node);
    if (up && news != NULL && (*was_up || another)) {
        const struct hfi_scope scope = {.node = node};
        news->reconnected(news->arg, &scope);
        if (another || hfi_route_changes(redis->route))
            news->doubted(news->arg, &scope);
    }
    if (up)
        hfi_rumours_join(redis, node);
    *was_up = *was_up || up;
}

/* Another server serves everything from now on. What was held at the last one may not have reached it,
 * so all of it is asked about. */
static void on_change(void *arg, struct hfi_node *from, struct hfi_node *to) {
    struct hfi_redis *redis = arg;
    const struct hfi_news *news = redis->news;
    hfi_rumours_join(redis, to);
    hfi_hearings_look(redis);
    if (from == NULL)
        return;
    hfi_log(redis->log, HF_LOG_WARN,
            "the primary changed: %s instead of %s; all locks are verified", hfi_node_name(to),
            hfi_node_name(from));
    hfi_redis_compare_clocks(redis, from, to);
    atomic_fetch_add_explicit(redis->switches, 1, memory_order_relaxed);
    hfi_node_learnt(to)->took_over_ms = hfi_now_ms();
    if (news != NULL)
        news->doubted(news->arg, &(struct hfi_scope){.node = to});
}

/* Which holds are meant when slots have moved. */
struct in_slots {
    struct hfi_route *route;
    const struct hfi_slot_set *slots;
};

static bool is_in_slots(const void *arg, const struct hfi_kind *kind, const char *name,
                        size_t name_len) {
    const struct in_slots *in = arg;
    size_t len = hfi_kind_stem_len(kind, name, name_len);
    return hfi_slot_set_has(in->slots, in->route->ops->slot(in->route, name, len));
}

/* The same for a part of what is held. */
static void on_moved(void *arg, struct hfi_node *to, const struct hfi_slot_set *slots,
                     bool took_over) {
    struct hfi_redis *redis = arg;
    const struct hfi_news *news = redis->news;
    const struct in_slots in = {.route = redis->route, .slots = slots};
    hfi_rumours_join(redis, to);
    hfi_hearings_look(redis);
    if (took_over) {
        hfi_log(redis->log, HF_LOG_WARN,
                "another server of the cluster took over: %s; all locks there are verified",
                hfi_node_name(to));
        atomic_fetch_add_explicit(redis->switches, 1, memory_order_relaxed);
        hfi_node_learnt(to)->took_over_ms = hfi_now_ms();
    }
    if (news != NULL)
        news->doubted(news->arg,
                      &(struct hfi_scope){.node = to, .among = is_in_slots, .among_arg = &in});
}

static const struct hfi_node_hooks hooks = {
    .made = node_made,
    .stopping = node_stopping,
    .freed = node_freed,
    .push = on_push,
    .pubsub_state = on_pubsub_state,
    .control_state = on_control_state,
};

static void tell_news_to(struct hfi_engine *engine, const struct hfi_news *news) {
    hfi_redis_of(engine)->news = news;
}

void hfi_redis_watch_route(struct hfi_redis *redis) {
    struct hfi_route *route = redis->route;
    if (hfi_route_changes(route))
        route->ops->watch(route, redis->listens || !hfi_list_empty(&redis->hearings));
}

void hfi_redis_notify_failed(struct hfi_exchange *x) {
    atomic_fetch_add_explicit(x->redis->notify_failures, 1, memory_order_relaxed);
    if (!atomic_exchange(&hfi_node_learnt(x->node)->wake_ups_warned, true))
        hfi_log(x->redis->log, HF_LOG_WARN,
                "a lock was released, but this user may not publish on its channel: waiters will "
                "notice late");
}

bool hfi_redis_was_replaced(struct hfi_redis *redis, const char *name, size_t len,
                            bool *ret_control) {
    if (hfi_route_changes(redis->route))
        return false; /* that has other ways to find out */
    struct hfi_node *node = hfi_redis_aim(redis, name, len);
    bool replaced = node != NULL && hfi_node_was_replaced(node, ret_control);
    if (replaced) {
        hfi_log(redis->log, HF_LOG_WARN, "%s: the server is not there any more",
                hfi_node_name(node));
        hfi_rumours_changed(hfi_node_learnt(node)->rumours);
    }
    hfi_node_unref(node);
    return replaced;
}

/* ---- Life ---- */

static int make_route(struct hfi_redis *redis, const struct hfi_engine_config *config,
                      hf_error *error) {
    const struct hfi_node_config node = {
        .mem = config->mem,
        .log = config->log,
        .keeper = config->keeper,
        .dispatch = config->dispatch,
        .url = config->url,
        .client_name = config->client_name,
        .cmd_timeout_ms = config->cmd_timeout_ms,
        .ping_ms = config->ping_ms,
        .sleeps_at_once = config->sleeps_at_once,
        .map = config->map,
        .map_user = config->map_user,
        .commands = config->commands,
        .reconnects = config->reconnects,
        .hooks = &hooks,
        .arg = redis,
        .acks = &hfi_acks_seal,
    };
    if (config->url->kind == HFI_URL_SENTINEL)
        return hfi_sentinel_new(&node, on_change, redis, &redis->route, error);
    if (config->url->kind == HFI_URL_CLUSTER)
        return hfi_cluster_new(&node, redis->prefix,
                               &(struct hfi_cluster_hooks){.moved = on_moved, .arg = redis},
                               &redis->route, error);
    return hfi_single_new(&node, &redis->route, error);
}

static void free_half_built(struct hfi_redis *redis) {
    if (redis->route != NULL)
        redis->route->ops->free(redis->route);
    hfi_looks_free(redis->looks);
    hfi_free(redis->mem, redis->prefix);
    hfi_free(redis->mem, redis->client_name);
    hfi_free(redis->mem, redis);
}

static const struct hfi_engine_ops engine_ops;

int hfi_redis_new(const struct hfi_engine_config *config, struct hfi_engine **ret,
                  hf_error *error) {
    struct hfi_redis *redis = hfi_zalloc(config->mem, sizeof *redis);
    if (redis == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    redis->base.ops = &engine_ops;
    redis->mem = config->mem;
    redis->log = config->log;
    redis->keeper = config->keeper;
    redis->cmd_timeout_ms = config->cmd_timeout_ms;
    redis->connect_timeout_ms = config->connect_timeout_ms;
    redis->failover_timeout_ms = config->failover_timeout_ms;
    redis->renew_every_ms = config->watchdog_ms / 3;
    redis->skew_limit_ms = config->watchdog_ms / 10;
    redis->fair_confirm_ms = config->watchdog_ms;
    redis->fair_horizon_ms = 2 * config->watchdog_ms;
    redis->fair_wait_ms = config->fair_wait_ms;
    redis->db = config->url->db;
    redis->unknowns = config->unknowns;
    redis->notify_failures = config->notify_failures;
    redis->switches = config->switches;
    redis->redirects = config->redirects;
    redis->ack_failures = config->ack_failures;
    redis->ack_disk = config->ack_disk;
    redis->ack_timeout_ms = hfi_acks_timeout_ms(config);
    hfi_list_init(&redis->renewals);
    hfi_list_init(&redis->hearings);
    redis->answered_ms = -1000; /* long ago */

    int err = HF_ENOMEM;
    redis->prefix = hfi_strdup(redis->mem, config->name_prefix != NULL ? config->name_prefix : "");
    redis->client_name = hfi_strdup(redis->mem, config->client_name);
    if (redis->prefix == NULL || redis->client_name == NULL) {
        hfi_fail(error, err, "out of memory");
    } else {
        redis->names =
            (struct hfi_names){.prefix = redis->prefix, .prefix_len = strlen(redis->prefix)};
        err = make_route(redis, config, error);
        if (err == HF_OK && hfi_looks_new(redis, &redis->looks) != HF_OK)
            err = hfi_fail(error, HF_ENOMEM, "out of memory");
    }
    if (err != HF_OK) {
        free_half_built(redis);
        return err;
    }
    *ret = &redis->base;
    return HF_OK;
}

static void stop(struct hfi_engine *engine) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    if (atomic_exchange(&redis->stopped, true))
        return;
    hfi_hearings_stop(redis);
    redis->route->ops->stop(redis->route);
    hfi_renewals_stop(redis);
    hfi_looks_stop(redis->looks);
}

static void free_engine(struct hfi_engine *engine) {
    stop(engine);
    free_half_built(hfi_redis_of(engine));
}

static void close_fds(struct hfi_engine *engine) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    redis->route->ops->close_fds(redis->route);
}

static bool identity(struct hfi_engine *engine, struct hfi_server *ret) {
    struct hfi_route *route = hfi_redis_of(engine)->route;
    const struct hfi_node *node = route->ops->node(route, NULL, 0);
    return node != NULL && hfi_node_identity(node, ret);
}

/* ---- Manual dispatch ---- */

/* Connections are made at the first call; there is none without memory, or after stop. */

static void flush_node(struct hfi_node *node, void *arg) {
    struct hfi_conn *conn = hfi_node_pick(node, HFI_LANE_DISPATCH);
    (void)arg;
    if (conn != NULL)
        hfi_conn_flush(conn);
}

static void flush(struct hfi_engine *engine) {
    struct hfi_route *route = hfi_redis_of(engine)->route;
    route->ops->each(route, flush_node, NULL);
}

struct polled {
    struct pollfd *fds;
    size_t cap, len;
};

static void poll_node(struct hfi_node *node, void *arg) {
    struct polled *polled = arg;
    struct hfi_conn *conn = hfi_node_pick(node, HFI_LANE_DISPATCH);
    struct pollfd one = {.fd = -1};
    if (conn != NULL)
        one.fd = hfi_conn_dispatch_fd(conn, &one.events);
    if (one.fd < 0)
        return;
    if (polled->len < polled->cap)
        polled->fds[polled->len] = one;
    polled->len++;
}

static size_t poll_fds(struct hfi_engine *engine, struct pollfd *fds, size_t cap) {
    struct hfi_route *route = hfi_redis_of(engine)->route;
    struct polled polled = {.fds = fds, .cap = cap};
    route->ops->each(route, poll_node, &polled);
    return polled.len;
}

struct found {
    const struct pollfd *fds;
    size_t len;
};

static void service_node(struct hfi_node *node, void *arg) {
    const struct found *found = arg;
    struct hfi_conn *conn = hfi_node_pick(node, HFI_LANE_DISPATCH);
    short events;
    int fd = conn != NULL ? hfi_conn_dispatch_fd(conn, &events) : -1;
    for (size_t i = 0; fd >= 0 && i < found->len; i++)
        if (found->fds[i].fd == fd && found->fds[i].revents != 0)
            hfi_conn_service(conn, found->fds[i].revents);
}

static void service(struct hfi_engine *engine, const struct pollfd *fds, size_t len) {
    struct hfi_route *route = hfi_redis_of(engine)->route;
    struct found found = {.fds = fds, .len = len};
    route->ops->each(route, service_node, &found);
}

static void enlist_node(struct hfi_node *node, void *arg) {
    struct hfi_conn *conn = hfi_node_pick(node, HFI_LANE_DISPATCH);
    if (conn != NULL)
        hfi_conn_enlist(conn, *(const int *)arg);
}

static void enlist(struct hfi_engine *engine, int epoll_fd) {
    struct hfi_route *route = hfi_redis_of(engine)->route;
    route->ops->each(route, enlist_node, &epoll_fd);
}

/* ---- The tables ---- */

const struct hfi_call_ops hfi_redis_lock_ops = {
    .call_size = sizeof(struct hfi_call_state),
    .acquire = hfi_acquire,
    .release = hfi_release,
    .extend = hfi_extend,
    .adopt = hfi_adopt,
    .force = hfi_force,
    .ask = hfi_ask,
    .inspect = hfi_inspect,
    .facts = hfi_facts,
    .settle = hfi_settle,
    .step = hfi_call_step,
    .cancel = hfi_call_cancel,
    .park = hfi_park,
    .resume = hfi_resume,
    .unpark = hfi_unpark,
    .attend = hfi_call_attend,
};

const struct hfi_call_ops hfi_redis_thing_ops = {
    .call_size = sizeof(struct hfi_call_state),
    .acquire = hfi_acquire,
    .act = hfi_act,
    .settle = hfi_settle,
    .step = hfi_call_step,
    .cancel = hfi_call_cancel,
    .attend = hfi_call_attend,
};

static const struct hfi_engine_ops engine_ops = {
    .kind = find_kind,
    .group = find_group,
    .thing = find_thing,
    .server = find_server,
    .check_name = check_name,
    .check_acks = hfi_acks_check,
    .renew = hfi_renew,
    .settle_until_ms = settle_until_ms,
    .node_of = node_of,
    .tell_news_to = tell_news_to,
    .identity = identity,
    .listen = hfi_rumours_listen,
    .hear = hfi_hear,
    .unhear = hfi_unhear,
    .flush = flush,
    .poll = poll_fds,
    .service = service,
    .enlist = enlist,
    .stop = stop,
    .free = free_engine,
    .close_fds = close_fds,
};
