/*
 * Inspects a name: its kind, and the first hundred nodes of its queue, in order, with their data.
 *
 * The nodes tell the kind, not the handle: a lock's handle may be used to inspect permits or a
 * counter.
 *
 * Runs on the thread of the call's executor. The result is allocated with malloc, since it is freed
 * without a client. The replies are of different moments: a node that has left meanwhile is left
 * out.
 */
#include "zk/fleet/observe.h"

#include "base/error.h"
#include "zk/kinds/permits.h"
#include "zk/ops/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 100

struct hfi_zk_shown {
    struct hfi_zk_text name; /* points into the kept reply */
    struct hfi_zk_node node;
};

static void free_list(hf_holder **list, size_t len) {
    for (size_t i = 0; i < len; i++) {
        free(list[i]->owner);
        free(list[i]->connection);
        free(list[i]);
    }
    free(list);
}

static void drop_info(struct hfi_zk_call *c) {
    hf_lock_info *info = c->u.query.info;
    hfi_free(c->zk->mem, c->u.query.shown);
    c->u.query.shown = NULL;
    if (info == NULL)
        return;
    free_list(info->holders, info->holders_len);
    free_list(info->waiters, info->waiters_len);
    free(info);
    c->u.query.info = NULL;
}

static void no_memory(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, HF_ENOMEM, "out of memory");
}

static void write_list(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_call_path(c, path);
    hfi_zk_put_get_children(out, 0, path, false);
    hfi_zk_put_get_data(out, 0, path, false);
    hfi_zk_permits_path(c, HFI_ZK_TOTAL, path);
    hfi_zk_put_get_data(out, 0, path, false);
}

/* ---- Kind ---- */

/* A bit for each recipe that has nodes there. */
enum { MUTEX = 1, READ_WRITE = 2, PERMITS = 4, NONE_OF_OURS = 8 };

static bool is_text(struct hfi_zk_text name, const char *text) {
    return name.len == strlen(text) && memcmp(name.bytes, text, name.len) == 0;
}

static unsigned recipe_of(struct hfi_zk_text name) {
    switch (hfi_zk_node_parse(name.bytes, name.len).label) {
    case HFI_ZK_LOCK:
        return MUTEX;
    case HFI_ZK_READ:
    case HFI_ZK_WRITE:
        return READ_WRITE;
    case HFI_ZK_LEASE:
        return NONE_OF_OURS; /* the leases of permits are one level deeper */
    default:
        return is_text(name, "locks") || is_text(name, "leases") ? PERMITS : 0;
    }
}

static unsigned recipes_of(struct hfi_zk_children queue) {
    struct hfi_zk_text name;
    unsigned recipes = 0;
    while (hfi_zk_next_child(&queue, &name))
        recipes |= recipe_of(name);
    return recipes;
}

static const struct hfi_zk_kind *kind_of_node(const struct hfi_zk_node *node) {
    const struct hfi_kind *kind = node->label == HFI_ZK_READ    ? &hfi_zk_read
                                  : node->label == HFI_ZK_WRITE ? &hfi_zk_write
                                                                : &hfi_zk_plain;
    return hfi_zk_kind_of(kind);
}

/* A fair lock looks like a plain one, so it is what the caller's handle says. A writer that also
 * reads is a writer. */
static hf_found found_by(const struct hfi_zk_call *c, const struct hfi_zk_node *holder) {
    if (c->u.query.info->kind == HF_FOUND_WRITE)
        return HF_FOUND_WRITE;
    return holder->label == c->kind->label ? c->kind->found : kind_of_node(holder)->found;
}

/* ---- Order ---- */

/* A writer that also reads has two nodes with one number. */
static bool is_before(const struct hfi_zk_node *a, const struct hfi_zk_node *b) {
    if (a->number != b->number)
        return hfi_zk_before(a->number, b->number);
    if (a->label != b->label)
        return a->label < b->label;
    return memcmp(a->uuid, b->uuid, sizeof a->uuid) < 0;
}

