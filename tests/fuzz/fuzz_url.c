/*
 * Urls: a copy is equal, an error has a text, and no password is in it.
 */
#include "fuzz.h"

#include "net/url/url.h"

#include <string.h>

#define SECRET "S3cr3tPassw0rd"

static const struct hfi_mem mem;

static bool is_same(const char *a, const char *b) {
    return a == NULL ? b == NULL : b != NULL && strcmp(a, b) == 0;
}

static void copy(const struct hfi_url *url) {
    struct hfi_url same;
    FUZZ_CHECK(hfi_url_copy(&mem, url, &same) == HF_OK);
    FUZZ_CHECK(url->hosts_len <= HFI_URL_HOSTS_MAX);
    FUZZ_CHECK(is_same(url->host, same.host));
    hfi_url_clear(&mem, &same);
}

/* What stands between ':' and '@' is a password, whatever is wrong with the rest. */
static bool has_password(const char *text) {
    const char *secret = strstr(text, ":" SECRET "@");
    return secret != NULL && strstr(text, SECRET) == secret + 1 &&
           strstr(secret + 2, SECRET) == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct hfi_url url;
    hf_error error = {0};
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    int err = hfi_url_parse(&mem, text, &url, &error);
    FUZZ_CHECK(err == HF_OK || err == HF_EINVAL);
    if (err == HF_OK) {
        copy(&url);
        hfi_url_clear(&mem, &url);
    } else {
        FUZZ_CHECK(error.text[0] != '\0');
        FUZZ_CHECK(!has_password(text) || strstr(error.text, SECRET) == NULL);
    }
    free(text);
    return 0;
}
