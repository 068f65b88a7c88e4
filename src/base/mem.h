/* Memory through the client's allocator hook. Every object keeps the `hfi_mem` it came from. */
#ifndef HFI_BASE_MEM_H
#define HFI_BASE_MEM_H

#include <holdfast/holdfast.h>

struct hfi_mem {
    hf_allocator hook; /* all zero: malloc, realloc, free */
};

void *hfi_alloc(const struct hfi_mem *mem, size_t size);  /* NULL when out of memory */
void *hfi_zalloc(const struct hfi_mem *mem, size_t size); /* the same, zeroed */
void *hfi_realloc(const struct hfi_mem *mem, void *ptr, size_t size);
void hfi_free(const struct hfi_mem *mem, void *ptr); /* NULL is fine */
char *hfi_strdup(const struct hfi_mem *mem, const char *text);

#endif
