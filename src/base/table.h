/* A hash table whose entries live in the elements, and which needs no memory to begin with: a zeroed
 * one is empty. Adding never fails; without memory for more buckets it only gets slower. Not locked
 * here. */
#ifndef HFI_BASE_TABLE_H
#define HFI_BASE_TABLE_H

#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HFI_TABLE_SMALL 8

struct hfi_keyed {
    struct hfi_keyed *next; /* in its bucket */
    uint64_t hash;
    const char *key; /* the element's; NULL: it is in no table */
    size_t key_len;
};

struct hfi_table {
    struct hfi_keyed **many; /* NULL: `few` are enough */
    size_t many_len;         /* a power of two */
    size_t len;              /* entries */
    struct hfi_keyed *few[HFI_TABLE_SMALL];
};

uint64_t hfi_hash(const char *bytes, size_t len);

/* NULL: there is none. */
struct hfi_keyed *hfi_table_find(const struct hfi_table *table, const char *key, size_t key_len);
/* The key stays where it is, and as it is. */
void hfi_table_add(const struct hfi_mem *mem, struct hfi_table *table, struct hfi_keyed *entry,
                   const char *key, size_t key_len);
void hfi_table_remove(const struct hfi_mem *mem, struct hfi_table *table, struct hfi_keyed *entry);
static inline bool hfi_keyed_is_in_table(const struct hfi_keyed *entry) {
    return entry->key != NULL;
}

/* All of them, in no order; NULL: that was the last. Whoever asks for the next beforehand may remove the
 * one it has. */
struct hfi_keyed *hfi_table_first(const struct hfi_table *table);
struct hfi_keyed *hfi_table_next(const struct hfi_table *table, const struct hfi_keyed *entry);

#endif
