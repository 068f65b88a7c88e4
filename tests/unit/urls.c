/*
 * Tables of urls, good and bad; see urls.h.
 */
#include "unit/urls.h"

#include "support/case.h"

static const struct hfi_mem plain_memory;

void assert_good_urls(const struct good_url *good, size_t len, enum hfi_url_kind kind,
                      void (*describe)(const struct hfi_url *url, char *text, size_t size)) {
    for (size_t i = 0; i < len; i++) {
        struct hfi_url url, copy;
        hf_error error = {0};
        char text[512], copied[512];
        if (hfi_url_parse(&plain_memory, good[i].text, &url, &error) != HF_OK)
            fail_msg("%s: %s", good[i].text, error.text);
        assert_int_equal(url.kind, kind);
        describe(&url, text, sizeof text);
        assert_string_equal(text, good[i].expected);
        assert_int_equal(hfi_url_copy(&plain_memory, &url, &copy), HF_OK);
        hfi_url_clear(&plain_memory, &url);
        describe(&copy, copied, sizeof copied);
        assert_string_equal(copied, good[i].expected);
        hfi_url_clear(&plain_memory, &copy);
    }
}

void assert_bad_urls(const struct bad_url *bad, size_t len) {
    for (size_t i = 0; i < len; i++) {
        struct hfi_url url;
        hf_error error = {0};
        if (hfi_url_parse(&plain_memory, bad[i].text, &url, &error) != HF_EINVAL)
            fail_msg("%s is accepted", bad[i].text);
        if (strstr(error.text, bad[i].words) == NULL || strstr(error.text, SECRET) != NULL)
            fail_msg("%s: %s", bad[i].text, error.text);
    }
}
