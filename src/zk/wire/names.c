/*
 * Names of ZooKeeper's nodes.
 *
 * Called by the engine and by calls, when requests are written and lists are read, on any thread;
 * no state. Parsing follows Curator exactly: the number is what follows the last occurrence of the
 * label, whatever comes before.
 */
#include "zk/wire/names.h"

#include "base/error.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define GENERATION ".holdfast-" /* and a hexadecimal digit */

/* ---- Valid paths ----------------------------------------------------------------------------- */

/* Decodes the first character. Returns its length in bytes; 0: not UTF-8. Overlong forms are
 * refused here, other characters by is_refused(). */
static size_t decode(const unsigned char *at, size_t left, uint32_t *ret_char) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = at[0] < 0x80 ? 1 : at[0] < 0xc0 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (len == 0 || len > left || at[0] >= 0xf8)
        return 0;
    uint32_t c = len == 1 ? at[0] : at[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (at[i] & 0x3f);
    }
    if (c < least[len])
        return 0;
    *ret_char = c;
    return len;
}

/* Java has two surrogates for a character beyond U+FFFF, and the server refuses surrogates. */
static bool is_refused(uint32_t c) {
    return c <= 0x1f || (c >= 0x7f && c <= 0x9f) || (c >= 0xd800 && c <= 0xf8ff) || c >= 0xfff0;
}

static int check_characters(const char *path, size_t len, hf_error *error) {
    for (size_t at = 0; at < len;) {
        uint32_t c;
        size_t more = decode((const unsigned char *)path + at, len - at, &c);
        if (more == 0)
            return hfi_fail(error, HF_EINVAL, "ZooKeeper names must be UTF-8");
        if (is_refused(c))
            return hfi_fail(error, HF_EINVAL,
                            "the name contains U+%04X, which ZooKeeper does not allow",
                            (unsigned)c);
        at += more;
    }
    return HF_OK;
}

static int check_components(const char *path, size_t len, hf_error *error) {
    for (size_t at = 0; at <= len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t end = slash != NULL ? (size_t)(slash - path) : len;
        const char *part = path + at;
        size_t part_len = end - at;
        if (part_len == 0)
            return hfi_fail(error, HF_EINVAL, "the name has an empty part before or after a '/'");
        if (part[0] == '.' && (part_len == 1 || (part_len == 2 && part[1] == '.')))
            return hfi_fail(error, HF_EINVAL, "the name has '.' or '..' as a part");
        at = end + 1;
    }
    return HF_OK;
}

static bool begins_with_part(const char *path, size_t len, const char *part) {
    size_t part_len = strlen(part);
    return len >= part_len && memcmp(path, part, part_len) == 0 &&
           (len == part_len || path[part_len] == '/');
}

/* Generation nodes, which are at the top of a chroot. */
static bool is_generation(const char *path, size_t len) {
    static const char digits[] = "0123456789abcdef";
    size_t first = sizeof GENERATION - 1;
    return len > first && memcmp(path, GENERATION, first) == 0 &&
           memchr(digits, path[first], sizeof digits - 1) != NULL &&
           (len == first + 1 || path[first + 1] == '/');
}

/* Checks a path without its leading slash. `top`: it begins at the root. */
static int check_path(const char *path, size_t len, bool top, hf_error *error) {
    int err = check_characters(path, len, error);
    if (err == HF_OK)
        err = check_components(path, len, error);
    if (err == HF_OK && top && begins_with_part(path, len, "zookeeper"))
        return hfi_fail(error, HF_EINVAL, "/zookeeper is reserved by the server");
    return err;
}

static void drop_slash(const char **text, size_t *len) {
    if (*len > 0 && **text == '/') {
        ++*text;
        --*len;
    }
}

static char *put(char *to, const char *bytes, size_t len) {
    memcpy(to, bytes, len);
    return to + len;
}

/* Writes prefix + name, without the prefix's leading slash; returns the length. */
static size_t join(const struct hfi_zk_names *names, const char *name, size_t len, char *to) {
    const char *prefix = names->prefix;
    size_t prefix_len = strlen(prefix);
    drop_slash(&prefix, &prefix_len);
    if (to != NULL)
        put(put(to, prefix, prefix_len), name, len);
    return prefix_len + len;
}

