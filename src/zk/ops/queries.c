/*
 * Queries about a lock, and breaking it. Both list the queue first.
 *
 * Run on the thread of the call's executor. The replies are of different moments; nothing is
 * decided by them. A break deletes the nodes of the holders that it listed, and no later ones. One
 * multi deletes all of them. If there are more readers than a request has room for, each batch is a
 * multi; while some are left, writers wait.
 */
#include "base/clock.h"
#include "zk/ops/queue.h"

#include <assert.h>
#include <string.h>

/* Limits of one multi of a break. A server accepts 1 MiB, and does nothing else meanwhile. */
#define PIECE_NODES 1000
#define PIECE_BYTES (256 * 1024)

static void nothing_is_over(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, HF_EUNREACH,
                     "the ZooKeeper session has ended"); /* queries run in any session */
}

static void write_list(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_call_path(c, path);
    hfi_zk_put_get_children(out, 0, path, false);
}

/* Parses the queue from the first reply and keeps that reply. False: the call is over. */
static bool read_queue(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    c->number = 0;
    c->u.query.queue = (struct hfi_zk_children){.len = 0};
    if (err == HFI_ZK_NO_NODE)
        return true;
    if (err != HFI_ZK_OK) {
        hfi_zk_call_refused(c, err);
        return false;
    }
    if (hfi_zk_get_children(&c->answers[0].body, &c->u.query.queue) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return false;
    }
    c->u.query.queue_head = hfi_zk_queue_head_of(c->u.query.queue);
    hfi_zk_keep_answer(c, 0);
    return true;
}

/* The next holder; `walk` continues behind it. */
static bool next_holder(const struct hfi_zk_call *c, struct hfi_zk_children *walk,
                        struct hfi_zk_text *ret_name) {
    while (hfi_zk_next_child(walk, ret_name)) {
        struct hfi_zk_node node = hfi_zk_node_parse(ret_name->bytes, ret_name->len);
        if (node.label == c->kind->label && c->kind->holds(&c->u.query.queue_head, &node))
            return true;
    }
    return false;
}

static bool write_child_path(const struct hfi_zk_call *c, struct hfi_zk_text child,
                             char to[HFI_ZK_PATH_MAX]) {
    size_t len = hfi_zk_call_path(c, to);
    if (len + 1 + child.len + 1 > HFI_ZK_PATH_MAX)
        return false;
    to[len++] = '/';
    memcpy(to + len, child.bytes, child.len);
    to[len + child.len] = '\0';
    return true;
}

/* ---- Break ---- */

static void break_again(struct hfi_zk_call *c);

/* Whether a writer that holds the lock has this number. */
static bool is_writers(const struct hfi_zk_queue_head *queue_head, int32_t number) {
    return queue_head->writer.there && queue_head->writer.number == number &&
           !hfi_zk_before(queue_head->either.number, number);
}

/* The next node to delete: a holder's. The read node of a writer goes with its write node, not with
 * the readers. No recipe makes names longer than ours. */
static bool next_victim(const struct hfi_zk_call *c, struct hfi_zk_children *walk,
                        struct hfi_zk_text *ret_name) {
    const struct hfi_zk_queue_head *queue_head = &c->u.query.queue_head;
    while (hfi_zk_next_child(walk, ret_name)) {
        if (ret_name->len >= HFI_ZK_NODE_TEXT)
            continue;
        struct hfi_zk_node node = hfi_zk_node_parse(ret_name->bytes, ret_name->len);
        bool by_writer = node.label == HFI_ZK_READ && is_writers(queue_head, node.number);
        enum hfi_zk_label side = by_writer ? HFI_ZK_WRITE : node.label;
        if (side == c->kind->label && (by_writer || c->kind->holds(queue_head, &node)))
            return true;
    }
    return false;
}

static void write_break(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    struct hfi_zk_children walk = c->u.query.walk;
    struct hfi_zk_text child;
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_multi_begin(out, 0);
    for (size_t i = 0;
         i < c->u.query.piece && out->len < PIECE_BYTES && next_victim(c, &walk, &child); i++) {
        bool fits = write_child_path(c, child, path);
        assert(fits);
        (void)fits;
        hfi_zk_multi_delete(out, path, HFI_ZK_ANY_VERSION);
    }
    hfi_zk_multi_end(out);
}

static void broken(struct hfi_zk_call *c);
static const struct hfi_zk_step break_step = {
    .frames = 1, .commits = 1, .write = write_break, .answered = broken};

/* Deletes the next holders, at most `piece` at once. If none is left, and none existed for us to
 * delete, another owner may hold the lock by now: list again. */
static void break_next(struct hfi_zk_call *c, size_t piece) {
    struct hfi_zk_children walk = c->u.query.walk;
    struct hfi_zk_text child;
    c->resent = false;
    c->u.query.piece = piece < PIECE_NODES ? piece : PIECE_NODES;
    if (next_victim(c, &walk, &child))
        hfi_zk_ask_for(c, &break_step);
    else if (c->call->value > 0)
        hfi_zk_call_finish(c, HF_OK);
    else
        break_again(c);
}

static void pass_over(struct hfi_zk_call *c, size_t count) {
    struct hfi_zk_text child;
    while (count-- > 0)
        next_victim(c, &c->u.query.walk, &child);
}

/* One node of the batch is gone, so the multi did nothing. First delete the nodes before it, which
 * exist. It left by itself, or, if we resent after a lost reply, our own first delete removed it.
 * Later nodes may be gone for the same reason, so go on one at a time until one still exists. */
