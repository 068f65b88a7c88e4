/*
 * Writes ZooKeeper's requests.
 *
 * Called by the session and by calls, on the sender's thread; a buffer lives on the stack of the
 * function that fills it. A frame's length comes first but is known last: open_frame() leaves room
 * for it.
 */
#include "zk/wire/wire.h"

#include <assert.h>
#include <string.h>

#define LENGTH 4 /* bytes of a frame's length */
#define ALL_RIGHTS 31

void hfi_zk_out_init(struct hfi_zk_out *out, const struct hfi_mem *mem) {
    out->mem = mem;
    out->bytes = out->small;
    out->cap = sizeof out->small;
    out->len = out->start = 0;
    out->failed = false;
}

void hfi_zk_out_clear(struct hfi_zk_out *out) {
    if (out->bytes != out->small)
        hfi_free(out->mem, out->bytes);
    hfi_zk_out_init(out, out->mem);
}

static bool grow(struct hfi_zk_out *out, size_t more) {
    size_t cap = out->cap;
    while (cap - out->len < more)
        cap *= 2;
    bool small = out->bytes == out->small;
    char *grown = hfi_realloc(out->mem, small ? NULL : out->bytes, cap);
    if (grown == NULL) {
        out->failed = true;
        return false;
    }
    if (small)
        memcpy(grown, out->small, out->len);
    out->bytes = grown;
    out->cap = cap;
    return true;
}

/* Appends `len` bytes, to be filled in. NULL: out of memory. */
static char *room(struct hfi_zk_out *out, size_t len) {
    if (out->failed || (len > out->cap - out->len && !grow(out, len)))
        return NULL;
    char *at = out->bytes + out->len;
    out->len += len;
    return at;
}

static void write_big_endian(char *to, uint64_t number, size_t len) {
    while (len-- > 0) {
        to[len] = (char)(number & 0xff);
        number >>= 8;
    }
}

static void put_number(struct hfi_zk_out *out, uint64_t number, size_t len) {
    char *at = room(out, len);
    if (at != NULL)
        write_big_endian(at, number, len);
}

static void put_int(struct hfi_zk_out *out, int32_t number) {
    put_number(out, (uint32_t)number, 4);
}

static void put_long(struct hfi_zk_out *out, int64_t number) {
    put_number(out, (uint64_t)number, 8);
}

static void put_bool(struct hfi_zk_out *out, bool value) {
    put_number(out, value, 1);
}

static void put_bytes(struct hfi_zk_out *out, const void *bytes, size_t len) {
    assert(len <= INT32_MAX);
    put_int(out, (int32_t)len);
    char *at = room(out, len);
    if (at != NULL && len > 0)
        memcpy(at, bytes, len);
}

static void put_text(struct hfi_zk_out *out, const char *text) {
    put_bytes(out, text, strlen(text));
}

/* ---- Frames ---------------------------------------------------------------------------------- */

static void open_frame(struct hfi_zk_out *out) {
    out->start = out->len;
    (void)room(out, LENGTH);
}

static void close_frame(struct hfi_zk_out *out) {
    if (!out->failed)
        write_big_endian(out->bytes + out->start, out->len - out->start - LENGTH, LENGTH);
}

static void open_request(struct hfi_zk_out *out, int32_t xid, enum hfi_zk_op op) {
    open_frame(out);
    put_int(out, xid);
    put_int(out, op);
}

void hfi_zk_put_connect(struct hfi_zk_out *out, const struct hfi_zk_connect *connect) {
    open_frame(out);
    put_int(out, 0); /* the protocol version: there has never been another */
    put_long(out, connect->last_zxid);
    put_int(out, connect->timeout_ms);
    put_long(out, connect->session);
    put_bytes(out, connect->password, sizeof connect->password);
    put_bool(out, connect->read_only);
    close_frame(out);
}

void hfi_zk_put_auth(struct hfi_zk_out *out, const char *scheme, const void *secret, size_t len) {
    open_request(out, HFI_ZK_XID_AUTH, HFI_ZK_OP_AUTH);
    put_int(out, 0); /* type: unused */
    put_text(out, scheme);
    put_bytes(out, secret, len);
    close_frame(out);
}

void hfi_zk_put_ping(struct hfi_zk_out *out) {
    open_request(out, HFI_ZK_XID_PING, HFI_ZK_OP_PING);
    close_frame(out);
}

void hfi_zk_put_close(struct hfi_zk_out *out, int32_t xid) {
    open_request(out, xid, HFI_ZK_OP_CLOSE_SESSION);
    close_frame(out);
}

/* ---- Requests, alone and as parts of a multi
 * -------------------------------------------------- */

