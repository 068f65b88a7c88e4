/*
 * Memory through the client's allocator hook.
 *
 * Called from every layer, on any thread. Holds no state: the hook is in the `hfi_mem` that each
 * object keeps a pointer to, so two clients with different allocators never mix.
 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void *hfi_alloc(const struct hfi_mem *mem, size_t size) {
    return mem->hook.allocate != NULL ? mem->hook.allocate(size, mem->hook.user) : malloc(size);
}

void *hfi_zalloc(const struct hfi_mem *mem, size_t size) {
    void *ptr = hfi_alloc(mem, size);
    if (ptr != NULL)
        memset(ptr, 0, size);
    return ptr;
}

void *hfi_realloc(const struct hfi_mem *mem, void *ptr, size_t size) {
    return mem->hook.resize != NULL ? mem->hook.resize(ptr, size, mem->hook.user)
                                    : realloc(ptr, size);
}

void hfi_free(const struct hfi_mem *mem, void *ptr) {
    if (ptr == NULL)
        return;
    if (mem->hook.release != NULL)
        mem->hook.release(ptr, mem->hook.user);
    else
        free(ptr);
}

char *hfi_strdup(const struct hfi_mem *mem, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = hfi_alloc(mem, size);
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}
