/*
 * The door of the fleet view: how the layers above look at locks, servers and clients through an
 * engine, and how this client reports to others. The lock's path does not come here.
 *
 *   struct hfi_observe_ops   the engine's side: three observations as calls, name listeners, and
 *                            whether it listens for what other clients ask and break
 *   struct hfi_reporter      the client's side, for survey requests of other clients
 */
#ifndef HFI_ENGINE_OBSERVE_H
#define HFI_ENGINE_OBSERVE_H

#include "engine/engine.h"

struct hfi_json;

/* ---- Observations: calls that only read ---- */

enum hfi_observation {
    HFI_OBSERVE_LOCK, /* its holders and waiters, into call->info */
    /* What the name's server reports about itself, into call->server_info (server_info.h). To find
     * out what may be written, it writes under the name if that is unused. */
    HFI_OBSERVE_SERVER,
    /* All locks and clients, into call->findings (findings.h); call->name is the pattern. */
    HFI_OBSERVE_FLEET,
    HFI_OBSERVATIONS
};

/* hfi_call_ops.observes: a kind offers those of its engine that it names here. */
#define HFI_OBSERVES_LOCK (1u << HFI_OBSERVE_LOCK)
#define HFI_OBSERVES_SERVER (1u << HFI_OBSERVE_SERVER)
#define HFI_OBSERVES_FLEET (1u << HFI_OBSERVE_FLEET)

/* ---- Name listeners: the server's events of one name ---- */

struct hfi_name_event {
    hf_notification_kind kind;
    int code; /* as in hf_notification, like `number` */
    int64_t number;
    size_t server; /* of a quorum: the server that reports it */
    /* of a listener for all names: the name, valid during the call; else NULL */
    const char *name;
    size_t name_len;
};

/* The receiver of a name's events. It must outlive the subscription. */
struct hfi_name_subscriber {
    /* On any thread, one call at a time per server, with an engine mutex locked: it must be brief,
     * and must not call the engine. */
    void (*on_event)(struct hfi_name_subscriber *subscriber,
                     const struct hfi_name_event *name_event);
};

/* A subscription to a name, embedded in the engine's own struct. */
struct hfi_name_listener {
    size_t servers; /* how many servers report separately */
    /* Ends the subscription and frees it, before the engine stops. Afterwards no event comes. */
    void (*unsubscribe)(struct hfi_name_listener *name_listener);
};

/* ---- The engine's side ---- */

/* Which server process answers, and since when. */
struct hfi_server {
    char run_id[48];  /* new after each start; "": not known */
    int64_t since_ms; /* up since then at the latest, on our clock */
};

/* Every engine has this table. Any member may be NULL: not offered. */
struct hfi_observe_ops {
    /* Runs the observation as a call, like the operations of struct hfi_call_ops. */
    void (*read[HFI_OBSERVATIONS])(struct hfi_call *call);

    /* Passes all server events of a name to the subscriber. The first event is the start of the
     * subscription. The name was checked, and is copied. A length of 0 means breaks of all
     * names. HF_OK, HF_ENOMEM or HF_ENOTSUP. Any thread, but only one at a time per name listener;
     * the same for its `unsubscribe`. */
    int (*subscribe)(struct hfi_engine *engine, const char *name, size_t name_len,
                     struct hfi_name_subscriber *subscriber, struct hfi_name_listener **ret);

    /* Turns listening on or off, for engines where it costs something. It is on while a hold is old
     * enough to listen for its break, or a hold or wait is old enough for surveys. On the keeper's
     * thread. */
    void (*listen)(struct hfi_engine *engine, bool on);

    /* Tells surveyors that want totals that this client has lost a hold; its report has the number.
     * Any thread. NULL: not offered, as no surveyor could subscribe to it. */
    void (*announce)(struct hfi_engine *engine);
    /* An announcement is on its way; when it no longer is, struct hfi_engine_events says so. */
    bool (*is_announcing)(struct hfi_engine *engine);

    /* The server of the newest connection, as far as it reports that. A restarted server has only
     * new connections. False: not known. On the keeper's thread. */
    bool (*identity)(struct hfi_engine *engine, struct hfi_server *ret);
};

/* ---- The client's side ---- */

/* A survey request of some client, as the engine received it. */
struct hfi_report_request {
    unsigned wanted;         /* HF_WANT_... */
    bool only_presence;      /* report no more than that this client is there */
    const char *client_name; /* this client's name towards servers */
    /* What the engine puts in front of this client's names, and what the asker does. The report has
     * the names that begin with the asker's prefix, without it, and match the pattern. */
    const char *prefix, *asker_prefix, *pattern;
    size_t prefix_len, asker_prefix_len, pattern_len;
};

/* The functions are called with the `arg` of struct hfi_engine_events. */
struct hfi_reporter {
    /* Writes this client's report (src/fleet/report.h), cut to the limit of the text. False: there
     * is nothing to send. On the keeper's thread. */
    bool (*report)(void *arg, const struct hfi_report_request *request, struct hfi_json *json);
    /* A call has begun to wait for another owner. Any thread. */
    void (*waits)(void *arg);
};

#endif
