/*
 * What is done to a number that nobody owns: look, decide (semaphore.c, latch.c), change it on condition
 * that it is still the same; and wait for it to change.
 *
 * Called by src/core through the engine's tables, on the thread of the call's executor. Nothing on the
 * server tells who changed a number. So a change whose answer was lost is looked for behind a sync: if
 * everything is as it was before, it was not made and never will be, since the leader refuses what an
 * old connection had on its way; else nobody knows, and that is the call's answer (HF_EUNKNOWN).
 */
#include "zk/counter.h"

#include "base/clock.h"
#include "zk/line.h"

#include <string.h>

#define LOOK_UP_MS 10000 /* who sleeps says so that often */

static const struct hfi_zk_counter *counter_of(const struct hfi_zk_call *c) {
    return c->u.counter.of;
}

static size_t write_path(const struct hfi_zk_call *c, char to[HFI_ZK_PATH_MAX]) {
    const char *beneath = counter_of(c)->beneath != NULL ? counter_of(c)->beneath : "";
    size_t len = hfi_zk_call_path(c, to);
    memcpy(to + len, beneath, strlen(beneath) + 1);
    return len + strlen(beneath);
}

static void look(struct hfi_zk_call *c);

/* ---- What is asked ---- */

static bool takes(const struct hfi_zk_call *c) {
    return c->u.counter.takes;
}

static bool is_one_attempt(const struct hfi_zk_call *c) {
    return c->call->deadline_ms <= c->call->start_ms;
}

static void write_look(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
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

static void write_change(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    const struct hfi_zk_change *change = &c->u.counter.change;
    const struct hfi_zk_count *found = &c->u.counter.found;
    char path[HFI_ZK_PATH_MAX];
    unsigned char data[HFI_ZK_NUMBER_LEN];
    for (size_t i = 0; i < HFI_ZK_NUMBER_LEN; i++)
        data[i] = (unsigned char)((uint32_t)change->number >> (24 - 8 * i));
    write_path(c, path);
    if (change->what == HFI_ZK_REMOVE)
        hfi_zk_put_delete(out, 0, path, found->stat.version);
    else if (found->there)
        hfi_zk_put_set_data(out, 0, path, data, sizeof data, found->stat.version);
    else
        hfi_zk_put_create(out, 0, path, data, sizeof data, HFI_ZK_PERSISTENT, c->zk->acl);
}

/* ---- Looking ---- */

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

static void changed(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    bool makes = c->u.counter.change.what == HFI_ZK_STORE && !c->u.counter.found.there;
    if (err == HFI_ZK_OK) {
        c->call->value = c->u.counter.change.value;
        hfi_zk_call_finish(c, HF_OK);
    } else if (err == HFI_ZK_NO_NODE && makes) {
        hfi_zk_make_parents(c, counter_of(c)->beneath != NULL ? "" : NULL, look);
    } else if (err == HFI_ZK_NO_NODE || err == HFI_ZK_NODE_EXISTS || err == HFI_ZK_BAD_VERSION) {
        look(c); /* somebody else was faster */
    } else {
        hfi_zk_call_refused(c, err);
    }
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
        hfi_zk_call_fail(c, HF_EUNKNOWN, "the answer was lost, and others have been there since");
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
    c->in_doubt = true;
    hfi_zk_ask_for(c, &step);
}

/* ---- Waiting ---- */

static void go_to_sleep(struct hfi_zk_call *c);

static void woken(struct hfi_zk_call *c) {
    bool news = hfi_zk_seen(&c->line.watch) != 0;
    if (news)
        look(c);
    else if (hfi_now_ms() >= c->call->deadline_ms)
        hfi_zk_call_fail(c, HF_ETIMEDOUT, counter_of(c)->busy);
    else
        go_to_sleep(c);
}

static void go_to_sleep(struct hfi_zk_call *c) {
    c->woken = woken;
    hfi_zk_sleep(c, hfi_min_ms(c->call->deadline_ms, hfi_now_ms() + LOOK_UP_MS));
    if (atomic_load(&c->line.watch.seen) != 0)
        woken(c); /* it came with the answer */
}

/* What is not there is watched by asking whether it exists. */
static void existence_told(struct hfi_zk_call *c) {
    if (c->answers[0].err == HFI_ZK_NO_NODE)
        go_to_sleep(c);
    else
        look(c);
}

static void await_change(struct hfi_zk_call *c) {
    static const struct hfi_zk_step exists = {
        .frames = 1, .write = write_exists, .answered = existence_told};
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
                          : counter_of(c)->act(c->call, found);
    if (change_to->err != HF_OK) {
        hfi_zk_call_fail(c, change_to->err, change_to->words);
    } else if (change_to->what == HFI_ZK_AWAIT) {
        await_change(c);
    } else if (change_to->what == HFI_ZK_LEAVE) {
        c->call->value = change_to->value;
        hfi_zk_call_finish(c, HF_OK);
    } else if (change_to->what == HFI_ZK_STORE &&
               (change_to->number > INT32_MAX || change_to->number < INT32_MIN)) {
        hfi_zk_call_fail(c, HF_EINVAL, "numbers in ZooKeeper end at 2147483647");
    } else {
        change(c);
    }
}

static void looked(struct hfi_zk_call *c) {
    struct hfi_zk_count *found = &c->u.counter.found;
    if (hfi_zk_read_count(&c->answers[0], found) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    if (!c->u.counter.looked)
        c->u.counter.first = *found;
    c->u.counter.looked = true;
    decide(c);
}

/* So that nothing that happens from now on is missed. */
static int watch(struct hfi_zk_call *c) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_unwatch(c->zk->watches, &c->line.watch);
    if (!takes(c) || is_one_attempt(c))
        return HF_OK;
    size_t len = write_path(c, path);
    return hfi_zk_watch(c->zk->watches, &c->line.watch, path, len, "", 0, c->call->task,
                        HFI_ZK_EVENT_WATCH);
}

static void look(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {.frames = 1, .write = write_look, .answered = looked};
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
    c->session_over = look; /* it is about no session in particular */
    c->waits = !is_one_attempt(c);
    if (!c->waits)
        c->end_ms = hfi_after_ms(call->start_ms, c->zk->cmd_timeout_ms);
    look(c);
}

void hfi_zk_counter_act(struct hfi_call *call, const struct hfi_zk_counter *counter) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->u.counter.of = counter;
    c->session_over = look;
    look(c);
}

static void act(struct hfi_call *call) {
    hfi_zk_counter_act(call, call->kind->engine_private);
}

/* Somebody wants an end of it while a change is under way: its answer is what the call ends with, which
 * comes, or does not, within the time of an exchange. Who closes the client does not wait for it. */
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
    .act = act,
    .step = hfi_zk_call_step,
    .cancel = cancel,
};
