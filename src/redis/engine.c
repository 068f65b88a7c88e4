/*
 * The Redis engine: its tables of operations, and its life cycle.
 *
 * Made by src/scheme; used by src/core and src/api through its tables. The engine joins a route
 * (connections), the pub/sub registries and the kinds. Calls and renewals in progress belong to
 * their tasks. `renewals` and the connections' events belong to the keeper's thread; the rest does
 * not change between new and stop.
 */
#include "redis/redis.h"

#include "base/clock.h"
#include "base/error.h"
#include "redis/fleet/announcements.h"
#include "redis/fleet/name_listener.h"
#include "redis/fleet/observe.h"
#include "redis/fleet/survey_responder.h"
#include "redis/kinds/kind.h"
#include "redis/ops/call.h"
#include "redis/ops/late_copies.h"
#include "redis/pubsub/track.h"
#include "redis/route/cluster/cluster.h"
#include "redis/route/sentinel/sentinel.h"
#include "redis/route/single.h"
#include "redis/wait/park.h"

#include <poll.h>
#include <string.h>

/* ---- Kinds and names ---- */

static const struct {
    hf_kind kind;
    unsigned flags;
    const struct hfi_kind *table;
} kinds[] = {
    {HF_PLAIN, 0, &hfi_kind_plain},
    {HF_PLAIN, HF_NONREENTRANT, &hfi_kind_nonreentrant},
    {HF_PLAIN, HF_SPIN, &hfi_kind_spin},
    {HF_PLAIN, HF_FENCED, &hfi_kind_fenced},
    {HF_FAIR, 0, &hfi_kind_fair},
    {HF_FAIR, HF_NONREENTRANT, &hfi_kind_fair_nonreentrant},
    {HF_READ, 0, &hfi_kind_read},
    {HF_WRITE, 0, &hfi_kind_write},
    {HF_STRING, 0, &hfi_kind_string},
    {HF_STRING, HF_NONREENTRANT, &hfi_kind_string_nonreentrant},
    {HF_STRING, HF_SPIN, &hfi_kind_string_spin},
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

static const struct hfi_kind *const objects[] = {
    [HFI_SEMAPHORE] = &hfi_object_semaphore,
    [HFI_PERMITS] = &hfi_object_permits,
    [HFI_LATCH] = &hfi_object_latch,
};

static const struct hfi_kind *find_object(struct hfi_engine *engine, enum hfi_object object) {
    (void)engine;
    size_t index = (size_t)object;
    return index < sizeof objects / sizeof objects[0] ? objects[index] : NULL;
}

static const struct hfi_kind *find_server(struct hfi_engine *engine) {
    static const struct hfi_call_ops ops = {
        .call_size = sizeof(struct hfi_call_state),
        .observes = HFI_OBSERVES_FLEET,
        .ask = hfi_ask,
        .step = hfi_call_step,
        .cancel = hfi_call_cancel,
        .drive = hfi_call_drive,
    };
    static const struct hfi_kind server = {.name = "server", .ops = &ops};
    (void)engine;
    return &server;
}

/* In a cluster, all keys and channels of a name must be in its slot. A latch's channel always has
 * braces around the name. */
static int check_slot(const struct hfi_redis *redis, const struct hfi_kind *kind, const char *name,
                      size_t len, hf_error *error) {
    const struct hfi_names *names = &redis->names;
    if (!hfi_route_has_slots(redis->route))
        return HF_OK;
    bool braces =
        memchr(names->prefix, '{', names->prefix_len) != NULL || memchr(name, '{', len) != NULL;
    if (hfi_name_keeps_slot(names, name, len) && !(braces && kind == &hfi_object_latch))
        return HF_OK;
    return hfi_fail(error, HF_EINVAL,
                    braces && kind == &hfi_object_latch
                        ? "in a cluster, the name of a latch must not contain braces"
                        : "in a cluster, braces in a name must be a pair with text between them");
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

/* An object with an idempotency key has no lease. Without either, settlement is retried for as long
 * as the client lives. */
static int64_t settle_until_ms(struct hfi_engine *engine, const struct hfi_kind *kind,
                               int64_t lease_ms) {
    const struct hfi_redis *redis = hfi_redis_of(engine);
    const struct hfi_redis_kind *redis_kind = hfi_redis_kind_of(kind);
    int64_t lasts_ms = redis_kind->draws_idempotency_key ? HFI_IDEMPOTENCY_MS : lease_ms;
    /* its place in the fair queue lasts, too */
    if (redis_kind->waiting != NULL && redis_kind->waiting->has_queue)
        lasts_ms = hfi_max_ms(lasts_ms, redis->fair_horizon_ms);
    return hfi_after_ms(hfi_after_ms(hfi_now_ms(), lasts_ms), redis->cmd_timeout_ms);
}

#define RELEASE_EXPIRED_AFTER_MS 500

static void release_expired(struct hfi_engine *engine, const struct hfi_kind *kind,
                            const char *name, size_t name_len, const char *owner, size_t owner_len,
                            const struct hfi_stamp *stamp, int64_t lease_ms) {
    (void)kind;
    /* most leases have ended at the server by then, too */
    int64_t first_ms = hfi_now_ms() + RELEASE_EXPIRED_AFTER_MS;
    const struct hfi_late_token token = {
        .stamp = stamp,
        .until_ms = hfi_max_ms(stamp->until_ms, first_ms),
        .lease_ms = lease_ms,
        .first_ms = first_ms,
    };
    hfi_late_copies_add(hfi_redis_of(engine), name, name_len, owner, owner_len, &token);
}

static const void *node_of(struct hfi_engine *engine, const struct hfi_kind *kind, const char *name,
                           size_t name_len) {
    struct hfi_route *route = hfi_redis_of(engine)->route;
    return route->ops->node(route, name, hfi_kind_stem_len(kind, name, name_len));
}

/* ---- Events of the nodes ---- */

static int node_made(void *arg, struct hfi_node *node) {
    struct hfi_redis *redis = arg;
    struct hfi_learnt *learnt = hfi_node_learnt(node);
    int err = hfi_pubsub_new(redis->mem, redis->log, redis->keeper, hfi_node_listener(node),
                             &learnt->pubsub);
    if (err == HF_OK)
        err = hfi_tracker_new(redis, node, &learnt->tracker);
    if (err == HF_OK)
        err = hfi_survey_responder_new(redis, node, &learnt->answers);
    return err == HF_OK ? hfi_break_channel_new(redis, node, &learnt->break_channel) : err;
}

static void node_stopping(void *arg, struct hfi_node *node) {
    struct hfi_learnt *learnt = hfi_node_learnt(node);
    (void)arg;
    hfi_break_channel_stop(learnt->break_channel);
    hfi_tracker_stop(learnt->tracker);
    hfi_survey_responder_stop(learnt->answers);
    hfi_pubsub_stop(learnt->pubsub);
}

static void node_freed(void *arg, struct hfi_node *node) {
    struct hfi_learnt *learnt = hfi_node_learnt(node);
    (void)arg;
    hfi_break_channel_free(learnt->break_channel);
    hfi_tracker_free(learnt->tracker);
    hfi_survey_responder_free(learnt->answers);
    hfi_pubsub_free(learnt->pubsub);
}

/* A moved slot is often the first sign of a failover. */
static void on_push(void *arg, struct hfi_node *node, const void *message) {
    struct hfi_route *route = ((struct hfi_redis *)arg)->route;
    struct hfi_learnt *learnt = hfi_node_learnt(node);
    if (!hfi_tracker_push(learnt->tracker, message) && hfi_pubsub_push(learnt->pubsub, message))
        route->ops->refused(route, node);
}

static void on_pubsub_state(void *arg, struct hfi_node *node, bool up) {
    struct hfi_redis *redis = arg;
    const struct hfi_engine_events *engine_events = redis->engine_events;
    hfi_tracker_state(hfi_node_learnt(node)->tracker, up);
    hfi_pubsub_state(hfi_node_learnt(node)->pubsub, up);
    if (up && hfi_redis_is_another(redis, node) && engine_events != NULL)
        engine_events->doubted(engine_events->arg, &(struct hfi_scope){.node = node});
}

/* A server is in use: subscribes there to what the engine subscribes to anywhere. */
static void join_channels(struct hfi_redis *redis, struct hfi_node *node) {
    hfi_break_channel_join(redis, node);
    hfi_survey_responder_wake(hfi_node_learnt(node)->answers);
}

/* Where a server can be replaced, it can also come back without its data: holds there are in
 * doubt. */
static void on_control_state(void *arg, struct hfi_node *node, bool up) {
    struct hfi_redis *redis = arg;
    const struct hfi_engine_events *engine_events = redis->engine_events;
    bool *was_up = &hfi_node_learnt(node)->control_was_up;
    bool another = up && hfi_redis_is_another(redis, node);
    if (up && engine_events != NULL && (*was_up || another)) {
        const struct hfi_scope scope = {.node = node};
        engine_events->reconnected(engine_events->arg, &scope);
        if (redis->base.tracks) /* the server forgets what this connection asked for */
            engine_events->untracked(engine_events->arg, &scope);
        if (another || hfi_route_changes(redis->route))
            engine_events->doubted(engine_events->arg, &scope);
    }
    if (up) {
        join_channels(redis, node);
        hfi_announcements_retry(redis);
    }
    *was_up = *was_up || up;
}

/* Another server is the primary now. Holds of the old one may not have been replicated to it, so
 * all of them are verified. */
static void on_change(void *arg, struct hfi_node *from, struct hfi_node *to) {
    struct hfi_redis *redis = arg;
    const struct hfi_engine_events *engine_events = redis->engine_events;
    join_channels(redis, to);
    hfi_name_listeners_check(redis);
    if (from == NULL)
        return;
    hfi_log(redis->log, HF_LOG_WARN, HFI_ABOUT(.server = hfi_node_name(to)),
            "the primary is now %s, and was %s; all holds are verified", hfi_node_name(to),
            hfi_node_name(from));
    hfi_redis_compare_clocks(redis, from, to);
    atomic_fetch_add_explicit(redis->failovers, 1, memory_order_relaxed);
    hfi_node_learnt(to)->took_over_ms = hfi_now_ms();
    if (engine_events != NULL)
        engine_events->doubted(engine_events->arg, &(struct hfi_scope){.node = to});
}

/* Selects the holds whose slots have moved. */
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

/* The same for the holds in some slots. */
static void on_moved(void *arg, struct hfi_node *to, const struct hfi_slot_set *slots,
                     bool took_over) {
    struct hfi_redis *redis = arg;
    const struct hfi_engine_events *engine_events = redis->engine_events;
    const struct in_slots in = {.route = redis->route, .slots = slots};
    join_channels(redis, to);
    hfi_name_listeners_check(redis);
    if (took_over) {
        hfi_log(redis->log, HF_LOG_WARN, HFI_ABOUT(.server = hfi_node_name(to)),
                "another server of the cluster took over: %s; all holds there are verified",
                hfi_node_name(to));
        atomic_fetch_add_explicit(redis->failovers, 1, memory_order_relaxed);
        hfi_node_learnt(to)->took_over_ms = hfi_now_ms();
    }
    if (engine_events != NULL)
        engine_events->doubted(
            engine_events->arg,
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

static void set_engine_events(struct hfi_engine *engine,
                              const struct hfi_engine_events *engine_events) {
    hfi_redis_of(engine)->engine_events = engine_events;
}

void hfi_redis_watch_route(struct hfi_redis *redis) {
    struct hfi_route *route = redis->route;
    if (hfi_route_changes(route))
        route->ops->watch(route, redis->listens || !hfi_list_empty(&redis->name_listeners));
}

void hfi_redis_notify_failed(struct hfi_exchange *x) {
    atomic_fetch_add_explicit(x->redis->notify_failures, 1, memory_order_relaxed);
    if (!atomic_exchange(&hfi_node_learnt(x->node)->wake_ups_warned, true))
        hfi_log(x->redis->log, HF_LOG_WARN,
                HFI_ABOUT(.code = HF_EPERM, .server = hfi_node_name(x->node), .name = x->name,
                          .name_len = x->name_len),
                "a lock was released, but this user may not publish on its channel: waiters "
                "notice late; allow the channel");
}

bool hfi_redis_was_replaced(struct hfi_redis *redis, const char *name, size_t len,
                            bool *ret_control) {
    if (hfi_route_changes(redis->route))
        return false; /* such a route notices by itself */
    struct hfi_node *node = hfi_redis_node_for(redis, name, len);
    bool replaced = node != NULL && hfi_node_was_replaced(node, ret_control);
    if (replaced) {
        hfi_log(redis->log, HF_LOG_WARN, HFI_ABOUT(.server = hfi_node_name(node)),
                "%s: the server was removed", hfi_node_name(node));
        hfi_break_channel_changed(hfi_node_learnt(node)->break_channel);
    }
    hfi_node_unref(node);
    return replaced;
}

/* ---- Life cycle ---- */

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
        .ping_interval_ms = config->ping_interval_ms,
        .sleeps_at_once = config->sleeps_at_once,
        .address_map = config->address_map,
        .address_map_user = config->address_map_user,
        .commands = config->commands,
        .reconnects = config->reconnects,
        .hooks = &hooks,
        .arg = redis,
        .acks = &hfi_acks_batch,
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
    hfi_poll_batch_free(redis->poll_batch);
    hfi_late_copies_free(redis->late_copies);
    hfi_announcements_free(redis->mem, redis->announcements);
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
    redis->clock_drift_ppm = config->clock_drift_ppm;
    redis->renew_every_ms = hfi_trusted_ms(config->watchdog_ms, config->clock_drift_ppm) / 3;
    redis->watchdog_ms = config->watchdog_ms;
    redis->skew_limit_ms = config->watchdog_ms / 10;
    redis->fair_confirm_ms = config->watchdog_ms;
    redis->fair_horizon_ms = 2 * config->watchdog_ms;
    redis->fair_wait_ms = config->fair_wait_ms;
    redis->db = config->url->db;
    redis->in_doubt = config->in_doubt;
    redis->notify_failures = config->notify_failures;
    redis->failovers = config->failovers;
    redis->redirects = config->redirects;
    redis->ack_failures = config->ack_failures;
    redis->track_events = config->track_events;
    redis->base.tracks = config->tracks;
    redis->ack_disk = config->ack_disk;
    redis->confirms = config->sentinel_confirm;
    redis->ack_timeout_ms = hfi_acks_timeout_ms(config);
    hfi_list_init(&redis->renewals);
    hfi_list_init(&redis->name_listeners);
    redis->key_changed = hfi_name_listeners_changed;
    redis->answered_ms = -1000; /* long ago */

    int err = HF_ENOMEM;
    redis->prefix = hfi_strdup(redis->mem, config->name_prefix != NULL ? config->name_prefix : "");
    redis->client_name = hfi_strdup(redis->mem, config->client_name);
    if (redis->prefix == NULL || redis->client_name == NULL) {
        hfi_fail(error, err, "out of memory");
    } else {
        redis->names =
            (struct hfi_names){.prefix = redis->prefix, .prefix_len = strlen(redis->prefix)};
        redis->announcements = hfi_announcements_new(redis->mem);
        err = make_route(redis, config, error);
        redis->late_copies = hfi_late_copies_new(redis);
        if (err == HF_OK && (redis->late_copies == NULL || redis->announcements == NULL ||
                             hfi_poll_batch_new(redis, &redis->poll_batch) != HF_OK))
            err = hfi_fail(error, HF_ENOMEM, "out of memory");
    }
    if (err != HF_OK) {
        free_half_built(redis);
        return err;
    }
    *ret = &redis->base;
    return HF_OK;
}

static void stop_answering(struct hfi_node *node, void *arg) {
    (void)arg;
    hfi_survey_responder_stop(hfi_node_learnt(node)->answers);
}

/* On the keeper's thread, or after it has ended. The exchanges of survey responders and of late
 * copies end here, so that they drop their wants while their connections still exist. All other
 * exchanges outlive the connections, which complete their requests. */
static void stop(struct hfi_engine *engine) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    if (atomic_load(&redis->stopped))
        return;
    redis->route->ops->each(redis->route, stop_answering, NULL);
    hfi_late_copies_stop(redis->late_copies);
    atomic_store(&redis->stopped, true);
    hfi_name_listeners_stop(redis);
    redis->route->ops->stop(redis->route);
    hfi_renewals_stop(redis);
    hfi_poll_batch_stop(redis->poll_batch);
}

static void free_engine(struct hfi_engine *engine) {
    stop(engine);
    free_half_built(hfi_redis_of(engine));
}

static void close_fds(struct hfi_engine *engine) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    redis->route->ops->close_fds(redis->route);
}

/* ---- Manual dispatch ---- */

/* A node's dispatch connection is made at the first call; there is none without memory, or after
 * stop. */

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
            hfi_conn_on_ready(conn, found->fds[i].revents);
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
    .observes = HFI_OBSERVES_LOCK | HFI_OBSERVES_SERVER,
    .acquire = hfi_acquire,
    .release = hfi_release,
    .extend = hfi_extend,
    .set_lease = hfi_set_lease,
    .adopt = hfi_adopt,
    .break_holds = hfi_break,
    .ask = hfi_ask,
    .settle = hfi_settle,
    .step = hfi_call_step,
    .cancel = hfi_call_cancel,
    .park = hfi_park,
    .resume = hfi_resume,
    .unpark = hfi_unpark,
    .drive = hfi_call_drive,
};

const struct hfi_call_ops hfi_redis_object_ops = {
    .call_size = sizeof(struct hfi_call_state),
    .acquire = hfi_acquire,
    .object_op = hfi_object_op,
    .settle = hfi_settle,
    .step = hfi_call_step,
    .cancel = hfi_call_cancel,
    .drive = hfi_call_drive,
};

static const struct hfi_engine_ops engine_ops = {
    .kind = find_kind,
    .group = find_group,
    .object = find_object,
    .server = find_server,
    .check_name = check_name,
    .check_acks = hfi_acks_check,
    .renew = hfi_renew,
    .settle_until_ms = settle_until_ms,
    .release_expired = release_expired,
    .node_of = node_of,
    .set_engine_events = set_engine_events,
    .observe = &hfi_redis_observe,
    .flush = flush,
    .poll = poll_fds,
    .service = service,
    .enlist = enlist,
    .stop = stop,
    .free = free_engine,
    .close_fds = close_fds,
};
