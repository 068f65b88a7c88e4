/* Sums the clients' losses (losses.h). Used by `serve`, on its one thread.
 *
 * Accounts are sorted by client. One that was not heard of for FORGET_MS is dropped when there is
 * no room: its client's next number would count from nothing, so clients that are there have their
 * accounts renewed by each survey. */
#include "fleet/losses.h"

#include <stdlib.h>
#include <string.h>

#define ACCOUNTS_MAX 65536
#define FORGET_MS (15 * 60 * 1000)
#define ID_LEN 36

struct account {
    char id[ID_LEN + 1];
    uint64_t losses;  /* the client's last number */
    int64_t heard_ms; /* when that came */
};

struct losses {
    struct account *accounts; /* sorted by id */
    size_t len, cap;
    uint64_t total;
    int64_t began_ms; /* when the first survey was taken; 0: there was none */
};

static size_t place_of(const struct losses *losses, const char *id) {
    size_t from = 0, to = losses->len;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (strcmp(losses->accounts[middle].id, id) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static void forget_old(struct losses *losses, int64_t now_ms) {
    size_t kept = 0;
    for (size_t i = 0; i < losses->len; i++)
        if (now_ms - losses->accounts[i].heard_ms < FORGET_MS)
            losses->accounts[kept++] = losses->accounts[i];
    losses->len = kept;
}

static bool has_room(struct losses *losses, int64_t now_ms) {
    if (losses->len == ACCOUNTS_MAX)
        forget_old(losses, now_ms);
    if (losses->len < losses->cap)
        return true;
    if (losses->len == ACCOUNTS_MAX)
        return false;
    size_t cap = losses->cap == 0 ? 64 : losses->cap * 2;
    struct account *accounts = realloc(losses->accounts, cap * sizeof *accounts);
    if (accounts == NULL)
        return false;
    losses->accounts = accounts;
    losses->cap = cap;
    return true;
}

/* Of a client that is new to us: whether it began after we did. */
static bool is_young(const struct losses *losses, const hf_fleet *fleet,
                     const hf_fleet_client *client) {
    return client->up_ms >= 0 && fleet->taken_ms - client->up_ms > losses->began_ms;
}

/* How many of a new client's losses we count. It may have lost some before we began; but what it
 * has just announced has just happened. */
static uint64_t counted_at_first(const struct losses *losses, const hf_fleet *fleet,
                                 const hf_fleet_client *client, bool announced) {
    if (losses->began_ms == fleet->taken_ms)
        return 0;
    if (is_young(losses, fleet, client))
        return client->losses;
    return announced && client->losses > 0 ? 1 : 0;
}

/* Returns how many of its losses are new. */
static uint64_t add_client(struct losses *losses, const hf_fleet *fleet,
                           const hf_fleet_client *client, bool announced) {
    uint64_t more = 0;
    size_t at = place_of(losses, client->id);
    struct account *account = at < losses->len ? &losses->accounts[at] : NULL;
    if (account != NULL && strcmp(account->id, client->id) == 0) {
        if (client->losses > account->losses) {
            more = client->losses - account->losses;
            account->losses = client->losses;
        }
        account->heard_ms = fleet->taken_ms;
        return more;
    }
    if (!has_room(losses, fleet->taken_ms))
        return 0;
    at = place_of(losses, client->id); /* some may have been dropped */
    account = &losses->accounts[at];
    memmove(account + 1, account, (losses->len - at) * sizeof *account);
    losses->len++;
    *account = (struct account){.losses = client->losses, .heard_ms = fleet->taken_ms};
    snprintf(account->id, sizeof account->id, "%s", client->id);
    return counted_at_first(losses, fleet, client, announced);
}

void losses_add(struct losses *losses, const hf_fleet *fleet, losses_fn found, void *user) {
    if (losses->began_ms == 0)
        losses->began_ms = fleet->taken_ms;
    for (size_t i = 0; i < fleet->clients_len + fleet->announced_len; i++) {
        bool announced = i >= fleet->clients_len;
        const hf_fleet_client *client =
            announced ? fleet->announced[i - fleet->clients_len] : fleet->clients[i];
        if (!announced && client->presence != HF_PRESENCE_ALIVE)
            continue;
        uint64_t more = add_client(losses, fleet, client, announced);
        losses->total += more;
        if (more > 0 && found != NULL)
            found(user, client, more);
    }
}

uint64_t losses_total(const struct losses *losses) {
    return losses->total;
}

struct losses *losses_new(void) {
    return calloc(1, sizeof(struct losses));
}

void losses_free(struct losses *losses) {
    if (losses != NULL)
        free(losses->accounts);
    free(losses);
}
