/*
 * Renewals: many holds in one script.
 *
 * Called by the watchdog of src/core on the keeper's thread, which owns everything here. A renewal
 * is for the holds of one node. Holds whose kinds share a renewer go into one script. Each script
 * is a task of its own on the keeper, and all of them start at once, so none waits for another. If
 * one fails, the others go on: a server may refuse one script and take another, e.g. when it is out
 * of memory. An exchange is not retried here: the core knows the deadlines and tries again.
 *
 * A server refuses a script as a whole, even if only one of its keys is the reason. The user may
 * have lost the right to it, or its slot is being migrated. So after a refusal each of the script's
 * holds is retried in a script of its own, unless the server refuses everything for the moment.
 *
 * A cluster node refuses a script whose keys are in several slots. If the route knows slots, a
 * script has the holds of one slot. Else the node answers CROSSSLOT the first time, having done
 * nothing; from then on a script has the holds of one name.
 *
 * If sentinels are to confirm the primary, they are asked after the last reply, and without a
 * majority of them none of the renewals counts. An earlier confirmation would not cover the time of
 * the renewal. They are asked about the server that answered first: a later one is another primary.
 */
#include "base/clock.h"
#include "base/error.h"
#include "net/driver/keeper.h"
#include "redis/kinds/lease_validity.h"
#include "redis/ops/call.h"
#include "redis/pubsub/track.h"
#include "redis/wire/errors.h"

#include <assert.h>
#include <string.h>

struct renewal_run {
    struct hfi_task task; /* freed with its last reference */
    struct hfi_link link; /* in redis->renewals */
    const struct hfi_mem *mem;
    struct hfi_redis *redis;
    struct hfi_renewal *renewal;   /* NULL: done */
    struct hfi_node *node;         /* with a reference */
    struct hfi_link renew_scripts; /* in flight */
    bool asked[HFI_RENEWAL_MAX];
    bool alone[HFI_RENEWAL_MAX]; /* needs a script of its own */
    uint16_t slots[HFI_RENEWAL_MAX];
    bool choosing; /* scripts are being made, so it is not done yet */
    /* the server that has answered the first script, with a reference; NULL: none was answered */
    struct hfi_node *answered_by;
    int failure; /* of the last script that failed */

    bool confirming; /* sentinels were asked to confirm the primary */
    struct hfi_want confirm;
    struct hfi_alarm alarm; /* the deadline for their confirmation */
};

