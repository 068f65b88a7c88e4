/*
 * What to do after an error reply. NOSCRIPT: fall back to EVAL with the script's body. MOVED, ASK:
 * follow the redirect. LOADING, READONLY and others (errors.c): retry later.
 *
 * Called by exchange.c on the thread of the exchange's task; no state of its own. A command refused
 * here has not run, so it is resent without waiting for `not-after`, even if it must run only once.
 * After five immediate retries in a row it backs off, since servers may redirect in a circle.
 *
 * The exceptions are scripts with undeclared keys. While a slot migrates, those keys may already be
 * on the other server. Such a script does not follow ASK, but waits until the slot has moved. One
 * that found a key missing may have run in part.
 */
#include "redis/exchange/env.h"
#include "redis/exchange/exchange.h"

#include "base/error.h"

#include <string.h>

#define TURNS_MAX 5

static enum hfi_retry_when at_once(struct hfi_exchange *x) {
    if (++x->turns < TURNS_MAX)
        return HFI_RETRY_AT_ONCE;
    hfi_node_unref(x->ask_at);
    x->ask_at = NULL;
    return HFI_RETRY_LATER;
}

/* A redis:// url means one server: its redirects are not followed. */
static enum hfi_retry_when no_cluster_wanted(struct hfi_exchange *x, int *ret_err) {
    hfi_error_clear(x->error);
    *ret_err =
        hfi_fail(x->error, HF_ENOTSUP, "this server belongs to a cluster: use redis-cluster://");
    return HFI_RETRY_NEVER;
}

static enum hfi_retry_when redirected(struct hfi_exchange *x, const struct hfi_redirect *redirect) {
    struct hfi_route *route = x->redis->route;
    atomic_fetch_add_explicit(x->redis->redirects, 1, memory_order_relaxed);
    if (redirect->ask && x->undeclared_keys && x->script != NULL) {
        if (!atomic_exchange(&hfi_node_learnt(x->node)->moving_logged, true))
            hfi_log(x->redis->log, HF_LOG_WARN, HFI_ABOUT(.server = hfi_node_name(x->node)),
                    "slot %u is being moved from %s to another server: its read/write locks wait, "
                    "and holds are lost if that outlasts their lease",
                    redirect->slot, hfi_node_name(x->node));
        return HFI_RETRY_LATER;
    }
    struct hfi_redirects redirects = route->ops->redirected(route, x->node, redirect);
    if (redirects.turn == HFI_TURN_LATER)
        return HFI_RETRY_LATER;
    hfi_node_unref(x->ask_at);
    x->ask_at = redirects.node;
    return at_once(x);
}

/* The script was stopped at an unknown place, and may have changed something. */
static bool stopped_half_way(const struct hfi_exchange *x, const struct hfi_reply *reply) {
    static const char text[] = "non local key";
    return x->script != NULL && !x->asks && hfi_route_has_slots(x->redis->route) &&
           memmem(reply->str, reply->len, text, strlen(text)) != NULL;
}

static enum hfi_retry_when later(const struct hfi_exchange *x, enum hfi_remedy remedy) {
    return hfi_exchange_is_transient(x, remedy) ? HFI_RETRY_LATER : HFI_RETRY_NEVER;
}

static bool is_down(const struct hfi_reply *reply) {
    return strncmp(reply->str, "CLUSTERDOWN", 11) == 0;
}

/* Has the route check for a better node: after READONLY, and in a cluster also after LOADING (it
 * may have restarted and lost its role) or CLUSTERDOWN. */
static void doubt_node(struct hfi_exchange *x, const struct hfi_reply *reply,
                       enum hfi_remedy remedy) {
    struct hfi_route *route = x->redis->route;
    if (remedy == HFI_REMEDY_ELSEWHERE ||
        (hfi_route_has_slots(route) && (remedy == HFI_REMEDY_WAIT || is_down(reply))))
        route->ops->refused(route, x->node);
}

/* By default a whole cluster stops when a part of it fails. With a single address, say that it is a
 * replica's. */
static void add_advice(struct hfi_exchange *x, const struct hfi_reply *reply,
                       enum hfi_remedy remedy) {
    static const char coverage[] = " (with cluster-require-full-coverage no, the other slots "
                                   "stay available)";
    static const char replica[] = " (this is a replica, not the primary)";
    struct hfi_route *route = x->redis->route;
    if (is_down(reply) && hfi_route_has_slots(route))
        hfi_error_quote(x->error, coverage, strlen(coverage));
    if (remedy == HFI_REMEDY_ELSEWHERE && !hfi_route_changes(route))
        hfi_error_quote(x->error, replica, strlen(replica));
}

enum hfi_retry_when hfi_exchange_on_error(struct hfi_exchange *x, const struct hfi_reply *reply,
                                          int *ret_err) {
    enum hfi_remedy remedy;
    struct hfi_redirect redirect;
    bool sent_away = hfi_redirect_read(reply, &redirect);
    if (sent_away && !hfi_route_has_slots(x->redis->route))
        return no_cluster_wanted(x, ret_err);
    *ret_err = hfi_error_of_reply(reply, x->error, &remedy);
    if (remedy == HFI_REMEDY_SEND_BODY && x->script != NULL && !x->send_body) {
        x->send_body = true;
        if (x->asking)
            x->ask_at = hfi_node_ref(x->node);
        return HFI_RETRY_AT_ONCE;
    }
    enum hfi_retry_when help = HFI_RETRY_NEVER;
    if (sent_away)
        help = redirected(x, &redirect);
    if (help == HFI_RETRY_AT_ONCE)
        return help;
    hfi_exchange_stalled(x, HF_EUNAVAILABLE);
    if (stopped_half_way(x, reply)) {
        x->unanswered = x->resent = true;
        help = HFI_RETRY_LATER;
    } else if (!sent_away) {
        add_advice(x, reply, remedy);
        doubt_node(x, reply, remedy);
        help = later(x, remedy);
    }
    x->turns = 0;
    return x->retry != HFI_RETRY_NONE ? help : HFI_RETRY_NEVER;
}

bool hfi_exchange_was_left(const struct hfi_exchange *x) {
    struct hfi_route *route = x->redis->route;
    const struct hfi_reply *reply = x->req->reply;
    if (hfi_node_is_retired(x->node))
        return true;
    /* An error reply is true from any node. A reply behind ASKING does not match the slot map. A
     * command that runs once has run there, and moved along with the slot if anything did. */
    return hfi_route_has_slots(route) && x->name != NULL && !x->asking && !x->once &&
           reply->type != HFI_REPLY_ERROR &&
           route->ops->node(route, x->name, x->name_len) != x->node;
}

static const char *advice_for(int err) {
    if (err == HF_EUNREACH)
        return " (if that address is not reachable from here, use the option map)";
    return err == HF_ETLS ? " (make the servers announce host names, or set tls_server_name)" : "";
}

/* A server that never replied may not be the one that the slot map means. */
void hfi_exchange_advise(struct hfi_exchange *x) {
    if (x->node == NULL || !hfi_route_has_slots(x->redis->route) ||
        hfi_node_last_answer_ms(x->node) != 0)
        return;
    const char *advice = advice_for(x->error->code);
    hfi_error_quote(x->error, advice, strlen(advice));
}
