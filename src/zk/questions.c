/*
 * Questions about a lock, and breaking it. Both look at the line first.
 *
 * Run on the thread of the call's executor. What is asked comes from different moments; nothing is
 * decided by it. A break deletes the nodes of those who held the lock when it looked, and nobody else's: who comes after
 * them is left alone. That is one step for all of them, or, of more readers than a request has room for, one for each piece;
 * as long as some are left, writers wait.
 */
#include "base/clock.h"
#include "zk/line.h"

#include <assert.h>
#include <string.h>

/* Of a break, in one step. A server takes 1 MiB, and does nothing else meanwhile. */
#define PIECE_NODES 1000
#define PIECE_BYTES (256 * 1024)

static void nothing_is_over(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, HF_EUNREACH,
                     "the session with ZooKeeper is over"); /* asked in any session */
}

static void write_list(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_call_path(c, path);
    hfi_zk_put_get_children(out, 0, path, false);
}

/* The line out of the first answer, which is kept. False: the call is over. */
static bool read_line(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    c->number = 0;
    c->u.look.line = (struct hfi_zk_children){.len = 0};
    if (err == HFI_ZK_NO_NODE)
        return true;
    if (err != HFI_ZK_OK) {
        hfi_zk_call_refused(c, err);
        return false;
    }
    if (hfi_zk_get_children(&c->answers[0].body, &c->u.look.line) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return false;
    }
    c->u.look.front = hfi_zk_front_of(c->u.look.line);
    hfi_zk_keep_answer(c, 0);
    return true;
}

