/*
 * A hash table (see table.h).
 *
 * The first few buckets are embedded, so taking and releasing one lock again and again allocates
 * nothing. It grows when its chains do, and frees the larger buckets when it is empty. Used by the
 * core, under the mutex of a shard.
 */
#include "base/table.h"

#include <string.h>

#define MULTIPLIER 0x9e3779b97f4a7c15u
#define CHAIN_MAX 2 /* entries per bucket, on average, before it grows */

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * MULTIPLIER;
    return hash ^ (hash >> 32);
}

static uint64_t word_at(const char *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

uint64_t hfi_hash(const char *bytes, size_t len) {
    uint64_t hash = mix(len, MULTIPLIER), rest = 0;
    size_t at = 0;
    for (; len - at >= sizeof rest; at += sizeof rest)
        hash = mix(hash, word_at(bytes + at));
    if (len >= sizeof rest)
        return at < len ? mix(hash, word_at(bytes + len - sizeof rest)) : hash;
    for (; at < len; at++)
        rest = rest << 8 | (unsigned char)bytes[at];
    return mix(hash, rest);
}

static size_t buckets_len(const struct hfi_table *table) {
    return table->many != NULL ? table->many_len : HFI_TABLE_SMALL;
}

static struct hfi_keyed *const *buckets_of(const struct hfi_table *table) {
    return table->many != NULL ? table->many : table->few;
}

static struct hfi_keyed **bucket_of(struct hfi_table *table, uint64_t hash) {
    struct hfi_keyed **buckets = table->many != NULL ? table->many : table->few;
    return &buckets[hash & (buckets_len(table) - 1)];
}

static void push(struct hfi_keyed **bucket, struct hfi_keyed *entry) {
    entry->next = *bucket;
    *bucket = entry;
}

static void grow(const struct hfi_mem *mem, struct hfi_table *table) {
    size_t old_len = buckets_len(table), len = 4 * old_len;
    struct hfi_keyed **old = table->many != NULL ? table->many : table->few;
    struct hfi_keyed **more = hfi_zalloc(mem, len * sizeof(struct hfi_keyed *));
    if (more == NULL)
        return;
    for (size_t i = 0; i < old_len; i++)
        while (old[i] != NULL) {
            struct hfi_keyed *entry = old[i];
            old[i] = entry->next;
            push(&more[entry->hash & (len - 1)], entry);
        }
    hfi_free(mem, table->many);
    table->many = more;
    table->many_len = len;
}

struct hfi_keyed *hfi_table_find(const struct hfi_table *table, const char *key, size_t key_len) {
    if (table->len == 0)
        return NULL;
    uint64_t hash = hfi_hash(key, key_len);
    struct hfi_keyed *entry = buckets_of(table)[hash & (buckets_len(table) - 1)];
    while (entry != NULL && (entry->hash != hash || entry->key_len != key_len ||
                             memcmp(entry->key, key, key_len) != 0))
        entry = entry->next;
    return entry;
}

void hfi_table_add(const struct hfi_mem *mem, struct hfi_table *table, struct hfi_keyed *entry,
                   const char *key, size_t key_len) {
    if (table->len >= CHAIN_MAX * buckets_len(table))
        grow(mem, table);
    entry->hash = hfi_hash(key, key_len);
    entry->key = key;
    entry->key_len = key_len;
    push(bucket_of(table, entry->hash), entry);
    table->len++;
}

void hfi_table_remove(const struct hfi_mem *mem, struct hfi_table *table, struct hfi_keyed *entry) {
    struct hfi_keyed **at = bucket_of(table, entry->hash);
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    entry->next = NULL;
    entry->key = NULL;
    if (--table->len > 0 || table->many == NULL)
        return;
    hfi_free(mem, table->many);
    table->many = NULL;
}

static struct hfi_keyed *first_from(const struct hfi_table *table, size_t bucket) {
    size_t len = buckets_len(table);
    struct hfi_keyed *const *buckets = buckets_of(table);
    while (bucket < len && buckets[bucket] == NULL)
        bucket++;
    return bucket < len ? buckets[bucket] : NULL;
}

struct hfi_keyed *hfi_table_first(const struct hfi_table *table) {
    return table->len > 0 ? first_from(table, 0) : NULL;
}

struct hfi_keyed *hfi_table_next(const struct hfi_table *table, const struct hfi_keyed *entry) {
    if (entry->next != NULL)
        return entry->next;
    return first_from(table, (entry->hash & (buckets_len(table) - 1)) + 1);
}
