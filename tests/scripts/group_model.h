/* A world of clients that want values of one group over a bad network, played on a real server.
 *
 * Three holdfast owners, each with one set of the values at a time, a client that does what Redisson
 * does, and somebody who breaks holds take random steps; replies get lost, and requests on dead
 * connections arrive much later, unheard. After every script the group is compared with what its
 * clients believe. */
#ifndef HF_TEST_GROUP_MODEL_H
#define HF_TEST_GROUP_MODEL_H

#include "play.h"

enum { OWNERS = 3, VALUES = 3, ALL = (1 << VALUES) - 1, COPIES = 24, STEPS = 80 };
enum { JAVA = OWNERS, CLIENTS }; /* the last one */
enum script { ACQUIRE, RELEASE, RENEW, SCRIPTS };
enum discipline {
    CAREFUL,
    WITHOUT_NOT_AFTER, /* scripts run however late they come */
    HASTY,             /* begins its next operation while copies of the last may still act */
    FORGETFUL          /* does not end what it has lost */
};

#define GROUP "thegroup"

#define GROUP "thegroup"

struct request {
    enum script script;
    int who, set, count, lease, serial, sent, not_after;
};

struct owner {
    int set, count, deadline;
    bool broken;     /* by force, and it does not know yet */
    int quiet_after; /* copies on dead connections cannot act after this tick */
    bool pending, begun;
    int unanswered; /* copies of the operation whose reply never came */
    struct request op;
};

struct model {
    struct play play;
    char *sha[SCRIPTS], *force_sha, *java_lock_sha, *java_unlock_sha;
    enum discipline discipline;
    int serial;
    struct owner owners[OWNERS];
    struct {
        int set, count, deadline;
        bool broken;
    } java;
    struct {
        bool used;
        struct request request;
    } copies[COPIES];
    struct {
        uint64_t held, nested, busy, lost, released, resent, late, settled, forced, java;
    } tally;
};

void group_model_open(struct model *m, struct server *server);
void group_model_close(struct model *m);

/* ---- Between its files ---------------------------------------------------------------------- */

extern const char *const group_values[VALUES];
extern const char *const group_clients[CLIENTS];
extern const char *const group_scripts[SCRIPTS];

/* group_model.c: compares what is there with what is believed. */
void group_compare(struct model *m);

/* group_owner.c */
void group_owner_step(struct model *m, int who);
void group_begin_operation(struct model *m, int who, enum script script, int set, int count);
void group_send_operation(struct model *m, int who, bool reliable);
bool group_must_wait(const struct model *m, const struct owner *o);
void group_lose(struct model *m, int who); /* its hold is over */
int group_some_values(struct model *m);
int group_add_fields(const char **argv, int argc, int set);
/* Runs a request, now. */
void group_run_request(struct model *m, const struct request *r, bool hears);

#endif
