/*
 * Urls with several hosts: what Sentinel, Cluster and ZooKeeper urls share, and the rest of
 * Cluster's (see url.h).
 *
 * url.c, url_sentinel.c, url_zk.c and url_options.c call this on the caller's thread; stateless. No
 * message quotes the text, as in url.c.
 */
#include "net/url/url_parser.h"

#define CLUSTER_PORT 6379

/* ---- Hosts ---- */

static int add_host(struct url_parser *p, struct slice text, uint16_t default_port) {
    struct hfi_url *url = &p->url;
    if (url->hosts_len == HFI_URL_HOSTS_MAX)
        return hfi_fail(p->error, HF_EINVAL, "url: more than %d hosts", HFI_URL_HOSTS_MAX);
    struct hfi_url_host *more =
        hfi_realloc(p->mem, url->hosts, (url->hosts_len + 1) * sizeof *more);
    if (more == NULL)
        return hfi_fail(p->error, HF_ENOMEM, "out of memory");
    url->hosts = more;
    int err = hfi_url_set_host(p, text, default_port, &more[url->hosts_len]);
    url->hosts_len += err == HF_OK;
    return err;
}

static int add_hosts(struct url_parser *p, struct slice text, uint16_t default_port) {
    int err = HF_OK;
    bool more = true;
    while (err == HF_OK && more) {
        const char *comma = find(text, ',');
        struct slice host = comma != NULL ? before(text, comma) : text;
        more = comma != NULL;
        if (host.len == 0 && (more || p->url.hosts_len > 0))
            return hfi_fail(p->error, HF_EINVAL, "url: a host is missing beside a comma");
        err = add_host(p, host, default_port);
        if (more)
            text = behind(text, comma, 1);
    }
    return err;
}

int hfi_url_parse_hosts(struct url_parser *p, struct slice text, uint16_t default_port) {
    const char *at = find_last(text, '@');
    if (at != NULL) {
        int err = hfi_url_parse_userinfo(p, before(text, at));
        if (err != HF_OK)
            return err;
        text = behind(text, at, 1);
    }
    const char *slash = find(text, '/');
    p->path = slash != NULL ? behind(text, slash, 1) : (struct slice){"", 0};
    return add_hosts(p, slash != NULL ? before(text, slash) : text, default_port);
}

/* ---- Cluster ---- */

int hfi_url_parse_cluster(struct url_parser *p, struct slice text) {
    int err = hfi_url_parse_hosts(p, text, CLUSTER_PORT);
    return err == HF_OK && p->path.len > 0 ? hfi_url_set_db(p, p->path) : err;
}

int hfi_url_parse_cluster_tls(struct url_parser *p, struct slice text) {
    p->url.tls = true;
    return hfi_url_parse_cluster(p, text);
}

/* ---- Options ---- */

static int set_mapped(struct url_parser *p, struct slice text, struct hfi_url_host *ret) {
    int err = text.len > 0 && text.at[0] != ':' ? hfi_url_set_host(p, text, 0, ret) : HF_EINVAL;
    if (err == HF_OK && ret->port == 0)
        hfi_url_host_clear(p->mem, ret);
    if (err == HF_EINVAL || (err == HF_OK && ret->host == NULL))
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the option address_map must be "
                        "ANNOUNCED:PORT=REAL:PORT");
    return err;
}

static int add_map(struct url_parser *p, struct slice value) {
    struct hfi_url *url = &p->url;
    const char *equals = find(value, '=');
    struct slice real = equals != NULL ? behind(value, equals, 1) : (struct slice){"", 0};
    struct hfi_url_map *more = hfi_realloc(p->mem, url->map, (url->map_len + 1) * sizeof *more);
    if (more == NULL)
        return hfi_fail(p->error, HF_ENOMEM, "out of memory");
    url->map = more;
    more[url->map_len] = (struct hfi_url_map){{NULL, 0}, {NULL, 0}};
    int err = set_mapped(p, equals != NULL ? before(value, equals) : value,
                         &more[url->map_len].announced);
    if (err != HF_OK)
        return err;
    err = set_mapped(p, real, &more[url->map_len].real);
    if (err != HF_OK)
        hfi_url_host_clear(p->mem, &more[url->map_len].announced);
    url->map_len += err == HF_OK;
    return err;
}

static int set_pubsub(struct url_parser *p, struct slice value) {
    static const struct {
        const char *name;
        enum hfi_url_pubsub choice;
    } choices[] = {{"auto", HFI_PUBSUB_AUTO},
                   {"sharded", HFI_PUBSUB_SHARDED},
                   {"classic", HFI_PUBSUB_CLASSIC}};
    if (p->url.pubsub != HFI_PUBSUB_DEFAULT)
        return hfi_fail(p->error, HF_EINVAL, "url: the option pubsub is given twice");
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        if (slice_is(value, choices[i].name))
            p->url.pubsub = choices[i].choice;
    if (p->url.pubsub == HFI_PUBSUB_DEFAULT)
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the option pubsub must be auto, sharded or "
                        "classic");
    return HF_OK;
}

int hfi_url_set_hosts_option(struct url_parser *p, struct slice name, struct slice value,
                             bool *ret_known) {
    bool is_map = slice_is(name, "address_map"), is_pubsub = slice_is(name, "pubsub");
    *ret_known = is_map || is_pubsub;
    if (is_map && p->url.kind != HFI_URL_SENTINEL && p->url.kind != HFI_URL_CLUSTER)
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the option address_map needs redis-sentinel:// or redis-cluster://");
    if (is_map)
        return add_map(p, value);
    if (is_pubsub && p->url.kind != HFI_URL_CLUSTER)
        return hfi_fail(p->error, HF_EINVAL, "url: the option pubsub needs redis-cluster://");
    return is_pubsub ? set_pubsub(p, value) : HF_OK;
}
