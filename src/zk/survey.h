/* A survey under way, as its files share it. */
#ifndef HFI_ZK_SURVEY_H
#define HFI_ZK_SURVEY_H

#include "engine/findings.h"
#include "zk/line.h"

/* What is to be asked about a node. */
enum hfi_zk_errand_kind {
    HFI_ZK_ERRAND_LOOK,   /* how much there is beneath it */
    HFI_ZK_ERRAND_LIST,   /* what there is: lines of locks, and more nodes */
    HFI_ZK_ERRAND_LEASES, /* who has permits */
    HFI_ZK_ERRAND_QUEUE,  /* who waits for them */
    HFI_ZK_ERRAND_DATA,   /* who somebody in a line is, by its data, */
    HFI_ZK_ERRAND_SESSION /* or if that may not be read by its session alone */
};

struct hfi_zk_errand {
    struct hfi_link link;
    enum hfi_zk_errand_kind kind;
    struct hfi_found_lock *lock; /* whose line it is in; of leases and queues the permits' */
    size_t owner;                /* which of the lock's */
    size_t len;
    char path[]; /* with a zero byte behind it */
};

struct hfi_zk_survey {
    const struct hfi_mem *mem;
    const struct hfi_zk_names *names;
    const char *pattern;
    size_t pattern_len;
    size_t literal_len; /* of the pattern: names begin with this */
    /* In front of every name: the chroot and the prefix; and how much of it is the node that the walk begins with. */
    char base[HFI_ZK_PATH_MAX];
    size_t base_len, top_len;
    char last_id[HFI_ZK_UUID_TEXT]; /* of whom connections were told last */
    int64_t begun_ms, wall_ms;
    struct hfi_findings *findings;
    struct hfi_link errands; /* in the order in which they are run, the deepest first */
    size_t nodes, locks;     /* how many were heard of */
    bool failed;             /* out of memory */
    int lost;                /* answers, in a row */

    struct hfi_zk_step step;
    size_t batch_len;
    struct hfi_zk_errand *batch[HFI_ZK_ASKS_MANY];
    struct hfi_zk_ask asks[HFI_ZK_ASKS_MANY];
    struct hfi_zk_answer answers[HFI_ZK_ASKS_MANY];
};

/* ---- survey.c ---- */

/* One more to be run, for the node at `path` with "/child" behind it. */
void hfi_zk_survey_add(struct hfi_zk_survey *survey, enum hfi_zk_errand_kind kind, const char *path,
                       struct hfi_zk_text child, struct hfi_found_lock *lock, size_t owner);
/* Something is not told, and why; the first reason is kept. */
void hfi_zk_survey_cut(struct hfi_zk_survey *survey, const char *words);

/* ---- survey_tree.c ---- */

/* What came of an errand, unless the node is gone, or may not be read. HF_OK or HF_EPROTO. */
int hfi_zk_survey_found(struct hfi_zk_survey *survey, const struct hfi_zk_errand *errand,
                        struct hfi_zk_in *body);

#endif
