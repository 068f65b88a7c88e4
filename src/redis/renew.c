/*
 * Renewals: many holds in one script.
 *
 * Called by the watchdog of src/core on the keeper's thread, which owns everything here. A renewal
 * is a task of its own on the keeper; the holds whose kinds share a renewer go in one script, one
 * such batch after the other. One that fails costs the others nothing: a server may refuse one
 * script and take another, e.g. when it is full. An exchange is not repeated here: the core knows
 * the deadlines and tries again.
 *
 * A server of a cluster takes no script whose keys are in several slots. It says so the first time,
 * having done nothing; from then on a batch is the holds of one name.
 */
#include "base/clock.h"
#include "base/error.h"
#include "net/keeper.h"
#include "redis/internal.h"
#include "redis/kind.h"

#include <assert.h>
#include <string.h>

struct running {
    struct hfi_task task;
    struct hfi_link link; /* in redis->renewals */
    struct hfi_redis *redis;
    struct hfi_renewal *renewal; /* NULL: done */
    struct hfi_exchange exchange;
    const struct hfi_renewer *renewer; /* of the batch that is out */
    bool asked[HFI_RENEWAL_MAX];       /* in this batch or an earlier one */
    bool answered;                     /* some batch was */
    int failure;                       /* of the last one that was not */
    hf_error error; /* of the batch that is out; what it overcame is no failure */
    size_t batch_len;
    uint8_t batch[HFI_RENEWAL_MAX]; /* indices of items */
};

/* ---- The script of all locks that are one field of a hash ---- */

static void write_hash_renewal(const struct hfi_redis *redis,
                               const struct hfi_renewal_item *const *items, size_t len,
                               int64_t not_after_ms, struct hfi_command *command) {
    hfi_command_number(command, (int64_t)len);
    for (size_t i = 0; i < len; i++)
        hfi_name_key(&redis->names, items[i]->name, items[i]->name_len, command);
    hfi_command_number(command, not_after_ms);
    for (size_t i = 0; i < len; i++) {
        const char *suffix = hfi_redis_kind_of(items[i]->kind)->field_suffix;
        hfi_command_number(command, items[i]->lease_ms > 0 ? items[i]->lease_ms : 1);
        hfi_command_pair(command, items[i]->owner, items[i]->owner_len, suffix, strlen(suffix));
    }
}

const struct hfi_renewer hfi_renewer_hash = {
    .script = &hfi_script_renew,
    .write = write_hash_renewal,
};

/* ---- The task ---- */

static void destroy(struct hfi_task *task) {
    struct running *running = HFI_CONTAINER(task, struct running, task);
    hfi_free(running->redis->mem, running);
}

static void finish(struct running *running, int err) {
    struct hfi_renewal *renewal = running->renewal;
    hfi_exchange_end(&running->exchange);
    hfi_list_remove(&running->link);
    running->renewal = NULL;
    renewal->err = err;
    if (err != HF_OK)
        renewal->error.code = err;
    hfi_task_unref(&running->task);
    renewal->done(renewal);
}

static void write_batch(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    struct running *running = HFI_CONTAINER(x, struct running, exchange);
    const struct hfi_renewal_item *items[HFI_RENEWAL_MAX];
    for (size_t i = 0; i < running->batch_len; i++)
        items[i] = &running->renewal->items[running->batch[i]];
    running->renewer->write(running->redis, items, running->batch_len, not_after_ms, command);
}

static bool same_name(const struct hfi_renewal_item *a, const struct hfi_renewal_item *b) {
    return a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0;
}

/* Whether the hold can go with those that are in the batch. */
static bool fits_batch(const struct running *running, const struct hfi_renewal_item *item) {
    if (running->batch_len == 0)
        return true;
    return hfi_redis_kind_of(item->kind)->renewer == running->renewer &&
           (!running->redis->renews_by_name ||
            same_name(item, &running->renewal->items[running->batch[0]]));
}

/* Puts all holds that go with the next one into the batch. False: all have been asked about. */
static bool choose_batch(struct running *running) {
    const struct hfi_renewal *renewal = running->renewal;
    running->batch_len = 0;
    for (size_t i = 0; i < renewal->len; i++) {
        if (running->asked[i] || !fits_batch(running, &renewal->items[i]))
            continue;
        running->renewer = hfi_redis_kind_of(renewal->items[i].kind)->renewer;
        running->asked[i] = true;
        running->batch[running->batch_len++] = (uint8_t)i;
    }
    return running->batch_len > 0;
}

/* HF_OK, or HF_EPROTO without having touched anything. */
static int read_answers(struct running *running, const redisReply *reply) {
    if (reply->elements != running->batch_len + 1)
        return HF_EPROTO;
    for (size_t i = 0; i < running->batch_len; i++)
        if (reply->element[i]->integer < -1 || reply->element[i]->integer > 1)
            return HF_EPROTO;
    for (size_t i = 0; i < running->batch_len; i++) {
        struct hfi_renewal_item *item = &running->renewal->items[running->batch[i]];
        int answer = (int)reply->element[i]->integer;
        item->answer = answer == -1 ? HF_EWRONGTYPE : answer;
        item->proof =
            hfi_proof_of(running->redis, item->kind, running->exchange.sent_ms, item->lease_ms);
    }
    return HF_OK;
}

static void next_batch(struct running *running);

static void batch_failed(struct running *running, int err) {
    /* of one item that says something; of all of them it makes no sense */
    int answer = err == HF_EWRONGTYPE ? HF_EPROTO : err;
    for (size_t i = 0; i < running->batch_len; i++)
        running->renewal->items[running->batch[i]].answer = answer;
    running->failure = err;
    running->renewal->error = running->error;
    running->renewal->error.code = err;
}

