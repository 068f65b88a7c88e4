/*
 * Sentinel urls: the name of the primary, and their own options (see url.h).
 *
 * url.c and url_options.c call this on the caller's thread; stateless. The path is read last: its
 * meaning depends on whether an option names the primary. No message quotes the text, as in url.c.
 */
#include "net/url/url_parser.h"

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
    bool is_tls = slice_is(name, "sentinel_tls"), is_confirm = slice_is(name, "sentinel_confirm");
    size_t i = 0;
    while (i < len && !slice_is(name, texts[i].name))
        i++;
    *ret_known = i < len || is_tls || is_confirm;
    if (!*ret_known)
        return HF_OK;
    if (p->url.kind != HFI_URL_SENTINEL)
        return hfi_fail(p->error, HF_EINVAL, "url: Sentinel options need redis-sentinel://");
    if (is_tls)
        return hfi_url_set_switch(p, value, "sentinel_tls", &p->url.sentinel_tls);
    if (is_confirm)
        return hfi_url_set_switch(p, value, "sentinel_confirm", &p->url.sentinel_confirm);
    return set_text(p, value, texts[i].shown, texts[i].text);
}

/* ---- After the options ---- */

static bool is_number(struct slice text) {
    int64_t number;
    return hfi_url_number(text, INT64_MAX, &number);
}

/* NAME[/DB]; if an option gives the name, [DB]. */
static int read_path(struct url_parser *p) {
    struct slice path = p->path;
    const char *slash = find(path, '/');
    struct slice first = slash != NULL ? before(path, slash) : path;
    struct slice db = slash != NULL ? behind(path, slash, 1) : (struct slice){"", 0};
    if (find(path, '#') != NULL)
        return hfi_fail(p->error, HF_EINVAL,
                        "url: write the name of the primary after a '/', not a '#': "
                        "redis-sentinel://HOST,.../NAME/DB");
    if (p->url.master != NULL && (slash != NULL || (first.len > 0 && !is_number(first))))
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the primary is named twice, by the path and by an option");
    if (p->url.master != NULL)
        return first.len > 0 ? hfi_url_set_db(p, first) : HF_OK;
    if (slash == NULL && is_number(first))
        return hfi_fail(p->error, HF_EINVAL,
                        "url: this number may be the database or the name of the primary; write "
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
        return hfi_fail(p->error, HF_EINVAL, "url: TLS options need rediss-sentinel://");
    return read_path(p);
}
