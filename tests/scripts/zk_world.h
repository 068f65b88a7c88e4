/* The parts of the world of zk_model.h: events, the ensemble (zk_ensemble.c), the clients (zk_client.c). One
 * thread; times are in ms of the model's clock. */
#ifndef HF_TEST_ZK_WORLD_H
#define HF_TEST_ZK_WORLD_H

#include "zk_model.h"

#include "zk/session/session_validity.h"

#define TIMEOUT_MS 2000 /* T */

enum {
    CLIENTS = 3,
    FOLLOWERS = 2,
    NODES_MAX = 600,
    SESSIONS_MAX = 600,
    CONNECTIONS_MAX = 1200,
    EVENTS_MAX = 1000,
    PENDING_MAX = 64,
    PACKETS_MAX = 512,
};

enum request { CONNECT, PING, CREATE, LIST, WATCH, SYNC, CHECK, DELETE };
enum outcome { DONE, NO_NODE, EXPIRED, MOVED };

struct message {
    enum request request;
    int sent_ms;
    int session, uuid, node, seen; /* `seen`: the latest transaction that the client knows of */

    /* the answer */
    enum outcome outcome;
    int zxid;
    bool is_event;    /* of a watch on `node` */
    bool found;       /* list: there is a node of the uuid, which is `node` */
    int before;       /* list: the next lower node; 0: ours is the lowest */
    bool only_before; /* list: and there is no other */
};

enum event_kind {
    AT_FOLLOWER, /* a request of a connection */
    AT_LEADER,   /* the same, forwarded */
    AT_CLIENT,   /* an answer */
    CLOSED,      /* a client's connection, as the client sees it */
    APPLY,       /* a follower has applied transactions up to `number` */
    REPORT,      /* a follower tells the leader whom it has heard: it leaves */
    TOUCH,       /* the same: it arrives, `number` is a session */
    EXPIRY,      /* the leader looks whether a session is over */
    TIMER,       /* a client looks at its clock */
    FAULT
};

struct event {
    int at_ms;
    uint64_t order;
    enum event_kind kind;
    int who; /* client, follower or session */
    int connection, epoch, number;
    struct message message;
};

struct node {
    int uuid, session;
    int created, deleted; /* transactions; 0: not */
};

struct pending {
    struct message message;
    bool decided; /* by the leader, or there is nothing for it to decide */
};

struct connection {
    int client, follower, session;
    bool open;          /* at the follower */
    int to_ms, back_ms; /* arrivals do not overtake each other */
    struct pending pending[PENDING_MAX];
    int pending_len;
    int watched; /* node; 0: none */
};

struct follower {
    int applied, applied_at_ms;
    int to_leader_ms;
    int epoch; /* another after each time that it was away */
    bool cut, dead;
    int away_until_ms;
    bool heard[SESSIONS_MAX];
};

struct session {
    bool alive;
    int expires_ms, connection;
};

enum client_state { IDLE, CREATING, WAITING, PROVING, HOLDING, RELEASING };

struct client {
    enum client_state state;
    int connection; /* 0: none */
    bool connected;
    int session, seen;
    int uuid, node, watched;
    bool only_before, settling;
    int act_ms, paused_until_ms, checking_since_ms;
    int asked_ms[PENDING_MAX], asked_len; /* when what is unanswered was sent */
    struct hfi_zk_validity trust;

    /* For clients that know better. */
    int committed_ms, answered_ms, known_ms;
    int packets_ms[PACKETS_MAX], packets_len;
};

struct zk_model {
    struct play play;
    struct zk_tally tally;
    enum zk_discipline discipline;
    int half_tick_ms;

    struct event events[EVENTS_MAX];
    int events_len;
    uint64_t order;

    int zxid, nodes_len, sessions_len, connections_len, uuids;
    struct node nodes[NODES_MAX];
    struct session sessions[SESSIONS_MAX];
    struct connection connections[CONNECTIONS_MAX];
    struct follower followers[FOLLOWERS];
    struct client clients[CLIENTS];
};

/* ---- zk_model.c ------------------------------------------------------------------------------- */

bool chance(struct zk_model *m, unsigned one_in);
/* How long something takes that mostly takes little. */
int some_delay(struct zk_model *m, unsigned jump_one_in, int jump_ms);
struct event *schedule(struct zk_model *m, int at_ms, enum event_kind kind, int who);

/* ---- zk_ensemble.c ---------------------------------------------------------------------------- */

void ensemble_begin(struct zk_model *m);
int ensemble_connect(struct zk_model *m, int client); /* a connection to one of the followers */
void ensemble_close(struct zk_model *m, int connection, bool notified);
void at_follower(struct zk_model *m, const struct event *event);
void at_leader(struct zk_model *m, const struct event *event);
void follower_applies(struct zk_model *m, const struct event *event);
void follower_reports(struct zk_model *m, const struct event *event);
void leader_touches(struct zk_model *m, const struct event *event);
void leader_expires(struct zk_model *m, const struct event *event);
void inject_fault(struct zk_model *m);

/* ---- zk_client.c ------------------------------------------------------------------------------ */

void at_client(struct zk_model *m, const struct event *event);
void client_closed(struct zk_model *m, const struct event *event);
void client_timer(struct zk_model *m, const struct event *event);
bool believes(struct zk_model *m, int client); /* that it holds the lock */

#endif
