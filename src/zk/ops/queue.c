/*
 * The queue recipe: how a lock of any kind is acquired.
 *
 *   create + list ─▶ held                                                          done
 *        │           not yet: watch the node before ours ─▶ asleep ─▶ it is deleted: held if our
 *        │                                                   node still exists, or list again
 *        ├ no parent: make it, and again
 *        └ reply lost: sync + list, look for our uuid ─▶ found: go on; not found: create again
 *
 * A session's requests run in order, so the list in the same write shows the new node. If the reply
 * to a create is lost, its node is found by its uuid, which is drawn anew for each acquire
 * (recover_create.c).
 *
 * Runs on the thread of the call's executor. A wait that ends without the lock leaves its node to
 * the settlement (release.c).
 */
#include "zk/ops/queue.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define STATUS_EVERY_MS 10000 /* a sleeping waiter updates its status that often */

static void create(struct hfi_zk_call *c);
static void list(struct hfi_zk_call *c);
static void granted(struct hfi_zk_call *c);

/* ---- Helpers ---- */

/* A kind with `granted` needs the lock only for a moment, for another operation. So it waits for it
 * even if the caller wants a single attempt. */
static bool tries_once(const struct hfi_zk_call *c) {
    return hfi_zk_tries_once(c->call) && c->kind->granted == NULL;
}

static int64_t deadline_ms(const struct hfi_zk_call *c) {
    return hfi_zk_tries_once(c->call) ? c->end_ms : c->call->deadline_ms;
}

static void timed_out(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, hfi_zk_tries_once(c->call) ? HF_EBUSY : HF_ETIMEDOUT,
                     "another owner held the lock for the whole wait");
}

static void wrong_type(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, HF_EWRONGTYPE, "the name is used for something else");
}

/* Our node is gone, or was of another session: create a new one at the tail. */
static void begin_anew(struct hfi_zk_call *c) {
    hfi_zk_unwatch(c->zk->watches, &c->queue.watch);
    c->queue = (struct hfi_zk_queue){0};
    c->number = 0;
    c->leaves = false;
    if (hfi_now_ms() >= c->limit_ms)
        timed_out(c);
    else
        create(c);
}

static void write_list(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_queue_path(c, path);
    hfi_zk_put_get_children(out, 0, path, false);
}

/* ---- The grant ---- */

static void checked(struct hfi_zk_call *c) {
    int32_t refusal;
    c->queue.proved = true;
    if (hfi_zk_read_check(c, &refusal) != HF_OK)
        hfi_zk_call_fail_proto(c);
    else if (refusal == HFI_ZK_NO_NODE)
        begin_anew(c);
    else if (refusal != HFI_ZK_OK)
        hfi_zk_call_refused(c, refusal);
    else
        granted(c);
}

static const struct hfi_zk_step check_step = {
    .frames = 1, .commits = 1, .write = hfi_zk_write_check, .answered = checked, .lost = list};

/* How much validity must be left: until the next heartbeat is sent and answered. */
static int64_t stale_ms(const struct hfi_zk_credit *credit) {
    return credit->timeout_ms / 16 * 5;
}

/* The lock is ours, as far as a follower knows; that is worth what the session is worth. If little
 * validity is left, prove the session first, or the lock would be lost right after the grant. A
 * request is enough: it replaces an old connection (session.c). If its reply took too long, ask
 * once more. */
static void granted(struct hfi_zk_call *c) {
    struct hfi_call *call = c->call;
    struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    int64_t left_ms = credit.good_until_ms - hfi_now_ms();
    int64_t wanted_ms = c->kind->granted != NULL ? stale_ms(&credit) : credit.timeout_ms / 2;
    if (credit.number != c->number) {
        begin_anew(c);
        return;
    }
    if (!c->queue.proved && left_ms < wanted_ms) {
        hfi_zk_ask_for(c, &check_step);
        return;
    }
    if (left_ms < stale_ms(&credit)) {
        hfi_zk_session_invalidate(c->zk->session);
        list(c);
        return;
    }
    if (c->kind->granted != NULL) {
        c->kind->granted(c);
        return;
    }
    call->value = 1;
    call->token = c->queue.token;
    call->proof = hfi_zk_proof(&credit, call->lease_ms);
    const struct hfi_zk_held held = {.number = c->number,
                                     .token = c->queue.token,
                                     .count = 1,
                                     .promised_until_ms = call->proof.promised_until_ms,
                                     .node = c->queue.node,
                                     .beneath = "/"};
    const struct hfi_zk_place place = hfi_zk_place_of(call);
    if (hfi_zk_remember(c->zk, &place, &held) == HF_OK) {
        char path[HFI_ZK_PATH_MAX];
        hfi_zk_call_node_path(c, "/", &c->queue.node, path);
        hfi_zk_watched_is_first(c->zk->watches, path);
        hfi_zk_call_finish(c, HF_OK);
    } else {
        hfi_zk_call_fail(c, HF_ENOMEM, "out of memory");
    }
}

