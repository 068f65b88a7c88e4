/*
 * The reader of RESP: bytes in pieces of any size, and what is made of the messages: slots,
 * redirects, replies of scripts. What is understood is what hiredis understands of the same bytes.
 *
 * Input: the length of a piece (0: all at once), then the bytes of the server.
 */
#include "fuzz.h"

#include "net/resp/resp.h"
#include "redis/route/redirect_parse.h"
#include "redis/route/slots.h"
#include "redis/wire/script_reply.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

static const struct hfi_mem mem;
static volatile char sum; /* so that what is handed out is read */

static void visit(const struct hfi_slot_range *range, void *arg) {
    (void)arg;
    FUZZ_CHECK(range->first <= range->last && range->last < HFI_SLOTS);
    for (size_t i = 0; range->known && i < range->primary.host_len; i++)
        sum = (char)(sum ^ range->primary.host[i]);
}

static void use(const struct hfi_reply *reply) {
    struct hfi_redirect redirect;
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

static int type_of(enum hfi_reply_type type) {
    static const int types[] = {
        [HFI_REPLY_STRING] = REDIS_REPLY_STRING,   [HFI_REPLY_ARRAY] = REDIS_REPLY_ARRAY,
        [HFI_REPLY_INTEGER] = REDIS_REPLY_INTEGER, [HFI_REPLY_NIL] = REDIS_REPLY_NIL,
        [HFI_REPLY_STATUS] = REDIS_REPLY_STATUS,   [HFI_REPLY_ERROR] = REDIS_REPLY_ERROR,
    };
    return types[type];
}

static bool is_same(const struct hfi_reply *a, const redisReply *b) {
    if (type_of(a->type) != b->type)
        return false;
    if (a->type == HFI_REPLY_INTEGER)
        return a->integer == b->integer;
    if (a->str != NULL)
        return a->len == b->len && memcmp(a->str, b->str, a->len) == 0 && a->str[a->len] == '\0';
    if (a->type != HFI_REPLY_ARRAY)
        return true;
    if (a->elements != b->elements)
        return false;
    for (size_t i = 0; i < a->elements; i++)
        if (!is_same(a->element[i], b->element[i]))
            return false;
    return true;
}

/* A message that is read is what another reader makes of the same bytes. */
static void compare(const char *bytes, size_t len) {
    struct hfi_reply_scan scan = {0};
    if (hfi_reply_scan(&scan, bytes, len) != HFI_SCAN_WHOLE)
        return;
    FUZZ_CHECK(scan.pos <= len);
    struct hfi_reply *ours = hfi_reply_make(&scan, bytes);
    if (ours == NULL)
        abort();
    void *theirs = NULL;
    redisReader *reader = redisReaderCreate();
    redisReaderFeed(reader, bytes, scan.pos);
    FUZZ_CHECK(redisReaderGetReply(reader, &theirs) == REDIS_OK && theirs != NULL);
    FUZZ_CHECK(reader->pos == reader->len || reader->len == 0);
    FUZZ_CHECK(is_same(ours, theirs));
    freeReplyObject(theirs);
    redisReaderFree(reader);
    free(ours);
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
    compare(bytes, len);
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
