/*
 * Joins the halves of a survey: locks by name, each with its holders and waiters.
 *
 * Called when an engine has collected all findings, on the operation's thread. Every statement, of
 * a server or a client, is a claim. Claims are sorted by subject, and the servers' and a client's
 * claims on the same subject become one party. The clients are known before (clients.c).
 */
#include "fleet/join.h"

#include "task/thread_record.h"

#include <stdlib.h>
#include <string.h>

#define UNKNOWN_TO_SERVER (-2)

/* What is freed when the fleet is. */
struct whole {
    hf_fleet fleet;
    struct hfi_arena arena;
};

struct hfi_claim *hfi_join_claim(struct hfi_join *join) {
    struct hfi_claims *claims = &join->claims;
    void *all = claims->all;
    bool grown = hfi_join_grow(&all, &claims->cap, claims->len, sizeof *claims->all);
    claims->all = all;
    if (!grown) {
        join->failed = true;
        return NULL;
    }
    struct hfi_claim *claim = &claims->all[claims->len++];
    memset(claim, 0, sizeof *claim);
    return claim;
}

/* ---- The server's claims ---- */

static const char *kind_name(enum hfi_found_kind kind) {
    static const char *const names[] = {
        [HFI_FOUND_PLAIN] = "plain", [HFI_FOUND_FAIR] = "fair",   [HFI_FOUND_READ] = "read",
        [HFI_FOUND_WRITE] = "write", [HFI_FOUND_GROUP] = "group", [HFI_FOUND_PERMITS] = "permits",
    };
    return names[kind];
}

static void claim_owner(struct hfi_join *join, const struct hfi_found_lock *lock,
                        const struct hfi_found_owner *owner, int64_t place) {
    struct hfi_claim *claim = hfi_join_claim(join);
    if (claim == NULL)
        return;
    bool shared = lock->kind == HFI_FOUND_READ || lock->kind == HFI_FOUND_WRITE;
    claim->name = lock->name;
    claim->name_len = lock->name_len;
    claim->at_server = lock;
    claim->waits = owner->count == 0;
    claim->writes = owner->writes;
    claim->party =
        (hf_fleet_party){.owner = hfi_arena_text(&join->arena, owner->owner, strlen(owner->owner)),
                         .client = hfi_join_find_client(&join->clients, owner->owner),
                         .seen_by = HF_SEEN_BY_SERVER,
                         .kind = !shared         ? kind_name(lock->kind)
                                 : owner->writes ? "write"
                                                 : "read",
                         .presence = owner->presence,
                         .count = owner->count,
                         .for_ms = owner->for_ms > 0 ? owner->for_ms : -1,
                         .remaining_ms = owner->left_ms,
                         .place = place,
                         .thread = ""};
}

static void claim_locks(struct hfi_join *join, const struct hfi_findings *findings) {
    for (struct hfi_link *link = findings->locks.next; link != &findings->locks && !join->failed;
         link = link->next) {
        const struct hfi_found_lock *lock = HFI_CONTAINER(link, struct hfi_found_lock, link);
        int64_t place = 0;
        for (size_t i = 0; i < lock->owners_len; i++)
            claim_owner(join, lock, &lock->owners[i], lock->owners[i].count == 0 ? ++place : 0);
    }
}

/* ---- Into parties ---- */

