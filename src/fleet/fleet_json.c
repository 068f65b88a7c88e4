/*
 * A survey, and what a server reports about one lock, as JSON: with the keys of `holdfast ls --json`
 * and `holdfast show --json`, whose writers are the tool's own (tests/cli/test_same_json.c compares
 * them).
 *
 * Pure; any thread. Texts come from other clients and from servers: what is not UTF-8 is replaced.
 * A key whose value is unknown is absent.
 */
#include "fleet/fleet_json.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* ---- Elements ---- */

/* Each byte that is not ASCII becomes U+FFFD if the text is not UTF-8 as a whole. */
static void put_text(struct hfi_json *json, const char *text, size_t len) {
    if (hfi_is_utf8(text, len)) {
        hfi_json_text(json, text, len);
        return;
    }
    char *safe = malloc(3 * len + 1);
    size_t safe_len = 0;
    if (safe == NULL) {
        json->full = true;
        return;
    }
    for (size_t i = 0; i < len; i++) {
        bool plain = (unsigned char)text[i] < 0x80;
        memcpy(safe + safe_len, plain ? &text[i] : "\xef\xbf\xbd", plain ? 1 : 3);
        safe_len += plain ? 1 : 3;
    }
    hfi_json_text(json, safe, safe_len);
    free(safe);
}

static void put_pair(struct hfi_json *json, const char *key, const char *text) {
    hfi_json_key(json, key);
    put_text(json, text, strlen(text));
}

static void put_known(struct hfi_json *json, const char *key, const char *text) {
    if (text[0] != '\0')
        put_pair(json, key, text);
}

static void put_flag(struct hfi_json *json, const char *key, bool on) {
    hfi_json_key(json, key);
    hfi_json_flag(json, on);
}

static void put_time(struct hfi_json *json, const char *key, int64_t ms) {
    if (ms >= 0)
        hfi_json_pair(json, key, ms);
}

/* A name that is not valid text is also given as hex bytes. */
static void put_name(struct hfi_json *json, const char *name, size_t len) {
    static const char digits[] = "0123456789abcdef";
    hfi_json_key(json, "name");
    put_text(json, name, len);
    if (hfi_is_utf8(name, len) && memchr(name, '\0', len) == NULL)
        return;
    char *hex = malloc(2 * len + 1);
    if (hex == NULL) {
        json->full = true;
        return;
    }
    for (size_t i = 0; i < len; i++) {
        hex[2 * i] = digits[(unsigned char)name[i] >> 4];
        hex[2 * i + 1] = digits[(unsigned char)name[i] & 15];
    }
    hfi_json_key(json, "name_hex");
    hfi_json_text(json, hex, 2 * len);
    free(hex);
}

/* ---- A survey ---- */

static const char *presence_text(hf_presence presence) {
    static const char *const texts[] = {[HF_PRESENCE_UNKNOWN] = "unknown",
                                        [HF_PRESENCE_ALIVE] = "alive",
                                        [HF_PRESENCE_CONNECTED] = "connected",
                                        [HF_PRESENCE_SILENT] = "silent",
                                        [HF_PRESENCE_GONE] = "gone"};
    return texts[presence];
}

static void put_party(struct hfi_json *json, const hf_fleet_party *party) {
    const hf_fleet_client *client = party->client;
    hfi_json_open(json, '{');
    put_pair(json, "owner", party->owner);
    put_pair(json, "state", presence_text(party->presence));
    put_pair(json, "kind", party->kind);
    put_flag(json, "seen_by_server", (party->seen_by & HF_SEEN_BY_SERVER) != 0);
    put_flag(json, "seen_by_client", (party->seen_by & HF_SEEN_BY_CLIENT) != 0);
    put_time(json, "for_ms", party->for_ms);
    put_time(json, "remaining_ms", party->remaining_ms);
    if (party->count > 0) {
        hfi_json_pair(json, "count", party->count);
        put_flag(json, "renewed", party->renewed);
    }
    if (party->place > 0)
        hfi_json_pair(json, "place", party->place);
    put_known(json, "thread", party->thread);
    if (client != NULL)
        put_pair(json, "client", client->id);
    if (client != NULL && client->host[0] != '\0') {
        put_pair(json, "host", client->host);
        hfi_json_pair(json, "pid", client->pid);
        put_pair(json, "program", client->program);
    }
    hfi_json_close(json, '}');
}

