/*
 * The route of one server.
 *
 * Made by the engine for redis://, valkey://, unix:// and local: urls. It has one node for as long
 * as it lives, so there is nothing to look up and nothing to lock.
 */
#include "redis/route/single.h"

#include "base/error.h"

struct single {
    struct hfi_route base;
    const struct hfi_mem *mem;
    struct hfi_node *node;
};

static struct single *single_of(struct hfi_route *route) {
    return HFI_CONTAINER(route, struct single, base);
}

static struct hfi_node *single_aim(struct hfi_route *route, const char *key, size_t len) {
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
    .aim = single_aim,
    .node = single_node,
    .each = single_each,
    .stop = single_stop,
    .free = single_free,
    .close_fds = single_close_fds,
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
