/* The state of a survey, shared by survey.c and survey_tree.c. */
#ifndef HFI_ZK_FLEET_SURVEY_H
#define HFI_ZK_FLEET_SURVEY_H

#include "engine/findings.h"
#include "zk/ops/queue.h"

/* What to ask about a node. */
enum hfi_zk_request_kind {
    HFI_ZK_REQUEST_CHECK,  /* how many children it has */
    HFI_ZK_REQUEST_LIST,   /* its children: queues of locks, and more names */
    HFI_ZK_REQUEST_LEASES, /* the holders of permits */
    HFI_ZK_REQUEST_QUEUE,  /* the waiters for permits */
    HFI_ZK_REQUEST_DATA,   /* the owner of a queued node, from its data */
    HFI_ZK_REQUEST_SESSION /* or, if the data may not be read, from its session alone */
};

struct hfi_zk_request {
    struct hfi_link link;
    enum hfi_zk_request_kind kind;
    /* whose queue it is in; for leases and queues that of the permits */
    struct hfi_found_lock *lock;
    size_t owner; /* index in the lock's owners */
    size_t len;
    char path[]; /* zero-terminated */
};

struct hfi_zk_survey {
    const struct hfi_mem *mem;
    const struct hfi_zk_names *names;
    const char *pattern;
    size_t pattern_len;
    size_t literal_len; /* the pattern's literal prefix */
    /* Chroot and prefix, prepended to every name; `top_len` of it is the node where the walk
     * begins. */
    char base[HFI_ZK_PATH_MAX];
    size_t base_len, top_len;
    char last_id[HFI_ZK_UUID_TEXT]; /* of the client whose connection was reported last */
    int64_t begun_ms, wall_ms;
    int64_t answered_ms; /* when a reply came last; the begin, before the first */
    struct hfi_findings *findings;
    struct hfi_link requests; /* in execution order, the deepest first */
    size_t nodes, locks;      /* how many were found so far */
    bool failed;              /* out of memory */
    int lost;                 /* replies lost in a row */

    struct hfi_zk_step step;
    size_t batch_len;
    struct hfi_zk_request *batch[HFI_ZK_ASKS_MANY];
    struct hfi_zk_ask asks[HFI_ZK_ASKS_MANY];
    struct hfi_zk_answer answers[HFI_ZK_ASKS_MANY];
};

/* ---- survey.c ---- */

/* Adds a request for the node at `path` + "/" + `child`. */
void hfi_zk_survey_add(struct hfi_zk_survey *survey, enum hfi_zk_request_kind kind,
                       const char *path, struct hfi_zk_text child, struct hfi_found_lock *lock,
                       size_t owner);
/* Marks the result as incomplete; the first reason is kept. */
void hfi_zk_survey_cut(struct hfi_zk_survey *survey, const char *text);

/* ---- survey_tree.c ---- */

/* Evaluates the reply to a request. HF_OK or HF_EPROTO. */
int hfi_zk_survey_found(struct hfi_zk_survey *survey, const struct hfi_zk_request *request,
                        struct hfi_zk_in *body);

#endif
