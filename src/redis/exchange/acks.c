/*
 * Acks of replicas for a write: WAIT and WAITAOF.
 *
 * Called by exchange.c on the thread of an exchange's task, and by a node's ack connection for its
 * ack batches (net/conn/ack_batch.c), under that connection's mutex. No state of its own.
 *
 * WAIT counts acks for writes of its own connection, so it follows the script there, in the same
 * write. Scripts submitted while a WAIT is in flight share the next one. If the connection is lost
 * in between, a WAIT on another connection would not cover the write, so the script is resent. A
 * script writes even if it finds its work done, so the new WAIT covers that write.
 */
#include "base/clock.h"
#include "base/error.h"
#include "engine/config.h"
#include "redis/exchange/env.h"
#include "redis/exchange/exchange.h"
#include "redis/wire/script_reply.h"

#include <stdio.h>
#include <string.h>

/* ---- The engine ---- */

int hfi_acks_check(struct hfi_engine *engine, int acks, hf_error *error) {
    struct hfi_route *route = hfi_redis_of(engine)->route;
    if (acks < 0 && route->ops->replicas != NULL)
        route->ops->replicas(route, NULL);
    if (acks != HF_ACKS_ALL || route->ops->replicas != NULL)
        return HF_OK;
    return hfi_fail(error, HF_EINVAL,
                    "acks=all needs Sentinel or a cluster, which know how many replicas are up; "
                    "give a number instead");
}

/* A script submitted while a WAIT is in flight waits for that WAIT and then for its own. Both must
 * end before an exchange, or a renewal, times out. */
int64_t hfi_acks_timeout_ms(const struct hfi_engine_config *config) {
    int64_t exchange_ms = hfi_min_ms(config->cmd_timeout_ms, config->watchdog_ms / 3);
    return hfi_max_ms(hfi_min_ms(config->ack_timeout_ms, exchange_ms / 3), 1);
}

/* ---- WAIT ---- */

static size_t write_wait(void *arg, unsigned want, char *to) {
    const struct hfi_redis *redis = arg;
    char many[16], ms[24];
    int many_len = snprintf(many, sizeof many, "%u", want);
    int ms_len = snprintf(ms, sizeof ms, "%lld", (long long)redis->ack_timeout_ms);
    const char *head =
        redis->ack_disk ? "*4\r\n$7\r\nWAITAOF\r\n$1\r\n1\r\n" : "*3\r\n$4\r\nWAIT\r\n";
    return (size_t)snprintf(to, HFI_ACK_BATCH_MAX, "%s$%d\r\n%s\r\n$%d\r\n%s\r\n", head, many_len,
                            many, ms_len, ms);
}

static bool is_about(const struct hfi_reply *reply, const char *text) {
    return memmem(reply->str, reply->len, text, strlen(text)) != NULL;
}

/* A server demoted to replica replies UNBLOCKED: no acks. */
static int64_t read_refusal(const struct hfi_reply *reply, hf_error *error) {
    enum hfi_remedy remedy;
    int err = hfi_error_of_reply(reply, error, &remedy);
    if (err == HF_EPERM)
        return err;
    if (is_about(reply, "unknown command") || is_about(reply, "appendonly"))
        return hfi_fail(error, HF_ENOTSUP,
                        "ack_disk needs Redis 7.2 or Valkey, and `appendonly yes` there");
    return 0;
}

static int64_t read_wait(void *arg, const void *message, hf_error *error) {
    const struct hfi_reply *reply = message;
    (void)arg;
    if (reply->type == HFI_REPLY_ERROR)
        return read_refusal(reply, error);
    if (reply->type == HFI_REPLY_INTEGER)
        return reply->integer > 0 ? reply->integer : 0;
    bool both = reply->type == HFI_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[0]->type == HFI_REPLY_INTEGER &&
                reply->element[1]->type == HFI_REPLY_INTEGER;
    return both && reply->element[0]->integer > 0 && reply->element[1]->integer > 0
               ? reply->element[1]->integer
               : 0;
}

const struct hfi_ack_batch_ops hfi_acks_batch = {.write = write_wait, .read = read_wait};

/* ---- Replies with a write to confirm ---- */

static bool is_one(const struct hfi_reply *reply, size_t i) {
    return reply->element[i]->type == HFI_REPLY_INTEGER && reply->element[i]->integer == 1;
}