struct renew_script {
    struct hfi_task task; /* freed with its last reference */
    struct hfi_link link;
    struct renewal_run *renewal_run; /* NULL: done */
    const struct hfi_mem *mem;
    struct hfi_exchange exchange;
    const struct hfi_renewer *renewer;
    int64_t track_target; /* where its holds' changes are to be reported; 0: nowhere */
    hf_error error;       /* of this script; if a retry succeeds, it is not reported */
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

void hfi_renewer_hash_write_probe(const struct hfi_redis *redis,
                                  const struct hfi_renewal_item *item,
                                  struct hfi_command *command) {
    const char *suffix = hfi_redis_kind_of(item->kind)->field_suffix;
    hfi_command_text(command, "HEXISTS");
    hfi_name_key(&redis->names, item->name, item->name_len, command);
    hfi_command_pair(command, item->owner, item->owner_len, suffix, strlen(suffix));
}

bool hfi_renewer_hash_is_there(const struct hfi_renewal_item *item, const struct hfi_reply *reply) {
    (void)item;
    return reply->type == HFI_REPLY_INTEGER && reply->integer == 1;
}

const struct hfi_renewer hfi_renewer_hash = {
    .script = &hfi_script_renew,
    .write = write_hash_renewal,
    .write_probe = hfi_renewer_hash_write_probe,
    .is_there = hfi_renewer_hash_is_there,
};

/* ---- The end ---- */

static void finish(struct renewal_run *renewal_run, int err) {
    struct hfi_renewal *renewal = renewal_run->renewal;
    assert(hfi_list_empty(&renewal_run->renew_scripts));
    hfi_list_remove(&renewal_run->link);
    hfi_node_unref(renewal_run->node);
    hfi_node_unref(renewal_run->answered_by);
    renewal_run->renewal = NULL;
    hfi_task_unref(&renewal_run->task);
    renewal->err = err;
    if (err != HF_OK)
        renewal->error.code = err;
    renewal->done(renewal);
}

static void destroy_renewal_run(struct hfi_task *task) {
    struct renewal_run *renewal_run = HFI_CONTAINER(task, struct renewal_run, task);
    hfi_free(renewal_run->mem, renewal_run);
}

/* ---- Confirmation by sentinels ---- */

static bool is_for_sentinels(const struct renewal_run *renewal_run) {
    const struct hfi_renewal *renewal = renewal_run->renewal;
    bool renewed = false;
    for (size_t i = 0; i < renewal->len; i++)
        renewed = renewed || (renewal->items[i].answer == 1 && renewal->items[i].lease_ms > 1);
    return renewal_run->redis->confirms && renewal_run->answered_by != NULL && renewed;
}

static void stop_confirming(struct renewal_run *renewal_run) {
    struct hfi_route *route = renewal_run->redis->route;
    hfi_alarm_clear(renewal_run->task.exec, &renewal_run->alarm);
    route->ops->unwant(route, &renewal_run->confirm); /* settles `err` */
    renewal_run->confirming = false;
}

/* Not confirmed: the server has renewed, but may not be the primary any more. What was proved
 * before stays as it was. */
static void confirmed(struct renewal_run *renewal_run, bool in_time) {
    struct hfi_renewal *renewal = renewal_run->renewal;
    stop_confirming(renewal_run);
    if (in_time && renewal_run->confirm.err == HF_OK) {
        finish(renewal_run, HF_OK);
        return;
    }
    for (size_t i = 0; i < renewal->len; i++)
        if (renewal->items[i].answer == 1)
            renewal->items[i].answer = HF_ENOREPLICA;
    hfi_error_clear(&renewal->error);
    if (in_time)
        renewal->error = renewal_run->confirm.error;
    else
        hfi_fail(&renewal->error, HF_EUNREACH,
                 "too few sentinels have confirmed the primary in time");
    finish(renewal_run, HF_OK);
}

static void run_renewal_run(struct hfi_task *task, unsigned events) {
    struct renewal_run *renewal_run = HFI_CONTAINER(task, struct renewal_run, task);
    if (renewal_run->renewal == NULL || !renewal_run->confirming)
        return;
    if ((events & HFI_EVENT_READY) != 0 && !hfi_linked(&renewal_run->confirm.link))
        confirmed(renewal_run, true);
    else if ((events & HFI_EVENT_TIMER) != 0)
        confirmed(renewal_run, false);
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct renewal_run, alarm)->task, HFI_EVENT_TIMER);
}

static void begin_confirming(struct renewal_run *renewal_run) {
    struct hfi_route *route = renewal_run->redis->route;
    renewal_run->confirming = true;
    renewal_run->alarm.fire = alarm_fired;
    hfi_alarm_set(renewal_run->task.exec, &renewal_run->alarm, renewal_run->renewal->deadline_ms);
    route->ops->confirm(route, renewal_run->answered_by, &renewal_run->confirm, &renewal_run->task,
                        HFI_EVENT_READY);
}

static void finish_if_done(struct renewal_run *renewal_run) {
    if (renewal_run->choosing || !hfi_list_empty(&renewal_run->renew_scripts))
        return;
    if (is_for_sentinels(renewal_run))
        begin_confirming(renewal_run);
    else
        finish(renewal_run, renewal_run->answered_by != NULL ? HF_OK : renewal_run->failure);
}

static void end_renew_script(struct renew_script *renew_script) {
    hfi_exchange_end(&renew_script->exchange);
    hfi_list_remove(&renew_script->link);
    renew_script->renewal_run = NULL;
    hfi_task_unref(&renew_script->task);
}

static void destroy_renew_script(struct hfi_task *task) {
    struct renew_script *renew_script = HFI_CONTAINER(task, struct renew_script, task);
    hfi_free(renew_script->mem, renew_script);
}

/* ---- One script ---- */

static struct hfi_renewal_item *item_of(const struct renew_script *renew_script, size_t i) {
    return &renew_script->renewal_run->renewal->items[renew_script->items[i]];
}

/* As a command, if its node runs no scripts: one hold each. */
static bool is_native(const struct renew_script *renew_script) {
    return renew_script->exchange.script == NULL;
}

