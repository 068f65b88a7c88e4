/*
 * Renewals: many holds in one script.
 *
 * Called by the watchdog of src/core on the keeper's thread, which owns everything here. A renewal
 * is for the holds of one node. It is sent in parts: the holds whose kinds share a renewer go in one
 * script. Each part is a task of its own on the keeper, and all of them begin at once, so none waits
 * for another. One that fails costs the others nothing: a server may refuse one script and take
 * another, e.g. when it is full. An exchange is not repeated here: the core knows the deadlines and
 * tries again.
 *
 * A server of a cluster takes no script whose keys are in several slots. It says so the first time,
 * having done nothing; from then on a part is the holds of one name.
 */
#include "base/clock.h"
#include "base/error.h"
#include "net/keeper.h"
#include "redis/internal.h"
#include "redis/kind.h"

#include <assert.h>
#include <string.h>

struct running {
    struct hfi_link link; /* in redis->renewals */
    struct hfi_redis *redis;
    struct hfi_renewal *renewal;
    struct hfi_node *node; /* with a reference */
    struct hfi_link parts; /* under way */
    bool asked[HFI_RENEWAL_MAX];
    bool choosing; /* parts are being made, so it is not done yet */
    bool answered; /* some part was */
    int failure;   /* of the last one that was not */
};

struct part {
    struct hfi_task task; /* freed when its last reference goes */
    struct hfi_link link;
    struct running *running; /* NULL: done */
    const struct hfi_mem *mem;
    struct hfi_exchange exchange;
    const struct hfi_renewer *renewer;
    hf_error error; /* of this part; what it overcame is no failure */
    size_t len;
    uint8_t items[HFI_RENEWAL_MAX]; /* indices in the renewal */
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

/* ---- The end ---- */

static void finish(struct running *running, int err) {
    struct hfi_renewal *renewal = running->renewal;
    assert(hfi_list_empty(&running->parts));
    hfi_list_remove(&running->link);
    hfi_node_unref(running->node);
    hfi_free(running->redis->mem, running);
    renewal->err = err;
    if (err != HF_OK)
        renewal->error.code = err;
    renewal->done(renewal);
}

static void finish_if_done(struct running *running) {
    if (!running->choosing && hfi_list_empty(&running->parts))
        finish(running, running->answered ? HF_OK : running->failure);
}

static void end_part(struct part *part) {
    hfi_exchange_end(&part->exchange);
    hfi_list_remove(&part->link);
    part->running = NULL;
    hfi_task_unref(&part->task);
}

static void destroy_part(struct hfi_task *task) {
    struct part *part = HFI_CONTAINER(task, struct part, task);
    hfi_free(part->mem, part);
}

/* ---- A part ---- */

static struct hfi_renewal_item *item_of(const struct part *part, size_t i) {
    return &part->running->renewal->items[part->items[i]];
}

static void write_part(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    struct part *part = HFI_CONTAINER(x, struct part, exchange);
    const struct hfi_renewal_item *items[HFI_RENEWAL_MAX];
    for (size_t i = 0; i < part->len; i++)
        items[i] = item_of(part, i);
    part->renewer->write(x->redis, items, part->len, not_after_ms, command);
}

/* HF_OK, or HF_EPROTO without having touched anything. */
static int read_answers(struct part *part, const redisReply *reply) {
    if (reply->elements != part->len + 1)
        return HF_EPROTO;
    for (size_t i = 0; i < part->len; i++)
        if (reply->element[i]->integer < -1 || reply->element[i]->integer > 1)
            return HF_EPROTO;
    for (size_t i = 0; i < part->len; i++) {
        struct hfi_renewal_item *item = item_of(part, i);
        int answer = (int)reply->element[i]->integer;
        item->answer = answer == -1 ? HF_EWRONGTYPE : answer;
        item->proof =
            hfi_proof_of(part->exchange.redis, item->kind, part->exchange.sent_ms, item->lease_ms);
    }
    return HF_OK;
}

static void part_failed(struct part *part, int err) {
    struct running *running = part->running;
    /* of one item that says something; of all of them it makes no sense */
    int answer = err == HF_EWRONGTYPE ? HF_EPROTO : err;
    for (size_t i = 0; i < part->len; i++)
        item_of(part, i)->answer = answer;
    running->failure = err;
    running->renewal->error = part->error;
    running->renewal->error.code = err;
}

/* Nothing has come back in the time that a renewal has. The next goes where somebody answers, if
 * this connection is dead. */
static void doubt_connection(const struct part *part) {
    const struct hfi_exchange *x = &part->exchange;
    if (x->err == HF_EUNKNOWN && x->unanswered && x->conn != NULL &&
        !atomic_load(&x->redis->stopped))
        hfi_conn_suspect(x->conn, x->sent_ms);
}

static bool same_name(const struct hfi_renewal_item *a, const struct hfi_renewal_item *b) {
    return a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0;
}

/* The server did nothing because the names are in several slots: then they are asked about again,
 * each on its own. */
static bool must_split(const struct part *part) {
    static const char refusal[] = "CROSSSLOT ";
    const struct hfi_req *req = part->exchange.req;
    if (part->exchange.err == HF_OK || req == NULL || req->reply == NULL)
        return false;
    const redisReply *reply = req->reply;
    if (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, refusal, strlen(refusal)) != 0)
        return false;
    for (size_t i = 1; i < part->len; i++)
        if (!same_name(item_of(part, i), item_of(part, 0)))
            return true;
    return false;
}