bool hfi_acks_of_one(const void *message) {
    const struct hfi_reply *reply = message;
    return hfi_is_done(reply) ||
           (reply->type == HFI_REPLY_ARRAY && reply->elements > 1 && is_one(reply, 0));
}

bool hfi_acks_of_many(const void *message) {
    const struct hfi_reply *reply = message;
    if (reply->type != HFI_REPLY_ARRAY)
        return false;
    for (size_t i = 0; i + 1 < reply->elements; i++)
        if (is_one(reply, i))
            return true;
    return false;
}

/* ---- An exchange ---- */

/* INFO's replica count is not used: a primary that has lost its replicas would then need none. */
static unsigned replicas_up(struct hfi_exchange *x) {
    struct hfi_route *route = x->redis->route;
    unsigned up = route->ops->replicas != NULL ? route->ops->replicas(route, x->node) : 0;
    return up > 0 ? up : 1;
}

struct hfi_conn *hfi_acks_pick(struct hfi_exchange *x) {
    x->acks.want = x->acks.asked > 0 ? (unsigned)x->acks.asked : replicas_up(x);
    x->acks.got = 0;
    return hfi_node_acks(x->node);
}

int hfi_acks_submit(struct hfi_exchange *x, struct hfi_conn *conn,
                    const struct hfi_command *command, unsigned fronts) {
    const struct hfi_ack_request ack_request = {
        .want = x->acks.want, .needs_acks = x->acks.needs_them, .fronts = fronts};
    return hfi_conn_submit_acked(conn, command->bytes, command->len, x->task, x->reply_event,
                                 x->lane == HFI_LANE_CALLER ? &x->sync_caller : NULL, &ack_request,
                                 &x->req);
}

static bool only_reports(const struct hfi_exchange *x) {
    return x->acks.asked == HF_ACKS_REPORT;
}

/* The connection was lost with the script's reply received, but not the WAIT's. */
static enum hfi_acks_verdict lost_batch(struct hfi_exchange *x, int *err) {
    if (only_reports(x)) {
        *err = HF_OK;
        return HFI_ACKS_FINE;
    }
    x->unanswered = x->resent = true; /* it may be ours there, whatever the next copy says */
    return x->retry == HFI_RETRY_NONE || x->once ? HFI_ACKS_FINE : HFI_ACKS_AGAIN;
}

enum hfi_acks_verdict hfi_acks_note(struct hfi_exchange *x, int *err) {
    const struct hfi_req *req = x->req;
    if (req->err == HF_EUNREACH && req->unsent && x->retry != HFI_RETRY_NONE)
        return HFI_ACKS_AGAIN;
    if (req->err == HF_EUNREACH && req->reply != NULL && !hfi_exchange_was_left(x))
        return lost_batch(x, err);
    if (*err != HF_OK || !x->acks.needs_them(req->reply))
        return HFI_ACKS_FINE;
    if (req->acked_requests < 0 && !only_reports(x)) {
        *err = (int)req->acked_requests;
        return HFI_ACKS_REFUSED;
    }
    x->acks.got = req->acked_requests > 0 ? req->acked_requests : 0;
    if (x->acks.got >= (int64_t)x->acks.want)
        return HFI_ACKS_FINE;
    atomic_fetch_add_explicit(x->redis->ack_failures, 1, memory_order_relaxed);
    if (x->redis->route->ops->too_few != NULL)
        x->redis->route->ops->too_few(x->redis->route);
    return HFI_ACKS_FINE;
}

bool hfi_acks_suffice(const struct hfi_exchange *x) {
    return !hfi_exchange_is_acked(x) || only_reports(x) || x->acks.got >= (int64_t)x->acks.want;
}

int hfi_acks_fail(const struct hfi_exchange *x, hf_error *error) {
    hfi_error_clear(error);
    hfi_fail(error, HF_ENOREPLICA, "%lld of %u replicas confirmed it within %lld ms",
             (long long)x->acks.got, x->acks.want, (long long)x->redis->ack_timeout_ms);
    if (x->node != NULL) /* it may be unknown just now */
        snprintf(error->node, sizeof error->node, "%s", hfi_node_name(x->node));
    return HF_ENOREPLICA;
}
