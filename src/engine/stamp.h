/* Stamps: what tells one hold of an owner from the next at the server, for kinds that are
 * `stamped` (kind.h). The engine draws one in an acquire; the core keeps it with the hold, and
 * gives it back with every call about that hold. */
#ifndef HFI_ENGINE_STAMP_H
#define HFI_ENGINE_STAMP_H

#include "base/mem.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define HFI_STAMP_TEXT_MAX 1024

/* Bytes that the caller chose to stand at the server. Never changes; any thread. */
struct hfi_stamp_text {
    atomic_uint refs;
    const struct hfi_mem *mem;
    size_t len;
    char bytes[];
};

struct hfi_stamp {
    uint64_t bits;               /* drawn for each hold; 0: the owner's text says all */
    struct hfi_stamp_text *text; /* instead of owner and bits; referenced; NULL: none */
    /* a lost copy of the acquire may act until then, and make what it asked for; 0: none may */
    int64_t until_ms;
    int64_t leased_until_ms; /* of a hold, from the core: when its longest lease ends */
};

/* NULL: out of memory. */
static inline struct hfi_stamp_text *hfi_stamp_text_new(const struct hfi_mem *mem,
                                                        const char *bytes, size_t len) {
    struct hfi_stamp_text *text = hfi_alloc(mem, sizeof *text + len);
    if (text == NULL)
        return NULL;
    atomic_init(&text->refs, 1);
    text->mem = mem;
    text->len = len;
    memcpy(text->bytes, bytes, len);
    return text;
}

/* Returns it; NULL is fine. */
static inline struct hfi_stamp_text *hfi_stamp_text_ref(struct hfi_stamp_text *text) {
    if (text != NULL)
        atomic_fetch_add_explicit(&text->refs, 1, memory_order_relaxed);
    return text;
}

static inline void hfi_stamp_text_unref(struct hfi_stamp_text *text) {
    if (text != NULL && atomic_fetch_sub_explicit(&text->refs, 1, memory_order_acq_rel) == 1)
        hfi_free(text->mem, text);
}

/* A copy with its own reference. */
static inline struct hfi_stamp hfi_stamp_copy(const struct hfi_stamp *stamp) {
    hfi_stamp_text_ref(stamp->text);
    return *stamp;
}

#endif
