/*
 * Memory through the client's allocator hook.
 *
 * Called from every layer, on any thread. Holds no state: the hook is in the `hfi_mem` that each
 * object points to, so two clients with different allocators never mix. Nor do their spares, which
 * serve a thread that locks and releases in a loop: it gets the same memory again and again.
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

void *hfi_spare_alloc(const struct hfi_mem *mem, enum hfi_spare which, size_t size) {
    void *kept = mem->spares != NULL ? atomic_exchange(&mem->spares->kept[which], NULL) : NULL;
    return kept != NULL ? kept : hfi_alloc(mem, size);
}

void hfi_spare_free(const struct hfi_mem *mem, enum hfi_spare which, void *ptr) {
    void *none = NULL;
    if (ptr == NULL || mem->spares == NULL ||
        !atomic_compare_exchange_strong(&mem->spares->kept[which], &none, ptr))
        hfi_free(mem, ptr);
}

void hfi_spares_clear(const struct hfi_mem *mem) {
    for (int i = 0; mem->spares != NULL && i < HFI_SPARES; i++)
        hfi_free(mem, atomic_exchange(&mem->spares->kept[i], NULL));
}

char *hfi_strdup(const struct hfi_mem *mem, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = hfi_alloc(mem, size);
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}
