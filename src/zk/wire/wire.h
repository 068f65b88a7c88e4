/*
 * ZooKeeper's wire format: requests are written into a buffer, messages are parsed from a frame. No
 * sockets, no state.
 *
 * A frame is a length of four bytes and the message. Numbers are big endian. Text and data have
 * their length in front, -1 for none. Input comes from the network: every length, count and code is
 * checked against the bytes left before it is used, and nothing is allocated for it. Results point
 * into the frame.
 */
#ifndef HFI_ZK_WIRE_WIRE_H
#define HFI_ZK_WIRE_WIRE_H

#include "base/mem.h"

#define HFI_ZK_FRAME_MAX (4 * 1024 * 1024)   /* of a message; a server accepts requests of 1 MiB */
#define HFI_ZK_FRAME_LONG (64 * 1024 * 1024) /* anything longer is no message */
#define HFI_ZK_PASSWORD_LEN 16               /* of a session, chosen by the server */
#define HFI_ZK_ANY_VERSION (-1)

/* The xids of messages that answer no request; those of requests are positive. */
enum { HFI_ZK_XID_EVENT = -1, HFI_ZK_XID_PING = -2, HFI_ZK_XID_AUTH = -4 };

enum hfi_zk_op {
    HFI_ZK_OP_CREATE = 1, /* only in replies */
    HFI_ZK_OP_DELETE = 2,
    HFI_ZK_OP_EXISTS = 3,
    HFI_ZK_OP_GET_DATA = 4,
    HFI_ZK_OP_SET_DATA = 5,
    HFI_ZK_OP_SYNC = 9,
    HFI_ZK_OP_PING = 11,
    HFI_ZK_OP_GET_CHILDREN2 = 12,
    HFI_ZK_OP_CHECK = 13,
    HFI_ZK_OP_MULTI = 14,
    HFI_ZK_OP_CREATE2 = 15,
    HFI_ZK_OP_CREATE_CONTAINER = 19,
    HFI_ZK_OP_CREATE_TTL = 21, /* only in replies */
    HFI_ZK_OP_AUTH = 100,
    HFI_ZK_OP_CLOSE_SESSION = -11
};

/* Whether a node ends with its session, and whether the server appends a number to its name. */
enum hfi_zk_mode {
    HFI_ZK_PERSISTENT = 0,
    HFI_ZK_EPHEMERAL = 1,
    HFI_ZK_PERSISTENT_SEQUENTIAL = 2,
    HFI_ZK_EPHEMERAL_SEQUENTIAL = 3,
    HFI_ZK_CONTAINER = 4
};

enum hfi_zk_acl {
    HFI_ZK_ACL_OPEN,   /* world:anyone, all rights */
    HFI_ZK_ACL_CREATOR /* the user this connection has authenticated as, all rights */
};

/* ---- Writing --------------------------------------------------------------------------------- */

/* A buffer of whole frames. Small ones need no allocation. */
struct hfi_zk_out {
    const struct hfi_mem *mem;
    char *bytes;
    size_t len, cap;
    size_t start; /* of the open frame */
    bool failed;  /* out of memory: do not send the bytes */
    char small[512];
};

void hfi_zk_out_init(struct hfi_zk_out *out, const struct hfi_mem *mem);
void hfi_zk_out_clear(struct hfi_zk_out *out);

struct hfi_zk_connect {
    int64_t last_zxid; /* the latest seen: a server that lags behind it refuses us */
    int32_t timeout_ms;
    int64_t session; /* 0: a new one */
    unsigned char password[HFI_ZK_PASSWORD_LEN];
    bool read_only; /* a server without a quorum may answer */
};

/* Each writes one frame. None can fail; check `failed` when everything is written. Paths are
 * zero-terminated and absolute, chroot included. */
void hfi_zk_put_connect(struct hfi_zk_out *out, const struct hfi_zk_connect *connect);
void hfi_zk_put_auth(struct hfi_zk_out *out, const char *scheme, const void *secret, size_t len);
void hfi_zk_put_ping(struct hfi_zk_out *out);
void hfi_zk_put_close(struct hfi_zk_out *out, int32_t xid);
/* createContainer for HFI_ZK_CONTAINER, else create2; both are answered with a stat. */
void hfi_zk_put_create(struct hfi_zk_out *out, int32_t xid, const char *path, const void *data,
                       size_t len, enum hfi_zk_mode mode, enum hfi_zk_acl acl);
void hfi_zk_put_delete(struct hfi_zk_out *out, int32_t xid, const char *path, int32_t version);
void hfi_zk_put_exists(struct hfi_zk_out *out, int32_t xid, const char *path, bool watch);
void hfi_zk_put_get_data(struct hfi_zk_out *out, int32_t xid, const char *path, bool watch);
void hfi_zk_put_get_children(struct hfi_zk_out *out, int32_t xid, const char *path, bool watch);
void hfi_zk_put_set_data(struct hfi_zk_out *out, int32_t xid, const char *path, const void *data,
                         size_t len, int32_t version);
void hfi_zk_put_sync(struct hfi_zk_out *out, int32_t xid, const char *path);

