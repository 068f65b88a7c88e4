/*
 * Renewals: many holds in one script.
 *
 * Called by the watchdog of src/core on the keeper's thread, which owns everything here. A renewal
 * is for the holds of one node. It is sent in parcels: the holds whose kinds share a renewer go in
 * one script. Each parcel is a task of its own on the keeper, and all of them begin at once, so none
 * waits for another. One that fails costs the others nothing: a server may refuse one script and
 * take another, e.g. when it is full. An exchange is not repeated here: the core knows the deadlines
 * and tries again.
 *
 * A server of a cluster takes no script whose keys are in several slots. Where the route knows slots, a
 * parcel is the holds of one. Else the server says so the first time, having done nothing; from then on a
 * parcel is the holds of one name. That is also what is done with a parcel of several names when some of them
 * are on the move to another server.
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
    struct hfi_node *node;   /* with a reference */
    struct hfi_link parcels; /* under way */
    bool asked[HFI_RENEWAL_MAX];
    bool alone[HFI_RENEWAL_MAX]; /* not in one parcel with other names */
    uint16_t slots[HFI_RENEWAL_MAX];
    bool choosing; /* parcels are being made, so it is not done yet */
    bool answered; /* some parcel was */
    int failure;   /* of the last one that was not */
};

struct parcel {
    struct hfi_task task; /* freed when its last reference goes */
    struct hfi_link link;
    struct running *running; /* NULL: done */
    const struct hfi_mem *mem;
    struct hfi_exchange exchange;
    const struct hfi_renewer *renewer;
    hf_error error; /* of this parcel; what it overcame is no failure */
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
    assert(hfi_list_empty(&running->parcels));
    hfi_list_remove(&running->link);
    hfi_node_unref(running->node);
    hfi_free(running->redis->mem, running);
    renewal->err = err;
    if (err != HF_OK)
        renewal->error.code = err;
    renewal->done(renewal);
}

static void finish_if_done(struct running *running) {
    if (!running->choosing && hfi_list_empty(&running->parcels))
        finish(running, running->answered ? HF_OK : running->failure);
}

static void end_parcel(struct parcel *parcel) {
    hfi_exchange_end(&parcel->exchange);
    hfi_list_remove(&parcel->link);
    parcel->running = NULL;
    hfi_task_unref(&parcel->task);
}

static void destroy_parcel(struct hfi_task *task) {
    struct parcel *parcel = HFI_CONTAINER(task, struct parcel, task);
    hfi_free(parcel->mem, parcel);
}

/* ---- A parcel ---- */

static struct hfi_renewal_item *item_of(const struct parcel *parcel, size_t i) {
    return &parcel->running->renewal->items[parcel->items[i]];
}

static void write_parcel(struct hfi_exchange *x, int64_t not_after_ms,
                         struct hfi_command *command) {
    struct parcel *parcel = HFI_CONTAINER(x, struct parcel, exchange);
    const struct hfi_renewal_item *items[HFI_RENEWAL_MAX];
    for (size_t i = 0; i < parcel->len; i++)
        items[i] = item_of(parcel, i);
    parcel->renewer->write(x->redis, items, parcel->len, not_after_ms, command);
}

/* What is missing at a server that took over for another was missing from the beginning, unless some time
 * has passed since. */
static bool has_just_taken_over(const struct parcel *parcel) {
    const struct hfi_exchange *x = &parcel->exchange;
    int64_t since_ms = hfi_node_learnt(x->node)->took_over_ms;
    return since_ms != 0 && x->sent_ms - since_ms < x->redis->renew_every_ms;
}

/* HF_OK, or HF_EPROTO without having touched anything. */
static int read_answers(struct parcel *parcel, const redisReply *reply) {
    if (reply->elements != parcel->len + 1)
        return HF_EPROTO;
    for (size_t i = 0; i < parcel->len; i++)
        if (reply->element[i]->integer < -1 || reply->element[i]->integer > 1)
            return HF_EPROTO;
    for (size_t i = 0; i < parcel->len; i++) {
        struct hfi_renewal_item *item = item_of(parcel, i);
        int answer = (int)reply->element[i]->integer;
        item->answer = answer == -1 ? HF_EWRONGTYPE : answer;
        if (answer == 0 && has_just_taken_over(parcel))
            parcel->running->renewal->gone =
                "the primary changed, and the new one does not have it";
        item->proof = hfi_proof_of(parcel->exchange.redis, item->kind, parcel->exchange.sent_ms,
                                   item->lease_ms);
    }
    return HF_OK;
}

