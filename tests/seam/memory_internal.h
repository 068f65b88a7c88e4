/* What the files of the engine in memory share. */
#ifndef HF_TEST_SEAM_MEMORY_INTERNAL_H
#define HF_TEST_SEAM_MEMORY_INTERNAL_H

#include "seam/memory.h"

#define RECORDS_MAX 32
#define TEXT_MAX 80

struct record {
    char name[TEXT_MAX], owner[TEXT_MAX];
    int64_t count; /* 0: a free place */
};

struct node {
    bool silent;
    unsigned renewals, unanswered;
    unsigned beside; /* renewals answered while another node owed an answer */
};

struct memory {
    struct hfi_engine base;
    struct hfi_exec *keeper;
    int64_t session_ms;
    const struct hfi_engine_events *engine_events;
    atomic_bool unplanned;           /* proofs name no time for the next one */
    struct hfi_link silent_renewals; /* the keeper's */

    pthread_mutex_t mtx; /* guards the rest */
    struct node nodes[MEMORY_NODES];
    struct record records[RECORDS_MAX];
    struct hfi_link waiting; /* calls */
};

struct node *memory_node(struct memory *memory, const char *name, size_t len);
/* With `mtx` locked: NULL, if it is not held. */
struct record *memory_record(struct memory *memory, const char *name, size_t name_len);
/* A waiter tries again. The same. */
void memory_wake(struct memory *memory);
/* What it proves now. */
struct hfi_proof memory_proof(const struct memory *memory, int64_t lease_ms);

#endif
