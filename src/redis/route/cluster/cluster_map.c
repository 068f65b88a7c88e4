/*
 * The slot map: the members of a cluster, and which of them serves which slot.
 *
 * A slot's owner is a member's index, in one array. Slots are independent of each other, so there
 * is nothing to copy and no old map to free. Any thread writes one slot, under `mtx`, when a node
 * replies MOVED. The keeper writes all of them when a member sends the whole map.
 *
 * Only the keeper makes nodes. An unknown address in a redirect is queued as a candidate: the slot
 * has no owner until the keeper has added the member, and its wants wait for that.
 *
 * Moved slots are recorded. The keeper notifies the engine once for each member that got some: the
 * holds in those slots are in doubt.
 */
#include "redis/route/addresses.h"
#include "redis/route/cluster/cluster_impl.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PROPAGATION_MS 1000 /* by then all servers know of a change */

struct candidate {
    struct hfi_link link;
    unsigned slot; /* that it serves; HFI_NO_SLOT: only add it as a member */
    uint16_t port;
    char host[HFI_MEMBER_HOST_MAX];
};

struct address {
    char host[HFI_MEMBER_HOST_MAX];
    uint16_t port;
};

/* ---- Members ---- */

static struct hfi_member *member_at(struct hfi_cluster *route, size_t index) {
    return atomic_load(&route->members[index]);
}

struct hfi_member *hfi_cluster_next(struct hfi_cluster *route, size_t *index) {
    size_t len = atomic_load(&route->members_len);
    while (++*index <= len) {
        struct hfi_member *member = member_at(route, *index);
        if (atomic_load(&member->node) != NULL)
            return member;
    }
    return NULL;
}

static size_t index_of_node(struct hfi_cluster *route, const struct hfi_node *node) {
    size_t i = 0;
    struct hfi_member *member;
    while ((member = hfi_cluster_next(route, &i)) != NULL)
        if (atomic_load(&member->node) == node)
            return i;
    return 0;
}

struct hfi_member *hfi_cluster_member_of(struct hfi_cluster *route, const struct hfi_node *node) {
    size_t i = index_of_node(route, node);
    return i != 0 ? member_at(route, i) : NULL;
}

/* 0: no member is there. On the keeper's thread, or under `mtx`. */
static size_t find(struct hfi_cluster *route, const struct address *at) {
    size_t i = 0;
    const struct hfi_member *member;
    while ((member = hfi_cluster_next(route, &i)) != NULL)
        if (member->port == at->port && strcasecmp(member->host, at->host) == 0)
            return i;
    return 0;
}

/* The index of a free entry; 0: there is none. */
static size_t make_room(struct hfi_cluster *route) {
    size_t len = atomic_load(&route->members_len);
    for (size_t i = 1; i <= len; i++)
        if (atomic_load(&member_at(route, i)->node) == NULL)
            return i;
    struct hfi_member *member =
        len + 1 < HFI_MEMBERS_MAX ? hfi_zalloc(route->mem, sizeof *member) : NULL;
    if (member == NULL)
        return 0;
    atomic_store(&route->members[len + 1], member);
    atomic_store(&route->members_len, len + 1);
    return len + 1;
}

/* The index of the member at this address, added if need be. 0: out of memory, or of entries. On
 * the keeper's thread. */
static size_t get(struct hfi_cluster *route, const struct address *at, hf_error *error) {
    struct hfi_node *node;
    size_t i = find(route, at);
    if (i != 0)
        return i;
    i = make_room(route);
    if (i == 0) {
        hfi_fail(error, HF_ENOMEM, "out of memory for a server of the cluster");
        return 0;
    }
    if (hfi_nodes_reach(&route->nodes, at->host, at->port, &node, error) != HF_OK)
        return 0;
    struct hfi_member *member = member_at(route, i);
    pthread_mutex_lock(&route->mtx);
    memcpy(member->host, at->host, sizeof member->host);
    member->port = at->port;
    member->used_ms = hfi_now_ms();
    member->gave_ms = 0;
    atomic_store(&member->doubted_ms, 0);
    atomic_store(&member->replicas, HFI_REPLICAS_UNKNOWN);
    member->idle = member->named = member->took_over = member->serving = false;
    member->confirms_since_ms = HFI_NEVER;
    member->state = HFI_MEMBER_UNASKED;
    atomic_store(&member->node, node);
    pthread_mutex_unlock(&route->mtx);
    hfi_node_unref(node); /* the registry has one */
    return i;
}