static int compare_names(const struct hfi_claim *a, const struct hfi_claim *b) {
    size_t len = a->name_len < b->name_len ? a->name_len : b->name_len;
    int order = memcmp(a->name, b->name, len);
    return order != 0 ? order : (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

/* Claims on the same subject differ only in their source. */
static int compare_subjects(const struct hfi_claim *a, const struct hfi_claim *b) {
    int order = compare_names(a, b);
    if (order == 0)
        order = a->waits - b->waits;
    if (order == 0)
        order = strcmp(a->party.owner, b->party.owner);
    return order != 0 ? order : a->writes - b->writes;
}

/* Of claims on the same subject the server's comes first, an adopter's last. */
static int compare_claims(const void *a, const void *b) {
    const struct hfi_claim *first = a, *second = b;
    int order = compare_subjects(first, second);
    if (order == 0)
        order = (first->at_server == NULL) - (second->at_server == NULL);
    return order != 0 ? order : first->adopted - second->adopted;
}

/* Drops claims that only an adopter makes. They are sorted. */
static void drop_lone_adoptions(struct hfi_claims *claims) {
    size_t kept = 0;
    for (size_t i = 0; i < claims->len; i++)
        if (!claims->all[i].adopted ||
            (kept > 0 && compare_subjects(&claims->all[kept - 1], &claims->all[i]) == 0))
            claims->all[kept++] = claims->all[i];
    claims->len = kept;
}

static bool is_automatic(const char *owner) {
    return strlen(owner) > HFI_UUID_LEN &&
           strtoull(owner + HFI_UUID_LEN + 1, NULL, 10) >= HFI_FIRST_AUTOMATIC_OWNER;
}

static hf_presence presence_of(const hf_fleet_party *party, bool connections_known) {
    if (party->client != NULL)
        return party->client->presence;
    if (party->presence != HF_PRESENCE_UNKNOWN)
        return party->presence;
    return connections_known && is_automatic(party->owner) ? HF_PRESENCE_GONE : HF_PRESENCE_UNKNOWN;
}

static bool is_permit(const hf_fleet_party *party) {
    return strcmp(party->kind, "permits") == 0;
}

/* Takes the server's word, and the client's for what only the client knows. Any client may speak
 * for a permit, or claim to have adopted a hold: for these the server's lease counts. */
static void merge_claim(hf_fleet_party *party, const struct hfi_claim *claim) {
    const hf_fleet_party *said = &claim->party;
    bool at_server = (party->seen_by & HF_SEEN_BY_SERVER) != 0;
    if (at_server && is_permit(said) != is_permit(party))
        return; /* whether it is a permit is for the server to say */
    party->seen_by |= said->seen_by;
    if ((said->seen_by & HF_SEEN_BY_CLIENT) == 0)
        return;
    bool anybodys = at_server && (is_permit(said) || claim->adopted);
    party->client = said->client;
    party->kind = said->kind;
    party->renewed = said->renewed;
    party->thread = said->thread;
    if (!anybodys || party->for_ms < 0)
        party->for_ms = said->for_ms;
    if (!anybodys)
        party->remaining_ms = said->remaining_ms;
}

static int compare_owners(const void *a, const void *b) {
    const hf_fleet_party *first = *(hf_fleet_party *const *)a,
                         *second = *(hf_fleet_party *const *)b;
    int order = strcmp(first->owner, second->owner);
    return order != 0 ? order : strcmp(first->kind, second->kind);
}

/* Queued waiters in their order, then parties that the server knows, then the oldest: a claim may
 * state any age. */
static int compare_parties(const void *a, const void *b) {
    const hf_fleet_party *first = *(hf_fleet_party *const *)a,
                         *second = *(hf_fleet_party *const *)b;
    bool queued = first->place > 0 && second->place > 0;
    if (queued)
        return (first->place > second->place) - (first->place < second->place);
    if ((first->place > 0) != (second->place > 0))
        return second->place > 0 ? 1 : -1;
    bool first_known = (first->seen_by & HF_SEEN_BY_SERVER) != 0;
    bool second_known = (second->seen_by & HF_SEEN_BY_SERVER) != 0;
    if (first_known != second_known)
        return second_known - first_known;
    if (first->for_ms != second->for_ms)
        return first->for_ms < second->for_ms ? 1 : -1;
    return compare_owners(a, b);
}

/* Each client measures ages at its own moment, so two parties that began together may change places
 * with every survey. Those whose ages are so close to the oldest of them are put in another order. */
#define TOGETHER_MS 100

static void order_by_owner(hf_fleet_party **all, size_t len) {
    for (size_t i = 0, next; i < len; i = next) {
        for (next = i + 1; next < len; next++)
            if (all[next]->place > 0 || all[i]->place > 0 ||
                ((all[next]->seen_by ^ all[i]->seen_by) & HF_SEEN_BY_SERVER) != 0 ||
                all[i]->for_ms - all[next]->for_ms > TOGETHER_MS)
                break;
        qsort(all + i, next - i, sizeof *all, compare_owners);
    }
}

/* Saturates: a server may send any number. */
static int64_t added(int64_t one, int64_t other) {
    return one > INT64_MAX - other ? INT64_MAX : one + other;
}

/* A party while it is made of claims. */
struct draft {
    hf_fleet_party *party;
    const struct hfi_claim *first; /* the first of its claims */
    uint64_t servers;              /* that report it, as bits */
};

_Static_assert(HFI_FOUND_SERVERS_MAX <= 64, "the servers fit into the bits");

static void add_claim(struct draft *draft, const struct hfi_claim *claim) {
    if (claim->at_server != NULL)
        draft->servers |= UINT64_C(1) << claim->at_server->server;
    if (draft->first == NULL) {
        *draft->party = claim->party;
        draft->first = claim;
        return;
    }
    merge_claim(draft->party, claim);
    if (claim->at_server != NULL && claim->at_server == draft->first->at_server) /* twice */
        draft->party->count = added(draft->party->count, claim->party.count);
}

/* A hold on too few servers is not held there. False: no client reports it either. */
static bool is_party(const struct hfi_join *join, const struct draft *draft) {
    if (!draft->first->waits &&
        (size_t)__builtin_popcountll(draft->servers) < join->findings->votes)
        draft->party->seen_by &= ~HF_SEEN_BY_SERVER;
    return draft->party->seen_by != 0;
}

/* The parties of claims on one lock, holders or waiters. */
static const hf_fleet_party *const *join_parties(struct hfi_join *join,
                                                 const struct hfi_claim *claims, size_t len,
                                                 bool waits, size_t *ret_len) {
    hf_fleet_party **all = hfi_arena_take(&join->arena, (len + 1) * sizeof(hf_fleet_party *));
    *ret_len = 0;
    for (size_t i = 0, next; all != NULL && i < len; i = next) {
        struct draft draft = {.party = NULL};
        if (claims[i].waits == waits)
            draft.party = hfi_arena_take(&join->arena, sizeof *draft.party);
        for (next = i; next < len && compare_subjects(&claims[i], &claims[next]) == 0; next++)
            if (draft.party != NULL)
                add_claim(&draft, &claims[next]);
        if (draft.party != NULL && is_party(join, &draft))
            all[(*ret_len)++] = draft.party;
    }
    for (size_t i = 0; i < *ret_len; i++)
        all[i]->presence = presence_of(all[i], join->findings->connections_known);
    if (*ret_len > 1)
        qsort(all, *ret_len, sizeof(hf_fleet_party *), compare_parties);
    order_by_owner(all, *ret_len);
    return (const hf_fleet_party *const *)all;
}

/* ---- Disputes ---- */

/* Semaphores and latches are numbers, and only its client knows the threads inside a cohort. A
 * string lock looks like any other string. */
static bool is_reported_by_servers(const char *kind) {
    static const char *const others[] = {"semaphore", "latch",       "cohort",
                                         "string",    "spin string", "non-reentrant string"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(kind, others[i]) == 0)
            return false;
    return true;
}

/* Whether the servers would have reported this holder, if they knew it. A fair lock's `left_out`
 * counts only queued waiters, not holders. */
static bool server_knows(const struct hfi_join *join, const hf_fleet_lock *lock,
                         const hf_fleet_party *holder) {
    unsigned unread = is_permit(holder) ? HFI_UNREAD_PERMITS : HFI_UNREAD_LOCKS;
    if (!is_reported_by_servers(holder->kind))
        return false;
    if (lock->ttl_ms == UNKNOWN_TO_SERVER)
        return (join->findings->unread & unread) == 0;
    return lock->left_out == 0 || strcmp(lock->kind, "fair") == 0;
}

static bool is_disputed(const struct hfi_join *join, const hf_fleet_lock *lock) {
    for (size_t i = 0; i < lock->holders_len; i++)
        if ((lock->holders[i]->seen_by & HF_SEEN_BY_SERVER) == 0 &&
            server_knows(join, lock, lock->holders[i]))
            return true;
    return false;
}

/* ---- Locks ---- */

static int64_t larger(int64_t one, int64_t other) {
    return one > other ? one : other;
}

/* Several servers may know it, each with some of its owners. */
static void add_server_claims(hf_fleet_lock *lock, const struct hfi_claim *claims, size_t len) {
    lock->listeners = lock->available = -1;
    lock->ttl_ms = UNKNOWN_TO_SERVER;
    for (size_t i = 0; i < len; i++) {
        const struct hfi_found_lock *at_server = claims[i].at_server;
        if (at_server == NULL)
            continue;
        if (lock->ttl_ms == UNKNOWN_TO_SERVER)
            lock->ttl_ms = at_server->ttl_ms;
        lock->listeners = larger(lock->listeners, at_server->listeners);
        lock->left_out = larger(lock->left_out, at_server->left_out);
        lock->available = larger(lock->available, at_server->available);
    }
}

static bool any_at_server(const hf_fleet_party *const *parties, size_t len) {
    for (size_t i = 0; i < len; i++)
        if ((parties[i]->seen_by & HF_SEEN_BY_SERVER) != 0)
            return true;
    return false;
}

/* NULL: no holder or waiter, or out of memory. */
static const hf_fleet_lock *join_lock(struct hfi_join *join, const struct hfi_claim *claims,
                                      size_t len) {
    hf_fleet_lock *lock = hfi_arena_take(&join->arena, sizeof *lock);
    if (lock == NULL)
        return NULL;
    add_server_claims(lock, claims, len);
    lock->name = hfi_arena_text(&join->arena, claims->name, claims->name_len);
    lock->name_len = claims->name_len;
    lock->holders = join_parties(join, claims, len, false, &lock->holders_len);
    lock->waiters = join_parties(join, claims, len, true, &lock->waiters_len);
    if (join->arena.failed || lock->holders_len + lock->waiters_len == 0)
        return NULL;
    if (!any_at_server(lock->holders, lock->holders_len) &&
        !any_at_server(lock->waiters, lock->waiters_len))
        lock->ttl_ms = UNKNOWN_TO_SERVER;
    /* The first is one that the server knows, if there is any. */
    lock->kind = lock->holders_len > 0 ? lock->holders[0]->kind : lock->waiters[0]->kind;
    lock->disputed = is_disputed(join, lock);
    return lock;
}

static void join_locks(struct hfi_join *join, hf_fleet *fleet) {
    struct hfi_claims *claims = &join->claims;
    const hf_fleet_lock **locks =
        hfi_arena_take(&join->arena, (claims->len + 1) * sizeof(hf_fleet_lock *));
    if (claims->len > 1)
        qsort(claims->all, claims->len, sizeof *claims->all, compare_claims);
    drop_lone_adoptions(claims);
    for (size_t i = 0, next; locks != NULL && i < claims->len; i = next) {
        for (next = i + 1;
             next < claims->len && compare_names(&claims->all[i], &claims->all[next]) == 0;)
            next++;
        const hf_fleet_lock *lock = join_lock(join, claims->all + i, next - i);
        if (lock != NULL)
            locks[fleet->locks_len++] = lock;
    }
    fleet->locks = locks;
}

/* ---- All of it ---- */

static void fill(struct hfi_join *join, hf_fleet *fleet, const struct hfi_findings *findings) {
    fleet->taken_ms = findings->taken_ms;
    fleet->took_ms = findings->took_ms;
    fleet->missing = (findings->subscribers < 0 || findings->answers_cut ? HF_MISSING_ANSWERS : 0) |
                     (!findings->connections_known ? HF_MISSING_CONNECTIONS : 0) |
                     (findings->cut ? HF_MISSING_LOCKS : 0);
    fleet->missing_text = hfi_arena_text(&join->arena, findings->text, strlen(findings->text));
    hfi_join_clients(join);
    claim_locks(join, findings);
    join_locks(join, fleet);
    hfi_join_list_clients(join, fleet);
    hfi_join_list_announced(join, fleet);
}

hf_fleet *hfi_fleet_join(const struct hfi_findings *findings, const char *pattern,
                         size_t pattern_len) {
    struct whole *whole = calloc(1, sizeof *whole);
    struct hfi_join join = {.findings = findings, .pattern = pattern, .pattern_len = pattern_len};
    if (whole == NULL)
        return NULL;
    fill(&join, &whole->fleet, findings);
    free(join.claims.all);
    hfi_join_forget_clients(&join.clients);
    hfi_join_forget_clients(&join.announced);
    whole->arena = join.arena;
    if (!join.failed && !join.arena.failed)
        return &whole->fleet;
    hfi_fleet_free(&whole->fleet);
    return NULL;
}

void hfi_fleet_free(hf_fleet *fleet) {
    if (fleet == NULL)
        return;
    struct whole *whole = HFI_CONTAINER(fleet, struct whole, fleet);
    hfi_arena_free(&whole->arena);
    free(whole);
}
