/*
 * Standing in line: how a lock of any kind is acquired.
 *
 *   create + list ─▶ held                                                         done
 *        │           not yet: watch the one before us ─▶ asleep ─▶ its end: held if our node is there, or list again
 *        ├ no parent: make it, and again
 *        └ answer lost: sync + list, look for our uuid ─▶ found: go on; not found: create again
 *
 * A session's requests are carried out in order, so the list that is asked for in the same write shows
 * the node. A node that was created by a request whose answer was lost is found by its uuid, which is
 * drawn anew for each acquire (search.c).
 *
 * Runs on the thread of the call's executor. A wait that ends in vain leaves its node to the
 * settlement (verbs.c).
 */
#include "zk/line.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define LOOK_AGAIN_MS 10000 /* who is asleep shows a sign of life that often */

static void create(struct hfi_zk_call *c);
static void list(struct hfi_zk_call *c);
static void granted(struct hfi_zk_call *c);

/* ---- Small things ---- */

/* Who wants the lock only for a moment, to do something else with it, waits for it even if there is to
 * be one attempt. */
static bool tries_once(const struct hfi_zk_call *c) {
    return hfi_zk_tries_once(c->call) && c->kind->granted == NULL;
}

static int64_t deadline_ms(const struct hfi_zk_call *c) {
    return hfi_zk_tries_once(c->call) ? c->end_ms : c->call->deadline_ms;
}

static void timed_out(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, hfi_zk_tries_once(c->call) ? HF_EBUSY : HF_ETIMEDOUT,
                     "another owner held the lock all the time");
}

static void wrong_type(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, HF_EWRONGTYPE, "what has this name is something else");
}

/* What we had is gone, or was of another session: a new node, at the end of the line. */
static void begin_anew(struct hfi_zk_call *c) {
    hfi_zk_unwatch(c->zk->watches, &c->line.watch);
    c->line = (struct hfi_zk_line){0};
    c->number = 0;
    c->leaves = false;
    if (hfi_now_ms() >= c->limit_ms)
        timed_out(c);
    else
        create(c);
}

static void write_list(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_line_path(c, path);
    hfi_zk_put_get_children(out, 0, path, false);
}

/* ---- The grant ---- */

static void checked(struct hfi_zk_call *c) {
    int32_t refusal;
    c->line.proved = true;
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

/* How much has to be left: until the next heartbeat is sent, and answered. */
static int64_t stale_ms(const struct hfi_zk_credit *credit) {
    return credit->timeout_ms / 16 * 5;
}

/* It is ours, as far as a follower knows. What that is worth is what the session is worth: if that is
 * little, the leader is asked first, or the lock would be lost as soon as it was got. After we have
 * stood still for long (the process was stopped, the machine slept), not even that answer proves enough,
 * since there was nothing before it: a handshake does, at once. */
static void granted(struct hfi_zk_call *c) {
    struct hfi_call *call = c->call;
    struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    int64_t left_ms = credit.good_until_ms - hfi_now_ms();
    int64_t wanted_ms = c->kind->granted != NULL ? stale_ms(&credit) : credit.timeout_ms / 2;
    if (credit.number != c->number) {
        begin_anew(c);
        return;
    }
    if (!c->line.proved && left_ms < wanted_ms) {
        hfi_zk_ask_for(c, &check_step);
        return;
    }
    if (left_ms < stale_ms(&credit)) {
        hfi_zk_session_distrust(c->zk->session);
        list(c);
        return;
    }
    if (c->kind->granted != NULL) {
        c->kind->granted(c);
        return;
    }
    call->value = 1;
    call->token = c->line.token;
    call->proof = hfi_zk_proof(&credit, call->lease_ms);
    const struct hfi_zk_held held = {.number = c->number,
                                     .token = c->line.token,
                                     .count = 1,
                                     .promised_until_ms = call->proof.promised_until_ms,
                                     .node = c->line.node,
                                     .beneath = "/"};
    const struct hfi_zk_place place = hfi_zk_place_of(call);
    if (hfi_zk_remember(c->zk, &place, &held) == HF_OK) {
        char path[HFI_ZK_PATH_MAX];
        hfi_zk_call_node_path(c, "/", &c->line.node, path);
        hfi_zk_watched_is_first(c->zk->watches, path);
        hfi_zk_call_finish(c, HF_OK);
    } else {
        hfi_zk_call_fail(c, HF_ENOMEM, "out of memory");
    }
}

/* ---- Waiting ---- */

static void sleep_in_line(struct hfi_zk_call *c);

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
    hfi_zk_line_node_path(c, &c->line.node, path);
    hfi_zk_put_get_data(out, 0, path, false);
}

/* The one before us is gone. So may we be: somebody has deleted our node, or closed our session, and of that no message
 * comes. A server shows what has happened in order, so one that has told us of the first shows us the second. */
static const struct hfi_zk_step ours_step = {
    .frames = 1, .write = write_ours, .answered = found_ours, .lost = list};

