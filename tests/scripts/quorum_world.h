/* The inside of the quorum's model; quorum_model.h is its face.
 *
 * `at` and `_us` are the world's time, which nobody in it can read; `_ms` is a time by somebody's clock.
 * At the servers a millisecond is UNIT real ones, so that leases last for days and nothing ends but by
 * the clocks of the model. */
#ifndef HF_TEST_QUORUM_WORLD_H
#define HF_TEST_QUORUM_WORLD_H

#include "joint/quorum/quorum_validity.h"
#include "quorum_model.h"

#define NEVER INT64_MAX
#define MS INT64_C(1000) /* microseconds */

enum { SERVERS = QUORUM_SERVERS, CLIENTS = 3, COPIES = 160, QUEUE = 6 };
enum { LEASE_MS = 3000, SLICE_MS = 200, GUARD_MS = LEASE_MS, DRIFT_PPM = 10000 };

enum quorum_script { PLAIN_ACQUIRE, FENCED_ACQUIRE, RENEW, FENCED_EXTEND, RELEASE, SCRIPTS };

/* It runs at 1 + ppm / 1000000 of the world's speed. */
struct clock {
    int64_t offset_ms;
    int ppm;
};

struct machine {
    redisContext *connection;
    char *sha[SCRIPTS];
    char *by_one_sha, *extend_by_one_sha, *pass_sha;
    struct clock clock;
    bool up;
    int run;           /* how often it has been started */
    int64_t began_at;  /* this run */
    int64_t up_at;     /* while it is down: when it will be up again */
    int64_t saved;     /* the counter that is on its disk; 0: none */
    int64_t passed_ms; /* its keys have aged until then, by its clock */
};

/* What one client wants of one server. */
enum member_op { ASK, EXTEND, RAISE, PROBE, GIVE_BACK };
struct command {
    enum member_op member_op;
    int64_t lease_ms, token;
    bool sent;
};

/* A command under way, or its answer. */
struct copy {
    int64_t at; /* when it arrives; NEVER: there is none */
    bool returns;
    int client, server, life, epoch, run;
    struct command command;
    int64_t sent_ms, not_after_ms;
    /* The answer. */
    int64_t ran_at, server_ms, code, value;
};

/* One client's connection to one server, and what it has to do there: one thing at a time. */
struct link {
    bool connected;
    int epoch; /* which connection */
    int64_t cut_until;
    int64_t ahead_ms;    /* the server's clock, by its last answer */
    int64_t up_since_ms; /* by the client's clock, at the latest */
    int64_t quiet_until_ms;
    struct command queue[QUEUE];
    size_t queued;
    bool under_way; /* the first of the queue */
    int64_t due_at; /* when to look at it again */
};

enum phase { THINKING, ASKING, KEEPING, WAITING, AGEING, HOLDING };
enum answer { UNASKED, GRANTED, BUSY, FAILED };

struct client {
    struct clock clock;
    int life;
    int64_t paused_until;
    struct link links[SERVERS];
    struct hfi_votes votes;
    enum phase phase;
    bool wanted; /* what is granted is kept */
    enum answer answers[SERVERS];
    int64_t lease_ms, wake_at, give_up_at, release_at, next_ttl_ms;
    bool renews;
    size_t needed; /* OF_THOSE_THAT_ANSWER: a majority of these */
    /* Deletions: which servers another has won with, out of how many, and what was heard of it. */
    bool stolen[SERVERS], heard[SERVERS];
    size_t stolen_of;
};

struct quorum_model {
    struct play play;
    struct quorum_tally tally;
    struct machine machines[SERVERS];

    /* One schedule. */
    enum quorum_discipline discipline;
    bool fenced;
    bool deletes; /* somebody deletes the lock at servers; two holders are then nobody's fault */
    bool slow;    /* commands take their time */
    bool idle;    /* holds are not renewed, and end with their leases */
    bool short_guard; /* it is half as long as the leases */
    bool crashes;     /* servers crash most of the time */
    int64_t now;
    int64_t fault_at;
    unsigned fault_ms;
    bool had_it[SERVERS]; /* that counted for the last hold */
    int64_t highest;      /* the largest token of all holds until now */
    struct client clients[CLIENTS];
    struct copy copies[COPIES];
};

int64_t quorum_between(struct quorum_model *m, int64_t from, int64_t to);
int64_t quorum_clock_us(const struct quorum_model *m, const struct clock *clock);
int64_t quorum_clock_ms(const struct quorum_model *m, const struct clock *clock);

/* ---- quorum_world.c: servers, and what must be true ------------------------------------------ */

/* Runs it, now, and fills in the answer. */
void quorum_run(struct quorum_model *m, struct copy *copy);
void quorum_delete(struct quorum_model *m, int server);
void quorum_save(struct quorum_model *m, int server);
void quorum_forget_all_but(struct quorum_model *m, int server, int64_t counter); /* 0: all */
bool quorum_believes(const struct quorum_model *m, const struct client *client);
void quorum_judge(struct quorum_model *m);
void quorum_judge_win(struct quorum_model *m, int winner, int64_t token);
void quorum_judge_answer(struct quorum_model *m, const struct copy *copy);

/* ---- quorum_network.c: what becomes of a command --------------------------------------------- */

void quorum_push(struct quorum_model *m, int client, int server, struct command command);
/* Whatever was to be done there and was not begun is not done. */
void quorum_forget(struct quorum_model *m, int client, int server);
bool quorum_is_queued(const struct link *link, enum member_op member_op);
void quorum_break_link(struct quorum_model *m, int client, int server);
void quorum_pump(struct quorum_model *m, int client, int server);
void quorum_arrive(struct quorum_model *m, struct copy *copy);

/* ---- quorum_client.c: the rules --------------------------------------------------------------- */

void quorum_client_begin(struct quorum_model *m, int who);
void quorum_client_wake(struct quorum_model *m, int who);
void quorum_answered(struct quorum_model *m, const struct copy *copy);
void quorum_failed(struct quorum_model *m, int who, int server, const struct command *command);
/* Its deadline may have passed. */
void quorum_client_look(struct quorum_model *m, int who);

#endif
