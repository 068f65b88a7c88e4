/* The state of a survey under way, shared by its files. */
#ifndef HFI_REDIS_FLEET_SURVEY_H
#define HFI_REDIS_FLEET_SURVEY_H

#include "engine/findings.h"
#include "redis/fleet/survey_responder.h"
#include "redis/ops/call.h"

/* names in one script: some tenths of a millisecond of the server's time */
#define HFI_SURVEY_BATCH_MAX 25
/* holders of one lock, and as many queued waiters: the rest is only counted */
#define HFI_SURVEY_OWNERS_MAX 100

struct hfi_survey_name {
    const char *bytes;
    size_t len;
};

/* A step of a survey: when done, it calls the next, or ends the call. */
typedef void hfi_survey_step(struct hfi_call *call);

/* A client whose answer is awaited. Its id points into the findings. */
struct hfi_survey_subscriber {
    const char *id;
    bool answered;
};

struct hfi_redis_survey {
    struct hfi_findings *findings;
    hfi_survey_step *next;
    int64_t begun_ms;
    bool begun; /* the first server has answered */
    /* all servers have listed their clients, and the question was sent */
    bool asked;

    /* survey.c. In a cluster each node is surveyed by itself. With references; NULL: there is only
     * one, which the route knows. */
    struct hfi_node **nodes;
    size_t nodes_len, nodes_cap, node;
    bool nodes_failed; /* no memory for all */

    /* survey_connections.c */
    int64_t connections; /* how many there are */
    /* how many were listed, with some that may be closed since */
    int64_t connections_known;
    size_t connections_kept; /* connections with names, of all servers so far */
    bool connections_cut;    /* there are more of them than are kept */
    /* of a connection: higher ones were queried already */
    int64_t next_id;
    /* the first connection of which it is not known whether its client gets questions */
    struct hfi_link *uncounted;
    int64_t subscribers;                         /* connections of clients that do */
    bool subscribers_known, subscribers_unknown; /* of some server */

    /* survey_ask.c */
    struct hfi_waiter waiter;
    struct hfi_node *home; /* where it is subscribed, with a reference; NULL: nowhere */
    bool subscribed, refused;
    bool hurried; /* the deadline left less time than answers may take */
    /* Guarded by the registry of channels: */
    bool listened, gap; /* it was subscribed, and later for some time not */
    bool dropped;       /* an answer was dropped for lack of room */
    char number[HFI_ASK_NUMBER_LEN + 1];
    int64_t asked_ms;
    size_t answers_bytes; /* of all answers; guarded by the registry of channels */
    atomic_llong answers; /* how many came, of those awaited */
    /* The awaited clients, sorted by id; `answered` is guarded by the registry, too. NULL: any
     * answer counts. */
    struct hfi_survey_subscriber *awaited;
    size_t awaited_len;

    /* survey_scan.c */
    const struct hfi_survey_pass *pass;
    char cursor[24];
    bool scanned; /* SCAN has reached the end */
    /* names from SCAN that were not read yet, each behind its length */
    char *names;
    size_t names_len, names_at;
    size_t locks_found; /* how many locks were found */
    size_t batch_end;
};

static inline struct hfi_redis_survey *hfi_survey_of(struct hfi_call *call) {
    return hfi_state_of(call)->u.survey;
}

/* Sends a command; in a cluster only to the current node. */
void hfi_survey_send(struct hfi_call *call,
                     void (*write)(struct hfi_exchange *, int64_t, struct hfi_command *),
                     void (*answered)(struct hfi_call *call));
/* The command has failed. If the deadline has passed, the survey returns what it has found. If one
 * of several nodes failed, it is reported as missing, and the survey goes on with the next. Else
 * the call is over. */
void hfi_survey_failed(struct hfi_call *call);

/* Reads the connections of the current server. */
void hfi_survey_list(struct hfi_call *call, hfi_survey_step *next);

/* Sends the question to all clients, at the server that has just answered. In a cluster it tries
 * the nodes from the current one on, until one succeeds. */
void hfi_survey_ask(struct hfi_call *call, hfi_survey_step *next);
/* Waits until all clients that got the question have answered, or had the time to. */
void hfi_survey_await(struct hfi_call *call, hfi_survey_step *next);
/* After hfi_survey_stop_asking(): notes if answers may have been missed. */
void hfi_survey_note_cut(struct hfi_redis_survey *survey);
/* Unsubscribes. No more answers arrive, and the ones that did belong to the call. Idempotent. */
void hfi_survey_stop_asking(struct hfi_call *call);

/* Adds the script's reply for a name to the findings. False: out of memory. */
bool hfi_survey_read_hash(struct hfi_redis_survey *survey, struct hfi_survey_name name,
                          const struct hfi_reply *reply);
bool hfi_survey_read_permits(struct hfi_redis_survey *survey, struct hfi_survey_name name,
                             const struct hfi_reply *reply);

/* Reads all locks, groups and permits. */
void hfi_survey_scan(struct hfi_call *call, hfi_survey_step *next);

#endif
