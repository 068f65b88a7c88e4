/*
 * The protocol of ZooKeeper as bytes: requests are written into a buffer, messages are read from a
 * frame. No sockets, no state.
 *
 * A frame is a length of four bytes and so many bytes. Numbers are big endian; text and data have
 * their length in front, -1 for none. What is read comes from the network: no length, count or code
 * in it is believed before it was compared with what is left, and nothing is allocated for it. What
 * is handed out points into the frame.
 */
#ifndef HFI_ZK_WIRE_H
#define HFI_ZK_WIRE_H

#include "base/mem.h"

#define HFI_ZK_FRAME_MAX (4 * 1024 * 1024)   /* of a message; a server takes 1 MiB of a request */
#define HFI_ZK_FRAME_LONG (64 * 1024 * 1024) /* what is longer than this is no message */
#define HFI_ZK_PASSWORD_LEN 16               /* of a session, made by the server */
#define HFI_ZK_ANY_VERSION (-1)

/* What a message answers, besides the numbers that we give to requests, which are positive. */
enum { HFI_ZK_XID_EVENT = -1, HFI_ZK_XID_PING = -2, HFI_ZK_XID_AUTH = -4 };

enum hfi_zk_op {
    HFI_ZK_OP_CREATE = 1, /* only in answers */
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
    HFI_ZK_OP_CREATE_TTL = 21, /* only in answers */
    HFI_ZK_OP_AUTH = 100,
    HFI_ZK_OP_CLOSE_SESSION = -11
};

/* What becomes of a node when its session ends, and whether its name gets a number. */
enum hfi_zk_mode {
    HFI_ZK_PERSISTENT = 0,
    HFI_ZK_EPHEMERAL = 1,
    HFI_ZK_PERSISTENT_SEQUENTIAL = 2,
    HFI_ZK_EPHEMERAL_SEQUENTIAL = 3,
    HFI_ZK_CONTAINER = 4
};

enum hfi_zk_acl {
    HFI_ZK_ACL_OPEN,   /* world:anyone, all rights */
    HFI_ZK_ACL_CREATOR /* whoever this connection has shown itself to be, all rights */
};

/* ---- Writing --------------------------------------------------------------------------------- */