static void woken(struct hfi_zk_call *c) {
    unsigned seen = hfi_zk_seen(&c->line.watch);
    bool only = c->line.only || atomic_load(&c->line.watch.first);
    if (seen == 0 && hfi_now_ms() >= deadline_ms(c)) {
        timed_out(c);
    } else if (seen == 0) {
        sleep_in_line(c);
    } else {
        hfi_zk_unwatch(c->zk->watches, &c->line.watch);
        c->line.proved = false;
        c->call->told_us = hfi_now_us();
        if (seen == HFI_ZK_SEEN_DELETED && only && c->kind->by_event)
            hfi_zk_ask_for(c, &ours_step);
        else
            list(c);
    }
}

static void sleep_in_line(struct hfi_zk_call *c) {
    c->woken = woken;
    hfi_zk_sleep(c, hfi_min_ms(deadline_ms(c), hfi_now_ms() + LOOK_AGAIN_MS));
}

static void write_watch(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    hfi_zk_put_get_data(out, 0, hfi_zk_watched_path(&c->line.watch), true);
}

static void watched(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    if (err == HFI_ZK_OK) {
        sleep_in_line(c);
        if (atomic_load(&c->line.watch.seen) != 0)
            woken(c); /* it came with the answer */
    } else if (err == HFI_ZK_NO_NODE) {
        hfi_zk_unwatch(c->zk->watches, &c->line.watch);
        list(c);
    } else {
        hfi_zk_call_refused(c, err);
    }
}

static const struct hfi_zk_step watch_step = {
    .frames = 1, .write = write_watch, .answered = watched, .lost = list};

static void wait_for(struct hfi_zk_call *c, const struct hfi_zk_look *look) {
    char path[HFI_ZK_PATH_MAX];
    size_t len = hfi_zk_line_path(c, path);
    path[len++] = '/';
    c->line.only = look->only;
    int err = hfi_zk_watch(c->zk->watches, &c->line.watch, path, len, look->watch.bytes,
                           look->watch.len, c->call->task, HFI_ZK_EVENT_WATCH);
    if (err == HF_OK)
        hfi_zk_ask_for(c, &watch_step);
    else
        hfi_zk_call_fail(c, err, "out of memory");
}

/* ---- Robbed ---- */

/* The number that we borrowed is worth nothing, since who lent it is gone: another one is drawn, as by
 * anybody else. */
static void robbed(struct hfi_zk_call *c) {
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

static void write_robbed(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_line_node_path(c, &c->line.node, path);
    hfi_zk_put_delete(out, 0, path, HFI_ZK_ANY_VERSION);
}

static const struct hfi_zk_step robbed_step = {
    .frames = 1, .commits = 1, .write = write_robbed, .answered = robbed};

/* ---- Looking ---- */

/* A server counts up to the largest number and then gives that one to everybody, so it says nothing of
 * who was first; what is negative is of a server that counts on, or was about to. */
static bool says_nothing(int32_t number) {
    return number == INT32_MAX || number < 0;
}

/* Who is refused leaves, so the line gets empty, and servers delete what is empty. */
static void no_more_numbers(struct hfi_zk_call *c) {
    hfi_zk_call_fail(
        c, HF_EREFUSED,
        "ZooKeeper has no more numbers for those who wait: the node has to be deleted");
}

static void look_at(struct hfi_zk_call *c, struct hfi_zk_in *body) {
    struct hfi_zk_children line;
    if (hfi_zk_get_children(body, &line) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    c->line.node.borrowed = c->line.borrows;
    struct hfi_zk_look look = c->kind->look(line, &c->line.node);
    c->call->contended = c->call->contended || !look.held;
    if (look.wrong)
        wrong_type(c);
    else if (!look.found)
        begin_anew(c);
    else if (says_nothing(c->line.node.number))
        no_more_numbers(c);
    else if (look.robbed)
        hfi_zk_ask_for(c, &robbed_step);
    else if (look.held)
        granted(c);
    else if (tries_once(c))
        hfi_zk_call_fail(c, HF_EBUSY, "another owner holds the lock");
    else if (hfi_now_ms() >= deadline_ms(c))
        timed_out(c);
    else
        wait_for(c, &look);
}

static void listed(struct hfi_zk_call *c) {
    if (c->answers[0].err == HFI_ZK_OK)
        look_at(c, &c->answers[0].body);
    else if (c->answers[0].err == HFI_ZK_NO_NODE)
        begin_anew(c);
    else
        hfi_zk_call_refused(c, c->answers[0].err);
}

static const struct hfi_zk_step list_step = {.frames = 1, .write = write_list, .answered = listed};

static void list(struct hfi_zk_call *c) {
    hfi_zk_unwatch(c->zk->watches, &c->line.watch);
    c->line.proved = false;
    hfi_zk_ask_for(c, &list_step);
}

/* ---- Creating ---- */

static void searched(struct hfi_zk_call *c) {
    if (c->line.made)
        list(c);
    else
        create(c); /* it was not carried out, and never will be: the old connection is refused */
}

static void create_lost(struct hfi_zk_call *c) {
    hfi_zk_line_search(c, searched);
}

static void write_create(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX], data[HFI_ZK_DATA_MAX];
    const struct hfi_call *call = c->call;
    size_t data_len = hfi_zk_data_write(call->owner, call->owner_len, c->zk->who, data);
    size_t len = hfi_zk_line_path(c, path);
    path[len] = '/';
    if (c->line.borrows)
        hfi_zk_node_name(&c->line.node, path + len + 1);
    else
        hfi_zk_node_stem(c->kind->label, c->line.uuid, path + len + 1);
    hfi_zk_put_create(out, 0, path, data, data_len,
                      c->line.borrows ? HFI_ZK_EPHEMERAL : HFI_ZK_EPHEMERAL_SEQUENTIAL, c->zk->acl);
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
    c->line.node = hfi_zk_node_parse(slash + 1, path.len - (size_t)(slash + 1 - path.bytes));
    c->line.token = stat.czxid;
    c->line.made = c->line.node.label == c->kind->label && c->line.node.has_uuid &&
                   memcmp(c->line.node.uuid, c->line.uuid, HFI_ZK_UUID_LEN) == 0;
    return c->line.made;
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
        c->line.proved = false;
        look_at(c, &c->answers[1].body);
    }
}

