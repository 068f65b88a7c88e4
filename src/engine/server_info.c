/*
 * The fields of struct hf_server_info that an engine fills when it observes a server. Any thread; each list has one
 * owner.
 */
#include "engine/server_info.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hf_server_info_field *add_empty(hf_server_info *info) {
    hf_server_info_field **more = realloc(info->fields, (info->fields_len + 1) * sizeof *more);
    if (more == NULL)
        return NULL;
    info->fields = more;
    hf_server_info_field *field = calloc(1, sizeof *field);
    if (field != NULL)
        more[info->fields_len++] = field;
    return field;
}

bool hfi_server_info_add(hf_server_info *info, const char *group, hf_bytes name, hf_bytes value,
                         const char *why) {
    size_t group_len = strlen(group);
    hf_server_info_field *field = add_empty(info);
    if (field != NULL)
        field->name = malloc(group_len + name.len + 1);
    if (field == NULL || field->name == NULL)
        return false;
    memcpy(field->name, group, group_len);
    memcpy(field->name + group_len, name.bytes, name.len);
    field->name[group_len + name.len] = '\0';
    field->value = value.bytes != NULL ? strndup(value.bytes, value.len) : NULL;
    field->reason = value.bytes == NULL ? strdup(why) : NULL;
    return field->value != NULL || field->reason != NULL;
}

bool hfi_server_info_add_text(hf_server_info *info, const char *group, const char *name,
                              const char *value, const char *why) {
    return hfi_server_info_add(info, group, (hf_bytes){name, strlen(name)},
                               (hf_bytes){value, value != NULL ? strlen(value) : 0}, why);
}

bool hfi_server_info_add_number(hf_server_info *info, const char *name, int64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    return hfi_server_info_add_text(info, "", name, text, NULL);
}

void hfi_server_info_free(hf_server_info *info) {
    if (info == NULL)
        return;
    for (size_t i = 0; i < info->fields_len; i++) {
        free(info->fields[i]->name);
        free(info->fields[i]->value);
        free(info->fields[i]->reason);
        free(info->fields[i]);
    }
    free(info->fields);
    free(info->node);
    free(info);
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
