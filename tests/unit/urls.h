/* Tables of urls, good and bad, for the tests of each scheme.
 *
 * Include as "unit/urls.h". */
#ifndef HF_TEST_UNIT_URLS_H
#define HF_TEST_UNIT_URLS_H

#include "net/url/url.h"

#include <stddef.h>

#define SECRET "S3cr3tPassw0rd" /* in no message */

struct good_url {
    const char *text, *expected; /* as `describe` puts it into one line */
};
struct bad_url {
    const char *text, *words; /* of the message */
};

/* Each is parsed as it should be, and so is its copy. */
void assert_good_urls(const struct good_url *good, size_t len, enum hfi_url_kind kind,
                      void (*describe)(const struct hfi_url *url, char *text, size_t size));
/* Each is refused, with these words and without the password. */
void assert_bad_urls(const struct bad_url *bad, size_t len);

#endif
