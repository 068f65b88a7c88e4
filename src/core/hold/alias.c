/*
 * Aliases: owners of other clients that this client has adopted, under its own numbers.
 *
 * An adopted hold keeps its owner's text at the server, since other processes with the handle use
 * that text. In this process it has a number like any other, and this table maps the number to the
 * text. An alias lives as long as a hold's record under it. Afterwards the number belongs to no
 * owner, like that of any owner without holds.
 *
 * Any thread, also with a shard locked; the table has its own mutex, under which nothing is called.
 * A client that has adopted nothing pays one comparison.
 */
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

struct hfi_alias {
    struct hfi_keyed keyed; /* first: an entry is its alias */
    hf_owner number;        /* its key */
    size_t refs;            /* guarded, like the table, by the mutex */
    size_t len;
    char text[HFI_OWNER_MAX];
};

#define UUID_LEN 36

static bool is_uuid(const char *text) {
    for (size_t i = 0; i < UUID_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (text[i] == '\0' || strchr(dash ? "-" : "0123456789abcdef", text[i]) == NULL)
            return false;
    }
    return true;
}

bool hfi_owner_parse(const char *text, hf_owner *ret_number) {
    if (text == NULL || !is_uuid(text) || text[UUID_LEN] != ':')
        return false;
    const char *digits = text + UUID_LEN + 1;
    if (*digits == '0')
        return false;
    hf_owner number = 0;
    for (const char *at = digits; *at != '\0'; at++) {
        unsigned digit = (unsigned)(*at - '0');
        if (digit > 9 || number > (UINT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *ret_number = number;
    return number != 0;
}

#define BITS_LEN 16

bool hfi_stamped_parse(const char *token, hf_owner *ret_number, uint64_t *ret_bits) {
    char owner[HFI_OWNER_MAX];
    size_t len = strlen(token);
    const char *bits = token + len - BITS_LEN;
    if (len < UUID_LEN + 3 + BITS_LEN || len - BITS_LEN > sizeof owner || bits[-1] != ':' ||
        strspn(bits, "0123456789abcdef") != BITS_LEN)
        return false;
    memcpy(owner, token, len - BITS_LEN - 1);
    owner[len - BITS_LEN - 1] = '\0';
    *ret_bits = strtoull(bits, NULL, 16);
    return *ret_bits != 0 && hfi_owner_parse(owner, ret_number);
}

void hfi_aliases_init(struct hfi_core *core) {
    pthread_mutex_init(&core->aliases.mtx, NULL);
}

void hfi_aliases_clear(struct hfi_core *core) {
    pthread_mutex_destroy(&core->aliases.mtx);
}

static struct hfi_alias *find_locked(const struct hfi_core *core, hf_owner number) {
    return (struct hfi_alias *)hfi_table_find(&core->aliases.by_number, (const char *)&number,
                                              sizeof number);
}

static struct hfi_alias *add_locked(struct hfi_core *core, hf_owner number, const char *text,
                                    size_t len) {
    const struct hfi_mem *mem = core->mem;
    struct hfi_alias *alias = hfi_zalloc(mem, sizeof *alias);
    if (alias == NULL)
        return NULL;
    alias->number = number;
    alias->len = len;
    memcpy(alias->text, text, len);
    hfi_table_add(mem, &core->aliases.by_number, &alias->keyed, (const char *)&alias->number,
                  sizeof alias->number);
    atomic_fetch_add(&core->aliases.len, 1);
    return alias;
}

size_t hfi_alias_text(struct hfi_core *core, hf_owner number, char *text) {
    size_t len = 0;
    pthread_mutex_lock(&core->aliases.mtx);
    const struct hfi_alias *alias = find_locked(core, number);
    if (alias != NULL) {
        len = alias->len;
        memcpy(text, alias->text, len + 1);
    }
    pthread_mutex_unlock(&core->aliases.mtx);
    return len;
}

struct hfi_alias *hfi_alias_ref(struct hfi_core *core, hf_owner number, const char *text,
                                size_t len) {
    pthread_mutex_lock(&core->aliases.mtx);
    struct hfi_alias *alias = find_locked(core, number);
    if (alias == NULL)
        alias = add_locked(core, number, text, len);
    if (alias != NULL)
        alias->refs++;
    pthread_mutex_unlock(&core->aliases.mtx);
    return alias;
}

void hfi_alias_unref(struct hfi_core *core, struct hfi_alias *alias) {
    const struct hfi_mem *mem = core->mem;
    if (alias == NULL)
        return;
    pthread_mutex_lock(&core->aliases.mtx);
    bool last = --alias->refs == 0;
    if (last) {
        hfi_table_remove(mem, &core->aliases.by_number, &alias->keyed);
        atomic_fetch_sub(&core->aliases.len, 1);
    }
    pthread_mutex_unlock(&core->aliases.mtx);
    if (last)
        hfi_free(mem, alias);
}