static void next_command(struct hfi_command *command) {
    hfi_command_close(command);
    hfi_command_open(command);
}

/* Reads the keys of all, so that they are tracked. */
static void write_keys_probe(const struct hfi_redis *redis,
                             const struct hfi_renewal_item *const *items, size_t len,
                             struct hfi_command *command) {
    hfi_command_text(command, "EXISTS");
    for (size_t i = 0; i < len; i++)
        hfi_name_key(&redis->names, items[i]->name,
                     hfi_kind_stem_len(items[i]->kind, items[i]->name, items[i]->name_len),
                     command);
}

/* How many commands read the keys: one in all, or one for each hold, behind one that has them
 * tracked. */
static unsigned probe_commands(const struct renew_script *renew_script) {
    bool at_once = renew_script->renewer->write_probes != NULL || renew_script->len == 1;
    return at_once ? 1 : 1 + (unsigned)renew_script->len;
}

static void write_probes(const struct renew_script *renew_script,
                         const struct hfi_renewal_item *const *items, struct hfi_command *command) {
    const struct hfi_redis *redis = renew_script->exchange.redis;
    const struct hfi_renewer *renewer = renew_script->renewer;
    next_command(command);
    hfi_track_on(command, renew_script->track_target);
    hfi_track_next(command);
    if (renewer->write_probes != NULL) {
        renewer->write_probes(redis, items, renew_script->len, command);
        return;
    }
    if (renew_script->len > 1)
        write_keys_probe(redis, items, renew_script->len, command);
    for (size_t i = 0; i < renew_script->len; i++) {
        if (renew_script->len > 1)
            next_command(command);
        renewer->write_probe(redis, items[i], command);
    }
}

static void write_renew_script(struct hfi_exchange *x, int64_t not_after_ms,
                               struct hfi_command *command) {
    struct renew_script *renew_script = HFI_CONTAINER(x, struct renew_script, exchange);
    const struct hfi_renewal_item *items[HFI_RENEWAL_MAX];
    assert(renew_script->len > 0);
    for (size_t i = 0; i < renew_script->len; i++)
        items[i] = item_of(renew_script, i);
    if (is_native(renew_script))
        renew_script->renewer->write_native(x->redis, items[0], command);
    else
        renew_script->renewer->write(x->redis, items, renew_script->len, not_after_ms, command);
    if (renew_script->track_target != 0)
        write_probes(renew_script, items, command);
}

/* ---- Tracking ---- */

/* Behind the script, since it makes the server forget the keys. First the server is asked to report
 * the keys' changes, then whether each hold is still there: something may have happened in
 * between. */
static void choose_probes(struct hfi_exchange *x) {
    struct renew_script *renew_script = HFI_CONTAINER(x, struct renew_script, exchange);
    const struct hfi_renewer *renewer = renew_script->renewer;
    bool probes = renewer->is_there != NULL && !x->asking && !hfi_exchange_is_acked(x) &&
                  x->redis->base.tracks;
    renew_script->track_target = probes ? hfi_tracker_target(hfi_node_learnt(x->node)->tracker) : 0;
    unsigned behind =
        renew_script->track_target != 0 ? HFI_TRACK_FRONTS + probe_commands(renew_script) : 0;
    x->fronts = x->reply_at = behind;
}

/* The reply about each hold. False: there is none. */
static bool find_probes(const struct renew_script *renew_script, const struct hfi_req **ret_read,
                        const struct hfi_reply **ret_probes) {
    const struct hfi_req *req = renew_script->exchange.req;
    if (renew_script->renewer->write_probes != NULL) {
        const struct hfi_reply *all = req->reply;
        if (all->type != HFI_REPLY_ARRAY || all->elements != renew_script->len)
            return false;
        for (size_t i = 0; i < renew_script->len; i++)
            ret_probes[i] = all->element[i];
    } else if (renew_script->len == 1) {
        ret_probes[0] = req->reply;
    } else {
        for (size_t i = renew_script->len; i-- > 0; req = req->front)
            ret_probes[i] = req->reply;
        const struct hfi_reply *read = req->reply;
        if (read->type == HFI_REPLY_ERROR)
            return false; /* nothing is tracked */
    }
    *ret_read = req;
    return true;
}

