/*
 * Urls of ZooKeeper: hosts, chroot, options, and what they refuse.
 */
#include "net/url/url.h"

#include "base/error.h"
#include "support/case.h"

static const struct hfi_mem mem;

static int parse(const char *text, struct hfi_url *ret, hf_error *error) {
    hfi_error_clear(error);
    return hfi_url_parse(&mem, text, ret, error);
}

CASE(parts) {
    struct hfi_url url, copy;
    hf_error error;
    assert_int_equal(
        parse("zk://ann:s%40crt@a,b:2182,[::1]:2183/app/x?acl=open&watchdog_ms=9000", &url, &error),
        HF_OK);
    assert_int_equal(url.kind, HFI_URL_ZK);
    assert_false(url.tls);
    assert_int_equal(url.hosts_len, 3);
    assert_string_equal(url.hosts[0].host, "a");
    assert_int_equal(url.hosts[0].port, 2181);
    assert_int_equal(url.hosts[1].port, 2182);
    assert_string_equal(url.hosts[2].host, "::1");
    assert_string_equal(url.user, "ann");
    assert_string_equal(url.password, "s@crt");
    assert_string_equal(url.path, "/app/x");
    assert_int_equal(url.acl, HFI_ACL_OPEN);
    assert_int_equal(url.watchdog_ms, 9000);
    assert_int_equal(hfi_url_copy(&mem, &url, &copy), HF_OK);
    assert_string_equal(copy.path, "/app/x");
    assert_int_equal(copy.acl, HFI_ACL_OPEN);
    hfi_url_clear(&mem, &copy);
    hfi_url_clear(&mem, &url);
}

CASE(defaults) {
    struct hfi_url url;
    hf_error error;
    assert_int_equal(parse("zk://", &url, &error), HF_OK);
    assert_string_equal(url.hosts[0].host, "localhost");
    assert_null(url.path);
    assert_int_equal(url.acl, HFI_ACL_DEFAULT);
    hfi_url_clear(&mem, &url);
    assert_int_equal(parse("zks://h/", &url, &error), HF_OK);
    assert_true(url.tls);
    assert_int_equal(url.hosts[0].port, 2281);
    assert_null(url.path);
    hfi_url_clear(&mem, &url);
}

CASE(refused) {
    static const struct {
        const char *url, *words;
    } rows[] = {
        {"zk://h?db=1", "db"},
        {"zk://h?ping_interval_ms=5", "ping_interval_ms"},
        {"zk://h?fair_wait_ms=5", "fair_wait_ms"},
        {"zk://h?acl=nobody", "acl"},
        {"zk://h?acl=open&acl=open", "twice"},
        {"zk://h?tls_verify=none", "zks://"},
        {"zk://a,,b", "comma"},
        {"redis://h?acl=open", "zk://"},
        {"zk://h?master=x", "Sentinel"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hfi_url url;
        hf_error error;
        assert_int_equal(parse(rows[i].url, &url, &error), HF_EINVAL);
        if (strstr(error.text, rows[i].words) == NULL)
            fail_msg("%s: %s", rows[i].url, error.text);
    }
}

RUN_CASES(NULL, NULL)
