/*
 * Names on the wire, as Curator's recipes make them: paths of locks, the nodes beneath them, their order,
 * and what a node says of its owner. No state.
 */
#ifndef HFI_ZK_NAMES_H
#define HFI_ZK_NAMES_H

#include "zk/wire.h"

struct hfi_zk_names {
    const char *chroot; /* "" or "/some/where": in front of every path */
    const char *prefix; /* in front of every name; "" is none */
};

#define HFI_ZK_NAME_MAX 1000 /* bytes, the prefix included */

/* Whether the server takes `name` behind the prefix as (a part of) a path. HF_OK or HF_EINVAL with
 * words. */
int hfi_zk_check_name(const struct hfi_zk_names *names, const char *name, size_t len,
                      hf_error *error);
/* The same for a chroot out of a url. */
int hfi_zk_check_chroot(const char *chroot, hf_error *error);

/* The path of a lock, with a zero byte behind it. A slash at the beginning of a prefix says
 * nothing. Returns its length; writes nothing if `to` is NULL. */
size_t hfi_zk_path(const struct hfi_zk_names *names, const char *name, size_t len, char *to);

/* How many bytes of a path are its parent's; 0: it is the root, or beneath it. */
size_t hfi_zk_parent_len(const char *path, size_t len);

/* ---- Nodes beneath a lock -------------------------------------------------------------------- */

#define HFI_ZK_UUID_LEN 16
#define HFI_ZK_UUID_TEXT 36

void hfi_zk_uuid_write(const unsigned char uuid[HFI_ZK_UUID_LEN], char to[HFI_ZK_UUID_TEXT]);
/* In whatever case. False: it is none. */
bool hfi_zk_uuid_parse(const char *text, unsigned char ret_uuid[HFI_ZK_UUID_LEN]);

enum hfi_zk_label {
    HFI_ZK_NO_LABEL, /* no participant */
    HFI_ZK_LOCK,     /* lock- */
    HFI_ZK_READ,     /* __READ__ */
    HFI_ZK_WRITE,    /* __WRIT__ */
    HFI_ZK_LEASE     /* lease- */
};

/* A participant: "_c_<uuid>-<label><number>". Others may come without a uuid. */
struct hfi_zk_node {
    enum hfi_zk_label label;
    int32_t number;
    bool has_uuid;
    unsigned char uuid[HFI_ZK_UUID_LEN];
    bool borrowed; /* the number is that of another node of its owner's; a name does not tell */
};

/* Room for "_c_<uuid>-<label>" with a number and a zero byte. */
#define HFI_ZK_NODE_TEXT 64

/* What is asked for: "_c_<uuid>-<label>", to which the server adds the number. Returns its length. */
size_t hfi_zk_node_stem(enum hfi_zk_label label, const unsigned char uuid[HFI_ZK_UUID_LEN],
                        char to[HFI_ZK_NODE_TEXT]);
/* The same with a number, as a server writes it. */
size_t hfi_zk_node_name(const struct hfi_zk_node *node, char to[HFI_ZK_NODE_TEXT]);
/* Takes a child's name apart. Without a label that is known, or without a number behind it, it is no
 * participant. */
struct hfi_zk_node hfi_zk_node_parse(const char *name, size_t len);

/* Whether the one number was drawn before the other. The server counts in 32 bits and goes on below
 * zero, so it is the difference that tells, not which is the larger. */
static inline bool hfi_zk_before(int32_t one, int32_t other) {
    return (int32_t)((uint32_t)one - (uint32_t)other) < 0;
}

/* ---- What a node says of its owner ----------------------------------------------------------- */

#define HFI_ZK_DATA_MAX 200
#define HFI_ZK_UNDER " under="

/* "holdfast:<client uuid>:<owner number> <host> <pid> <program>", and " under=<owner>" behind it if the process runs
 * under a hold of that owner; cut off where it gets too long. `who` is all of that behind the first owner. Returns its
 * length. */
size_t hfi_zk_data_write(const char *owner, size_t owner_len, const char *who,
                         char to[HFI_ZK_DATA_MAX]);

struct hfi_zk_data {
    struct hfi_zk_text owner; /* "uuid:number" */
    struct hfi_zk_text who;   /* "host pid program"; perhaps empty */
    struct hfi_zk_text under; /* for whose hold its process runs; perhaps empty */
};
/* False: another wrote it. */
bool hfi_zk_data_parse(struct hfi_zk_text data, struct hfi_zk_data *ret);

#endif
