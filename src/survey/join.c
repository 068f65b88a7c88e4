/*
 * Joining the halves of a survey: locks by name, and on each who holds it and who waits.
 *
 * Called when an engine has found all there is, on the thread of the operation. Every statement, whoever
 * made it, is a claim; claims are sorted by what they are about, and those of the server and of a client
 * that are about the same become one party. Clients are found by a table, since there may be thousands.
 *
 * Who is there: a client that answered is alive, or only connected if it tells nothing. One that did not and has a connection is silent if it is
 * known to have heard the question, or, where that is not told, if somebody who heard it is missing and it listens to
 * something; else it is only connected. One without
 * a connection is gone if its owner's number is one that only our library hands out; else it may be a Java
 * client, whose connections do not say whose they are.
 */
#include "survey/join.h"

#include "base/self.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char our_name[] = "holdfast:";

/* What is freed when the fleet is. */
struct whole {
    hf_fleet fleet;
    struct hfi_arena arena;
};

/* ---- Growing ---- */

/* False: out of memory. */
static bool grow(void **all, size_t *cap, size_t len, size_t size) {
    if (len < *cap)
        return true;
    size_t more = *cap == 0 ? 64 : *cap * 2;
    void *grown = realloc(*all, more * size);
    if (grown == NULL)
        return false;
    *all = grown;
    *cap = more;
    return true;
}

struct hfi_claim *hfi_join_claim(struct hfi_join *join) {
    struct hfi_claims *claims = &join->claims;
    void *all = claims->all;
    bool grown = grow(&all, &claims->cap, claims->len, sizeof *claims->all);
    claims->all = all;
    if (!grown) {
        join->failed = true;
        return NULL;
    }
    struct hfi_claim *claim = &claims->all[claims->len++];
    memset(claim, 0, sizeof *claim);
    return claim;
}

/* ---- Clients ---- */

static struct hfi_joined_client *joined_of(hf_fleet_client *client) {
    return HFI_CONTAINER(client, struct hfi_joined_client, pub);
}

static struct hfi_joined_client **bucket_of(const struct hfi_clients *clients, const char *id) {
    uint64_t hash = clients->seed;
    for (int i = 0; i < HFI_UUID_LEN && id[i] != '\0'; i++)
        hash = (hash ^ (unsigned char)id[i]) * 0x9e3779b97f4a7c15u;
    return &clients->buckets[(hash ^ hash >> 32) & (clients->buckets_len - 1)];
}

/* False: out of memory. */
static bool grow_buckets(struct hfi_clients *clients) {
    size_t len = clients->buckets_len == 0 ? 64 : clients->buckets_len * 2;
    struct hfi_joined_client **buckets = calloc(len, sizeof(struct hfi_joined_client *));
    if (buckets == NULL)
        return false;
    if (clients->seed == 0 &&
        getrandom(&clients->seed, sizeof clients->seed, GRND_NONBLOCK) != sizeof clients->seed)
        clients->seed = 1; /* as good as any, to whoever does not want it to be slow */
    free(clients->buckets);
    clients->buckets = buckets;
    clients->buckets_len = len;
    for (size_t i = 0; i < clients->len; i++) {
        struct hfi_joined_client *client = joined_of(clients->all[i]);
        struct hfi_joined_client **bucket = bucket_of(clients, client->pub.id);
        client->next = *bucket;
        *bucket = client;
    }
    return true;
}

static hf_fleet_client *find_client(const struct hfi_clients *clients, const char *id) {
    struct hfi_joined_client *client = clients->len > 0 ? *bucket_of(clients, id) : NULL;
    while (client != NULL && strncmp(client->pub.id, id, HFI_UUID_LEN) != 0)
        client = client->next;
    return client != NULL ? &client->pub : NULL;
}

static bool has_room(struct hfi_clients *clients) {
    void *all = clients->all;
    bool grown = grow(&all, &clients->cap, clients->len, sizeof(hf_fleet_client *));
    clients->all = all;
    return grown && (clients->len < clients->buckets_len || grow_buckets(clients));
}

