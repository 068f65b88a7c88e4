/*
 * HighwayHash-128 and its Base64 text.
 *
 * Called by group.c when a handle is made, on any thread; no state. The hash works on four lanes of
 * 64 bits, with two halves of state and two of multipliers. Each packet of 32 bytes is added, and
 * the halves are multiplied into each other. Then their bytes are zipped together, so that the
 * strong middle bytes of the products reach everything. The rest after the whole packets has a
 * padding of its own. Six rounds without input end it.
 */
#include "redis/wire/highwayhash.h"

#include <stdint.h>
#include <string.h>

#define LANES 4
#define PACKET 32
#define FINAL_ROUNDS 6

struct highway {
    uint64_t v0[LANES], v1[LANES], mul0[LANES], mul1[LANES];
};

static const uint64_t redisson_key[LANES] = {
    0x9e3779b97f4a7c15u,
    0xf39cc0605cedc834u,
    0x1082276bf3a27251u,
    0xf86c6a11d0c18e95u,
};

/* Digits of pi, as the description has them. */
static const uint64_t first_mul0[LANES] = {
    0xdbe6d5d5fe4cce2fu,
    0xa4093822299f31d0u,
    0x13198a2e03707344u,
    0x243f6a8885a308d3u,
};
static const uint64_t first_mul1[LANES] = {
    0x3bd39e10cb0ef593u,
    0xc0acf169b5f18a8cu,
    0xbe5466cf34e90c6cu,
    0x452821e638d01377u,
};

/* Both words of each lane swapped. */
static uint64_t swap_words(uint64_t lane) {
    return lane >> 32 | lane << 32;
}

static uint64_t low_word(uint64_t lane) {
    return lane & 0xffffffffu;
}

static uint64_t load_little(const unsigned char *bytes) {
    uint64_t lane = 0;
    for (int i = 7; i >= 0; i--)
        lane = lane << 8 | bytes[i];
    return lane;
}

/* Byte i of a lane pair, counted from the least significant of the first. */
static uint64_t byte_of(const uint64_t pair[2], unsigned i) {
    return pair[i / 8] >> (i % 8 * 8) & 0xff;
}

/* Adds the bytes of two lanes to two others, in another order. */
static void zip_pair(const uint64_t from[2], uint64_t to[2]) {
    static const unsigned char order[16] = {3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7};
    uint64_t zipped[2] = {0, 0};
    for (unsigned i = 0; i < 16; i++)
        zipped[i / 8] |= byte_of(from, order[i]) << (i % 8 * 8);
    to[0] += zipped[0];
    to[1] += zipped[1];
}

static void update(struct highway *h, const uint64_t lanes[LANES]) {
    for (int i = 0; i < LANES; i++) {
        h->v1[i] += h->mul0[i] + lanes[i];
        h->mul0[i] ^= low_word(h->v1[i]) * (h->v0[i] >> 32);
        h->v0[i] += h->mul1[i];
        h->mul1[i] ^= low_word(h->v0[i]) * (h->v1[i] >> 32);
    }
    for (int i = 0; i < LANES; i += 2)
        zip_pair(&h->v1[i], &h->v0[i]);
    for (int i = 0; i < LANES; i += 2)
        zip_pair(&h->v0[i], &h->v1[i]);
}

static void update_packet(struct highway *h, const unsigned char packet[PACKET]) {
    uint64_t lanes[LANES];
    for (int i = 0; i < LANES; i++)
        lanes[i] = load_little(packet + (ptrdiff_t)8 * i);
    update(h, lanes);
}

static uint64_t rotate_words(uint64_t lane, unsigned by) {
    uint32_t low = (uint32_t)lane, high = (uint32_t)(lane >> 32);
    low = low << by | low >> (32 - by);
    high = high << by | high >> (32 - by);
    return (uint64_t)high << 32 | low;
}

/* The last 1 to 31 bytes. Whole words come first. With half a packet or more, the last four bytes
 * go to the packet's end; else three bytes of the odd rest go to its middle. */
static void update_rest(struct highway *h, const unsigned char *bytes, size_t len) {
    unsigned char packet[PACKET] = {0};
    size_t odd = len % 4, whole = len - odd;
    for (int i = 0; i < LANES; i++) {
        h->v0[i] += (uint64_t)len << 32 | len;
        h->v1[i] = rotate_words(h->v1[i], (unsigned)len);
    }
    memcpy(packet, bytes, whole);
    if (len >= PACKET / 2) {
        memcpy(packet + PACKET - 4, bytes + len - 4, 4);
    } else if (odd > 0) {
        packet[16] = bytes[whole];
        packet[17] = bytes[whole + odd / 2];
        packet[18] = bytes[len - 1];
    }
    update_packet(h, packet);
}

static void finish(struct highway *h, uint64_t hash[2]) {
    for (int round = 0; round < FINAL_ROUNDS; round++) {
        const uint64_t permuted[LANES] = {swap_words(h->v0[2]), swap_words(h->v0[3]),
                                          swap_words(h->v0[0]), swap_words(h->v0[1])};
        update(h, permuted);
    }
    for (int i = 0; i < 2; i++)
        hash[i] = h->v0[i] + h->mul0[i] + h->v1[i + 2] + h->mul1[i + 2];
}

static void hash_128(const unsigned char *bytes, size_t len, uint64_t hash[2]) {
    struct highway h;
    for (int i = 0; i < LANES; i++) {
        h.mul0[i] = first_mul0[i];
        h.mul1[i] = first_mul1[i];
        h.v0[i] = first_mul0[i] ^ redisson_key[i];
        h.v1[i] = first_mul1[i] ^ swap_words(redisson_key[i]);
    }
    for (; len >= PACKET; bytes += PACKET, len -= PACKET)
        update_packet(&h, bytes);
    if (len > 0)
        update_rest(&h, bytes, len);
    finish(&h, hash);
}

/* Six bits of the hash, both words big-endian; behind its end there are zeros. */
static unsigned six_bits(const uint64_t hash[2], unsigned at) {
    unsigned bits = 0;
    for (unsigned i = at; i < at + 6; i++)
        bits = bits << 1 | (i < 128 ? (unsigned)(hash[i / 64] >> (63 - i % 64) & 1) : 0);
    return bits;
}

void hfi_highwayhash_field(const void *value, size_t len, char field[HFI_FIELD_LEN]) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint64_t hash[2];
    hash_128(value, len, hash);
    for (unsigned i = 0; i < HFI_FIELD_LEN; i++)
        field[i] = digits[six_bits(hash, 6 * i)];
}
