/* What an engine finds in a survey, before src/fleet joins it: the servers' reports on locks and
 * connections, and the clients' reports as received. Made with malloc, since the result outlives
 * the client. */
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
    int64_t left_ms;      /* of a hold; -1: it does not end, or that is not reported */
    int64_t for_ms;       /* how long it is there; 0: the server does not know */
    hf_presence presence; /* HF_PRESENCE_UNKNOWN: derived from connections and reports */
};

struct hfi_found_lock {
    struct hfi_link link;
    enum hfi_found_kind kind;
    size_t server; /* if several servers have the same locks: which one */
    int64_t ttl_ms;
    int64_t listeners; /* how many processes have subscribed to its release; -1: unknown */
    int64_t left_out;  /* how many more owners there are; of a group: values */
    int64_t available; /* free permits; -1: unknown, or not permits */
    size_t owners_len; /* holders, then queued waiters */
    struct hfi_found_owner *owners;
    size_t name_len;
    char name[];
};

struct hfi_found_answer {
    struct hfi_link link;
    int64_t at_ms; /* of an announcement: when it came */
    size_t len;
    char text[];
};

struct hfi_found_connection {
    struct hfi_link link;
    bool listens; /* to some channel or, where that is known, for survey requests */
    char name[HFI_FOUND_NAME_SIZE];
    /* the owner for whose hold its process runs, if the server knows */
    char under[HFI_FOUND_OWNER_SIZE];
};

struct hfi_findings {
    struct hfi_link locks, answers, connections;
    struct hfi_link announced; /* struct hfi_found_answer: what clients said at a loss */
    int64_t taken_ms, took_ms;
    int64_t subscribers;    /* how many clients have received the request; -1: none was sent */
    bool answers_cut;       /* some reports may have been sent and not received */
    bool subscribers_known; /* `listens` of a connection means: its client should have answered */
    bool connections_known;
    bool cut;        /* there was more than could be read */
    unsigned unread; /* HFI_UNREAD_...: what a server may have, and the survey has not read */
    size_t votes;    /* how many of the answering servers must have a hold; 0: one is enough */
    char text[160];  /* why something is missing; "": nothing is */
};

static inline struct hfi_findings *hfi_findings_new(void) {
    struct hfi_findings *findings = calloc(1, sizeof *findings);
    if (findings == NULL)
        return NULL;
    findings->subscribers = -1;
    hfi_list_init(&findings->locks);
    hfi_list_init(&findings->answers);
    hfi_list_init(&findings->connections);
    hfi_list_init(&findings->announced);
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
    for (link = findings->announced.next; link != &findings->announced; link = next) {
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
