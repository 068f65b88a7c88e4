/*
 * Creates the parents of a queue or a counter: the lock's own node, and those above it.
 *
 * They are containers, which the server deletes some time after they became empty, so they can be
 * missing at any time. The lowest is tried first, then upwards until one exists, and down again
 * from there. The chroot is never created: a typo must not become a second namespace. Runs on the
 * thread of the call's executor.
 */
#include "base/error.h"
#include "zk/ops/queue.h"

#include <string.h>

static void make_parent(struct hfi_zk_call *c);

/* Writes the path of the lowest; returns its length. */
static size_t write_lowest(const struct hfi_zk_call *c, char to[HFI_ZK_PATH_MAX]) {
    const char *beneath = c->queue.parents_beneath;
    size_t len = hfi_zk_call_path(c, to);
    if (beneath == NULL)
        return hfi_zk_parent_len(to, len);
    memcpy(to + len, beneath, strlen(beneath) + 1);
    return len + strlen(beneath);
}

static void write_parent(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    write_lowest(c, path);
    path[c->queue.parent_len] = '\0';
    hfi_zk_put_create(out, 0, path, NULL, 0, HFI_ZK_CONTAINER, c->zk->acl);
}

/* It exists: create the next one below it, or continue the call. */
static void parent_is_there(struct hfi_zk_call *c) {
    char path[HFI_ZK_PATH_MAX];
    size_t len = write_lowest(c, path);
    if (c->queue.parent_len == len) {
        c->queue.parents_made(c);
        return;
    }
    const char *slash = memchr(path + c->queue.parent_len + 1, '/', len - c->queue.parent_len - 1);
    c->queue.parent_len = slash != NULL ? (size_t)(slash - path) : len;
    make_parent(c);
}

void hfi_zk_chroot_missing(struct hfi_zk_call *c) {
    hfi_error_clear(&c->call->error);
    hfi_fail(&c->call->error, HF_EINVAL, "the url's node %.100s does not exist; create it first",
             c->zk->names.chroot);
    hfi_zk_call_finish(c, HF_EINVAL);
}

static void parent_is_missing(struct hfi_zk_call *c) {
    char path[HFI_ZK_PATH_MAX];
    write_lowest(c, path);
    c->queue.parent_len = hfi_zk_parent_len(path, c->queue.parent_len);
    if (c->queue.parent_len > strlen(c->zk->names.chroot))
        make_parent(c);
    else
        hfi_zk_chroot_missing(c);
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
    c->queue.parents_made = then;
    c->queue.parents_beneath = beneath;
    c->queue.parent_len = write_lowest(c, path);
    if (c->queue.parent_len > strlen(c->zk->names.chroot))
        make_parent(c);
    else
        hfi_zk_chroot_missing(c);
}
