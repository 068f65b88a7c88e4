/*
 * Names on the wire, as Curator's recipes make them: lock paths, the nodes beneath them, their
 * order, and a node's data. No state.
 */
#ifndef HFI_ZK_WIRE_NAMES_H
#define HFI_ZK_WIRE_NAMES_H

#include "zk/wire/wire.h"

struct hfi_zk_names {
    const char *chroot; /* "" or "/some/where": prepended to every path */
    const char *prefix; /* prepended to every name; "" is none */
};

#define HFI_ZK_NAME_MAX 1000 /* bytes, the prefix included */

/* Whether prefix + `name` is a valid path, or part of one. HF_OK, or HF_EINVAL with a text. */
int hfi_zk_check_name(const struct hfi_zk_names *names, const char *name, size_t len,
                      hf_error *error);
/* The same for a url's chroot. */
int hfi_zk_check_chroot(const char *chroot, hf_error *error);

/* The path of a lock, zero-terminated. A slash at the beginning of a prefix is dropped. Returns its
 * length; writes nothing if `to` is NULL. */
size_t hfi_zk_path(const struct hfi_zk_names *names, const char *name, size_t len, char *to);

/* Room for what follows the chroot in the path of a generation node, and a zero byte. */
#define HFI_ZK_GENERATION_TEXT 16

/* The path of the generation node of a counter at `path`: one of sixteen beneath the chroot,
 * ".holdfast-0" to ".holdfast-f". All clients must agree which (counter.c). Returns its length. */
size_t hfi_zk_generation_path(const struct hfi_zk_names *names, const char *path, size_t len,
                              char *to);

/* Length of the parent's path; 0: the path is the root, or right beneath it. */
size_t hfi_zk_parent_len(const char *path, size_t len);

/* ---- Nodes beneath a lock -------------------------------------------------------------------- */

#define HFI_ZK_UUID_LEN 16
#define HFI_ZK_UUID_TEXT 36

void hfi_zk_uuid_write(const unsigned char uuid[HFI_ZK_UUID_LEN], char to[HFI_ZK_UUID_TEXT]);
/* Any case. False: not a uuid. */
bool hfi_zk_uuid_parse(const char *text, unsigned char ret_uuid[HFI_ZK_UUID_LEN]);

enum hfi_zk_label {
    HFI_ZK_NO_LABEL, /* no participant */
    HFI_ZK_LOCK,     /* lock- */
    HFI_ZK_READ,     /* __READ__ */
    HFI_ZK_WRITE,    /* __WRIT__ */
    HFI_ZK_LEASE     /* lease- */
};

/* A participant: "_c_<uuid>-<label><number>". Nodes of other clients may lack the uuid. */
struct hfi_zk_node {
    enum hfi_zk_label label;
    int32_t number;
    bool has_uuid;
    unsigned char uuid[HFI_ZK_UUID_LEN];
    bool borrowed; /* the number is that of another node of its owner; a name does not show it */
};

/* Room for "_c_<uuid>-<label><number>" and a zero byte. */
#define HFI_ZK_NODE_TEXT 64

/* The requested name: "_c_<uuid>-<label>", to which the server appends the number. Returns its
 * length. */
size_t hfi_zk_node_stem(enum hfi_zk_label label, const unsigned char uuid[HFI_ZK_UUID_LEN],
                        char to[HFI_ZK_NODE_TEXT]);
/* The full name with the number, as a server writes it. */
size_t hfi_zk_node_name(const struct hfi_zk_node *node, char to[HFI_ZK_NODE_TEXT]);
/* Parses a child's name. Without a known label, or without a number behind it, it is no
 * participant. */
struct hfi_zk_node hfi_zk_node_parse(const char *name, size_t len);

/* Whether `one` was drawn before `other`. The server's 32-bit counter may wrap to negative numbers,
 * so compare by difference, not by size. */
static inline bool hfi_zk_before(int32_t one, int32_t other) {
    return (int32_t)((uint32_t)one - (uint32_t)other) < 0;
}

/* ---- A node's data: its owner ---------------------------------------------------------------- */

#define HFI_ZK_DATA_MAX 200
#define HFI_ZK_UNDER " under="

/* "holdfast:<client uuid>:<owner number> <host> <pid> <program>". If the process runs under a hold,
 * " under=<owner>" follows. Cut off where it gets too long. `who` is everything behind the first
 * owner. Returns the length. */
size_t hfi_zk_data_write(const char *owner, size_t owner_len, const char *who,
                         char to[HFI_ZK_DATA_MAX]);

struct hfi_zk_data {
    struct hfi_zk_text owner; /* "uuid:number" */
    struct hfi_zk_text who;   /* "host pid program"; perhaps empty */
    struct hfi_zk_text under; /* the owner of the hold its process runs under; perhaps empty */
};
/* False: not written by holdfast. */
bool hfi_zk_data_parse(struct hfi_zk_text data, struct hfi_zk_data *ret);

#endif
