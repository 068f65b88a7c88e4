/*
 * Cluster slots: CRC16 of names, CLUSTER SLOTS replies.
 *
 * Used by the cluster route, on any thread; stateless.
 *
 * Invariant: no reply is used in part. A map with one invalid range is rejected, since applying the
 * rest would leave unknown gaps.
 */
#include "redis/route/slots.h"

#include "redis/route/addresses.h"

#include <holdfast/holdfast.h>

#include <string.h>

/* ---- The slot of a name ---- */

/* CRC16/XMODEM (polynomial 0x1021) of each byte. */
static const uint16_t crc_of_byte[256] = {
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
    0xc18c, 0xd1ad, 0xe1ce, 0xf1ef, 0x1231, 0x0210, 0x3273, 0x2252, 0x52b5, 0x4294, 0x72f7, 0x62d6,
    0x9339, 0x8318, 0xb37b, 0xa35a, 0xd3bd, 0xc39c, 0xf3ff, 0xe3de, 0x2462, 0x3443, 0x0420, 0x1401,
    0x64e6, 0x74c7, 0x44a4, 0x5485, 0xa56a, 0xb54b, 0x8528, 0x9509, 0xe5ee, 0xf5cf, 0xc5ac, 0xd58d,
    0x3653, 0x2672, 0x1611, 0x0630, 0x76d7, 0x66f6, 0x5695, 0x46b4, 0xb75b, 0xa77a, 0x9719, 0x8738,
    0xf7df, 0xe7fe, 0xd79d, 0xc7bc, 0x48c4, 0x58e5, 0x6886, 0x78a7, 0x0840, 0x1861, 0x2802, 0x3823,
    0xc9cc, 0xd9ed, 0xe98e, 0xf9af, 0x8948, 0x9969, 0xa90a, 0xb92b, 0x5af5, 0x4ad4, 0x7ab7, 0x6a96,
    0x1a71, 0x0a50, 0x3a33, 0x2a12, 0xdbfd, 0xcbdc, 0xfbbf, 0xeb9e, 0x9b79, 0x8b58, 0xbb3b, 0xab1a,
    0x6ca6, 0x7c87, 0x4ce4, 0x5cc5, 0x2c22, 0x3c03, 0x0c60, 0x1c41, 0xedae, 0xfd8f, 0xcdec, 0xddcd,
    0xad2a, 0xbd0b, 0x8d68, 0x9d49, 0x7e97, 0x6eb6, 0x5ed5, 0x4ef4, 0x3e13, 0x2e32, 0x1e51, 0x0e70,
    0xff9f, 0xefbe, 0xdfdd, 0xcffc, 0xbf1b, 0xaf3a, 0x9f59, 0x8f78, 0x9188, 0x81a9, 0xb1ca, 0xa1eb,
    0xd10c, 0xc12d, 0xf14e, 0xe16f, 0x1080, 0x00a1, 0x30c2, 0x20e3, 0x5004, 0x4025, 0x7046, 0x6067,
    0x83b9, 0x9398, 0xa3fb, 0xb3da, 0xc33d, 0xd31c, 0xe37f, 0xf35e, 0x02b1, 0x1290, 0x22f3, 0x32d2,
    0x4235, 0x5214, 0x6277, 0x7256, 0xb5ea, 0xa5cb, 0x95a8, 0x8589, 0xf56e, 0xe54f, 0xd52c, 0xc50d,
    0x34e2, 0x24c3, 0x14a0, 0x0481, 0x7466, 0x6447, 0x5424, 0x4405, 0xa7db, 0xb7fa, 0x8799, 0x97b8,
    0xe75f, 0xf77e, 0xc71d, 0xd73c, 0x26d3, 0x36f2, 0x0691, 0x16b0, 0x6657, 0x7676, 0x4615, 0x5634,
    0xd94c, 0xc96d, 0xf90e, 0xe92f, 0x99c8, 0x89e9, 0xb98a, 0xa9ab, 0x5844, 0x4865, 0x7806, 0x6827,
    0x18c0, 0x08e1, 0x3882, 0x28a3, 0xcb7d, 0xdb5c, 0xeb3f, 0xfb1e, 0x8bf9, 0x9bd8, 0xabbb, 0xbb9a,
    0x4a75, 0x5a54, 0x6a37, 0x7a16, 0x0af1, 0x1ad0, 0x2ab3, 0x3a92, 0xfd2e, 0xed0f, 0xdd6c, 0xcd4d,
    0xbdaa, 0xad8b, 0x9de8, 0x8dc9, 0x7c26, 0x6c07, 0x5c64, 0x4c45, 0x3ca2, 0x2c83, 0x1ce0, 0x0cc1,
    0xef1f, 0xff3e, 0xcf5d, 0xdf7c, 0xaf9b, 0xbfba, 0x8fd9, 0x9ff8, 0x6e17, 0x7e36, 0x4e55, 0x5e74,
    0x2e93, 0x3eb2, 0x0ed1, 0x1ef0,
};

/* Bits above the lowest 16 are ignored. */
static unsigned crc_add(unsigned crc, const char *bytes, size_t len) {
    for (const char *end = bytes + len; bytes != end; bytes++)
        crc = (crc << 8) ^ crc_of_byte[((crc >> 8) ^ (unsigned char)*bytes) & 0xff];
    return crc;
}

