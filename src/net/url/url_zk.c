/*
 * ZooKeeper urls: several hosts, a chroot, and options of other urls that these refuse (see url.h).
 *
 * url.c and url_options.c call this on the caller's thread; stateless. The engine checks whether
 * the chroot is a valid path. No message quotes the text, as in url.c.
 */
#include "net/url/url_parser.h"

#define ZK_PORT 2181
#define ZK_TLS_PORT 2281

static int parse_zk(struct url_parser *p, struct slice text, uint16_t port) {
    int err = hfi_url_parse_hosts(p, text, port);
    if (err != HF_OK || p->path.len == 0)
        return err;
    const struct slice chroot = {p->path.at - 1, p->path.len + 1}; /* with its slash */
    return hfi_url_decode(p, chroot, "the chroot", &p->url.path);
}

int hfi_url_parse_zk(struct url_parser *p, struct slice text) {
    return parse_zk(p, text, ZK_PORT);
}

int hfi_url_parse_zk_tls(struct url_parser *p, struct slice text) {
    p->url.tls = true;
    return parse_zk(p, text, ZK_TLS_PORT);
}

static int set_acl(struct url_parser *p, struct slice value) {
    if (p->url.acl != HFI_ACL_DEFAULT)
        return hfi_fail(p->error, HF_EINVAL, "url: the option acl is given twice");
    p->url.acl = slice_is(value, "open") ? HFI_ACL_OPEN : HFI_ACL_CREATOR;
    if (!slice_is(value, "open") && !slice_is(value, "creator"))
        return hfi_fail(p->error, HF_EINVAL, "url: the option acl must be open or creator");
    return HF_OK;
}

int hfi_url_set_zk_option(struct url_parser *p, struct slice name, struct slice value,
                          bool *ret_known) {
    static const char *const refused[] = {"db", "ping_interval_ms", "fair_wait_ms", "busy_poll",
                                          "track"};
    bool is_acl = slice_is(name, "acl"), is_zk = p->url.kind == HFI_URL_ZK;
    const char *refusal = NULL;
    for (size_t i = 0; is_zk && i < sizeof refused / sizeof refused[0]; i++)
        if (slice_is(name, refused[i]))
            refusal = refused[i];
    *ret_known = is_acl || refusal != NULL;
    if (refusal != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s cannot be used with ZooKeeper",
                        refusal);
    if (is_acl && !is_zk)
        return hfi_fail(p->error, HF_EINVAL, "url: the option acl needs zk://");
    return is_acl ? set_acl(p, value) : HF_OK;
}