/* The next of those who hold it; `walk` goes on behind it. */
static bool next_holder(const struct hfi_zk_call *c, struct hfi_zk_children *walk,
                        struct hfi_zk_text *ret_name) {
    while (hfi_zk_next_child(walk, ret_name)) {
        struct hfi_zk_node node = hfi_zk_node_parse(ret_name->bytes, ret_name->len);
        if (node.label == c->kind->label && c->kind->holds(&c->u.look.front, &node))
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

static void force_again(struct hfi_zk_call *c);

/* Whether a writer that holds it has this number. */
static bool is_writers(const struct hfi_zk_front *front, int32_t number) {
    return front->writer.there && front->writer.number == number &&
           !hfi_zk_before(front->either.number, number);
}

/* The next whose node has to go: a holder's. What a writer reads goes with its writing, and not with the
 * readers'. No recipe makes names that are longer than ours. */
static bool next_victim(const struct hfi_zk_call *c, struct hfi_zk_children *walk,
                        struct hfi_zk_text *ret_name) {
    const struct hfi_zk_front *front = &c->u.look.front;
    while (hfi_zk_next_child(walk, ret_name)) {
        if (ret_name->len >= HFI_ZK_NODE_TEXT)
            continue;
        struct hfi_zk_node node = hfi_zk_node_parse(ret_name->bytes, ret_name->len);
        bool by_writer = node.label == HFI_ZK_READ && is_writers(front, node.number);
        enum hfi_zk_label side = by_writer ? HFI_ZK_WRITE : node.label;
        if (side == c->kind->label && (by_writer || c->kind->holds(front, &node)))
            return true;
    }
    return false;
}

static void write_force(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    struct hfi_zk_children walk = c->u.look.walk;
    struct hfi_zk_text child;
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_multi_begin(out, 0);
    for (size_t i = 0;
         i < c->u.look.piece && out->len < PIECE_BYTES && next_victim(c, &walk, &child); i++) {
        bool fits = write_child_path(c, child, path);
        assert(fits);
        (void)fits;
        hfi_zk_multi_delete(out, path, HFI_ZK_ANY_VERSION);
    }
    hfi_zk_multi_end(out);
}

static void forced(struct hfi_zk_call *c);
static const struct hfi_zk_step force_step = {
    .frames = 1, .commits = 1, .write = write_force, .answered = forced};

/* Those whose nodes are still to go, at most so many of them at once. When none is left, and not one was there for us to
 * delete, somebody else may have the lock by now. */
static void force_next(struct hfi_zk_call *c, size_t piece) {
    struct hfi_zk_children walk = c->u.look.walk;
    struct hfi_zk_text child;
    c->resent = false;
    c->u.look.piece = piece < PIECE_NODES ? piece : PIECE_NODES;
    if (next_victim(c, &walk, &child))
        hfi_zk_ask_for(c, &force_step);
    else if (c->call->value > 0)
        hfi_zk_call_finish(c, HF_OK);
    else
        force_again(c);
}

static void pass_over(struct hfi_zk_call *c, size_t count) {
    struct hfi_zk_text child;
    while (count-- > 0)
        next_victim(c, &c->u.look.walk, &child);
}

/* One of a piece is gone, so nothing was done: first those before it, which are there. It has left by itself, unless an
 * answer was lost: then it may have been we, and so it may be with all that follow, which therefore go one by one until one
 * is there. */
static void force_without(struct hfi_zk_call *c, size_t gone) {
    if (gone > 0) {
        force_next(c, gone);
        return;
    }
    if (c->resent)
        c->call->value = 1;
    pass_over(c, 1);
    force_next(c, 1);
}

static void forced(struct hfi_zk_call *c) {
    struct hfi_zk_results results;
    if (c->answers[0].err != HFI_ZK_OK) {
        hfi_zk_call_refused(c, c->answers[0].err);
    } else if (hfi_zk_get_results(&c->answers[0].body, &results) != HF_OK || results.len == 0 ||
               results.len > c->u.look.piece) {
        hfi_zk_call_fail_proto(c);
    } else if (results.err == HFI_ZK_NO_NODE) {
        force_without(c, results.culprit);
    } else if (results.err == HFI_ZK_OK) {
        c->call->value = 1;
        pass_over(c, results.len);
        force_next(c, 2 * c->u.look.piece);
    } else {
        hfi_zk_call_refused(c, results.err);
    }
}

static void force_listed(struct hfi_zk_call *c) {
    struct hfi_zk_text child;
    if (!read_line(c))
        return;
    struct hfi_zk_children walk = c->u.look.line;
    c->u.look.walk = c->u.look.line;
    if (c->kind->look(c->u.look.line, NULL).wrong)
        hfi_zk_call_fail(c, HF_EWRONGTYPE, "what has this name is something else");
    else if (next_victim(c, &walk, &child))
        force_next(c, PIECE_NODES);
    else
        hfi_zk_call_finish(c, HF_OK);
}

static const struct hfi_zk_step force_list_step = {
    .frames = 1, .write = write_list, .answered = force_listed};

static void force_again(struct hfi_zk_call *c) {
    hfi_zk_ask_for(c, &force_list_step);
}

void hfi_zk_force(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->session_over = force_again;
    force_again(c);
}

/* ---- Questions ---- */

static void next_owner(struct hfi_zk_call *c);

static void write_data(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    if (!write_child_path(c, c->u.look.child, path))
        hfi_zk_call_path(c, path); /* nobody of ours is called that */
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

/* Does one of the holders say that it is this owner? */
static void next_owner(struct hfi_zk_call *c) {
    if (next_holder(c, &c->u.look.walk, &c->u.look.child))
        hfi_zk_ask_for(c, &data_step);
    else
        hfi_zk_call_finish(c, HF_OK);
}

static void asked(struct hfi_zk_call *c) {
    struct hfi_zk_text child;
    if (!read_line(c))
        return;
    c->u.look.walk = c->u.look.line;
    if (c->call->question == HFI_ASK_COUNT) {
        next_owner(c);
        return;
    }
    bool held = next_holder(c, &c->u.look.walk, &child);
    if (c->call->question == HFI_ASK_LOCKED)
        c->call->value = held;
    else
        c->call->value = held ? -1 : -2; /* how long another has it nobody knows */
    hfi_zk_call_finish(c, HF_OK);
}

static const struct hfi_zk_step ask_step = {.frames = 1, .write = write_list, .answered = asked};

static void write_ping(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    const char *chroot = c->zk->names.chroot;
    hfi_zk_put_exists(out, 0, chroot[0] != '\0' ? chroot : "/", false);
}

static void pinged(struct hfi_zk_call *c) {
    if (c->answers[0].err == HFI_ZK_NO_NODE)
        hfi_zk_call_fail(c, HF_EINVAL, "there is no node as the url names it: it has to be made");
    else if (c->answers[0].err != HFI_ZK_OK)
        hfi_zk_call_refused(c, c->answers[0].err);
    else
        hfi_zk_call_finish(c, HF_OK);
}

static const struct hfi_zk_step ping_step = {.frames = 1, .write = write_ping, .answered = pinged};

/* Of what this owner has, we know more than the server. */
static bool knows_itself(struct hfi_zk_call *c) {
    struct hfi_call *call = c->call;
    const struct hfi_zk_place place = hfi_zk_place_of(call);
    struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    int64_t now_ms = hfi_now_ms();
    if (call->question == HFI_ASK_LOCKED || credit.good_until_ms <= now_ms ||
        !hfi_zk_nodes_find(c->zk->nodes, &place, &c->held) || c->held.number != credit.number)
        return false;
    call->value = c->held.count;
    if (call->question == HFI_ASK_TTL)
        call->value = hfi_min_ms(c->held.promised_until_ms, credit.good_until_ms) - now_ms;
    return true;
}

void hfi_zk_ask(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->session_over = nothing_is_over;
    if (call->question == HFI_ASK_PING)
        hfi_zk_ask_for(c, &ping_step);
    else if (knows_itself(c))
        hfi_zk_call_finish(c, HF_OK);
    else
        hfi_zk_ask_for(c, &ask_step);
}
