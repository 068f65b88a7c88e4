/*
 * Parses a client's report: a JSON text that any client may have forged.
 *
 * A text is accepted as a whole or not at all. It is parsed into a draft, which counts only if the
 * text ends as it should. It must have our version, and name a uuid. Its statements on other
 * clients' owners are ignored, with two exceptions. Permits count, since their owners are not
 * clients; adopted holds count if another claim confirms them. A second report of the same client
 * adds nothing.
 */
#include "base/clock.h"
#include "base/glob.h"
#include "fleet/survey_answer.h"

#include <string.h>

#define TIME_MAX_MS (100 * 366 * INT64_C(86400000)) /* a century, so that sums do not overflow */

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool hfi_is_uuid(const char *text) {
    for (int i = 0; i < HFI_UUID_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !is_hex(text[i]))
            return false;
    }
    return true;
}

/* ---- The client itself ---- */

struct draft {
    int64_t version, tells_nothing;
    char id[HFI_UUID_LEN + 2];
    char name[256], under[80], program_version[32];
    int64_t up_ms, left_out, names_left_out, acquired, contended, timed_out, losses, renew_failures,
        released, renewals;
    hf_histogram wait, hold, hand_over;
};

/* -1: not stated. */
static int64_t time_said(int64_t ms) {
    if (ms < 0)
        return -1;
    return ms < TIME_MAX_MS ? ms : TIME_MAX_MS;
}

/* Sums of these do not overflow. */
static int64_t left_out_said(int64_t number) {
    const int64_t most = INT64_MAX / 2;
    return number < 0 ? 0 : number < most ? number : most;
}

static void read_self(struct hfi_json_reader *reader, const char *key, struct draft *draft) {
    size_t len;
    const struct {
        const char *key;
        char *text;
        size_t size;
    } texts[] = {
        {"id", draft->id, sizeof draft->id},
        {"name", draft->name, sizeof draft->name},
        {"under", draft->under, sizeof draft->under},
        {"version", draft->program_version, sizeof draft->program_version},
    };
    const struct {
        const char *key;
        int64_t *number;
    } numbers[] = {
        {"v", &draft->version},
        {"up_ms", &draft->up_ms},
        {"left_out", &draft->left_out},
        {"names_left_out", &draft->names_left_out},
        {"acquired", &draft->acquired},
        {"contended", &draft->contended},
        {"timed_out", &draft->timed_out},
        {"losses", &draft->losses},
        {"renew_failures", &draft->renew_failures},
        {"released", &draft->released},
        {"renewals", &draft->renewals},
        {"tells_nothing", &draft->tells_nothing},
    };
    const struct {
        const char *key;
        hf_histogram *times;
    } histograms[] = {
        {"wait", &draft->wait}, {"hold", &draft->hold}, {"hand_over", &draft->hand_over}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(key, texts[i].key) == 0) {
            hfi_json_read_text(reader, texts[i].text, texts[i].size, &len);
            return;
        }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(key, numbers[i].key) == 0) {
            hfi_json_read_number(reader, numbers[i].number);
            return;
        }
    for (size_t i = 0; i < sizeof histograms / sizeof histograms[0]; i++)
        if (strcmp(key, histograms[i].key) == 0) {
            hfi_answer_read_times(reader, histograms[i].times);
            return;
        }
    hfi_json_skip(reader);
}

/* ---- What it holds and waits for ---- */

struct entry {
    struct hfi_answer_name name;
    char kind[32];
    char owner[80];
    char thread[32];
    int64_t count, for_ms, left_ms, renewed;
};