int hfi_zk_check_name(const struct hfi_zk_names *names, const char *name, size_t len,
                      hf_error *error) {
    char joined[HFI_ZK_NAME_MAX];
    if (len == 0)
        return hfi_fail(error, HF_EINVAL, "the name is empty");
    if (*name == '/') /* else one lock at the server would be two to this client */
        return hfi_fail(error, HF_EINVAL,
                        "the name begins with a '/'; write app/x for the node /app/x");
    size_t all = join(names, name, len, NULL);
    if (all > HFI_ZK_NAME_MAX)
        return hfi_fail(error, HF_EINVAL, "the name is longer than %d bytes", HFI_ZK_NAME_MAX);
    join(names, name, len, joined);
    if (is_generation(joined, all))
        return hfi_fail(error, HF_EINVAL, GENERATION "0 to " GENERATION "f are reserved");
    return check_path(joined, all, *names->chroot == '\0', error);
}

int hfi_zk_check_chroot(const char *chroot, hf_error *error) {
    size_t len = strlen(chroot);
    if (len == 0)
        return HF_OK;
    if (*chroot != '/')
        return hfi_fail(error, HF_EINVAL, "the path does not begin with '/'");
    if (len - 1 > HFI_ZK_NAME_MAX)
        return hfi_fail(error, HF_EINVAL, "the path is longer than %d bytes", HFI_ZK_NAME_MAX);
    return check_path(chroot + 1, len - 1, true, error);
}

size_t hfi_zk_path(const struct hfi_zk_names *names, const char *name, size_t len, char *to) {
    size_t at = strlen(names->chroot);
    if (to != NULL) {
        *put(to, names->chroot, at) = '/';
    }
    size_t end = at + 1 + join(names, name, len, to != NULL ? to + at + 1 : NULL);
    if (to != NULL)
        to[end] = '\0';
    return end;
}

size_t hfi_zk_generation_path(const struct hfi_zk_names *names, const char *path, size_t len,
                              char *to) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)path[i]) * 16777619u;
    hash ^= hash >> 16;
    hash ^= hash >> 8;
    size_t at = strlen(names->chroot);
    memcpy(to, names->chroot, at);
    return at + (size_t)snprintf(to + at, HFI_ZK_GENERATION_TEXT, "/" GENERATION "%x",
                                 (unsigned)((hash ^ hash >> 4) & 15));
}

size_t hfi_zk_parent_len(const char *path, size_t len) {
    while (len > 0 && path[len - 1] != '/')
        len--;
    return len > 0 ? len - 1 : 0;
}

/* ---- Uuids ----------------------------------------------------------------------------------- */

