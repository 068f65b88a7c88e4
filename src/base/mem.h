/* Memory through the client's allocator hook. Every object keeps the `hfi_mem` it came from. */
#ifndef HFI_BASE_MEM_H
#define HFI_BASE_MEM_H

#include <holdfast/holdfast.h>

#include <stdatomic.h>

/* One spare allocation is kept for each of these, since every call makes and frees one. */
enum hfi_spare { HFI_SPARE_REQUEST, HFI_SPARE_HOLD, HFI_SPARE_LOCAL_QUEUE, HFI_SPARES };
struct hfi_spares {
    void *_Atomic kept[HFI_SPARES];
};

struct hfi_mem {
    hf_allocator hook;         /* all zero: malloc, realloc, free */
    struct hfi_spares *spares; /* NULL: nothing is kept */
};

void *hfi_alloc(const struct hfi_mem *mem, size_t size);  /* NULL when out of memory */
void *hfi_zalloc(const struct hfi_mem *mem, size_t size); /* the same, zeroed */
void *hfi_realloc(const struct hfi_mem *mem, void *ptr, size_t size);
void hfi_free(const struct hfi_mem *mem, void *ptr); /* NULL is fine */
/* As hfi_alloc() and hfi_free(), for objects of one size. Any thread. */
void *hfi_spare_alloc(const struct hfi_mem *mem, enum hfi_spare which, size_t size);
void hfi_spare_free(const struct hfi_mem *mem, enum hfi_spare which, void *ptr);
void hfi_spares_clear(const struct hfi_mem *mem);
char *hfi_strdup(const struct hfi_mem *mem, const char *text);

#endif
