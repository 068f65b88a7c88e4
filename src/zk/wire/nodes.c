/*
 * The table of this client's nodes. Its own mutex guards it; nothing is called under that mutex.
 */
#include "zk/wire/nodes.h"

#include "base/list.h"
#include "base/table.h"

#include <pthread.h>
#include <string.h>

#define KEY_MAX (HFI_ZK_NAME_MAX + 200) /* the longest name, and an owner: a uuid and a number */

struct entry {
    struct hfi_keyed keyed;
    struct hfi_zk_held held;
    char key[];
};

struct hfi_zk_nodes {
    const struct hfi_mem *mem;
    pthread_mutex_t mtx;
    struct hfi_table table;
};

int hfi_zk_nodes_new(const struct hfi_mem *mem, struct hfi_zk_nodes **ret) {
    struct hfi_zk_nodes *nodes = hfi_zalloc(mem, sizeof *nodes);
    if (nodes == NULL)
        return HF_ENOMEM;
    nodes->mem = mem;
    pthread_mutex_init(&nodes->mtx, NULL);
    *ret = nodes;
    return HF_OK;
}

static struct entry *entry_of(struct hfi_keyed *keyed) {
    return keyed != NULL ? HFI_CONTAINER(keyed, struct entry, keyed) : NULL;
}

static struct entry *first_locked(const struct hfi_zk_nodes *nodes) {
    return entry_of(hfi_table_first(&nodes->table));
}

static void remove_locked(struct hfi_zk_nodes *nodes, struct entry *entry) {
    hfi_table_remove(nodes->mem, &nodes->table, &entry->keyed);
    hfi_free(nodes->mem, entry);
}

void hfi_zk_nodes_free(struct hfi_zk_nodes *nodes) {
    if (nodes == NULL)
        return;
    struct entry *entry;
    while ((entry = first_locked(nodes)) != NULL)
        remove_locked(nodes, entry);
    pthread_mutex_destroy(&nodes->mtx);
    hfi_free(nodes->mem, nodes);
}

/* Name, a zero byte, owner, part. */
static size_t write_key(const struct hfi_zk_place *place, char key[KEY_MAX]) {
    const char *part = hfi_kind_part(place->kind);
    size_t part_len = strlen(part), len = place->name_len;
    if (len + 1 + place->owner_len + part_len > KEY_MAX)
        return 0;
    memcpy(key, place->name, len);
    key[len++] = '\0';
    memcpy(key + len, place->owner, place->owner_len);
    len += place->owner_len;
    memcpy(key + len, part, part_len);
    return len + part_len;
}

static struct entry *find_locked(const struct hfi_zk_nodes *nodes, const char *key, size_t len) {
    return entry_of(hfi_table_find(&nodes->table, key, len));
}

static struct entry *add_locked(struct hfi_zk_nodes *nodes, const char *key, size_t len) {
    struct entry *entry = hfi_zalloc(nodes->mem, sizeof *entry + len);
    if (entry == NULL)
        return NULL;
    memcpy(entry->key, key, len);
    hfi_table_add(nodes->mem, &nodes->table, &entry->keyed, entry->key, len);
    return entry;
}

int hfi_zk_nodes_put(struct hfi_zk_nodes *nodes, const struct hfi_zk_place *place,
                     const struct hfi_zk_held *held, bool *ret_new) {
    char key[KEY_MAX];
    size_t len = write_key(place, key);
    pthread_mutex_lock(&nodes->mtx);
    struct entry *entry = find_locked(nodes, key, len);
    *ret_new = entry == NULL;
    if (entry == NULL)
        entry = add_locked(nodes, key, len);
    if (entry != NULL)
        entry->held = *held;
    pthread_mutex_unlock(&nodes->mtx);
    return entry != NULL ? HF_OK : HF_ENOMEM;
}

bool hfi_zk_nodes_find(struct hfi_zk_nodes *nodes, const struct hfi_zk_place *place,
                       struct hfi_zk_held *ret) {
    char key[KEY_MAX];
    size_t len = write_key(place, key);
    pthread_mutex_lock(&nodes->mtx);
    const struct entry *entry = find_locked(nodes, key, len);
    if (entry != NULL)
        *ret = entry->held;
    pthread_mutex_unlock(&nodes->mtx);
    return entry != NULL;
}

bool hfi_zk_nodes_remove(struct hfi_zk_nodes *nodes, const struct hfi_zk_place *place,
                         int64_t token) {
    char key[KEY_MAX];
    size_t len = write_key(place, key);
    pthread_mutex_lock(&nodes->mtx);
    struct entry *entry = find_locked(nodes, key, len);
    bool there = entry != NULL && (token == 0 || entry->held.token == token);
    if (there)
        remove_locked(nodes, entry);
    pthread_mutex_unlock(&nodes->mtx);
    return there;
}

size_t hfi_zk_nodes_end(struct hfi_zk_nodes *nodes, uint64_t number) {
    size_t ended = 0;
    pthread_mutex_lock(&nodes->mtx);
    struct entry *next;
    for (struct entry *entry = first_locked(nodes); entry != NULL; entry = next) {
        next = entry_of(hfi_table_next(&nodes->table, &entry->keyed));
        if (entry->held.number >= number)
            continue;
        remove_locked(nodes, entry);
        ended++;
    }
    pthread_mutex_unlock(&nodes->mtx);
    return ended;
}

size_t hfi_zk_nodes_len(struct hfi_zk_nodes *nodes) {
    pthread_mutex_lock(&nodes->mtx);
    size_t len = nodes->table.len;
    pthread_mutex_unlock(&nodes->mtx);
    return len;
}
