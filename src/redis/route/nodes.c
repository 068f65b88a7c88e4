/*
 * The registry of nodes of a route whose servers change (nodes.h).
 *
 * Only the keeper's thread makes, retires and frees nodes. Other threads visit them, and hold `mtx`
 * only while they take some references. Each entry has a reference. A thread without one can get
 * one to a retired node only by visiting. So when, under `mtx`, the entry's reference is the only
 * one left, no thread uses the node's connections either.
 */
#include "redis/route/nodes.h"

#include "base/error.h"
#include "redis/route/addresses.h"

#include <string.h>

#define VISITED_AT_ONCE 32

struct entry {
    struct hfi_link link;
    uint64_t number; /* entries are sorted by it */
    struct hfi_node *node;
    uint16_t port;
    char host[]; /* where it is reached; "": it is retired */
};

static struct entry *entry_of(struct hfi_link *link) {
    return HFI_CONTAINER(link, struct entry, link);
}

/* ---- Life cycle ---- */

int hfi_nodes_init(struct hfi_nodes *nodes, const struct hfi_node_config *config, const char *host,
                   hf_error *error) {
    const struct hfi_mem *mem = config->mem;
    pthread_mutex_init(&nodes->mtx, NULL);
    hfi_list_init(&nodes->entries);
    nodes->config = *config;
    nodes->client_name = hfi_strdup(mem, config->client_name);
    if (nodes->client_name == NULL || hfi_url_copy(mem, config->url, &nodes->url) != HF_OK)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    nodes->config.client_name = nodes->client_name;
    nodes->config.url = &nodes->url;
    if (!nodes->url.tls)
        return HF_OK;
    int err = hfi_node_tls(mem, &nodes->url, host, &nodes->tls, error);
    nodes->config.tls = nodes->tls;
    return err;
}

void hfi_nodes_stop(struct hfi_nodes *nodes) {
    if (nodes->config.mem == NULL)
        return;
    for (struct hfi_link *link = nodes->entries.next; link != &nodes->entries; link = link->next)
        hfi_node_stop(entry_of(link)->node);
}

static void free_entry(struct hfi_nodes *nodes, struct entry *entry) {
    hfi_node_stop(entry->node);
    hfi_node_unref(entry->node);
    hfi_free(nodes->config.mem, entry);
}

void hfi_nodes_clear(struct hfi_nodes *nodes) {
    const struct hfi_mem *mem = nodes->config.mem;
    if (mem == NULL)
        return;
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&nodes->entries)) != NULL)
        free_entry(nodes, entry_of(link));
    hfi_tls_context_free(nodes->tls);
    hfi_url_clear(mem, &nodes->url);
    hfi_free(mem, nodes->client_name);
    pthread_mutex_destroy(&nodes->mtx);
}

void hfi_nodes_close_fds(struct hfi_nodes *nodes) {
    for (struct hfi_link *link = nodes->entries.next; link != &nodes->entries; link = link->next)
        hfi_node_close_fds(entry_of(link)->node);
}

/* ---- Addresses ---- */

static struct hfi_node *find(struct hfi_nodes *nodes, const char *host, uint16_t port) {
    for (struct hfi_link *link = nodes->entries.next; link != &nodes->entries; link = link->next) {
        struct entry *entry = entry_of(link);
        if (hfi_address_is(entry->host, entry->port, host, port))
            return entry->node;
    }
    return NULL;
}

static int make(struct hfi_nodes *nodes, const char *host, uint16_t port, struct hfi_node **ret,
                hf_error *error) {
    size_t size = strlen(host) + 1;
    struct entry *entry = hfi_zalloc(nodes->config.mem, sizeof *entry + size);
    if (entry == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    memcpy(entry->host, host, size);
    entry->port = port;
    struct hfi_url url = nodes->url; /* borrows all that it points to */
    struct hfi_node_config config = nodes->config;
    url.kind = HFI_URL_TCP;
    url.host = entry->host;
    url.port = port;
    config.url = &url;
    int err = hfi_node_new(&config, &entry->node, error);
    if (err != HF_OK) {
        hfi_free(nodes->config.mem, entry);
        return err;
    }
    pthread_mutex_lock(&nodes->mtx);
    entry->number = ++nodes->last_number;
    hfi_list_push_back(&nodes->entries, &entry->link);
    pthread_mutex_unlock(&nodes->mtx);
    *ret = hfi_node_ref(entry->node);
    return HF_OK;
}

int hfi_nodes_get(struct hfi_nodes *nodes, const char *host, uint16_t port, struct hfi_node **ret,
                  hf_error *error) {
    struct hfi_address address = {.host = host, .port = port};
    hfi_address_map(&nodes->config, &address);
    return hfi_nodes_reach(nodes, address.host, address.port, ret, error);
}

int hfi_nodes_reach(struct hfi_nodes *nodes, const char *host, uint16_t port, struct hfi_node **ret,
                    hf_error *error) {
    struct hfi_node *node = find(nodes, host, port);
    if (node == NULL)
        return make(nodes, host, port, ret, error);
    *ret = hfi_node_ref(node);
    return HF_OK;
}

/* ---- Retired nodes ---- */

void hfi_nodes_retire(struct hfi_nodes *nodes, struct hfi_node *node) {
    for (struct hfi_link *link = nodes->entries.next; link != &nodes->entries; link = link->next) {
        struct entry *entry = entry_of(link);
        if (entry->node == node)
            entry->host[0] = '\0';
    }
    hfi_node_retire(node);
}

/* Removes a retired entry without other references. NULL: there is none. */
static struct entry *take_unused(struct hfi_nodes *nodes, bool *ret_others) {
    struct entry *found = NULL;
    *ret_others = false;
    pthread_mutex_lock(&nodes->mtx);
    for (struct hfi_link *link = nodes->entries.next; link != &nodes->entries && found == NULL;
         link = link->next) {
        struct entry *entry = entry_of(link);
        if (!hfi_node_is_retired(entry->node))
            continue;
        if (hfi_node_is_shared(entry->node))
            *ret_others = true;
        else
            found = entry;
    }
    if (found != NULL)
        hfi_list_remove(&found->link);
    pthread_mutex_unlock(&nodes->mtx);
    return found;
}

bool hfi_nodes_sweep(struct hfi_nodes *nodes) {
    struct entry *entry;
    bool others;
    while ((entry = take_unused(nodes, &others)) != NULL)
        free_entry(nodes, entry);
    return others;
}

/* ---- Visiting ---- */

/* Takes references to the nodes behind `number`; returns how many. */
static size_t hold_some(struct hfi_nodes *nodes, uint64_t *number,
                        struct hfi_node *held[VISITED_AT_ONCE]) {
    size_t len = 0;
    pthread_mutex_lock(&nodes->mtx);
    for (struct hfi_link *link = nodes->entries.next;
         link != &nodes->entries && len < VISITED_AT_ONCE; link = link->next) {
        const struct entry *entry = entry_of(link);
        if (entry->number <= *number)
            continue;
        *number = entry->number;
        held[len++] = hfi_node_ref(entry->node);
    }
    pthread_mutex_unlock(&nodes->mtx);
    return len;
}

void hfi_nodes_each(struct hfi_nodes *nodes, void (*visit)(struct hfi_node *node, void *arg),
                    void *arg) {
    struct hfi_node *held[VISITED_AT_ONCE];
    uint64_t number = 0;
    size_t len;
    while ((len = hold_some(nodes, &number, held)) > 0)
        for (size_t i = 0; i < len; i++) {
            visit(held[i], arg);
            hfi_node_unref(held[i]);
        }
}
