/*
 * The list of facts that an engine fills when it observes a server. Any thread; each list has one
 * owner.
 */
#include "engine/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hf_server_info_field *add_empty(hf_server_info *facts) {
    hf_server_info_field **more = realloc(facts->facts, (facts->facts_len + 1) * sizeof *more);
    if (more == NULL)
        return NULL;
    facts->facts = more;
    hf_server_info_field *fact = calloc(1, sizeof *fact);
    if (fact != NULL)
        more[facts->facts_len++] = fact;
    return fact;
}

bool hfi_facts_add(hf_server_info *facts, const char *group, hf_bytes name, hf_bytes value,
                   const char *why) {
    size_t group_len = strlen(group);
    hf_server_info_field *fact = add_empty(facts);
    if (fact != NULL)
        fact->name = malloc(group_len + name.len + 1);
    if (fact == NULL || fact->name == NULL)
        return false;
    memcpy(fact->name, group, group_len);
    memcpy(fact->name + group_len, name.bytes, name.len);
    fact->name[group_len + name.len] = '\0';
    fact->value = value.bytes != NULL ? strndup(value.bytes, value.len) : NULL;
    fact->reason = value.bytes == NULL ? strdup(why) : NULL;
    return fact->value != NULL || fact->reason != NULL;
}

bool hfi_facts_add_text(hf_server_info *facts, const char *group, const char *name,
                        const char *value, const char *why) {
    return hfi_facts_add(facts, group, (hf_bytes){name, strlen(name)},
                         (hf_bytes){value, value != NULL ? strlen(value) : 0}, why);
}

bool hfi_facts_add_number(hf_server_info *facts, const char *name, int64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    return hfi_facts_add_text(facts, "", name, text, NULL);
}

void hfi_facts_free(hf_server_info *facts) {
    if (facts == NULL)
        return;
    for (size_t i = 0; i < facts->facts_len; i++) {
        free(facts->facts[i]->name);
        free(facts->facts[i]->value);
        free(facts->facts[i]->reason);
        free(facts->facts[i]);
    }
    free(facts->facts);
    free(facts->node);
    free(facts);
}

static void free_list(hf_holder **list, size_t len) {
    for (size_t i = 0; i < len; i++) {
        free(list[i]->owner);
        free(list[i]->connection);
        free(list[i]);
    }
    free(list);
}

void hfi_lock_info_free(hf_lock_info *info) {
    if (info == NULL)
        return;
    free_list(info->holders, info->holders_len);
    free_list(info->waiters, info->waiters_len);
    free(info);
}
