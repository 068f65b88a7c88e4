/* Shared by the files that join a survey's findings. No other file includes this. */
#ifndef HFI_FLEET_JOIN_H
#define HFI_FLEET_JOIN_H

#include "fleet/survey.h"

#include <stddef.h>

#define HFI_UUID_LEN 36

/* Memory that is freed all at once. */
struct hfi_arena {
    struct hfi_block *blocks;
    size_t left;
    bool failed; /* at least once: the result is incomplete */
};

/* Zeroed; NULL: out of memory. */
void *hfi_arena_take(struct hfi_arena *arena, size_t size);
/* A copy with a NUL behind it; "" when out of memory. */
const char *hfi_arena_text(struct hfi_arena *arena, const char *text, size_t len);
void hfi_arena_free(struct hfi_arena *arena);

/* Room for one more in an array that grows. False: out of memory. */
bool hfi_join_grow(void **all, size_t *cap, size_t len, size_t size);

/* One statement, of the server or of a client, that an owner holds a lock or waits for it. */
struct hfi_claim {
    const char *name;
    size_t name_len;
    const struct hfi_found_lock *at_server; /* NULL: a client's statement */
    bool waits, writes;
    bool adopted; /* of another client's owner: counts only together with another statement */
    hf_fleet_party party;
};

/* A growing array. */
struct hfi_claims {
    struct hfi_claim *all;
    size_t len, cap;
};

struct hfi_joined_client {
    hf_fleet_client pub;
    struct hfi_joined_client *next; /* in its bucket */
    bool tells_nothing;             /* it has answered, without a report */
    bool listens; /* one of its connections listens, so it may have received the request */
};

/* Indexed by id as they come: any client may forge a hundred thousand of them. */
struct hfi_clients {
    hf_fleet_client **all; /* each a struct hfi_joined_client; sorted in the end */
    size_t len, cap;
    struct hfi_joined_client **buckets;
    size_t buckets_len; /* a power of two */
    uint64_t seed;      /* random, so that no client can aim at one bucket */
};

struct hfi_join {
    struct hfi_arena arena; /* memory of the fleet that is made */
    const struct hfi_findings *findings;
    const char *pattern;
    size_t pattern_len;
    struct hfi_claims claims;
    struct hfi_clients clients;
    struct hfi_clients announced; /* clients that announced a loss */
    size_t names_len;             /* names with latencies, of all clients */
    bool failed;                  /* out of memory */
};

/* NULL: out of memory, and noted. */
struct hfi_claim *hfi_join_claim(struct hfi_join *join);
hf_fleet_client *hfi_join_client(struct hfi_join *join, const char *id);
hf_fleet_client *hfi_join_announced_client(struct hfi_join *join, const char *id);

/* clients.c */
/* Reads the reports, and the connections. */
void hfi_join_clients(struct hfi_join *join);
/* The client of an id or an owner; NULL: unknown. */
hf_fleet_client *hfi_join_find_client(const struct hfi_clients *clients, const char *id);
/* Sorted by id, into the result. */
void hfi_join_list_clients(struct hfi_join *join, hf_fleet *fleet);
/* Reads the announcements, into the result, after the clients. */
void hfi_join_list_announced(struct hfi_join *join, hf_fleet *fleet);
void hfi_join_forget_clients(struct hfi_clients *clients);
/* Parses "holdfast:uuid:host:pid:program" into a client. */
void hfi_join_describe(struct hfi_join *join, hf_fleet_client *client, const char *name);

/* survey_answers.c: a client's report. An invalid one is ignored as a whole. */
void hfi_join_answer(struct hfi_join *join, const char *text, size_t len);

/* The same for an announced loss: only what it says of the client, into join->announced. */
void hfi_join_announcement(struct hfi_join *join, const struct hfi_found_answer *text);

bool hfi_is_uuid(const char *text);

#endif