/* The real address of a server that `from` announces. False: it is invalid. */
static bool resolve(const struct hfi_cluster *route, const struct hfi_member *from,
                    const struct hfi_slot_host *announced, struct address *ret) {
    if (announced->host_len >= sizeof ret->host || (announced->host_len == 0 && from == NULL))
        return false;
    memset(ret, 0, sizeof *ret);
    if (announced->host_len == 0)
        memcpy(ret->host, from->host, sizeof ret->host);
    else
        memcpy(ret->host, announced->host, announced->host_len);
    ret->port = announced->port;
    struct hfi_address address = {.host = ret->host, .port = ret->port};
    hfi_address_map(&route->nodes.config, &address);
    ret->port = address.port;
    if (address.host != ret->host)
        snprintf(ret->host, sizeof ret->host, "%s", address.host);
    return ret->port != 0;
}

int hfi_cluster_add_named(struct hfi_cluster *route, const char *host, uint16_t port,
                          hf_error *error) {
    struct address at;
    const struct hfi_slot_host named = {.host = host, .host_len = strlen(host), .port = port};
    if (!resolve(route, NULL, &named, &at))
        return hfi_fail(error, HF_EINVAL, "a host name is too long");
    size_t i = get(route, &at, error);
    if (i == 0)
        return HF_ENOMEM;
    member_at(route, i)->named = true;
    return HF_OK;
}

/* A host of the url becomes a member again at once, with a new node: it may be the last one
 * reachable some day. Without memory for it, the next search tries again. */
void hfi_cluster_drop_member(struct hfi_cluster *route, struct hfi_member *member) {
    struct hfi_node *node = atomic_load(&member->node);
    struct address at = {.port = member->port};
    bool named = member->named;
    memcpy(at.host, member->host, sizeof at.host);
    hfi_cluster_unask(route, member);
    hfi_cluster_unwatch(route, member);
    pthread_mutex_lock(&route->mtx);
    bool serves = atomic_load(&member->slots) > 0; /* it may have got slots a moment ago */
    if (!serves)
        atomic_store(&member->node, NULL);
    pthread_mutex_unlock(&route->mtx);
    if (serves)
        return;
    hfi_nodes_retire(&route->nodes, node);
    hfi_cluster_sweep_soon(route);
    size_t index = named ? get(route, &at, NULL) : 0;
    route->misses_named = route->misses_named || (named && index == 0);
    if (index == 0)
        return;
    member_at(route, index)->named = true;
    member_at(route, index)->idle = true; /* it has not been used yet */
}

/* ---- Slots ---- */

static void set_owner_locked(struct hfi_cluster *route, unsigned slot, size_t index) {
    size_t before = atomic_load(&route->owner[slot]);
    if (before == index)
        return;
    if (before != 0) {
        atomic_fetch_sub(&member_at(route, before)->slots, 1);
        member_at(route, before)->gave_ms = hfi_now_ms();
    }
    atomic_store(&route->owner[slot], (uint16_t)index);
    bool changed = atomic_load(&route->base.found); /* else it is the first map */
    if (changed)
        route->moved.bits[slot / 64] |= (uint64_t)1 << (slot % 64);
    if (index == 0)
        return;
    struct hfi_member *member = member_at(route, index);
    if (atomic_fetch_add(&member->slots, 1) == 0)
        member->took_over = changed;
}