static void put_parties(struct hfi_json *json, const char *key,
                        const hf_fleet_party *const *parties, size_t len) {
    hfi_json_key(json, key);
    hfi_json_open(json, '[');
    for (size_t i = 0; i < len; i++)
        put_party(json, parties[i]);
    hfi_json_close(json, ']');
}

static int64_t seen_by_server(const hf_fleet_party *const *parties, size_t len) {
    int64_t count = 0;
    for (size_t i = 0; i < len; i++)
        count += (parties[i]->seen_by & HF_SEEN_BY_SERVER) != 0;
    return count;
}

/* Those in the survey and in the fair queue, or the number of subscribers if that is larger. The
 * server lists the same number of holders and waiters at most, so the longer list was cut. */
static int64_t waiters_of(const hf_fleet_lock *lock) {
    int64_t queued = seen_by_server(lock->waiters, lock->waiters_len);
    bool queue_was_cut = strcmp(lock->kind, "fair") == 0 ||
                         (queued > 0 && queued >= seen_by_server(lock->holders, lock->holders_len));
    int64_t count = queued + (lock->left_out > 0 && queue_was_cut ? lock->left_out : 0);
    if (count < (int64_t)lock->waiters_len)
        count = (int64_t)lock->waiters_len;
    return count > lock->listeners ? count : lock->listeners;
}

static void put_lock(struct hfi_json *json, const hf_fleet_lock *lock) {
    hfi_json_open(json, '{');
    put_name(json, lock->name, lock->name_len);
    put_pair(json, "kind", lock->kind);
    put_flag(json, "disputed", lock->disputed);
    hfi_json_pair(json, "waiting", waiters_of(lock));
    put_parties(json, "holders", lock->holders, lock->holders_len);
    put_parties(json, "waiters", lock->waiters, lock->waiters_len);
    put_time(json, "ttl_ms", lock->ttl_ms);
    if (lock->left_out > 0)
        hfi_json_pair(json, "left_out", lock->left_out);
    if (lock->available >= 0)
        hfi_json_pair(json, "available", lock->available);
    hfi_json_close(json, '}');
}

/* Buckets as in hf_histogram, without the empty ones at the end. */
static void put_times(struct hfi_json *json, const char *key, const hf_histogram *times) {
    size_t len = sizeof times->buckets / sizeof times->buckets[0];
    if (times->count == 0)
        return;
    while (len > 0 && times->buckets[len - 1] == 0)
        len--;
    hfi_json_key(json, key);
    hfi_json_open(json, '{');
    hfi_json_pair(json, "count", (int64_t)times->count);
    hfi_json_pair(json, "sum_us", (int64_t)times->sum_us);
    hfi_json_pair(json, "max_us", (int64_t)times->max_us);
    hfi_json_key(json, "buckets");
    hfi_json_open(json, '[');
    for (size_t i = 0; i < len; i++)
        hfi_json_number(json, (int64_t)times->buckets[i]);
    hfi_json_close(json, ']');
    hfi_json_close(json, '}');
}

static void put_answer(struct hfi_json *json, const hf_fleet_client *client) {
    hfi_json_pair(json, "acquired", (int64_t)client->acquired);
    hfi_json_pair(json, "contended", (int64_t)client->contended);
    hfi_json_pair(json, "timed_out", (int64_t)client->timed_out);
    hfi_json_pair(json, "losses", (int64_t)client->losses);
    hfi_json_pair(json, "renew_failures", (int64_t)client->renew_failures);
    hfi_json_pair(json, "released", (int64_t)client->released);
    hfi_json_pair(json, "renewals", (int64_t)client->renewals);
    put_times(json, "wait", &client->wait);
    put_times(json, "hold", &client->hold);
    put_times(json, "hand_over", &client->hand_over);
}