/* Inserts a node in order, if it is among the first hundred. */
static void show(struct hfi_zk_call *c, const struct hfi_zk_shown *one) {
    struct hfi_zk_shown *shown = c->u.query.shown;
    size_t at = c->u.query.shown_len;
    if (at == SHOWN_MAX && !is_before(&one->node, &shown[at - 1].node))
        return;
    at -= at == SHOWN_MAX;
    for (; at > 0 && is_before(&one->node, &shown[at - 1].node); at--)
        shown[at] = shown[at - 1];
    shown[at] = *one;
    c->u.query.shown_len += c->u.query.shown_len < SHOWN_MAX;
}

/* Finds the first hundred, in order. False: out of memory. */
static bool choose_shown(struct hfi_zk_call *c) {
    struct hfi_zk_children queue = c->u.query.queue;
    struct hfi_zk_shown one;
    c->u.query.shown = hfi_alloc(c->zk->mem, SHOWN_MAX * sizeof *c->u.query.shown);
    if (c->u.query.shown == NULL)
        return false;
    while (hfi_zk_next_child(&queue, &one.name)) {
        one.node = hfi_zk_node_parse(one.name.bytes, one.name.len);
        if (one.node.label != HFI_ZK_NO_LABEL)
            show(c, &one);
    }
    return true;
}

/* ---- Owners ---- */

static bool is_printable(struct hfi_zk_text text) {
    for (size_t i = 0; i < text.len; i++)
        if (text.bytes[i] < ' ' || text.bytes[i] > '~')
            return false;
    return text.len > 0;
}

/* A holdfast node names its owner. Of other clients there is a session, and the node's data. */
static bool describe(hf_holder *holder, struct hfi_zk_text data, const struct hfi_zk_stat *stat,
                     bool writes) {
    struct hfi_zk_data ours;
    struct hfi_zk_text who = data;
    char owner[HFI_ZK_DATA_MAX + 1];
    if (hfi_zk_data_parse(data, &ours)) {
        snprintf(owner, sizeof owner, "%.*s", (int)ours.owner.len, ours.owner.bytes);
        who = ours.who;
    } else {
        snprintf(owner, sizeof owner, "session 0x%" PRIx64, (uint64_t)stat->ephemeral_owner);
    }
    if (asprintf(&holder->owner, "%s%s", owner, writes ? ":write" : "") < 0)
        holder->owner = NULL;
    if (is_printable(who))
        holder->connection = strndup(who.bytes, who.len);
    return holder->owner != NULL;
}

static bool append(hf_holder ***list, size_t *len, hf_holder *holder) {
    hf_holder **more = realloc(*list, (*len + 1) * sizeof(hf_holder *));
    if (more == NULL)
        return false;
    *list = more;
    more[(*len)++] = holder;
    return true;
}

static bool add(struct hfi_zk_call *c, struct hfi_zk_text data, const struct hfi_zk_stat *stat) {
    hf_lock_info *info = c->u.query.info;
    const struct hfi_zk_node *node = &c->queue.node;
    bool holds = kind_of_node(node)->holds(&c->u.query.queue_head, node);
    hf_holder *holder = calloc(1, sizeof *holder);
    if (holder == NULL)
        return false;
    holder->count = holds;
    if (holds)
        info->kind = found_by(c, node);
    bool ok = describe(holder, data, stat, node->label == HFI_ZK_WRITE) &&
              (holds ? append(&info->holders, &info->holders_len, holder)
                     : append(&info->waiters, &info->waiters_len, holder));
    if (!ok) {
        free(holder->owner);
        free(holder->connection);
        free(holder);
    }
    return ok;
}

/* ---- Steps ---- */

static void next_one(struct hfi_zk_call *c);

static void write_data(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    const struct hfi_zk_text child = c->u.query.child;
    size_t len = hfi_zk_call_path(c, path);
    if (len + child.len + 2 <= sizeof path) {
        path[len++] = '/';
        memcpy(path + len, child.bytes, child.len);
        path[len + child.len] = '\0';
    }
    hfi_zk_put_get_data(out, 0, path, false);
}

static void data_answered(struct hfi_zk_call *c) {
    struct hfi_zk_text data = {.len = 0};
    struct hfi_zk_stat stat;
    int32_t err = c->answers[0].err;
    bool left = err == HFI_ZK_NO_NODE; /* meanwhile */
    c->number = 0;
    if (err != HFI_ZK_OK && !left)
        hfi_zk_call_refused(c, err);
    else if (!left && hfi_zk_get_data(&c->answers[0].body, &data, &stat) != HF_OK)
        hfi_zk_call_fail_proto(c);
    else if (!left && !add(c, data, &stat))
        no_memory(c);
    else
        next_one(c);
}

