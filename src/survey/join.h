/* What the files of the joining share. Nobody else includes this. */
#ifndef HFI_SURVEY_JOIN_H
#define HFI_SURVEY_JOIN_H

#include "survey/survey.h"

#include <stddef.h>

#define HFI_UUID_LEN 36

/* Memory that is freed all at once. */
struct hfi_arena {
    struct hfi_block *blocks;
    size_t left;
    bool failed; /* at least once: what was made is not whole */
};

/* Zeroed; NULL: out of memory. */
void *hfi_arena_take(struct hfi_arena *arena, size_t size);
/* A copy with a NUL behind it; "" when out of memory. */
const char *hfi_arena_text(struct hfi_arena *arena, const char *text, size_t len);
void hfi_arena_free(struct hfi_arena *arena);

/* Room for one more in an array that grows. False: out of memory. */
bool hfi_join_grow(void **all, size_t *cap, size_t len, size_t size);

/* That somebody holds a lock, or waits for it, as the server or a client says. */
struct hfi_claim {
    const char *name;
    size_t name_len;
    const struct hfi_found_lock *at_server; /* NULL: a client says so */
    bool waits, writes;
    bool adopted; /* of another client's owner: counts only together with somebody else's word */
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
    bool tells_nothing;             /* it has answered, and that is all */
};

/* By their ids, as soon as they come: anybody may make up a hundred thousand of them. */
struct hfi_clients {
    hf_fleet_client **all; /* each a struct hfi_joined_client; sorted in the end */
    size_t len, cap;
    struct hfi_joined_client **buckets;
    size_t buckets_len; /* a power of two */
    uint64_t seed;      /* nobody else can know where one goes */
};

struct hfi_join {
    struct hfi_arena arena; /* of what becomes the fleet */
    const struct hfi_findings *findings;
    const char *pattern;
    size_t pattern_len;
    struct hfi_claims claims;
    struct hfi_clients clients;
    size_t names_len; /* of which clients have told how long things took */
    bool failed;      /* out of memory */
};

/* NULL: out of memory, and noted. */
struct hfi_claim *hfi_join_claim(struct hfi_join *join);
hf_fleet_client *hfi_join_client(struct hfi_join *join, const char *id);

/* clients.c */
/* Reads the answers, and who is connected. */
void hfi_join_clients(struct hfi_join *join);
/* The client of an id or an owner; NULL: not known. */
hf_fleet_client *hfi_join_find_client(const struct hfi_clients *clients, const char *id);
/* By id, for all to see. */
void hfi_join_list_clients(struct hfi_join *join, hf_fleet *fleet);
void hfi_join_forget_clients(struct hfi_clients *clients);
/* Reads "holdfast:uuid:host:pid:program" into a client. */
void hfi_join_describe(struct hfi_join *join, hf_fleet_client *client, const char *name);

/* answers.c: what a client says. One that makes no sense is passed over as a whole. */
void hfi_join_answer(struct hfi_join *join, const char *text, size_t len);

bool hfi_is_uuid(const char *text);

#endif
