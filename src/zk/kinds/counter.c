/*
 * Operations on an ownerless counter: read, decide (semaphore.c, latch.c), compare-and-set, and
 * wait for a change.
 *
 * It is read behind a sync. A server may be behind its leader, and a change that is decided on an old
 * number would be none: a count-down that finds an old latch open.
 *
 * A node that is deleted and made anew begins with version 0. By that version alone, a late change
 * would write the number of the older node into the newer one. So there are generation nodes: a
 * transaction that makes a counter also writes its generation node; a transaction that changes one
 * checks that this node is as it was read, before the counter. All names share sixteen of them,
 * which are never deleted. Without the right to use them, changes are made without the check.
 * Curator and holdfast 0.2 do not write them.
 *
 * Called by src/core through the engine's tables, on the thread of the call's executor. Nothing on
 * the server tells which client changed a number. So after a lost reply the number is read behind a
 * sync. If it is unchanged, the change was not made and never will be: the leader refuses requests
 * in flight on an old connection. Else the outcome is unknown, and the call ends with HF_EINDOUBT.
 */
#include "zk/kinds/counter.h"

#include "base/clock.h"
#include "zk/ops/queue.h"

#include <string.h>

#define STATUS_EVERY_MS 10000 /* a sleeping waiter updates its status that often */

static const struct hfi_zk_counter *counter_of(const struct hfi_zk_call *c) {
    return c->u.counter.of;
}

static size_t write_path(const struct hfi_zk_call *c, char to[HFI_ZK_PATH_MAX]) {
    const char *beneath = counter_of(c)->beneath != NULL ? counter_of(c)->beneath : "";
    size_t len = hfi_zk_call_path(c, to);
    memcpy(to + len, beneath, strlen(beneath) + 1);
    return len + strlen(beneath);
}

static void write_generation_path(const struct hfi_zk_call *c, char to[HFI_ZK_PATH_MAX]) {
    char path[HFI_ZK_PATH_MAX];
    size_t len = write_path(c, path);
    hfi_zk_generation_path(&c->zk->names, path, len, to);
}

static void read_counter(struct hfi_zk_call *c);

/* ---- Requests ---- */

static bool takes(const struct hfi_zk_call *c) {
    return c->u.counter.takes;
}

static bool is_one_attempt(const struct hfi_zk_call *c) {
    return c->call->deadline_ms <= c->call->start_ms;
}

static void write_read(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    write_generation_path(c, path);
    hfi_zk_put_sync(out, 0, path);
    hfi_zk_put_get_data(out, 0, path, false);
    write_path(c, path);
    hfi_zk_put_get_data(out, 0, path, takes(c) && !is_one_attempt(c));
}

static void write_exists(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    write_path(c, path);
    hfi_zk_put_exists(out, 0, path, true);
}

static void write_verify(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    write_path(c, path);
    hfi_zk_put_sync(out, 0, path);
    hfi_zk_put_get_data(out, 0, path, false);
}

static bool makes(const struct hfi_zk_call *c) {
    return c->u.counter.change.what == HFI_ZK_STORE && !c->u.counter.found.there;
}

/* The first operation of a change, unless it is unguarded. */
static void write_guard(const struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    write_generation_path(c, path);
    if (makes(c))
        hfi_zk_multi_set_data(out, path, NULL, 0, HFI_ZK_ANY_VERSION);
    else
        hfi_zk_multi_check(out, path, c->u.counter.generation);
}