static const struct hfi_zk_step data_step = {
    .frames = 1, .write = write_data, .answered = data_answered};

static void succeed(struct hfi_zk_call *c) {
    hf_lock_info *info = c->u.query.info;
    info->ttl_ms = info->kind == HF_FOUND_FREE ? -2 : -1;
    if (info->kind == HF_FOUND_OTHER)
        info->type_name = "nodes of several recipes";
    c->call->info = info;
    c->u.query.info = NULL;
    hfi_zk_call_finish(c, HF_OK);
}

static void next_one(struct hfi_zk_call *c) {
    if (c->u.query.at == c->u.query.shown_len) {
        succeed(c);
        return;
    }
    const struct hfi_zk_shown *one = &c->u.query.shown[c->u.query.at++];
    c->u.query.child = one->name;
    c->queue.node = one->node;
    hfi_zk_ask_for(c, &data_step);
}

/* The kind if there is no queue to show. Permits that were never taken are only a total. */
static hf_found found_without_queue(unsigned recipes, const struct hfi_zk_count *number,
                                    const struct hfi_zk_count *total) {
    if (recipes == PERMITS || (recipes == 0 && total->is_number))
        return HF_FOUND_PERMITS;
    if (recipes == 0)
        return number->is_number ? HF_FOUND_COUNTER : HF_FOUND_FREE;
    return HF_FOUND_OTHER;
}

/* HF_EPROTO: a malformed reply. A node that may not be read is no number. */
static int read_number(struct hfi_zk_answer *answer, struct hfi_zk_count *ret) {
    *ret = (struct hfi_zk_count){.there = false};
    return answer->err == HFI_ZK_OK ? hfi_zk_read_count(answer, ret) : HF_OK;
}

static void write_root(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    hfi_zk_put_exists(out, 0, c->zk->names.chroot, false);
}

static void root_answered(struct hfi_zk_call *c) {
    c->number = 0;
    if (c->answers[0].err == HFI_ZK_NO_NODE)
        hfi_zk_chroot_missing(c);
    else if (c->answers[0].err != HFI_ZK_OK)
        hfi_zk_call_refused(c, c->answers[0].err);
    else
        succeed(c);
}

/* The node does not exist: is the lock free, or is the chroot missing? */
static const struct hfi_zk_step root_step = {
    .frames = 1, .write = write_root, .answered = root_answered};

static void listed(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    struct hfi_zk_count number, total;
    c->number = 0;
    if (err != HFI_ZK_OK && err != HFI_ZK_NO_NODE) {
        hfi_zk_call_refused(c, err);
        return;
    }
    if ((err == HFI_ZK_OK &&
         hfi_zk_get_children(&c->answers[0].body, &c->u.query.queue) != HF_OK) ||
        read_number(&c->answers[1], &number) != HF_OK ||
        read_number(&c->answers[2], &total) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    hfi_zk_keep_answer(c, 0);
    unsigned recipes = recipes_of(c->u.query.queue);
    c->u.query.queue_head = hfi_zk_queue_head_of(c->u.query.queue);
    if (recipes == MUTEX || recipes == READ_WRITE) {
        if (choose_shown(c))
            next_one(c);
        else
            no_memory(c);
    } else {
        c->u.query.info->kind = found_without_queue(recipes, &number, &total);
        if (err == HFI_ZK_NO_NODE && c->zk->names.chroot[0] != '\0')
            hfi_zk_ask_for(c, &root_step);
        else
            succeed(c);
    }
}

static const struct hfi_zk_step list_step = {.frames = 3, .write = write_list, .answered = listed};

static void over(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, HF_EUNREACH, "the ZooKeeper session has ended");
}

void hfi_zk_inspect(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->session_over = over;
    c->cleanup = drop_info;
    c->u.query.info = calloc(1, sizeof *c->u.query.info);
    if (c->u.query.info == NULL)
        no_memory(c);
    else
        hfi_zk_ask_for(c, &list_step);
}
