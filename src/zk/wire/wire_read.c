/*
 * Parses ZooKeeper's messages.
 *
 * Called by the session and by calls, on any thread, with a frame that must outlive all that points
 * into it. The sender may be hostile: a number is checked against the bytes left before it is used
 * as a length. Counted elements have a minimum size, so a large count alone causes no loop and no
 * allocation.
 */
#include "zk/wire/wire.h"

#include <string.h>

#define LENGTH 4
#define MULTI_END (-1)
#define STAT_LEN 68

static uint64_t big_endian(const unsigned char *at, size_t len) {
    uint64_t number = 0;
    for (size_t i = 0; i < len; i++)
        number = number << 8 | at[i];
    return number;
}

static bool take(struct hfi_zk_in *in, size_t len, const unsigned char **ret_at) {
    if (len > in->left)
        return false;
    *ret_at = in->at;
    in->at += len;
    in->left -= len;
    return true;
}

static bool take_int(struct hfi_zk_in *in, int32_t *ret) {
    const unsigned char *at;
    if (!take(in, 4, &at))
        return false;
    *ret = (int32_t)big_endian(at, 4);
    return true;
}

static bool take_long(struct hfi_zk_in *in, int64_t *ret) {
    const unsigned char *at;
    if (!take(in, 8, &at))
        return false;
    *ret = (int64_t)big_endian(at, 8);
    return true;
}

static bool take_bool(struct hfi_zk_in *in, bool *ret) {
    const unsigned char *at;
    if (!take(in, 1, &at))
        return false;
    *ret = *at != 0;
    return true;
}

/* Text or data. A length below -1 is malformed. */
static bool take_bytes(struct hfi_zk_in *in, struct hfi_zk_text *ret) {
    int32_t len;
    const unsigned char *at = NULL;
    if (!take_int(in, &len) || len < -1)
        return false;
    if (len >= 0 && !take(in, (size_t)len, &at))
        return false;
    *ret = (struct hfi_zk_text){.bytes = (const char *)at, .len = len > 0 ? (size_t)len : 0};
    return true;
}

static bool take_stat(struct hfi_zk_in *in, struct hfi_zk_stat *ret) {
    return in->left >= STAT_LEN && take_long(in, &ret->czxid) && take_long(in, &ret->mzxid) &&
           take_long(in, &ret->ctime_ms) && take_long(in, &ret->mtime_ms) &&
           take_int(in, &ret->version) && take_int(in, &ret->cversion) &&
           take_int(in, &ret->aversion) && take_long(in, &ret->ephemeral_owner) &&
           take_int(in, &ret->data_len) && take_int(in, &ret->children_len) &&
           take_long(in, &ret->pzxid);
}

int hfi_zk_frame_len(const void *bytes, size_t len, size_t *ret_len) {
    *ret_len = SIZE_MAX;
    if (len < LENGTH)
        return HF_OK;
    uint64_t wanted = big_endian(bytes, LENGTH);
    if (wanted > HFI_ZK_FRAME_MAX)
        return HF_EPROTO;
    if (wanted <= len - LENGTH)
        *ret_len = (size_t)wanted;
    return HF_OK;
}

bool hfi_zk_frame_is_long(const void *bytes, size_t len, size_t *ret_len) {
    uint64_t wanted = len >= LENGTH ? big_endian(bytes, LENGTH) : 0;
    *ret_len = (size_t)wanted;
    return wanted > HFI_ZK_FRAME_MAX && wanted <= HFI_ZK_FRAME_LONG;
}

int hfi_zk_get_connected(struct hfi_zk_in *in, struct hfi_zk_connected *ret) {
    struct hfi_zk_connected found = {0};
    int32_t version;
    struct hfi_zk_text password;
    if (!take_int(in, &version) || !take_int(in, &found.timeout_ms) ||
        !take_long(in, &found.session) || !take_bytes(in, &password))
        return HF_EPROTO;
    if (found.timeout_ms < 0 || password.len != sizeof found.password)
        return HF_EPROTO;
    memcpy(found.password, password.bytes, password.len);
    if (in->left > 0 && !take_bool(in, &found.read_only)) /* servers before 3.4 end here */
        return HF_EPROTO;
    *ret = found;
    return HF_OK;
}

int hfi_zk_get_header(struct hfi_zk_in *in, struct hfi_zk_header *ret) {
    struct hfi_zk_header found;
    if (!take_int(in, &found.xid) || !take_long(in, &found.zxid) || !take_int(in, &found.err))
        return HF_EPROTO;
    *ret = found;
    return HF_OK;
}

int hfi_zk_get_event(struct hfi_zk_in *in, struct hfi_zk_event *ret) {
    struct hfi_zk_event found;
    if (!take_int(in, &found.type) || !take_int(in, &found.state) || !take_bytes(in, &found.path))
        return HF_EPROTO;
    *ret = found;
    return HF_OK;
}

