/*
 * The clients of a survey: which have answered, which are connected, and which are gone.
 *
 * Called by join.c, on the operation's thread, before anything else is joined. A hash table finds
 * them, since there may be thousands.
 *
 * Presence: a client that answered is alive, or only connected if it reports nothing. A client that
 * did not answer but has a connection is silent if it is known to have received the request. Where
 * that is unknown, it is silent if at least as many answers are missing as there are listening
 * clients that did not answer. Otherwise it is only connected; also if answers may have been lost.
 * A client without a connection is gone if its owner's number is one that only our library assigns.
 * Otherwise it may be a Java client, whose connections do not carry its id.
 */
#include "fleet/join.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char our_name[] = "holdfast:";

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
        clients->seed = 1; /* no randomness: only an attacker could make it slow */
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

hf_fleet_client *hfi_join_find_client(const struct hfi_clients *clients, const char *id) {
    struct hfi_joined_client *client = clients->len > 0 ? *bucket_of(clients, id) : NULL;
    while (client != NULL && strncmp(client->pub.id, id, HFI_UUID_LEN) != 0)
        client = client->next;
    return client != NULL ? &client->pub : NULL;
}

static bool has_room(struct hfi_clients *clients) {
    void *all = clients->all;
    bool grown = hfi_join_grow(&all, &clients->cap, clients->len, sizeof(hf_fleet_client *));
    clients->all = all;
    return grown && (clients->len < clients->buckets_len || grow_buckets(clients));
}

static hf_fleet_client *client_in(struct hfi_join *join, struct hfi_clients *clients,
                                  const char *id) {
    hf_fleet_client *known = hfi_join_find_client(clients, id);
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

hf_fleet_client *hfi_join_client(struct hfi_join *join, const char *id) {
    return client_in(join, &join->clients, id);
}

hf_fleet_client *hfi_join_announced_client(struct hfi_join *join, const char *id) {
    return client_in(join, &join->announced, id);
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

/* The uuid in the name of a connection, ours or not; NULL: none. */
static const char *uuid_in(const char *name) {
    for (size_t len = strlen(name); len >= HFI_UUID_LEN; len--, name++)
        if (name[8] == '-' && hfi_is_uuid(name))
            return name;
    return NULL;
}

static void add_connection(struct hfi_join *join, const struct hfi_found_connection *connection) {
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
        client->presence = HF_PRESENCE_CONNECTED;
    if (connection->listens)
        joined_of(client)->listens = true;
}

static bool may_be_silent(hf_fleet_client *client) {
    return client->presence == HF_PRESENCE_CONNECTED && joined_of(client)->listens;
}

/* Marks clients that have not answered as silent, if it is known that they should have. A cluster
 * does not say how many clients receive a request. */
static void judge_silence(struct hfi_join *join) {
    const struct hfi_findings *findings = join->findings;
    int64_t answers = 0, suspects = 0;
    for (size_t i = 0; i < join->clients.len; i++) {
        answers += join->clients.all[i]->presence == HF_PRESENCE_ALIVE;
        suspects += may_be_silent(join->clients.all[i]);
    }
    bool all_counted = findings->subscribers_known || (findings->subscribers != INT64_MAX &&
                                                       findings->subscribers - answers >= suspects);
    if (findings->subscribers < 0 || findings->answers_cut || !all_counted)
        return;
    for (size_t i = 0; i < join->clients.len; i++)
        if (may_be_silent(join->clients.all[i]))
            join->clients.all[i]->presence = HF_PRESENCE_SILENT;
}

void hfi_join_clients(struct hfi_join *join) {
    const struct hfi_findings *findings = join->findings;
    struct hfi_link *link;
    for (link = findings->answers.next; link != &findings->answers && !join->failed;
         link = link->next) {
        const struct hfi_found_answer *answer = HFI_CONTAINER(link, struct hfi_found_answer, link);
        hfi_join_answer(join, answer->text, answer->len);
    }
    for (link = findings->connections.next; link != &findings->connections && !join->failed;
         link = link->next)
        add_connection(join, HFI_CONTAINER(link, struct hfi_found_connection, link));
    judge_silence(join);
    for (size_t i = 0; i < join->clients.len; i++)
        if (HFI_CONTAINER(join->clients.all[i], struct hfi_joined_client, pub)->tells_nothing)
            join->clients.all[i]->presence = HF_PRESENCE_CONNECTED;
}

/* ---- In the result ---- */

static int compare_clients(const void *a, const void *b) {
    return strcmp((*(hf_fleet_client *const *)a)->id, (*(hf_fleet_client *const *)b)->id);
}

static const hf_fleet_client *const *sorted(struct hfi_join *join, struct hfi_clients *clients) {
    const hf_fleet_client **all = hfi_arena_take(&join->arena, (clients->len + 1) * sizeof *all);
    if (clients->len > 1)
        qsort(clients->all, clients->len, sizeof *clients->all, compare_clients);
    for (size_t i = 0; all != NULL && i < clients->len; i++)
        all[i] = clients->all[i];
    return all;
}

void hfi_join_list_clients(struct hfi_join *join, hf_fleet *fleet) {
    fleet->clients = sorted(join, &join->clients);
    fleet->clients_len = join->clients.len;
}

void hfi_join_list_announced(struct hfi_join *join, hf_fleet *fleet) {
    const struct hfi_findings *findings = join->findings;
    for (struct hfi_link *link = findings->announced.next;
         link != &findings->announced && !join->failed; link = link->next)
        hfi_join_announcement(join, HFI_CONTAINER(link, struct hfi_found_answer, link));
    for (size_t i = 0; i < join->announced.len; i++) {
        hf_fleet_client *client = join->announced.all[i];
        const hf_fleet_client *present = hfi_join_find_client(&join->clients, client->id);
        client->presence = present != NULL               ? present->presence
                           : findings->connections_known ? HF_PRESENCE_GONE
                                                         : HF_PRESENCE_UNKNOWN;
    }
    fleet->announced = sorted(join, &join->announced);
    fleet->announced_len = join->announced.len;
}

void hfi_join_forget_clients(struct hfi_clients *clients) {
    free(clients->all);
    free(clients->buckets);
}
