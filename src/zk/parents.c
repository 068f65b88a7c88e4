/*
 * Making what a node is to be put beneath: the node of the lock itself, and those above it.
 *
 * They are containers, which the server deletes when they have been empty for a while, so they can be
 * missing at any time. The lowest is tried first, then those above it until one is there, and down again
 * from it. The chroot is never made: a typo must not become a second world. Runs on the thread of the
 * call's executor.
 */
#include "base/error.h"
#include "zk/line.h"

#include <string.h>

static void make_parent(struct hfi_zk_call *c);

/* The lowest of them; returns its length. */
static size_t write_lowest(const struct hfi_zk_call *c, char to[HFI_ZK_PATH_MAX]) {
    const char *beneath = c->line.parents_beneath;
    size_t len = hfi_zk_call_path(c, to);
    if (beneath == NULL)
        return hfi_zk_parent_len(to, len);
    memcpy(to + len, beneath, strlen(beneath) + 1);
    return len + strlen(beneath);
}

static void write_parent(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    write_lowest(c, path);
    path[c->line.parent_len] = '\0';
    hfi_zk_put_create(out, 0, path, NULL, 0, HFI_ZK_CONTAINER, c->zk->acl);
}

/* It is there: now the one beneath it, or what all of it was for. */
static void parent_is_there(struct hfi_zk_call *c) {
    char path[HFI_ZK_PATH_MAX];
    size_t len = write_lowest(c, path);
    if (c->line.parent_len == len) {
        c->line.parents_made(c);
        return;
    }
    const char *slash = memchr(path + c->line.parent_len + 1, '/', len - c->line.parent_len - 1);
    c->line.parent_len = slash != NULL ? (size_t)(slash - path) : len;
    make_parent(c);
}

static void chroot_is_missing(struct hfi_zk_call *c) {
    hfi_error_clear(&c->call->error);
    hfi_fail(&c->call->error, HF_EINVAL,
             "there is no node %.100s, which the url names: it has to be made first",
             c->zk->names.chroot);
    hfi_zk_call_finish(c, HF_EINVAL);
}

static void parent_is_missing(struct hfi_zk_call *c) {
    char path[HFI_ZK_PATH_MAX];
    write_lowest(c, path);
    c->line.parent_len = hfi_zk_parent_len(path, c->line.parent_len);
    if (c->line.parent_len > strlen(c->zk->names.chroot))
        make_parent(c);
    else
        chroot_is_missing(c);
}

static void parent_answered(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    if (err == HFI_ZK_OK || err == HFI_ZK_NODE_EXISTS)
        parent_is_there(c);
    else if (err == HFI_ZK_NO_NODE)
        parent_is_missing(c);
    else
        hfi_zk_call_refused(c, err);
}

static const struct hfi_zk_step parent_step = {
    .frames = 1, .commits = 1, .write = write_parent, .answered = parent_answered};

static void make_parent(struct hfi_zk_call *c) {
    hfi_zk_ask_for(c, &parent_step);
}

void hfi_zk_make_parents(struct hfi_zk_call *c, const char *beneath,
                         void (*then)(struct hfi_zk_call *c)) {
    char path[HFI_ZK_PATH_MAX];
    c->line.parents_made = then;
    c->line.parents_beneath = beneath;
    c->line.parent_len = write_lowest(c, path);
    if (c->line.parent_len > strlen(c->zk->names.chroot))
        make_parent(c);
    else
        chroot_is_missing(c);
}