hf_fleet_client *hfi_join_client(struct hfi_join *join, const char *id) {
    struct hfi_clients *clients = &join->clients;
    hf_fleet_client *known = find_client(clients, id);
    if (known != NULL)
        return known;
    struct hfi_joined_client *joined =
        has_room(clients) ? hfi_arena_take(&join->arena, sizeof *joined) : NULL;
    if (joined == NULL) {
        join->failed = true;
        return NULL;
    }
    joined->pub = (hf_fleet_client){.id = hfi_arena_text(&join->arena, id, HFI_UUID_LEN),
                                    .host = "",
                                    .program = "",
                                    .version = "",
                                    .under = "",
                                    .up_ms = -1};
    struct hfi_joined_client **bucket = bucket_of(clients, id);
    joined->next = *bucket;
    *bucket = joined;
    clients->all[clients->len++] = &joined->pub;
    return &joined->pub;
}

static int compare_clients(const void *a, const void *b) {
    return strcmp((*(hf_fleet_client *const *)a)->id, (*(hf_fleet_client *const *)b)->id);
}

void hfi_join_describe(struct hfi_join *join, hf_fleet_client *client, const char *name) {
    const char *host = name + strlen(our_name) + HFI_UUID_LEN;
    if (*host++ != ':' || client->host[0] != '\0')
        return;
    const char *pid = strchr(host, ':');
    const char *program = pid != NULL ? strchr(pid + 1, ':') : NULL;
    client->host =
        hfi_arena_text(&join->arena, host, pid != NULL ? (size_t)(pid - host) : strlen(host));
    if (pid != NULL)
        client->pid = strtol(pid + 1, NULL, 10);
    if (program != NULL)
        client->program = hfi_arena_text(&join->arena, program + 1, strlen(program + 1));
}

/* A uuid in the name of a connection that is not ours: NULL, there is none. */
static const char *uuid_in(const char *name) {
    for (size_t len = strlen(name); len >= HFI_UUID_LEN; len--, name++)
        if (name[8] == '-' && hfi_is_uuid(name))
            return name;
    return NULL;
}

static void add_connection(struct hfi_join *join, const struct hfi_found_connection *connection,
                           bool somebody_is_missing) {
    bool ours = strncmp(connection->name, our_name, strlen(our_name)) == 0;
    const char *id = uuid_in(connection->name);
    hf_fleet_client *client = id != NULL ? hfi_join_client(join, id) : NULL;
    if (client == NULL)
        return;
    if (ours)
        hfi_join_describe(join, client, connection->name);
    else if (client->program[0] == '\0')
        client->program = hfi_arena_text(&join->arena, connection->name, strlen(connection->name));
    if (client->under[0] == '\0')
        client->under = hfi_arena_text(&join->arena, connection->under, strlen(connection->under));
    if (client->presence == HF_PRESENCE_UNKNOWN)
        client->presence = HF_CONNECTED;
    if (client->presence == HF_CONNECTED && somebody_is_missing && connection->listens)
        client->presence = HF_SILENT;
}

static void find_clients(struct hfi_join *join, const struct hfi_findings *findings) {
    struct hfi_link *link;
    int64_t answers = 0;
    for (link = findings->answers.next; link != &findings->answers && !join->failed;
         link = link->next) {
        const struct hfi_found_answer *answer = HFI_CONTAINER(link, struct hfi_found_answer, link);
        hfi_join_answer(join, answer->text, answer->len);
    }
    for (size_t i = 0; i < join->clients.len; i++)
        answers += join->clients.all[i]->presence == HF_ALIVE;
    bool missing =
        findings->hearers >= 0 && (findings->hearers_known || answers < findings->hearers);
    for (link = findings->connections.next; link != &findings->connections && !join->failed;
         link = link->next)
        add_connection(join, HFI_CONTAINER(link, struct hfi_found_connection, link), missing);
    for (size_t i = 0; i < join->clients.len; i++)
        if (HFI_CONTAINER(join->clients.all[i], struct hfi_joined_client, pub)->tells_nothing)
            join->clients.all[i]->presence = HF_CONNECTED;
}

/* ---- The server's claims ---- */

