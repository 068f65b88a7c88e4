/* The tool's urls: built from -h, -p, -s, -n, --sentinel and --cluster, and queried for TLS, scheme
 * and options. Stateless. */
#include "cli.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends text, percent-encoding characters that a url cannot contain. */
static void append_encoded(FILE *out, const char *text, size_t len, const char *as_it_is) {
    for (size_t i = 0; i < len; i++) {
        if (isalnum((unsigned char)text[i]) || strchr(as_it_is, text[i]) != NULL)
            fputc(text[i], out);
        else
            fprintf(out, "%%%02X", (unsigned char)text[i]);
    }
}

static void append_host(FILE *out, const char *host, size_t len, const char *port) {
    if (memchr(host, ':', len) != NULL) {
        fprintf(out, "[%.*s]", (int)len, host);
    } else {
        append_encoded(out, host, len, "-._~/");
    }
    fprintf(out, ":%s", port);
}

/* -h may list several sentinels or nodes, separated by commas. */
static void append_hosts(FILE *out, const char *hosts, const char *port) {
    for (const char *host = hosts; host != NULL;) {
        const char *comma = strchr(host, ',');
        append_host(out, host, comma != NULL ? (size_t)(comma - host) : strlen(host), port);
        if (comma != NULL)
            fputc(',', out);
        host = comma != NULL ? comma + 1 : NULL;
    }
}

char *connection_url_of_parts(const struct connection *connection) {
    char *url = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&url, &size);
    if (out == NULL)
        return NULL;
    const char *master = connection->sentinel.value;
    const char *host = connection->host.value != NULL ? connection->host.value : "127.0.0.1";
    const char *port = connection->port.value;
    const char *db = connection->db.value != NULL ? connection->db.value : "0";
    if (connection->socket.value != NULL) {
        fputs("unix://", out);
        append_encoded(out, connection->socket.value, strlen(connection->socket.value), "-._~/");
        fprintf(out, "?db=%s", db);
    } else if (master != NULL) {
        fputs("redis-sentinel://", out);
        append_hosts(out, host, port != NULL ? port : "26379");
        fprintf(out, "/%s?master=", db);
        append_encoded(out, master, strlen(master), "-._~");
    } else if (connection->cluster.value != NULL) {
        fputs("redis-cluster://", out);
        append_hosts(out, host, port != NULL ? port : "6379");
        fprintf(out, "/%s", db);
    } else {
        fputs("redis://", out);
        append_host(out, host, strlen(host), port != NULL ? port : "6379");
        fprintf(out, "/%s", db);
    }
    return fclose(out) == 0 ? url : NULL;
}

static bool scheme_is(const char *url, const char *name) {
    size_t len = strlen(name);
    return strncasecmp(url, name, len) == 0 && strncmp(url + len, "://", 3) == 0;
}

bool url_has_tls(const char *url) {
    static const char *const names[] = {
        "rediss",
        "valkeys",
        "rediss-sentinel",
        "rediss+sentinel",
        "valkeys-sentinel",
        "valkeys+sentinel",
        "redis-sentinels",
        "redis+sentinels",
        "valkey-sentinels",
        "valkey+sentinels",
        "rediss-cluster",
        "rediss+cluster",
        "valkeys-cluster",
        "valkeys+cluster",
        "redis-clusters",
        "redis+clusters",
        "valkey-clusters",
        "valkey+clusters",
        "zks",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (scheme_is(url, names[i]))
            return true;
    return false;
}

bool url_is_zk(const char *url) {
    return scheme_is(url, "zk") || scheme_is(url, "zks");
}

bool url_is_cluster(const char *url) {
    const char *word = strstr(url, "cluster"), *end = strstr(url, "://");
    return word != NULL && end != NULL && word < end;
}

bool url_can_have_tls(const char *url) {
    static const char *const names[] = {"redis",
                                        "valkey",
                                        "redis-sentinel",
                                        "redis+sentinel",
                                        "valkey-sentinel",
                                        "valkey+sentinel",
                                        "redis-cluster",
                                        "redis+cluster",
                                        "valkey-cluster",
                                        "valkey+cluster",
                                        "zk"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (scheme_is(url, names[i]))
            return true;
    return url_has_tls(url);
}

/* ---- Urls that the library has accepted ---- */

/* The start of an option's value in the url; NULL: not in the url. */
static const char *find_option(const char *url, const char *name) {
    size_t len = strlen(name);
    for (const char *at = strchr(url, '?'); at != NULL; at = strchr(at + 1, '&'))
        if (strncmp(at + 1, name, len) == 0 && at[1 + len] == '=')
            return at + len + 2;
    return NULL;
}

char *url_option(const char *url, const char *name) {
    const char *value = find_option(url, name);
    size_t left = value != NULL ? strcspn(value, "&") : 0, len = 0;
    char *text = value != NULL ? malloc(left + 1) : NULL;
    if (text == NULL)
        return NULL;
    for (unsigned byte; left > 0; left--, value++) {
        bool escaped = *value == '%' && left > 2 && sscanf(value + 1, "%2x", &byte) == 1;
        text[len++] = escaped ? (char)byte : *value;
        left -= escaped ? 2 : 0;
        value += escaped ? 2 : 0;
    }
    text[len] = '\0';
    return text;
}