/* ---- Waiting ---- */

static void sleep_in_queue(struct hfi_zk_call *c);
static void watched(struct hfi_zk_call *c);

static void write_watch(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    hfi_zk_put_get_data(out, 0, hfi_zk_watched_path(&c->queue.watch), true);
}

static const struct hfi_zk_step watch_step = {
    .frames = 1, .write = write_watch, .answered = watched, .lost = list};

static void found_ours(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    if (err == HFI_ZK_OK)
        granted(c);
    else if (err == HFI_ZK_NO_NODE)
        begin_anew(c);
    else
        hfi_zk_call_refused(c, err);
}

static void write_ours(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_queue_node_path(c, &c->queue.node, path);
    hfi_zk_put_get_data(out, 0, path, false);
}

/* The node before ours is gone. Ours may be, too: it was deleted, or our session was closed, and
 * no message says so. A server shows changes in order: one that has sent the first shows the
 * second. */
static const struct hfi_zk_step ours_step = {
    .frames = 1, .write = write_ours, .answered = found_ours, .lost = list};

static void woken(struct hfi_zk_call *c) {
    unsigned seen = hfi_zk_seen(&c->queue.watch);
    bool only = c->queue.only || atomic_load(&c->queue.watch.first);
    if (seen == 0 && hfi_now_ms() >= deadline_ms(c)) {
        timed_out(c);
    } else if (seen == 0) {
        sleep_in_queue(c);
    } else if (seen == HFI_ZK_SEEN_RENEWED) {
        hfi_zk_ask_for(c, &watch_step);
    } else {
        hfi_zk_unwatch(c->zk->watches, &c->queue.watch);
        c->queue.proved = false;
        c->call->notified_us = hfi_now_us();
        if (seen == HFI_ZK_SEEN_DELETED && only && c->kind->by_event)
            hfi_zk_ask_for(c, &ours_step);
        else
            list(c);
    }
}

static void sleep_in_queue(struct hfi_zk_call *c) {
    c->woken = woken;
    hfi_zk_sleep(c, hfi_min_ms(deadline_ms(c), hfi_now_ms() + STATUS_EVERY_MS));
}

static void watched(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    if (err == HFI_ZK_OK) {
        sleep_in_queue(c);
        if (atomic_load(&c->queue.watch.seen) != 0)
            woken(c); /* the event came with the reply */
    } else if (err == HFI_ZK_NO_NODE) {
        hfi_zk_unwatch(c->zk->watches, &c->queue.watch);
        list(c);
    } else {
        hfi_zk_call_refused(c, err);
    }
}

static void wait_for(struct hfi_zk_call *c, const struct hfi_zk_queue_state *state) {
    char path[HFI_ZK_PATH_MAX];
    size_t len = hfi_zk_queue_path(c, path);
    path[len++] = '/';
    c->queue.only = state->only;
    int err = hfi_zk_watch(c->zk->watches, &c->queue.watch, path, len, state->watch.bytes,
                           state->watch.len, c->call->task, HFI_ZK_EVENT_WATCH);
    if (err == HF_OK)
        hfi_zk_ask_for(c, &watch_step);
    else
        hfi_zk_call_fail(c, err, "out of memory");
}

/* ---- The borrowed number's lender is gone ---- */

/* The node that lent us its number is gone, so the number is worth nothing: draw one of our own. */
static void lender_gone(struct hfi_zk_call *c) {
    struct hfi_zk_place place = hfi_zk_place_of(c->call);
    int32_t err = c->answers[0].err;
    if (err != HFI_ZK_OK && err != HFI_ZK_NO_NODE) {
        hfi_zk_call_refused(c, err);
        return;
    }
    place.kind = c->kind->borrows_from;
    hfi_zk_forget(c->zk, &place);
    begin_anew(c);
}

static void write_lender_gone(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_queue_node_path(c, &c->queue.node, path);
    hfi_zk_put_delete(out, 0, path, HFI_ZK_ANY_VERSION);
}

static const struct hfi_zk_step lender_gone_step = {
    .frames = 1, .commits = 1, .write = write_lender_gone, .answered = lender_gone};

/* ---- Reading the list ---- */