static enum hfi_zk_op create_op(enum hfi_zk_mode mode) {
    return mode == HFI_ZK_CONTAINER ? HFI_ZK_OP_CREATE_CONTAINER : HFI_ZK_OP_CREATE2;
}

static void put_acl(struct hfi_zk_out *out, enum hfi_zk_acl acl) {
    bool open = acl == HFI_ZK_ACL_OPEN;
    put_int(out, 1);
    put_int(out, ALL_RIGHTS);
    put_text(out, open ? "world" : "auth");
    put_text(out, open ? "anyone" : "");
}

static void put_create(struct hfi_zk_out *out, const char *path, const void *data, size_t len,
                       enum hfi_zk_mode mode, enum hfi_zk_acl acl) {
    put_text(out, path);
    put_bytes(out, data, len);
    put_acl(out, acl);
    put_int(out, mode);
}

static void put_versioned(struct hfi_zk_out *out, const char *path, int32_t version) {
    put_text(out, path);
    put_int(out, version);
}

static void put_set_data(struct hfi_zk_out *out, const char *path, const void *data, size_t len,
                         int32_t version) {
    put_text(out, path);
    put_bytes(out, data, len);
    put_int(out, version);
}

static void put_read(struct hfi_zk_out *out, int32_t xid, enum hfi_zk_op op, const char *path,
                     bool watch) {
    open_request(out, xid, op);
    put_text(out, path);
    put_bool(out, watch);
    close_frame(out);
}

void hfi_zk_put_create(struct hfi_zk_out *out, int32_t xid, const char *path, const void *data,
                       size_t len, enum hfi_zk_mode mode, enum hfi_zk_acl acl) {
    open_request(out, xid, create_op(mode));
    put_create(out, path, data, len, mode, acl);
    close_frame(out);
}

void hfi_zk_put_delete(struct hfi_zk_out *out, int32_t xid, const char *path, int32_t version) {
    open_request(out, xid, HFI_ZK_OP_DELETE);
    put_versioned(out, path, version);
    close_frame(out);
}

void hfi_zk_put_exists(struct hfi_zk_out *out, int32_t xid, const char *path, bool watch) {
    put_read(out, xid, HFI_ZK_OP_EXISTS, path, watch);
}

void hfi_zk_put_get_data(struct hfi_zk_out *out, int32_t xid, const char *path, bool watch) {
    put_read(out, xid, HFI_ZK_OP_GET_DATA, path, watch);
}

void hfi_zk_put_get_children(struct hfi_zk_out *out, int32_t xid, const char *path, bool watch) {
    put_read(out, xid, HFI_ZK_OP_GET_CHILDREN2, path, watch);
}

void hfi_zk_put_set_data(struct hfi_zk_out *out, int32_t xid, const char *path, const void *data,
                         size_t len, int32_t version) {
    open_request(out, xid, HFI_ZK_OP_SET_DATA);
    put_set_data(out, path, data, len, version);
    close_frame(out);
}

void hfi_zk_put_sync(struct hfi_zk_out *out, int32_t xid, const char *path) {
    open_request(out, xid, HFI_ZK_OP_SYNC);
    put_text(out, path);
    close_frame(out);
}

/* ---- Multi ----------------------------------------------------------------------------------- */

static void put_multi_header(struct hfi_zk_out *out, int32_t op, bool last) {
    put_int(out, op);
    put_bool(out, last);
    put_int(out, -1);
}

void hfi_zk_multi_begin(struct hfi_zk_out *out, int32_t xid) {
    open_request(out, xid, HFI_ZK_OP_MULTI);
}

void hfi_zk_multi_check(struct hfi_zk_out *out, const char *path, int32_t version) {
    put_multi_header(out, HFI_ZK_OP_CHECK, false);
    put_versioned(out, path, version);
}

void hfi_zk_multi_create(struct hfi_zk_out *out, const char *path, const void *data, size_t len,
                         enum hfi_zk_mode mode, enum hfi_zk_acl acl) {
    put_multi_header(out, create_op(mode), false);
    put_create(out, path, data, len, mode, acl);
}

void hfi_zk_multi_delete(struct hfi_zk_out *out, const char *path, int32_t version) {
    put_multi_header(out, HFI_ZK_OP_DELETE, false);
    put_versioned(out, path, version);
}

void hfi_zk_multi_set_data(struct hfi_zk_out *out, const char *path, const void *data, size_t len,
                           int32_t version) {
    put_multi_header(out, HFI_ZK_OP_SET_DATA, false);
    put_set_data(out, path, data, len, version);
}

void hfi_zk_multi_end(struct hfi_zk_out *out) {
    put_multi_header(out, -1, true);
    close_frame(out);
}