/* The replies behind that of the script; the last is the first. */
static void read_probes(struct renew_script *renew_script) {
    const struct hfi_exchange *x = &renew_script->exchange;
    struct hfi_tracker *tracker = hfi_node_learnt(x->node)->tracker;
    const struct hfi_req *req;
    const struct hfi_reply *probes[HFI_RENEWAL_MAX];
    if (renew_script->track_target == 0 || !find_probes(renew_script, &req, probes))
        return;
    bool on = hfi_tracker_is_on(tracker, renew_script->track_target, req->front->front->reply);
    if (!on || !hfi_tracker_is_next(tracker, req->front->reply))
        return;
    for (size_t i = 0; i < renew_script->len; i++) {
        struct hfi_renewal_item *item = item_of(renew_script, i);
        if (item->answer != 1 || probes[i]->type == HFI_REPLY_ERROR)
            continue;
        item->tracked = renew_script->renewer->is_there(item, probes[i]);
        if (!item->tracked)
            hfi_tracker_note(tracker, item->name,
                             hfi_kind_stem_len(item->kind, item->name, item->name_len));
    }
}

/* If a server took over less than a renewal interval ago, a hold that is missing there was missing
 * from the beginning. */
static bool has_just_taken_over(const struct renew_script *renew_script) {
    const struct hfi_exchange *x = &renew_script->exchange;
    int64_t since_ms = hfi_node_learnt(x->node)->took_over_ms;
    return since_ms != 0 && x->sent_ms - since_ms < x->redis->renew_every_ms;
}

static int read_native_answer(struct renew_script *renew_script, const struct hfi_reply *reply) {
    const struct hfi_exchange *x = &renew_script->exchange;
    struct hfi_renewal_item *item = item_of(renew_script, 0);
    int answer = hfi_native_renewal_read(reply);
    if (answer < 0)
        return HF_EPROTO;
    item->answer = answer;
    item->proof = hfi_native_proof_of(x->redis, item->kind, x->sent_ms, item->lease_ms);
    return HF_OK;
}

/* HF_OK, or HF_EPROTO without having changed anything. */
static int read_answers(struct renew_script *renew_script, const struct hfi_reply *reply) {
    if (is_native(renew_script))
        return read_native_answer(renew_script, reply);
    if (reply->elements != renew_script->len + 1)
        return HF_EPROTO;
    for (size_t i = 0; i < renew_script->len; i++)
        if (reply->element[i]->integer < -1 || reply->element[i]->integer > 1)
            return HF_EPROTO;
    for (size_t i = 0; i < renew_script->len; i++) {
        struct hfi_renewal_item *item = item_of(renew_script, i);
        int answer = (int)reply->element[i]->integer;
        item->answer = answer == -1 ? HF_EWRONGTYPE : answer;
        if (answer == 0 && has_just_taken_over(renew_script))
            renew_script->renewal_run->renewal->gone =
                "the primary changed, and the new one does not have it";
        item->proof = hfi_proof_of(renew_script->exchange.redis, item->kind,
                                   renew_script->exchange.sent_ms, item->lease_ms);
    }
    return HF_OK;
}

/* The server has renewed, but too few replicas have acknowledged. What was proved before stays as
 * it was. */
static void not_confirmed(struct renew_script *renew_script) {
    struct renewal_run *renewal_run = renew_script->renewal_run;
    for (size_t i = 0; i < renew_script->len; i++)
        if (item_of(renew_script, i)->answer == 1)
            item_of(renew_script, i)->answer = HF_ENOREPLICA;
    renewal_run->failure = hfi_acks_fail(&renew_script->exchange, &renewal_run->renewal->error);
}

static void renew_script_failed(struct renew_script *renew_script, int err) {
    struct renewal_run *renewal_run = renew_script->renewal_run;
    /* for one hold this means something; as the reply to a whole script it makes no sense */
    int answer = err == HF_EWRONGTYPE && !is_native(renew_script) ? HF_EPROTO : err;
    for (size_t i = 0; i < renew_script->len; i++)
        item_of(renew_script, i)->answer = answer;
    renewal_run->failure = err;
    renewal_run->renewal->error = renew_script->error;
    renewal_run->renewal->error.code = err;
}

/* No reply came in the time that a renewal has. If the connection is dead, the next renewal should
 * use another. */