static void send_parts(struct running *running);

static void split_part(struct part *part) {
    struct running *running = part->running;
    hfi_node_learnt(running->node)->in_slots = true;
    for (size_t i = 0; i < part->len; i++)
        running->asked[part->items[i]] = false;
    end_part(part);
    send_parts(running);
}

static void part_ended(struct part *part) {
    struct running *running = part->running;
    const struct hfi_exchange *x = &part->exchange;
    if (must_split(part)) {
        split_part(part);
        return;
    }
    if (x->err != HF_OK) {
        doubt_connection(part);
        part_failed(part, x->err);
    } else if (read_answers(part, hfi_exchange_reply(x)) != HF_OK) {
        part_failed(part,
                    hfi_fail(&part->error, HF_EPROTO, "a renewal was answered with nonsense"));
    } else {
        running->answered = true;
    }
    end_part(part);
    finish_if_done(running);
}

static void run_part(struct hfi_task *task, unsigned events) {
    struct part *part = HFI_CONTAINER(task, struct part, task);
    if (part->running != NULL && hfi_exchange_step(&part->exchange, events) == HFI_FINISHED)
        part_ended(part);
}

static void start_part(struct part *part) {
    const struct running *running = part->running;
    const struct hfi_renewal *renewal = running->renewal;
    struct hfi_exchange *x = &part->exchange;
    x->redis = running->redis;
    x->task = &part->task;
    x->lane = HFI_LANE_KEEPER;
    x->retry = HFI_RETRY_NONE;
    x->script = part->renewer->script;
    x->name = item_of(part, 0)->name;
    x->name_len = item_of(part, 0)->name_len;
    x->write = write_part;
    x->limit_ms = renewal->deadline_ms;
    x->reach_until_ms = renewal->deadline_ms;
    x->silence_ms = HFI_NEVER;
    x->limit_err = HF_EUNKNOWN;
    x->error = &part->error;
    if (hfi_exchange_begin(x) == HFI_FINISHED)
        part_ended(part);
}

/* ---- Into parts ---- */

/* Whether a hold can go with those that are in the part. */
static bool fits(const struct part *part, const struct hfi_renewal_item *item) {
    return hfi_redis_kind_of(item->kind)->renewer == part->renewer &&
           (!hfi_node_learnt(part->running->node)->in_slots || same_name(item, item_of(part, 0)));
}

static void take(struct part *part, size_t i) {
    part->running->asked[i] = true;
    part->items[part->len++] = (uint8_t)i;
}