/* At the largest number a server stops counting and gives that one to every node, so it says
 * nothing about order. A negative number comes from a server that counted on, or was about to. */
static bool says_nothing(int32_t number) {
    return number == INT32_MAX || number < 0;
}

/* Each refused waiter leaves, so the queue drains, and servers delete empty containers. */
static void no_more_numbers(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, HF_EUNAVAILABLE,
                     "ZooKeeper has run out of sequence numbers for this name: delete its node");
}

static void on_queue_listed(struct hfi_zk_call *c, struct hfi_zk_in *body) {
    struct hfi_zk_children queue;
    if (hfi_zk_get_children(body, &queue) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    c->queue.node.borrowed = c->queue.borrows;
    struct hfi_zk_queue_state state = c->kind->read_queue(queue, &c->queue.node);
    c->call->contended = c->call->contended || !state.held;
    if (state.wrong)
        wrong_type(c);
    else if (!state.found)
        begin_anew(c);
    else if (says_nothing(c->queue.node.number))
        no_more_numbers(c);
    else if (state.lender_gone)
        hfi_zk_ask_for(c, &lender_gone_step);
    else if (state.held)
        granted(c);
    else if (tries_once(c))
        hfi_zk_call_fail(c, HF_EBUSY, "another owner holds the lock");
    else if (hfi_now_ms() >= deadline_ms(c))
        timed_out(c);
    else
        wait_for(c, &state);
}

static void listed(struct hfi_zk_call *c) {
    if (c->answers[0].err == HFI_ZK_OK)
        on_queue_listed(c, &c->answers[0].body);
    else if (c->answers[0].err == HFI_ZK_NO_NODE)
        begin_anew(c);
    else
        hfi_zk_call_refused(c, c->answers[0].err);
}

static const struct hfi_zk_step list_step = {.frames = 1, .write = write_list, .answered = listed};

static void list(struct hfi_zk_call *c) {
    hfi_zk_unwatch(c->zk->watches, &c->queue.watch);
    c->queue.proved = false;
    hfi_zk_ask_for(c, &list_step);
}

/* ---- Creating ---- */

static void searched(struct hfi_zk_call *c) {
    if (c->queue.made)
        list(c);
    else
        create(c); /* the create never ran and never will: the old connection is refused */
}

static void create_lost(struct hfi_zk_call *c) {
    hfi_zk_queue_recover(c, searched);
}

static void write_create(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX], data[HFI_ZK_DATA_MAX];
    const struct hfi_call *call = c->call;
    size_t data_len = hfi_zk_data_write(call->owner, call->owner_len, c->zk->who, data);
    size_t len = hfi_zk_queue_path(c, path);
    path[len] = '/';
    if (c->queue.borrows)
        hfi_zk_node_name(&c->queue.node, path + len + 1);
    else
        hfi_zk_node_stem(c->kind->label, c->queue.uuid, path + len + 1);
    hfi_zk_put_create(out, 0, path, data, data_len,
                      c->queue.borrows ? HFI_ZK_EPHEMERAL : HFI_ZK_EPHEMERAL_SEQUENTIAL,
                      c->zk->acl);
    path[len] = '\0';
    hfi_zk_put_get_children(out, 0, path, false);
}

static bool read_created(struct hfi_zk_call *c) {
    struct hfi_zk_text path;
    struct hfi_zk_stat stat;
    if (hfi_zk_get_created(&c->answers[0].body, &path, &stat) != HF_OK || path.len == 0)
        return false;
    const char *slash = memrchr(path.bytes, '/', path.len);
    if (slash == NULL)
        return false;
    c->queue.node = hfi_zk_node_parse(slash + 1, path.len - (size_t)(slash + 1 - path.bytes));
    c->queue.token = stat.czxid;
    c->queue.made = c->queue.node.label == c->kind->label && c->queue.node.has_uuid &&
                    memcmp(c->queue.node.uuid, c->queue.uuid, HFI_ZK_UUID_LEN) == 0;
    return c->queue.made;
}

static void created(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    if (err == HFI_ZK_NO_NODE) {
        hfi_zk_make_parents(c, c->kind->beneath != NULL ? c->kind->beneath : "", create);
    } else if (err != HFI_ZK_OK) {
        hfi_zk_call_refused(c, err);
    } else if (!read_created(c)) {
        hfi_zk_call_fail_proto(c);
    } else if (c->answers[1].err != HFI_ZK_OK) {
        list(c);
    } else {
        c->queue.proved = false;
        on_queue_listed(c, &c->answers[1].body);
    }
}