/* Nothing has come back in the time that a renewal has. The next goes where somebody answers, if
 * this connection is dead. */
static void doubt_connection(struct running *running) {
    const struct hfi_exchange *x = &running->exchange;
    if (x->err == HF_EUNKNOWN && x->unanswered && x->conn != NULL &&
        !atomic_load(&running->redis->stopped))
        hfi_conn_suspect(x->conn, x->sent_ms);
}

/* The server did nothing because the names are in several slots: then they are asked about again,
 * each on its own. */
static bool split_batch(struct running *running) {
    static const char refusal[] = "CROSSSLOT ";
    const struct hfi_req *req = running->exchange.req;
    const struct hfi_renewal_item *items = running->renewal->items;
    const redisReply *reply = req != NULL ? req->reply : NULL;
    bool refused = reply != NULL && reply->type == REDIS_REPLY_ERROR &&
                   strncmp(reply->str, refusal, strlen(refusal)) == 0;
    bool several = false;
    for (size_t i = 1; i < running->batch_len; i++)
        several |= !same_name(&items[running->batch[i]], &items[running->batch[0]]);
    if (!refused || !several)
        return false;
    running->redis->renews_by_name = true;
    for (size_t i = 0; i < running->batch_len; i++)
        running->asked[running->batch[i]] = false;
    return true;
}

static void batch_ended(struct running *running) {
    const struct hfi_exchange *x = &running->exchange;
    if (x->err != HF_OK && split_batch(running)) {
        next_batch(running);
        return;
    }
    if (x->err != HF_OK) {
        doubt_connection(running);
        batch_failed(running, x->err);
    } else if (read_answers(running, hfi_exchange_reply(x)) != HF_OK)
        batch_failed(running,
                     hfi_fail(&running->error, HF_EPROTO, "a renewal was answered with nonsense"));
    else
        running->answered = true;
    next_batch(running);
}

static void next_batch(struct running *running) {
    if (!choose_batch(running)) {
        finish(running, running->answered ? HF_OK : running->failure);
        return;
    }
    struct hfi_exchange *x = &running->exchange;
    hfi_error_clear(&running->error);
    x->script = running->renewer->script;
    const struct hfi_renewal_item *first = &running->renewal->items[running->batch[0]];
    x->name = first->name;
    x->name_len = hfi_kind_stem_len(first->kind, first->name, first->name_len);
    if (hfi_exchange_begin(x) == HFI_FINISHED)
        batch_ended(running);
}

static void run(struct hfi_task *task, unsigned events) {
    struct running *running = HFI_CONTAINER(task, struct running, task);
    if (running->renewal != NULL && hfi_exchange_step(&running->exchange, events) == HFI_FINISHED)
        batch_ended(running);
}

/* Whoever renews wants the connection back as soon as it can be had, not when the next renewal
 * is due. */
static void keep_connected(struct hfi_redis *redis) {
    struct hfi_node *node = redis->route->ops->node(redis->route, NULL, 0);
    struct hfi_conn *control = hfi_node_pick(node, HFI_LANE_KEEPER);
    if (control != NULL)
        hfi_conn_keep_up(control, true);
}

/* What is held at a server that nobody finds any more does not keep anybody out. */
static bool is_gone_with_its_server(struct hfi_redis *redis, struct hfi_renewal *renewal) {
    bool control;
    if (!hfi_redis_was_replaced(redis, &control) || !control)
        return false; /* else what was held there is missed where the renewal goes */
    for (size_t i = 0; i < renewal->len; i++)
        renewal->items[i].answer = 0;
    renewal->err = HF_OK;
    renewal->gone = "its server was removed from its place, and others find another one there";
    renewal->done(renewal);
    return true;
}

void hfi_renew(struct hfi_engine *engine, struct hfi_renewal *renewal) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    assert(renewal->len <= HFI_RENEWAL_MAX);
    hfi_error_clear(&renewal->error);
    if (is_gone_with_its_server(redis, renewal))
        return;
    struct running *running = hfi_zalloc(redis->mem, sizeof *running);
    if (running == NULL) {
        renewal->err = hfi_fail(&renewal->error, HF_ENOMEM, "out of memory");
        renewal->done(renewal);
        return;
    }
    keep_connected(redis);
    hfi_task_init(&running->task, hfi_keeper_exec(redis->keeper), run, destroy);
    hfi_list_push_back(&redis->renewals, &running->link);
    running->redis = redis;
    running->renewal = renewal;
    renewal->engine_private = running;

    struct hfi_exchange *x = &running->exchange;
    x->redis = redis;
    x->task = &running->task;
    x->lane = HFI_LANE_KEEPER;
    x->retry = HFI_RETRY_NONE;
    x->write = write_batch;
    x->limit_ms = renewal->deadline_ms;
    x->reach_until_ms = renewal->deadline_ms;
    x->silence_ms = HFI_NEVER;
    x->limit_err = HF_EUNKNOWN;
    x->error = &running->error;
    next_batch(running);
}

void hfi_renewals_stop(struct hfi_redis *redis) {
    while (!hfi_list_empty(&redis->renewals)) {
        struct running *running = HFI_CONTAINER(redis->renewals.next, struct running, link);
        hfi_fail(&running->renewal->error, HF_ECLOSED, "the client is closed");
        finish(running, HF_ECLOSED);
    }
}