static const char *kind_word(enum hfi_found_kind kind) {
    static const char *const words[] = {
        [HFI_FOUND_PLAIN] = "plain", [HFI_FOUND_FAIR] = "fair",       [HFI_FOUND_READ] = "read",
        [HFI_FOUND_WRITE] = "write", [HFI_FOUND_PERMITS] = "permits",
    };
    return words[kind];
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
                         .client = find_client(&join->clients, owner->owner),
                         .seen_by = HF_SEEN_BY_SERVER,
                         .kind = !shared         ? kind_word(lock->kind)
                                 : owner->writes ? "write"
                                                 : "read",
                         .presence = owner->presence,
                         .count = owner->count,
                         .for_ms = owner->for_ms > 0 ? owner->for_ms : -1,
                         .left_ms = owner->count > 0 ? lock->ttl_ms : -1,
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

/* Claims about the same are equal in all but who says so. */
static int compare_subjects(const struct hfi_claim *a, const struct hfi_claim *b) {
    int order = compare_names(a, b);
    if (order == 0)
        order = a->waits - b->waits;
    if (order == 0)
        order = strcmp(a->party.owner, b->party.owner);
    return order != 0 ? order : a->writes - b->writes;
}

/* Of those about the same the server's is the first, and of who has adopted it the last. */
static int compare_claims(const void *a, const void *b) {
    const struct hfi_claim *first = a, *second = b;
    int order = compare_subjects(first, second);
    if (order == 0)
        order = (first->at_server == NULL) - (second->at_server == NULL);
    return order != 0 ? order : first->adopted - second->adopted;
}

/* What nobody but an adopter says is not told. They are in order. */
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

static hf_presence presence_of(const hf_fleet_party *party, bool connections_told) {
    if (party->client != NULL)
        return party->client->presence;
    if (party->presence != HF_PRESENCE_UNKNOWN)
        return party->presence;
    return connections_told && is_automatic(party->owner) ? HF_GONE : HF_PRESENCE_UNKNOWN;
}

/* What the server says, and of what only the client knows, its word. */
static void add_word(hf_fleet_party *party, const hf_fleet_party *said) {
    bool at_server = (party->seen_by & HF_SEEN_BY_SERVER) != 0;
    if (at_server && strcmp(said->kind, "permits") == 0 && strcmp(party->kind, "permits") != 0)
        return; /* anybody may speak for a permit: this is none */
    party->seen_by |= said->seen_by;
    if ((said->seen_by & HF_SEEN_BY_CLIENT) == 0)
        return;
    party->client = said->client;
    party->kind = said->kind;
    party->for_ms = said->for_ms;
    party->left_ms = said->left_ms;
    party->renewed = said->renewed;
    party->thread = said->thread;
}

/* Those in line in their order, then whom the server knows, and then who has been there the longest: a claim may say any time. */
static int compare_parties(const void *a, const void *b) {
    const hf_fleet_party *first = *(hf_fleet_party *const *)a,
                         *second = *(hf_fleet_party *const *)b;
    bool in_line = first->place > 0 && second->place > 0;
    if (in_line)
        return (first->place > second->place) - (first->place < second->place);
    if ((first->place > 0) != (second->place > 0))
        return second->place > 0 ? 1 : -1;
    bool first_known = (first->seen_by & HF_SEEN_BY_SERVER) != 0;
    bool second_known = (second->seen_by & HF_SEEN_BY_SERVER) != 0;
    if (first_known != second_known)
        return second_known - first_known;
    return (first->for_ms < second->for_ms) - (first->for_ms > second->for_ms);
}

/* The parties of claims that are about one lock, holders or waiters. */
static const hf_fleet_party *const *join_parties(struct hfi_join *join,
                                                 const struct hfi_claim *claims, size_t len,
                                                 bool waits, bool connections_told,
                                                 size_t *ret_len) {
    hf_fleet_party **all = hfi_arena_take(&join->arena, (len + 1) * sizeof(hf_fleet_party *));
    const struct hfi_claim *last = NULL;
    *ret_len = 0;
    for (size_t i = 0; all != NULL && i < len; i++) {
        if (claims[i].waits != waits)
            continue;
        if (last != NULL && compare_subjects(last, &claims[i]) == 0) {
            add_word(all[*ret_len - 1], &claims[i].party);
            if (claims[i].at_server != NULL && claims[i].at_server == last->at_server)
                all[*ret_len - 1]->count += claims[i].party.count; /* it is there twice */
            continue;
        }
        hf_fleet_party *party = hfi_arena_take(&join->arena, sizeof *party);
        if (party == NULL)
            break;
        *party = claims[i].party;
        all[(*ret_len)++] = party;
        last = &claims[i];
    }
    for (size_t i = 0; i < *ret_len; i++)
        all[i]->presence = presence_of(all[i], connections_told);
    if (*ret_len > 1)
        qsort(all, *ret_len, sizeof(hf_fleet_party *), compare_parties);
    return (const hf_fleet_party *const *)all;
}

/* Of what the server cannot tell there is no dispute. */
static bool server_knows(const char *kind) {
    static const char *const others[] = {"permits", "semaphore", "latch", "group", "cohort"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(kind, others[i]) == 0)
            return false;
    return true;
}

static bool is_disputed(const hf_fleet_lock *lock) {
    for (size_t i = 0; i < lock->holders_len; i++)
        if ((lock->holders[i]->seen_by & HF_SEEN_BY_SERVER) == 0 &&
            server_knows(lock->holders[i]->kind))
            return true;
    return false;
}

static int64_t larger(int64_t one, int64_t other) {
    return one > other ? one : other;
}

/* Several servers may know it, and each some of its owners. */
static const hf_fleet_lock *join_lock(struct hfi_join *join, const struct hfi_claim *claims,
                                      size_t len, bool connections_told) {
    hf_fleet_lock *lock = hfi_arena_take(&join->arena, sizeof *lock);
    const struct hfi_found_lock *at_server = NULL;
    if (lock == NULL)
        return NULL;
    lock->listeners = -1;
    for (size_t i = 0; i < len; i++)
        if (claims[i].at_server != NULL) {
            at_server = at_server != NULL ? at_server : claims[i].at_server;
            lock->listeners = larger(lock->listeners, claims[i].at_server->listeners);
            lock->left_out = larger(lock->left_out, claims[i].at_server->left_out);
        }
    lock->name = hfi_arena_text(&join->arena, claims->name, claims->name_len);
    lock->name_len = claims->name_len;
    lock->ttl_ms = at_server != NULL ? at_server->ttl_ms : -2;
    lock->holders = join_parties(join, claims, len, false, connections_told, &lock->holders_len);
    lock->waiters = join_parties(join, claims, len, true, connections_told, &lock->waiters_len);
    if (join->arena.failed)
        return lock;
    /* The first is one whom the server knows, if there is any. */
    lock->kind = lock->holders_len > 0 ? lock->holders[0]->kind : lock->waiters[0]->kind;
    lock->disputed = is_disputed(lock);
    return lock;
}

static void join_locks(struct hfi_join *join, hf_fleet *fleet, bool connections_told) {
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
        locks[fleet->locks_len++] = join_lock(join, claims->all + i, next - i, connections_told);
    }
    fleet->locks = locks;
}

