/*
 * The route of one server.
 *
 * Made by the engine for redis://, valkey://, unix:// and local: urls. It has one node for as long
 * as it lives, so there is nothing to look up and nothing to lock.
 *
 * Another server may come to be behind its address, by a load balancer or by DNS. A server that
 * says it is a replica was demoted, or is not promoted yet. Then the route closes its connections,
 * and new ones check ROLE first.
 */
#include "redis/route/single.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/jitter.h"

#define SETTLED_MS 3000 /* after this long without a refusal, the back-off starts over */

static const struct hfi_backoff distance = {.first_ms = 100, .max_ms = 1000, .factor = 2};

struct single {
    struct hfi_route base;
    const struct hfi_mem *mem;
    struct hfi_node *node;
    /* Any thread. */
    _Atomic int64_t leave_at_ms; /* not before this again */
    atomic_uint left;            /* how often in a row */
};

static struct single *single_of(struct hfi_route *route) {
    return HFI_CONTAINER(route, struct single, base);
}

static struct hfi_node *single_node_for(struct hfi_route *route, const char *key, size_t len) {
    (void)key;
    (void)len;
    return hfi_node_ref(single_of(route)->node);
}

static const struct hfi_node *single_node(struct hfi_route *route, const char *key, size_t len) {
    (void)key;
    (void)len;
    return single_of(route)->node;
}

static void single_each(struct hfi_route *route, void (*visit)(struct hfi_node *node, void *arg),
                        void *arg) {
    visit(single_of(route)->node, arg);
}

/* When many callers are refused at once, one of them closes the connections. */
static bool may_leave(struct single *single) {
    int64_t now_ms = hfi_now_ms(), at_ms = atomic_load(&single->leave_at_ms);
    if (now_ms < at_ms)
        return false;
    unsigned left = now_ms - at_ms < SETTLED_MS ? atomic_load(&single->left) : 0;
    int64_t next_ms = now_ms + hfi_backoff_spread_ms(&distance, left, hfi_jitter_bits(single));
    if (!atomic_compare_exchange_strong(&single->leave_at_ms, &at_ms, next_ms))
        return false;
    atomic_store(&single->left, left + 1);
    return true;
}

static void single_refused(struct hfi_route *route, struct hfi_node *node) {
    if (!hfi_node_may_change(node) || !may_leave(single_of(route)))
        return;
    struct hfi_conn *control = hfi_node_pick(node, HFI_LANE_KEEPER);
    hfi_node_insist_on_primary(node);
    atomic_store(&hfi_node_learnt(node)->was_replica, true);
    if (control != NULL)
        hfi_conn_keep_up(control, true); /* holds are verified when it is up */
    hfi_node_hang_up(node);
}

static void single_stop(struct hfi_route *route) {
    hfi_node_stop(single_of(route)->node);
}

static void single_free(struct hfi_route *route) {
    struct single *single = single_of(route);
    hfi_node_stop(single->node);
    hfi_node_unref(single->node);
    hfi_free(single->mem, single);
}

static void single_close_fds(struct hfi_route *route) {
    hfi_node_close_fds(single_of(route)->node);
}

static const struct hfi_route_ops single_ops = {
    .node_for = single_node_for,
    .node = single_node,
    .each = single_each,
    .stop = single_stop,
    .free = single_free,
    .close_fds = single_close_fds,
    .refused = single_refused,
};

int hfi_single_new(const struct hfi_node_config *config, struct hfi_route **ret, hf_error *error) {
    struct single *single = hfi_zalloc(config->mem, sizeof *single);
    if (single == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    single->base.ops = &single_ops;
    single->mem = config->mem;
    int err = hfi_node_new(config, &single->node, error);
    if (err != HF_OK) {
        hfi_free(single->mem, single);
        return err;
    }
    *ret = &single->base;
    return HF_OK;
}