/* The server has them, but too few others: what is proved stays what it was. */
static void not_confirmed(struct parcel *parcel) {
    struct running *running = parcel->running;
    for (size_t i = 0; i < parcel->len; i++)
        if (item_of(parcel, i)->answer == 1)
            item_of(parcel, i)->answer = HF_ENOREPLICA;
    running->failure = hfi_acks_fail(&parcel->exchange, &running->renewal->error);
}

static void parcel_failed(struct parcel *parcel, int err) {
    struct running *running = parcel->running;
    /* of one item that says something; of all of them it makes no sense */
    int answer = err == HF_EWRONGTYPE ? HF_EPROTO : err;
    for (size_t i = 0; i < parcel->len; i++)
        item_of(parcel, i)->answer = answer;
    running->failure = err;
    running->renewal->error = parcel->error;
    running->renewal->error.code = err;
}

/* Nothing has come back in the time that a renewal has. The next goes where somebody answers, if
 * this connection is dead. */
static void doubt_connection(const struct parcel *parcel) {
    const struct hfi_exchange *x = &parcel->exchange;
    if (x->err == HF_EUNKNOWN && x->unanswered && x->conn != NULL &&
        !atomic_load(&x->redis->stopped))
        hfi_conn_suspect(x->conn, x->sent_ms);
}

/* What others know both by is the same, and so is their slot. */
static bool same_name(const struct hfi_renewal_item *a, const struct hfi_renewal_item *b) {
    size_t a_len = hfi_kind_stem_len(a->kind, a->name, a->name_len);
    size_t b_len = hfi_kind_stem_len(b->kind, b->name, b->name_len);
    return a_len == b_len && memcmp(a->name, b->name, a_len) == 0;
}

/* Its words, up to the first space. */
static bool starts_with(const redisReply *reply, const char *word) {
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, word, strlen(word)) == 0;
}

/* The server did nothing because the names are in several slots, or some of them are elsewhere for the
 * moment: then they are asked about again, each on its own. */
static bool must_split(const struct parcel *parcel) {
    const struct hfi_req *req = parcel->exchange.req;
    if (parcel->exchange.err == HF_OK || req == NULL || req->reply == NULL)
        return false;
    if (!starts_with(req->reply, "CROSSSLOT ") && !starts_with(req->reply, "TRYAGAIN "))
        return false;
    for (size_t i = 1; i < parcel->len; i++)
        if (!same_name(item_of(parcel, i), item_of(parcel, 0)))
            return true;
    return false;
}

static void send_parcels(struct running *running);

static void split_parcel(struct parcel *parcel) {
    struct running *running = parcel->running;
    if (starts_with(parcel->exchange.req->reply, "CROSSSLOT "))
        hfi_node_learnt(running->node)->in_slots = true;
    for (size_t i = 0; i < parcel->len; i++) {
        running->asked[parcel->items[i]] = false;
        running->alone[parcel->items[i]] = true;
    }
    end_parcel(parcel);
    send_parcels(running);
}

static void parcel_ended(struct parcel *parcel) {
    struct running *running = parcel->running;
    const struct hfi_exchange *x = &parcel->exchange;
    if (must_split(parcel)) {
        split_parcel(parcel);
        return;
    }
    if (x->err != HF_OK) {
        doubt_connection(parcel);
        parcel_failed(parcel, x->err);
    } else if (read_answers(parcel, hfi_exchange_reply(x)) != HF_OK) {
        parcel_failed(parcel,
                      hfi_fail(&parcel->error, HF_EPROTO, "a renewal was answered with nonsense"));
    } else {
        running->answered = true;
        if (!hfi_acks_suffice(x))
            not_confirmed(parcel);
    }
    end_parcel(parcel);
    finish_if_done(running);
}

static void run_parcel(struct hfi_task *task, unsigned events) {
    struct parcel *parcel = HFI_CONTAINER(task, struct parcel, task);
    if (parcel->running != NULL && hfi_exchange_step(&parcel->exchange, events) == HFI_FINISHED)
        parcel_ended(parcel);
}

/* One that is only asked about gets nothing that others would have to confirm. */
static int acks_of(const struct hfi_renewal_item *item) {
    return item->lease_ms > 1 ? item->acks : 0;
}

