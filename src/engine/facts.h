/* What a server says of itself (hf_facts), which an engine makes with malloc and the caller frees. */
#ifndef HFI_ENGINE_FACTS_H
#define HFI_ENGINE_FACTS_H

#include <holdfast/holdfast.h>

#include <stdlib.h>

/* NULL and half-made ones are fine. */
static inline void hfi_facts_free(hf_facts *facts) {
    if (facts == NULL)
        return;
    for (size_t i = 0; i < facts->facts_len; i++) {
        free(facts->facts[i]->name);
        free(facts->facts[i]->value);
        free(facts->facts[i]->why);
        free(facts->facts[i]);
    }
    free(facts->facts);
    free(facts->node);
    free(facts);
}

#endif