/* Whole frames, one after the other. Small ones need no allocation. */
struct hfi_zk_out {
    const struct hfi_mem *mem;
    char *bytes;
    size_t len, cap;
    size_t start; /* of the open frame */
    bool failed;  /* out of memory: the bytes are worth nothing */
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

/* Each of these writes a frame. None can fail; check `failed` when everything is written. Paths end
 * with a zero byte and contain none; they are as the server knows them, the chroot in front. */
void hfi_zk_put_connect(struct hfi_zk_out *out, const struct hfi_zk_connect *connect);
void hfi_zk_put_auth(struct hfi_zk_out *out, const char *scheme, const void *secret, size_t len);
void hfi_zk_put_ping(struct hfi_zk_out *out);
void hfi_zk_put_close(struct hfi_zk_out *out, int32_t xid);
/* With HFI_ZK_CONTAINER it is createContainer, else create2; both are answered with a stat. */
void hfi_zk_put_create(struct hfi_zk_out *out, int32_t xid, const char *path, const void *data,
                       size_t len, enum hfi_zk_mode mode, enum hfi_zk_acl acl);
void hfi_zk_put_delete(struct hfi_zk_out *out, int32_t xid, const char *path, int32_t version);
void hfi_zk_put_exists(struct hfi_zk_out *out, int32_t xid, const char *path, bool watch);
void hfi_zk_put_get_data(struct hfi_zk_out *out, int32_t xid, const char *path, bool watch);
void hfi_zk_put_get_children(struct hfi_zk_out *out, int32_t xid, const char *path, bool watch);
void hfi_zk_put_set_data(struct hfi_zk_out *out, int32_t xid, const char *path, const void *data,
                         size_t len, int32_t version);
void hfi_zk_put_sync(struct hfi_zk_out *out, int32_t xid, const char *path);

/* All or nothing: the frame is open between begin and end, and what it is to do comes between. */
void hfi_zk_multi_begin(struct hfi_zk_out *out, int32_t xid);
void hfi_zk_multi_check(struct hfi_zk_out *out, const char *path, int32_t version);
void hfi_zk_multi_create(struct hfi_zk_out *out, const char *path, const void *data, size_t len,
                         enum hfi_zk_mode mode, enum hfi_zk_acl acl);
void hfi_zk_multi_delete(struct hfi_zk_out *out, const char *path, int32_t version);
void hfi_zk_multi_set_data(struct hfi_zk_out *out, const char *path, const void *data, size_t len,
                           int32_t version);
void hfi_zk_multi_end(struct hfi_zk_out *out);

/* ---- Reading --------------------------------------------------------------------------------- */

/* What is left of a message, without the length of its frame. */
struct hfi_zk_in {
    const unsigned char *at;
    size_t left;
};

static inline struct hfi_zk_in hfi_zk_in(const void *bytes, size_t len) {
    return (struct hfi_zk_in){.at = bytes, .left = len};
}

struct hfi_zk_text {
    const char *bytes; /* NULL: there is none */
    size_t len;
};

struct hfi_zk_stat {
    int64_t czxid, mzxid; /* the transactions that made it, and changed its data last */
    int64_t ctime_ms, mtime_ms;
    int32_t version, cversion, aversion; /* of its data, its children, its acl */
    int64_t ephemeral_owner;             /* a session; 0: it stays */
    int32_t data_len, children_len;
    int64_t pzxid; /* the transaction that changed its children last */
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
    int32_t
        err; /* 0, or one of errors.h; then nothing follows. Of a multi always 0 if it was tried */
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

/* The frame at the beginning of `bytes`. HF_OK: *ret_len bytes of message behind four bytes of length,
 * or SIZE_MAX: more has to come. HF_EPROTO: no frame is that long, or its length is negative. */
int hfi_zk_frame_len(const void *bytes, size_t len, size_t *ret_len);
/* It is a message all the same, of *ret_len bytes, as the list of very many nodes is: one to be skipped. */
bool hfi_zk_frame_is_long(const void *bytes, size_t len, size_t *ret_len);

/* Each takes from the front of what is left. HF_OK or HF_EPROTO, and then nothing was written to
 * `ret`. More than was expected may be left: newer servers may say more. */
int hfi_zk_get_connected(struct hfi_zk_in *in, struct hfi_zk_connected *ret);
int hfi_zk_get_header(struct hfi_zk_in *in, struct hfi_zk_header *ret);
int hfi_zk_get_event(struct hfi_zk_in *in, struct hfi_zk_event *ret);
int hfi_zk_get_stat(struct hfi_zk_in *in, struct hfi_zk_stat *ret); /* exists, setData */
/* create2, createContainer: the path with its number */
int hfi_zk_get_created(struct hfi_zk_in *in, struct hfi_zk_text *ret_path,
                       struct hfi_zk_stat *ret_stat);
int hfi_zk_get_data(struct hfi_zk_in *in, struct hfi_zk_text *ret_data,
                    struct hfi_zk_stat *ret_stat);

/* getChildren2. All names were seen to be whole, so walking over them cannot fail. */
struct hfi_zk_children {
    size_t len;
    struct hfi_zk_stat stat;  /* of the parent */
    struct hfi_zk_in to_come; /* for hfi_zk_next_child() */
};
int hfi_zk_get_children(struct hfi_zk_in *in, struct hfi_zk_children *ret);
/* False: that was the last. A name is never without bytes. */
bool hfi_zk_next_child(struct hfi_zk_children *children, struct hfi_zk_text *ret_name);

/* What came of a multi. A refused one has no error in its header: its results tell, one for each
 * thing that was to be done. Those before the culprit have error 0 as well, though nothing was done. */
struct hfi_zk_results {
    size_t len;
    int32_t err;              /* the culprit's; 0: all was done */
    size_t culprit;           /* its place, from 0; only with an error */
    struct hfi_zk_in to_come; /* for hfi_zk_next_result() */
};
struct hfi_zk_result {
    int32_t op; /* enum hfi_zk_op, or -1: an error */
    int32_t err;
    struct hfi_zk_text path; /* of what was created */
    struct hfi_zk_stat stat; /* of what was created with create2, or set; else zero */
};
int hfi_zk_get_results(struct hfi_zk_in *in, struct hfi_zk_results *ret);
bool hfi_zk_next_result(struct hfi_zk_results *results, struct hfi_zk_result *ret); /* or the end */

#endif