static int hex_value(char c) {
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

/* In place. False: it is not hex. */
static bool decode_hex(struct hfi_answer_name *name) {
    char *bytes = name->bytes;
    for (size_t i = 0; i < name->len; i++)
        if (!is_hex(bytes[i]))
            return false;
    name->len /= 2;
    for (size_t i = 0; i < name->len; i++)
        bytes[i] = (char)(hex_value(bytes[2 * i]) * 16 + hex_value(bytes[2 * i + 1]));
    return true;
}

bool hfi_answer_read_name(struct hfi_json_reader *reader, const char *key,
                          struct hfi_answer_name *name, bool *ret_good) {
    bool in_hex = strcmp(key, "name_hex") == 0;
    if (!in_hex && strcmp(key, "name") != 0)
        return false;
    if (!hfi_json_read_text(reader, name->bytes, HFI_ANSWER_NAME_SIZE, &name->len) ||
        (in_hex && !decode_hex(name)))
        *ret_good = false;
    return true;
}

/* False: it is invalid. */
static bool read_entry(struct hfi_json_reader *reader, struct entry *it) {
    char key[16];
    size_t len;
    bool good = true;
    it->name.len = 0;
    it->kind[0] = it->owner[0] = it->thread[0] = '\0';
    it->count = it->renewed = 0;
    it->for_ms = it->left_ms = -1;
    if (!hfi_json_enter(reader, '{')) {
        hfi_json_skip(reader);
        return false;
    }
    while (hfi_json_next_key(reader, key, sizeof key)) {
        if (hfi_answer_read_name(reader, key, &it->name, &good))
            continue;
        if (strcmp(key, "kind") == 0)
            hfi_json_read_text(reader, it->kind, sizeof it->kind, &len);
        else if (strcmp(key, "owner") == 0)
            hfi_json_read_text(reader, it->owner, sizeof it->owner, &len);
        else if (strcmp(key, "thread") == 0)
            hfi_json_read_text(reader, it->thread, sizeof it->thread, &len);
        else if (strcmp(key, "for_ms") == 0)
            hfi_json_read_number(reader, &it->for_ms);
        else if (strcmp(key, "left_ms") == 0)
            hfi_json_read_number(reader, &it->left_ms);
        else if (strcmp(key, "count") == 0)
            hfi_json_read_number(reader, &it->count);
        else if (strcmp(key, "renewed") == 0)
            hfi_json_read_number(reader, &it->renewed);
        else
            hfi_json_skip(reader);
    }
    return good && it->name.len > 0 && it->owner[0] != '\0';
}

static bool is_its_own(const hf_fleet_client *client, const struct entry *it) {
    return strcmp(it->kind, "permits") == 0 ||
           (strncmp(it->owner, client->id, HFI_UUID_LEN) == 0 && it->owner[HFI_UUID_LEN] == ':');
}

static void add_claim(struct hfi_join *join, hf_fleet_client *client, const struct entry *it,
                      bool waits) {
    bool own = is_its_own(client, it);
    if ((waits && !own) || (!waits && it->count <= 0) ||
        !hfi_glob(join->pattern, join->pattern_len, it->name.bytes, it->name.len))
        return;
    struct hfi_claim *claim = hfi_join_claim(join);
    if (claim == NULL)
        return;
    struct hfi_arena *arena = &join->arena;
    claim->name = hfi_arena_text(arena, it->name.bytes, it->name.len);
    claim->name_len = it->name.len;
    claim->waits = waits;
    claim->adopted = !own;
    claim->writes = strcmp(it->kind, "write") == 0;
    claim->party =
        (hf_fleet_party){.owner = hfi_arena_text(arena, it->owner, strlen(it->owner)),
                         .client = client,
                         .seen_by = HF_SEEN_BY_CLIENT,
                         .kind = hfi_arena_text(arena, it->kind, strlen(it->kind)),
                         .count = waits ? 0 : it->count,
                         .for_ms = time_said(it->for_ms),
                         .remaining_ms = time_said(it->left_ms),
                         .renewed = !waits && it->renewed == 1,
                         .thread = hfi_arena_text(arena, it->thread, strlen(it->thread))};
}

static void read_list(struct hfi_join *join, struct hfi_json_reader *reader,
                      hf_fleet_client *client, struct entry *it, bool waits) {
    if (!hfi_json_enter(reader, '[')) {
        hfi_json_skip(reader);
        return;
    }
    while (!join->failed && hfi_json_next(reader))
        if (read_entry(reader, it) && client != NULL)
            add_claim(join, client, it, waits);
}

/* Parses the whole text: what concerns the client into the draft, and the rest for `client` into
 * claims. `client` NULL: only the draft. */
static bool read_answer(struct hfi_join *join, const char *text, size_t len, struct draft *draft,
                        hf_fleet_client *client, struct entry *it) {
    struct hfi_json_reader reader;
    char key[24];
    hfi_json_read(&reader, text, len);
    if (!hfi_json_enter(&reader, '{'))
        return false;
    while (hfi_json_next_key(&reader, key, sizeof key)) {
        bool waits = strcmp(key, "waits") == 0;
        if (waits || strcmp(key, "holds") == 0)
            read_list(join, &reader, client, it, waits);
        else if (strcmp(key, "names") == 0)
            hfi_answer_read_names(join, &reader, client, &it->name);
        else
            read_self(&reader, key, draft);
    }
    return hfi_json_is_over(&reader);
}

static void describe(struct hfi_join *join, hf_fleet_client *client, const struct draft *draft) {
    struct hfi_arena *arena = &join->arena;
    if (strncmp(draft->name, "holdfast:", 9) == 0 &&
        strncmp(draft->name + 9, draft->id, HFI_UUID_LEN) == 0)
        hfi_join_describe(join, client, draft->name);
    client->version = hfi_arena_text(arena, draft->program_version, strlen(draft->program_version));
    client->under = hfi_arena_text(arena, draft->under, strlen(draft->under));
    client->presence = HF_PRESENCE_ALIVE;
    HFI_CONTAINER(client, struct hfi_joined_client, pub)->tells_nothing = draft->tells_nothing == 1;
    client->up_ms = time_said(draft->up_ms);
    client->left_out = left_out_said(draft->left_out);
    client->names_left_out = left_out_said(draft->names_left_out);
    client->acquired = hfi_counted(draft->acquired);
    client->contended = hfi_counted(draft->contended);
    client->timed_out = hfi_counted(draft->timed_out);
    client->losses = hfi_counted(draft->losses);
    client->renew_failures = hfi_counted(draft->renew_failures);
    client->released = hfi_counted(draft->released);
    client->renewals = hfi_counted(draft->renewals);
    client->wait = draft->wait;
    client->hold = draft->hold;
    client->hand_over = draft->hand_over;
}

/* False: it is not a client's report. */
static bool read_draft(struct hfi_join *join, const char *text, size_t len, struct draft *draft,
                       struct entry *it) {
    return read_answer(join, text, len, draft, NULL, it) && draft->version == 1 &&
           strlen(draft->id) == HFI_UUID_LEN && hfi_is_uuid(draft->id);
}

void hfi_join_answer(struct hfi_join *join, const char *text, size_t len) {
    struct draft draft = {.up_ms = -1};
    struct entry it = {.name.bytes = malloc(HFI_ANSWER_NAME_SIZE)};
    if (it.name.bytes == NULL) {
        join->failed = true;
        return;
    }
    if (read_draft(join, text, len, &draft, &it)) {
        hf_fleet_client *client = hfi_join_client(join, draft.id);
        if (client != NULL && client->presence != HF_PRESENCE_ALIVE) {
            describe(join, client, &draft);
            read_answer(join, text, len, &draft, client, &it);
        }
    }
    free(it.name.bytes);
}

/* Several servers may pass it on: the one with the most losses is the last. */
void hfi_join_announcement(struct hfi_join *join, const struct hfi_found_answer *text) {
    struct draft draft = {.up_ms = -1};
    struct entry it = {.name.bytes = malloc(HFI_ANSWER_NAME_SIZE)};
    if (it.name.bytes == NULL) {
        join->failed = true;
        return;
    }
    if (read_draft(join, text->text, text->len, &draft, &it)) {
        hf_fleet_client *client = hfi_join_announced_client(join, draft.id);
        if (client != NULL && hfi_counted(draft.losses) > client->losses) {
            describe(join, client, &draft);
            if (client->up_ms >= 0)
                client->up_ms += hfi_max_ms(0, join->findings->taken_ms - text->at_ms);
        }
    }
    free(it.name.bytes);
}
