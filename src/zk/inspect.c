/*
 * What there is under a name, and who is on it: the line in order, and what the first hundred say of themselves.
 *
 * Which kind it is the nodes tell, not the handle: that of a lock may be used to look at permits or at a number.
 *
 * Runs on the thread of the call's executor. The result is made with malloc, since it is freed without
 * a client. The answers come from different moments: who has left meanwhile is left out.
 */
#include "base/error.h"
#include "zk/permits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 100

struct hfi_zk_shown {
    struct hfi_zk_text name; /* of the list that is kept */
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
    hf_lock_info *info = c->u.look.info;
    hfi_free(c->zk->mem, c->u.look.shown);
    c->u.look.shown = NULL;
    if (info == NULL)
        return;
    free_list(info->holders, info->holders_len);
    free_list(info->waiters, info->waiters_len);
    free(info);
    c->u.look.info = NULL;
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

/* ---- What there is ---- */

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
        return NONE_OF_OURS; /* the leases of permits stand one deeper */
    default:
        return is_text(name, "locks") || is_text(name, "leases") ? PERMITS : 0;
    }
}

static unsigned recipes_of(struct hfi_zk_children line) {
    struct hfi_zk_text name;
    unsigned recipes = 0;
    while (hfi_zk_next_child(&line, &name))
        recipes |= recipe_of(name);
    return recipes;
}

static const struct hfi_zk_kind *kind_of_node(const struct hfi_zk_node *node) {
    const struct hfi_kind *kind = node->label == HFI_ZK_READ    ? &hfi_zk_read
                                  : node->label == HFI_ZK_WRITE ? &hfi_zk_write
                                                                : &hfi_zk_plain;
    return hfi_zk_kind_of(kind);
}

/* Nothing tells a fair lock from a plain one: it is what the caller takes it for. A writer may read as well, and is a
 * writer then. */
static hf_found found_by(const struct hfi_zk_call *c, const struct hfi_zk_node *holder) {
    if (c->u.look.info->kind == HF_FOUND_WRITE)
        return HF_FOUND_WRITE;
    return holder->label == c->kind->label ? c->kind->found : kind_of_node(holder)->found;
}

/* ---- In order ---- */

/* A writer that reads has two nodes of one number. */
static bool is_before(const struct hfi_zk_node *a, const struct hfi_zk_node *b) {
    if (a->number != b->number)
        return hfi_zk_before(a->number, b->number);
    if (a->label != b->label)
        return a->label < b->label;
    return memcmp(a->uuid, b->uuid, sizeof a->uuid) < 0;
}

/* Puts one in its place, if it is one of the first. */
static void show(struct hfi_zk_call *c, const struct hfi_zk_shown *one) {
    struct hfi_zk_shown *shown = c->u.look.shown;
    size_t at = c->u.look.shown_len;
    if (at == SHOWN_MAX && !is_before(&one->node, &shown[at - 1].node))
        return;
    at -= at == SHOWN_MAX;
    for (; at > 0 && is_before(&one->node, &shown[at - 1].node); at--)
        shown[at] = shown[at - 1];
    shown[at] = *one;
    c->u.look.shown_len += c->u.look.shown_len < SHOWN_MAX;
}

/* Finds the first hundred, in order. False: there is no memory for them. */
static bool choose_shown(struct hfi_zk_call *c) {
    struct hfi_zk_children line = c->u.look.line;
    struct hfi_zk_shown one;
    c->u.look.shown = hfi_alloc(c->zk->mem, SHOWN_MAX * sizeof *c->u.look.shown);
    if (c->u.look.shown == NULL)
        return false;
    while (hfi_zk_next_child(&line, &one.name)) {
        one.node = hfi_zk_node_parse(one.name.bytes, one.name.len);
        if (one.node.label != HFI_ZK_NO_LABEL)
            show(c, &one);
    }
    return true;
}

/* ---- What one says of itself ---- */

static bool is_printable(struct hfi_zk_text text) {
    for (size_t i = 0; i < text.len; i++)
        if (text.bytes[i] < ' ' || text.bytes[i] > '~')
            return false;
    return text.len > 0;
}

/* Ours name themselves; of others there is a session, and what they have written. */
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
    hf_lock_info *info = c->u.look.info;
    const struct hfi_zk_node *node = &c->line.node;
    bool holds = kind_of_node(node)->holds(&c->u.look.front, node);
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
    const struct hfi_zk_text child = c->u.look.child;
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
    hf_lock_info *info = c->u.look.info;
    info->ttl_ms = info->kind == HF_FOUND_FREE ? -2 : -1;
    if (info->kind == HF_FOUND_OTHER)
        info->words = "nodes of several recipes";
    c->call->info = info;
    c->u.look.info = NULL;
    hfi_zk_call_finish(c, HF_OK);
}

static void next_one(struct hfi_zk_call *c) {
    if (c->u.look.at == c->u.look.shown_len) {
        succeed(c);
        return;
    }
    const struct hfi_zk_shown *one = &c->u.look.shown[c->u.look.at++];
    c->u.look.child = one->name;
    c->line.node = one->node;
    hfi_zk_ask_for(c, &data_step);
}

/* What is no lock, or free, if there is no line to look at. Permits of which none was ever taken are but a number. */
static hf_found found_without_line(unsigned recipes, const struct hfi_zk_count *number,
                                   const struct hfi_zk_count *total) {
    if (recipes == PERMITS || (recipes == 0 && total->is_number))
        return HF_FOUND_PERMITS;
    if (recipes == 0)
        return number->is_number ? HF_FOUND_COUNTER : HF_FOUND_FREE;
    return HF_FOUND_OTHER;
}

/* HF_EPROTO: an answer cannot be read. What one may not look at is no number. */
static int read_number(struct hfi_zk_answer *answer, struct hfi_zk_count *ret) {
    *ret = (struct hfi_zk_count){.there = false};
    return answer->err == HFI_ZK_OK ? hfi_zk_read_count(answer, ret) : HF_OK;
}

static void listed(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    struct hfi_zk_count number, total;
    c->number = 0;
    if (err != HFI_ZK_OK && err != HFI_ZK_NO_NODE) {
        hfi_zk_call_refused(c, err);
        return;
    }
    if ((err == HFI_ZK_OK && hfi_zk_get_children(&c->answers[0].body, &c->u.look.line) != HF_OK) ||
        read_number(&c->answers[1], &number) != HF_OK ||
        read_number(&c->answers[2], &total) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    hfi_zk_keep_answer(c, 0);
    unsigned recipes = recipes_of(c->u.look.line);
    c->u.look.front = hfi_zk_front_of(c->u.look.line);
    if (recipes == MUTEX || recipes == READ_WRITE) {
        if (choose_shown(c))
            next_one(c);
        else
            no_memory(c);
    } else {
        c->u.look.info->kind = found_without_line(recipes, &number, &total);
        succeed(c);
    }
}

static const struct hfi_zk_step list_step = {.frames = 3, .write = write_list, .answered = listed};

static void over(struct hfi_zk_call *c) {
    hfi_zk_call_fail(c, HF_EUNREACH, "the session with ZooKeeper is over");
}

void hfi_zk_inspect(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->session_over = over;
    c->cleanup = drop_info;
    c->u.look.info = calloc(1, sizeof *c->u.look.info);
    if (c->u.look.info == NULL)
        no_memory(c);
    else
        hfi_zk_ask_for(c, &list_step);
}
