/*
 * Deadlocks: cycles of waits for each other, in two surveys.
 *
 * A wait has an edge to every wait of the holders of its lock. A wait belongs to its owner, and
 * also to the owner for whom its process was started (`under`). That owner cannot go on either, and
 * so on outwards. One depth-first search finds the cycles. Of the cycles that share a wait one is
 * reported, since after breaking it the user surveys again.
 *
 * What changes between two surveys is no deadlock, nor is what ends by itself. Pure; the caller's
 * thread.
 */
#include "fleet/join.h"

#include <stdlib.h>
#include <string.h>

#define LEVELS_MAX 8      /* of processes inside others */
#define EDGES_MAX 1000000 /* to limit the work: any client may forge more */
#define UNKNOWN_TO_SERVER (-2)

struct wait {
    const hf_fleet_lock *lock;
    const hf_fleet_party *waiter;
    size_t first, end; /* its edges */
    enum { UNSEEN, ON_THE_WAY, SEEN } state;
    bool reported;
    size_t at; /* on the way: the current edge */
};

/* A wait that belongs to this owner, too. */
struct actor {
    const char *owner;
    size_t wait;
};

struct edge {
    size_t to;
    const hf_fleet_party *holder;
};

struct owners {
    const char **all;
    size_t len;
};

struct graph {
    const hf_fleet *earlier, *later;
    int64_t interval_ms;
    struct wait *waits;
    struct actor *actors;
    struct edge *edges;
    size_t *way; /* the waits from where the search began */
    size_t waits_len, waits_cap, actors_len, actors_cap, edges_len, edges_cap, way_len;
    bool failed;
};

/* Room for one more. */
static void *add(void **all, size_t *len, size_t *cap, size_t size, bool *failed) {
    if (*len == *cap) {
        size_t more = *cap == 0 ? 64 : *cap * 2;
        void *grown = realloc(*all, more * size);
        if (grown == NULL) {
            *failed = true;
            return NULL;
        }
        *all = grown;
        *cap = more;
    }
    return (char *)*all + (*len)++ * size;
}

/* ---- What both surveys show ---- */

static int compare_name(const hf_fleet_lock *lock, const hf_fleet_lock *other) {
    size_t len = lock->name_len < other->name_len ? lock->name_len : other->name_len;
    int order = memcmp(lock->name, other->name, len);
    return order != 0 ? order
                      : (lock->name_len > other->name_len) - (lock->name_len < other->name_len);
}