/* False: out of memory. */
static bool note_candidate_locked(struct hfi_cluster *route, const struct address *at,
                                  unsigned slot) {
    struct candidate *candidate = hfi_zalloc(route->mem, sizeof *candidate);
    if (candidate == NULL)
        return false;
    candidate->slot = slot;
    candidate->port = at->port;
    memcpy(candidate->host, at->host, sizeof candidate->host);
    hfi_list_push_back(&route->candidates, &candidate->link);
    return true;
}

static struct hfi_redirects ask_locked(struct hfi_cluster *route, const struct address *at) {
    size_t index = find(route, at);
    if (index == 0) {
        /* without memory for it, the retry gets the same ASK */
        note_candidate_locked(route, at, HFI_NO_SLOT);
        return (struct hfi_redirects){.turn = HFI_TURN_LATER};
    }
    struct hfi_member *member = member_at(route, index);
    atomic_store(&member->used, true);
    return (struct hfi_redirects){.turn = HFI_TURN_ASK,
                                  .node = hfi_node_ref(atomic_load(&member->node))};
}

/* Only the current owner of a slot can redirect it. */
static void move_locked(struct hfi_cluster *route, size_t from, unsigned slot,
                        const struct address *at) {
    if (atomic_load(&route->owner[slot]) != from)
        return;
    size_t index = find(route, at);
    if (index != 0 || note_candidate_locked(route, at, slot))
        set_owner_locked(route, slot, index);
}

struct hfi_redirects hfi_cluster_redirect(struct hfi_cluster *route, const struct hfi_node *node,
                                          const struct hfi_redirect *redirect) {
    struct hfi_redirects redirects = {.turn = HFI_TURN_AGAIN};
    struct address at;
    pthread_mutex_lock(&route->mtx);
    size_t from = index_of_node(route, node);
    bool sensible = from != 0 && resolve(route, member_at(route, from), &redirect->to, &at);
    if (sensible && redirect->ask)
        redirects = ask_locked(route, &at);
    else if (sensible)
        move_locked(route, from, redirect->slot, &at);
    pthread_mutex_unlock(&route->mtx);
    unsigned events = HFI_CLUSTER_MOVED;
    hfi_task_post(&route->task, redirect->ask ? events : events | HFI_CLUSTER_SEARCH);
    return redirects;
}

/* ---- A whole map ---- */

struct reading {
    struct hfi_cluster *route;
    const struct hfi_member *from;
    unsigned slots;
    bool nameless; /* some primary was listed without an address */
};

/* By a member that is not in doubt. */
static bool is_served_by_another(struct hfi_cluster *route, unsigned slot, size_t index) {
    size_t owner = atomic_load(&route->owner[slot]);
    return owner != index && owner != 0 && !hfi_cluster_is_doubted(member_at(route, owner));
}

/* The member that sent the map may not know yet of a change that is known here. So a member that
 * has just lost slots gets none back from a map. If it does serve them, the next search or a
 * redirect corrects it. */
static void read_range(const struct hfi_slot_range *range, void *arg) {
    struct reading *reading = arg;
    struct hfi_cluster *route = reading->route;
    struct address at;
    reading->nameless = reading->nameless || !range->known;
    if (!range->known || !resolve(route, reading->from, &range->primary, &at))
        return;
    size_t index = get(route, &at, NULL);
    if (index == 0)
        return;
    pthread_mutex_lock(&route->mtx);
    int64_t gave_ms = member_at(route, index)->gave_ms;
    bool recently = gave_ms != 0 && hfi_now_ms() - gave_ms < PROPAGATION_MS;
    for (unsigned slot = range->first; slot <= range->last; slot++) {
        if (recently && is_served_by_another(route, slot, index))
            route->search_again = true;
        else
            set_owner_locked(route, slot, index);
    }
    atomic_store(&member_at(route, index)->replicas, range->replicas);
    pthread_mutex_unlock(&route->mtx);
    reading->slots += range->last - range->first + 1;
}