/* ---- The whole ---- */

static void fill(struct hfi_join *join, hf_fleet *fleet, const struct hfi_findings *findings) {
    fleet->taken_ms = findings->taken_ms;
    fleet->took_ms = findings->took_ms;
    fleet->missing = (findings->hearers < 0 ? HF_MISSING_ANSWERS : 0) |
                     (!findings->connections_told ? HF_MISSING_CONNECTIONS : 0) |
                     (findings->cut ? HF_MISSING_LOCKS : 0);
    fleet->words = hfi_arena_text(&join->arena, findings->words, strlen(findings->words));
    find_clients(join, findings);
    claim_locks(join, findings);
    join_locks(join, fleet, findings->connections_told);
    const hf_fleet_client **clients =
        hfi_arena_take(&join->arena, (join->clients.len + 1) * sizeof *clients);
    if (join->clients.len > 1)
        qsort(join->clients.all, join->clients.len, sizeof *join->clients.all, compare_clients);
    for (size_t i = 0; clients != NULL && i < join->clients.len; i++)
        clients[i] = join->clients.all[i];
    fleet->clients = clients;
    fleet->clients_len = join->clients.len;
}

hf_fleet *hfi_fleet_join(const struct hfi_findings *findings, const char *pattern,
                         size_t pattern_len) {
    struct whole *whole = calloc(1, sizeof *whole);
    struct hfi_join join = {.pattern = pattern, .pattern_len = pattern_len};
    if (whole == NULL)
        return NULL;
    fill(&join, &whole->fleet, findings);
    free(join.claims.all);
    free(join.clients.all);
    free(join.clients.buckets);
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