static void write_change(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    const struct hfi_zk_change *change = &c->u.counter.change;
    const struct hfi_zk_count *found = &c->u.counter.found;
    char path[HFI_ZK_PATH_MAX];
    unsigned char data[HFI_ZK_NUMBER_LEN];
    for (size_t i = 0; i < HFI_ZK_NUMBER_LEN; i++)
        data[i] = (unsigned char)((uint32_t)change->number >> (24 - 8 * i));
    write_path(c, path);
    hfi_zk_multi_begin(out, 0);
    if (!c->u.counter.unguarded)
        write_guard(c, out);
    if (change->what == HFI_ZK_REMOVE)
        hfi_zk_multi_delete(out, path, found->stat.version);
    else if (found->there)
        hfi_zk_multi_set_data(out, path, data, sizeof data, found->stat.version);
    else
        hfi_zk_multi_create(out, path, data, sizeof data, HFI_ZK_PERSISTENT, c->zk->acl);
    hfi_zk_multi_end(out);
}

static void write_generation(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    write_generation_path(c, path);
    hfi_zk_put_create(out, 0, path, NULL, 0, HFI_ZK_PERSISTENT, c->zk->acl);
}

/* ---- Reading ---- */

static int32_t read_number(const char *bytes) {
    uint32_t number = 0;
    for (size_t i = 0; i < HFI_ZK_NUMBER_LEN; i++)
        number = number << 8 | (unsigned char)bytes[i];
    return (int32_t)number;
}

int hfi_zk_read_count(struct hfi_zk_answer *answer, struct hfi_zk_count *ret) {
    *ret = (struct hfi_zk_count){0};
    if (answer->err == HFI_ZK_NO_NODE)
        return HF_OK;
    struct hfi_zk_text data;
    if (answer->err != HFI_ZK_OK || hfi_zk_get_data(&answer->body, &data, &ret->stat) != HF_OK)
        return HF_EPROTO;
    ret->there = true;
    ret->is_number = data.len == HFI_ZK_NUMBER_LEN && ret->stat.children_len == 0;
    ret->number = ret->is_number ? read_number(data.bytes) : 0;
    return HF_OK;
}

static bool is_same(const struct hfi_zk_count *a, const struct hfi_zk_count *b) {
    return a->there == b->there && a->stat.czxid == b->stat.czxid &&
           a->stat.version == b->stat.version;
}

/* ---- Changing ---- */

/* Another client was faster, or the counter is of another generation. */
static bool is_outdated(int32_t err) {
    return err == HFI_ZK_NO_NODE || err == HFI_ZK_NODE_EXISTS || err == HFI_ZK_BAD_VERSION;
}

static void changed(struct hfi_zk_call *c) {
    struct hfi_zk_results results;
    if (c->answers[0].err != HFI_ZK_OK) {
        hfi_zk_call_refused(c, c->answers[0].err);
    } else if (hfi_zk_get_results(&c->answers[0].body, &results) != HF_OK) {
        hfi_zk_call_fail_proto(c);
    } else if (results.err == HFI_ZK_OK) {
        c->call->value = c->u.counter.change.value;
        hfi_zk_call_finish(c, HF_OK);
    } else if (results.err == HFI_ZK_NO_AUTH && results.failed_index == 0 &&
               !c->u.counter.unguarded) {
        c->u.counter.unguarded = true;
        read_counter(c);
    } else if (results.err == HFI_ZK_NO_NODE && makes(c) &&
               results.failed_index == !c->u.counter.unguarded) {
        hfi_zk_make_parents(c, counter_of(c)->beneath != NULL ? "" : NULL, read_counter);
    } else if (is_outdated(results.err)) {
        read_counter(c);
    } else {
        hfi_zk_call_refused(c, results.err);
    }
}

static void made_generation(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    if (err == HFI_ZK_NO_NODE) {
        hfi_zk_chroot_missing(c);
    } else if (err == HFI_ZK_OK || err == HFI_ZK_NODE_EXISTS || err == HFI_ZK_NO_AUTH) {
        c->u.counter.unguarded = err == HFI_ZK_NO_AUTH;
        read_counter(c);
    } else {
        hfi_zk_call_refused(c, err);
    }
}

static void make_generation(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {
        .frames = 1, .tolerant = true, .write = write_generation, .answered = made_generation};
    hfi_zk_ask_for(c, &step);
}

