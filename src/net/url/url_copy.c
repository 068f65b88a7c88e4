/*
 * Connection urls: copying and freeing. Called on the thread that opens a client; stateless.
 */
#include "net/url/url_parser.h"

#define TEXTS 14

/* All strings that a url owns, except those in its lists. */
static void texts_of(struct hfi_url *url, char **texts[TEXTS]) {
    char **all[TEXTS] = {&url->host,
                         &url->path,
                         &url->user,
                         &url->password,
                         &url->name_prefix,
                         &url->tls_ca_file,
                         &url->tls_ca_dir,
                         &url->tls_cert_file,
                         &url->tls_key_file,
                         &url->tls_server_name,
                         &url->master,
                         &url->sentinel_user,
                         &url->sentinel_password,
                         &url->sentinel_tls_server_name};
    memcpy(texts, all, sizeof all);
}

static bool copy_host(const struct hfi_mem *mem, const struct hfi_url_host *host,
                      struct hfi_url_host *ret) {
    ret->port = host->port;
    ret->host = hfi_strdup(mem, host->host);
    return ret->host != NULL;
}

static bool copy_hosts(const struct hfi_mem *mem, const struct hfi_url *url, struct hfi_url *ret) {
    bool ok = true;
    if (url->hosts_len > 0)
        ret->hosts = hfi_zalloc(mem, url->hosts_len * sizeof *ret->hosts);
    ret->hosts_len = ret->hosts != NULL ? url->hosts_len : 0;
    for (size_t i = 0; i < ret->hosts_len; i++)
        ok = copy_host(mem, &url->hosts[i], &ret->hosts[i]) && ok;
    return ok && ret->hosts_len == url->hosts_len;
}

static bool copy_map(const struct hfi_mem *mem, const struct hfi_url *url, struct hfi_url *ret) {
    bool ok = true;
    if (url->map_len > 0)
        ret->map = hfi_zalloc(mem, url->map_len * sizeof *ret->map);
    ret->map_len = ret->map != NULL ? url->map_len : 0;
    for (size_t i = 0; i < ret->map_len; i++)
        ok = copy_host(mem, &url->map[i].announced, &ret->map[i].announced) &&
             copy_host(mem, &url->map[i].real, &ret->map[i].real) && ok;
    return ok && ret->map_len == url->map_len;
}

int hfi_url_copy(const struct hfi_mem *mem, const struct hfi_url *url, struct hfi_url *ret) {
    struct hfi_url copy = *url;
    char **texts[TEXTS];
    bool ok = true;
    copy.hosts = NULL;
    copy.map = NULL;
    texts_of(&copy, texts);
    for (size_t i = 0; i < TEXTS; i++) {
        const char *text = *texts[i];
        *texts[i] = text != NULL ? hfi_strdup(mem, text) : NULL;
        ok = ok && (text == NULL || *texts[i] != NULL);
    }
    ok = copy_hosts(mem, url, &copy) && copy_map(mem, url, &copy) && ok;
    if (!ok) {
        hfi_url_clear(mem, &copy);
        return HF_ENOMEM;
    }
    *ret = copy;
    return HF_OK;
}

void hfi_url_clear(const struct hfi_mem *mem, struct hfi_url *url) {
    char **texts[TEXTS];
    if (url == NULL)
        return;
    if (url->password != NULL)
        explicit_bzero(url->password, strlen(url->password));
    if (url->sentinel_password != NULL)
        explicit_bzero(url->sentinel_password, strlen(url->sentinel_password));
    texts_of(url, texts);
    for (size_t i = 0; i < TEXTS; i++)
        hfi_free(mem, *texts[i]);
    for (size_t i = 0; i < url->hosts_len; i++)
        hfi_url_host_clear(mem, &url->hosts[i]);
    for (size_t i = 0; i < url->map_len; i++) {
        hfi_url_host_clear(mem, &url->map[i].announced);
        hfi_url_host_clear(mem, &url->map[i].real);
    }
    hfi_free(mem, url->hosts);
    hfi_free(mem, url->map);
    memset(url, 0, sizeof *url);
}
