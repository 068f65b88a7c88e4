/*
 * Slots of a cluster: CRC16 of names, the answer to CLUSTER SLOTS, MOVED and ASK.
 *
 * Used by the route of a cluster, on any thread; stateless.
 *
 * Invariant: nothing that a node says is believed in part. A map with one range that cannot be is no
 * map, since whoever applied the rest would not know what it is missing.
 */
#include "redis/route/slots.h"

#include <holdfast/holdfast.h>

#include <string.h>

#define HOST_MAX 255 /* as urls have it */

/* ---- Which slot ---- */

/* CRC16/XMODEM (polynomial 0x1021): what four bits at the top of a sum do to it. */
static const uint16_t crc_of_nibble[16] = {
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
    0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
};

static unsigned crc_add(unsigned crc, unsigned char byte) {
    crc = (crc << 4) ^ crc_of_nibble[((crc >> 12) ^ (byte >> 4)) & 0xf];
    crc = (crc << 4) ^ crc_of_nibble[((crc >> 12) ^ byte) & 0xf];
    return crc & 0xffff;
}

/* A key that is in two pieces. */
struct key {
    const char *prefix, *name;
    size_t prefix_len, len;
};

static char char_at(const struct key *key, size_t i) {
    return i < key->prefix_len ? key->prefix[i] : key->name[i - key->prefix_len];
}

/* Where the next `wanted` is, from `i` on; the length of the key: there is none. */
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

unsigned hfi_slot_of(const char *prefix, size_t prefix_len, const char *name, size_t len) {
    const struct key key = {.prefix = prefix, .name = name, .prefix_len = prefix_len, .len = len};
    size_t from = 0, to = prefix_len + len;
    size_t open = find_char(&key, '{', 0);
    size_t close = open < to ? find_char(&key, '}', open + 1) : to;
    if (close < to && close > open + 1) {
        from = open + 1;
        to = close;
    }
    unsigned crc = 0;
    for (size_t i = from; i < to; i++)
        crc = crc_add(crc, (unsigned char)char_at(&key, i));
    return crc % HFI_SLOTS;
}

/* ---- What a node says ---- */

static bool is_slot(const redisReply *reply) {
    return reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0 && reply->integer < HFI_SLOTS;
}

/* No control characters, no spaces: it will be looked up, compared and logged. */
static bool is_host(const char *host, size_t len) {
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)host[i] <= ' ' || host[i] == 0x7f)
            return false;
    return len <= HOST_MAX;
}

/* {host, port, ...}. No host, or none known ("?"), is something that nodes say. */
static bool read_server(const redisReply *reply, struct hfi_slot_host *ret, bool *ret_known) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
        return false;
    const redisReply *host = reply->element[0], *port = reply->element[1];
    if (host->type != REDIS_REPLY_STRING && host->type != REDIS_REPLY_NIL)
        return false;
    if (port->type != REDIS_REPLY_INTEGER || port->integer < 0 || port->integer > UINT16_MAX)
        return false;
    bool named = host->type == REDIS_REPLY_STRING;
    if (named && !is_host(host->str, host->len))
        return false;
    ret->host = named ? host->str : "";
    ret->host_len = named ? host->len : 0;
    ret->port = (uint16_t)port->integer;
    *ret_known = ret->port != 0 && !(ret->host_len == 1 && ret->host[0] == '?');
    return true;
}

static bool read_range(const redisReply *reply, struct hfi_slot_range *ret) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3)
        return false;
    const redisReply *first = reply->element[0], *last = reply->element[1];
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

/* No slot is in two ranges, so however long an answer is, there is no more to visit than slots. */
static bool is_map(const redisReply *reply) {
    unsigned char taken[HFI_SLOTS / 8] = {0};
    struct hfi_slot_range range;
    if (reply->type != REDIS_REPLY_ARRAY)
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (!read_range(reply->element[i], &range) || !mark(taken, &range))
            return false;
    return true;
}

int hfi_slots_read(const redisReply *reply,
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

/* ---- Where it sends us ---- */

struct text {
    const char *at;
    size_t len;
};

static bool skip_word(struct text *text, const char *word) {
    size_t len = strlen(word);
    if (text->len < len || memcmp(text->at, word, len) != 0)
        return false;
    *text = (struct text){text->at + len, text->len - len};
    return true;
}

/* Digits alone, no more than `max`. */
static bool read_number(struct text text, unsigned max, unsigned *ret) {
    unsigned number = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return false;
        number = number * 10 + (unsigned)(text.at[i] - '0');
        if (number > max)
            return false;
    }
    *ret = number;
    return text.len > 0;
}

/* HOST:PORT. IPv6 addresses come without brackets, so the last colon counts. */
static bool read_address(struct text text, struct hfi_slot_host *ret) {
    const char *colon = text.len > 0 ? memrchr(text.at, ':', text.len) : NULL;
    if (colon == NULL)
        return false;
    size_t host_len = (size_t)(colon - text.at);
    unsigned port;
    if (!read_number((struct text){colon + 1, text.len - host_len - 1}, UINT16_MAX, &port))
        return false;
    ret->host = text.at;
    ret->host_len = host_len;
    ret->port = (uint16_t)port;
    bool unknown = host_len == 1 && *text.at == '?';
    return port != 0 && !unknown && is_host(text.at, host_len);
}

bool hfi_redirect_read(const redisReply *reply, struct hfi_redirect *ret) {
    struct hfi_redirect redirect;
    if (reply->type != REDIS_REPLY_ERROR)
        return false;
    struct text text = {reply->str, reply->len};
    redirect.ask = skip_word(&text, "ASK ");
    if (!redirect.ask && !skip_word(&text, "MOVED "))
        return false;
    const char *space = text.len > 0 ? memchr(text.at, ' ', text.len) : NULL;
    if (space == NULL)
        return false;
    size_t digits = (size_t)(space - text.at);
    if (!read_number((struct text){text.at, digits}, HFI_SLOTS - 1, &redirect.slot) ||
        !read_address((struct text){space + 1, text.len - digits - 1}, &redirect.to))
        return false;
    *ret = redirect;
    return true;
}
