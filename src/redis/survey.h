/* A survey under way, as its files share it. */
#ifndef HFI_REDIS_SURVEY_H
#define HFI_REDIS_SURVEY_H

#include "engine/findings.h"
#include "redis/internal.h"

#define HFI_LOOK_MAX 25 /* names in one script: some tenths of a millisecond of the server's time */
#define HFI_SURVEY_OWNERS_MAX                                                                      \
    100 /* holders of one lock, and as many in line: the rest is counted */

struct hfi_survey_name {
    const char *bytes;
    size_t len;
};

/* A step of a survey: it goes on with the next when it is done, or ends the call. */
typedef void hfi_survey_step(struct hfi_call *call);

/* A client whose answer is waited for, by its id, which is somewhere in the findings. */
struct hfi_survey_hearer {
    const char *id;
    bool answered;
};

struct hfi_redis_survey {
    struct hfi_findings *findings;
    hfi_survey_step *next;
    int64_t begun_ms;
    bool begun; /* the first server has answered, */
    bool asked; /* and so have all been whether they have clients, and these were asked */

    /* Of a cluster each node is asked, by itself; survey.c. */
    struct hfi_node *
        *nodes; /* with references; NULL: there is only one, and the route knows which */
    size_t nodes_len, nodes_cap, node;
    bool nodes_failed; /* no memory for all */

    /* survey_connections.c */
    int64_t connections;      /* how many there are, */
    int64_t connections_told; /* and were told; more, if some of them are gone since */
    size_t connections_kept;  /* those with names, of all servers so far; */
    bool connections_cut;     /* there are more of them than are kept */
    int64_t next_id;          /* of a connection: those above it were looked for */
    struct hfi_link *unheard; /* the first of whom it is not known if they hear questions */
    int64_t hearers;          /* connections that do, */
    bool hearers_known, hearers_unknown; /* at some server */

    /* survey_ask.c */
    struct hfi_waiter waiter;
    struct hfi_node *home; /* where it listens, with a reference; NULL: nowhere */
    bool heard, deaf;
    char number[HFI_ASK_NUMBER_LEN + 1];
    int64_t asked_ms;
    size_t answers_bytes; /* of them; guarded by the registry of channels */
    atomic_llong answers; /* how many came, of those that are waited for */
    /* Those, in the order of their ids; `answered` is guarded by the registry, too. NULL: whoever answers counts. */
    struct hfi_survey_hearer *awaited;
    size_t awaited_len;

    /* survey_look.c */
    const struct hfi_survey_pass *pass;
    char cursor[24];
    bool scanned; /* to the end */
    char *names;  /* what SCAN has found, and was not looked at: each behind its length */
    size_t names_len, names_at;
    size_t looked; /* how many locks were found */
    size_t batch_end;
};

static inline struct hfi_redis_survey *hfi_survey_of(struct hfi_call *call) {
    return hfi_state_of(call)->u.survey;
}

/* Sends a command, in a cluster to the node whose turn it is, and only there. */
void hfi_survey_send(struct hfi_call *call,
                     void (*write)(struct hfi_exchange *, int64_t, struct hfi_command *),
                     void (*answered)(struct hfi_call *call));
/* It has failed. One of several nodes is told to be missing, and the survey goes on with the next; else
 * the call is over. */
void hfi_survey_failed(struct hfi_call *call);

/* Reads who is connected to the server whose turn it is. */
void hfi_survey_list(struct hfi_call *call, hfi_survey_step *next);

/* Asks all clients, at the server that has just answered; in a cluster from the node whose turn it is on, until one does it. */
void hfi_survey_ask(struct hfi_call *call, hfi_survey_step *next);
/* Waits until all who have heard it have answered, or had the time to. */
void hfi_survey_await(struct hfi_call *call, hfi_survey_step *next);
/* No answer comes any more, and those that came are the call's own. Idempotent. */
void hfi_survey_stop_asking(struct hfi_call *call);

/* Adds what a script has answered of a name to what was found. False: out of memory. */
bool hfi_survey_read_hash(struct hfi_redis_survey *survey, struct hfi_survey_name name,
                          const redisReply *reply);
bool hfi_survey_read_permits(struct hfi_redis_survey *survey, struct hfi_survey_name name,
                             const redisReply *reply);

/* Reads all locks, groups and permits. */
void hfi_survey_look(struct hfi_call *call, hfi_survey_step *next);

#endif
