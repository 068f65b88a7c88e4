/*
 * What helps when a server refuses a command: sending the script itself, waiting, or going elsewhere.
 *
 * Called by exchange.c on the thread of the exchange's task; no state of its own. Nothing that is refused
 * here has run, so it is sent again without waiting for anything, however often it may be sent; but five
 * times in a row at most, and then there is a pause, since servers may send us in a circle.
 *
 * The exceptions are scripts that use keys which they cannot declare. While a slot moves from one server to
 * another, those keys may be at the other one: such a script is not sent after a lock that has moved already,
 * but waits until all of it has; and one that found a key missing may have run in part.
 */
#include "redis/exchange.h"
#include "redis/internal.h"

#include "base/error.h"

#include <string.h>

#define TURNS_MAX 5

static enum hfi_help at_once(struct hfi_exchange *x) {
    if (++x->turns < TURNS_MAX)
        return HFI_HELP_AT_ONCE;
    hfi_node_unref(x->ask_at);
    x->ask_at = NULL;
    return HFI_HELP_LATER;
}

/* The connections of whoever wrote redis:// lead to one server. */
static enum hfi_help no_cluster_wanted(struct hfi_exchange *x, int *ret_err) {
    hfi_error_clear(x->error);
    *ret_err = hfi_fail(x->error, HF_ENOTSUP,
                        "this server is one of a cluster: write redis-cluster:// for it");
    return HFI_HELP_NONE;
}

static enum hfi_help redirected(struct hfi_exchange *x, const struct hfi_redirect *redirect) {
    struct hfi_route *route = x->redis->route;
    atomic_fetch_add_explicit(x->redis->redirects, 1, memory_order_relaxed);
    if (redirect->ask && x->undeclared_keys && x->script != NULL) {
        if (!atomic_exchange(&hfi_node_learnt(x->node)->moving_told, true))
            hfi_log(
                x->redis->log, HF_LOG_WARN,
                "slot %u moves from %s to another server: read/write locks there wait, and if it "
                "lasts longer than their lease, holds are lost",
                redirect->slot, hfi_node_name(x->node));
        return HFI_HELP_LATER;
    }
    struct hfi_detour detour = route->ops->redirected(route, x->node, redirect);
    if (detour.turn == HFI_TURN_LATER)
        return HFI_HELP_LATER;
    hfi_node_unref(x->ask_at);
    x->ask_at = detour.node;
    return at_once(x);
}

/* It was stopped where it is not known, having perhaps changed something. */
static bool stopped_half_way(const struct hfi_exchange *x, const redisReply *reply) {
    static const char words[] = "non local key";
    return x->script != NULL && !x->asks && hfi_route_has_slots(x->redis->route) &&
           memmem(reply->str, reply->len, words, strlen(words)) != NULL;
}

static enum hfi_help later(const struct hfi_exchange *x, enum hfi_remedy remedy) {
    return hfi_exchange_may_pass(x, remedy) ? HFI_HELP_LATER : HFI_HELP_NONE;
}

static bool is_down(const redisReply *reply) {
    return strncmp(reply->str, "CLUSTERDOWN", 11) == 0;
}

/* Somebody else may be the one to ask by now; in a cluster also if this one has just started, and may have
 * lost its place, or if a part of it has failed. */
static void look_around(struct hfi_exchange *x, const redisReply *reply, enum hfi_remedy remedy) {
    struct hfi_route *route = x->redis->route;
    if (remedy == HFI_REMEDY_ELSEWHERE ||
        (hfi_route_has_slots(route) && (remedy == HFI_REMEDY_WAIT || is_down(reply))))
        route->ops->refused(route, x->node);
}

/* By default all of a cluster stops when a part of it has. And whoever has given one address should learn what is wrong
 * with it. */
static void add_advice(struct hfi_exchange *x, const redisReply *reply, enum hfi_remedy remedy) {
    static const char coverage[] = " (with cluster-require-full-coverage no, what is left goes on)";
    static const char replica[] = " (this is a replica's address, and not the primary's)";
    struct hfi_route *route = x->redis->route;
    if (is_down(reply) && hfi_route_has_slots(route))
        hfi_error_quote(x->error, coverage, strlen(coverage));
    if (remedy == HFI_REMEDY_ELSEWHERE && !hfi_route_changes(route))
        hfi_error_quote(x->error, replica, strlen(replica));
}

enum hfi_help hfi_exchange_detour(struct hfi_exchange *x, const redisReply *reply, int *ret_err) {
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
        return HFI_HELP_AT_ONCE;
    }
    enum hfi_help help = HFI_HELP_NONE;
    if (sent_away)
        help = redirected(x, &redirect);
    if (help == HFI_HELP_AT_ONCE)
        return help;
    hfi_exchange_held_up(x, HF_EREFUSED);
    if (stopped_half_way(x, reply)) {
        x->unanswered = x->resent = true;
        help = HFI_HELP_LATER;
    } else if (!sent_away) {
        add_advice(x, reply, remedy);
        look_around(x, reply, remedy);
        help = later(x, remedy);
    }
    x->turns = 0;
    return x->retry != HFI_RETRY_NONE ? help : HFI_HELP_NONE;
}

bool hfi_exchange_was_left(const struct hfi_exchange *x) {
    struct hfi_route *route = x->redis->route;
    const redisReply *reply = x->req->reply;
    if (hfi_node_is_retired(x->node))
        return true;
    /* A refusal is true whoever says it, what was asked behind ASKING is not in the map, and what runs once
     * has done so there, and went along with the slot if anything has. */
    return hfi_route_has_slots(route) && x->name != NULL && !x->asking && !x->once &&
           reply->type != REDIS_REPLY_ERROR &&
           route->ops->node(route, x->name, x->name_len) != x->node;
}

static const char *advice_for(int err) {
    if (err == HF_EUNREACH)
        return " (if that address is good elsewhere only, there is the option map)";
    return err == HF_ETLS ? " (let servers announce host names, or give tls_server_name)" : "";
}

/* Whoever never said anything may not be whom the map means. */
void hfi_exchange_advise(struct hfi_exchange *x) {
    if (x->node == NULL || !hfi_route_has_slots(x->redis->route) ||
        hfi_node_last_answer_ms(x->node) != 0)
        return;
    const char *advice = advice_for(x->error->code);
    hfi_error_quote(x->error, advice, strlen(advice));
}
