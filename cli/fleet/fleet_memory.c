/* Remembers host, process and program of owners that described themselves in an earlier survey, for
 * when they are gone. Used by the long-running commands, `serve` and `top`, on their only thread.
 *
 * An owner is remembered while surveys show it, so this is never larger than the fleet. After an
 * incomplete survey no owner is forgotten, up to KEPT_MAX. */
#include "fleet/fleet.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_MAX 100000 /* limit of owners that the survey does not show */

struct known {
    char *owner; /* owned; the client's texts are in the same allocation */
    hf_fleet_client client;
};

static struct {
    struct known *all; /* sorted by owner */
    size_t len;
} memory;

static int by_owner(const void *a, const void *b) {
    return strcmp(((const struct known *)a)->owner, ((const struct known *)b)->owner);
}

static struct known *find(const char *owner) {
    const struct known key = {.owner = (char *)(uintptr_t)owner};
    return memory.len > 0 ? bsearch(&key, memory.all, memory.len, sizeof key, by_owner) : NULL;
}

static bool is_described(const hf_fleet_client *client) {
    return client != NULL && client->host[0] != '\0';
}

const hf_fleet_client *fleet_client_of(const hf_fleet_party *party) {
    const struct known *known = is_described(party->client) ? NULL : find(party->owner);
    return known != NULL ? &known->client : party->client;
}

/* Copies a text and advances behind it. */
static const char *put(char **at, const char *text) {
    char *copy = *at;
    *at = stpcpy(copy, text) + 1;
    return copy;
}

/* False: out of memory. */
static bool learn(struct known *known, const char *owner, const hf_fleet_client *client) {
    char *at = malloc(strlen(owner) + strlen(client->id) + strlen(client->host) +
                      strlen(client->program) + 5);
    if (at == NULL)
        return false;
    known->owner = at;
    put(&at, owner);
    known->client = (hf_fleet_client){.id = put(&at, client->id),
                                      .host = put(&at, client->host),
                                      .pid = client->pid,
                                      .program = put(&at, client->program),
                                      .version = put(&at, ""),
                                      .up_ms = -1};
    known->client.under = known->client.version;
    return true;
}

/* Adds an owner to the new table. One without a description keeps its old entry. */
static void add(struct known *next, size_t *len, const hf_fleet_party *party) {
    struct known *old = find(party->owner);
    if (is_described(party->client)) {
        *len += learn(&next[*len], party->owner, party->client);
    } else if (old != NULL && old->client.id != NULL) {
        next[(*len)++] = *old;
        old->client.id = NULL; /* moved: no longer freed with the old table */
    }
}

static void add_all(struct known *next, size_t *len, const hf_fleet_party *const *parties,
                    size_t parties_len) {
    for (size_t i = 0; i < parties_len; i++)
        add(next, len, parties[i]);
}

/* Keeps the owners that an incomplete survey did not show. */
static void keep(struct known *next, size_t *len) {
    size_t shown = *len;
    for (size_t i = 0; i < memory.len && *len - shown < KEPT_MAX; i++)
        if (memory.all[i].client.id != NULL) {
            next[(*len)++] = memory.all[i];
            memory.all[i].client.id = NULL;
        }
}

void fleet_remember(const hf_fleet *fleet) {
    size_t most = memory.len, len = 0;
    for (size_t i = 0; i < fleet->locks_len; i++)
        most += fleet->locks[i]->holders_len + fleet->locks[i]->waiters_len;
    struct known *next = calloc(most + 1, sizeof *next);
    if (next == NULL)
        return; /* keep the old table */
    for (size_t i = 0; i < fleet->locks_len; i++) {
        const hf_fleet_lock *lock = fleet->locks[i];
        add_all(next, &len, lock->holders, lock->holders_len);
        add_all(next, &len, lock->waiters, lock->waiters_len);
    }
    if ((fleet->missing & HF_MISSING_LOCKS) != 0)
        keep(next, &len);
    fleet_forget();
    if (len > 1)
        qsort(next, len, sizeof *next, by_owner);
    size_t different = 0;
    for (size_t i = 0; i < len; i++)
        if (different == 0 || by_owner(&next[different - 1], &next[i]) != 0)
            next[different++] = next[i];
        else
            free(next[i].owner); /* the owner of several locks */
    memory.all = next;
    memory.len = different;
}

void fleet_forget(void) {
    for (size_t i = 0; i < memory.len; i++)
        if (memory.all[i].client.id != NULL)
            free(memory.all[i].owner);
    free(memory.all);
    memory.all = NULL;
    memory.len = 0;
}
