/* An intrusive hash table that needs no memory at first: a zeroed one is empty. Adding never
 * fails; without memory for more buckets it only gets slower. Not locked. */
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
/* The key is not copied: it must not move or change. */
void hfi_table_add(const struct hfi_mem *mem, struct hfi_table *table, struct hfi_keyed *entry,
                   const char *key, size_t key_len);
void hfi_table_remove(const struct hfi_mem *mem, struct hfi_table *table, struct hfi_keyed *entry);
static inline bool hfi_keyed_is_in_table(const struct hfi_keyed *entry) {
    return entry->key != NULL;
}

/* Iterates over all, in no order; NULL: the end. Call next before removing the entry you have. */
struct hfi_keyed *hfi_table_first(const struct hfi_table *table);
struct hfi_keyed *hfi_table_next(const struct hfi_table *table, const struct hfi_keyed *entry);

#endif