/* A key in two pieces. */
struct key {
    const char *prefix, *name;
    size_t prefix_len, len;
};

/* The index of the next `wanted`, from `i` on; the key's length: there is none. */
static size_t find_char(const struct key *key, char wanted, size_t i) {
    const char *found = NULL;
    if (i < key->prefix_len) {
        found = memchr(key->prefix + i, wanted, key->prefix_len - i);
        if (found != NULL)
            return (size_t)(found - key->prefix);
        i = key->prefix_len;
    }
    if (i < key->prefix_len + key->len)
        found = memchr(key->name + (i - key->prefix_len), wanted, key->prefix_len + key->len - i);
    return found != NULL ? key->prefix_len + (size_t)(found - key->name)
                         : key->prefix_len + key->len;
}

/* The slot of a key with a brace: only its hash tag counts, if it has one. */
static unsigned slot_of_tagged(const struct key *key) {
    size_t from = 0, to = key->prefix_len + key->len;
    size_t open = find_char(key, '{', 0);
    size_t close = open < to ? find_char(key, '}', open + 1) : to;
    if (close < to && close > open + 1) {
        from = open + 1;
        to = close;
    }
    unsigned crc = 0;
    if (from < key->prefix_len) {
        size_t end = to < key->prefix_len ? to : key->prefix_len;
        crc = crc_add(crc, key->prefix + from, end - from);
        from = end;
    }
    if (from < to)
        crc = crc_add(crc, key->name + (from - key->prefix_len), to - from);
    return crc % HFI_SLOTS;
}

unsigned hfi_slot_of(const char *prefix, size_t prefix_len, const char *name, size_t len) {
    bool tagged = memchr(name, '{', len) != NULL;
    if (prefix_len > 0 && !tagged)
        tagged = memchr(prefix, '{', prefix_len) != NULL;
    if (tagged)
        return slot_of_tagged(&(struct key){prefix, name, prefix_len, len});
    return crc_add(crc_add(0, prefix, prefix_len), name, len) % HFI_SLOTS;
}

/* ---- CLUSTER SLOTS ---- */

static bool is_slot(const struct hfi_reply *reply) {
    return reply->type == HFI_REPLY_INTEGER && reply->integer >= 0 && reply->integer < HFI_SLOTS;
}

/* {host, port, ...}. Nodes may send no host, or "?" for an unknown one. */
static bool read_server(const struct hfi_reply *reply, struct hfi_slot_host *ret, bool *ret_known) {
    if (reply->type != HFI_REPLY_ARRAY || reply->elements < 2)
        return false;
    const struct hfi_reply *host = reply->element[0], *port = reply->element[1];
    if (host->type != HFI_REPLY_STRING && host->type != HFI_REPLY_NIL)
        return false;
    if (port->type != HFI_REPLY_INTEGER || port->integer < 0 || port->integer > UINT16_MAX)
        return false;
    bool named = host->type == HFI_REPLY_STRING;
    if (named && !hfi_is_host(host->str, host->len))
        return false;
    ret->host = named ? host->str : "";
    ret->host_len = named ? host->len : 0;
    ret->port = (uint16_t)port->integer;
    *ret_known = ret->port != 0 && !(ret->host_len == 1 && ret->host[0] == '?');
    return true;
}

static bool read_range(const struct hfi_reply *reply, struct hfi_slot_range *ret) {
    if (reply->type != HFI_REPLY_ARRAY || reply->elements < 3)
        return false;
    const struct hfi_reply *first = reply->element[0], *last = reply->element[1];
    if (!is_slot(first) || !is_slot(last) || first->integer > last->integer)
        return false;
    ret->first = (unsigned)first->integer;
    ret->last = (unsigned)last->integer;
    ret->replicas = 0;
    for (size_t i = 3; i < reply->elements; i++) {
        struct hfi_slot_host replica;
        bool known;
        if (!read_server(reply->element[i], &replica, &known))
            return false;
        ret->replicas++;
    }
    return read_server(reply->element[2], &ret->primary, &ret->known);
}

static bool mark(unsigned char taken[HFI_SLOTS / 8], const struct hfi_slot_range *range) {
    for (unsigned slot = range->first; slot <= range->last; slot++) {
        unsigned char bit = (unsigned char)(1u << slot % 8);
        if ((taken[slot / 8] & bit) != 0)
            return false;
        taken[slot / 8] |= bit;
    }
    return true;
}

/* No slot is in two ranges, so the ranges together visit each slot at most once, however long the
 * reply is. */
static bool is_map(const struct hfi_reply *reply) {
    unsigned char taken[HFI_SLOTS / 8] = {0};
    struct hfi_slot_range range;
    if (reply->type != HFI_REPLY_ARRAY)
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (!read_range(reply->element[i], &range) || !mark(taken, &range))
            return false;
    return true;
}

int hfi_slots_read(const struct hfi_reply *reply,
                   void (*visit)(const struct hfi_slot_range *range, void *arg), void *arg) {
    if (!is_map(reply))
        return HF_EPROTO;
    for (size_t i = 0; i < reply->elements; i++) {
        struct hfi_slot_range range;
        if (read_range(reply->element[i], &range))
            visit(&range, arg);
    }
    return HF_OK;
}