static const hf_fleet_lock *find_lock(const hf_fleet *fleet, const hf_fleet_lock *same) {
    size_t low = 0, high = fleet->locks_len;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = compare_name(fleet->locks[middle], same);
        if (order == 0)
            return fleet->locks[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int compare_owners(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The owners of parties, sorted: they may be many, since any client may claim to wait. */
static struct owners owners_of(struct graph *graph, const hf_fleet_party *const *all, size_t len) {
    struct owners owners = {.all = calloc(len + 1, sizeof(const char *))};
    if (owners.all == NULL) {
        graph->failed = true;
        return owners;
    }
    for (; owners.len < len; owners.len++)
        owners.all[owners.len] = all[owners.len]->owner;
    if (len > 1)
        qsort(owners.all, len, sizeof(const char *), compare_owners);
    return owners;
}

static bool has_owner(const struct owners *owners, const char *owner) {
    return owners->len > 0 &&
           bsearch(&owner, owners->all, owners->len, sizeof(const char *), compare_owners) != NULL;
}

/* It was there before, has lasted, and does not end by itself soon. */
static bool is_stuck(const struct graph *graph, const struct owners *before,
                     const hf_fleet_party *waiter) {
    return has_owner(before, waiter->owner) &&
           (waiter->for_ms < 0 || waiter->for_ms >= 2 * graph->interval_ms) &&
           (waiter->remaining_ms < 0 || waiter->remaining_ms > graph->interval_ms);
}

/* ---- The graph ---- */

static void add_actor(struct graph *graph, const char *owner, size_t wait) {
    void *all = graph->actors;
    struct actor *actor =
        add(&all, &graph->actors_len, &graph->actors_cap, sizeof *actor, &graph->failed);
    graph->actors = all;
    if (actor != NULL)
        *actor = (struct actor){.owner = owner, .wait = wait};
}

static const hf_fleet_client *client_of(const hf_fleet *fleet, const char *owner) {
    size_t low = 0, high = fleet->clients_len;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strncmp(fleet->clients[middle]->id, owner, HFI_UUID_LEN);
        if (order == 0)
            return fleet->clients[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void add_actors(struct graph *graph, size_t wait) {
    const hf_fleet_party *waiter = graph->waits[wait].waiter;
    const hf_fleet_client *client = waiter->client;
    add_actor(graph, waiter->owner, wait);
    for (int level = 0; level < LEVELS_MAX && client != NULL && client->under[0] != '\0'; level++) {
        add_actor(graph, client->under, wait);
        client = client_of(graph->later, client->under);
    }
}

static void add_waits(struct graph *graph, const hf_fleet_lock *lock) {
    const hf_fleet_lock *before = lock->waiters_len > 0 ? find_lock(graph->earlier, lock) : NULL;
    if (before == NULL)
        return;
    struct owners waited = owners_of(graph, before->waiters, before->waiters_len);
    for (size_t i = 0; i < lock->waiters_len && !graph->failed; i++) {
        if (!is_stuck(graph, &waited, lock->waiters[i]))
            continue;
        void *all = graph->waits;
        struct wait *wait =
            add(&all, &graph->waits_len, &graph->waits_cap, sizeof *wait, &graph->failed);
        graph->waits = all;
        if (wait == NULL)
            break;
        *wait = (struct wait){.lock = lock, .waiter = lock->waiters[i]};
        add_actors(graph, graph->waits_len - 1);
    }
    free(waited.all);
}

static int compare_actors(const void *a, const void *b) {
    return strcmp(((const struct actor *)a)->owner, ((const struct actor *)b)->owner);
}

/* The first entry of an owner. */
static size_t first_actor(const struct graph *graph, const char *owner) {
    size_t low = 0, high = graph->actors_len;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(graph->actors[middle].owner, owner) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void add_edges_to(struct graph *graph, const hf_fleet_party *holder) {
    for (size_t i = first_actor(graph, holder->owner);
         i < graph->actors_len && graph->edges_len < EDGES_MAX &&
         strcmp(graph->actors[i].owner, holder->owner) == 0;
         i++) {
        void *all = graph->edges;
        struct edge *edge =
            add(&all, &graph->edges_len, &graph->edges_cap, sizeof *edge, &graph->failed);
        graph->edges = all;
        if (edge != NULL)
            *edge = (struct edge){.to = graph->actors[i].wait, .holder = holder};
    }
}

/* The holder that the server reports; a cohort's lock has one. NULL: none. */
static const hf_fleet_party *holder_at_server(const hf_fleet_lock *lock) {
    for (size_t i = 0; i < lock->holders_len; i++)
        if ((lock->holders[i]->seen_by & HF_SEEN_BY_SERVER) != 0)
            return lock->holders[i];
    return NULL;
}

/* The server knows it, or knows its cohort, which belongs to the same client. */
static bool is_known(const hf_fleet_party *holder, const hf_fleet_party *at_server) {
    return (holder->seen_by & HF_SEEN_BY_SERVER) != 0 ||
           (at_server != NULL && strcmp(holder->kind, "cohort") == 0 &&
            strncmp(holder->owner, at_server->owner, HFI_UUID_LEN) == 0);
}

/* Any permit will do, and it is not reported which values of a group are wanted. So the holder that
 * others wait for is known only if one holder has all of them. */
static bool holders_are_known(const hf_fleet_lock *lock) {
    bool any_will_do = strcmp(lock->kind, "permits") == 0 || strcmp(lock->kind, "group") == 0;
    return !any_will_do || (lock->holders_len == 1 && lock->left_out == 0);
}

/* Holders in both surveys. The server's report is enough, and is required if the server has the
 * lock. */
static size_t keep_holders(struct graph *graph, const hf_fleet_lock *lock,
                           const hf_fleet_party **holders) {
    if (!holders_are_known(lock))
        return 0;
    const hf_fleet_lock *before = find_lock(graph->earlier, lock);
    struct owners held = owners_of(graph, before->holders, before->holders_len);
    const hf_fleet_party *at_server = holder_at_server(lock);
    size_t len = 0;
    for (size_t i = 0; i < lock->holders_len && !graph->failed; i++)
        if ((lock->ttl_ms == UNKNOWN_TO_SERVER || is_known(lock->holders[i], at_server)) &&
            has_owner(&held, lock->holders[i]->owner))
            holders[len++] = lock->holders[i];
    free(held.all);
    return len;
}

/* Adds the edges of all waits of one lock, which are adjacent. An owner does not wait for itself:
 * such an acquire is refused, or queued behind another command of its own. */
static size_t add_edges(struct graph *graph, size_t first) {
    const hf_fleet_lock *lock = graph->waits[first].lock;
    const hf_fleet_party **holders = calloc(lock->holders_len + 1, sizeof *holders);
    size_t wait = first, len = 0;
    if (holders == NULL)
        graph->failed = true;
    else
        len = keep_holders(graph, lock, holders);
    for (; wait < graph->waits_len && graph->waits[wait].lock == lock; wait++) {
        struct wait *one = &graph->waits[wait];
        one->first = one->at = graph->edges_len;
        for (size_t i = 0; i < len && !graph->failed; i++)
            if (strcmp(holders[i]->owner, one->waiter->owner) != 0)
                add_edges_to(graph, holders[i]);
        one->end = graph->edges_len;
    }
    free(holders);
    return wait;
}

static void build(struct graph *graph) {
    for (size_t i = 0; i < graph->later->locks_len && !graph->failed; i++)
        add_waits(graph, graph->later->locks[i]);
    if (graph->actors_len > 1)
        qsort(graph->actors, graph->actors_len, sizeof *graph->actors, compare_actors);
    for (size_t i = 0; i < graph->waits_len && !graph->failed;)
        i = add_edges(graph, i);
    graph->way = calloc(graph->waits_len + 1, sizeof *graph->way);
    graph->failed = graph->failed || graph->way == NULL;
}

/* ---- Cycles ---- */

struct found {
    hf_deadlocks pub;
    hf_deadlock *all;
    size_t cap;
};

/* From `start` on, the way is a cycle. */
static void report_cycle(struct graph *graph, size_t start, struct found *found) {
    size_t len = graph->way_len - start;
    void *all = found->all;
    hf_deadlock *deadlock =
        add(&all, &found->pub.len, &found->cap, sizeof *deadlock, &graph->failed);
    found->all = all;
    hf_deadlock_step *steps = deadlock != NULL ? calloc(len + 1, sizeof *steps) : NULL;
    if (deadlock == NULL)
        return;
    *deadlock = (hf_deadlock){.steps = steps, .steps_len = steps != NULL ? len : 0};
    graph->failed = graph->failed || steps == NULL;
    for (size_t i = 0; steps != NULL && i < len; i++) {
        struct wait *wait = &graph->waits[graph->way[start + i]];
        steps[i] = (hf_deadlock_step){
            .lock = wait->lock, .waiter = wait->waiter, .holder = graph->edges[wait->at].holder};
        wait->reported = true;
    }
}

static bool is_reported(const struct graph *graph, size_t start) {
    for (size_t i = start; i < graph->way_len; i++)
        if (graph->waits[graph->way[i]].reported)
            return true;
    return false;
}

static void close_cycle(struct graph *graph, size_t met, struct found *found) {
    size_t start = 0;
    while (graph->way[start] != met)
        start++;
    if (!is_reported(graph, start))
        report_cycle(graph, start, found);
}

static void set_out(struct graph *graph, size_t wait) {
    graph->waits[wait].state = ON_THE_WAY;
    graph->way[graph->way_len++] = wait;
}

static void walk(struct graph *graph, size_t from, struct found *found) {
    set_out(graph, from);
    while (graph->way_len > 0 && !graph->failed) {
        struct wait *wait = &graph->waits[graph->way[graph->way_len - 1]];
        if (wait->at == wait->end) {
            wait->state = SEEN;
            graph->way_len--;
            if (graph->way_len > 0)
                graph->waits[graph->way[graph->way_len - 1]].at++;
            continue;
        }
        size_t to = graph->edges[wait->at].to;
        if (graph->waits[to].state == UNSEEN) {
            set_out(graph, to);
            continue;
        }
        if (graph->waits[to].state == ON_THE_WAY)
            close_cycle(graph, to, found);
        wait->at++;
    }
}

int hfi_fleet_deadlocks(const hf_fleet *earlier, const hf_fleet *later, hf_deadlocks **ret) {
    struct graph graph = {
        .earlier = earlier, .later = later, .interval_ms = later->taken_ms - earlier->taken_ms};
    struct found *found = calloc(1, sizeof *found);
    if (found == NULL)
        return HF_ENOMEM;
    build(&graph);
    for (size_t i = 0; i < graph.waits_len && !graph.failed; i++)
        if (graph.waits[i].state == UNSEEN)
            walk(&graph, i, found);
    free(graph.waits);
    free(graph.actors);
    free(graph.edges);
    free(graph.way);
    found->pub.all = found->all;
    if (graph.failed) {
        hfi_deadlocks_free(&found->pub);
        return HF_ENOMEM;
    }
    *ret = &found->pub;
    return HF_OK;
}

void hfi_deadlocks_free(hf_deadlocks *deadlocks) {
    if (deadlocks == NULL)
        return;
    struct found *found = HFI_CONTAINER(deadlocks, struct found, pub);
    for (size_t i = 0; i < found->pub.len; i++)
        free((void *)(uintptr_t)found->all[i].steps);
    free(found->all);
    free(found);
}