static bool has_dash_before(size_t byte) {
    return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

void hfi_zk_uuid_write(const unsigned char uuid[HFI_ZK_UUID_LEN], char to[HFI_ZK_UUID_TEXT]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < HFI_ZK_UUID_LEN; i++) {
        if (has_dash_before(i))
            *to++ = '-';
        *to++ = digits[uuid[i] >> 4];
        *to++ = digits[uuid[i] & 15];
    }
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool hfi_zk_uuid_parse(const char *text, unsigned char ret_uuid[HFI_ZK_UUID_LEN]) {
    unsigned char found[HFI_ZK_UUID_LEN];
    for (size_t i = 0; i < HFI_ZK_UUID_LEN; i++) {
        if (has_dash_before(i) && *text++ != '-')
            return false;
        int high = hex_value(text[0]);
        int low = high < 0 ? -1 : hex_value(text[1]);
        if (low < 0)
            return false;
        found[i] = (unsigned char)(high << 4 | low);
        text += 2;
    }
    memcpy(ret_uuid, found, sizeof found);
    return true;
}

/* ---- Nodes beneath a lock -------------------------------------------------------------------- */

#define PROTECTED "_c_"

static const char *const labels[] = {
    [HFI_ZK_LOCK] = "lock-",
    [HFI_ZK_READ] = "__READ__",
    [HFI_ZK_WRITE] = "__WRIT__",
    [HFI_ZK_LEASE] = "lease-",
};

size_t hfi_zk_node_stem(enum hfi_zk_label label, const unsigned char uuid[HFI_ZK_UUID_LEN],
                        char to[HFI_ZK_NODE_TEXT]) {
    char text[HFI_ZK_UUID_TEXT];
    hfi_zk_uuid_write(uuid, text);
    return (size_t)snprintf(to, HFI_ZK_NODE_TEXT, PROTECTED "%.*s-%s", HFI_ZK_UUID_TEXT, text,
                            labels[label]);
}

size_t hfi_zk_node_name(const struct hfi_zk_node *node, char to[HFI_ZK_NODE_TEXT]) {
    size_t len = hfi_zk_node_stem(node->label, node->uuid, to);
    return len + (size_t)snprintf(to + len, HFI_ZK_NODE_TEXT - len, "%010d", (int)node->number);
}

/* Parses a number exactly as the server writes it: ten places, a sign included if it fits. */
static bool parse_number(const char *text, size_t len, int32_t *ret) {
    bool negative = len > 0 && text[0] == '-';
    int64_t number = 0;
    if (len < 10 || len > 11)
        return false;
    for (size_t i = negative ? 1 : 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        number = number * 10 + (text[i] - '0');
    }
    if (negative)
        number = -number;
    if (number < INT32_MIN || number > INT32_MAX)
        return false;
    *ret = (int32_t)number;
    return true;
}

/* The text behind the last occurrence of `label`; NULL: it does not occur. */
static const char *behind_last(const char *name, size_t len, const char *label) {
    size_t label_len = strlen(label);
    for (size_t at = len; at >= label_len; at--)
        if (memcmp(name + at - label_len, label, label_len) == 0)
            return name + at;
    return NULL;
}

static bool parse_uuid_of(const char *name, size_t len, unsigned char ret_uuid[HFI_ZK_UUID_LEN]) {
    size_t before = strlen(PROTECTED);
    return len > before + HFI_ZK_UUID_TEXT && memcmp(name, PROTECTED, before) == 0 &&
           name[before + HFI_ZK_UUID_TEXT] == '-' && hfi_zk_uuid_parse(name + before, ret_uuid);
}

struct hfi_zk_node hfi_zk_node_parse(const char *name, size_t len) {
    struct hfi_zk_node node = {.label = HFI_ZK_NO_LABEL};
    for (enum hfi_zk_label label = HFI_ZK_LOCK; label <= HFI_ZK_LEASE; label++) {
        const char *number = behind_last(name, len, labels[label]);
        if (number == NULL || !parse_number(number, len - (size_t)(number - name), &node.number))
            continue;
        node.label = label;
        node.has_uuid = parse_uuid_of(name, len, node.uuid);
        break;
    }
    return node;
}

/* ---- A node's data: its owner ---------------------------------------------------------------- */

#define OURS "holdfast:"

size_t hfi_zk_data_write(const char *owner, size_t owner_len, const char *who,
                         char to[HFI_ZK_DATA_MAX]) {
    char text[HFI_ZK_DATA_MAX + 1];
    int whole = snprintf(text, sizeof text, OURS "%.*s%s%s", (int)owner_len, owner,
                         *who != '\0' ? " " : "", who);
    size_t len = (size_t)whole < HFI_ZK_DATA_MAX ? (size_t)whole : HFI_ZK_DATA_MAX;
    memcpy(to, text, len);
    return len;
}

/* "uuid:number" */
static bool is_owner(struct hfi_zk_text text) {
    unsigned char uuid[HFI_ZK_UUID_LEN];
    if (text.len < HFI_ZK_UUID_TEXT + 2 || text.bytes[HFI_ZK_UUID_TEXT] != ':' ||
        !hfi_zk_uuid_parse(text.bytes, uuid))
        return false;
    for (size_t i = HFI_ZK_UUID_TEXT + 1; i < text.len; i++)
        if (text.bytes[i] < '0' || text.bytes[i] > '9')
            return false;
    return true;
}

/* Cuts the text behind the last " under=" off the end, if it is an owner. */
static struct hfi_zk_text take_under(struct hfi_zk_text *who) {
    struct hfi_zk_text under = {.bytes = "", .len = 0};
    const char *mark = behind_last(who->bytes, who->len, HFI_ZK_UNDER);
    if (mark == NULL)
        return under;
    struct hfi_zk_text found = {.bytes = mark, .len = who->len - (size_t)(mark - who->bytes)};
    if (!is_owner(found))
        return under;
    who->len -= found.len + strlen(HFI_ZK_UNDER);
    return found;
}

bool hfi_zk_data_parse(struct hfi_zk_text data, struct hfi_zk_data *ret) {
    size_t before = strlen(OURS);
    if (data.len < before || memcmp(data.bytes, OURS, before) != 0)
        return false;
    struct hfi_zk_text owner = {.bytes = data.bytes + before, .len = data.len - before};
    struct hfi_zk_text who = {.bytes = "", .len = 0};
    const char *space = memchr(owner.bytes, ' ', owner.len);
    if (space != NULL) {
        who.bytes = space + 1;
        who.len = owner.len - (size_t)(who.bytes - owner.bytes);
        owner.len = (size_t)(space - owner.bytes);
    }
    if (!is_owner(owner))
        return false;
    ret->owner = owner;
    ret->under = take_under(&who);
    ret->who = who;
    return true;
}
