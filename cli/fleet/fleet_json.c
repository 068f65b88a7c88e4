/* A survey as JSON: locks as `ls --json` prints them, and clients. Stateless. Texts are untrusted
 * and become valid UTF-8 (json_text). */
#include "fleet/fleet.h"

#include <stdlib.h>
#include <string.h>

static void set_time(json_t *object, const char *key, int64_t ms) {
    if (ms >= 0)
        json_object_set_new(object, key, json_integer(ms));
}

json_t *fleet_json_party(const hf_fleet_party *party) {
    const hf_fleet_client *client = fleet_client_of(party);
    json_t *object =
        json_pack("{s:o, s:s, s:o, s:b, s:b}", "owner", json_text(party->owner), "state",
                  presence_text(party->presence), "kind", json_text(party->kind), "seen_by_server",
                  (party->seen_by & HF_SEEN_BY_SERVER) != 0, "seen_by_client",
                  (party->seen_by & HF_SEEN_BY_CLIENT) != 0);
    set_time(object, "for_ms", party->for_ms);
    set_time(object, "remaining_ms", party->remaining_ms);
    if (party->count > 0) {
        json_object_set_new(object, "count", json_integer(party->count));
        json_object_set_new(object, "renewed", json_boolean(party->renewed));
    }
    if (party->place > 0)
        json_object_set_new(object, "place", json_integer(party->place));
    if (party->thread[0] != '\0')
        json_object_set_new(object, "thread", json_text(party->thread));
    if (client != NULL)
        json_object_set_new(object, "client", json_text(client->id));
    if (client != NULL && client->host[0] != '\0') {
        json_object_set_new(object, "host", json_text(client->host));
        json_object_set_new(object, "pid", json_integer(client->pid));
        json_object_set_new(object, "program", json_text(client->program));
    }
    return object;
}

static json_t *json_parties(const hf_fleet_party *const *parties, size_t len) {
    json_t *list = json_array();
    for (size_t i = 0; i < len; i++)
        json_array_append_new(list, fleet_json_party(parties[i]));
    return list;
}

json_t *fleet_json_name(const hf_fleet_lock *lock) {
    return json_bytes(lock->name, lock->name_len);
}

/* A name that is not valid text is also given as hex bytes. */
static void set_name_hex(json_t *object, const hf_fleet_lock *lock) {
    const json_t *name = json_object_get(object, "name");
    size_t len = json_string_length(name);
    if (len == lock->name_len && memcmp(json_string_value(name), lock->name, len) == 0 &&
        memchr(lock->name, '\0', len) == NULL)
        return;
    char *hex = malloc(2 * lock->name_len + 1);
    for (size_t i = 0; hex != NULL && i < lock->name_len; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)lock->name[i]);
    if (hex != NULL)
        json_object_set_new(object, "name_hex", json_stringn(hex, 2 * lock->name_len));
    free(hex);
}

json_t *fleet_json_lock(const hf_fleet_lock *lock) {
    json_t *object = json_pack("{s:o, s:o, s:b, s:I, s:o, s:o}", "name", fleet_json_name(lock),
                               "kind", json_text(lock->kind), "disputed", lock->disputed, "waiting",
                               (json_int_t)fleet_waiters(lock), "holders",
                               json_parties(lock->holders, lock->holders_len), "waiters",
                               json_parties(lock->waiters, lock->waiters_len));
    if (object == NULL)
        return NULL;
    set_name_hex(object, lock);
    set_time(object, "ttl_ms", lock->ttl_ms);
    if (lock->left_out > 0)
        json_object_set_new(object, "left_out", json_integer(lock->left_out));
    if (lock->available >= 0)
        json_object_set_new(object, "available", json_integer(lock->available));
    return object;
}

static void set_text(json_t *object, const char *key, const char *text) {
    if (text[0] != '\0')
        json_object_set_new(object, key, json_text(text));
}

/* Buckets as in hf_histogram: bucket i counts times from 2^(i-1) up to 2^i microseconds. */
static void set_times(json_t *object, const char *key, const hf_histogram *times) {
    size_t len = sizeof times->buckets / sizeof times->buckets[0];
    json_t *buckets = json_array();
    if (times->count == 0) {
        json_decref(buckets);
        return;
    }
    while (len > 0 && times->buckets[len - 1] == 0)
        len--;
    for (size_t i = 0; i < len; i++)
        json_array_append_new(buckets, json_integer((json_int_t)times->buckets[i]));
    json_object_set_new(object, key,
                        json_pack("{s:I, s:I, s:I, s:o}", "count", (json_int_t)times->count,
                                  "sum_us", (json_int_t)times->sum_us, "max_us",
                                  (json_int_t)times->max_us, "buckets", buckets));
}

static void set_numbers(json_t *object, const hf_fleet_client *client) {
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {{"acquired", client->acquired},
                   {"contended", client->contended},
                   {"timed_out", client->timed_out},
                   {"losses", client->losses},
                   {"renew_failures", client->renew_failures},
                   {"released", client->released},
                   {"renewals", client->renewals}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        json_object_set_new(object, numbers[i].key, json_integer((json_int_t)numbers[i].value));
}

json_t *fleet_json_client(const hf_fleet_client *client) {
    json_t *object = json_pack("{s:o, s:s}", "id", json_text(client->id), "state",
                               presence_text(client->presence));
    set_text(object, "host", client->host);
    if (client->pid > 0)
        json_object_set_new(object, "pid", json_integer(client->pid));
    set_text(object, "program", client->program);
    set_text(object, "version", client->version);
    set_text(object, "under", client->under);
    set_time(object, "up_ms", client->up_ms);
    if (client->presence == HF_PRESENCE_ALIVE) {
        set_numbers(object, client);
        set_times(object, "wait", &client->wait);
        set_times(object, "hold", &client->hold);
        set_times(object, "hand_over", &client->hand_over);
    }
    if (client->left_out > 0)
        json_object_set_new(object, "left_out", json_integer(client->left_out));
    return object;
}

json_t *fleet_json_locks(const hf_fleet *fleet) {
    json_t *list = json_array();
    for (size_t i = 0; i < fleet->locks_len; i++)
        json_array_append_new(list, fleet_json_lock(fleet->locks[i]));
    return list;
}

json_t *fleet_json_clients(const hf_fleet *fleet) {
    json_t *list = json_array();
    for (size_t i = 0; i < fleet->clients_len; i++)
        json_array_append_new(list, fleet_json_client(fleet->clients[i]));
    return list;
}