static void decide(struct hfi_zk_call *c);

static void verified(struct hfi_zk_call *c) {
    struct hfi_zk_count now;
    int cancelled = c->u.counter.cancelled;
    if (hfi_zk_read_count(&c->answers[1], &now) != HF_OK)
        hfi_zk_call_fail_proto(c);
    else if (is_same(&now, &c->u.counter.found) && cancelled != HF_OK)
        hfi_zk_call_fail(c, cancelled, hf_strerror(cancelled));
    else if (is_same(&now, &c->u.counter.found))
        decide(c);
    else
        hfi_zk_call_fail(c, HF_EINDOUBT, "the reply was lost, and the number has changed since");
}

static void verify(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {
        .frames = 2, .write = write_verify, .answered = verified};
    c->number = 0;
    c->in_doubt = true;
    hfi_zk_ask_for(c, &step);
}

static void change(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {
        .frames = 1, .commits = 1, .write = write_change, .answered = changed, .lost = verify};
    c->number = 0;
    if (!c->u.counter.has_generation && !c->u.counter.unguarded) {
        make_generation(c);
        return;
    }
    c->in_doubt = true;
    hfi_zk_ask_for(c, &step);
}

/* ---- Waiting ---- */

static void go_to_sleep(struct hfi_zk_call *c);

static void woken(struct hfi_zk_call *c) {
    bool engine_events = hfi_zk_seen(&c->queue.watch) != 0;
    if (engine_events)
        read_counter(c);
    else if (hfi_now_ms() >= c->call->deadline_ms)
        hfi_zk_call_fail(c, HF_ETIMEDOUT, counter_of(c)->busy);
    else
        go_to_sleep(c);
}

static void go_to_sleep(struct hfi_zk_call *c) {
    c->woken = woken;
    hfi_zk_sleep(c, hfi_min_ms(c->call->deadline_ms, hfi_now_ms() + STATUS_EVERY_MS));
    if (atomic_load(&c->queue.watch.seen) != 0)
        woken(c); /* the event came with the reply */
}

/* A node that does not exist is watched by `exists`. */
static void got_existence(struct hfi_zk_call *c) {
    if (c->answers[0].err == HFI_ZK_NO_NODE)
        go_to_sleep(c);
    else
        read_counter(c);
}

static void await_change(struct hfi_zk_call *c) {
    static const struct hfi_zk_step exists = {
        .frames = 1, .write = write_exists, .answered = got_existence};
    c->call->contended = true;
    if (is_one_attempt(c)) {
        hfi_zk_call_fail(c, HF_EBUSY, counter_of(c)->busy);
    } else if (c->u.counter.found.there) {
        go_to_sleep(c);
    } else {
        c->number = 0;
        hfi_zk_ask_for(c, &exists);
    }
}

/* ---- Deciding ---- */

static void decide(struct hfi_zk_call *c) {
    struct hfi_zk_change *change_to = &c->u.counter.change;
    const struct hfi_zk_count *found = &c->u.counter.found;
    c->in_doubt = false;
    *change_to = takes(c) ? counter_of(c)->acquire(c->call, found, &c->u.counter.first)
                          : counter_of(c)->object_op(c->call, found);
    if (change_to->err != HF_OK) {
        hfi_zk_call_fail(c, change_to->err, change_to->text);
    } else if (change_to->what == HFI_ZK_AWAIT) {
        await_change(c);
    } else if (change_to->what == HFI_ZK_LEAVE) {
        c->call->value = change_to->value;
        hfi_zk_call_finish(c, HF_OK);
    } else if (change_to->what == HFI_ZK_STORE &&
               (change_to->number > INT32_MAX || change_to->number < INT32_MIN)) {
        hfi_zk_call_fail(c, HF_EINVAL, "a number in ZooKeeper can be at most 2147483647");
    } else {
        change(c);
    }
}