static const struct hfi_zk_step create_step = {.frames = 2,
                                               .commits = 1,
                                               .leaves = true,
                                               .write = write_create,
                                               .answered = created,
                                               .lost = create_lost};

/* Whether our owner holds a lock whose number this one borrows; then the call is bound to that
 * session. */
static bool borrow_number(struct hfi_zk_call *c) {
    struct hfi_zk_place place = hfi_zk_place_of(c->call);
    struct hfi_zk_held lender;
    place.kind = c->kind->borrows_from;
    if (place.kind == NULL || !hfi_zk_nodes_find(c->zk->nodes, &place, &lender) ||
        lender.number != hfi_zk_session_credit(c->zk->session).number)
        return false;
    c->number = lender.number;
    c->queue.node.label = c->kind->label;
    c->queue.node.number = lender.node.number;
    memcpy(c->queue.node.uuid, c->queue.uuid, sizeof c->queue.node.uuid);
    return true;
}

static void create(struct hfi_zk_call *c) {
    if (!c->queue.drawn &&
        getrandom(c->queue.uuid, sizeof c->queue.uuid, 0) != (ssize_t)sizeof c->queue.uuid) {
        hfi_fail_errno(&c->call->error, HF_ESYS, errno,
                       "cannot get random numbers from the system");
        hfi_zk_call_finish(c, HF_ESYS);
        return;
    }
    if (!c->queue.drawn) { /* mark it as a random (version 4) uuid */
        c->queue.uuid[6] = (unsigned char)((c->queue.uuid[6] & 0x0f) | 0x40);
        c->queue.uuid[8] = (unsigned char)((c->queue.uuid[8] & 0x3f) | 0x80);
    }
    c->queue.drawn = true;
    c->queue.borrows = borrow_number(c);
    hfi_zk_ask_for(c, &create_step);
}

/* ---- One attempt ---- */

static void peeked(struct hfi_zk_call *c) {
    struct hfi_zk_children queue = {.len = 0};
    int32_t err = c->answers[0].err;
    if (err != HFI_ZK_OK && err != HFI_ZK_NO_NODE) {
        hfi_zk_call_refused(c, err);
        return;
    }
    if (err == HFI_ZK_OK && hfi_zk_get_children(&c->answers[0].body, &queue) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    struct hfi_zk_queue_state state = c->kind->read_queue(queue, NULL);
    c->call->contended = !state.held;
    c->number = 0;
    if (state.wrong)
        wrong_type(c);
    else if (state.held)
        create(c);
    else
        hfi_zk_call_fail(c, HF_EBUSY, "another owner holds the lock");
}

static const struct hfi_zk_step peek_step = {.frames = 1, .write = write_list, .answered = peeked};

static void go(struct hfi_zk_call *c) {
    if (tries_once(c) && !borrow_number(c))
        hfi_zk_ask_for(c, &peek_step);
    else
        create(c);
}

/* ---- A node that this owner left behind ---- */

static void nothing_left(struct hfi_zk_call *c) {
    const struct hfi_zk_place place = hfi_zk_place_of(c->call);
    hfi_zk_forget(c->zk, &place);
    c->session_over = begin_anew;
    c->number = 0;
    go(c);
}

static void write_residue(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_call_node_path(c, c->held.beneath, &c->held.node, path);
    hfi_zk_put_delete(out, 0, path, HFI_ZK_ANY_VERSION);
}

static const struct hfi_zk_step residue_step = {
    .frames = 1, .commits = 1, .write = write_residue, .answered = nothing_left};

void hfi_zk_acquire(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    const struct hfi_zk_place place = hfi_zk_place_of(call);
    bool there = hfi_zk_nodes_find(c->zk->nodes, &place, &c->held);
    c->waits = !hfi_zk_tries_once(call);
    c->undoes = true;
    if (!c->waits)
        c->end_ms = hfi_after_ms(call->start_ms, c->zk->cmd_timeout_ms);
    c->session_over = begin_anew;
    if (call->count > 0) {
        hfi_zk_acquire_again(c, there);
    } else if (there) { /* a residue of this owner: it would wait for itself */
        c->number = c->held.number;
        c->session_over = nothing_left;
        hfi_zk_ask_for(c, &residue_step);
    } else {
        go(c);
    }
}

/* ---- For kinds that need the lock only for another operation ---- */

void hfi_zk_enqueue(struct hfi_zk_call *c) {
    c->session_over = begin_anew;
    create(c);
}

void hfi_zk_queue_restart(struct hfi_zk_call *c) {
    begin_anew(c);
}

void hfi_zk_queue_check(struct hfi_zk_call *c) {
    list(c);
}