static void doubt_connection(const struct renew_script *renew_script) {
    const struct hfi_exchange *x = &renew_script->exchange;
    if (x->err == HF_EINDOUBT && x->unanswered && x->conn != NULL &&
        !atomic_load(&x->redis->stopped))
        hfi_conn_suspect(x->conn, x->sent_ms);
}

/* Both have the same key on the server, so the same slot. */
static bool same_name(const struct hfi_renewal_item *a, const struct hfi_renewal_item *b) {
    size_t a_len = hfi_kind_stem_len(a->kind, a->name, a->name_len);
    size_t b_len = hfi_kind_stem_len(b->kind, b->name, b->name_len);
    return a_len == b_len && memcmp(a->name, b->name, a_len) == 0;
}

/* Whether an error reply starts with this code. */
static bool starts_with(const struct hfi_reply *reply, const char *word) {
    return reply->type == HFI_REPLY_ERROR && strncmp(reply->str, word, strlen(word)) == 0;
}

/* The server refused several holds at once, perhaps because of one of them. If it ran a part of the
 * script, that may run again. */
static bool must_split(const struct renew_script *renew_script) {
    const struct hfi_exchange *x = &renew_script->exchange;
    enum hfi_remedy remedy;
    if (x->err == HF_OK || renew_script->len == 1)
        return false;
    const struct hfi_reply *reply = hfi_exchange_reply(x);
    if (reply == NULL || reply->type != HFI_REPLY_ERROR)
        return false;
    hfi_error_of_reply(reply, NULL, &remedy);
    return remedy == HFI_REMEDY_NONE || starts_with(reply, "TRYAGAIN ");
}

static void send_renew_scripts(struct renewal_run *renewal_run);

static void split_renew_script(struct renew_script *renew_script) {
    struct renewal_run *renewal_run = renew_script->renewal_run;
    if (starts_with(hfi_exchange_reply(&renew_script->exchange), "CROSSSLOT "))
        hfi_node_learnt(renewal_run->node)->in_slots = true;
    for (size_t i = 0; i < renew_script->len; i++) {
        renewal_run->asked[renew_script->items[i]] = false;
        renewal_run->alone[renew_script->items[i]] = true;
    }
    end_renew_script(renew_script);
    send_renew_scripts(renewal_run);
}

/* The node runs no scripts: the holds are sent again, as commands. */
static bool must_be_native(const struct renew_script *renew_script) {
    const struct hfi_exchange *x = &renew_script->exchange;
    return x->err == HF_ENOTSUP && !is_native(renew_script) &&
           renew_script->renewer->write_native != NULL && x->node != NULL;
}

static void make_native(struct renew_script *renew_script) {
    struct renewal_run *renewal_run = renew_script->renewal_run;
    atomic_store_explicit(&hfi_node_learnt(renew_script->exchange.node)->scriptless, true,
                          memory_order_relaxed);
    for (size_t i = 0; i < renew_script->len; i++)
        renewal_run->asked[renew_script->items[i]] = false;
    end_renew_script(renew_script);
    send_renew_scripts(renewal_run);
}

static void renew_script_ended(struct renew_script *renew_script) {
    struct renewal_run *renewal_run = renew_script->renewal_run;
    const struct hfi_exchange *x = &renew_script->exchange;
    if (must_be_native(renew_script)) {
        make_native(renew_script);
        return;
    }
    if (must_split(renew_script)) {
        split_renew_script(renew_script);
        return;
    }
    if (x->err != HF_OK) {
        doubt_connection(renew_script);
        renew_script_failed(renew_script, x->err);
    } else if (read_answers(renew_script, hfi_exchange_reply(x)) != HF_OK) {
        renew_script_failed(
            renew_script, hfi_fail(&renew_script->error, HF_EPROTO, "invalid reply to a renewal"));
    } else {
        if (renewal_run->answered_by == NULL)
            renewal_run->answered_by = hfi_node_ref(x->node);
        if (!hfi_acks_suffice(x))
            not_confirmed(renew_script);
        read_probes(renew_script);
    }
    end_renew_script(renew_script);
    finish_if_done(renewal_run);
}

static void run_renew_script(struct hfi_task *task, unsigned events) {
    struct renew_script *renew_script = HFI_CONTAINER(task, struct renew_script, task);
    if (renew_script->renewal_run != NULL &&
        hfi_exchange_step(&renew_script->exchange, events) == HFI_FINISHED)
        renew_script_ended(renew_script);
}