int hfi_zk_get_stat(struct hfi_zk_in *in, struct hfi_zk_stat *ret) {
    struct hfi_zk_stat found;
    if (!take_stat(in, &found))
        return HF_EPROTO;
    *ret = found;
    return HF_OK;
}

static bool take_text_and_stat(struct hfi_zk_in *in, struct hfi_zk_text *ret_text,
                               struct hfi_zk_stat *ret_stat) {
    struct hfi_zk_text text;
    struct hfi_zk_stat stat;
    if (!take_bytes(in, &text) || !take_stat(in, &stat))
        return false;
    *ret_text = text;
    *ret_stat = stat;
    return true;
}

int hfi_zk_get_created(struct hfi_zk_in *in, struct hfi_zk_text *ret_path,
                       struct hfi_zk_stat *ret_stat) {
    struct hfi_zk_text path;
    struct hfi_zk_stat stat;
    if (!take_text_and_stat(in, &path, &stat) || path.len == 0)
        return HF_EPROTO;
    *ret_path = path;
    *ret_stat = stat;
    return HF_OK;
}

int hfi_zk_get_data(struct hfi_zk_in *in, struct hfi_zk_text *ret_data,
                    struct hfi_zk_stat *ret_stat) {
    return take_text_and_stat(in, ret_data, ret_stat) ? HF_OK : HF_EPROTO;
}

/* ---- Children -------------------------------------------------------------------------------- */

static bool take_name(struct hfi_zk_in *in, struct hfi_zk_text *ret) {
    return take_bytes(in, ret) && ret->len > 0;
}

int hfi_zk_get_children(struct hfi_zk_in *in, struct hfi_zk_children *ret) {
    struct hfi_zk_children found = {0};
    int32_t count;
    if (!take_int(in, &count) || count < -1) /* -1: no vector */
        return HF_EPROTO;
    found.len = count > 0 ? (size_t)count : 0;
    found.to_come = *in;
    struct hfi_zk_text name;
    for (size_t i = 0; i < found.len; i++)
        if (!take_name(in, &name))
            return HF_EPROTO;
    found.to_come.left -= in->left;
    if (!take_stat(in, &found.stat))
        return HF_EPROTO;
    *ret = found;
    return HF_OK;
}

bool hfi_zk_next_child(struct hfi_zk_children *children, struct hfi_zk_text *ret_name) {
    return take_name(&children->to_come, ret_name);
}

/* ---- Multi ----------------------------------------------------------------------------------- */

/* The body of a result. */
static bool take_outcome(struct hfi_zk_in *in, struct hfi_zk_result *result) {
    switch (result->op) {
    case HFI_ZK_OP_CREATE:
        return take_name(in, &result->path);
    case HFI_ZK_OP_CREATE2:
    case HFI_ZK_OP_CREATE_CONTAINER:
    case HFI_ZK_OP_CREATE_TTL:
        return take_name(in, &result->path) && take_stat(in, &result->stat);
    case HFI_ZK_OP_SET_DATA:
        return take_stat(in, &result->stat);
    case HFI_ZK_OP_CHECK:
    case HFI_ZK_OP_DELETE:
        return true;
    case -1:
        return take_int(in, &result->err);
    default:
        return false;
    }
}

static bool take_result(struct hfi_zk_in *in, struct hfi_zk_result *ret, bool *ret_end) {
    *ret = (struct hfi_zk_result){0};
    if (!take_int(in, &ret->op) || !take_bool(in, ret_end) || !take_int(in, &ret->err))
        return false;
    if (*ret_end)
        return ret->op == MULTI_END;
    return take_outcome(in, ret);
}

/* The first error is the failed operation's: those after it are only reported as rolled back. */
static void note_error(struct hfi_zk_results *results, int32_t err) {
    if (err != 0 && results->err == 0) {
        results->err = err;
        results->failed_index = results->len;
    }
}

int hfi_zk_get_results(struct hfi_zk_in *in, struct hfi_zk_results *ret) {
    struct hfi_zk_results found = {.to_come = *in};
    struct hfi_zk_result result;
    bool end;
    bool errors = false;
    for (;;) {
        if (!take_result(in, &result, &end))
            return HF_EPROTO;
        if (end)
            break;
        errors = errors || result.op == -1;
        note_error(&found, result.err);
        found.len++;
    }
    if (errors && found.err == 0) /* refused without an error: nothing may be taken for done */
        return HF_EPROTO;
    found.to_come.left -= in->left;
    *ret = found;
    return HF_OK;
}

bool hfi_zk_next_result(struct hfi_zk_results *results, struct hfi_zk_result *ret) {
    bool end;
    return take_result(&results->to_come, ret, &end) && !end;
}
