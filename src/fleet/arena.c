/*
 * Memory of a view: many small allocations that end together, and arrays that grow while it is
 * made. Owned by one thread at a time.
 */
#include "fleet/join.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 16384

struct hfi_block {
    struct hfi_block *next;
    size_t size;
    max_align_t bytes[];
};

void *hfi_arena_take(struct hfi_arena *arena, size_t size) {
    size_t align = sizeof(max_align_t);
    size = (size + align - 1) / align * align;
    if (size > arena->left) {
        size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        struct hfi_block *block = calloc(1, sizeof *block + room);
        if (block == NULL) {
            arena->failed = true;
            return NULL;
        }
        block->size = room;
        block->next = arena->blocks;
        arena->blocks = block;
        arena->left = room;
    }
    char *end = (char *)arena->blocks->bytes + arena->blocks->size;
    void *taken = end - arena->left;
    arena->left -= size;
    return taken;
}

const char *hfi_arena_text(struct hfi_arena *arena, const char *text, size_t len) {
    char *copy = hfi_arena_take(arena, len + 1);
    if (copy == NULL)
        return "";
    memcpy(copy, text, len);
    return copy;
}

void hfi_arena_free(struct hfi_arena *arena) {
    while (arena->blocks != NULL) {
        struct hfi_block *block = arena->blocks;
        arena->blocks = block->next;
        free(block);
    }
}

bool hfi_join_grow(void **all, size_t *cap, size_t len, size_t size) {
    if (len < *cap)
        return true;
    size_t more = *cap == 0 ? 64 : *cap * 2;
    void *grown = realloc(*all, more * size);
    if (grown == NULL)
        return false;
    *all = grown;
    *cap = more;
    return true;
}
