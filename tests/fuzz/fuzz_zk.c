/*
 * ZooKeeper's wire: frames, and every message that is read from one. What is handed out points into
 * the frame. And the names and the data of nodes, which any client may have written.
 *
 * Input: what is expected, then the bytes of the server.
 */
#include "fuzz.h"

#include "zk/wire/names.h"
#include "zk/wire/nodes.h"
#include "zk/wire/wire.h"

#include <string.h>

enum { CONNECTED, EVENT, STAT, CREATED, DATA, CHILDREN, RESULTS, EXPECTED };

static volatile char sum; /* so that what is handed out is read */

static void touch(struct hfi_zk_text text) {
    for (size_t i = 0; i < text.len; i++)
        sum = (char)(sum ^ text.bytes[i]);
}

static void read_children(struct hfi_zk_in *in) {
    struct hfi_zk_children children;
    struct hfi_zk_text name;
    size_t len = 0;
    if (hfi_zk_get_children(in, &children) != HF_OK)
        return;
    for (; hfi_zk_next_child(&children, &name); len++) {
        touch(name);
        hfi_zk_node_parse(name.bytes, name.len);
    }
    FUZZ_CHECK(len == children.len);
}

static void read_results(struct hfi_zk_in *in) {
    struct hfi_zk_results results;
    struct hfi_zk_result result;
    size_t len = 0;
    if (hfi_zk_get_results(in, &results) != HF_OK)
        return;
    for (; hfi_zk_next_result(&results, &result); len++)
        touch(result.path);
    FUZZ_CHECK(len == results.len);
    FUZZ_CHECK(results.err == 0 || results.failed_index < results.len);
}

static void read_data(struct hfi_zk_in *in) {
    struct hfi_zk_text data;
    struct hfi_zk_stat stat;
    struct hfi_zk_data says;
    if (hfi_zk_get_data(in, &data, &stat) != HF_OK)
        return;
    touch(data);
    if (data.bytes != NULL && hfi_zk_data_parse(data, &says)) {
        touch(says.owner);
        touch(says.who);
        touch(says.under);
    }
}

static void read_frame(int expected, const void *bytes, size_t len) {
    struct hfi_zk_in in = hfi_zk_in(bytes, len);
    struct hfi_zk_connected connected;
    struct hfi_zk_header header;
    struct hfi_zk_event event;
    struct hfi_zk_stat stat;
    struct hfi_zk_text path;
    if (expected == CONNECTED) {
        hfi_zk_get_connected(&in, &connected);
        return;
    }
    if (hfi_zk_get_header(&in, &header) != HF_OK)
        return;
    switch (expected) {
    case EVENT:
        if (hfi_zk_get_event(&in, &event) == HF_OK)
            touch(event.path);
        break;
    case STAT:
        hfi_zk_get_stat(&in, &stat);
        break;
    case CREATED:
        if (hfi_zk_get_created(&in, &path, &stat) == HF_OK)
            touch(path);
        break;
    case DATA:
        read_data(&in);
        break;
    case CHILDREN:
        read_children(&in);
        break;
    case RESULTS:
        read_results(&in);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t len, bytes_len = size - 1;
    if (size < 2)
        return 0;
    const uint8_t *bytes = data + 1;
    if (bytes_len >= 4 && hfi_zk_frame_len(bytes, bytes_len, &len) == HF_OK && len != SIZE_MAX)
        FUZZ_CHECK(len + 4 <= bytes_len);
    hfi_zk_frame_is_long(bytes, bytes_len, &len);
    char *copy = malloc(bytes_len);
    if (copy == NULL)
        abort();
    memcpy(copy, bytes, bytes_len);
    read_frame(data[0] % EXPECTED, copy, bytes_len);
    free(copy);
    return 0;
}
