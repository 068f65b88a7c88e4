/*
 * Parses latencies in a client's report: for all names together, and by name. A part of
 * survey_answers.c.
 *
 * The values are made consistent here, whatever the report says: no count is negative, and the
 * total is the sum of the buckets.
 */
#include "base/glob.h"
#include "fleet/survey_answer.h"

#include <string.h>

#define BUCKET_MAX (INT64_MAX / 64) /* so that the sum of 32 of these does not overflow */
#define NAMES_MAX 65536 /* of all clients: some dozen bytes of a report become a thousand of ours */

/* ---- Histograms ---- */

static void read_buckets(struct hfi_json_reader *reader, hf_histogram *times) {
    size_t len = 0;
    if (!hfi_json_enter(reader, '[')) {
        hfi_json_skip(reader);
        return;
    }
    while (hfi_json_next(reader)) {
        int64_t number = 0;
        if (hfi_json_read_number(reader, &number) &&
            len < sizeof times->buckets / sizeof times->buckets[0])
            times->buckets[len++] = hfi_counted(number < BUCKET_MAX ? number : BUCKET_MAX);
    }
}

void hfi_answer_read_times(struct hfi_json_reader *reader, hf_histogram *times) {
    int64_t sum_us = 0, max_us = 0;
    char key[16];
    *times = (hf_histogram){0};
    if (!hfi_json_enter(reader, '{')) {
        hfi_json_skip(reader);
        return;
    }
    while (hfi_json_next_key(reader, key, sizeof key)) {
        if (strcmp(key, "sum_us") == 0)
            hfi_json_read_number(reader, &sum_us);
        else if (strcmp(key, "max_us") == 0)
            hfi_json_read_number(reader, &max_us);
        else if (strcmp(key, "buckets") == 0)
            read_buckets(reader, times);
        else
            hfi_json_skip(reader);
    }
    times->sum_us = hfi_counted(sum_us);
    times->max_us = hfi_counted(max_us);
    for (size_t i = 0; i < sizeof times->buckets / sizeof times->buckets[0]; i++)
        times->count += times->buckets[i];
}

/* ---- By name ---- */

/* One of them, in front of those read before. */
struct named {
    hf_fleet_name_stats pub;
    struct named *next;
};

/* False: it is invalid. */
static bool read_named(struct hfi_json_reader *reader, struct hfi_answer_name *name,
                       hf_fleet_name_stats *ret) {
    char key[16];
    int64_t begun = 0;
    bool good = true;
    name->len = 0;
    if (!hfi_json_enter(reader, '{')) {
        hfi_json_skip(reader);
        return false;
    }
    while (hfi_json_next_key(reader, key, sizeof key)) {
        if (hfi_answer_read_name(reader, key, name, &good))
            continue;
        if (strcmp(key, "begun") == 0)
            hfi_json_read_number(reader, &begun);
        else if (strcmp(key, "wait") == 0)
            hfi_answer_read_times(reader, &ret->wait);
        else if (strcmp(key, "hold") == 0)
            hfi_answer_read_times(reader, &ret->hold);
        else if (strcmp(key, "hand_over") == 0)
            hfi_answer_read_times(reader, &ret->hand_over);
        else
            hfi_json_skip(reader);
    }
    ret->begun = hfi_counted(begun);
    return good && name->len > 0;
}

static const hf_fleet_name_stats *const *list(struct hfi_arena *arena, const struct named *last,
                                              size_t len) {
    const hf_fleet_name_stats **all =
        hfi_arena_take(arena, (len + 1) * sizeof(hf_fleet_name_stats *));
    for (size_t i = len; all != NULL && i > 0; i--, last = last->next)
        all[i - 1] = &last->pub;
    return all;
}

void hfi_answer_read_names(struct hfi_join *join, struct hfi_json_reader *reader,
                           hf_fleet_client *client, struct hfi_answer_name *name) {
    struct named *last = NULL;
    size_t len = 0;
    if (!hfi_json_enter(reader, '[')) {
        hfi_json_skip(reader);
        return;
    }
    while (!join->failed && hfi_json_next(reader)) {
        hf_fleet_name_stats times = {0};
        if (!read_named(reader, name, &times) || client == NULL ||
            !hfi_glob(join->pattern, join->pattern_len, name->bytes, name->len))
            continue;
        if (join->names_len == NAMES_MAX) {
            client->names_left_out++;
            continue;
        }
        struct named *named = hfi_arena_take(&join->arena, sizeof *named);
        if (named == NULL)
            break;
        *named = (struct named){.pub = times, .next = last};
        named->pub.name = hfi_arena_text(&join->arena, name->bytes, name->len);
        named->pub.name_len = name->len;
        last = named;
        len++;
        join->names_len++;
    }
    if (client == NULL || len == 0)
        return;
    client->names = list(&join->arena, last, len);
    client->names_len = client->names != NULL ? len : 0;
}