/* A hold that is only queried gets no new lease that replicas would have to acknowledge. */
static int acks_of(const struct hfi_renewal_item *item) {
    return item->lease_ms > 1 ? item->acks : 0;
}

static void start_renew_script(struct renew_script *renew_script) {
    const struct renewal_run *renewal_run = renew_script->renewal_run;
    const struct hfi_renewal *renewal = renewal_run->renewal;
    struct hfi_exchange *x = &renew_script->exchange;
    x->redis = renewal_run->redis;
    x->task = &renew_script->task;
    x->lane = HFI_LANE_KEEPER;
    x->retry = HFI_RETRY_NONE;
    x->script = renew_script->renewer->script;
    const struct hfi_renewal_item *first = item_of(renew_script, 0);
    x->name = first->name;
    x->name_len = hfi_kind_stem_len(first->kind, first->name, first->name_len);
    x->write = write_renew_script;
    x->undeclared_keys = renew_script->renewer->undeclared_keys;
    x->acks.asked = acks_of(first);
    x->acks.needs_them = hfi_acks_of_many;
    if (hfi_renotification_natively(renewal_run->node, renew_script->renewer)) {
        x->script = NULL;
        x->repeatable = true;
        x->acks.needs_them = hfi_native_renewal_acks;
    }
    x->choose = choose_probes;
    x->limit_ms = renewal->deadline_ms;
    x->reach_until_ms = renewal->deadline_ms;
    x->silence_ms = HFI_NEVER;
    x->limit_err = HF_EINDOUBT;
    x->error = &renew_script->error;
    if (hfi_exchange_begin(x) == HFI_FINISHED)
        renew_script_ended(renew_script);
}

/* ---- Into scripts ---- */

/* Whether a hold can go into this script. */
static bool fits(const struct renew_script *renew_script, size_t i) {
    const struct renewal_run *renewal_run = renew_script->renewal_run;
    const struct hfi_renewal_item *item = &renewal_run->renewal->items[i];
    if (hfi_redis_kind_of(item->kind)->renewer != renew_script->renewer ||
        acks_of(item) != acks_of(item_of(renew_script, 0)) ||
        renewal_run->slots[i] != renewal_run->slots[renew_script->items[0]])
        return false;
    if (renewal_run->alone[i] || renewal_run->alone[renew_script->items[0]] ||
        hfi_renotification_natively(renewal_run->node, renew_script->renewer))
        return false;
    return !hfi_node_learnt(renewal_run->node)->in_slots ||
           same_name(item, item_of(renew_script, 0));
}

/* Without slots, all are in the same. */
static void find_slots(struct renewal_run *renewal_run) {
    struct hfi_route *route = renewal_run->redis->route;
    const struct hfi_renewal *renewal = renewal_run->renewal;
    for (size_t i = 0; hfi_route_has_slots(route) && i < renewal->len; i++) {
        const struct hfi_renewal_item *item = &renewal->items[i];
        size_t len = hfi_kind_stem_len(item->kind, item->name, item->name_len);
        renewal_run->slots[i] = (uint16_t)route->ops->slot(route, item->name, len);
    }
}

static void take(struct renew_script *renew_script, size_t i) {
    renew_script->renewal_run->asked[i] = true;
    renew_script->items[renew_script->len++] = (uint8_t)i;
}

/* A script of all holds that fit with the one at `first`. NULL: no memory. */
static struct renew_script *make_renew_script(struct renewal_run *renewal_run, size_t first) {
    const struct hfi_renewal *renewal = renewal_run->renewal;
    struct renew_script *renew_script = hfi_zalloc(renewal_run->redis->mem, sizeof *renew_script);
    if (renew_script == NULL)
        return NULL;
    hfi_task_init(&renew_script->task, hfi_keeper_exec(renewal_run->redis->keeper),
                  run_renew_script, destroy_renew_script);
    hfi_list_push_back(&renewal_run->renew_scripts, &renew_script->link);
    renew_script->renewal_run = renewal_run;
    renew_script->mem = renewal_run->redis->mem;
    renew_script->renewer = hfi_redis_kind_of(renewal->items[first].kind)->renewer;
    take(renew_script, first);
    for (size_t i = first + 1; i < renewal->len; i++)
        if (!renewal_run->asked[i] && fits(renew_script, i))
            take(renew_script, i);
    return renew_script;
}

