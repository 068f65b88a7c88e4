/*
 * Urls of Sentinel: the name of the primary, and options of their own (the forms are in url.h).
 *
 * Called by url.c and url_options.c, on the caller's thread; stateless. What the path says depends on
 * whether an option names the primary, so it is read last. The rule of url.c holds here, too: no
 * message quotes the text.
 */
#include "net/url_parser.h"

#define SENTINEL_PORT 26379

/* ---- Before the options ---- */

int hfi_url_parse_sentinel(struct url_parser *p, struct slice text) {
    return hfi_url_parse_hosts(p, text, SENTINEL_PORT);
}

int hfi_url_parse_sentinel_tls(struct url_parser *p, struct slice text) {
    p->url.tls = true;
    return hfi_url_parse_sentinel(p, text);
}

/* ---- Options ---- */

static int set_text(struct url_parser *p, struct slice value, const char *name, char **text) {
    if (*text != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s is given twice", name);
    if (value.len == 0)
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s is empty", name);
    return hfi_url_decode(p, value, name, text);
}

static int set_sentinel_tls(struct url_parser *p, struct slice value) {
    if (p->url.sentinel_tls != HFI_SWITCH_DEFAULT)
        return hfi_fail(p->error, HF_EINVAL, "url: the option sentinel_tls is given twice");
    p->url.sentinel_tls = slice_is(value, "on") ? HFI_SWITCH_ON : HFI_SWITCH_OFF;
    if (!slice_is(value, "on") && !slice_is(value, "off"))
        return hfi_fail(p->error, HF_EINVAL, "url: the option sentinel_tls is on or off");
    return HF_OK;
}

int hfi_url_set_sentinel_option(struct url_parser *p, struct slice name, struct slice value,
                                bool *ret_known) {
    const struct {
        const char *name, *shown;
        char **text;
    } texts[] = {
        {"master", "master", &p->url.master},
        {"sentinelMasterId", "master", &p->url.master},
        {"master_name", "master", &p->url.master},
        {"service_name", "master", &p->url.master},
        {"sentinel_user", "sentinel_user", &p->url.sentinel_user},
        {"sentinel_username", "sentinel_user", &p->url.sentinel_user},
        {"sentinel_password", "sentinel_password", &p->url.sentinel_password},
        {"sentinel_tls_server_name", "sentinel_tls_server_name", &p->url.sentinel_tls_server_name},
    };
    const size_t len = sizeof texts / sizeof texts[0];
    bool is_tls = slice_is(name, "sentinel_tls");
    size_t i = 0;
    while (i < len && !slice_is(name, texts[i].name))
        i++;
    *ret_known = i < len || is_tls;
    if (!*ret_known)
        return HF_OK;
    if (p->url.kind != HFI_URL_SENTINEL)
        return hfi_fail(p->error, HF_EINVAL,
                        "url: options of Sentinel need Sentinel; write redis-sentinel://");
    if (is_tls)
        return set_sentinel_tls(p, value);
    return set_text(p, value, texts[i].shown, texts[i].text);
}

/* ---- The whole ---- */

static bool is_number(struct slice text) {
    int64_t number;
    return hfi_url_number(text, INT64_MAX, &number);
}

/* NAME[/DB], or with an option for the name [DB]. */
static int read_path(struct url_parser *p) {
    struct slice path = p->path;
    const char *slash = find(path, '/');
    struct slice first = slash != NULL ? before(path, slash) : path;
    struct slice db = slash != NULL ? behind(path, slash, 1) : (struct slice){"", 0};
    if (find(path, '#') != NULL)
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the name of the primary is not written behind a '#'; write "
                        "redis-sentinel://HOST,.../NAME/DB");
    if (p->url.master != NULL && (slash != NULL || (first.len > 0 && !is_number(first))))
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the primary is named twice, by the path and by an option");
    if (p->url.master != NULL)
        return first.len > 0 ? hfi_url_set_db(p, first) : HF_OK;
    if (slash == NULL && is_number(first))
        return hfi_fail(p->error, HF_EINVAL,
                        "url: is this number the database or the name of the primary? Write "
                        "redis-sentinel://HOST,.../NAME/DB, or ?master=NAME");
    if (first.len > 0) {
        int err = hfi_url_decode(p, first, "the name of the primary", &p->url.master);
        if (err != HF_OK)
            return err;
    }
    return db.len > 0 ? hfi_url_set_db(p, db) : HF_OK;
}

int hfi_url_finish_sentinel(struct url_parser *p) {
    const struct hfi_url *url = &p->url;
    if (p->tls_options_given && !url->tls && url->sentinel_tls != HFI_SWITCH_ON)
        return hfi_fail(p->error, HF_EINVAL,
                        "url: options of TLS need TLS; write rediss-sentinel://");
    return read_path(p);
}
