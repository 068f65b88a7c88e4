/* What is heard of a name: messages, as an engine passes them on to whoever listens (src/api/listen.c). */
#ifndef HFI_ENGINE_HEARING_H
#define HFI_ENGINE_HEARING_H

#include <holdfast/holdfast.h>

struct hfi_hearing; /* each engine's own */

struct hfi_tidings {
    hf_news_kind kind;
    int code; /* as hf_news has it, like the next */
    int64_t number;
    size_t server; /* of a quorum: which of its servers says so */
};

/* One who listens. It lives until the engine has let go of it. */
struct hfi_hearer {
    /* On any thread, one at a time for each server, under a mutex of the engine's: it must be brief, and calls nothing of
     * the engine. */
    void (*hear)(struct hfi_hearer *hearer, const struct hfi_tidings *tidings);
};

#endif