static void break_without(struct hfi_zk_call *c, size_t gone) {
    if (gone > 0) {
        break_next(c, gone);
        return;
    }
    if (c->resent)
        c->call->value = 1;
    pass_over(c, 1);
    break_next(c, 1);
}

static void broken(struct hfi_zk_call *c) {
    struct hfi_zk_results results;
    if (c->answers[0].err != HFI_ZK_OK) {
        hfi_zk_call_refused(c, c->answers[0].err);
    } else if (hfi_zk_get_results(&c->answers[0].body, &results) != HF_OK || results.len == 0 ||
               results.len > c->u.query.piece) {
        hfi_zk_call_fail_proto(c);
    } else if (results.err == HFI_ZK_NO_NODE) {
        break_without(c, results.failed_index);
    } else if (results.err == HFI_ZK_OK) {
        c->call->value = 1;
        pass_over(c, results.len);
        break_next(c, 2 * c->u.query.piece);
    } else {
        hfi_zk_call_refused(c, results.err);
    }
}

static void break_listed(struct hfi_zk_call *c) {
    struct hfi_zk_text child;
    if (!read_queue(c))
        return;
    struct hfi_zk_children walk = c->u.query.queue;
    c->u.query.walk = c->u.query.queue;
    if (c->kind->read_queue(c->u.query.queue, NULL).wrong)
        hfi_zk_call_fail(c, HF_EWRONGTYPE, "the name is used for something else");
    else if (next_victim(c, &walk, &child))
        break_next(c, PIECE_NODES);
    else
        hfi_zk_call_finish(c, HF_OK);
}

static const struct hfi_zk_step break_list_step = {
    .frames = 1, .write = write_list, .answered = break_listed};

static void break_again(struct hfi_zk_call *c) {
    hfi_zk_ask_for(c, &break_list_step);
}

void hfi_zk_break(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->session_over = break_again;
    break_again(c);
}

/* ---- Queries ---- */

static void next_owner(struct hfi_zk_call *c);

static void write_data(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    if (!write_child_path(c, c->u.query.child, path))
        hfi_zk_call_path(c, path); /* no holdfast node has such a name */
    hfi_zk_put_get_data(out, 0, path, false);
}

static void data_answered(struct hfi_zk_call *c) {
    struct hfi_zk_text data;
    struct hfi_zk_stat stat;
    struct hfi_zk_data says;
    const struct hfi_call *call = c->call;
    if (c->answers[0].err == HFI_ZK_OK &&
        hfi_zk_get_data(&c->answers[0].body, &data, &stat) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    c->call->value = c->answers[0].err == HFI_ZK_OK && hfi_zk_data_parse(data, &says) &&
                     says.owner.len == call->owner_len &&
                     memcmp(says.owner.bytes, call->owner, call->owner_len) == 0;
    if (c->call->value > 0)
        hfi_zk_call_finish(c, HF_OK);
    else
        next_owner(c);
}

static const struct hfi_zk_step data_step = {
    .frames = 1, .write = write_data, .answered = data_answered};

/* Asks for the data of the next holder: is it this owner? */
static void next_owner(struct hfi_zk_call *c) {
    if (next_holder(c, &c->u.query.walk, &c->u.query.child))
        hfi_zk_ask_for(c, &data_step);
    else
        hfi_zk_call_finish(c, HF_OK);
}

static void asked(struct hfi_zk_call *c) {
    struct hfi_zk_text child;
    if (!read_queue(c))
        return;
    c->u.query.walk = c->u.query.queue;
    if (c->call->query == HFI_QUERY_COUNT) {
        next_owner(c);
        return;
    }
    bool held = next_holder(c, &c->u.query.walk, &child);
    if (c->call->query == HFI_QUERY_LOCKED)
        c->call->value = held;
    else
        /* ZooKeeper does not say how long another owner keeps it */
        c->call->value = held ? -1 : -2;
    hfi_zk_call_finish(c, HF_OK);
}

static const struct hfi_zk_step ask_step = {.frames = 1, .write = write_list, .answered = asked};

static void write_ping(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    const char *chroot = c->zk->names.chroot;
    hfi_zk_put_exists(out, 0, chroot[0] != '\0' ? chroot : "/", false);
}

static void pinged(struct hfi_zk_call *c) {
    if (c->answers[0].err == HFI_ZK_NO_NODE)
        hfi_zk_call_fail(c, HF_EINVAL, "the url's node does not exist; create it first");
    else if (c->answers[0].err != HFI_ZK_OK)
        hfi_zk_call_refused(c, c->answers[0].err);
    else
        hfi_zk_call_finish(c, HF_OK);
}

static const struct hfi_zk_step ping_step = {.frames = 1, .write = write_ping, .answered = pinged};

/* Of this owner's own hold the table knows more than the server. */
static bool knows_itself(struct hfi_zk_call *c) {
    struct hfi_call *call = c->call;
    const struct hfi_zk_place place = hfi_zk_place_of(call);
    struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    int64_t now_ms = hfi_now_ms();
    if (call->query == HFI_QUERY_LOCKED || credit.good_until_ms <= now_ms ||
        !hfi_zk_nodes_find(c->zk->nodes, &place, &c->held) || c->held.number != credit.number)
        return false;
    call->value = c->held.count;
    if (call->query == HFI_QUERY_TTL)
        call->value = hfi_min_ms(c->held.promised_until_ms, credit.good_until_ms) - now_ms;
    return true;
}

void hfi_zk_ask(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->session_over = nothing_is_over;
    if (call->query == HFI_QUERY_PING)
        hfi_zk_ask_for(c, &ping_step);
    else if (knows_itself(c))
        hfi_zk_call_finish(c, HF_OK);
    else
        hfi_zk_ask_for(c, &ask_step);
}