/* Sends all holds that were not sent yet. */
static void send_renew_scripts(struct renewal_run *renewal_run) {
    struct hfi_renewal *renewal = renewal_run->renewal;
    renewal_run->choosing = true;
    for (size_t i = 0; i < renewal->len; i++) {
        if (renewal_run->asked[i])
            continue;
        struct renew_script *renew_script = make_renew_script(renewal_run, i);
        if (renew_script != NULL) {
            start_renew_script(renew_script);
            continue;
        }
        renewal_run->asked[i] = true;
        renewal->items[i].answer = renewal_run->failure =
            hfi_fail(&renewal->error, HF_ENOMEM, "out of memory");
    }
    renewal_run->choosing = false;
    finish_if_done(renewal_run);
}

/* ---- The renewal ---- */

/* A client with renewals to send wants a lost connection back as soon as possible, not when the
 * next renewal is due. */
static void keep_connected(struct hfi_node *node) {
    struct hfi_conn *control = hfi_node_pick(node, HFI_LANE_KEEPER);
    if (control != NULL)
        hfi_conn_keep_up(control, true);
}

/* If a server was removed from its address, other clients do not find it: a hold on it excludes
 * none of them. */
static bool is_gone_with_its_server(struct hfi_redis *redis, struct hfi_renewal *renewal) {
    bool control;
    const struct hfi_renewal_item *any = &renewal->items[0];
    /* without `control`, the renewal goes to the new server and finds the holds missing */
    if (!hfi_redis_was_replaced(redis, any->name, any->name_len, &control) || !control)
        return false;
    for (size_t i = 0; i < renewal->len; i++)
        renewal->items[i].answer = 0;
    renewal->err = HF_OK;
    renewal->gone = "its server was replaced by another";
    renewal->done(renewal);
    return true;
}

static void fail(struct hfi_renewal *renewal, int err, const char *text) {
    renewal->err = hfi_fail(&renewal->error, err, "%s", text);
    renewal->done(renewal);
}

void hfi_renew(struct hfi_engine *engine, struct hfi_renewal *renewal) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    const struct hfi_renewal_item *any = &renewal->items[0];
    assert(renewal->len > 0 && renewal->len <= HFI_RENEWAL_MAX);
    hfi_error_clear(&renewal->error);
    if (is_gone_with_its_server(redis, renewal))
        return;
    struct hfi_node *node = hfi_redis_node_for(
        redis, any->name, hfi_kind_stem_len(any->kind, any->name, any->name_len));
    if (node == NULL) {
        fail(renewal, HF_EUNREACH, "no server is known for this slot");
        return;
    }
    struct renewal_run *renewal_run = hfi_zalloc(redis->mem, sizeof *renewal_run);
    if (renewal_run == NULL) {
        hfi_node_unref(node);
        fail(renewal, HF_ENOMEM, "out of memory");
        return;
    }
    keep_connected(node);
    hfi_task_init(&renewal_run->task, hfi_keeper_exec(redis->keeper), run_renewal_run,
                  destroy_renewal_run);
    renewal_run->mem = redis->mem;
    renewal_run->redis = redis;
    renewal_run->renewal = renewal;
    renewal_run->node = node;
    hfi_list_init(&renewal_run->renew_scripts);
    hfi_list_push_back(&redis->renewals, &renewal_run->link);
    find_slots(renewal_run);
    send_renew_scripts(renewal_run);
}

void hfi_renewals_stop(struct hfi_redis *redis) {
    while (!hfi_list_empty(&redis->renewals)) {
        struct renewal_run *renewal_run =
            HFI_CONTAINER(redis->renewals.next, struct renewal_run, link);
        while (!hfi_list_empty(&renewal_run->renew_scripts))
            end_renew_script(
                HFI_CONTAINER(renewal_run->renew_scripts.next, struct renew_script, link));
        if (renewal_run->confirming)
            stop_confirming(renewal_run);
        hfi_fail(&renewal_run->renewal->error, HF_ECLOSED, "the client is closed");
        finish(renewal_run, HF_ECLOSED);
    }
}