/* A part of all holds that go with the one at `first`. NULL: no memory. */
static struct part *make_part(struct running *running, size_t first) {
    const struct hfi_renewal *renewal = running->renewal;
    struct part *part = hfi_zalloc(running->redis->mem, sizeof *part);
    if (part == NULL)
        return NULL;
    hfi_task_init(&part->task, hfi_keeper_exec(running->redis->keeper), run_part, destroy_part);
    hfi_list_push_back(&running->parts, &part->link);
    part->running = running;
    part->mem = running->redis->mem;
    part->renewer = hfi_redis_kind_of(renewal->items[first].kind)->renewer;
    take(part, first);
    for (size_t i = first + 1; i < renewal->len; i++)
        if (!running->asked[i] && fits(part, &renewal->items[i]))
            take(part, i);
    return part;
}

/* Sends whatever was not asked about yet. */
static void send_parts(struct running *running) {
    struct hfi_renewal *renewal = running->renewal;
    running->choosing = true;
    for (size_t i = 0; i < renewal->len; i++) {
        if (running->asked[i])
            continue;
        struct part *part = make_part(running, i);
        if (part != NULL) {
            start_part(part);
            continue;
        }
        running->asked[i] = true;
        renewal->items[i].answer = running->failure =
            hfi_fail(&renewal->error, HF_ENOMEM, "out of memory");
    }
    running->choosing = false;
    finish_if_done(running);
}

/* ---- The renewal ---- */

/* Whoever renews wants the connection back as soon as it can be had, not when the next renewal
 * is due. */
static void keep_connected(struct hfi_node *node) {
    struct hfi_conn *control = hfi_node_pick(node, HFI_LANE_KEEPER);
    if (control != NULL)
        hfi_conn_keep_up(control, true);
}

/* What is held at a server that nobody finds any more does not keep anybody out. */
static bool is_gone_with_its_server(struct hfi_redis *redis, struct hfi_renewal *renewal) {
    bool control;
    const struct hfi_renewal_item *any = &renewal->items[0];
    if (!hfi_redis_was_replaced(redis, any->name, any->name_len, &control) || !control)
        return false; /* else what was held there is missed where the renewal goes */
    for (size_t i = 0; i < renewal->len; i++)
        renewal->items[i].answer = 0;
    renewal->err = HF_OK;
    renewal->gone = "its server was removed from its place, and others find another one there";
    renewal->done(renewal);
    return true;
}

static void fail(struct hfi_renewal *renewal, int err, const char *words) {
    renewal->err = hfi_fail(&renewal->error, err, "%s", words);
    renewal->done(renewal);
}

void hfi_renew(struct hfi_engine *engine, struct hfi_renewal *renewal) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    const struct hfi_renewal_item *any = &renewal->items[0];
    assert(renewal->len > 0 && renewal->len <= HFI_RENEWAL_MAX);
    hfi_error_clear(&renewal->error);
    if (is_gone_with_its_server(redis, renewal))
        return;
    struct hfi_node *node = hfi_redis_aim(redis, any->name, any->name_len);
    if (node == NULL) {
        fail(renewal, HF_EUNREACH, "no server is known for this");
        return;
    }
    struct running *running = hfi_zalloc(redis->mem, sizeof *running);
    if (running == NULL) {
        hfi_node_unref(node);
        fail(renewal, HF_ENOMEM, "out of memory");
        return;
    }
    keep_connected(node);
    running->redis = redis;
    running->renewal = renewal;
    running->node = node;
    hfi_list_init(&running->parts);
    hfi_list_push_back(&redis->renewals, &running->link);
    send_parts(running);
}

void hfi_renewals_stop(struct hfi_redis *redis) {
    while (!hfi_list_empty(&redis->renewals)) {
        struct running *running = HFI_CONTAINER(redis->renewals.next, struct running, link);
        while (!hfi_list_empty(&running->parts))
            end_part(HFI_CONTAINER(running->parts.next, struct part, link));
        hfi_fail(&running->renewal->error, HF_ECLOSED, "the client is closed");
        finish(running, HF_ECLOSED);
    }
}