int hfi_cluster_read_map(struct hfi_cluster *route, const struct hfi_member *from,
                         const struct hfi_reply *reply) {
    struct reading reading = {.route = route, .from = from};
    int err = hfi_slots_read(reply, read_range, &reading);
    if (err != HF_OK)
        return err;
    if (reading.slots == 0)
        return reading.nameless ? HF_EUNREACH : HF_EUNAVAILABLE;
    atomic_store(&route->base.found, true);
    return HF_OK;
}

/* ---- Changes ---- */

static bool add_candidates(struct hfi_cluster *route) {
    struct hfi_link candidates, *link;
    hfi_list_init(&candidates);
    pthread_mutex_lock(&route->mtx);
    hfi_list_splice(&candidates, &route->candidates);
    pthread_mutex_unlock(&route->mtx);
    bool any = !hfi_list_empty(&candidates);
    while ((link = hfi_list_pop_front(&candidates)) != NULL) {
        struct candidate *candidate = HFI_CONTAINER(link, struct candidate, link);
        struct address at = {.port = candidate->port};
        memcpy(at.host, candidate->host, sizeof at.host);
        size_t index = get(route, &at, NULL);
        pthread_mutex_lock(&route->mtx);
        if (index != 0 && candidate->slot != HFI_NO_SLOT &&
            atomic_load(&route->owner[candidate->slot]) == 0)
            set_owner_locked(route, candidate->slot, index);
        pthread_mutex_unlock(&route->mtx);
        hfi_free(route->mem, candidate);
    }
    return any;
}

/* The slots of `moved` that the member at this index serves. False: there are none. */
static bool share_of(struct hfi_cluster *route, const struct hfi_slot_set *moved, size_t index,
                     struct hfi_slot_set *ret) {
    bool any = false;
    memset(ret, 0, sizeof *ret);
    for (unsigned slot = 0; slot < HFI_SLOTS; slot++)
        if (hfi_slot_set_has(moved, slot) && atomic_load(&route->owner[slot]) == index) {
            ret->bits[slot / 64] |= (uint64_t)1 << (slot % 64);
            any = true;
        }
    return any;
}

static bool is_empty(const struct hfi_slot_set *set) {
    for (size_t i = 0; i < sizeof set->bits / sizeof set->bits[0]; i++)
        if (set->bits[i] != 0)
            return false;
    return true;
}

static void report_moved(struct hfi_cluster *route, const struct hfi_slot_set *moved) {
    struct hfi_slot_set share;
    struct hfi_member *member;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;) {
        if (!share_of(route, moved, i, &share))
            continue;
        pthread_mutex_lock(&route->mtx);
        bool took_over = member->took_over;
        member->took_over = false;
        pthread_mutex_unlock(&route->mtx);
        route->hooks.moved(route->hooks.arg, atomic_load(&member->node), &share, took_over);
    }
}

/* After the notifications: dropping a member ends requests there, and their callers then go to the
 * new owner. */
static void note_leavers(struct hfi_cluster *route) {
    struct hfi_member *member;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;) {
        bool serves = atomic_load(&member->slots) > 0, left = member->serving && !serves;
        member->serving = serves;
        if (left)
            hfi_cluster_left(route, member);
    }
}

void hfi_cluster_settle_map(struct hfi_cluster *route) {
    struct hfi_slot_set moved;
    bool server_seen = add_candidates(route);
    pthread_mutex_lock(&route->mtx);
    moved = route->moved;
    memset(&route->moved, 0, sizeof route->moved);
    pthread_mutex_unlock(&route->mtx);
    bool any = !is_empty(&moved);
    if (any || server_seen)
        hfi_cluster_notify_wants(route);
    if (any) {
        route->fruitless = 0;
        report_moved(route, &moved);
    }
    note_leavers(route);
}

void hfi_cluster_free_map(struct hfi_cluster *route) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&route->candidates)) != NULL)
        hfi_free(route->mem, HFI_CONTAINER(link, struct candidate, link));
    for (size_t i = 1; i <= atomic_load(&route->members_len); i++)
        hfi_free(route->mem, member_at(route, i));
}