/* False: the call is over. */
static bool read_generation(struct hfi_zk_call *c) {
    struct hfi_zk_answer *answer = &c->answers[1];
    struct hfi_zk_text data;
    struct hfi_zk_stat stat;
    c->u.counter.has_generation = answer->err == HFI_ZK_OK;
    if (answer->err == HFI_ZK_NO_AUTH)
        c->u.counter.unguarded = true;
    else if (answer->err == HFI_ZK_OK && hfi_zk_get_data(&answer->body, &data, &stat) == HF_OK)
        c->u.counter.generation = stat.version;
    else if (answer->err != HFI_ZK_NO_NODE) {
        hfi_zk_call_fail_proto(c);
        return false;
    }
    return true;
}

static void got_counter(struct hfi_zk_call *c) {
    struct hfi_zk_count *found = &c->u.counter.found;
    int32_t err = c->answers[2].err;
    if (err != HFI_ZK_OK && err != HFI_ZK_NO_NODE) {
        hfi_zk_call_refused(c, err);
        return;
    }
    if (!read_generation(c))
        return;
    if (hfi_zk_read_count(&c->answers[2], found) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    if (!c->u.counter.was_read)
        c->u.counter.first = *found;
    c->u.counter.was_read = true;
    decide(c);
}

/* Set before reading, so that no change is missed. */
static int watch(struct hfi_zk_call *c) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_unwatch(c->zk->watches, &c->queue.watch);
    if (!takes(c) || is_one_attempt(c))
        return HF_OK;
    size_t len = write_path(c, path);
    return hfi_zk_watch(c->zk->watches, &c->queue.watch, path, len, "", 0, c->call->task,
                        HFI_ZK_EVENT_WATCH);
}

static void read_counter(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {
        .frames = 3, .tolerant = true, .write = write_read, .answered = got_counter};
    int cancelled = c->u.counter.cancelled;
    c->number = 0;
    c->in_doubt = false;
    if (cancelled != HF_OK)
        hfi_zk_call_fail(c, cancelled, hf_strerror(cancelled));
    else if (watch(c) == HF_OK)
        hfi_zk_ask_for(c, &step);
    else
        hfi_zk_call_fail(c, HF_ENOMEM, "out of memory");
}

/* ---- The table ---- */

static void begin_acquire(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->u.counter.of = call->kind->engine_private;
    c->u.counter.takes = true;
    c->session_over = read_counter; /* it is bound to no session */
    c->waits = !is_one_attempt(c);
    if (!c->waits)
        c->end_ms = hfi_after_ms(call->start_ms, c->zk->cmd_timeout_ms);
    read_counter(c);
}

void hfi_zk_counter_object_op(struct hfi_call *call, const struct hfi_zk_counter *counter) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->u.counter.of = counter;
    c->session_over = read_counter;
    read_counter(c);
}

static void object_op(struct hfi_call *call) {
    hfi_zk_counter_object_op(call, call->kind->engine_private);
}

/* A cancel while a change is in flight: the call ends with the reply to that change, or without one
 * after the command timeout. Closing the client does not wait for it. */
static void cancel(struct hfi_call *call, int err) {
    struct hfi_zk_call *c = hfi_zk_call_of(call);
    if (c->phase == HFI_ZK_IDLE || !c->in_doubt || err != HF_ECANCELED) {
        hfi_zk_call_cancel(call, err);
        return;
    }
    c->u.counter.cancelled = err;
    c->end_ms = hfi_min_ms(c->end_ms, hfi_after_ms(hfi_now_ms(), c->zk->cmd_timeout_ms));
    c->limit_ms = hfi_min_ms(c->limit_ms, c->end_ms);
}

const struct hfi_call_ops hfi_zk_counter_ops = {
    .call_size = sizeof(struct hfi_zk_call),
    .acquire = begin_acquire,
    .object_op = object_op,
    .step = hfi_zk_call_step,
    .cancel = cancel,
};
