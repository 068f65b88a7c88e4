/*
 * Recovers a create whose reply was lost: finds its node by uuid.
 *
 * `sync` comes first: a lagging follower would hide the node, and a second one would wait for the
 * first for ever. If the node does not exist, it never will: the leader refuses requests still in
 * flight on the old connection. A node of another session is never adopted: that session is about
 * to die. Runs on the thread of the call's executor.
 */
#include "zk/ops/queue.h"

#include <string.h>

bool hfi_zk_queue_find(struct hfi_zk_children queue, const unsigned char uuid[HFI_ZK_UUID_LEN],
                       struct hfi_zk_node *ret) {
    struct hfi_zk_text name;
    while (hfi_zk_next_child(&queue, &name)) {
        struct hfi_zk_node node = hfi_zk_node_parse(name.bytes, name.len);
        if (!node.has_uuid || memcmp(node.uuid, uuid, HFI_ZK_UUID_LEN) != 0)
            continue;
        *ret = node;
        return true;
    }
    return false;
}

static void write_stat(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_queue_node_path(c, &c->queue.node, path);
    hfi_zk_put_exists(out, 0, path, false);
}

static void identified(struct hfi_zk_call *c) {
    struct hfi_zk_stat stat;
    struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    if (c->answers[0].err == HFI_ZK_OK && hfi_zk_get_stat(&c->answers[0].body, &stat) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    c->queue.made = c->answers[0].err == HFI_ZK_OK && credit.number == c->number &&
                    stat.ephemeral_owner == credit.id;
    if (c->queue.made)
        c->queue.token = stat.czxid;
    c->queue.searched(c);
}

static const struct hfi_zk_step stat_step = {
    .frames = 1, .write = write_stat, .answered = identified};

static void write_search(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_queue_path(c, path);
    hfi_zk_put_sync(out, 0, path);
    hfi_zk_put_get_children(out, 0, path, false);
}

static void search_answered(struct hfi_zk_call *c) {
    const struct hfi_zk_answer *answers = c->answers;
    struct hfi_zk_in body = answers[1].body;
    struct hfi_zk_children queue = {.len = 0};
    if (answers[0].err != HFI_ZK_OK)
        hfi_zk_call_refused(c, answers[0].err);
    else if (answers[1].err != HFI_ZK_OK && answers[1].err != HFI_ZK_NO_NODE)
        hfi_zk_call_refused(c, answers[1].err);
    else if (answers[1].err == HFI_ZK_OK && hfi_zk_get_children(&body, &queue) != HF_OK)
        hfi_zk_call_fail_proto(c);
    else if (hfi_zk_queue_find(queue, c->queue.uuid, &c->queue.node))
        hfi_zk_ask_for(c, &stat_step);
    else
        c->queue.searched(c);
}

static const struct hfi_zk_step search_step = {
    .frames = 2, .write = write_search, .answered = search_answered};

void hfi_zk_queue_recover(struct hfi_zk_call *c, void (*then)(struct hfi_zk_call *c)) {
    c->queue.made = false;
    c->queue.searched = then;
    hfi_zk_ask_for(c, &search_step);
}