static const struct hfi_zk_step create_step = {.frames = 2,
                                               .commits = 1,
                                               .leaves = true,
                                               .write = write_create,
                                               .answered = created,
                                               .lost = create_lost};

/* Whether our owner has a number already that this lock goes with; then it is about that session. */
static bool borrow_number(struct hfi_zk_call *c) {
    struct hfi_zk_place place = hfi_zk_place_of(c->call);
    struct hfi_zk_held lender;
    place.kind = c->kind->borrows_from;
    if (place.kind == NULL || !hfi_zk_nodes_find(c->zk->nodes, &place, &lender) ||
        lender.number != hfi_zk_session_credit(c->zk->session).number)
        return false;
    c->number = lender.number;
    c->line.node.label = c->kind->label;
    c->line.node.number = lender.node.number;
    memcpy(c->line.node.uuid, c->line.uuid, sizeof c->line.node.uuid);
    return true;
}

static void create(struct hfi_zk_call *c) {
    if (!c->line.drawn &&
        getrandom(c->line.uuid, sizeof c->line.uuid, 0) != (ssize_t)sizeof c->line.uuid) {
        hfi_fail_errno(&c->call->error, HF_ESYS, errno, "no random numbers");
        hfi_zk_call_finish(c, HF_ESYS);
        return;
    }
    if (!c->line.drawn) { /* a random one says so of itself */
        c->line.uuid[6] = (unsigned char)((c->line.uuid[6] & 0x0f) | 0x40);
        c->line.uuid[8] = (unsigned char)((c->line.uuid[8] & 0x3f) | 0x80);
    }
    c->line.drawn = true;
    c->line.borrows = borrow_number(c);
    hfi_zk_ask_for(c, &create_step);
}

/* ---- One attempt ---- */

static void peeked(struct hfi_zk_call *c) {
    struct hfi_zk_children line = {.len = 0};
    int32_t err = c->answers[0].err;
    if (err != HFI_ZK_OK && err != HFI_ZK_NO_NODE) {
        hfi_zk_call_refused(c, err);
        return;
    }
    if (err == HFI_ZK_OK && hfi_zk_get_children(&c->answers[0].body, &line) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    struct hfi_zk_look look = c->kind->look(line, NULL);
    c->call->contended = !look.held;
    c->number = 0;
    if (look.wrong)
        wrong_type(c);
    else if (look.held)
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

/* ---- What this owner left behind ---- */

static void nothing_left(struct hfi_zk_call *c) {
    const struct hfi_zk_place place = hfi_zk_place_of(c->call);
    hfi_zk_forget(c->zk, &place);
    c->session_over = begin_anew;
    c->number = 0;
    go(c);
}

static void write_leftover(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_call_node_path(c, c->held.beneath, &c->held.node, path);
    hfi_zk_put_delete(out, 0, path, HFI_ZK_ANY_VERSION);
}

static const struct hfi_zk_step leftover_step = {
    .frames = 1, .commits = 1, .write = write_leftover, .answered = nothing_left};

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
    } else if (there) { /* it would wait for itself */
        c->number = c->held.number;
        c->session_over = nothing_left;
        hfi_zk_ask_for(c, &leftover_step);
    } else {
        go(c);
    }
}

/* ---- For kinds that do something else with the lock ---- */

void hfi_zk_line_up(struct hfi_zk_call *c) {
    c->session_over = begin_anew;
    create(c);
}

void hfi_zk_line_begin_anew(struct hfi_zk_call *c) {
    begin_anew(c);
}

void hfi_zk_line_look(struct hfi_zk_call *c) {
    list(c);
}