static void put_client(struct hfi_json *json, const hf_fleet_client *client) {
    hfi_json_open(json, '{');
    put_pair(json, "id", client->id);
    put_pair(json, "state", presence_text(client->presence));
    put_known(json, "host", client->host);
    if (client->pid > 0)
        hfi_json_pair(json, "pid", client->pid);
    put_known(json, "program", client->program);
    put_known(json, "version", client->version);
    put_known(json, "under", client->under);
    put_time(json, "up_ms", client->up_ms);
    if (client->presence == HF_PRESENCE_ALIVE)
        put_answer(json, client);
    if (client->left_out > 0)
        hfi_json_pair(json, "left_out", client->left_out);
    hfi_json_close(json, '}');
}

/* ---- One lock ---- */

static void put_holders(struct hfi_json *json, const char *key, hf_holder *const *holders,
                        size_t len) {
    hfi_json_key(json, key);
    hfi_json_open(json, '[');
    for (size_t i = 0; i < len; i++) {
        hfi_json_open(json, '{');
        put_pair(json, "owner", holders[i]->owner);
        if (holders[i]->count > 0)
            hfi_json_pair(json, "count", holders[i]->count);
        if (holders[i]->connection != NULL)
            put_pair(json, "connection", holders[i]->connection);
        hfi_json_close(json, '}');
    }
    hfi_json_close(json, ']');
}

static const char *found_text(hf_found kind) {
    static const char *const texts[] = {
        [HF_FOUND_FREE] = "free",       [HF_FOUND_PLAIN] = "plain", [HF_FOUND_FAIR] = "fair",
        [HF_FOUND_READ] = "read",       [HF_FOUND_WRITE] = "write", [HF_FOUND_PERMITS] = "permits",
        [HF_FOUND_COUNTER] = "counter", [HF_FOUND_OTHER] = "other", [HF_FOUND_STRING] = "string"};
    return texts[kind];
}

/* ---- Texts ---- */

static const struct hfi_mem plain_malloc; /* the caller frees it by hf_text_free() */

/* NULL: out of memory. */
static char *finish(struct hfi_json *json) {
    char *text = json->full ? NULL : realloc(json->text, json->len + 1);
    if (text == NULL)
        free(json->text);
    else
        text[json->len] = '\0';
    return text;
}

char *hfi_fleet_json(const hf_fleet *fleet) {
    struct hfi_json json;
    hfi_json_begin(&json, &plain_malloc, SIZE_MAX / 4);
    hfi_json_open(&json, '{');
    hfi_json_pair(&json, "took_ms", fleet->took_ms);
    put_known(&json, "missing", fleet->missing_text);
    hfi_json_key(&json, "locks");
    hfi_json_open(&json, '[');
    for (size_t i = 0; i < fleet->locks_len; i++)
        put_lock(&json, fleet->locks[i]);
    hfi_json_close(&json, ']');
    hfi_json_key(&json, "clients");
    hfi_json_open(&json, '[');
    for (size_t i = 0; i < fleet->clients_len; i++)
        put_client(&json, fleet->clients[i]);
    hfi_json_close(&json, ']');
    hfi_json_close(&json, '}');
    return finish(&json);
}

char *hfi_lock_info_json(const char *name, size_t name_len, const hf_lock_info *info) {
    struct hfi_json json;
    hfi_json_begin(&json, &plain_malloc, SIZE_MAX / 4);
    hfi_json_open(&json, '{');
    put_name(&json, name, name_len);
    put_pair(&json, "kind", found_text(info->kind));
    put_flag(&json, "held", info->holders_len > 0);
    put_holders(&json, "holders", info->holders, info->holders_len);
    if (info->waiters_len > 0)
        put_holders(&json, "waiters", info->waiters, info->waiters_len);
    if (info->kind == HF_FOUND_OTHER && info->type_name != NULL)
        put_pair(&json, "type", info->type_name);
    put_time(&json, "ttl_ms", info->ttl_ms);
    hfi_json_close(&json, '}');
    return finish(&json);
}