static void start_parcel(struct parcel *parcel) {
    const struct running *running = parcel->running;
    const struct hfi_renewal *renewal = running->renewal;
    struct hfi_exchange *x = &parcel->exchange;
    x->redis = running->redis;
    x->task = &parcel->task;
    x->lane = HFI_LANE_KEEPER;
    x->retry = HFI_RETRY_NONE;
    x->script = parcel->renewer->script;
    const struct hfi_renewal_item *first = item_of(parcel, 0);
    x->name = first->name;
    x->name_len = hfi_kind_stem_len(first->kind, first->name, first->name_len);
    x->write = write_parcel;
    x->undeclared_keys = parcel->renewer->undeclared_keys;
    x->acks.asked = acks_of(first);
    x->acks.needs_them = hfi_acks_of_many;
    x->limit_ms = renewal->deadline_ms;
    x->reach_until_ms = renewal->deadline_ms;
    x->silence_ms = HFI_NEVER;
    x->limit_err = HF_EUNKNOWN;
    x->error = &parcel->error;
    if (hfi_exchange_begin(x) == HFI_FINISHED)
        parcel_ended(parcel);
}

/* ---- Into parcels ---- */

/* Whether a hold can go with those that are in the parcel. */
static bool fits(const struct parcel *parcel, size_t i) {
    const struct running *running = parcel->running;
    const struct hfi_renewal_item *item = &running->renewal->items[i];
    if (hfi_redis_kind_of(item->kind)->renewer != parcel->renewer ||
        acks_of(item) != acks_of(item_of(parcel, 0)) ||
        running->slots[i] != running->slots[parcel->items[0]])
        return false;
    bool alone = running->alone[i] || hfi_node_learnt(running->node)->in_slots;
    return !alone || same_name(item, item_of(parcel, 0));
}

/* Without slots, all are in the same. */
static void find_slots(struct running *running) {
    struct hfi_route *route = running->redis->route;
    const struct hfi_renewal *renewal = running->renewal;
    for (size_t i = 0; hfi_route_has_slots(route) && i < renewal->len; i++) {
        const struct hfi_renewal_item *item = &renewal->items[i];
        size_t len = hfi_kind_stem_len(item->kind, item->name, item->name_len);
        running->slots[i] = (uint16_t)route->ops->slot(route, item->name, len);
    }
}

static void take(struct parcel *parcel, size_t i) {
    parcel->running->asked[i] = true;
    parcel->items[parcel->len++] = (uint8_t)i;
}

/* A parcel of all holds that go with the one at `first`. NULL: no memory. */
static struct parcel *make_parcel(struct running *running, size_t first) {
    const struct hfi_renewal *renewal = running->renewal;
    struct parcel *parcel = hfi_zalloc(running->redis->mem, sizeof *parcel);
    if (parcel == NULL)
        return NULL;
    hfi_task_init(&parcel->task, hfi_keeper_exec(running->redis->keeper), run_parcel,
                  destroy_parcel);
    hfi_list_push_back(&running->parcels, &parcel->link);
    parcel->running = running;
    parcel->mem = running->redis->mem;
    parcel->renewer = hfi_redis_kind_of(renewal->items[first].kind)->renewer;
    take(parcel, first);
    for (size_t i = first + 1; i < renewal->len; i++)
        if (!running->asked[i] && fits(parcel, i))
            take(parcel, i);
    return parcel;
}

/* Sends whatever was not asked about yet. */
static void send_parcels(struct running *running) {
    struct hfi_renewal *renewal = running->renewal;
    running->choosing = true;
    for (size_t i = 0; i < renewal->len; i++) {
        if (running->asked[i])
            continue;
        struct parcel *parcel = make_parcel(running, i);
        if (parcel != NULL) {
            start_parcel(parcel);
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
    struct hfi_node *node =
        hfi_redis_aim(redis, any->name, hfi_kind_stem_len(any->kind, any->name, any->name_len));
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
    hfi_list_init(&running->parcels);
    hfi_list_push_back(&redis->renewals, &running->link);
    find_slots(running);
    send_parcels(running);
}

void hfi_renewals_stop(struct hfi_redis *redis) {
    while (!hfi_list_empty(&redis->renewals)) {
        struct running *running = HFI_CONTAINER(redis->renewals.next, struct running, link);
        while (!hfi_list_empty(&running->parcels))
            end_parcel(HFI_CONTAINER(running->parcels.next, struct parcel, link));
        hfi_fail(&running->renewal->error, HF_ECLOSED, "the client is closed");
        finish(running, HF_ECLOSED);
    }
}
