/*
 * The reader of RESP: bytes in pieces of any size, and what is made of the messages: slots,
 * redirects, replies of scripts.
 *
 * Input: the length of a piece (0: all at once), then the bytes of the server.
 */
#include "fuzz.h"

#include "net/resp/resp.h"
#include "redis/route/redirect_parse.h"
#include "redis/route/slots.h"
#include "redis/wire/script_reply.h"

#include <string.h>

static const struct hfi_mem mem;
static volatile char sum; /* so that what is handed out is read */

static void visit(const struct hfi_slot_range *range, void *arg) {
    (void)arg;
    FUZZ_CHECK(range->first <= range->last && range->last < HFI_SLOTS);
    for (size_t i = 0; range->known && i < range->primary.host_len; i++)
        sum = (char)(sum ^ range->primary.host[i]);
}

/* What is handed out is bounded, and ends with a NUL. */
static void walk(const struct hfi_reply *reply, int depth) {
    FUZZ_CHECK(depth <= HFI_REPLY_MAX_DEPTH + 1);
    FUZZ_CHECK(reply->str == NULL || reply->str[reply->len] == '\0');
    for (size_t i = 0; i < reply->elements; i++)
        walk(reply->element[i], depth + 1);
}

static void use(const struct hfi_reply *reply) {
    struct hfi_redirect redirect;
    walk(reply, 0);
    hfi_slots_read(reply, visit, NULL);
    if (hfi_redirect_read(reply, &redirect))
        FUZZ_CHECK(redirect.slot < HFI_SLOTS);
    if (hfi_is_script_reply(reply)) {
        hfi_script_reply_ms(reply);
        hfi_is_done(reply);
        hfi_is_too_late(reply);
    }
    hfi_is_refusal(reply);
}

/* In memory of its own, so that a byte read too much is seen. */
static int feed(void *reader, const char *bytes, size_t len, hf_error *error) {
    char *piece = malloc(len);
    if (piece == NULL)
        abort();
    memcpy(piece, bytes, len);
    int err = hfi_resp.feed(reader, piece, len, error);
    free(piece);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    const char *bytes = (const char *)data + 1;
    size_t len = size - 1, step = data[0] == 0 ? len : data[0];
    hf_error error = {0};
    void *reader = hfi_resp.reader_new(&mem), *message = NULL;
    int err = HF_OK;
    for (size_t at = 0; at < len && err == HF_OK; at += step) {
        err = feed(reader, bytes + at, len - at < step ? len - at : step, &error);
        while (err == HF_OK && (err = hfi_resp.next(reader, &message, &error)) == HF_OK &&
               message != NULL) {
            use(message);
            hfi_resp.message_free(message);
        }
    }
    hfi_resp.reader_free(reader);
    return 0;
}
