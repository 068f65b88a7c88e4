/*
 * Who is on a lock: the line in order, and what the first hundred say of themselves.
 *
 * Runs on the thread of the call's executor. The result is made with malloc, since it is freed without
 * a client. The answers come from different moments: who has left meanwhile is left out.
 */
#include "base/error.h"
#include "zk/line.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 100

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
}

/* ---- In order ---- */

/* The first of those that come behind `last`; with none, of all. */
static bool next_in_line(struct hfi_zk_children line, const struct hfi_zk_node *last,
                         struct hfi_zk_text *ret_name, struct hfi_zk_node *ret_node) {
    struct hfi_zk_text name;
    bool found = false;
    while (hfi_zk_next_child(&line, &name)) {
        struct hfi_zk_node node = hfi_zk_node_parse(name.bytes, name.len);
        if (node.label == HFI_ZK_NO_LABEL)
            continue;
        if (last != NULL && !hfi_zk_before(last->number, node.number))
            continue;
        if (found && !hfi_zk_before(node.number, ret_node->number))
            continue;
        found = true;
        *ret_name = name;
        *ret_node = node;
    }
    return found;
}

/* ---- What one says of itself ---- */

static bool is_printable(struct hfi_zk_text text) {
    for (size_t i = 0; i < text.len; i++)
        if (text.bytes[i] < ' ' || text.bytes[i] > '~')
            return false;
    return text.len > 0;
}

/* Ours name themselves; of others there is a session, and what they have written. */
static bool describe(hf_holder *holder, struct hfi_zk_text data, const struct hfi_zk_stat *stat) {
    struct hfi_zk_data ours;
    struct hfi_zk_text who = data;
    if (hfi_zk_data_parse(data, &ours)) {
        holder->owner = strndup(ours.owner.bytes, ours.owner.len);
        who = ours.who;
    } else {
        char session[40];
        snprintf(session, sizeof session, "session 0x%" PRIx64, (uint64_t)stat->ephemeral_owner);
        holder->owner = strdup(session);
    }
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
    bool holds = c->kind->holds(c->u.look.line, &c->line.node);
    hf_holder *holder = calloc(1, sizeof *holder);
    if (holder == NULL)
        return false;
    holder->count = holds;
    bool ok = describe(holder, data, stat) &&
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
    if (info->holders_len > 0) {
        info->kind = c->kind->found;
        info->ttl_ms = -1;
    }
    c->call->info = info;
    c->u.look.info = NULL;
    hfi_zk_call_finish(c, HF_OK);
}

static void next_one(struct hfi_zk_call *c) {
    const struct hfi_zk_node last = c->line.node;
    bool any =
        c->u.look.at < SHOWN_MAX && next_in_line(c->u.look.line, c->u.look.at > 0 ? &last : NULL,
                                                 &c->u.look.child, &c->line.node);
    c->u.look.at++;
    if (any)
        hfi_zk_ask_for(c, &data_step);
    else
        succeed(c);
}

static void listed(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    c->number = 0;
    if (err != HFI_ZK_OK && err != HFI_ZK_NO_NODE) {
        hfi_zk_call_refused(c, err);
        return;
    }
    if (err == HFI_ZK_OK && hfi_zk_get_children(&c->answers[0].body, &c->u.look.line) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    hfi_zk_keep_answer(c, 0);
    struct hfi_zk_look look = c->kind->look(c->u.look.line, NULL);
    c->u.look.info->ttl_ms = -2;
    if (look.wrong) {
        c->u.look.info->kind = HF_FOUND_OTHER;
        c->u.look.info->words = "another recipe's nodes";
        c->call->info = c->u.look.info;
        c->u.look.info = NULL;
        hfi_zk_call_finish(c, HF_OK);
    } else {
        next_one(c);
    }
}

static const struct hfi_zk_step list_step = {.frames = 1, .write = write_list, .answered = listed};

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
