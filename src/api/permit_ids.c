/*
 * The ids of permits: drawn at random for an acquire, and read from the caller's texts. An id is 32
 * lower-case hexadecimal digits. Stateless; any thread.
 */
#include "api/handle.h"
#include "task/thread.h"

#include <sys/random.h>
#include <unistd.h>

static int digit(char hex) {
    if (hex >= '0' && hex <= '9')
        return hex - '0';
    return hex >= 'a' && hex <= 'f' ? hex - 'a' + 10 : -1;
}

static bool read_id(const hf_permit_id *id, unsigned char bytes[HFI_ID_LEN]) {
    for (size_t i = 0; i < HFI_ID_LEN; i++) {
        /* one after the other: a short text ends before it is read past its end */
        int high = digit(id->text[2 * i]);
        int low = high < 0 ? -1 : digit(id->text[2 * i + 1]);
        if (low < 0)
            return false;
        bytes[i] = (unsigned char)(high << 4 | low);
    }
    return id->text[HFI_PERMIT_TEXT_LEN] == '\0';
}

static int make_room(hf_permits *permits, size_t len, struct hfi_permit_ids *ids) {
    ids->mem = &permits->handle.client->mem;
    ids->bytes = len > 1 ? hfi_alloc(ids->mem, len * HFI_ID_LEN) : ids->one;
    return ids->bytes != NULL ? HF_OK : hfi_remember(HF_ENOMEM, NULL);
}

void hfi_permit_ids_free(struct hfi_permit_ids *ids) {
    if (ids->bytes != NULL && ids->bytes != ids->one)
        hfi_free(ids->mem, ids->bytes);
}

int hfi_permit_ids_draw(hf_permits *permits, size_t len, struct hfi_permit_ids *ids) {
    int err = make_room(permits, len, ids);
    size_t done = 0, size = len * HFI_ID_LEN;
    int state = hfi_thread_cancel_disable();
    while (err == HF_OK && done < size) {
        ssize_t more = getrandom(ids->bytes + done, size - done, 0);
        if (more > 0)
            done += (size_t)more; /* a signal may have cut a long read short */
        else if (more < 0 && done == 0)
            err = hfi_remember(HF_ESYS, NULL);
    }
    hfi_thread_cancel_restore(state);
    return err;
}

int hfi_permit_ids_read(hf_permits *permits, const hf_permit_id *given, size_t len,
                        struct hfi_permit_ids *ids) {
    if (permits == NULL)
        return hfi_invalid("the handle is NULL");
    if (given == NULL || len == 0 || len > HFI_PERMITS_COUNT_MAX)
        return hfi_invalid("a release needs 1 to 1000 permit ids");
    int err = make_room(permits, len, ids);
    for (size_t i = 0; err == HF_OK && i < len; i++)
        if (!read_id(&given[i], ids->bytes + i * HFI_ID_LEN))
            err = hfi_invalid("a permit id must be 32 lower-case hexadecimal digits");
    return err;
}
