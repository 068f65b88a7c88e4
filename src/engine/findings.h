/* What an engine finds in a survey, before it is joined (src/survey): what its servers say of locks and
 * connections, and the answers of clients, each as it came. Made with malloc, since what is made of it
 * outlives the client. */
#ifndef HFI_ENGINE_FINDINGS_H
#define HFI_ENGINE_FINDINGS_H

#include "base/list.h"

#include <holdfast/holdfast.h>

#include <stdint.h>
#include <stdlib.h>

#define HFI_FOUND_OWNER_SIZE 72
#define HFI_FOUND_NAME_SIZE 256
#define HFI_FOUND_SERVERS_MAX 64 /* of a quorum */

enum hfi_found_kind {
    HFI_FOUND_PLAIN,
    HFI_FOUND_FAIR,
    HFI_FOUND_READ,
    HFI_FOUND_WRITE,
    HFI_FOUND_GROUP,
    HFI_FOUND_PERMITS
};

#define HFI_UNREAD_LOCKS 0x1u /* and groups */
#define HFI_UNREAD_PERMITS 0x2u

struct hfi_found_owner {
    char owner[HFI_FOUND_OWNER_SIZE];
    int64_t count; /* 0: it waits */
    bool writes;
    int64_t left_ms;      /* of a hold; -1: it does not end, or that is not told */
    int64_t for_ms;       /* how long it is there; 0: the server does not tell */
    hf_presence presence; /* HF_PRESENCE_UNKNOWN: connections and answers tell */
};

struct hfi_found_lock {
    struct hfi_link link;
    enum hfi_found_kind kind;
    size_t server; /* of several that have the same locks: which */
    int64_t ttl_ms;
    int64_t listeners; /* how many processes listen for its release; -1: not known */
    int64_t left_out;  /* so many owners more; of a group: values */
    int64_t available; /* permits that are free; -1: not told, or these are none */
    size_t owners_len; /* holders, and then who waits in line */
    struct hfi_found_owner *owners;
    size_t name_len;
    char name[];
};

struct hfi_found_answer {
    struct hfi_link link;
    size_t len;
    char text[];
};

struct hfi_found_connection {
    struct hfi_link link;
    bool listens; /* to some channel, or, as far as that is known, for questions */
    char name[HFI_FOUND_NAME_SIZE];
    char under[HFI_FOUND_OWNER_SIZE]; /* for whose hold its process runs, if the server knows */
};

struct hfi_findings {
    struct hfi_link locks, answers, connections;
    int64_t taken_ms, took_ms;
    int64_t hearers;    /* how many clients have heard the question; -1: it was not asked */
    bool hearers_known; /* `listens` says of a connection that its client should have answered */
    bool connections_told;
    bool cut;        /* there was more than could be looked at */
    unsigned unread; /* HFI_UNREAD_...: what a server may have, and nobody has looked at */
    size_t votes; /* so many servers must have a hold, of those that have told; 0: one is enough */
    char words[160]; /* why something is missing; "": nothing is */
};

static inline struct hfi_findings *hfi_findings_new(void) {
    struct hfi_findings *findings = calloc(1, sizeof *findings);
    if (findings == NULL)
        return NULL;
    findings->hearers = -1;
    hfi_list_init(&findings->locks);
    hfi_list_init(&findings->answers);
    hfi_list_init(&findings->connections);
    return findings;
}

static inline void hfi_findings_free(struct hfi_findings *findings) {
    struct hfi_link *link, *next;
    if (findings == NULL)
        return;
    for (link = findings->locks.next; link != &findings->locks; link = next) {
        next = link->next;
        free(HFI_CONTAINER(link, struct hfi_found_lock, link)->owners);
        free(HFI_CONTAINER(link, struct hfi_found_lock, link));
    }
    for (link = findings->answers.next; link != &findings->answers; link = next) {
        next = link->next;
        free(HFI_CONTAINER(link, struct hfi_found_answer, link));
    }
    for (link = findings->connections.next; link != &findings->connections; link = next) {
        next = link->next;
        free(HFI_CONTAINER(link, struct hfi_found_connection, link));
    }
    free(findings);
}

#endif