/* A multi is atomic. Its frame is open between begin and end; its operations come between. */
void hfi_zk_multi_begin(struct hfi_zk_out *out, int32_t xid);
void hfi_zk_multi_check(struct hfi_zk_out *out, const char *path, int32_t version);
void hfi_zk_multi_create(struct hfi_zk_out *out, const char *path, const void *data, size_t len,
                         enum hfi_zk_mode mode, enum hfi_zk_acl acl);
void hfi_zk_multi_delete(struct hfi_zk_out *out, const char *path, int32_t version);
void hfi_zk_multi_set_data(struct hfi_zk_out *out, const char *path, const void *data, size_t len,
                           int32_t version);
void hfi_zk_multi_end(struct hfi_zk_out *out);

/* ---- Reading --------------------------------------------------------------------------------- */

/* The unread rest of a message, without its frame's length. */
struct hfi_zk_in {
    const unsigned char *at;
    size_t left;
};

static inline struct hfi_zk_in hfi_zk_in(const void *bytes, size_t len) {
    return (struct hfi_zk_in){.at = bytes, .left = len};
}

struct hfi_zk_text {
    const char *bytes; /* NULL: none */
    size_t len;
};

struct hfi_zk_stat {
    int64_t czxid, mzxid; /* the zxids of its creation and of its last data change */
    int64_t ctime_ms, mtime_ms;
    int32_t version, cversion, aversion; /* of its data, its children, its acl */
    int64_t ephemeral_owner;             /* a session; 0: not ephemeral */
    int32_t data_len, children_len;
    int64_t pzxid; /* the zxid of the last change of its children */
};

struct hfi_zk_connected {
    int32_t timeout_ms; /* granted. 0: the session is over */
    int64_t session;
    unsigned char password[HFI_ZK_PASSWORD_LEN];
    bool read_only;
};

struct hfi_zk_header {
    int32_t xid;
    int64_t zxid;
    int32_t err; /* 0, or a code of errors.h and no body; 0 for every multi that ran */
};

enum hfi_zk_event_type {
    HFI_ZK_EVENT_NONE = -1, /* about the session, not about a node */
    HFI_ZK_EVENT_CREATED = 1,
    HFI_ZK_EVENT_DELETED = 2,
    HFI_ZK_EVENT_CHANGED = 3,
    HFI_ZK_EVENT_CHILDREN = 4
};

struct hfi_zk_event {
    int32_t type, state;
    struct hfi_zk_text path;
};

/* The frame at the beginning of `bytes`. HF_OK: *ret_len bytes of message follow four bytes of
 * length; SIZE_MAX: incomplete. HF_EPROTO: the length is negative or too large. */
int hfi_zk_frame_len(const void *bytes, size_t len, size_t *ret_len);
/* A message of *ret_len bytes that is too long to parse, as the list of very many nodes: skip
 * it. */
bool hfi_zk_frame_is_long(const void *bytes, size_t len, size_t *ret_len);

/* Each consumes from the front of `in`. HF_OK, or HF_EPROTO, and then `ret` is unchanged. Bytes may
 * be left over: newer servers may send more. */
int hfi_zk_get_connected(struct hfi_zk_in *in, struct hfi_zk_connected *ret);
int hfi_zk_get_header(struct hfi_zk_in *in, struct hfi_zk_header *ret);
int hfi_zk_get_event(struct hfi_zk_in *in, struct hfi_zk_event *ret);
int hfi_zk_get_stat(struct hfi_zk_in *in, struct hfi_zk_stat *ret); /* exists, setData */
/* create2, createContainer: the path with its number */
int hfi_zk_get_created(struct hfi_zk_in *in, struct hfi_zk_text *ret_path,
                       struct hfi_zk_stat *ret_stat);
int hfi_zk_get_data(struct hfi_zk_in *in, struct hfi_zk_text *ret_data,
                    struct hfi_zk_stat *ret_stat);

/* getChildren2. All names are validated, so iterating over them cannot fail. */
struct hfi_zk_children {
    size_t len;
    struct hfi_zk_stat stat;  /* of the parent */
    struct hfi_zk_in to_come; /* for hfi_zk_next_child() */
};
int hfi_zk_get_children(struct hfi_zk_in *in, struct hfi_zk_children *ret);
/* False: the end. A name is never empty. */
bool hfi_zk_next_child(struct hfi_zk_children *children, struct hfi_zk_text *ret_name);

/* The results of a multi, one per operation. A refused multi has no error in its header, only in
 * its results. Those before the failed operation have error 0 as well, though nothing was done. */
struct hfi_zk_results {
    size_t len;
    int32_t err;              /* of the failed operation; 0: all was done */
    size_t failed_index;      /* its index; only with an error */
    struct hfi_zk_in to_come; /* for hfi_zk_next_result() */
};
struct hfi_zk_result {
    int32_t op; /* enum hfi_zk_op, or -1: an error */
    int32_t err;
    struct hfi_zk_text path; /* of a created node */
    struct hfi_zk_stat stat; /* of a node created with create2, or set; else zero */
};
int hfi_zk_get_results(struct hfi_zk_in *in, struct hfi_zk_results *ret);
/* false: the end */
bool hfi_zk_next_result(struct hfi_zk_results *results, struct hfi_zk_result *ret);

#endif
